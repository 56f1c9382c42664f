"""A gang runs whole or not at all: what the end of one member means for its mates (control-plane §1.4, §1.6).

The rule looks only at what the tasks have become once all events of a batch were applied, never at the events, so it does not
matter which of them came first. A mate that is pulled down with others is charged nothing. Must never be asked
between the events of one batch, and never changes the member that began it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_controller.state.desired import StopReason
from iris_controller.state.ending import requeue_task, stop_task
from iris_controller.state.observed import cut
from iris_core.model.states import ACTIVE, JOB_TERMINAL, NON_TERMINAL, TaskState, label

if TYPE_CHECKING:
    from iris_controller.state.overlay import Overlay
    from iris_controller.state.records import Job, Task

LOST: Final = frozenset({TaskState.WORKER_FAILED, TaskState.PREEMPTED, TaskState.COSCHED_FAILED})
"""Ends that are nobody's success and nobody's failure: to a worker, to other work, or with a gang."""

_TEARS_DOWN: Final = LOST | {TaskState.FAILED}


def keep_whole(o: Overlay, job: Job, now_ms: int) -> bool:
    """Makes the tasks of a gang agree, `job.counts` being up to date. Returns whether any task was changed.

    A member lost for good, or failed for good, tears the gang down: its unfinished mates end as COSCHED_FAILED. Otherwise, when a
    member is back in the queue, its active mates follow it there, their attempts COSCHED_FAILED. What has succeeded stays.
    A member killed or unschedulable ends the job, which ends the rest.
    """
    counts = job.counts
    if not job.spec.group_by or job.state in JOB_TERMINAL:
        return False
    active = sum(counts[state] for state in ACTIVE)
    if any(counts[state] for state in _TEARS_DOWN):
        if not active and not counts[TaskState.PENDING]:
            return False
        _tear_down(o, job, now_ms)
        return True
    if active and counts[TaskState.PENDING]:
        _bounce(o, job)
        return True
    return False


def began_it(task: Task) -> tuple[bool, int, int]:
    """Sorts the lost and failed tasks of a job: the first is the one that began it."""
    return task.state is TaskState.COSCHED_FAILED, task.finished_at_ms or 0, task.index


def _tear_down(o: Overlay, job: Job, now_ms: int) -> None:
    tasks = list(o.tasks_of(job.job_id))
    first = min((task for task in tasks if task.state in _TEARS_DOWN), key=began_it)
    error = _blame(first, label(first.state))
    ended = 0
    for task in tasks:
        if task.state in NON_TERMINAL:
            ended += 1
            stop_task(
                o,
                task,
                TaskState.COSCHED_FAILED,
                now_ms,
                stop=StopReason.JOB_TERMINATED,
                reason="cosched_failed",
                error=error,
            )
    o.note("gang_terminated", job.job_id, first.task_id, tasks=ended, reason=error)


def _bounce(o: Overlay, job: Job) -> None:
    tasks = list(o.tasks_of(job.job_id))
    first = next(task for task in tasks if task.state is TaskState.PENDING)
    error = _blame(first, "went back to the queue")
    requeued = 0
    for task in tasks:
        if task.state in ACTIVE:
            requeued += 1
            requeue_task(
                o, task, TaskState.COSCHED_FAILED, stop=StopReason.PREEMPTED, reason="cosched_requeued", error=error
            )
    o.note("gang_requeued", job.job_id, first.task_id, tasks=requeued, reason=error)


def _blame(first: Task, what: str) -> str:
    return cut(f"gang mate task {first.index} {what}" + (f": {first.error}" if first.error else ""))
