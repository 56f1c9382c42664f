"""Where the lines of each key lie in one write-ahead file: columns of extents, and per key the rows that are its own.

An extent is a run of bytes that holds records of one key and one attempt, and the bounds by which a reader skips it unread. It
costs about 58 bytes; neighbours that lie directly behind each other become one. The same columns are read from memory while a
file is written (`LiveIndex`) and from its sidecar afterwards.

One thread writes, any number read without a lock: an extent only ever grows, its bounds grow before its bytes do, and the readers
ignore what lies above the seq they started from. Must never be told of lines that are not yet on disk.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_left, bisect_right, insort
from threading import Lock
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from iris_controller.finelog.query import Query, Scope

MERGE_BYTES = 128 << 10
"""Neighbours become one extent up to this size: what a reader of the last line has to read at most."""

NO_TIME = (1 << 62, -(1 << 62))
"""Earliest and latest time of nothing."""


def attempt_hash(attempt_uid: str) -> int:
    """What the index keeps of an attempt uid: enough to skip the lines of others."""
    return zlib.crc32(attempt_uid.encode())


GAP_BIT = 1 << 6
"""Set in `levels` where there is a gap record."""


PARTIAL_BIT = 1 << 8
"""Set in `levels` where there is a part of a line that goes on: then there are fewer lines than entries."""


def level_bit(level: int) -> int:
    """What the index keeps of a line's level: one bit each, the highest for numbers that are none."""
    return 1 << (level if 0 <= level < 6 else 7)


class Extent(NamedTuple):
    """`length` bytes at `offset` with `lines` lines from `first_seq`, all of one key and attempt.

    `levels` is made by `level_bit`.
    """

    offset: int
    length: int
    first_seq: int
    lines: int
    earliest_ms: int
    latest_ms: int
    levels: int
    incarnation: int
    attempt: int

    @property
    def last_seq(self) -> int:
        """The seq of its last line."""
        return self.first_seq + self.lines - 1

    def may_match(self, query: Query) -> bool:
        """Whether a line in it can match, by its bounds alone."""
        return (
            self.incarnation >= query.min_incarnation
            and query.wants_times(self.earliest_ms, self.latest_ms)
            and bool(self.levels & wanted_levels(query))
            and (not query.attempt_uid or self.attempt == attempt_hash(query.attempt_uid))
        )


def wanted_levels(query: Query) -> int:
    """The bits of which one must occur where something is to be found: a level that passes, or a gap in what is searched."""
    if not query.min_level:
        return 0xFF
    return passing_levels(query.min_level) | (GAP_BIT if query.filters_content else 0)


def is_inside(query: Query, earliest_ms: int, latest_ms: int, levels: int) -> bool:
    """Whether every line between those times and of those levels passes the bounds of time and level."""
    if not query.holds_times(earliest_ms, latest_ms):
        return False
    # What is no level may be below all.
    passing = passing_levels(query.min_level) & 0x7F & ~(1 if query.states_level else 0)
    return not query.min_level or not levels & ~(GAP_BIT | PARTIAL_BIT | passing)


def passing_levels(min_level: int) -> int:
    """The bits of the levels that pass: UNKNOWN, and those from `min_level` up."""
    return 1 | (0xFF & ~GAP_BIT & ~((1 << min(min_level, 7)) - 1))


Code = Literal["q", "Q", "I", "B"]
"""Types of a column, in the letters of `array`."""


class Columns:
    """The extents of one file, a column for each field of `Extent`. `base` is subtracted from `first_seq`."""

    NAMES = ("earliest_ms", "latest_ms", "incarnation", "offset", "length", "first_seq", "lines", "attempt", "levels")
    CODES: tuple[Code, ...] = ("q", "q", "q", "I", "I", "I", "I", "I", "I")

    __slots__ = ("base", *NAMES)

    def __init__(self, base: int, columns: Sequence[array[int] | memoryview[int]]) -> None:
        self.base = base
        (
            self.earliest_ms,
            self.latest_ms,
            self.incarnation,
            self.offset,
            self.length,
            self.first_seq,
            self.lines,
            self.attempt,
            self.levels,
        ) = columns

    def extent(self, row: int) -> Extent:
        """The extent of one row."""
        # Before the length: should the writer add lines just now, the bytes that hold them are counted too.
        lines = self.lines[row]
        return Extent(
            self.offset[row],
            self.length[row],
            self.base + self.first_seq[row],
            lines,
            self.earliest_ms[row],
            self.latest_ms[row],
            self.levels[row],
            self.incarnation[row],
            self.attempt[row],
        )


