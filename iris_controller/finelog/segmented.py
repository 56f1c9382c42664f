"""The part of a read that lies in segments: which of them, in which order, and what cannot be read of them.

Segments come before the write-ahead files in the order of seq. Nothing heavy is loaded by a read that ends before it comes to one.
Must never let a damaged segment keep the others from being read.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeVar

from iris_controller.finelog.catalog import LOG
from iris_controller.finelog.trigrams import Needles
from iris_controller.finelog.wal import Loss

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from iris_controller.finelog.query import Query
    from iris_controller.finelog.runs import Run
    from iris_controller.finelog.scan import SegmentScan
    from iris_controller.finelog.segment import Segment
    from iris_controller.finelog.segments import SegmentDamaged
    from iris_controller.finelog.store import Store, View
    from iris_controller.finelog.stretches import Stretch
    from iris_controller.finelog.windows import Density, Window

log = logging.getLogger("iris.finelog")

_Found = TypeVar("_Found")


class Segmented:
    """The segments with lines from seq `low` to `high - 1`."""

    def __init__(self, store: Store, view: View, query: Query, low: int, high: int, max_bytes: int) -> None:
        self._store = store
        self._snapshot = view.snapshot
        self._segments = [one for one in view.segments if one.last_seq >= low and one.first_seq < high]
        self._query = query
        self._low = low
        self._high = high
        self._max_bytes = max_bytes
        self._density: Density | None = None
        self._scans: dict[str, SegmentScan | None] = {}
        """Those that `stretches` asks again and again."""
        self._needles = Needles.of(query.substring, query.regex.pattern if query.regex is not None else "")
        self.faults: dict[str, None] = {}
        """What could not be read."""

    def oldest_first(self, wanted: Callable[[], int]) -> Iterator[Window | None]:
        """Windows in the order of seq; None in between. `wanted` tells how many matches are still of use."""
        for segment in self._segments:
            yield from self._windows(segment, wanted)

    def newest_first(self, wanted: Callable[[], int]) -> Iterator[Window | None]:
        """Windows against the order of seq; None in between."""
        for segment in reversed(self._segments):
            yield from self._windows(segment, wanted)

    def count(self, before: int) -> Iterator[int]:
        """How many lines end below seq `before` that are of the wanted keys and attempts, piece by piece."""
        for segment in reversed(self._segments):
            if segment.first_seq < before:
                scan = self._scan(segment)
                if scan is not None:
                    yield from self._guarded(segment, scan.count(self._low, min(before, self._high)))

    def keys(self) -> set[str]:
        """The keys of the scope that have lines here."""
        found: set[str] = set()
        for segment in self._segments:
            scan = self._scan(segment)
            if scan is not None:
                found |= scan.keys()
        return found

    def seqs(self) -> Iterator[Sequence[int] | None]:
        """The seqs of all lines of the wanted keys and incarnations, ascending, in pieces; None in between."""
        for segment in self._segments:
            scan = self._scan(segment)
            if scan is not None:
                yield from self._guarded(segment, scan.seqs())
            yield None

    def places(self, rows: int) -> Iterator[list[tuple[Any, ...]]]:
        """Seq, key, time, and what is a part of what, of all lines of the wanted keys and incarnations, ascending, so many at once."""
        for segment in self._segments:
            scan = self._scan(segment)
            if scan is not None:
                yield from self._guarded(segment, scan.places(rows))

    def stretches(self, seq: int) -> list[Stretch]:
        """The runs in which the line with that seq may stand."""
        for segment in self._segments:
            if segment.first_seq <= seq <= segment.last_seq:
                if segment.name not in self._scans:
                    self._scans[segment.name] = self._scan(segment)
                scan = self._scans[segment.name]
                return [] if scan is None else list(scan.stretches(seq))
        return []

    def _windows(self, segment: Segment, wanted: Callable[[], int]) -> Iterator[Window | None]:
        from iris_controller.finelog.windows import Window

        low, high = max(segment.first_seq, self._low), min(segment.last_seq + 1, self._high)
        scan = self._scan(segment)
        if scan is not None:
            yield from self._guarded(segment, scan.windows(wanted))
        # What lies outside of all runs, or has none, was dealt with as well.
        edge = low if self._query.tail else high
        yield Window(edge, edge)

    def _guarded(self, segment: Segment, found: Iterator[_Found]) -> Iterator[_Found]:
        """What is found of a segment until the disk refuses more: it may give the rest another time, so that is no loss."""
        try:
            yield from found
        except OSError as error:
            self._fault(segment, f"{segment.name} cannot be read: {error.strerror or error}", 0, 0)

    def _scan(self, segment: Segment) -> SegmentScan | None:
        if not self._query.wants_times(segment.earliest_ms, segment.latest_ms):
            return None
        from iris_controller.finelog.scan import WORDS, SegmentScan
        from iris_controller.finelog.segments import SegmentDamaged, SegmentFile
        from iris_controller.finelog.windows import Density

        if self._density is None:
            query = self._query
            self._density = Density(query.bounds_test() is not None or query.filters_content)
        try:
            path = self._snapshot.path(LOG, segment)
            file = SegmentFile(self._store.footers.get(segment, path), WORDS)
        except SegmentDamaged as damage:
            self._fault(segment, str(damage), segment.first_seq, segment.last_seq)
            return None
        except OSError as error:
            self._fault(segment, f"{segment.name} cannot be read: {error.strerror or error}", 0, 0)
            return None

        def on_damage(damage: SegmentDamaged, runs: list[Run]) -> None:
            first, last = min(run.first_seq for run in runs), max(run.last_seq for run in runs)
            self._fault(segment, str(damage), first, last)

        groups = self._store.filters.groups(segment, path, self._needles)
        return SegmentScan(file, self._query, self._low, self._high, self._density, self._max_bytes, groups, on_damage)

    def _fault(self, segment: Segment, what: str, first_seq: int, last_seq: int) -> None:
        if what not in self.faults:
            self.faults[what] = None
            log.error("%s", what)
        if first_seq:
            self._store.note_loss(segment.name, Loss(first_seq, last_seq))
