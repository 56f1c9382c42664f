"""A write-ahead file of row batches as its readers see it, and what a start finds in the files that are there.

The files are those of the log (`wal`), with a serialised `RowBatch` for payload and one sequence of seqs over all tables. A file that
has become segments goes away; whoever still reads it keeps it open. Must never take damage for an empty file.
"""

from __future__ import annotations

import logging
import os
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from google.protobuf.message import DecodeError

from iris_controller.finelog.disk import read_at
from iris_controller.finelog.records import FILE_BYTES, RECORD_BYTES, Record, walk
from iris_controller.finelog.wal import Findings, Loss, list_files, read_records
from iris_core.wire.gen.iris.v1 import stats_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

log = logging.getLogger("iris.finelog")


class Extent(NamedTuple):
    """Where one batch lies in its file."""

    table: str
    offset: int
    length: int
    first_seq: int
    rows: int
    earliest_ms: int
    """The least time of its rows; 0 = none has one."""
    latest_ms: int

    @property
    def last_seq(self) -> int:
        """The seq of its last row."""
        return self.first_seq + self.rows - 1


def times_of(batch: stats_pb2.RowBatch, time_column: str) -> tuple[int, int]:
    """The least and the greatest time of the rows of a batch; zeros if none has one."""
    found = next((values for values in batch.columns if values.name == time_column), None)
    if found is None:
        return 0, 0
    nulls = frozenset(found.nulls)
    times = [time for position, time in enumerate(found.integers) if position not in nulls] if nulls else found.integers
    return min(times, default=0), max(times, default=0)


class RowFile:
    """One file. It can be read until nobody holds it any more, even after it was removed."""

    def __init__(self, path: Path, first_seq: int, marker: bytes) -> None:
        self.path = path
        self.first_seq = first_seq
        self.last_seq = first_seq - 1
        self.size = FILE_BYTES
        self.extents: list[Extent] = []
        """In the order of seq; only ever appended to."""
        self._marker = marker
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.began_ms = int(os.fstat(self._descriptor).st_mtime * 1000)
        """When it was begun, or for one of an earlier process when it was written last."""

    def __del__(self) -> None:
        if (descriptor := getattr(self, "_descriptor", None)) is not None:
            os.close(descriptor)

    def add(self, extent: Extent) -> None:
        """The file has one more batch."""
        self.extents.append(extent)
        self.last_seq = extent.last_seq
        self.size = extent.offset + extent.length

    def read(self, extent: Extent) -> stats_pb2.RowBatch | None:
        """The batch at an extent; None if the disk no longer gives it."""
        try:
            data = read_at(self._descriptor, extent.offset, extent.length)
        except OSError as error:
            log.error("cannot read %s at %d: %s", self.path, extent.offset, error)
            return None
        found = next(iter(walk(data, self._marker, 0, len(data))), None)
        if not isinstance(found, Record) or found.first_seq != extent.first_seq:
            return None
        try:
            return stats_pb2.RowBatch.FromString(data[RECORD_BYTES : found.end])
        except DecodeError:
            return None


def load(
    folder: Path,
    marker: bytes,
    sealed_seq: int,
    vouched: tuple[int, int],
    time_column: Callable[[str], str],
    take: Callable[[RowFile, Extent, stats_pb2.RowBatch], None],
    lose: Callable[[RowFile, Loss], None],
) -> Iterator[RowFile]:
    """The files with rows beyond `sealed_seq`, oldest first; the others are removed.

    `vouched` is the first seq of the file that grew last and up to where it is known to have been durable. `time_column`
    names that of a table, "" if there is none. `take` is told of every batch, `lose` of acknowledged rows that cannot be read. Raises OSError.
    """
    files = list_files(folder)
    limits: list[int | None] = [first_seq for first_seq, _ in files[1:]]
    for (first_seq, path), limit in zip_longest(files, limits):
        if limit is not None and limit <= sealed_seq + 1:
            path.unlink(missing_ok=True)
            continue
        file = RowFile(path, first_seq, marker)
        findings = Findings()
        durable = vouched[1] if limit is None and vouched[0] == first_seq else 0
        for record, payload in read_records(path, marker, first_seq, limit, findings, durable):
            try:
                batch = stats_pb2.RowBatch.FromString(payload)
            except DecodeError:
                lose(file, Loss(record.first_seq, record.last_seq))
                continue
            length, times = record.end - record.start, times_of(batch, time_column(batch.table))
            extent = Extent(batch.table, record.start, length, record.first_seq, record.lines, *times)
            file.add(extent)
            take(file, extent, batch)
        file.last_seq = max(file.last_seq, findings.next_seq - 1)
        for loss in findings.losses:
            lose(file, loss)
        if findings.torn_bytes:
            log.warning(
                "%s: %d bytes of a write that was never acknowledged are left out", path.name, findings.torn_bytes
            )
        if file.last_seq <= sealed_seq:
            path.unlink(missing_ok=True)
            continue
        yield file
