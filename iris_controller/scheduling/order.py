"""In which order pending work is served (control-plane §2.3).

All pending tasks of one job are alike, so the unit of the queue is the job's bucket of them. Between users the order is made anew with
every task placed (`turns`); what is here is the order inside one user's work, and the whole as a reader sees it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from iris_controller.state.budgets import budget_user, effective_band
from iris_controller.state.desired import withheld
from iris_core.model.states import TaskState

if TYPE_CHECKING:
    from iris_controller.state.model import Model
    from iris_controller.state.records import Job, Task
    from iris_core.model.bands import PriorityBand

OrderKey = tuple[int, int, int, int, int]

NOT_PLANNED = "waiting for the scheduler"
SEALED_ELSEWHERE = "its secrets were sealed with a key that is not here: bring env.key of the earlier controller back and start this one anew"


def order_key(job: Job) -> OrderKey:
    """Sorts first what is served first of one user's work: requested band, deeper jobs, root submit time, submit time, insertion.

    A child carries its root's submit time, so a tree finishes before newer trees start.
    """
    return (
        -job.spec.band.resolve(None).rank(),
        -job.depth,
        job.root_submitted_ms,
        job.submitted_at_ms,
        job.priority_insertion,
    )


def band_now(model: Model, job: Job) -> PriorityBand:
    """The band in which the job's pending tasks are served as of now: the requested one, or BATCH over budget."""
    user = budget_user(job)
    return effective_band(job.spec.band, model.budget_of(user).limit, model.spent.get(user, 0))


class Served(NamedTuple):
    """A bucket of pending tasks: whose budget it spends, the band it is served in now, and how many tasks of the same user and
    band come before its first."""

    job_id: str
    user_id: str
    band: PriorityBand
    turn: int


def serving(model: Model) -> list[Served]:
    """All jobs with pending tasks, each where its first task would be served if all fitted and spend stood still.

    By effective band; inside a band users take turns task by task, whoever spends least first.
    """
    bands: dict[tuple[str, PriorityBand], tuple[PriorityBand, int, int]] = {}
    ahead: dict[tuple[str, PriorityBand], int] = {}
    found: list[tuple[int, int, int, int, Served]] = []
    # Thousands of jobs, and the loop waits: what is a user's is looked up once, and the order of jobs is compared once.
    for place, job in enumerate(sorted(map(model.jobs.__getitem__, model.pending), key=order_key)):
        user = budget_user(job)
        known = bands.get((user, job.spec.band))
        if known is None:
            band = band_now(model, job)
            known = bands[(user, job.spec.band)] = band, -band.rank(), model.spent.get(user, 0)
        band, rank, spent = known
        turn = ahead.get((user, band), 0)
        ahead[(user, band)] = turn + len(model.pending[job.job_id])
        found.append((rank, turn, spent, place, Served(job.job_id, user, band, turn)))
    found.sort()
    return [served for *_, served in found]


def explain_pending(model: Model, job_id: str) -> str:
    """Why the pending tasks of a job wait; empty when it has none. Pending work always has a reason (DESIGN §5.7)."""
    if not model.pending.get(job_id):
        return ""
    if (job_id, model.jobs[job_id].submitted_at_ms) in model.sealed_elsewhere:
        return SEALED_ELSEWHERE
    reason, coming = model.reasons.get(job_id) or NOT_PLANNED, model.coming.get(job_id)
    return f"{coming}; {reason}" if coming else reason


def explain_task(model: Model, task: Task) -> str:
    """Why a pending task waits, or one that is placed and held back; empty for any other."""
    if task.state is TaskState.ASSIGNED:
        return _explain_withheld(model, task)
    return explain_next(model, task.job_id, task.attempt_number) if task.state is TaskState.PENDING else ""


def _explain_withheld(model: Model, task: Task) -> str:
    attempt = model.attempts.get(task.attempt_uid)
    if attempt is None or not withheld(model, attempt):
        return ""
    ending = [model.attempts[uid].task_id for uid in attempt.displaces if uid in model.attempts]
    more = f" and {len(ending) - 1} more" if len(ending) > 1 else ""
    return f"placed on {task.worker_id}, waiting for {ending[0]}{more} to end there"


def explain_next(model: Model, job_id: str, attempt_number: int) -> str:
    """Why a pending task of the job waits, with the number of its next attempt when it has had one (-1 = it has not)."""
    reason = explain_pending(model, job_id)
    return f"retry as attempt {attempt_number + 1}: {reason}" if reason and attempt_number >= 0 else reason
