"""The root-cause block of `task describe` and `attempt describe`: what the last lines of a failed attempt say (cli-auth-logs §4.7).

A log store that does not answer costs the block and not the command; that lines are still on their way is said. Must never show a
line of another incarnation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from iris_core.analysis.root_cause import highlights
from iris_core.contracts import IrisError
from iris_core.model.states import TaskState
from iris_core.model.text import one_line, truncate_cells

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_core.cli.session import Session
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

LAST_LINES: Final = 1_000
WIDEST: Final = 400
_FAILED: Final = frozenset({TaskState.FAILED, TaskState.WORKER_FAILED, TaskState.COSCHED_FAILED})


@dataclass(frozen=True, slots=True)
class RootCause:
    """What the log of one attempt says of its end."""

    attempt: int
    lines: list[str]

    def text(self) -> str:
        """The block, "" where there is nothing to show."""
        if not self.lines:
            return ""
        rows = [f"  {truncate_cells(one_line(line), WIDEST)}\n" for line in self.lines]
        return f"Root cause, by the last lines of attempt {self.attempt}:\n" + "".join(rows)


def failed(attempts: Sequence[pb.AttemptStatus]) -> pb.AttemptStatus | None:
    """The newest of a task's attempts, if it failed."""
    if not attempts:
        return None
    newest = max(attempts, key=lambda attempt: attempt.attempt_id)
    return newest if int(newest.state) in _FAILED else None


def culprit(job: pb.JobStatus, tasks: Sequence[pb.TaskStatus]) -> pb.TaskStatus | None:
    """The failed task whose error its job has, else the first that failed by itself; None if none did.

    A gang mate that was stopped has failed, too, and its log says nothing of why.
    """
    failures = [task for task in tasks if int(task.state) in _FAILED]
    # A job that would have outlived the failure has the error of a mate.
    failures = [task for task in failures if int(task.state) != TaskState.COSCHED_FAILED] or failures
    for task in failures:
        # The job of several tasks says which one it was.
        index = task.task_id.rpartition("/")[2]
        if job.error in (task.error, f"task {index}: {task.error}"):
            return task
    return failures[0] if failures else None


def may_have_logged(task: pb.TaskStatus) -> bool:
    """Whether there may be a line of the task's last attempt; not of one that never was on a worker."""
    return bool(task.attempt_uid) and not (task.HasField("log_lines") and task.log_lines == 0)


def of_attempt(session: Session, task: pb.TaskStatus, attempt: pb.AttemptStatus) -> RootCause | None:
    """What is said of that attempt's end; None, and a warning, when the log cannot be read."""
    from iris_core.cli.log_lines import ordered
    from iris_core.cli.log_reader import LogReader
    from iris_core.wire.gen.iris.v1.common_pb2 import MATCH_SCOPE_EXACT
    from iris_core.wire.gen.iris.v1.logs_pb2 import FetchLogsRequest

    base = FetchLogsRequest(
        source=f"{task.task_id}:{attempt.attempt_id}",
        match_scope=MATCH_SCOPE_EXACT,
        min_incarnation=task.incarnation,
        attempt_uid=attempt.attempt_uid,
    )
    uid = attempt.attempt_uid
    try:
        answer = LogReader(session.client, base, several=False).fetch(max_lines=LAST_LINES, tail=True, producers=[uid])
    except IrisError as error:
        session.diagnostics.warn(f"the root cause is left out, the log cannot be read: {error.message}")
        return None
    here = next((mark.next_number for mark in answer.marks if mark.producer == uid), 0)
    if attempt.HasField("log_lines") and here < attempt.log_lines:
        session.diagnostics.note(
            f"{attempt.log_lines - here:,} lines of the attempt are still on their way to the log store"
        )
    lines = [line.data for line in ordered(answer.entries) if not line.gap]
    return RootCause(attempt.attempt_id, highlights(lines))
