"""What goes when it was over for long enough (control-plane §2.1): finished jobs with their trees, workers that never came back.

Whoever asks has looked some time ago, so everything is looked at again here; what does not hold any more stays. Must never look
at a clock: how long ago something ended is the caller's to know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from iris_controller.state.availability import mark
from iris_core.model.states import JOB_TERMINAL, WorkerHealth

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_controller.state.overlay import Overlay

TRIGGER = "retention"


@dataclass(frozen=True, slots=True)
class EndedTree:
    """A root job that was found to be over, with everything below it."""

    job_id: str
    incarnation: int
    tasks: int
    """Of the whole tree."""
    jobs: int = 1
    """Of the whole tree."""


def prune_jobs(o: Overlay, trees: Iterable[EndedTree]) -> int:
    """Removes finished trees, every row of them. Returns how many.

    One stays whose name is another job's by now, that has a job which is not over, or an attempt that its worker still holds.
    One that the model does not hold any more is removed from the database.
    """
    removed = 0
    for tree in trees:
        if not _is_over(o, tree):
            continue
        o.delete_job(tree.job_id)
        o.note(
            "job_removed", tree.job_id, TRIGGER, incarnation=tree.incarnation, tasks=tree.tasks, reason="job_retention"
        )
        removed += 1
    return removed


def prune_part(o: Overlay, tree: EndedTree, tasks: Iterable[tuple[str, int]], job_ids: Iterable[str]) -> bool:
    """Removes some of a finished tree, so that a large one need not go in one transaction: of some jobs the tasks with an index
    below the number given, and some jobs that have no others below them. False, and nothing changed, where the tree stays.
    """
    if not _is_over(o, tree):
        return False
    for job_id, below in tasks:
        o.prune_tasks(job_id, below)
    for job_id in job_ids:
        o.delete_job(job_id)
    return True


def _is_over(o: Overlay, tree: EndedTree) -> bool:
    root = o.job(tree.job_id)
    if root is None:
        return True
    if root.submitted_at_ms != tree.incarnation:
        return False
    for current in o.subtree(tree.job_id):
        job = o.job(current)
        if (job is not None and job.state not in JOB_TERMINAL) or o.model.held.get(current):
            return False
    return True


def prune_worker(o: Overlay, worker_id: str) -> bool:
    """Removes a worker that was given up. False, and nothing changed, where it came back, still holds something, or belongs to a
    slice: that takes its workers along when it goes itself.
    """
    worker = o.worker(worker_id)
    if (
        worker is None
        or worker.health is not WorkerHealth.DEAD
        or worker.attached
        or o.slice(worker.slice_id) is not None
    ):
        return False
    if any(True for _ in o.attempts_on(worker_id)):
        return False
    o.workers[worker_id] = None
    mark(o, worker_id, worker)
    o.note("worker_pruned", worker_id, TRIGGER, slice=worker.slice_id, reason="worker_retention")
    return True