class KeyRows:
    """The extents of one key in one file, in the order of seq."""

    __slots__ = ("_columns", "_rows")

    def __init__(self, columns: Columns, rows: Sequence[int]) -> None:
        self._columns = columns
        self._rows = rows

    def after(self, seq: int) -> Iterator[Extent]:
        """Oldest first: those that hold a line above `seq`."""
        columns, rows = self._columns, self._rows
        start = bisect_right(rows, seq - columns.base, key=columns.first_seq.__getitem__)
        for position in range(max(0, start - 1), len(rows)):
            extent = columns.extent(rows[position])
            if extent.last_seq > seq:
                yield extent

    def before(self, seq: int) -> Iterator[Extent]:
        """Newest first: those that hold a line below `seq`."""
        columns, rows = self._columns, self._rows
        stop = bisect_left(rows, seq - columns.base, key=columns.first_seq.__getitem__)
        for position in range(stop - 1, -1, -1):
            yield columns.extent(rows[position])


class LiveIndex:
    """The index of a file that is being written, or was just read anew from its records."""

    def __init__(self, first_seq: int) -> None:
        self.first_seq = first_seq
        self.last_seq = first_seq - 1
        self.lines = 0
        self.earliest_ms, self.latest_ms = NO_TIME
        self.marks: dict[str, int] = {}
        """The number that follows the last line of each producer in this file."""
        self.columns = Columns(first_seq, [array(code) for code in Columns.CODES])
        self.rows: dict[str, array[int]] = {}
        self._arrived: list[str] = []
        self._sorted: list[str] = []
        self._lock = Lock()

    def add(self, key: str, extent: Extent, producer: str, next_number: int) -> None:
        """Takes up one record. The writer calls this in the order of the file."""
        self.earliest_ms = min(self.earliest_ms, extent.earliest_ms)
        self.latest_ms = max(self.latest_ms, extent.latest_ms)
        self.lines += extent.lines
        self.marks[producer] = max(next_number, self.marks.get(producer, 0))
        rows = self.rows.get(key)
        if rows is None or not self._grow(rows[-1], extent):
            columns = self.columns
            for name in Columns.NAMES:
                value = getattr(extent, name)
                getattr(columns, name).append(value - columns.base if name == "first_seq" else value)
            row = len(columns.offset) - 1
            if rows is None:
                self.rows[key] = array("I", (row,))
                self._arrived.append(key)
            else:
                rows.append(row)
        self.last_seq = extent.last_seq

    def _grow(self, row: int, extent: Extent) -> bool:
        columns = self.columns
        length = columns.length[row]
        if (
            columns.offset[row] + length != extent.offset
            or columns.base + columns.first_seq[row] + columns.lines[row] != extent.first_seq
            or columns.attempt[row] != extent.attempt
            or columns.incarnation[row] != extent.incarnation
            or length + extent.length > MERGE_BYTES
        ):
            return False
        columns.earliest_ms[row] = min(columns.earliest_ms[row], extent.earliest_ms)
        columns.latest_ms[row] = max(columns.latest_ms[row], extent.latest_ms)
        columns.levels[row] |= extent.levels
        columns.length[row] = length + extent.length
        columns.lines[row] += extent.lines
        return True

    def key_rows(self, key: str) -> KeyRows | None:
        """The extents of `key`; None if it has none here."""
        rows = self.rows.get(key)
        return None if rows is None else KeyRows(self.columns, rows)

    def keys(self, scope: Scope) -> list[str]:
        """The keys in `scope`, sorted."""
        if scope.is_one:
            return [scope.source] if scope.source in self.rows else []
        with self._lock:
            self._sort()
            return keys_in(self._sorted, scope)

    def all_keys(self) -> list[str]:
        """Every key, sorted."""
        with self._lock:
            self._sort()
            return list(self._sorted)

    def _sort(self) -> None:
        fresh = self._arrived[len(self._sorted) :]
        if len(fresh) > 64:
            self._sorted += fresh
            self._sorted.sort()
            return
        for key in fresh:
            insort(self._sorted, key)


def keys_in(keys: Sequence[str], scope: Scope) -> list[str]:
    """Those of the sorted `keys` that lie in `scope`."""
    found: list[str] = []
    for low, high in scope.ranges():
        start = bisect_left(keys, low)
        found += keys[start : bisect_left(keys, high, start)]
    return [key for key in found if scope.matches(key)]
