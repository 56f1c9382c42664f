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


_RAW, _PARTIAL, _PART, _SEAM = bytes((5 << 3 | 2,)), bytes((7 << 3, 1)), bytes((9 << 3,)), bytes((10 << 3 | 2,))
_UNENDED, _BACK = bytes((11 << 3, 1)), bytes((12 << 3,))
"""How these fields begin in a serialised line. The same bytes may also stand in a text."""


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
        self._sources: list[str] = []
        self._data: list[str] = []
        self._raw: list[bytes] = []
        self._levels: list[int] = []
        self._partial: list[bool] = []
        self._gaps: list[int] = []
        self._parts: list[int] = []
        self._seams: list[str] = []
        self._back: list[int] = []
        self._unended: list[bool] = []
        self._owners: dict[tuple[str, str, str, int], int] = {}
        self._owner = array("i")

    @property
    def is_full(self) -> bool:
        """Whether what is here is enough for a row group, or large."""
        return self.rows >= GROUP_ROWS or self.bytes >= PIECE_BYTES

    def add(self, payload: bytes, first_seq: int, has_gaps: bool = True) -> None:
        """The lines of a serialised `LogBatch` from `first_seq` on; without `has_gaps` none is a gap record."""
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
        self._sources += [entry.source for entry in entries]
        self._data += [entry.data for entry in entries]
        self._raw += [entry.raw for entry in entries] if _RAW in payload else [b""] * count
        self._levels += [entry.level for entry in entries]
        self._partial += [entry.partial for entry in entries] if _PARTIAL in payload else [False] * count
        self._gaps += [entry.gap for entry in entries] if has_gaps else [0] * count
        self._parts += [entry.part for entry in entries] if _PART in payload else [0] * count
        self._seams += [entry.seam for entry in entries] if _SEAM in payload else [""] * count
        self._back += [entry.back for entry in entries] if _BACK in payload else [0] * count
        self._unended += [entry.unended for entry in entries] if _UNENDED in payload else [False] * count
        owner = (batch.key, batch.producer, batch.attempt_uid, batch.incarnation)
        place = self._owners.setdefault(owner, len(self._owners))
        self._owner.extend(array("i", (place,)) * count)

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
            _or_null(self._raw, pa.binary()),
            pa.array(self._levels, pa.int32()),
            of_owner(attempts, pa.string()),
            of_owner(incarnations, pa.int64()),
            _or_zero(self._partial, pa.bool_()),
            _or_zero(self._gaps, pa.uint64()),
            _or_zero(self._parts, pa.uint32()),
            _or_null(self._seams, pa.string()),
            _or_null(self._back, pa.uint32()),
            _or_null(self._unended, pa.bool_()),
        ]
        self._begin()
        return pa.table(columns, schema=SCHEMA)


def _or_null(values: list[Any], type_: Any) -> Any:
    """What is empty is NULL."""
    if not any(values):
        return pa.nulls(len(values), type_)
    return pa.array([value or None for value in values], type_)


def _or_zero(values: list[Any], type_: Any) -> Any:
    if not any(values):
        return pa.repeat(pa.scalar(type(values[0])(), type_), len(values))
    return pa.array(values, type_)
