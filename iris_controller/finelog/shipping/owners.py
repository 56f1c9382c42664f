"""What the shipper asks of a store, and what it says of itself: the seam between the two, plain values.

Must never import a store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a store is. Taken before the catalog's snapshot, so that the snapshot holds at least what it says."""

    next_seq: int
    """No number from here on was given away."""
    sealed_seq: int
    """Every row up to here is in a segment of the catalog, or was removed."""
    loose_bytes: int
    """Of write-ahead files whose rows are in no segment yet."""
    loose_since_ms: int
    """When the oldest of those rows was stored, 0 = there is none."""


class Owner(Protocol):
    """One sequence of rows whose segments a catalog names."""

    name: str
    """Its part of the manifest."""

    def owns(self, table: str) -> bool:
        """Whether the table's rows are numbered by it."""
        ...

    def standing(self) -> Standing: ...

    def roll(self) -> None:
        """Closes the file that grows, so that its rows become a segment soon. Nothing happens where it holds none."""
        ...

    def notes(self) -> Mapping[str, Any]:
        """What a restored store must know beside rows and producers, as JSON."""
        ...


@dataclass(frozen=True, slots=True)
class ShippingStatus:
    """How shipping is. Times are epoch milliseconds."""

    state: str
    """"shipping", "behind" (the object store does not answer; it goes on by itself), "stopped" (an operator must act)."""
    problem: str = ""
    place: str = ""
    shipped_at_ms: int = 0
    """When the newest manifest was written, 0 = not since this process started."""
    shipped_seq: Mapping[str, int] | None = None
    """Part → every row up to here is in the object store."""
    unshipped_bytes: int = 0
    """Of segments and write-ahead files that are on this disk alone."""
    unshipped_since_ms: int = 0
    """When the oldest row was stored that would be lost with this disk, 0 = there is none."""
