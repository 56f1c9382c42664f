"""The scheduler's own preemption: work of a lower band goes, and what it goes for takes its place, in one step (control-plane §2.7).

Both halves are in one batch or neither is: nothing is evicted for a task that is not placed. The victims' processes may live on for
a moment, so what was placed knows which attempts it waits for and is not dispatched before (`desired`). Until then both are held
against the worker, which is more than it has, on paper only. Must never choose a victim: that is the planner's; what it chose is
looked at again here, since it may be older than the batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_controller.state.ending import preempt_task
from iris_controller.state.placing import assign, assign_gang
from iris_core.model.states import ACTIVE, EXECUTING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_controller.state.overlay import Overlay
    from iris_controller.state.records import Attempt, Job, Task
    from iris_core.model.bands import PriorityBand

Victim = tuple[str, int, str]
"""Job id, task index and attempt uid."""


def displace(
    o: Overlay,
    job_id: str,
    places: Sequence[tuple[int, str, str]],
    victims: Sequence[Victim],
    band: PriorityBand,
    now_ms: int,
) -> list[Attempt]:
    """Preempts the victims and binds a job's pending tasks in their place: `places` are (task index, worker id, attempt uid), one
    for a job that is no gang, all of them for a gang. `band` is the effective band of what is placed.

    What is placed also waits for what is ending on its worker already; there may be no victim at all. A victim that had only been
    assigned costs nothing; one that had begun is charged to its preemption budget, and ends as PREEMPTED when that is used up. Empty, and nothing changed, when the tasks cannot be placed (`assign`, `assign_gang`) or a victim may not
    be taken: it is no longer that attempt, its stamped band is not strictly lower, it is a part of a gang of which the rest is
    not among the victims, or it is a gang's and what is placed is none.

    Raises:
        ValueError: a uid is in use or given twice.
    """
    job = o.job(job_id)
    found = _victims(o, victims, band)
    if job is None or found is None or (not job.spec.group_by and any(v.spec.group_by for v, _ in found)):
        return []
    going = {task.attempt_uid for _, task in found}
    waits = {
        worker_id: tuple(a.uid for a in o.attempts_on(worker_id) if a.uid in going or a.state not in ACTIVE)
        for _, worker_id, _ in places
    }
    if job.spec.group_by:
        placed = assign_gang(o, job_id, places, now_ms, band, waits)
    else:
        placed = _assign_one(o, job_id, places, waits, band, now_ms)
    if placed:
        by_worker = {attempt.worker_id: attempt for attempt in placed}
        for victim_job, task in found:
            successor = by_worker.get(task.worker_id, placed[0]).task_id
            error = f"Preempted by {successor} ({band.label} over {task.band.label})"
            evict(o, victim_job, task, successor, error, now_ms)
    return placed


def _victims(o: Overlay, victims: Sequence[Victim], band: PriorityBand) -> list[tuple[Job, Task]] | None:
    """The victims with their jobs; None when one of them may not be taken."""
    found: dict[tuple[str, int], tuple[Job, Task]] = {}
    gangs: dict[str, None] = {}
    for job_id, index, uid in victims:
        job, task = o.job(job_id), o.task(job_id, index)
        if job is None or task is None or task.state not in ACTIVE or task.attempt_uid != uid:
            return None
        if not band.outranks(task.band):
            return None
        if job.spec.group_by:
            gangs[job_id] = None
        found[(job_id, index)] = (job, task)
    for job_id in gangs:
        if any(task.state in ACTIVE and (job_id, task.index) not in found for task in o.tasks_of(job_id)):
            return None
    return list(found.values())


def _assign_one(
    o: Overlay,
    job_id: str,
    places: Sequence[tuple[int, str, str]],
    waits: dict[str, tuple[str, ...]],
    band: PriorityBand,
    now_ms: int,
) -> list[Attempt]:
    if len(places) != 1:
        return []
    ((index, worker_id, uid),) = places
    task = o.task(job_id, index)
    if task is None:
        return []
    placed = assign(o, task, worker_id, uid, now_ms, band, waits.get(worker_id, ()))
    return [placed] if placed is not None else []


def evict(o: Overlay, job: Job, task: Task, trigger: str, error: str, now_ms: int) -> None:
    """Preempts an active task for `trigger`, the task or job that needs what it holds: charged only when it had begun."""
    begun = task.state in EXECUTING
    preempt_task(o, job, task, now_ms, trigger=trigger, reason="displaced", error=error, told=error, charged=begun)
