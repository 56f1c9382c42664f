"""The scheduling timeout: what still waits when a job's deadline passes, or waits again after it, is UNSCHEDULABLE.

The deadline is absolute (control-plane §1.7). That it passed is a fact of the job, written once with the job's row, and no
longer a matter of clocks: a task that comes back to the queue afterwards ends in the batch that sent it back, before anything
could place it, and a restart changes nothing about it. Must never look at a clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_controller.state.desired import StopReason
from iris_controller.state.ending import stop_task
from iris_core.model.quantities import format_duration
from iris_core.model.states import JOB_TERMINAL, TaskState

if TYPE_CHECKING:
    from iris_controller.state.overlay import Overlay
    from iris_controller.state.records import Job


def expire_scheduling(o: Overlay, job_id: str, now_ms: int) -> int:
    """Notes that the scheduling deadline of a job has passed, and ends its pending tasks. Returns how many.

    Whether it passed is the caller's timer to know: that is monotonic, `now_ms` is not (DESIGN §5.16).
    """
    job = o.job(job_id)
    if job is None or job.state in JOB_TERMINAL or job.scheduling_expired:
        return 0
    error = f"not scheduled within {_limit(job)}"
    waiting = o.model.reasons.get(job_id)
    return _expire(o, o.set_job(job, scheduling_expired=True), f"{error}: {waiting}" if waiting else error, now_ms)


def expire_requeued(o: Overlay, job: Job, now_ms: int) -> int:
    """Ends the tasks of a job that went back to the queue after its scheduling deadline. Returns how many."""
    if not job.scheduling_expired or job.state in JOB_TERMINAL or not job.counts[TaskState.PENDING]:
        return 0
    return _expire(o, job, f"back in the queue after its scheduling deadline, {_limit(job)} after submission", now_ms)


def _limit(job: Job) -> str:
    return format_duration(job.spec.scheduling_timeout_ms, exact=True)


def _expire(o: Overlay, job: Job, error: str, now_ms: int) -> int:
    expired = [task for task in o.tasks_of(job.job_id) if task.state is TaskState.PENDING]
    for task in expired:
        cause = f"{error}; its last attempt: {task.error}" if task.error else error
        stop_task(
            o,
            task,
            TaskState.UNSCHEDULABLE,
            now_ms,
            stop=StopReason.UNSPECIFIED,
            reason="unschedulable",
            error=cause,
        )
    if expired:
        o.note("task_unschedulable", expired[0].task_id, "timer", tasks=len(expired), reason=error)
    return len(expired)
