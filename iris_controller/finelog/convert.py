"""A finished write-ahead file becomes a segment, key by key from its index, so that neither its size nor its lines matter to memory.

Nothing here changes what the store holds: the caller commits the segment, and only then may the file go. Heavy: imported by the
thread that converts. Must never hand on a line that does not fit its checksum, nor leave one out without saying so.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from iris_controller.finelog.index import GAP_BIT, PARTIAL_BIT
from iris_controller.finelog.loglines import LAYOUT, Rows
from iris_controller.finelog.records import Record, walk
from iris_controller.finelog.segment_writer import SegmentWriter
from iris_controller.finelog.steps import reached
from iris_controller.finelog.verify import verify
from iris_controller.finelog.wal import Loss

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from iris_controller.finelog.files import OpenFile, WalFile
    from iris_controller.finelog.segment import Segment

log = logging.getLogger("iris.finelog")

Pause = Callable[[float], None]
"""Called between two pieces of work with the seconds the last one took; may wait, or raise to give up."""


def convert(
    file: WalFile,
    opened: OpenFile,
    marker: bytes,
    folder: Path,
    on_loss: Callable[[str, Loss], None],
    pause: Pause,
) -> Segment:
    """Writes the segment of a finished file into `folder`, durably and checked. Raises OSError, SegmentDamaged: there is none."""
    covers = (file.first_seq, max(file.last_seq, (file.limit_seq or 0) - 1))
    writer = SegmentWriter(folder, LAYOUT, 0, covers)
    rows, seqs = 0, 0
    try:
        began = time.monotonic()
        for table in tables_of(file, opened, marker, on_loss):
            writer.write(table)
            rows += table.num_rows
            seqs += pc.sum(table.column("seq")).as_py()
            pause(time.monotonic() - began)
            began = time.monotonic()
        reached("convert: rows are written")
        segment = writer.finish(opened.index.marks)
    except BaseException:
        writer.abandon()
        raise
    verify(folder / segment.name, rows, seqs)
    pa.default_memory_pool().release_unused()
    reached("convert: the segment is there")
    return segment


def tables_of(
    file: WalFile,
    opened: OpenFile,
    marker: bytes,
    on_loss: Callable[[str, Loss], None],
    after: int = 0,
    until: int = 1 << 63,
) -> Iterator[Any]:
    """The lines of a file, finished or not, as `pyarrow.Table`s, key by key; `on_loss` is told of those that cannot be read.

    Only lines above the seq `after` and up to `until`, both of which end a batch.
    """
    index = opened.index
    rows = Rows()

    def note(first_seq: int, last_seq: int) -> None:
        if first_seq <= last_seq:
            on_loss(file.path.name, Loss(first_seq, last_seq))

    for key in index.all_keys():
        found = index.key_rows(key)
        for extent in found.after(after) if found is not None else ():
            if extent.first_seq > until:
                break
            data = opened.read(extent)
            expected = max(extent.first_seq, after + 1)
            for record in walk(data, marker, 0, len(data)):
                if not isinstance(record, Record) or not after < record.first_seq <= until:
                    continue
                note(expected, record.first_seq - 1)
                expected = record.last_seq + 1
                payload = data[record.payload_start : record.end]
                rows.add(payload, record.first_seq, bool(extent.levels & GAP_BIT), bool(extent.levels & PARTIAL_BIT))
                if rows.is_full:
                    yield rows.take()
            note(expected, min(extent.last_seq, until))
    if rows.rows:
        yield rows.take()
