"""Reservations whose chips move between slice sizes: what one can still give, and which slices go for more important work (§2.7, §3.4).

Every group that draws on a pool makes its slices of the same chips, whatever their size. Chips are given band by band: once a band
is short, nothing of a lower band is made of the pool in that evaluation, so that what was freed for it is not taken by what
was evicted. Where free chips and those on their way back do not suffice, the fewest slices of the lowest bands go, all that it takes
or none. Must never give more chips than are free, and never name a slice with work of an equal or higher band.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from iris_controller.autoscaling.demand import Demand
    from iris_controller.scheduling.preemption import Claim
    from iris_controller.state.records import Job

SHORT: Final = "reservation_short"
BUFFER: Final = -1
"""The rank of a slice that nobody waits for: below every band."""
_NOBODY: Final = -2

Cost = tuple[int, int, int, int, int]
"""What sorts sets of slices: how many with work of each band, PRODUCTION first, how many without any, and their value. SYSTEM never goes."""
_Chosen = tuple["HeldSlice", "_Chosen"] | None


@dataclass(frozen=True, slots=True)
class Pool:
    """One reservation now. `held` are the chips of all slices that are there or asked for, `draining` those of them that come back."""

    name: str
    chips: int
    held: int = 0
    draining: int = 0

    @property
    def free(self) -> int:
        return max(0, self.chips - self.held)

    def lack(self, free: int, needed: int) -> str:
        """That so many free chips are not enough, as a sentence."""
        back = f", {self.draining} on their way back" if self.draining else ""
        kept = "" if free < needed else " and kept for more important work"
        return f"pool {self.name}: {free} of {self.chips} chips free{kept}{back}, {needed} needed"


@dataclass(frozen=True, slots=True)
class HeldSlice:
    """A ready slice of the autoscaler's own that may go for other work."""

    slice_id: str
    group: str
    pool: str
    chips: int
    rank: int
    """The highest among the bands its tasks are stamped with; 0 = it has none and is not kept ready either. One that is, is of BATCH."""
    value: int = 0
    """What its tasks cost, together (`task_value`)."""
    jobs: tuple[Job, ...] = ()
    """Whose tasks they are."""


@dataclass(frozen=True, slots=True)
class MakeWay:
    """These slices go so that a slice of `group` can be made for the demand."""

    demand: Demand
    group: str
    pool: str
    slices: tuple[HeldSlice, ...]


class Ledger:
    """What one pool can still give in one evaluation. Asked in the order of the demand, most important first."""

    def __init__(self, pool: Pool, held: Iterable[HeldSlice] = ()) -> None:
        self.pool = pool
        self.free = pool.free
        self._back = pool.draining
        self._held = {item.slice_id: item for item in held if item.pool == pool.name}
        self._short = _NOBODY
        self._vain: set[tuple[Claim | None, str]] = set()
        """Who has asked for nothing, for which group."""

    def room(self, rank: int, chips: int) -> int:
        """How many slices of so many chips may be made now for work of that rank."""
        return self.free // chips if rank >= self._short else 0

    def take(self, chips: int) -> None:
        """Free chips are used, or kept for work that cannot use them yet."""
        self.free -= min(chips, self.free)

    def lack(self, rank: int) -> None:
        """Work of that rank is short: nothing lower is made of the pool from here on."""
        self._short = max(self._short, rank)

    def cover(self, demand: Demand, group: str, chips: int) -> tuple[HeldSlice, ...] | None:
        """Sees to it that one slice of the group can be made once all that goes is gone: of chips that are free or on their way back,
        and of slices that go for it, which are the answer. None = that cannot be, and nothing is changed.
        """
        asked = demand.claim, group
        if rank_of(demand) < self._short or asked in self._vain:
            return None
        missing = chips - self.free - self._back
        chosen: tuple[HeldSlice, ...] = ()
        if missing > 0:
            chosen = fewest([item for item in self._held.values() if may_go(item, demand, group)], missing)
            if not chosen:
                self._vain.add(asked)
                return None
            self._vain.clear()
        for item in chosen:
            del self._held[item.slice_id]
            self._back += item.chips
        kept = min(chips, self.free)
        self.free -= kept
        self._back -= chips - kept
        return chosen

    def why(self, chips: int) -> str:
        """Why a slice of so many chips is not made now."""
        return self.pool.lack(self.free, chips)


def rank_of(demand: Demand) -> int:
    """The rank of its band; 0 = it has none."""
    return demand.band.rank() if demand.band is not None else 0


def may_go(item: HeldSlice, demand: Demand, group: str) -> bool:
    """Whether the slice may go for a slice of `group` for the demand. One that has nothing to do may go for any band, though not for
    another like it."""
    claim = demand.claim
    if claim is None or item.rank >= claim.band.rank() or (not item.jobs and item.group == group):
        return False
    return all(claim.may_take(job) for job in item.jobs)


def cost(slices: Iterable[HeldSlice]) -> Cost:
    """Sorts sets of slices: those that do least harm first."""
    counts = [0, 0, 0, 0]
    value = 0
    for item in slices:
        counts[item.rank] += 1
        value += item.value
    idle, batch, interactive, production = counts
    return production, interactive, batch, idle, value


def fewest(candidates: Sequence[HeldSlice], chips: int) -> tuple[HeldSlice, ...]:
    """Those with the least `cost` that have at least so many chips together; empty when all of them have fewer."""
    allowed = _lowest(candidates, chips)
    unit = gcd(*(item.chips for item in allowed)) or 1
    needed = -(-chips // unit)
    kept: dict[tuple[int, int], int] = {}
    best: list[tuple[Cost, _Chosen] | None] = [((0, 0, 0, 0, 0), None)] + [None] * needed
    for item in sorted(allowed, key=lambda item: (item.rank, item.value, item.slice_id)):
        # Of alike slices, no more than would do alone, the cheapest.
        alike = kept.get((item.rank, item.chips), 0)
        if alike * item.chips >= chips:
            continue
        kept[item.rank, item.chips] = alike + 1
        own = cost([item])
        for covered in range(needed - 1, -1, -1):
            known = best[covered]
            if known is None:
                continue
            total = _sum(known[0], own)
            place = min(needed, covered + item.chips // unit)
            there = best[place]
            if there is None or total < there[0]:
                best[place] = total, (item, known[1])
    found = best[needed]
    chosen: list[HeldSlice] = []
    rest = found[1] if found is not None else None
    while rest is not None:
        chosen.append(rest[0])
        rest = rest[1]
    return tuple(sorted(chosen, key=lambda item: item.slice_id))


def _lowest(candidates: Sequence[HeldSlice], chips: int) -> list[HeldSlice]:
    """Those of the lowest ranks that have so many chips together: no set with another does less harm. Empty when all have fewer."""
    for rank in sorted({item.rank for item in candidates}):
        allowed = [item for item in candidates if item.rank <= rank]
        if sum(item.chips for item in allowed) >= chips:
            return allowed
    return []


def _sum(a: Cost, b: Cost) -> Cost:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3], a[4] + b[4]
