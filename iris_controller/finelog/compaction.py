"""Merging segments of a table, so that a store of years is a few large files and a key lies in few places.

Two steps up: neighbours of level 0 become one of level 1, those of level 1 one of level 2, which stays as it is. A merge takes the
shortest prefix of neighbours that reaches its size, and 32 of them at most, so a backlog of any length costs the memory of 32 row
groups. Rows stream through in the order of (key, seq); the result is read back before what it was made of goes.

Heavy: imported by the thread that merges. Must never change what a reader sees: the same rows lie in another file.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from iris_controller.finelog.segment_writer import SegmentWriter
from iris_controller.finelog.segments import GROUP_ROWS, SegmentDamaged, SegmentFile, conform
from iris_controller.finelog.steps import reached
from iris_controller.finelog.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from iris_controller.finelog.convert import Pause
    from iris_controller.finelog.segment import Segment
    from iris_controller.finelog.segments import Layout

log = logging.getLogger("iris.finelog")

TARGETS = (64 << 20, 256 << 20)
"""What a segment of level 1, and of level 2, has at least, in bytes (cli-auth-logs §3.4)."""
MOST = 32
"""Segments of one merge at most; so many are merged whatever their size."""


def plan(
    segments: Sequence[Segment], targets: Sequence[int] = TARGETS, apart: Collection[str] = ()
) -> tuple[Segment, ...]:
    """The neighbours to merge next, oldest first; empty if there is nothing to do.

    Those named in `apart` are left as they are, and so are those that lie in the object store alone.
    """
    for level, target in enumerate(targets):
        for (found, is_apart), run in groupby(
            segments, key=lambda one: (one.level, bool(one.object) or one.name in apart)
        ):
            if found != level or is_apart:
                continue
            taken: list[Segment] = []
            size = 0
            for segment in run:
                taken.append(segment)
                size += segment.bytes
                if size >= target or len(taken) == MOST:
                    return tuple(taken)
    return ()


def merge(
    folder: Path,
    layout: Layout,
    inputs: Sequence[Segment],
    pause: Pause,
    on_damage: Callable[[str, SegmentDamaged], None],
) -> Segment:
    """Writes the segment that holds the rows of `inputs`, which are neighbours in the order of seq, durably and checked.

    Raises SegmentDamaged, after `on_damage` was told the name of an input that cannot be read; OSError. Then there is none.
    """
    sources: list[_Source] = []
    covers = (inputs[0].first_seq, inputs[-1].last_seq)
    created_ms = max(segment.created_ms for segment in inputs)
    writer = SegmentWriter(folder, layout, inputs[0].level + 1, covers, created_ms=created_ms)
    seqs = 0
    try:
        sources += [_Source(folder, segment, layout, on_damage) for segment in inputs]
        began = time.monotonic()
        for table in _merged(sources, layout.key):
            seqs += pc.sum(table["seq"]).as_py()
            writer.write(table)
            pause(time.monotonic() - began)
            began = time.monotonic()
        reached("merge: rows are written")
        marks: dict[str, int] = {}
        for source in sources:
            for producer, number in source.marks.items():
                marks[producer] = max(number, marks.get(producer, 0))
        segment = writer.finish(marks)
    except BaseException:
        writer.abandon()
        raise
    finally:
        for source in sources:
            source.close()
    verify(folder / segment.name, sum(one.rows for one in inputs), seqs)
    pa.default_memory_pool().release_unused()
    reached("merge: the segment is there")
    return segment


class _Source:
    """One input: its row groups one after the other, and how far each was taken."""

    def __init__(
        self, folder: Path, segment: Segment, layout: Layout, on_damage: Callable[[str, SegmentDamaged], None]
    ) -> None:
        self._name = segment.name
        self._layout = layout
        self._on_damage = on_damage
        self._group = 0
        self._table: Any = None
        self._at = 0
        try:
            self._file = SegmentFile.open(folder / segment.name)
        except SegmentDamaged as damage:
            on_damage(self._name, damage)
            raise

    @property
    def marks(self) -> dict[str, int]:
        return self._file.footer.marks

    @property
    def is_last(self) -> bool:
        """Whether no row group follows the one at hand."""
        return self._group >= len(self._file.groups)

    def fill(self) -> bool:
        """Makes sure that there is a row at hand; False at the end. Raises SegmentDamaged, OSError."""
        while self._table is None or self._at >= self._table.num_rows:
            if self.is_last:
                return False
            try:
                batch = self._file.read(self._group)
            except SegmentDamaged as damage:
                self._on_damage(self._name, damage)
                raise
            self._group += 1
            self._table = pa.Table.from_batches([conform(batch, self._layout.schema)])
            self._at = 0
            keys = batch.column(self._layout.key)
            self._keys = keys.cast(pa.int64()) if pa.types.is_timestamp(keys.type) else keys
            self._seqs = batch.column("seq")
        return True

    def place(self, row: int) -> tuple[bool, Any, int]:
        """Where a row stands in the order; a NULL is behind every key."""
        key = self._keys[row].as_py()
        return key is None, key, self._seqs[row].as_py()

    @property
    def end(self) -> tuple[bool, Any, int]:
        """Where the last row at hand stands."""
        return self.place(self._table.num_rows - 1)

    def take(self, limit: tuple[bool, Any, int] | None) -> Any:
        """The rows at hand up to `limit`, or all."""
        start = self._at
        rows = self._table.num_rows
        self._at = rows if limit is None else bisect_right(range(rows), limit, start, key=self.place)
        return self._table.slice(start, self._at - start)

    def close(self) -> None:
        self._file.close()


def _merged(sources: list[_Source], key: str) -> Iterator[Any]:
    """The rows of all in the order of (key, seq). Sources are in the order of seq, and do not overlap in it."""
    while alive := [source for source in sources if source.fill()]:
        # Whatever is not at hand yet stands behind the last row of its source that is.
        limit = min((source.end for source in alive if not source.is_last), default=None)
        taken = [table for table in (source.take(limit) for source in alive) if table.num_rows]
        if len(taken) == 1:
            yield taken[0]
            continue
        table = pa.concat_tables(taken).combine_chunks()
        order = _order(table[key])
        for start in range(0, len(order), GROUP_ROWS):
            yield table.take(order.slice(start, GROUP_ROWS))


def _order(keys: Any) -> Any:
    """The stable order of the keys: rows of one key stay as they are, which is the order of seq."""
    words = keys.combine_chunks().dictionary_encode()
    ranks = pc.rank(words.dictionary, sort_keys="ascending", tiebreaker="dense")
    # Small numbers are put in order without comparing.
    return pc.sort_indices(pc.cast(ranks, pa.int64()).take(words.indices))
