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
from iris_core.model.constraints import ZONE, Constraint, Op
from iris_core.model.text import counted

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
    demand: Demand,
    states: Sequence[GroupState],
    coming: Mapping[str, Coming] | None = None,
    probes: Sequence[Demand] = (),
) -> list[GroupVerdict]:
    """Every group's answer, in the order of the groups. `coming` has the slices on their way by group. `probes` must have found their
    accelerators before anything is made for the demand (`demand.probed`): then the groups answer to them."""
    blocking, coming = blocking_tiers(states), coming or {}
    if probes:
        found = [_probed(demand, probes, state, states, blocking) for state in states]
    else:
        found = [_verdict(demand, state, blocking) for state in states]
    return [_with(verdict, coming.get(verdict.group)) for verdict in found]


def job_feasibility(demand: Demand, states: Sequence[GroupState], probes: Sequence[Demand] = ()) -> str:
    """Why no group could ever host the request, however empty the cluster; "" = one could."""
    for asked in (*probes, demand):
        reason = never(asked, states)[1]
        if reason:
            return reason
    if probes and not any(verdict.can_ever for verdict in verdicts(demand, states, probes=probes)):
        return f"no zone has a scale group of {_variant(probes[0])} and one for the work"
    return ""


def _probed(
    demand: Demand,
    probes: Sequence[Demand],
    state: GroupState,
    states: Sequence[GroupState],
    blocking: dict[str, GroupState],
) -> GroupVerdict:
    """What a group says to work that waits until its accelerators have been obtained somewhere: that it could be the one that shows it."""
    own = [(probe, _verdict(probe, state, blocking)) for probe in probes]
    probe, verdict = next((pair for pair in own if pair[1].can_ever), own[0])
    if not verdict.can_ever:
        return verdict
    for other in probes:
        if not any(_verdict(other, s, blocking).can_ever for s in states):
            return replace(verdict, word=NO_GROUP, reason=f"no scale group has {_variant(other)}", can_ever=False)
    zone = state.attributes[ZONE]  # A probe asks for a place that has one.
    there = replace(demand, required=(*demand.required, Constraint(ZONE, Op.EQ, (zone,))))
    if not any(_verdict(there, s, blocking).can_ever for s in states):
        return replace(
            verdict, word=NO_GROUP, reason=f"no scale group in {zone} is for the work itself", can_ever=False
        )
    return replace(verdict, reason=f"a slice of it shows whether {_variant(probe)} can be had; {verdict.reason}")


def _variant(probe: Demand) -> str:
    device = probe.resources.device
    return device.variant if device is not None else ""


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
        return GroupVerdict(name, NO_GROUP, f"it does not meet {' '.join(str(c) for c in missing)}", False)
    problem = gang_problem(demand, state) if demand.gang else ""
    if problem:
        return GroupVerdict(name, NO_GANG, f"{problem}, the gang has {counted(demand.count, 'task')}", False)
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
