"""In which order pending work is served (control-plane §2.3).

All pending tasks of one job are alike, so the unit of the queue is the job's bucket of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_core.model.states import TaskState

if TYPE_CHECKING:
    from iris_controller.state.model import Model
    from iris_controller.state.records import Job, Task

OrderKey = tuple[int, int, int, int, int]

NOT_PLANNED = "waiting for the scheduler"


def order_key(job: Job) -> OrderKey:
    """Sorts first what is served first: band, deeper jobs, root submit time, submit time, insertion.

    A child carries its root's submit time, so a tree finishes before newer trees start.
    """
    return (-job.spec.band.rank(), -job.depth, job.root_submitted_ms, job.submitted_at_ms, job.priority_insertion)


def pending_order(model: Model) -> list[str]:
    """The ids of all jobs with pending tasks, as the scheduler would serve them."""
    return sorted(model.pending, key=lambda job_id: order_key(model.jobs[job_id]))


def explain_pending(model: Model, job_id: str) -> str:
    """Why the pending tasks of a job wait; empty when it has none. Pending work always has a reason (DESIGN §5.7)."""
    if not model.pending.get(job_id):
        return ""
    return model.reasons.get(job_id) or NOT_PLANNED


def explain_task(model: Model, task: Task) -> str:
    """Why a pending task waits; empty for any other."""
    return explain_next(model, task.job_id, task.attempt_number) if task.state is TaskState.PENDING else ""


def explain_next(model: Model, job_id: str, attempt_number: int) -> str:
    """Why a pending task of the job waits, with the number of its next attempt when it has had one (-1 = it has not)."""
    reason = explain_pending(model, job_id)
    return f"retry as attempt {attempt_number + 1}: {reason}" if reason and attempt_number >= 0 else reason
