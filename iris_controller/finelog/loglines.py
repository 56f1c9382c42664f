"""Log lines as columns: the schema of the table `log`, and batches of the wire turned into rows without work per field and line.

A row has everything that an answer shows of a line. What is empty on most lines is NULL. Heavy: only imported where segments are
written or read. Must never change a value: what was pushed is what is read.
"""

from __future__ import annotations

from array import array
from typing import Any

import pyarrow as pa

from iris_controller.finelog.catalog import LOG
from iris_controller.finelog.segments import GROUP_ROWS, Layout
from iris_core.wire.gen.iris.v1 import logs_pb2

PIECE_BYTES = 8 << 20
"""Bytes of text from which on what was collected is handed on."""

SCHEMA = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("producer", pa.string(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
        pa.field("epoch_ms", pa.int64(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("data", pa.string(), nullable=False),
        pa.field("raw", pa.binary()),
        pa.field("level", pa.int32(), nullable=False),
        pa.field("attempt_uid", pa.string(), nullable=False),
        pa.field("incarnation", pa.int64(), nullable=False),
        pa.field("partial", pa.bool_(), nullable=False),
        pa.field("gap", pa.uint64(), nullable=False),
        pa.field("part", pa.uint32(), nullable=False),
        pa.field("seam", pa.string()),
        pa.field("back", pa.uint32()),
        pa.field("unended", pa.bool_()),
    ]
)
LAYOUT = Layout(
    table=LOG,
    schema=SCHEMA,
    key="key",
    time="epoch_ms",
    unique=("data", "raw", "seam"),
    has_runs=True,
    indexed=("data", "seam"),
)


_TAGS = {
    "raw": b"%c" % (5 << 3 | 2),
    "part": b"%c" % (9 << 3),
    "seam": b"%c" % (10 << 3 | 2),
    "back": b"%c" % (12 << 3),
}
_UNENDED = bytes((11 << 3, 1))
"""How these fields begin in a serialised line. The same bytes may also stand in a text."""


_EMPTY: dict[str, Any] = {
    "raw": b"",
    "partial": False,
    "gap": 0,
    "part": 0,
    "seam": "",
    "back": 0,
    "unended": False,
}


class Rows:
    """Collects batches; `take` hands out what was collected as a `pyarrow.Table`.

    A field of a message costs as much as a column of a row group, so what can be known without is not looked at.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.rows = 0
        self.bytes = 0
        self._seqs = array("q")
        self._numbers = array("q")
        self._times: list[int] = []
        self._levels: list[int] = []
        self._sources: list[str] = []
        self._data: list[str] = []
        self._rare: dict[str, list[Any]] = {}
        """Columns that are empty in most lines, from the first one that is not."""
        self._owners: dict[tuple[str, str, str, int], int] = {}
        self._owner = array("i")

    @property
    def is_full(self) -> bool:
        """Whether what is here is enough for a row group, or large."""
        return self.rows >= GROUP_ROWS or self.bytes >= PIECE_BYTES

    def add(self, payload: bytes, first_seq: int, has_gaps: bool = True, goes_on: bool = True) -> None:
        """The lines of a serialised `LogBatch` from `first_seq` on.

        Without `has_gaps` none is a gap record, without `goes_on` none is flagged `partial`.
        """
        batch = logs_pb2.LogBatch.FromString(payload)
        entries = list(batch.entries)
        count = len(entries)
        self.rows += count
        self.bytes += len(payload)
        self._seqs.extend(range(first_seq, first_seq + count))
        first, last = entries[0].number, entries[-1].number
        # They ascend, so there is no hole where the last one is as far on as there are lines.
        is_plain = last - first == count - 1
        self._numbers.extend(range(first, last + 1) if is_plain else [entry.number for entry in entries])
        self._times += [entry.epoch_ms for entry in entries]
        self._levels += [entry.level for entry in entries]
        self._sources += [entry.source for entry in entries]
        self._data += [entry.data for entry in entries]
        if goes_on:
            self._collect("partial", [entry.partial for entry in entries])
        if has_gaps:
            self._collect("gap", [entry.gap for entry in entries])
        for name, tag in _TAGS.items():
            if tag in payload:
                self._collect(name, [getattr(entry, name) for entry in entries])
        # One byte is looked for in no time, two are not.
        if _UNENDED[:1] in payload and _UNENDED in payload:
            self._collect("unended", [entry.unended for entry in entries])
        owner = (batch.key, batch.producer, batch.attempt_uid, batch.incarnation)
        place = self._owners.setdefault(owner, len(self._owners))
        self._owner.extend(array("i", (place,)) * count)

    def _collect(self, name: str, values: list[Any]) -> None:
        """The values of the last rows in a column that is empty in most."""
        if any(values):
            found = self._rare.setdefault(name, [])
            found += [_EMPTY[name]] * (self.rows - len(values) - len(found))
            found += values

    def _rare_column(self, name: str) -> Any:
        field = SCHEMA.field(name)
        found = self._rare.get(name)
        nothing = None if field.nullable else _EMPTY[name]
        if found is None:
            return pa.repeat(pa.scalar(nothing, field.type), self.rows)
        found += [_EMPTY[name]] * (self.rows - len(found))
        return pa.array([value or nothing for value in found], field.type)

    def take(self) -> Any:
        """The rows since the last call, in the order in which they came."""
        owners = pa.Array.from_buffers(pa.int32(), self.rows, [None, pa.py_buffer(self._owner.tobytes())])
        keys, producers, attempts, incarnations = zip(*self._owners, strict=True)

        def of_owner(values: tuple[Any, ...], type_: Any) -> Any:
            if len(values) == 1:
                return pa.repeat(pa.scalar(values[0], type_), self.rows)
            return pa.array(values, type_).take(owners)

        columns = [
            pa.Array.from_buffers(pa.int64(), self.rows, [None, pa.py_buffer(self._seqs.tobytes())]),
            of_owner(keys, pa.string()),
            of_owner(producers, pa.string()),
            pa.Array.from_buffers(pa.int64(), self.rows, [None, pa.py_buffer(self._numbers.tobytes())]),
            pa.array(self._times, pa.int64()),
            pa.array(self._sources, pa.string()),
            pa.array(self._data, pa.string()),
            self._rare_column("raw"),
            pa.array(self._levels, pa.int32()),
            of_owner(attempts, pa.string()),
            of_owner(incarnations, pa.int64()),
            *map(self._rare_column, ("partial", "gap", "part", "seam", "back", "unended")),
        ]
        self._begin()
        return pa.table(columns, schema=SCHEMA)
