"""What an action of the Jobs screen is about: a job, a task or an attempt, taken from a row or from what was typed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from iris_core.live.log_query import EXACT, PREFIX, LogSource
from iris_core.model.ids import AttemptId, JobId, TaskId, parse_target

if TYPE_CHECKING:
    from iris_core.live.rows import Row
    from iris_tui.session import Session

Kind = Literal["job", "task", "attempt"]


@dataclass(frozen=True, slots=True)
class Target:
    """`job` and `task` are the ids of the job and the task that it is or belongs to, `task` "" for a job."""

    kind: Kind
    id: str
    job: str
    task: str = ""

    @property
    def attempt_number(self) -> int | None:
        """Of an attempt, None for the others."""
        return int(self.id.rpartition(":")[2]) if self.kind == "attempt" else None


def from_text(text: str) -> Target:
    """What was typed. Raises ModelError for something that is no id."""
    target = parse_target(text, allow_system=True)
    if isinstance(target, JobId):
        return Target("job", text, text)
    if isinstance(target, TaskId):
        return Target("task", text, target.job.text)
    assert isinstance(target, AttemptId)
    return Target("attempt", text, target.task.job.text, target.task.text)


def from_row(row: Row[Any]) -> Target:
    """The row's; its id is taken as it is, since the server gave it."""
    if row.kind == "job":
        return Target("job", row.id, row.id)
    if row.kind == "task":
        return Target("task", row.id, row.parent, row.id)
    return Target("attempt", row.id, row.parent.rpartition("/")[0], row.parent)


def log_source(session: Session, target: Target) -> LogSource:
    """Where its lines are: those of the job as it is now, not of an earlier one of the same name."""
    row = session.tree.store.get(target.job)
    value: Any = row.value if row is not None else None
    return LogSource(
        target.id,
        EXACT if target.kind == "attempt" else PREFIX,
        target.id,
        int(value.incarnation) if value is not None else 0,
        f"iris-core {session.selector} {target.kind} logs {target.id} --follow",
    )
