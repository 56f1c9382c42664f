"""A write-ahead file as its readers see it: bounds that are always known, and an index and a descriptor while they are wanted.

A finished file is opened when somebody reads it and closed when others were read since (`OpenFiles`), so that a store of hundreds
of files needs few descriptors. A reader that holds a file may go on after retention removed it. Must never hold a lock while it reads lines.
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

from iris_controller.finelog import sidecar
from iris_controller.finelog.batches import measure
from iris_controller.finelog.disk import read_at
from iris_controller.finelog.index import NO_TIME, Extent, LiveIndex, attempt_hash
from iris_controller.finelog.records import FILE_BYTES
from iris_controller.finelog.wal import Findings, read_records
from iris_core.wire.gen.iris.v1 import logs_pb2

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from iris_controller.finelog.query import Query
    from iris_controller.finelog.sidecar import SealedIndex
    from iris_controller.finelog.wal import Loss

log = logging.getLogger("iris.finelog")

MAX_OPEN = 128


class WalFile:
    """One file. While it grows, or until its sidecar is written, `live` is its index."""

    def __init__(self, path: Path, first_seq: int) -> None:
        self.path = path
        self.first_seq = first_seq
        self.last_seq = first_seq - 1
        self.limit_seq: int | None = None
        """The first seq of the file behind it; None while it grows."""
        self.size = FILE_BYTES
        self.earliest_ms, self.latest_ms = NO_TIME
        self.began_ms = 0
        """When its first line was stored, 0 = before this process or not at all yet."""
        self.live: LiveIndex | None = None

    @property
    def sidecar_path(self) -> Path:
        """Where its index is kept once it is finished."""
        return self.path.with_suffix(".idx")

    def take_bounds(self, index: LiveIndex | sidecar.Header) -> None:
        """Its lines and their times are those of `index`."""
        # Times first: a reader that sees the new lines must not skip them.
        self.earliest_ms, self.latest_ms = index.earliest_ms, index.latest_ms
        self.last_seq = index.last_seq

    def may_match(self, query: Query) -> bool:
        """Whether a line in it can match, by its bounds alone."""
        return self.last_seq > query.cursor and query.wants_times(self.earliest_ms, self.latest_ms)


def replay(
    path: Path, marker: bytes, first_seq: int, limit_seq: int | None, vouched: int = 0
) -> tuple[LiveIndex, Findings]:
    """The index of a file, made from its records. Raises OSError."""
    index = LiveIndex(first_seq)
    findings = Findings()
    for record, payload in read_records(path, marker, first_seq, limit_seq, findings, vouched):
        batch = logs_pb2.LogBatch.FromString(payload)
        span = measure(batch.entries)
        extent = Extent(
            offset=record.start,
            length=record.end - record.start,
            first_seq=record.first_seq,
            lines=record.lines,
            earliest_ms=span.earliest_ms,
            latest_ms=span.latest_ms,
            levels=span.levels,
            incarnation=batch.incarnation,
            attempt=attempt_hash(batch.attempt_uid),
        )
        index.add(batch.key, extent, batch.producer, span.end)
    return index, findings


class OpenFile:
    """A descriptor and an index."""

    def __init__(self, path: Path, index: LiveIndex | SealedIndex) -> None:
        self.index = index
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if (descriptor := getattr(self, "_descriptor", None)) is not None:
            os.close(descriptor)

    def read(self, extent: Extent) -> bytes:
        """The bytes of an extent, fewer if the file was cut. Raises OSError."""
        return read_at(self._descriptor, extent.offset, extent.length)


class OpenFiles:
    """The files that are open, the most recently read last. `on_loss` is told of lines that turn out to be unreadable."""

    def __init__(self, marker: bytes, on_loss: Callable[[str, Loss], None]) -> None:
        self._marker = marker
        self._on_loss = on_loss
        self._open: OrderedDict[Path, OpenFile] = OrderedDict()
        self._lock = Lock()

    def get(self, file: WalFile) -> OpenFile:
        """Opens the file unless it is. Raises OSError: it was removed, or the disk fails."""
        with self._lock:
            found = self._open.get(file.path)
            if found is not None:
                self._open.move_to_end(file.path)
                return found
        found = OpenFile(file.path, file.live or self._sealed_index(file))
        with self._lock:
            self._open[file.path] = found
            while len(self._open) > MAX_OPEN:
                self._open.popitem(last=False)
        return found

    def forget(self, file: WalFile) -> None:
        """Lets go of a file that was sealed or removed."""
        with self._lock:
            self._open.pop(file.path, None)

    def close(self) -> None:
        """Lets go of all."""
        with self._lock:
            self._open.clear()

    def _sealed_index(self, file: WalFile) -> LiveIndex | SealedIndex:
        try:
            index = sidecar.read(file.sidecar_path)
            index.header.check(file.first_seq, file.size)
            return index
        except sidecar.SidecarDamaged as error:
            reason = str(error)
        log.warning("reading %s anew, without its index: %s", file.path.name, reason)
        live, findings = replay(file.path, self._marker, file.first_seq, file.limit_seq)
        for loss in findings.losses:
            self._on_loss(file.path.name, loss)
        file.take_bounds(live)
        try:
            sidecar.write(file.sidecar_path, live, file.size)
        except OSError as error:
            log.warning("cannot write %s, which costs time at the next start: %s", file.sidecar_path.name, error)
        return live
