"""The rows of a segment that were picked for an answer: the columns that a `Line` needs, and of all rows the first or last ones.

Of a row group only those columns are read that have more than their empty value; the rest is filled in here. Must never pass over a
row that belongs to the answer.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from iris_controller.finelog.line import Line

SHOWN = (
    "epoch_ms", "key", "seq", "number", "source", "data", "raw", "level", "attempt_uid", "partial", "gap", "part",
    "back", "unended",
)  # fmt: skip
"""The columns of a `Line`."""
EMPTY: dict[str, tuple[Any, Any]] = {
    "partial": (pa.bool_(), False),
    "gap": (pa.uint64(), 0),
    "part": (pa.uint32(), 0),
    "back": (pa.uint32(), 0),
    "unended": (pa.bool_(), False),
}
"""Columns that are empty in most lines, and the last two not there in segments of earlier releases: their type, and that value."""
_NOTHING = {"raw": b"", **{name: nothing for name, (_, nothing) in EMPTY.items()}}
"""What NULL stands for."""


class Best:
    """Collects rows and keeps the `wanted` first ones by seq, or the last ones; fewer where they are large."""

    def __init__(self, wanted: int, newest: bool, max_bytes: int) -> None:
        self._wanted = wanted
        self._newest = newest
        self._max_bytes = max_bytes
        self._found: list[Any] = []
        self._count = self._bytes = 0
        self._limit: int | None = None
        self.matched = 0

    def add(self, rows: Any) -> None:
        """More rows, in any order."""
        self.matched += rows.num_rows
        self._keep(rows)
        if self._count >= self._wanted or self._bytes > 4 * self._max_bytes:
            self._prune()

    def _keep(self, rows: Any) -> None:
        self._found.append(rows)
        self._count += rows.num_rows
        self._bytes += rows.nbytes

    def _prune(self) -> None:
        table = pa.Table.from_batches(self._found)
        order = pc.sort_indices(table["seq"], sort_keys=[("seq", "descending" if self._newest else "ascending")])
        kept = order.slice(0, self._wanted)
        rows = table.take(kept)
        sizes = pc.cumulative_sum(pc.cast(pc.binary_length(rows["data"]), pa.int64()))
        small = pc.sum(pc.less_equal(sizes, self._max_bytes)).as_py() or 0
        # One more: it shows that something is left out.
        rows = rows.slice(0, small + 1)
        if rows.num_rows == self._wanted or rows.num_rows < len(kept):
            self._limit = rows["seq"][-1].as_py()
        self._found, self._count, self._bytes = [], 0, 0
        for batch in rows.combine_chunks().to_batches():
            self._keep(batch)

    def bounds(self, low: int, high: int) -> tuple[int, int]:
        """Only rows from one seq to before the other can still be among them."""
        if self._limit is None:
            return low, high
        return (self._limit + 1, high) if self._newest else (low, self._limit)

    def lines(self) -> list[Line]:
        """They in the order of seq."""
        if not self._found:
            return []
        rows = pa.Table.from_batches(self._found).sort_by("seq")
        columns = [rows[name].to_pylist() for name in SHOWN]
        for name, nothing in _NOTHING.items():
            place = SHOWN.index(name)
            columns[place] = [nothing if value is None else value for value in columns[place]]
        return list(map(Line._make, zip(*columns, strict=True)))


_places: Any = pa.array([], pa.uint64())


def every_place(count: int) -> Any:
    """The places of so many rows: 0, 1, 2, …"""
    global _places
    places = _places
    if len(places) < count:
        places = _places = pa.array(range(count), pa.uint64())
    return places.slice(0, count)


def shown(batch: Any) -> Any:
    """The columns of a `Line`; NULL where the batch was read without."""
    names = batch.schema.names
    found = [batch.column(name) if name in names else pa.nulls(batch.num_rows, EMPTY[name][0]) for name in SHOWN]
    return pa.RecordBatch.from_arrays(found, names=list(SHOWN))


def spelled_out(batch: Any) -> Any:
    """The batch without dictionaries."""
    columns = [one.dictionary_decode() if pa.types.is_dictionary(one.type) else one for one in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
