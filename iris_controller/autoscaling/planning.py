"""How many slices each group makes and gives up now (control-plane §3.4, §3.6).

A group aims at what is busy, what waiting work fills and its buffer, at most `max_slices`. It makes what demand needs and what
the aim lacks; it gives up what has been idle long enough beyond the aim, longest first. Rates and failures put off, they never
forget: what is put off is planned again the next time. Must never exceed a group's maximum, and never give up a busy slice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from iris_controller.autoscaling.groups import BLOCKED, Availability, blocking_tiers, tier_block
from iris_controller.autoscaling.reservations import BUFFER
from iris_controller.autoscaling.routing import Routing, route
from iris_core.model.resources import format_age

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_controller.autoscaling.demand import Demand
    from iris_controller.autoscaling.groups import GroupState
    from iris_controller.autoscaling.reservations import HeldSlice

RATE_LIMITED = "rate_limited"
THROTTLED = "create_throttled"


@dataclass(frozen=True, slots=True)
class Launch:
    """So many new slices of a group."""

    group: str
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class Deferred:
    """So many that have to wait for a limit; `action` is the word in the action log."""

    group: str
    count: int
    action: str
    reason: str


@dataclass(frozen=True, slots=True)
class IdleSlice:
    """A ready slice all whose workers are healthy and have had no task for `idle_ms`."""

    slice_id: str
    group: str
    idle_ms: int


@dataclass(frozen=True, slots=True)
class Retire:
    """An idle slice to give up."""

    slice_id: str
    group: str
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What a group does now, in one word and why: selected, requesting, cooldown, blocked, idle."""

    word: str
    reason: str
    blocked_until_ms: int = 0


@dataclass(slots=True)
class Plan:
    """One evaluation."""

    routing: Routing
    launches: list[Launch] = field(default_factory=list)
    retires: list[Retire] = field(default_factory=list)
    deferred: list[Deferred] = field(default_factory=list)
    decisions: dict[str, Decision] = field(default_factory=dict)


def plan(
    demands: Sequence[Demand],
    states: Sequence[GroupState],
    idle: Sequence[IdleSlice] = (),
    *,
    held: Sequence[HeldSlice] = (),
    creates_left: int | None = None,
    idle_threshold_ms: int = 600_000,
) -> Plan:
    """The next step. `creates_left` is what the limit over all groups still allows, None = any number; `held` are the slices that
    may go for others of their reservation.
    """
    routing = route(demands, states, held)
    found = Plan(routing)
    blocking = blocking_tiers(states)
    by_name = {state.name: state for state in states}
    resting: dict[str, list[IdleSlice]] = {}
    for item in idle:
        resting.setdefault(item.group, []).append(item)
    order = [*routing.launches, *(name for name in by_name if name not in routing.launches)]
    left = creates_left
    for name in order:
        state = by_name[name]
        blocked = tier_block(state, blocking)
        wanted = wanted_slices(state, routing)
        count = min(wanted, state.room)
        count = 0 if state.availability in BLOCKED or blocked else _of_the_pool(state, routing, count)
        launch, left = _limited(found, state, count, left)
        if launch:
            found.launches.append(Launch(name, launch, _why(state, routing)))
        found.decisions[name] = _decision(state, routing, launch, wanted, blocked)
        found.retires.extend(_retires(state, aim(state, routing), resting.get(name, ()), idle_threshold_ms))
    return found


def aim(state: GroupState, routing: Routing) -> int:
    """How many slices the group should have."""
    wanted = state.busy + routing.required.get(state.name, 0) + state.group.buffer_slices
    return min(wanted, state.group.max_slices)


def wanted_slices(state: GroupState, routing: Routing) -> int:
    """How many more it should ask for, whatever holds it back."""
    return max(routing.launches.get(state.name, 0), aim(state, routing) - state.live, 0)


def _of_the_pool(state: GroupState, routing: Routing, count: int) -> int:
    """What of `count` the group's reservation has chips for: demand was given its own, a buffer takes what nobody waits for."""
    if state.pool is None:
        return count
    ledger, chips = routing.ledgers[state.pool.name], state.group.chips
    asked = min(count, routing.launches.get(state.name, 0))
    spare = min(count - asked, ledger.room(BUFFER, chips))
    if asked + spare < count:
        routing.short.setdefault(state.name, ledger.why(chips))
    ledger.take(spare * chips)
    return asked + spare


def _limited(found: Plan, state: GroupState, count: int, left: int | None) -> tuple[int, int | None]:
    """What of `count` the rates let through now; notes what they do not."""
    name = state.name
    if state.troubled:
        count = min(count, max(0, 1 - state.requesting))
    if state.up_left is not None and count > state.up_left:
        found.deferred.append(
            Deferred(
                name,
                count - state.up_left,
                RATE_LIMITED,
                f"{name} makes at most {state.group.scale_up_rate_limit} slices a minute",
            )
        )
        count = state.up_left
    if left is None:
        return count, None
    if count > left:
        found.deferred.append(Deferred(name, count - left, THROTTLED, "the limit of creations a minute is reached"))
        count = left
    return count, left - count


def _why(state: GroupState, routing: Routing) -> str:
    jobs = [entry.demand.job_id for entry in routing.routed if entry.group == state.name]
    if not routing.launches.get(state.name):
        return f"buffer of {state.group.buffer_slices}"
    more = f" and {len(jobs) - 1} more" if len(jobs) > 1 else ""
    return f"for {jobs[0]}{more}"


def _decision(state: GroupState, routing: Routing, launched: int, wanted: int, blocked: str) -> Decision:
    until = max(state.quota_left_ms, state.backoff_left_ms)
    if state.availability in BLOCKED:
        return Decision("blocked", state.standing, until)
    if blocked:
        return Decision("blocked", blocked)
    if launched:
        return Decision("selected", f"makes {launched}")
    if state.name in routing.short:
        return Decision("blocked", routing.short[state.name])
    if wanted and state.room:
        return Decision("requesting", "waits for a limit, or for the first answer after a failure")
    if wanted:
        return Decision("blocked" if not state.in_flight else "cooldown", state.standing)
    if state.in_flight:
        return Decision("requesting", f"{state.in_flight} on the way up")
    if state.name in routing.required:
        return Decision("cooldown", f"{state.returning} ready, about to be of use again")
    unserved = routing.unserved.get(state.name, 0)
    if unserved:
        return Decision("blocked", f"{_full(state)}, and work waits that would fill {unserved} more")
    if state.availability is Availability.AT_MAX_SLICES:
        return Decision("idle", state.standing)
    return Decision("idle", "nothing waits for it")


def _full(state: GroupState) -> str:
    return state.standing or "all its slices are taken by more important work"


def _retires(state: GroupState, target: int, idle: Sequence[IdleSlice], threshold_ms: int) -> list[Retire]:
    surplus = state.ready - target
    if state.down_left is not None:
        surplus = min(surplus, state.down_left)
    if surplus <= 0:
        return []
    old = [item for item in idle if item.idle_ms >= threshold_ms]
    old.sort(key=lambda item: (-item.idle_ms, item.slice_id))
    return [
        Retire(
            item.slice_id,
            state.name,
            f"idle for {format_age(item.idle_ms)}; {state.ready} are ready and {target} are wanted",
        )
        for item in old[:surplus]
    ]
