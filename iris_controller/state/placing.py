"""How a pending task comes to a worker: one by one, or a gang as a whole (control-plane §1.4, §1.6).

A plan may be older than the batch it is applied in, so everything it rests on is looked at again here; what does not hold any more
is left out, and a gang of which one member does not hold is left out whole. Must never choose a worker, nor check whether one
has room: that is the planner's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_controller.state.records import Attempt, Task, changed
from iris_core.model.states import JOB_TERMINAL, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from iris_controller.state.overlay import Overlay
    from iris_controller.state.records import Job, Worker
    from iris_core.model.bands import PriorityBand

Displaced = tuple[str, ...]
NOBODY: Final[Mapping[str, Displaced]] = {}


def assign(
    o: Overlay,
    task: Task,
    worker_id: str,
    uid: str,
    now_ms: int,
    band: PriorityBand | None = None,
    displaces: Displaced = (),
) -> Attempt | None:
    """Binds a pending task to a worker as a new attempt.

    `band` is the effective one that the task is stamped with, the job's own when not given (control-plane §2.3). `displaces` are
    the attempts on that worker whose end it waits for. None, and nothing changed, when the task is no longer pending, its job is over, or the worker takes no work now; also for
    a member of a gang, which is never placed alone.

    Raises:
        ValueError: the uid is in use; uids are never used twice.
    """
    _check_uid(o, uid)
    current = o.task(task.job_id, task.index)
    job = o.job(task.job_id)
    if current is None or current.state is not TaskState.PENDING or job is None or job.state in JOB_TERMINAL:
        return None
    if job.spec.group_by or _open_worker(o, worker_id) is None:
        return None
    return _bind(o, job, current, worker_id, uid, now_ms, band, displaces)


def assign_all(
    o: Overlay, places: Iterable[tuple[str, int, str, PriorityBand]], uid: Callable[[], str], now_ms: int
) -> None:
    """`assign` for each (job id, task index, worker id, band), as a plan gives them by the thousand; `uid` gives a new attempt's.

    What does not hold any more is left out.
    """
    jobs: dict[str, tuple[Job, Sequence[Task]] | None] = {}
    workers: dict[str, Worker | None] = {}
    changed_here, placed_here, known = o.tasks, o.attempts, o.model.attempts
    for job_id, index, worker_id, band in places:
        if job_id not in jobs:
            jobs[job_id] = _open_job(o, job_id)
        if worker_id not in workers:
            workers[worker_id] = _open_worker(o, worker_id)
        found = jobs[job_id]
        if found is None or workers[worker_id] is None:
            continue
        job, rows = found
        task = changed_here.get((job_id, index)) or (rows[index] if 0 <= index < len(rows) else None)
        if task is None or task.state is not TaskState.PENDING:
            continue
        given = uid()
        if given in placed_here or given in known:
            _check_uid(o, given)
        _bind(o, job, task, worker_id, given, now_ms, band, ())


def _open_job(o: Overlay, job_id: str) -> tuple[Job, Sequence[Task]] | None:
    """A job whose tasks are placed one by one, and they as this batch found them; None for any other, and for one that is over."""
    job = o.job(job_id)
    if job is None or job.state in JOB_TERMINAL or job.spec.group_by:
        return None
    rows: Sequence[Task] | None = o.new_tasks.get(job_id)
    return job, o.model.tasks.get(job_id, ()) if rows is None else rows


def assign_gang(
    o: Overlay,
    job_id: str,
    places: Sequence[tuple[int, str, str]],
    now_ms: int,
    band: PriorityBand | None = None,
    displaces: Mapping[str, Displaced] = NOBODY,
) -> list[Attempt]:
    """Binds all pending tasks of a gang, each to its worker: `places` are (task index, worker id, attempt uid).

    `band` as in `assign`; `displaces` by worker.

    Empty, and nothing changed, unless the places are exactly the pending tasks, no other task is on a worker or lost, every
    worker takes work now, and all of them have the same value for the gang's `group_by`.

    Raises:
        ValueError: a uid is in use or given twice.
    """
    wanted = {index: (worker_id, uid) for index, worker_id, uid in places}
    if len({uid for _, _, uid in places}) != len(places):
        raise ValueError(f"the gang {job_id} was given an attempt uid twice")
    for _, _, uid in places:
        _check_uid(o, uid)
    job = o.job(job_id)
    if job is None or job.state in JOB_TERMINAL or not job.spec.group_by or len(wanted) != len(places):
        return []
    values = set()
    for _, worker_id, _ in places:
        worker = _open_worker(o, worker_id)
        if worker is None or job.spec.group_by not in worker.attributes:
            return []
        values.add(worker.attributes[job.spec.group_by])
    tasks = [task for task in o.tasks_of(job_id) if task.state is not TaskState.SUCCEEDED]
    if len(values) != 1 or [task.index for task in tasks] != sorted(wanted):
        return []
    if any(task.state is not TaskState.PENDING for task in tasks):
        return []
    return [
        _bind(o, job, task, worker_id, uid, now_ms, band, displaces.get(worker_id, ()))
        for task in tasks
        for worker_id, uid in (wanted[task.index],)
    ]


def _check_uid(o: Overlay, uid: str) -> None:
    if uid in o.attempts or uid in o.model.attempts:
        raise ValueError(f"attempt uid {uid} is in use")


def _open_worker(o: Overlay, worker_id: str) -> Worker | None:
    """The worker, if it takes work now."""
    worker = o.worker(worker_id)
    return worker if worker is not None and worker.placeable and not worker.excluded else None


def _bind(
    o: Overlay,
    job: Job,
    task: Task,
    worker_id: str,
    uid: str,
    now_ms: int,
    band: PriorityBand | None,
    displaces: Displaced,
) -> Attempt:
    # By position: a slice makes a thousand of each, and by name they would take half as long again.
    job_id, index, number, submitted = task.job_id, task.index, task.attempt_number + 1, task.submitted_at_ms
    created = now_ms if now_ms > submitted else submitted
    attempt = Attempt(uid, job_id, index, number, worker_id, created, job.spec.resources)
    if displaces:
        attempt = changed(attempt, {"displaces": displaces})
    o.add_attempt(attempt)
    stamped = job.spec.band if band is None else band
    placed = Task(job_id, index, submitted, TaskState.ASSIGNED, number, uid, worker_id, stamped)
    if task.failure_count or task.preemption_count:
        counts = {"failure_count": task.failure_count, "preemption_count": task.preemption_count}
        placed = changed(placed, counts)
    o.put_task(task, placed)
    return attempt
