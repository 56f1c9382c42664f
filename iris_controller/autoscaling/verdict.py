"""What each scale group says to a request, for explanations and at submit (DESIGN §5.7, control-plane §3.3).

The same questions as the routing asks, about one request alone and with nothing decided. Must never be used to plan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from iris_controller.autoscaling.groups import BLOCKED, Availability, blocking_tiers, tier_block
from iris_controller.autoscaling.matching import (
    NO_GANG,
    NO_GROUP,
    TIER,
    TOO_SMALL,
    capacity,
    fits,
    gang_problem,
    never,
    unmet,
)
from iris_controller.autoscaling.reservations import SHORT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from iris_controller.autoscaling.coming import Coming
    from iris_controller.autoscaling.demand import Demand
    from iris_controller.autoscaling.groups import GroupState


@dataclass(frozen=True, slots=True)
class GroupVerdict:
    """One group's answer. `word` is no_matching_group, coschedule_mismatch, insufficient_resources, tier_blocked or reservation_short, else the
    group's availability; `can_ever` says that the group could host the request if nothing held it back.
    """

    group: str
    word: str
    reason: str
    can_ever: bool


def verdicts(
    demand: Demand, states: Sequence[GroupState], coming: Mapping[str, Coming] | None = None
) -> list[GroupVerdict]:
    """Every group's answer, in the order of the groups. `coming` has the slices on their way by group."""
    blocking, coming = blocking_tiers(states), coming or {}
    return [_with(_verdict(demand, state, blocking), coming.get(state.name)) for state in states]


def job_feasibility(demand: Demand, states: Sequence[GroupState]) -> str:
    """Why no group could ever host the request, however empty the cluster; "" = one could."""
    return never(demand, states)[1]


def _with(verdict: GroupVerdict, coming: Coming | None) -> GroupVerdict:
    """Tells of what is on its way before what else there could be; a request alone is nothing else."""
    if coming is None or not verdict.can_ever:
        return verdict
    if verdict.word == Availability.REQUESTING:
        return replace(verdict, reason=str(coming))
    return replace(verdict, reason=f"{coming}; {verdict.reason}")


def _verdict(demand: Demand, state: GroupState, blocking: dict[str, GroupState]) -> GroupVerdict:
    name = state.name
    missing = unmet(demand, state)
    if missing:
        return GroupVerdict(name, NO_GROUP, f"it is not {' '.join(str(c) for c in missing)}", False)
    problem = gang_problem(demand, state) if demand.gang else ""
    if problem:
        return GroupVerdict(name, NO_GANG, f"{problem}, the gang has {demand.count} tasks", False)
    if not fits(demand, capacity(demand, state)):
        return GroupVerdict(name, TOO_SMALL, "one of its machines is too small", False)
    if not state.group.max_slices:
        return GroupVerdict(name, str(state.availability), state.standing, False)
    tier = tier_block(state, blocking)
    if tier and state.availability not in BLOCKED:
        return GroupVerdict(name, TIER, tier, True)
    pool, chips = state.pool, state.group.chips
    if (
        pool is not None
        and pool.free < chips
        and state.room
        and not state.in_flight
        and state.availability not in BLOCKED
    ):
        return GroupVerdict(name, SHORT, pool.lack(pool.free, chips), True)
    return GroupVerdict(name, str(state.availability), state.standing or f"it may make {state.room} more", True)
