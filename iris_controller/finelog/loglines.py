"""Log lines as columns: the schema of the table `log`, and batches of the wire turned into rows without work per field and line.

A row has everything that an answer shows of a line. What is empty on most lines is NULL. Heavy: only imported where segments are
written or read. Must never change a value: what was pushed is what is read.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from iris_controller.finelog.catalog import LOG
from iris_controller.finelog.segments import GROUP_ROWS, Layout

if TYPE_CHECKING:
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


class Rows:
    """Collects batches; `take` hands out what was collected as a `pyarrow.Table`."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.rows = 0
        self.bytes = 0
        self._seqs = array("q")
        self._numbers: list[int] = []
        self._times: list[int] = []
        self._sources: list[str] = []
        self._data: list[str] = []
        self._raw: list[bytes | None] = []
        self._levels: list[int] = []
        self._partial: list[bool] = []
        self._gaps: list[int] = []
        self._parts: list[int] = []
        self._seams: list[str | None] = []
        self._owners: dict[tuple[str, str, str, int], int] = {}
        self._owner = array("i")

    @property
    def is_full(self) -> bool:
        """Whether what is here is enough for a row group, or large."""
        return self.rows >= GROUP_ROWS or self.bytes >= PIECE_BYTES

    def add(self, batch: logs_pb2.LogBatch, first_seq: int, size: int) -> None:
        """Lines of one batch from `first_seq` on, which take about `size` bytes."""
        entries = list(batch.entries)
        count = len(entries)
        self.rows += count
        self.bytes += size
        self._seqs.extend(range(first_seq, first_seq + count))
        self._numbers += [entry.number for entry in entries]
        self._times += [entry.epoch_ms for entry in entries]
        self._sources += [entry.source for entry in entries]
        self._data += [entry.data for entry in entries]
        self._raw += [entry.raw or None for entry in entries]
        self._levels += [entry.level for entry in entries]
        self._partial += [entry.partial for entry in entries]
        self._gaps += [entry.gap for entry in entries]
        self._parts += [entry.part for entry in entries]
        self._seams += [entry.seam or None for entry in entries]
        owner = (batch.key, batch.producer, batch.attempt_uid, batch.incarnation)
        place = self._owners.setdefault(owner, len(self._owners))
        self._owner.extend(array("i", (place,)) * count)

    def take(self) -> Any:
        """The rows since the last call, in the order in which they came."""
        owners = pa.Array.from_buffers(pa.int32(), self.rows, [None, pa.py_buffer(self._owner.tobytes())])
        keys, producers, attempts, incarnations = zip(*self._owners, strict=True)

        def of_owner(values: tuple[Any, ...], type_: Any) -> Any:
            return pa.array(values, type_).take(owners)

        columns = [
            pa.Array.from_buffers(pa.int64(), self.rows, [None, pa.py_buffer(self._seqs.tobytes())]),
            of_owner(keys, pa.string()),
            of_owner(producers, pa.string()),
            pa.array(self._numbers, pa.int64()),
            pa.array(self._times, pa.int64()),
            pa.array(self._sources, pa.string()),
            pa.array(self._data, pa.string()),
            pa.array(self._raw, pa.binary()),
            pa.array(self._levels, pa.int32()),
            of_owner(attempts, pa.string()),
            of_owner(incarnations, pa.int64()),
            pa.array(self._partial, pa.bool_()),
            pa.array(self._gaps, pa.uint64()),
            pa.array(self._parts, pa.uint32()),
            pa.array(self._seams, pa.string()),
        ]
        self._begin()
        return pa.table(columns, schema=SCHEMA)
