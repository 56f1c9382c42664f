"""Which line of the store has which number in a view, and the other way round.

Eight bytes and a flag per line. Numbers are given once, in the order of `append`, and never change. Seqs come nearly in their own
order (ranks that ran side by side are put in the order of time), so the way back from a seq looks at a few blocks only.

One thread appends, any number read. Must never hold a line.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCK = 1024
CONTEXT = 1
"""Flag of a line that is only there because of its neighbours."""
BREAKS = 2
"""Flag of a line before which lines of its key are left out."""


class Numbers:
    """See the module."""

    def __init__(self) -> None:
        self._seqs = array("Q")
        self._flags = bytearray()
        self._lowest: list[int] = []
        self._highest: list[int] = []
        # The greatest seq up to the end of each block: ascending, whatever the order inside.
        self._reach: list[int] = []

    def __len__(self) -> int:
        return len(self._seqs)

    @property
    def memory_bytes(self) -> int:
        """What it takes, about."""
        return len(self._seqs) * 9 + len(self._reach) * 108

    def lowest_seq(self) -> int:
        """The lowest seq of all, 0 if there is none."""
        return min(self._lowest, default=0)

    def append(self, seq: int, flags: int = 0) -> None:
        """The next line."""
        self.extend([(seq, flags)])

    def extend(self, lines: Sequence[tuple[int, int]]) -> None:
        """The next lines: seqs with their flags."""
        seqs = [seq for seq, _ in lines]
        self._flags.extend(flags for _, flags in lines)
        at, number = 0, len(self._seqs)
        while at < len(seqs):
            room = BLOCK - number % BLOCK
            piece = seqs[at : at + room]
            low, high = min(piece), max(piece)
            if room == BLOCK:
                self._lowest.append(low)
                self._highest.append(high)
                self._reach.append(max(high, self._reach[-1] if self._reach else 0))
            else:
                self._lowest[-1] = min(self._lowest[-1], low)
                self._highest[-1] = max(self._highest[-1], high)
                self._reach[-1] = max(self._reach[-1], high)
            at += len(piece)
            number += len(piece)
        # Last: a reader that counts the lines finds everything about them.
        self._seqs.extend(seqs)

    def page(self, first: int, count: int) -> list[tuple[int, int]]:
        """Seq and flags of up to `count` lines from number `first` on."""
        end = min(first + count, len(self._seqs))
        return list(zip(self._seqs[first:end], self._flags[first:end], strict=False))

    def number_of(self, seq: int) -> int | None:
        """The number of the line with that seq; None if it is not in the view."""
        for block in range(bisect_left(self._reach, seq), len(self._reach)):
            if self._lowest[block] <= seq <= self._highest[block]:
                start = block * BLOCK
                try:
                    return start + self._seqs[start : start + BLOCK].index(seq)
                except ValueError:
                    continue
            if self._lowest[block] > seq and self._is_in_order(block):
                return None
        return None

    def _is_in_order(self, block: int) -> bool:
        """Whether everything from that block on is above everything before it."""
        return block == 0 or self._lowest[block] > self._reach[block - 1]
