"""The columns of jobs, tasks and attempts, declared once for the command line's tables and the console.

A spec holds both faces of a column: `value` is what machine formats print (the original, times as ISO-8601 UTC) and `text`
what a person reads (one line, control characters made visible, safe for a terminal). Widths and hide order are wishes that
each surface applies to its own room. Rows are the wire's own messages. Must never cut a text: that is the surface's choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

from iris_core.live.wording import (
    ATTENTION,
    NOTHING,
    SHARES,
    Share,
    Tone,
    age,
    attempt_reason,
    charge_text,
    exit_text,
    iso,
    job_reason,
    job_tone,
    or_nothing,
    resources_text,
    share_cells,
    span,
    span_ms,
    task_reason,
    task_shares,
    task_tone,
    when,
)
from iris_core.model.bands import PriorityBand, band_label
from iris_core.model.resources import format_size
from iris_core.model.states import TERMINAL, job_label, task_label

if TYPE_CHECKING:
    from iris_core.wire.gen.iris.v1.controller_pb2 import AttemptStatus, JobStatus, TaskStatus

# The words of a cell belong to its column: whoever shows columns finds both here.
__all__ = [
    "ATTEMPTS", "JOBS", "NOTHING", "SHARES", "TASKS", "ColumnSpec", "Share", "Tone", "age", "attempt_reason",
    "exit_text", "iso", "job_reason", "job_tone", "pick", "resources_text", "share_cells", "span", "task_reason",
    "task_shares", "task_tone", "when",
]  # fmt: skip

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSpec(Generic[R]):
    """One column. Widths are in terminal cells.

    Attributes:
        id: Stable name: key in JSON, word in `--columns` and `:sort`.
        title: Heading.
        value: What machine formats print: JSON-ready, unescaped.
        text: What a person reads, given the time in epoch ms.
        sort: Key for sorting rows by this column at a time in epoch ms, None if that makes no sense.
        falls: What `sort` puts first is the largest of what the cells show: most of something is what is looked for.
        moves: Time alone changes what `text` says; the text of any other column is that of the row, whatever the time.
        tone: Meaning of the cell.
        min_width: It is never narrower; a column that does not get this is hidden.
        max_width: It is wider only where nobody else needs the room, 0 = no limit.
        flex: Share of the room that is left, as far as its texts need it (`fitting`).
        hide: On narrow screens columns are hidden by descending number; 0 = never.
    """

    id: str
    title: str
    value: Callable[[R], object]
    text: Callable[[R, int], str]
    sort: Callable[[R, int], Any] | None = None
    falls: bool = False
    moves: bool = False
    tone: Callable[[R], Tone] | None = None
    min_width: int = 4
    max_width: int = 0
    flex: int = 0
    align: Literal["left", "right"] = "left"
    hide: int = 0


def _column(**fields: Any) -> ColumnSpec[Any]:
    return ColumnSpec(**fields)


def _tasks_text(job: JobStatus, _now_ms: int) -> str:
    shares = task_shares(job)
    total = max(job.num_tasks, sum(shares.values()))
    return f"{shares['done']}/{total}"


def _tasks_left(job: JobStatus, _now_ms: int) -> tuple[float, int]:
    shares = task_shares(job)
    total = max(job.num_tasks, sum(shares.values()), 1)
    return shares["done"] / total, total


# --- jobs ------------------------------------------------------------------------------------------------------------

JOBS: Final[dict[str, ColumnSpec[JobStatus]]] = {
    spec.id: spec
    for spec in (
        _column(
            id="job_id", title="JOB ID", min_width=20, flex=3,
            value=lambda job: job.job_id,
            text=lambda job, _: or_nothing(job.job_id),
            sort=lambda job, _: job.job_id,
        ),
        _column(
            id="state", title="STATE", min_width=9, max_width=13,
            value=lambda job: job_label(job.state),
            text=lambda job, _: job_label(job.state),
            sort=lambda job, _: (ATTENTION[job_tone(job.state)], job.state),
            tone=lambda job: job_tone(job.state),
        ),
        _column(
            id="tasks", title="TASKS", min_width=8, max_width=18, flex=1,
            value=lambda job: {name: count for name, count in task_shares(job).items() if count},
            text=_tasks_text,
            sort=_tasks_left,
        ),
        _column(
            id="submitted", title="SUBMITTED", min_width=19, max_width=19, hide=8,
            value=lambda job: iso(job.submitted_at_ms),
            text=lambda job, _: when(job.submitted_at_ms),
            sort=lambda job, _: -job.submitted_at_ms, falls=True,
            tone=lambda job: Tone.DIM,
        ),
        _column(
            id="age", title="AGE", min_width=6, max_width=6, align="right",
            value=lambda job: iso(job.submitted_at_ms),
            text=lambda job, now: age(job.submitted_at_ms, now), moves=True,
            sort=lambda job, _: -job.submitted_at_ms,
        ),
        _column(
            id="time", title="TIME", min_width=7, max_width=7, align="right", hide=3,
            value=lambda job: span_ms(job.started_at_ms, job.finished_at_ms, 0) if job.finished_at_ms else None,
            text=lambda job, now: span(job.started_at_ms, job.finished_at_ms, now), moves=True,
            sort=lambda job, now: -span_ms(job.started_at_ms, job.finished_at_ms, now), falls=True,
        ),
        _column(
            id="failures", title="FAIL", min_width=4, max_width=6, align="right", hide=1,
            value=lambda job: job.failure_count,
            text=lambda job, _: str(job.failure_count) if job.failure_count else NOTHING,
            sort=lambda job, _: -job.failure_count, falls=True,
            tone=lambda job: Tone.WARN if job.failure_count else Tone.DIM,
        ),
        _column(
            id="preemptions", title="PREEMPT", min_width=7, max_width=7, align="right", hide=2,
            value=lambda job: job.preemption_count,
            text=lambda job, _: str(job.preemption_count) if job.preemption_count else NOTHING,
            sort=lambda job, _: -job.preemption_count, falls=True,
            tone=lambda job: Tone.WARN if job.preemption_count else Tone.DIM,
        ),
        _column(
            id="user", title="USER", min_width=6, max_width=16, hide=7,
            value=lambda job: job.user_id,
            text=lambda job, _: or_nothing(job.user_id),
            sort=lambda job, _: job.user_id,
        ),
        _column(
            id="band", title="BAND", min_width=6, max_width=11, hide=6,
            value=lambda job: band_label(job.priority_band),
            text=lambda job, _: band_label(job.priority_band),
            sort=lambda job, _: -_rank(job.priority_band),
        ),
        _column(
            id="resources", title="RESOURCES", min_width=12, flex=1, hide=9,
            value=lambda job: resources_text(job.resources),
            text=lambda job, _: resources_text(job.resources),
        ),
        _column(
            id="exit", title="EXIT", min_width=4, max_width=13, align="right", hide=5,
            value=lambda job: job.exit_code if job.HasField("exit_code") else None,
            text=lambda job, _: exit_text(job.exit_code, job.error) if job.HasField("exit_code") else NOTHING,
            sort=lambda job, _: -job.exit_code, falls=True,
        ),
        _column(
            id="reason", title="REASON", min_width=12, flex=4,
            value=job_reason,
            text=lambda job, _: or_nothing(job_reason(job)),
            sort=lambda job, _: (not job_reason(job), job_reason(job)),
            tone=lambda job: Tone.BAD if job.error else Tone.DIM,
        ),
    )
}  # fmt: skip


def _rank(band: int) -> int:
    try:
        return PriorityBand(band).rank()
    except ValueError:
        return 0


# --- tasks -----------------------------------------------------------------------------------------------------------

TASKS: Final[dict[str, ColumnSpec[TaskStatus]]] = {
    spec.id: spec
    for spec in (
        _column(
            id="task_id", title="TASK", min_width=20, flex=3,
            value=lambda task: task.task_id,
            text=lambda task, _: or_nothing(task.task_id),
            sort=lambda task, _: (task.job_id, task.task_index),
        ),
        _column(
            id="state", title="STATE", min_width=9, max_width=13,
            value=lambda task: task_label(task.state),
            text=lambda task, _: task_label(task.state),
            sort=lambda task, _: (ATTENTION[task_tone(task.state)], task.state),
            tone=lambda task: task_tone(task.state),
        ),
        _column(
            id="exit", title="EXIT", min_width=4, max_width=13, align="right",
            value=lambda task: task.exit_code if task.HasField("exit_code") else None,
            text=lambda task, _: _task_exit(task),
            sort=lambda task, _: -task.exit_code, falls=True,
        ),
        _column(
            id="attempt", title="ATTEMPT", min_width=7, max_width=7, align="right", hide=2,
            value=lambda task: task.current_attempt_id if task.current_attempt_id >= 0 else None,
            text=lambda task, _: str(task.current_attempt_id) if task.current_attempt_id >= 0 else NOTHING,
            sort=lambda task, _: -task.current_attempt_id, falls=True,
        ),
        _column(
            id="age", title="AGE", min_width=6, max_width=6, align="right", hide=5,
            value=lambda task: iso(task.submitted_at_ms),
            text=lambda task, now: age(task.submitted_at_ms, now), moves=True,
            sort=lambda task, _: -task.submitted_at_ms,
        ),
        _column(
            id="time", title="DURATION", min_width=8, max_width=8, align="right",
            value=lambda task: span_ms(task.started_at_ms, task.finished_at_ms, 0) if task.finished_at_ms else None,
            text=lambda task, now: span(task.started_at_ms, task.finished_at_ms, now), moves=True,
            sort=lambda task, now: -span_ms(task.started_at_ms, task.finished_at_ms, now), falls=True,
        ),
        _column(
            id="failures", title="FAIL", min_width=4, max_width=6, align="right", hide=4,
            value=lambda task: task.failure_count,
            text=lambda task, _: str(task.failure_count) if task.failure_count else NOTHING,
            sort=lambda task, _: -task.failure_count, falls=True,
            tone=lambda task: Tone.WARN if task.failure_count else Tone.DIM,
        ),
        _column(
            id="preemptions", title="PREEMPT", min_width=7, max_width=7, align="right", hide=6,
            value=lambda task: task.preemption_count,
            text=lambda task, _: str(task.preemption_count) if task.preemption_count else NOTHING,
            sort=lambda task, _: -task.preemption_count, falls=True,
            tone=lambda task: Tone.WARN if task.preemption_count else Tone.DIM,
        ),
        _column(
            id="memory_peak", title="PEAK MEM", min_width=8, max_width=8, align="right", hide=3,
            value=lambda task: task.memory_peak_bytes or None,
            text=lambda task, _: format_size(task.memory_peak_bytes) if task.memory_peak_bytes else NOTHING,
            sort=lambda task, _: -task.memory_peak_bytes, falls=True,
        ),
        _column(
            id="memory", title="CUR MEM", min_width=8, max_width=8, align="right", hide=4,
            value=lambda task: task.memory_bytes or None,
            text=lambda task, _: format_size(task.memory_bytes) if task.memory_bytes else NOTHING,
            sort=lambda task, _: -task.memory_bytes, falls=True,
        ),
        _column(
            id="worker", title="WORKER", min_width=8, max_width=24, hide=1,
            value=lambda task: task.worker_id or None,
            text=lambda task, _: or_nothing(task.worker_id),
            sort=lambda task, _: task.worker_id,
        ),
        _column(
            id="reason", title="REASON", min_width=12, flex=4,
            value=task_reason,
            text=lambda task, _: or_nothing(task_reason(task)),
            sort=lambda task, _: (not task_reason(task), task_reason(task)),
            tone=lambda task: Tone.BAD if task.error else Tone.DIM,
        ),
    )
}  # fmt: skip


def _task_exit(task: TaskStatus) -> str:
    ended = int(task.state) in TERMINAL and task.HasField("exit_code")
    return exit_text(task.exit_code, task.error) if ended else NOTHING


# --- attempts --------------------------------------------------------------------------------------------------------

ATTEMPTS: Final[dict[str, ColumnSpec[AttemptStatus]]] = {
    spec.id: spec
    for spec in (
        _column(
            id="attempt", title="ATTEMPT", min_width=7, max_width=9, align="right",
            value=lambda attempt: attempt.attempt_id,
            text=lambda attempt, _: f"{attempt.attempt_id}*" if attempt.current else str(attempt.attempt_id),
            sort=lambda attempt, _: attempt.attempt_id,
        ),
        _column(
            id="uid", title="UID", min_width=12, max_width=16, hide=2,
            value=lambda attempt: attempt.attempt_uid,
            text=lambda attempt, _: or_nothing(attempt.attempt_uid),
            sort=lambda attempt, _: attempt.attempt_uid,
            tone=lambda attempt: Tone.DIM,
        ),
        _column(
            id="state", title="STATE", min_width=9, max_width=13,
            value=lambda attempt: task_label(attempt.state),
            text=lambda attempt, _: task_label(attempt.state),
            sort=lambda attempt, _: (ATTENTION[task_tone(attempt.state)], attempt.state),
            tone=lambda attempt: task_tone(attempt.state),
        ),
        _column(
            id="exit", title="EXIT", min_width=4, max_width=13, align="right",
            value=lambda attempt: attempt.exit_code if attempt.HasField("exit_code") else None,
            text=lambda attempt, _: exit_text(attempt.exit_code, attempt.error) if attempt.HasField("exit_code") else NOTHING,
            sort=lambda attempt, _: -attempt.exit_code, falls=True,
        ),
        _column(
            id="charge", title="CHARGED", min_width=8, max_width=10, hide=4,
            value=lambda attempt: charge_text(attempt) or None,
            text=lambda attempt, _: charge_text(attempt) or NOTHING,
            sort=lambda attempt, _: attempt.charge,
            tone=lambda attempt: Tone.WARN if attempt.charge else Tone.DIM,
        ),
        _column(
            id="time", title="DURATION", min_width=8, max_width=8, align="right", hide=1,
            value=lambda attempt: (
                span_ms(attempt.started_at_ms, attempt.finished_at_ms, 0) if attempt.finished_at_ms else None
            ),
            text=lambda attempt, now: span(attempt.started_at_ms, attempt.finished_at_ms, now), moves=True,
            sort=lambda attempt, now: -span_ms(attempt.started_at_ms, attempt.finished_at_ms, now), falls=True,
        ),
        _column(
            id="worker", title="WORKER", min_width=8, max_width=24,
            value=lambda attempt: attempt.worker_id or None,
            text=lambda attempt, _: or_nothing(attempt.worker_id),
            sort=lambda attempt, _: attempt.worker_id,
        ),
        _column(
            id="memory_peak", title="PEAK MEM", min_width=8, max_width=8, align="right", hide=3,
            value=lambda attempt: attempt.memory_peak_bytes or None,
            text=lambda attempt, _: format_size(attempt.memory_peak_bytes) if attempt.memory_peak_bytes else NOTHING,
            sort=lambda attempt, _: -attempt.memory_peak_bytes, falls=True,
        ),
        _column(
            id="reason", title="REASON", min_width=12, flex=4,
            value=attempt_reason,
            text=lambda attempt, _: or_nothing(attempt_reason(attempt)),
            sort=lambda attempt, _: attempt_reason(attempt),
            tone=lambda attempt: Tone.BAD if attempt.error else Tone.DIM,
        ),
    )
}  # fmt: skip


def pick(specs: dict[str, ColumnSpec[R]], ids: Iterable[str]) -> list[ColumnSpec[R]]:
    """The named columns in that order. Raises KeyError for a name that does not exist: views are fixed in code."""
    return [specs[name] for name in ids]
