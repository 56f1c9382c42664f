"""Events that wait on disk for the store: whole batches with their producer and first number, in the order they were made.

A batch is written here before it is pushed and goes once the store has it, so a process that is killed leaves to the next one
exactly what was not acknowledged; what was, and is pushed once more, the store drops by its number. Nothing is synced: `kill -9`
loses nothing that was appended, a power loss may. Over the cap the oldest file goes, and its rows are counted. On a disk that
takes nothing batches wait in memory. Blocks; used by one thread at a time.
"""

from __future__ import annotations

import logging
import os
import struct
import zlib
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from iris_controller.quiet import QuietLog
from iris_core.wire.gen.iris.v1 import stats_pb2

if TYPE_CHECKING:
    from pathlib import Path

_log = logging.getLogger("iris.stats")

MAX_BYTES = 64 << 20
FILE_BYTES = 1 << 20
HELD_BYTES = 4 << 20
"""So much of what is on disk is also kept in memory, so that it need not be read again."""
HOMELESS_BYTES = 8 << 20
"""So much waits in memory when the disk takes nothing."""
_HEAD = struct.Struct("<II")
_SUFFIX = ".rows"


@dataclass(slots=True)
class Frame:
    """One batch. `file` 0 = it is in memory alone; `body` None = it is read from its file."""

    table: str
    producer: str
    end: int
    """The number after its last row."""
    rows: int
    file: int
    offset: int
    size: int
    body: bytes | None


