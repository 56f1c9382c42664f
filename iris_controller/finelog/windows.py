"""What was found in a range of seqs of a segment, a window, and how wide the next one is to be.

A window knows what was looked at in it, so that a reader who takes a part of its lines counts no more than that part. Seqs that
nobody has read yet are read when somebody asks. Heavy, as `scan` is. Must never count a line that was not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_controller.finelog.line import Line

MAX_ROWS = 2_000_000
"""Rows looked at in one window, about."""


@dataclass(slots=True)
class Density:
    """How often lines matched so far, which says how many rows hold as many matches as are wanted."""

    filters: bool
    looked: int = 0
    matched: int = 0

    def rows_for(self, wanted: int) -> int:
        """So many rows hold `wanted` matches, about."""
        if not self.filters:
            return wanted + wanted // 8 + 64
        return int(min(MAX_ROWS, wanted * (self.looked + 64) / (self.matched + 1) + 1024))


@dataclass(frozen=True, slots=True)
class Unread:
    """So many rows that the index excludes; their seqs are read when somebody asks."""

    rows: int
    seqs: Callable[[], Any]

    def __len__(self) -> int:
        return self.rows


@dataclass(slots=True)
class Window:
    """What was found from seq `low` to `high - 1`. `lines` are ascending, and no more than were wanted."""

    low: int
    high: int
    lines: list[Line] = field(default_factory=list)
    looked: list[Any] = field(default_factory=list)
    """The seqs of the lines whose text was searched, or would have been but for the index (`Unread`)."""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Seq and number of lines of the gap records that do not match."""
    parts: list[Any] = field(default_factory=list)
    """The seqs of what was looked at and is a part of a line."""

    def looked_between(self, low: int, high: int) -> int:
        """How many lines from seq `low` to `high - 1` were looked at."""
        if low <= self.low and high >= self.high:
            return sum(map(len, self.looked))
        looked = (one.seqs() if isinstance(one, Unread) else one for one in self.looked)
        return sum(_count_between(seqs, low, high) for seqs in looked)

    def lost_between(self, low: int, high: int) -> int:
        """How many lines the gap records there stand for."""
        return sum(lines for seq, lines in self.gaps if low <= seq < high)

    def has_parts_between(self, low: int, high: int) -> bool:
        """Whether a part of a line is among those that were looked at."""
        return any(_count_between(seqs, low, high) for seqs in self.parts)


def _count_between(seqs: Any, low: int, high: int) -> int:
    found: int = pc.sum(pc.and_(pc.greater_equal(seqs, low), pc.less(seqs, high)), min_count=0).as_py()
    return found
