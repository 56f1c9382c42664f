"""Which pieces of which write-ahead files a query has to look at, in the order of seq or against it.

Files and extents are skipped by their bounds alone. Extents never overlap in seq, so those of many keys are merged lazily: a reader
of the last lines touches the newest only. What cannot be read any more is told to the store and left out of the answer, never out of
its account. Must never decide about a single line.
"""

from __future__ import annotations

import heapq
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from iris_controller.finelog.index import GAP_BIT, is_inside
from iris_controller.finelog.records import Record, walk
from iris_controller.finelog.wal import Loss
from iris_core.wire.gen.iris.v1 import logs_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iris_controller.finelog.files import OpenFile, WalFile
    from iris_controller.finelog.index import Extent, KeyRows
    from iris_controller.finelog.parts import PartsSeen
    from iris_controller.finelog.query import Query
    from iris_controller.finelog.store import Store

log = logging.getLogger("iris.finelog")

_PARTIAL = bytes((7 << 3, 1))
"""How `partial` lies in a serialised line."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An extent that may hold lines that match, and the open file it lies in."""

    extent: Extent
    file: WalFile
    opened: OpenFile


@dataclass(frozen=True, slots=True)
class Piece:
    """`lines` lines from `first_seq`; `batch` is None if all of them pass the bounds of time and level and none can match."""

    first_seq: int
    lines: int
    batch: logs_pb2.LogBatch | None


@dataclass(slots=True)
class Candidates:
    """The candidates with lines from `low` to `high - 1`."""

    store: Store
    files: tuple[WalFile, ...]
    query: Query
    low: int
    high: int
    parts: PartsSeen
    edge: int = 0
    """Where None was yielded last: oldest first, all up to it was dealt with; newest first, all from it on."""
    faults: dict[str, None] = field(default_factory=dict)
    """What could not be read."""

    def keys(self) -> set[str]:
        """The keys of the scope that have lines in the files."""
        opened = [self._open(file) for file in self.files if file.first_seq < self.high]
        return {key for one in opened if one is not None for key in one.index.keys(self.query.scope)}

    def oldest_first(self) -> Iterator[Candidate | None]:
        """Ascending; None instead of what is skipped."""
        for file in self.files:
            if file.first_seq >= self.high:
                return
            last_seq = file.last_seq
            opened = self._open(file)
            rows = self._rows(opened) if opened is not None else []
            for extent in heapq.merge(*(one.after(self.low - 1) for one in rows), key=lambda one: one.first_seq):
                if extent.first_seq >= self.high:
                    return
                if opened is not None and extent.may_match(self.query):
                    yield Candidate(extent, file, opened)
                else:
                    self.edge = extent.last_seq
                    yield None
            self.edge = last_seq
            yield None

    def newest_first(self) -> Iterator[Candidate | None]:
        """Descending; None instead of what is skipped."""
        for file in reversed(self.files):
            if file.first_seq >= self.high:
                continue
            opened = self._open(file)
            rows = self._rows(opened) if opened is not None else []
            for extent in heapq.merge(*(one.before(self.high) for one in rows), key=lambda one: -one.first_seq):
                if extent.last_seq < self.low:
                    return
                if opened is not None and extent.may_match(self.query):
                    yield Candidate(extent, file, opened)
                else:
                    self.edge = extent.first_seq
                    yield None
            self.edge = file.first_seq
            yield None

    def read(self, candidate: Candidate) -> Iterator[Piece]:
        """The pieces of a candidate, in order."""
        extent = candidate.extent
        try:
            data = candidate.opened.read(extent)
        except OSError as error:
            self._fault(candidate.file, error)
            return
        # A gap record counts whatever is searched for, so where there is one every line is looked at.
        # Where a line may be outside of the bounds it has to be seen how many are.
        query = self.query
        is_plain = not extent.levels & GAP_BIT and is_inside(query, extent.earliest_ms, extent.latest_ms, extent.levels)
        test = query.payload_test() if is_plain else None
        expected = extent.first_seq
        for found in walk(data, self.store.marker, 0, len(data)):
            if not isinstance(found, Record):
                continue
            self._note_loss(candidate.file, expected, found.first_seq - 1)
            expected = found.last_seq + 1
            payload = data[found.payload_start : found.end]
            # A part of a line that is searched is told of, even where it is plain that nothing matches.
            is_read = test is None or test(payload) or (self.parts.is_wanted and _PARTIAL in payload)
            batch = logs_pb2.LogBatch.FromString(payload) if is_read else None
            if batch is not None and not self.query.wants_batch(batch):
                continue
            yield Piece(found.first_seq, found.lines, batch)
        self._note_loss(candidate.file, expected, extent.last_seq)

    def _rows(self, opened: OpenFile) -> list[KeyRows]:
        index = opened.index
        found = (index.key_rows(key) for key in index.keys(self.query.scope))
        return [rows for rows in found if rows is not None]

    def _open(self, file: WalFile) -> OpenFile | None:
        if not file.may_match(self.query):
            return None
        try:
            return self.store.open_files.get(file)
        except OSError as error:
            self._fault(file, error)
            return None

    def _fault(self, file: WalFile, error: OSError) -> None:
        if isinstance(error, FileNotFoundError):
            self.faults[f"{file.path.name} was removed while it was read"] = None
            return
        what = f"{file.path.name} cannot be read: {error.strerror or error}"
        self.faults[what] = None
        log.error("%s", what)

    def _note_loss(self, file: WalFile, first_seq: int, last_seq: int) -> None:
        if first_seq <= last_seq:
            self.store.note_loss(file.path.name, Loss(first_seq, last_seq))