class RowSpool:
    """See the module. Raises OSError when the folder cannot be made or read."""

    def __init__(self, folder: Path, *, max_bytes: int = MAX_BYTES, file_bytes: int = FILE_BYTES) -> None:
        self.lost_rows = 0
        self.waiting_rows = 0
        self._folder = folder
        self._max_bytes = max_bytes
        self._file_bytes = file_bytes
        self._frames: deque[Frame] = deque()
        self._sizes: dict[int, int] = {}
        self._open: dict[int, int] = {}
        """Frames of each file that still wait."""
        self._held = 0
        self._homeless = 0
        self._descriptor = -1
        self._active = 0
        self._quiet = QuietLog(_log, 10.0)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._recover()

    @property
    def empty(self) -> bool:
        return not self._frames

    def append(self, batch: stats_pb2.RowBatch) -> None:
        """Keeps the batch until `ack`."""
        body = batch.SerializeToString()
        frame = Frame(batch.table, batch.producer, batch.first_number + batch.rows, batch.rows, 0, 0, len(body), body)
        try:
            self._store(frame, body)
        except OSError as error:
            self._quiet.warning(
                "events cannot be kept in %s: %s (they wait in memory)", self._folder, os.strerror(error.errno or 0)
            )
            self._seal()
            self._homeless += frame.size
        self._frames.append(frame)
        self.waiting_rows += frame.rows
        self._make_room()

    def take(self, most_bytes: int) -> list[bytes]:
        """The oldest batches, serialised, as far as they fit, at least one; empty = none waits."""
        taken: list[bytes] = []
        size = 0
        while len(taken) < len(self._frames):
            frame = self._frames[len(taken)]
            if taken and size + frame.size > most_bytes:
                break
            body = frame.body if frame.body is not None else self._read(frame)
            if body is None:
                self._lose(len(taken))
                continue
            size += frame.size
            taken.append(body)
        return taken

    def ack(self, marks: dict[tuple[str, str], int]) -> int:
        """Drops from the front what the store has: marks by (table, producer). Returns how many batches went."""
        count = 0
        while self._frames and marks.get((self._frames[0].table, self._frames[0].producer), 0) >= self._frames[0].end:
            self._forget(self._frames.popleft())
            count += 1
        return count

    def refuse(self) -> None:
        """The store will never take the first batch: it goes, and is counted."""
        self._lose(0)

    def close(self) -> None:
        self._seal()

    # Files --------------------------------------------------------------------------------------------------

    def _path(self, number: int) -> str:
        return os.path.join(self._folder, f"{number:016d}{_SUFFIX}")

    def _recover(self) -> None:
        names = sorted(name for name in os.listdir(self._folder) if name.endswith(_SUFFIX))
        for name in names:
            try:
                number = int(name.removesuffix(_SUFFIX))
            except ValueError:
                continue
            self._active = max(self._active, number)
            with open(os.path.join(self._folder, name), "rb") as file:
                data = file.read()
            end = self._read_frames(number, data)
            if end < len(data):
                _log.warning("%s ends in the middle of a batch (%d bytes are dropped)", name, len(data) - end)
            if number in self._open:
                self._sizes[number] = len(data)
            else:
                os.unlink(os.path.join(self._folder, name))
        if self._frames:
            _log.info("%d events of an earlier process wait for the log store", self.waiting_rows)

    def _read_frames(self, number: int, data: bytes) -> int:
        at = 0
        while at + _HEAD.size <= len(data):
            crc, size = _HEAD.unpack_from(data, at)
            body = data[at + _HEAD.size : at + _HEAD.size + size]
            if len(body) < size or zlib.crc32(body) != crc:
                break
            try:
                batch = stats_pb2.RowBatch.FromString(body)
            except DecodeError:
                break
            end = batch.first_number + batch.rows
            offset = at + _HEAD.size
            self._frames.append(Frame(batch.table, batch.producer, end, batch.rows, number, offset, size, None))
            self.waiting_rows += batch.rows
            self._open[number] = self._open.get(number, 0) + 1
            at = offset + size
        return at

    def _store(self, frame: Frame, body: bytes) -> None:
        if self._descriptor < 0 or self._sizes[self._active] >= self._file_bytes:
            self._seal()
            self._active += 1
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(self._path(self._active), flags, 0o600)
            self._sizes[self._active] = 0
        at = self._sizes[self._active]
        record = _HEAD.pack(zlib.crc32(body), len(body)) + body
        written = os.write(self._descriptor, record)
        if written < len(record):
            # The rest of a full disk: what is there of it must not stand before what comes later.
            os.ftruncate(self._descriptor, at)
            raise OSError(28, os.strerror(28))
        self._sizes[self._active] = at + len(record)
        frame.file, frame.offset = self._active, at + _HEAD.size
        self._open[self._active] = self._open.get(self._active, 0) + 1
        if self._held + frame.size <= HELD_BYTES:
            self._held += frame.size
        else:
            frame.body = None

    def _read(self, frame: Frame) -> bytes | None:
        try:
            with open(self._path(frame.file), "rb") as file:
                body = os.pread(file.fileno(), frame.size, frame.offset)
        except OSError as error:
            _log.error("waiting events cannot be read: %s", error)
            return None
        return body if len(body) == frame.size else None

    def _forget(self, frame: Frame) -> None:
        self.waiting_rows -= frame.rows
        if not frame.file:
            self._homeless -= frame.size
            return
        if frame.body is not None:
            self._held -= frame.size
        self._open[frame.file] -= 1
        if self._open[frame.file]:
            return
        # The one in use goes, too: what is on disk is what waits, and mostly nothing does.
        if frame.file == self._active:
            self._seal()
        del self._open[frame.file], self._sizes[frame.file]
        try:
            os.unlink(self._path(frame.file))
        except OSError as error:
            self._quiet.warning("cannot remove %s: %s", self._path(frame.file), error)

    def _lose(self, place: int) -> None:
        frame = self._frames[place]
        del self._frames[place]
        self.lost_rows += frame.rows
        self._forget(frame)

    def _make_room(self) -> None:
        lost = 0
        while self._frames and (sum(self._sizes.values()) > self._max_bytes or self._homeless > HOMELESS_BYTES):
            lost += self._frames[0].rows
            self._lose(0)
        if lost:
            self._quiet.warning("%d events that waited longest for the log store were dropped: too many wait", lost)

    def _seal(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def open_spool(folder: Path) -> RowSpool | None:
    """The spool in that folder; None, and a line in the log, where there can be none: events then wait in memory."""
    try:
        return RowSpool(folder)
    except OSError as error:
        _log.error("events cannot wait in %s, they wait in memory: %s", folder, error.strerror)
        return None
