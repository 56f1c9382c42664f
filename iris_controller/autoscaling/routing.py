"""Which group serves which demand (control-plane §3.3).

Entries are served in the order given, each by the groups that match it: those that meet more of its preferences first, for
work without accelerators those that have none, then by priority. What is already on its way, or about to be of use again, is filled
before anything new is opened, so that demand sticks to what was asked for because of it. Work goes bucket by bucket: a job of 100,000
tasks costs what a job of one does. What a reservation cannot give now, it is to give as soon as it can: chips are kept for it, and
others make way (`reservations`). Must never promise one machine twice, and never open more than a group has room for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from iris_controller.autoscaling.groups import BLOCKED, Availability, blocking_tiers, tier_block
from iris_controller.autoscaling.matching import (
    FULL,
    TIER,
    Capacity,
    capacity,
    fits,
    gang_problem,
    never,
    unmet,
    unmet_wishes,
)
from iris_controller.autoscaling.reservations import SHORT, HeldSlice, Ledger, MakeWay, Pool, rank_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from iris_controller.autoscaling.demand import Demand
    from iris_controller.autoscaling.groups import GroupState


@dataclass(frozen=True, slots=True)
class Routed:
    """So many tasks of one entry go to one group."""

    demand: Demand
    group: str
    count: int


@dataclass(frozen=True, slots=True)
class Unmet:
    """So many tasks of one entry go nowhere. `code` is one of those in `matching`."""

    demand: Demand
    count: int
    code: str
    reason: str


@dataclass(slots=True)
class Routing:
    """The whole decision. `required` counts slices that demand fills, in flight, returning and new; `launches` the new ones alone."""

    routed: list[Routed] = field(default_factory=list)
    unmet: list[Unmet] = field(default_factory=list)
    required: dict[str, int] = field(default_factory=dict)
    launches: dict[str, int] = field(default_factory=dict)
    """In the order in which they became necessary."""
    ledgers: dict[str, Ledger] = field(default_factory=dict)
    """By pool, what each reservation can still give."""
    short: dict[str, str] = field(default_factory=dict)
    """Groups that would make a slice if their reservation had the chips, and what it has."""
    making_way: list[MakeWay] = field(default_factory=list)
    unserved: dict[str, int] = field(default_factory=dict)
    """By group, the slices that what found no room would fill there; it counts in each group that it matches."""


@dataclass(slots=True)
class _Shape:
    """What entries that ask for the same have in common: why they go nowhere, ("", "") while they may, and where they may go."""

    refusal: tuple[str, str]
    choices: list[GroupState]
    books: list[_Book]
    """Of the choices; empty where none of them is made of a reservation."""


class _Book:
    """What one group can still give."""

    def __init__(self, state: GroupState, grows: bool, ledger: Ledger | None) -> None:
        self.state = state
        self.grows = grows
        self.ledger = ledger
        self.coming = state.in_flight + state.returning
        self.new = state.room if grows else 0
        self.filled = 0
        self.opened = 0
        self.claimed = 0
        """To be opened once their chips are there."""
        self.machines: dict[Capacity, int] = {}
        """Of slices that some demand has opened already: how many have how much room left."""

    def give(self, demand: Demand, count: int, new: bool) -> int:
        """Takes up to `count` tasks; `new` = into slices that nobody asked for yet. Returns how many."""
        rank = rank_of(demand)
        if demand.gang:
            return count if self._open(1, new, rank) else 0
        if not (self.new if new else self.coming or self.machines):
            return 0
        full = capacity(demand, self.state)
        each = fits(demand, full)
        if not each:
            return 0
        left = count - (0 if new else self._fill(demand, count))
        while left:
            machines = -(-left // each)
            slices = self._open(-(-machines // self.state.group.num_vms), new, rank)
            if not slices:
                break
            self._put(full, slices * self.state.group.num_vms)
            left -= self._fill(demand, left)
        return count - left

    def tasks_in_one(self, demand: Demand) -> int:
        """How many of the tasks an empty slice takes."""
        if demand.gang:
            return demand.count
        return fits(demand, capacity(demand, self.state)) * self.state.group.num_vms

    def claim(self) -> None:
        """One slice more is to be opened once its chips are there."""
        self.new -= 1
        self.claimed += 1

    def soon(self, wanted: int) -> int:
        """How many of so many slices could be asked for at once if there were chips."""
        state = self.state
        coming = self.opened + self.claimed
        if state.troubled:
            wanted = min(wanted, max(0, 1 - state.requesting - coming))
        return wanted if state.up_left is None else min(wanted, max(0, state.up_left - coming))

    def _open(self, wanted: int, new: bool, rank: int) -> int:
        if new:
            taken = min(wanted, self.new)
            if self.ledger is not None:
                chips = self.state.group.chips
                taken = min(taken, self.ledger.room(rank, chips))
                self.ledger.take(taken * chips)
            self.new -= taken
            self.opened += taken
        else:
            taken = min(wanted, self.coming)
            self.coming -= taken
            self.filled += taken
        return taken

    def _fill(self, demand: Demand, count: int) -> int:
        """First fit into the machines that are open."""
        left = count
        for room, number in list(self.machines.items()):
            each = min(fits(demand, room), count)
            if not each:
                continue
            whole = min(number, left // each)
            rest = left - whole * each if whole < number else 0
            self._put(room, -whole - bool(rest))
            self._put(_less(room, demand, each), whole)
            if rest:
                self._put(_less(room, demand, rest), 1)
            left -= whole * each + rest
            if not left:
                break
        return count - left

    def _put(self, room: Capacity, number: int) -> None:
        """So many machines more, or less, have that much room."""
        number += self.machines.get(room, 0)
        if number:
            self.machines[room] = number
        else:
            self.machines.pop(room, None)


def route(demands: Sequence[Demand], states: Sequence[GroupState], held: Iterable[HeldSlice] = ()) -> Routing:
    """Routes every entry, most important first. `held` are the slices that may go for others of their reservation."""
    routing = Routing(ledgers=_ledgers(states, held))
    blocking = blocking_tiers(states)
    books = {
        state.name: _Book(
            state,
            state.availability not in BLOCKED and not tier_block(state, blocking),
            routing.ledgers.get(state.pool.name) if state.pool is not None else None,
        )
        for state in states
    }
    shapes: dict[object, _Shape] = {}
    for demand in demands:
        key = (
            demand.resources,
            demand.required,
            demand.preferred,
            demand.group_by,
            demand.gang and (demand.count, demand.size),
        )
        shape = shapes.get(key)
        if shape is None:
            choices = candidates(demand, states)
            pooled = any(state.pool is not None for state in choices)
            own = [books[state.name] for state in choices] if pooled else []
            shape = shapes[key] = _Shape(never(demand, states), choices, own)
        if shape.refusal[0]:
            # Room only shrinks here: what has found none will find none.
            _ask_for_chips(routing, shape.books, demand, demand.count)
            _count_unserved(routing, [books[state.name] for state in shape.choices], demand, demand.count)
            routing.unmet.append(Unmet(demand, demand.count, *shape.refusal))
            continue
        choices = shape.choices
        left = demand.count
        for new in (False, True):
            for state in choices:
                given = books[state.name].give(demand, left, new) if left else 0
                if given:
                    routing.routed.append(Routed(demand, state.name, given))
                    left -= given
                if new and books[state.name].opened:
                    routing.launches[state.name] = books[state.name].opened
        if left:
            short = _ask_for_chips(routing, shape.books, demand, left)
            shape.refusal = _full(choices, blocking, short)
            _count_unserved(routing, [books[state.name] for state in choices], demand, left)
            routing.unmet.append(Unmet(demand, left, *shape.refusal))
    routing.required = {name: book.filled + book.opened for name, book in books.items() if book.filled or book.opened}
    return routing


def candidates(demand: Demand, states: Sequence[GroupState]) -> list[GroupState]:
    """The groups that could serve the entry if they had room, best first.

    Work without accelerators gets to groups with some only where no group without could ever take it.
    """
    found = [
        state
        for state in states
        if not unmet(demand, state)
        and (not gang_problem(demand, state) if demand.gang else True)
        and fits(demand, capacity(demand, state))
    ]
    device = demand.resources.device
    if device is None or device.count <= 0:
        found = [state for state in found if state.group.device is None] or found
    return sorted(found, key=lambda s: (unmet_wishes(demand, s), s.group.priority, s.name))


def _ledgers(states: Iterable[GroupState], held: Iterable[HeldSlice]) -> dict[str, Ledger]:
    pools: dict[str, Pool] = {state.pool.name: state.pool for state in states if state.pool is not None}
    slices = list(held) if pools else []
    return {name: Ledger(pool, slices) for name, pool in pools.items()}


def _ask_for_chips(routing: Routing, books: Sequence[_Book], demand: Demand, left: int) -> dict[str, str]:
    """Sees to chips for what found no room, in the first group whose reservation can have them; answers what each group lacks.

    A group that is blocked has nobody go, but what is free is kept for it: else others would take it and have to go later.
    """
    short: dict[str, str] = {}
    for book in books:
        ledger, state = book.ledger, book.state
        room = state.room - book.opened - book.claimed
        if ledger is None or not room:
            continue
        chips, each = state.group.chips, book.tasks_in_one(demand)
        if book.grows:
            short[state.name] = ledger.why(chips)
        wanted = min(-(-left // each), room)
        if not wanted:
            continue
        if not book.grows:
            kept = min(wanted, ledger.room(rank_of(demand), chips))
            ledger.take(kept * chips)
            book.claimed += kept
            continue
        for _ in range(book.soon(wanted)):
            slices = ledger.cover(demand, state.name, chips)
            if slices is None:
                break
            if slices:
                routing.making_way.append(MakeWay(demand, state.name, ledger.pool.name, slices))
            book.claim()
            left = max(0, left - each)
        ledger.lack(rank_of(demand))
    for name, reason in short.items():
        routing.short.setdefault(name, reason)
    return short


def _count_unserved(routing: Routing, books: Iterable[_Book], demand: Demand, left: int) -> None:
    for book in books:
        name = book.state.name
        routing.unserved[name] = routing.unserved.get(name, 0) - (-left // book.tasks_in_one(demand))


def _less(room: Capacity, demand: Demand, tasks: int) -> Capacity:
    asked = demand.resources
    devices = asked.device.count if asked.device is not None else 0
    cpu, memory, left = room
    return cpu - tasks * asked.cpu_millicores, memory - tasks * asked.memory_bytes, left - tasks * devices


def _full(choices: Sequence[GroupState], blocking: dict[str, GroupState], short: dict[str, str]) -> tuple[str, str]:
    tiers = [tier_block(state, blocking) for state in choices]
    own = [state.availability in BLOCKED for state in choices]
    if all(tier and not blocked for tier, blocked in zip(tiers, own, strict=True)):
        return TIER, tiers[0]
    if all(state.name in short for state in choices):
        return SHORT, "; ".join(f"{name}: {reason}" for name, reason in short.items())
    said = [
        f"{state.name}: {tier if tier and not blocked else short.get(state.name) or _why(state)}"
        for state, tier, blocked in zip(choices, tiers, own, strict=True)
    ]
    return FULL, "; ".join(said)


def _why(state: GroupState) -> str:
    if state.availability is Availability.AVAILABLE:
        return "all its slices are taken by more important work"
    return state.standing
