"""Which line of the store has which number in a view, and the other way round.

Numbers are given once, in the order of `append`, and never change. They are kept in blocks: one whose seqs follow each other costs
a few bytes, one whose seqs lie close two bytes a line, any other eight; flags cost a byte a line where a block has any. So a view of ten million
lines of one log is small, and one of many logs that mix stays below what a line itself takes. Seqs come nearly in their own order
(ranks that ran side by side are put in the order of time), so the way back from a seq looks at a few blocks only.

One thread appends, any number read. Must never hold a line.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCK = 1024
CONTEXT = 1
"""Flag of a line that is only there because of its neighbours."""
BREAKS = 2
"""Flag of a line before which lines of its key are left out."""

_NEAR = 1 << 16
_BLOCK_BYTES = 48
"""What a block takes besides its arrays."""
_ARRAY_BYTES = 80


class _Open(NamedTuple):
    """The block that is being filled: its first number, and what is in it."""

    start: int
    seqs: array[int]
    flags: bytearray


class Numbers:
    """See the module."""

    def __init__(self) -> None:
        # Of the full blocks. `_reach` is the greatest seq up to the end of each: ascending, whatever the order inside.
        self._lowest = array("Q")
        self._highest = array("Q")
        self._reach = array("Q")
        self._offsets: list[array[int] | None] = []
        """Seqs less the lowest one; None where they are 0, 1, 2, …"""
        self._flags: list[bytes | None] = []
        self._open = _Open(0, array("Q"), bytearray())
        self._array_bytes = 0

    def __len__(self) -> int:
        start, seqs, _ = self._open
        return start + len(seqs)

    @property
    def memory_bytes(self) -> int:
        """What it takes, about."""
        return len(self._lowest) * _BLOCK_BYTES + self._array_bytes + BLOCK * 9

    def lowest_seq(self) -> int:
        """The lowest seq of all, 0 if there is none."""
        return min([*self._lowest, *self._open.seqs], default=0)

    def append(self, seq: int, flags: int = 0) -> None:
        """The next line."""
        self.extend([(seq, flags)])

    def extend(self, lines: Sequence[tuple[int, int]]) -> None:
        """The next lines: seqs with their flags."""
        at = 0
        while at < len(lines):
            piece = lines[at : at + BLOCK - len(self._open.seqs)]
            # The flags first: a reader that counts the lines finds everything about them.
            self._open.flags.extend([flags for _, flags in piece])
            self._open.seqs.extend([seq for seq, _ in piece])
            at += len(piece)
            self._seal_if_full()

    def extend_seqs(self, seqs: Sequence[int]) -> None:
        """The next lines, without flags. A range costs next to nothing."""
        at = 0
        while at < len(seqs):
            if isinstance(seqs, range) and seqs.step == 1 and not self._open.seqs and len(seqs) - at >= BLOCK:
                self._seal(seqs[at], seqs[at + BLOCK - 1], None, None)
                at += BLOCK
                continue
            piece = seqs[at : at + BLOCK - len(self._open.seqs)]
            self._open.flags.extend(bytes(len(piece)))
            self._open.seqs.extend(piece)
            at += len(piece)
            self._seal_if_full()

    def _seal_if_full(self) -> None:
        _, seqs, flags = self._open
        if len(seqs) < BLOCK:
            return
        low, high = min(seqs), max(seqs)
        offsets: array[int] | None = None
        if high - low != BLOCK - 1 or seqs != array("Q", range(low, low + BLOCK)):
            offsets = array("H" if high - low < _NEAR else "Q", [seq - low for seq in seqs])
            self._array_bytes += _ARRAY_BYTES + len(offsets) * offsets.itemsize
        kept = bytes(flags) if any(flags) else None
        if kept is not None:
            self._array_bytes += BLOCK
        self._seal(low, high, offsets, kept)

    def _seal(self, low: int, high: int, offsets: array[int] | None, flags: bytes | None) -> None:
        self._lowest.append(low)
        self._highest.append(high)
        self._reach.append(max(high, self._reach[-1] if self._reach else 0))
        self._flags.append(flags)
        self._offsets.append(offsets)
        # Last: whoever reads the open block first finds all blocks before it.
        self._open = _Open(len(self._offsets) * BLOCK, array("Q"), bytearray())

    def page(self, first: int, count: int) -> list[tuple[int, int]]:
        """Seq and flags of up to `count` lines from number `first` on."""
        start, seqs, flags = self._open
        found: list[tuple[int, int]] = []
        number = first
        end = first + count
        while number < min(end, start):
            block, at = divmod(number, BLOCK)
            until = min(BLOCK, end - block * BLOCK)
            kept = self._flags[block]
            found += zip(self._seqs(block, at, until), kept[at:until] if kept else bytes(until - at), strict=True)
            number = block * BLOCK + until
        if number < end:
            found += zip(seqs[number - start : end - start], flags[number - start : end - start], strict=False)
        return found

    def _seqs(self, block: int, at: int, until: int) -> Sequence[int]:
        low, offsets = self._lowest[block], self._offsets[block]
        if offsets is None:
            return range(low + at, low + until)
        return [low + offset for offset in offsets[at:until]]

    def number_of(self, seq: int) -> int | None:
        """The number of the line with that seq; None if it is not in the view."""
        start, seqs, _ = self._open
        for block in range(bisect_left(self._reach, seq), start // BLOCK):
            low = self._lowest[block]
            if low <= seq <= self._highest[block]:
                offsets = self._offsets[block]
                if offsets is None:
                    return block * BLOCK + seq - low
                try:
                    return block * BLOCK + offsets.index(seq - low)
                except ValueError:
                    continue
            if low > seq and self._is_in_order(block):
                return None
        try:
            return start + seqs.index(seq)
        except ValueError:
            return None

    def at_or_after(self, seq: int) -> int | None:
        """The number of the first line with at least that seq, of the last one if there is none; None if there is no line."""
        start, seqs, _ = self._open
        block = bisect_left(self._reach, seq)
        if block < start // BLOCK:
            place = next(n for n, found in enumerate(self._seqs(block, 0, BLOCK)) if found >= seq)
            return block * BLOCK + place
        last = start + len(seqs) - 1
        return next((start + n for n, found in enumerate(seqs) if found >= seq), last if last >= 0 else None)

    def _is_in_order(self, block: int) -> bool:
        """Whether everything from that block on is above everything before it."""
        return block == 0 or self._lowest[block] > self._reach[block - 1]
