"""A scale group as the planning sees it: its configuration, its slices by lifecycle, and what holds it back.

Times are what is left of them, in ms, so that nothing here needs a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from iris_core.model.quantities import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from iris_controller.autoscaling.reservations import Pool
    from iris_core.config.scale_groups import ScaleGroup
    from iris_core.model.resources import Resources


class Availability(StrEnum):
    """Whether a group takes more demand (control-plane §3.3); the first that holds, in this order."""

    QUOTA_EXCEEDED = "quota_exceeded"
    BACKOFF = "backoff"
    REQUESTING = "requesting"
    COOLDOWN = "cooldown"
    """All its slices are there or under way, and some are still on their way up."""
    AT_MAX_SLICES = "at_max_slices"
    AVAILABLE = "available"


BLOCKED = frozenset({Availability.QUOTA_EXCEEDED, Availability.BACKOFF})


@dataclass(frozen=True, slots=True)
class GroupState:
    """One group now. Counts are slices; those of an operator's own are in none of them."""

    group: ScaleGroup
    requesting: int = 0
    booting: int = 0
    initializing: int = 0
    ready: int = 0
    busy: int = 0
    """Of `ready`: with at least one task, those of `returning` apart."""
    returning: int = 0
    """Of `ready`: without work and out of use for a moment, until what was ended there is gone or its workers attach again."""
    going: int = 0
    """Given up, and their machines still there."""
    quota_left_ms: int = 0
    quota_reason: str = ""
    backoff_left_ms: int = 0
    failure_reason: str = ""
    troubled: bool = False
    """Its latest request failed: it is tried with one slice at a time until one succeeds."""
    up_left: int | None = None
    """Slices that its rate limit still allows now; None = any number."""
    down_left: int | None = None
    seen: Resources | None = None
    """What its largest worker really has; None = no worker has ever been seen."""
    attributes: Mapping[str, str | int | float] = field(default_factory=dict)
    """What every worker of it says of itself, from the group where not given."""
    pool: Pool | None = None
    """The reservation that its slices are made of; None = none."""

    def __post_init__(self) -> None:
        if not self.attributes:
            object.__setattr__(self, "attributes", self.group.worker_attributes())

    @property
    def name(self) -> str:
        return self.group.name

    @property
    def in_flight(self) -> int:
        return self.requesting + self.booting + self.initializing

    @property
    def live(self) -> int:
        return self.in_flight + self.ready

    @property
    def room(self) -> int:
        """Slices that may still be asked for. One that is being deleted takes its place until it is gone."""
        return max(0, self.group.max_slices - self.live - self.going)

    @property
    def availability(self) -> Availability:
        if self.quota_left_ms > 0:
            return Availability.QUOTA_EXCEEDED
        if self.backoff_left_ms > 0:
            return Availability.BACKOFF
        if self.requesting:
            return Availability.REQUESTING
        if not self.room:
            return Availability.COOLDOWN if self.in_flight else Availability.AT_MAX_SLICES
        return Availability.AVAILABLE

    @property
    def standing(self) -> str:
        """The availability as a sentence's second half; empty when nothing holds the group back."""
        match self.availability:
            case Availability.QUOTA_EXCEEDED:
                return f"quota exceeded, tried again in {_time(self.quota_left_ms)}: {self.quota_reason}"
            case Availability.BACKOFF:
                return f"backing off for {_time(self.backoff_left_ms)} after a failure: {self.failure_reason}"
            case Availability.REQUESTING:
                return f"{_slices(self.requesting)} asked for"
            case Availability.COOLDOWN:
                return f"{self.in_flight} on the way up, which makes its maximum of {self._most()}"
            case Availability.AT_MAX_SLICES:
                going = f", {self.going} being deleted" if self.going else ""
                return f"at its maximum of {self._most()}{going}"
            case _:
                return ""

    def _most(self) -> str:
        return _slices(self.group.max_slices)


def blocking_tiers(states: Iterable[GroupState]) -> dict[str, GroupState]:
    """By quota pool, the blocked group of the lowest tier: no group of its pool from that tier on may grow."""
    found: dict[str, GroupState] = {}
    for state in states:
        pool = state.group.quota_pool
        if not pool or state.availability not in BLOCKED:
            continue
        known = found.get(pool)
        if known is None or state.group.allocation_tier < known.group.allocation_tier:
            found[pool] = state
    return found


def tier_block(state: GroupState, blocking: dict[str, GroupState]) -> str:
    """Why another group's block holds for this one, too; empty when none does."""
    blocker = blocking.get(state.group.quota_pool) if state.group.quota_pool else None
    if blocker is None or blocker.name == state.name or state.group.allocation_tier < blocker.group.allocation_tier:
        return ""
    return (
        f"quota pool {state.group.quota_pool} is blocked from tier {blocker.group.allocation_tier} on:"
        f" {blocker.name} is {blocker.standing}"
    )


def _time(ms: int) -> str:
    return format_duration(max(1000, ms // 1000 * 1000))


def _slices(count: int) -> str:
    return "1 slice" if count == 1 else f"{count} slices"
