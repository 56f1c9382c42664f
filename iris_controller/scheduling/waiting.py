"""The queue as a reader sees it: every bucket of pending tasks with the band it is served in now and the place of its first task.

Made from the committed model when somebody asks; the scheduler itself makes its order anew with every task it places. Must never
change anything, nor say when something will run.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import TYPE_CHECKING

from iris_controller.scheduling.order import serving

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_controller.state.model import Model
    from iris_controller.state.records import Job
    from iris_core.model.bands import PriorityBand


@dataclass(slots=True)
class Waiting:
    """The pending tasks of one job. `position` counts tasks from 1: so many are served no later than its first."""

    job: Job
    user_id: str
    """Whose budget it will spend."""
    band: PriorityBand
    """It is served in now."""
    count: int
    turn: int
    """Tasks of the same user and band before its first."""
    position: int = 0


def queue(model: Model) -> list[Waiting]:
    """All buckets, first served first, as if everything fitted and spend stood still (control-plane §2.3)."""
    found = [
        Waiting(model.jobs[job_id], user_id, band, len(model.pending[job_id]), turn)
        for job_id, user_id, band, turn in serving(model)
    ]
    ahead = 0
    for _, band in groupby(found, key=lambda w: w.band):
        ahead += _take_turns(list(band), ahead)
    found.sort(key=lambda w: w.position)
    return found


def _take_turns(band: list[Waiting], ahead: int) -> int:
    """Gives the buckets of one band their positions: users take turns task by task. Returns how many tasks there are."""
    totals: dict[str, int] = {}
    for waiting in band:
        totals[waiting.user_id] = totals.get(waiting.user_id, 0) + waiting.count
    place = {user: n for n, user in enumerate(totals)}
    leaving = sorted(totals, key=totals.__getitem__)
    sums = list(accumulate((totals[user] for user in leaving), initial=0))
    there = list(range(len(totals)))
    gone = 0
    for waiting in sorted(band, key=_turn):
        while gone < len(leaving) and totals[leaving[gone]] <= waiting.turn:
            there.pop(bisect_left(there, place[leaving[gone]]))
            gone += 1
        served = sums[gone] + len(there) * waiting.turn
        waiting.position = ahead + served + bisect_left(there, place[waiting.user_id]) + 1
    return sums[-1]


def _turn(waiting: Waiting) -> int:
    return waiting.turn


def reasons(model: Model, waiting: Iterable[Waiting]) -> dict[str, list[Waiting]]:
    """The buckets by the reason why they wait; those without one yet are left out."""
    found: dict[str, list[Waiting]] = {}
    for bucket in waiting:
        reason = model.reasons.get(bucket.job.job_id)
        if reason:
            found.setdefault(reason, []).append(bucket)
    return found
