"""Why a request waits, whether it would run now, and what would have to change: in words, from the exact counts.

The first sentence is the cause; what follows is what somebody would ask next. Works on a `ClusterView` beside the loop, and gives
equal answers for equal views. Must never be asked by the scheduler: its own short reasons are in `reasons.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from iris_controller.scheduling.blockers import blockers
from iris_controller.scheduling.funnel import (
    CONSTRAINT,
    CPU,
    HEALTH,
    MEMORY,
    SLOTS,
    Asked,
    FleetView,
    Funnel,
    count,
    judge,
)
from iris_controller.scheduling.order import order_key
from iris_controller.scheduling.snapshot import BUILDING_LIMIT
from iris_controller.state.budgets import budget_user, effective_band
from iris_core.model.quantities import format_cpu, format_size
from iris_core.model.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from iris_controller.autoscaling.verdict import GroupVerdict
    from iris_controller.scheduling.blockers import Blocked
    from iris_controller.scheduling.funnel import GangGroup, Step
    from iris_controller.scheduling.order import OrderKey
    from iris_controller.state.budgets import Budget
    from iris_controller.state.model import Model
    from iris_controller.state.records import Job
    from iris_core.model.bands import PriorityBand


_SHORT = 8
"""A size that takes more characters than this is said rounded, too."""


class Verdict(IntEnum):
    """Whether there is room; the numbers of `ExplainVerdict` on the wire."""

    RUNS_NOW = 1
    """There is room now."""
    WAITS = 2
    """There is none now, and there can be."""
    NEVER_FITS = 3
    """Not even if every worker were healthy and idle, nor on one that a scale group could make."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The fleet and the queue at one moment. `waiting` are the jobs with pending tasks, and how many those are."""

    fleet: FleetView
    waiting: tuple[tuple[Job, int], ...]
    budgets: Mapping[str, Budget]
    """Of every user with waiting work."""
    spent: Mapping[str, int]

    @classmethod
    def of(cls, model: Model, more: tuple[tuple[Job, int], ...] = ()) -> ClusterView:
        """What the model says now, and jobs that are to be thought of as waiting, too."""
        instead = {job.job_id for job, _ in more}
        waiting = [(model.jobs[j], len(tasks)) for j, tasks in model.pending.items() if j not in instead]
        waiting.extend(more)
        users = {budget_user(job) for job, _ in waiting}
        return cls(
            FleetView.of(model), tuple(waiting), {user: model.budget_of(user) for user in users}, dict(model.spent)
        )


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job stands in the queue (control-plane §2.3).

    `position` is that of its first pending task, from 1; `spent` and `limit` are its user's, in the unit of `task_value`.
    """

    requested: PriorityBand
    effective: PriorityBand
    user: str
    spent: int
    limit: int
    position: int
    queue: int
    """Pending tasks in all."""

    @property
    def demoted(self) -> bool:
        return self.effective is not self.requested


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer. `cause` is one sentence without a full stop, `notes` are more of them."""

    cause: str
    verdict: Verdict
    asked: Asked
    funnel: Funnel
    place: Place
    blocked: tuple[Blocked, ...] = ()
    """Who holds what is missing where it is nearest to fitting."""
    notes: tuple[str, ...] = ()
    scale_groups: tuple[GroupVerdict, ...] = ()


def explain(view: ClusterView, job: Job, tasks: int, scale_groups: Sequence[GroupVerdict] = ()) -> Explanation:
    """Explains `tasks` pending tasks of a job, which is in `view.waiting` or would be.

    `scale_groups` are the answers of the groups that may make workers for it.
    """
    asked = Asked.of(job.spec, tasks)
    judged = judge(view.fleet, asked)
    funnel = count(judged)
    where = place(view, job)
    verdict = verdict_of(asked, funnel, scale_groups)
    return Explanation(
        cause=cause_of(asked, funnel) + _part(asked, funnel, tasks) + _turn(verdict, where),
        verdict=verdict,
        asked=asked,
        funnel=funnel,
        place=where,
        blocked=blockers(judged, funnel),
        notes=tuple(_notes(asked, funnel)),
        scale_groups=tuple(scale_groups),
    )


