"""Whole slices go for other work of the same reservation: their tasks are preempted and nothing more is placed there (control-plane §2.7).

All of them in one batch, or none. What they go for has no place yet: its slice is made once their machines are gone, so there is no
successor to wait for as in `preempting`. Must never choose a slice: what was chosen is looked at again here, since it may be older
than the batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_controller.state.preempting import evict
from iris_controller.state.slices import Lifecycle, give_up
from iris_core.model.states import ACTIVE, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_controller.state.overlay import Overlay
    from iris_controller.state.records import Job, Task
    from iris_controller.state.slices import Slice
    from iris_core.model.bands import PriorityBand


def make_way(
    o: Overlay,
    slice_ids: Sequence[str],
    job_id: str,
    band: PriorityBand,
    may_take: Callable[[Job], bool],
    pool: str,
    now_ms: int,
) -> list[Slice]:
    """Has the slices go for a waiting job, served in `band`. Answers their rows.

    A task that has begun is charged to its preemption budget, and ends as PREEMPTED when that is used up; one that was only assigned
    costs nothing. Empty, and nothing changed, when nothing of the job waits any more, a slice is not ready any more or an operator's,
    or a task on one of them may not be taken: its stamped band is not strictly lower, `may_take` spares its job, or it is of a
    gang that runs elsewhere, too.
    """
    job = o.job(job_id)
    if job is None or not any(task.state is TaskState.PENDING for task in o.tasks_of(job_id)):
        return []
    rows, victims = [], []
    for slice_id in slice_ids:
        row = o.slice(slice_id)
        if row is None or row.manual or row.lifecycle is not Lifecycle.READY:
            return []
        found = _tenants(o, row, band, may_take)
        if found is None:
            return []
        rows.append(row)
        victims += found
    for victim_job, task in victims:
        error = f"Preempted by {job_id} ({band.label} over {task.band.label}): its slice goes to the reservation {pool}"
        evict(o, victim_job, task, job_id, error, now_ms)
    reason = f"its chips go to {job_id} ({band.label}) in the reservation {pool}"
    return [give_up(o, row, Lifecycle.DRAINING, job_id, reason, now_ms) for row in rows]


def _tenants(
    o: Overlay, row: Slice, band: PriorityBand, may_take: Callable[[Job], bool]
) -> list[tuple[Job, Task]] | None:
    """The tasks at work on the slice, with their jobs; None when one of them may not be taken."""
    found: dict[tuple[str, int], tuple[Job, Task]] = {}
    for worker_id in row.worker_ids:
        for attempt in o.attempts_on(worker_id):
            if attempt.state not in ACTIVE:
                continue
            job, task = o.job(attempt.job_id), o.task(attempt.job_id, attempt.task_index)
            if job is None or task is None or task.attempt_uid != attempt.uid:
                return None
            if not band.outranks(task.band) or not may_take(job):
                return None
            found[(job.job_id, task.index)] = job, task
    gangs = {job.job_id for job, _ in found.values() if job.spec.group_by}
    for job_id in gangs:
        if any(task.state in ACTIVE and (job_id, task.index) not in found for task in o.tasks_of(job_id)):
            return None
    return list(found.values())
