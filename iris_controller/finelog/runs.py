"""Where the rows of each log key lie in a segment: a run per key and row group, with bounds by which a reader skips or counts it.

What an `Extent` is for a write-ahead file: times, levels, attempt and incarnation of some rows that lie side by side. Kept in the
footer of the segment. Must never be wrong about a run: counts are taken from it without looking at a row.
"""

from __future__ import annotations

import base64
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from iris_controller.finelog.index import GAP_BIT, PARTIAL_BIT, level_bit, wanted_levels
from iris_controller.finelog.sidecar import Texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from iris_controller.finelog.query import Query, Scope

RUNS_KEY = "finelog.runs"

_SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("group", pa.int64()),
        ("start", pa.int64()),
        ("rows", pa.int64()),
        ("first_seq", pa.int64()),
        ("last_seq", pa.int64()),
        ("earliest_ms", pa.int64()),
        ("latest_ms", pa.int64()),
        ("levels", pa.int64()),
        ("low_incarnation", pa.int64()),
        ("high_incarnation", pa.int64()),
        ("attempt_uid", pa.string()),
    ]
)
_NUMBERS = tuple(column.name for column in _SCHEMA if pa.types.is_int64(column.type))


class Run(NamedTuple):
    """Rows `start` to `start + rows - 1` of row group `group`, all of one key, in the order of seq.

    `levels` is made by `level_bit`, with `GAP_BIT` where there is a gap record and `PARTIAL_BIT` where there is
    a part of a line that goes on; segments of earlier releases do not have the latter.
    """

    group: int
    start: int
    rows: int
    first_seq: int
    last_seq: int
    earliest_ms: int
    latest_ms: int
    levels: int
    low_incarnation: int
    high_incarnation: int
    key: str
    attempt_uid: str | None
    """Of all rows; None where several attempts wrote."""

    def may_match(self, query: Query) -> bool:
        """Whether a row in it can match, by its bounds alone."""
        return (
            self.high_incarnation >= query.min_incarnation
            and query.wants_times(self.earliest_ms, self.latest_ms)
            and bool(self.levels & wanted_levels(query))
            and (not query.attempt_uid or self.attempt_uid in (None, query.attempt_uid))
        )

    def is_owned(self, query: Query) -> bool:
        """Whether all of its rows are of an incarnation and attempt that are asked for."""
        return self.low_incarnation >= query.min_incarnation and query.attempt_uid in ("", self.attempt_uid)


class Runs:
    """All runs of a segment, in the order of (key, seq)."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self._numbers = [ints(table.column(name)) for name in _NUMBERS]
        self._keys = _texts(table.column("key"))
        self._attempts = table.column("attempt_uid")

    @classmethod
    def parse(cls, text: bytes) -> Runs:
        """What `RunsWriter.text` wrote."""
        with pa.ipc.open_stream(base64.b85decode(text)) as reader:
            return cls(reader.read_all().combine_chunks().to_batches()[0])

    def __len__(self) -> int:
        return len(self._keys)

    def _between(self, start: int, end: int) -> Iterator[Run]:
        numbers = [one[start:end] for one in self._numbers]
        attempts = self._attempts.slice(start, end - start).to_pylist()
        return map(Run._make, zip(*numbers, self._keys[start:end], attempts, strict=True))

    def in_scope(self, scope: Scope) -> Iterator[Run]:
        """Those whose key is in the scope."""
        for low, high in scope.ranges():
            start = bisect_left(self._keys, low)
            for run in self._between(start, bisect_left(self._keys, high, start)):
                if scope.matches(run.key):
                    yield run

    def all(self) -> Iterator[Run]:
        """Every run."""
        return self._between(0, len(self))


class RunsWriter:
    """Collects the runs of a segment while its row groups are written."""

    def __init__(self) -> None:
        self._batches: list[Any] = []

    def add(self, group: int, batch: Any) -> None:
        """Takes up the rows of a row group, which are in the order of (key, seq)."""
        places = [
            batch.schema.get_field_index(name) for name in ("key", "seq", "epoch_ms", "incarnation", "attempt_uid")
        ]
        columns = dict(
            zip(("key", "seq", "epoch_ms", "incarnation", "attempt_uid"), map(batch.column, places), strict=True)
        )
        attempts = columns["attempt_uid"].dictionary_encode()
        table = pa.table(
            {
                "key": columns["key"],
                "seq": columns["seq"],
                "epoch_ms": columns["epoch_ms"],
                "incarnation": columns["incarnation"],
                "attempt": attempts.indices,
                "bit": _level_bits(batch),
            }
        )
        found = table.group_by("key", use_threads=False).aggregate(
            [
                ("seq", "count"),
                ("seq", "min_max"),
                ("epoch_ms", "min_max"),
                ("incarnation", "min_max"),
                ("attempt", "min_max"),
                ("bit", "distinct"),
            ]
        )
        words = attempts.dictionary.to_pylist()
        start = 0
        rows: dict[str, list[Any]] = {column.name: [] for column in _SCHEMA}
        for one in found.to_pylist():
            attempt = one["attempt_min_max"]
            levels = 0
            for bit in one["bit_distinct"]:
                levels |= bit
            values = (
                one["key"], group, start, one["seq_count"], one["seq_min_max"]["min"], one["seq_min_max"]["max"],
                one["epoch_ms_min_max"]["min"], one["epoch_ms_min_max"]["max"], levels,
                one["incarnation_min_max"]["min"], one["incarnation_min_max"]["max"],
                words[attempt["min"]] if attempt["min"] == attempt["max"] else None,
            )  # fmt: skip
            for name, value in zip(rows, values, strict=True):
                rows[name].append(value)
            start += one["seq_count"]
        self._batches.append(pa.record_batch(list(map(pa.array, rows.values(), _SCHEMA.types)), schema=_SCHEMA))

    def text(self) -> bytes:
        """All of them as they are kept in a footer, which holds text only."""
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, _SCHEMA, options=options) as writer:
            table = pa.Table.from_batches(self._batches, _SCHEMA).combine_chunks()
            writer.write_table(table if table.num_rows else _SCHEMA.empty_table())
        return base64.b85encode(sink.getvalue().to_pybytes())


_BITS = {level: level_bit(level) for level in range(6)}


def _level_bits(batch: Any) -> Any:
    level = batch.column(batch.schema.get_field_index("level"))
    known = pc.and_(pc.greater_equal(level, 0), pc.less(level, 6))
    bits = pc.if_else(known, pc.shift_left(pa.scalar(1, pa.int32()), pc.if_else(known, level, 0)), level_bit(-1))
    gap = batch.column(batch.schema.get_field_index("gap"))
    bits = pc.if_else(pc.greater(gap, 0), pc.bit_wise_or(bits, GAP_BIT), bits)
    partial = batch.column(batch.schema.get_field_index("partial"))
    return pc.if_else(partial, pc.bit_wise_or(bits, PARTIAL_BIT), bits) if pc.any(partial).as_py() else bits


def ints(column: Any) -> memoryview[int]:
    """The values of a column of 64 bits that has no NULL, where they lie."""
    buffer = column.buffers()[1]
    whole = memoryview(buffer if buffer is not None else b"").cast("q")
    return whole[column.offset : column.offset + len(column)]


def _texts(column: Any) -> Sequence[str]:
    if not len(column):
        return ()
    _, ends, data = column.buffers()
    offsets = memoryview(ends).cast("I")[column.offset : column.offset + len(column) + 1]
    return Texts(offsets, memoryview(data if data is not None else b"").cast("B"))