def place(view: ClusterView, job: Job) -> Place:
    """Where the job's first pending task stands, as `waiting.queue` has it: more important bands first, then the users of its band
    in turn, task by task, whoever spends least first, of equals whoever has the most important work."""
    user, band, key = budget_user(job), _effective(view, job), order_key(job)
    first, ahead, turn = key, 0, 0
    others: dict[str, tuple[OrderKey, int]] = {}
    """Of each other user in the band: the most important work, and how many tasks."""
    for other, tasks in view.waiting:
        served = _effective(view, other)
        if served is not band:
            ahead += tasks if served.outranks(band) else 0
            continue
        rank, owner = order_key(other), budget_user(other)
        if owner != user:
            best, many = others.get(owner, (rank, 0))
            others[owner] = (min(best, rank), many + tasks)
        elif rank < key:
            first = min(first, rank)
            turn += tasks
    spent = view.spent.get(user, 0)
    for owner, (best, many) in others.items():
        sooner = (view.spent.get(owner, 0), best) < (spent, first)
        ahead += min(many, turn + sooner)
    return Place(
        requested=job.spec.band.resolve(None),
        effective=band,
        user=user,
        spent=spent,
        limit=view.budgets[user].limit,
        position=ahead + turn + 1,
        queue=sum(tasks for _, tasks in view.waiting),
    )


def _effective(view: ClusterView, job: Job) -> PriorityBand:
    user = budget_user(job)
    return effective_band(job.spec.band, view.budgets[user].limit, view.spent.get(user, 0))


def verdict_of(asked: Asked, funnel: Funnel, scale_groups: Sequence[GroupVerdict] = ()) -> Verdict:
    """Whether it would run now, wait, or never fit: on no worker that is there, and none that could be made."""
    if asked.group_by:
        if any(not group.missing for group in funnel.groups):
            return Verdict.RUNS_NOW
        possible = any(group.capable >= asked.size for group in funnel.groups)
    else:
        if funnel.fits:
            return Verdict.RUNS_NOW
        possible = funnel.capable > 0
    if possible or any(group.can_ever for group in scale_groups):
        return Verdict.WAITS
    return Verdict.NEVER_FITS if funnel.workers or scale_groups else Verdict.WAITS


# The cause ----------------------------------------------------------------------------------------------------


def cause_of(asked: Asked, funnel: Funnel) -> str:
    """What stops it, or that there is room: one sentence."""
    if not funnel.workers:
        return "no worker is known"
    step = funnel.stopped_by
    if step is not None and step.name in (HEALTH, CONSTRAINT):
        return _unmet(funnel, step)
    if asked.group_by:
        small = _groups_too_small(asked, funnel)
        if small or step is None:
            return small or _gang(asked, funnel)
    if step is None:
        return f"{_of(funnel.fits, funnel.workers)} room for it"
    if funnel.released:
        return f"{counted(funnel.released, 'worker')} will have room once ended attempts are confirmed gone; {_short(funnel, step)}"
    return _short(funnel, step)


def _part(asked: Asked, funnel: Funnel, tasks: int) -> str:
    """That there is room for some of the tasks and not for all."""
    return f": for {funnel.room} of {tasks} tasks" if not asked.group_by and 0 < funnel.room < tasks else ""


def _unmet(funnel: Funnel, step: Step) -> str:
    found = ", ".join(f"{count} {value}" for value, count in step.found)
    if step.name == HEALTH:
        return f"none of {counted(funnel.workers, 'worker')} is healthy: {found}"
    before = [other.wants for other in funnel.steps[1 : funnel.steps.index(step)]]
    which = counted(_reached(funnel, step), "healthy worker")
    which += f" with {' and '.join(before)}" if before else ""
    suggestion = f"; {step.suggestion}" if step.suggestion else ""
    return f"none of {which} has {step.wants}: {found}{suggestion}"


