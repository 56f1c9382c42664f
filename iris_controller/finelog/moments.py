"""When lines were written, told by seq: a jump to a time looks at two dozen lines, which lie anywhere in the log.

The bounds of a run or an extent decide nearly all of them; where they do not, the times alone are read, of a whole row group at once, and
kept for the next question. So a jump into ten million lines decodes one row group or two, and no text. Must never keep more than
`MOST_KEPT` of them, and is released when the question is answered.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from typing import TYPE_CHECKING

from iris_controller.finelog.candidates import Candidates
from iris_controller.finelog.parts import PartsSeen
from iris_controller.finelog.segmented import Segmented
from iris_controller.finelog.stretches import Stretch, Times

if TYPE_CHECKING:
    from collections.abc import Generator

    from iris_controller.finelog.candidates import Candidate
    from iris_controller.finelog.query import Query
    from iris_controller.finelog.store import Store

MOST_KEPT = 64
"""Pieces whose times are kept: 256 KiB each at most."""


class Moments:
    """The times of the lines of `query` from seq `low` to `high - 1`, whatever they say. Release it."""

    def __init__(self, store: Store, query: Query, low: int, high: int) -> None:
        self._store = store
        self._query = query
        self._view = store.view()
        self._segmented = Segmented(store, self._view, query, low, high, 1)
        self._kept: OrderedDict[tuple[str, int, int], Times] = OrderedDict()

    def release(self) -> None:
        """The files may go now."""
        self._view.release()

    def is_before(self, seq: int, ms: int) -> Generator[None, None, bool]:
        """Whether the line with that seq was written before that time; one that is not there any more was."""
        stretches = [*self._segmented.stretches(seq), *self._of_files(seq)]
        if all(one.latest_ms < ms for one in stretches):
            return True
        if all(one.earliest_ms >= ms for one in stretches):
            return False
        for one in stretches:
            seqs, times = self._read(one)
            end = min(one.start + one.lines, len(seqs))
            at = bisect_left(seqs, seq, min(one.start, end), end)
            if at < end and seqs[at] == seq:
                return times[at] < ms
            yield
        return True

    def _read(self, stretch: Stretch) -> Times:
        found = self._kept.get(stretch.piece)
        if found is None:
            found = self._kept[stretch.piece] = stretch.read()
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(stretch.piece)
        return found

    def _of_files(self, seq: int) -> list[Stretch]:
        """The extents of the write-ahead files that hold that seq."""
        files = tuple(file for file in self._view.files if file.first_seq <= seq <= file.last_seq)
        candidates = Candidates(self._store, files, self._query, seq, seq + 1, PartsSeen(self._query))
        stretches = []
        for candidate in candidates.oldest_first():
            if candidate is None:
                continue
            extent = candidate.extent

            def read(candidate: Candidate = candidate) -> Times:
                seqs: list[int] = []
                times: list[int] = []
                for found in candidates.read(candidate):
                    if found.batch is not None:
                        seqs += range(found.first_seq, found.first_seq + found.lines)
                        times += [entry.epoch_ms for entry in found.batch.entries]
                return seqs, times

            # An extent grows while it is written: its length is part of which it is.
            piece = (candidate.file.path.name, extent.offset, extent.length)
            stretches.append(Stretch(extent.earliest_ms, extent.latest_ms, piece, 0, extent.lines, read))
        return stretches
