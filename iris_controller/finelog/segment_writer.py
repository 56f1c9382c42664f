"""How a segment is written: row groups of one size, with their bounds, and what finds keys and texts in them.

Written under a scratch name and renamed when it is on disk, so a name that counts is a whole file. Without the index that is written
beside it, it is only searched more slowly. pyarrow is heavy: this module is only imported where a segment is written. Must never change
a segment that is there.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, astuple
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from iris_controller.finelog import trigrams
from iris_controller.finelog.disk import create, sync_folder
from iris_controller.finelog.runs import RUNS_KEY, RunsWriter
from iris_controller.finelog.segment import Segment
from iris_controller.finelog.segments import FORMAT, GROUP_BYTES, GROUP_ROWS, META_KEY, Group, conform, segment_name
from iris_controller.finelog.steps import reached

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from iris_controller.finelog.segments import Key, Layout


class SegmentWriter:
    """One segment in the making. Call `write` with rows in the order of (key, seq), then `finish`; otherwise `abandon`.

    `covers` are the first and last seq it stands for, which may be wider than its rows where lines were lost; `created_ms` is when the
    youngest of its rows was stored, by default now.
    """

    def __init__(
        self, folder: Path, layout: Layout, level: int, covers: tuple[int, int], *, created_ms: int = 0
    ) -> None:
        self.layout = layout
        self.path = folder / segment_name(level, covers[0])
        self.rows = 0
        self._level = level
        self._covers = covers
        self._created_ms = created_ms or time.time_ns() // 1_000_000
        self._groups: list[Group] = []
        self._filters: list[bytes] = []
        self._runs = RunsWriter() if layout.has_runs else None
        self._scratch = self.path.with_name(f"{self.path.name}.tmp")
        self._waiting: list[Any] = []
        self._waiting_rows = self._waiting_bytes = 0
        with suppress(FileNotFoundError):
            self._scratch.unlink()
        os.close(create(self._scratch))
        self._file = pa.OSFile(str(self._scratch), "wb")
        self._writer = pq.ParquetWriter(self._file, layout.schema, **_options(layout, level))

    def write(self, table: Any) -> None:
        """Adds a `pyarrow.Table` or `RecordBatch` of the layout's schema. Raises OSError."""
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        for start in range(0, table.num_rows, GROUP_ROWS):
            for piece in _small(table.slice(start, GROUP_ROWS)):
                room = GROUP_ROWS - self._waiting_rows
                self._collect(piece.slice(0, room))
                self._collect(piece.slice(room))

    def _collect(self, table: Any) -> None:
        if not table.num_rows:
            return
        self._waiting.append(table)
        self._waiting_rows += table.num_rows
        self._waiting_bytes += table.nbytes
        if self._waiting_rows >= GROUP_ROWS or self._waiting_bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._waiting_rows:
            self._write_group(pa.concat_tables(self._waiting))
        self._waiting = []
        self._waiting_rows = self._waiting_bytes = 0

    def _write_group(self, table: Any) -> None:
        batch = table.combine_chunks().to_batches()[0]
        keys, seqs = batch.column(self.layout.key), batch.column("seq")
        times = pc.min_max(batch.column(self.layout.time).cast(pa.int64())).as_py()
        bounds = pc.min_max(seqs).as_py()
        group = Group(
            rows=batch.num_rows,
            first_key=_plain(keys[0]),
            last_key=_plain(keys[-1]),
            first_seq=bounds["min"],
            last_seq=bounds["max"],
            earliest_ms=times["min"] or 0,
            latest_ms=times["max"] or 0,
        )
        if self._runs is not None:
            self._runs.add(len(self._groups), batch)
        if self.layout.indexed:
            self._filters.append(trigrams.bits_of(*map(batch.column, self.layout.indexed)))
        self._writer.write_batch(batch, row_group_size=GROUP_ROWS)
        self._groups.append(group)
        self.rows += batch.num_rows

    def finish(self, marks: Mapping[str, int] | None = None) -> Segment:
        """Makes it durable under its name. `marks` tells how far each producer got in it. Raises OSError."""
        self._flush()
        segment = Segment(
            name=self.path.name,
            level=self._level,
            first_seq=self._covers[0],
            last_seq=self._covers[1],
            rows=self.rows,
            bytes=0,
            first_key=self._groups[0].first_key if self._groups else None,
            last_key=self._groups[-1].last_key if self._groups else None,
            earliest_ms=min((group.earliest_ms for group in self._groups), default=0),
            latest_ms=max((group.latest_ms for group in self._groups), default=0),
            created_ms=self._created_ms,
        )
        told = {
            "format": FORMAT,
            "table": self.layout.table,
            "key": self.layout.key,
            "segment": asdict(segment),
            "groups": [astuple(group) for group in self._groups],
            "marks": dict(marks or {}),
        }
        extra: dict[str, str | bytes] = {META_KEY: json.dumps(told, separators=(",", ":"))}
        if self._runs is not None:
            extra[RUNS_KEY] = self._runs.text()
        self._writer.add_key_value_metadata(extra)
        self._writer.close()
        self._file.close()
        descriptor = os.open(self._scratch, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
            size = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        reached("segment: on disk under its scratch name")
        self._scratch.rename(self.path)
        reached("segment: renamed")
        sync_folder(self.path.parent)
        if self.layout.indexed:
            trigrams.write(self.path, self._filters, self.rows)
        return Segment(**{**asdict(segment), "bytes": size})

    def abandon(self) -> None:
        """Leaves nothing behind."""
        with suppress(Exception):
            self._writer.close()
        with suppress(Exception):
            self._file.close()
        with suppress(OSError):
            self._scratch.unlink()


def write_segment(
    folder: Path,
    layout: Layout,
    table: Any,
    *,
    covers: tuple[int, int],
    level: int = 0,
    marks: Mapping[str, int] | None = None,
) -> Segment:
    """Writes a table in any order as one segment. Raises OSError: then no such segment is there."""
    order = pc.sort_indices(table, sort_keys=[(layout.key, "ascending"), ("seq", "ascending")])
    writer = SegmentWriter(folder, layout, level, covers)
    try:
        writer.write(conform(table.take(order), layout.schema))
        return writer.finish(marks)
    except BaseException:
        writer.abandon()
        raise


def _small(table: Any) -> Iterator[Any]:
    """The table in pieces of at most `GROUP_BYTES`, or of one row."""
    if table.num_rows < 2 or table.nbytes <= GROUP_BYTES:
        yield table
        return
    half = table.num_rows // 2
    yield from _small(table.slice(0, half))
    yield from _small(table.slice(half))


def _options(layout: Layout, level: int) -> dict[str, Any]:
    names = [column.name for column in layout.schema]
    delta = [
        column.name for column in layout.schema if pa.types.is_int64(column.type) or pa.types.is_timestamp(column.type)
    ]
    worded = [
        column.name
        for column in layout.schema
        if (pa.types.is_string(column.type) or pa.types.is_boolean(column.type) or pa.types.is_int32(column.type))
        and column.name not in layout.unique
        and not pa.types.is_boolean(column.type)
    ]
    return {
        "compression": "zstd",
        # What is merged soon is not worth much work.
        "compression_level": 1 if level == 0 else 3,
        "use_dictionary": worded,
        "column_encoding": {name: "DELTA_BINARY_PACKED" for name in delta},
        "write_statistics": [name for name in names if name not in layout.unique],
        "write_page_checksum": True,
        # A column of a row group is one page: that takes 3 % less room than three, and is read a little quicker.
        "data_page_size": 2 * GROUP_BYTES,
    }


def _plain(value: Any) -> Key:
    """A key as JSON holds it; a time as epoch milliseconds."""
    if pa.types.is_timestamp(value.type):
        return value.cast(pa.int64()).as_py()
    return value.as_py()