def _short(funnel: Funnel, step: Step) -> str:
    """A resource of which too little is there, or free."""
    reached = counted(_reached(funnel, step), "worker")
    if any(other.name == CONSTRAINT for other in funnel.steps):
        reached += " matching its constraints"
    earlier = [s.name for s in funnel.steps[: funnel.steps.index(step)] if s.name not in (HEALTH, CONSTRAINT)]
    reached += f" with enough {' and '.join(earlier)}" if earlier else ""
    if step.name == SLOTS:
        return f"no setup slot is free: each of {reached} already sets up {BUILDING_LIMIT} tasks"
    unit = " of memory" if step.name == MEMORY else ""
    if step.largest == 0:
        return f"needs {step.wants}{unit}: none of {reached} has any"
    if step.needed > step.largest:
        return f"needs {step.wants}{unit}: the largest of {reached} has {amount(step.name, step.largest)} in all"
    return (
        f"needs {step.wants}{unit} free: the most on one of {reached} is {amount(step.name, step.most_free)} "
        f"of {amount(step.name, step.most_total)}"
    )


def _groups_too_small(asked: Asked, funnel: Funnel) -> str:
    """Why no group could take the whole gang even when idle; "" when one could."""
    shared = _alike(asked)
    if not funnel.groups:
        return f"needs {shared}: no worker has that attribute" + (f"; {funnel.meant}" if funnel.meant else "")
    if any(group.capable >= asked.size for group in funnel.groups):
        return ""
    groups = counted(len(funnel.groups), "group")
    largest = max(funnel.groups, key=lambda group: group.workers)
    if largest.workers < asked.size:
        return f"needs {shared}: the largest of {groups}, {largest.value}, has {largest.workers}"
    best = max(funnel.groups, key=lambda group: (group.capable, group.workers))
    return (
        f"needs {shared}: the best of {groups}, {best.value}, has {best.capable} of {best.workers} that could take one"
    )


def _gang(asked: Asked, funnel: Funnel) -> str:
    best = funnel.groups[0]
    if not best.missing:
        tasks = f"all {asked.size} tasks" if asked.size != 1 else "its task"
        return f"{asked.group_by} {best.value} has room for {tasks}"
    return f"needs {_alike(asked, ' with room')}: {best.value} has {best.fits}, {best.missing} missing{_blocked(best)}"


def _alike(asked: Asked, what: str = "") -> str:
    """The workers that a gang needs."""
    if asked.size == 1:
        return f"1 worker{what} that has {asked.group_by}"
    return f"{counted(asked.size, 'worker')}{what} that share one {asked.group_by}"


def _blocked(group: GangGroup) -> str:
    why = ", ".join(f"{count} lack {name}" if count != 1 else f"1 lacks {name}" for name, count in group.blocked)
    return f" ({why})" if why else ""


def _turn(verdict: Verdict, where: Place) -> str:
    """The queue's part in it."""
    before = where.position - 1
    if where.demoted:
        ahead = f", behind {counted(before, 'task')}" if before else ""
        return (
            f"; {where.user} is over budget ({where.spent} spent of {where.limit}), "
            f"so it is served as {where.effective.label}{ahead}"
        )
    return f"; {counted(before, 'task')} will be served before it" if verdict is Verdict.RUNS_NOW and before else ""


def _notes(asked: Asked, funnel: Funnel) -> list[str]:
    notes: list[str] = []
    step = funnel.stopped_by
    if funnel.released and step is not None and asked.group_by:
        workers = counted(funnel.released, "worker")
        notes.append(f"{workers} will have room once ended attempts are confirmed gone ({step.name})")
    helps = [f"{step.more} {_relief(step)}" for step in funnel.steps if step.more and not funnel.fits]
    if helps:
        notes.append(f"workers that would fit: {', '.join(helps)}")
    return notes


def _relief(step: Step) -> str:
    if step.name == HEALTH:
        return "if they were healthy"
    if step.name == CONSTRAINT:
        return f"without {step.wants}"
    return "if a setup slot were free" if step.name == SLOTS else f"if it asked for less {step.name}"


def _reached(funnel: Funnel, step: Step) -> int:
    """How many workers were left before a step."""
    number = funnel.steps.index(step)
    return funnel.steps[number - 1].left if number else funnel.workers


def amount(step: str, value: int) -> str:
    """A number of that step's unit: cores, bytes, pieces."""
    if step == CPU:
        return format_cpu(value)
    if step != MEMORY:
        return str(value)
    exact = format_size(abs(value), exact=True)
    text = exact if len(exact) <= _SHORT else f"{format_size(abs(value))} ({exact})"
    return f"-{text}" if value < 0 else text


def _of(part: int, whole: int) -> str:
    return f"{part} of {counted(whole, 'worker')} {'has' if part == 1 else 'have'}"
