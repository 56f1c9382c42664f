"""The spool: every line is appended here before anything else, and only from here is it shipped (DESIGN §6, §7).

One sequence of segment files for all producers, read in the order it was written, so that a push acknowledges a prefix and a
deleted file needs no index. Appending never waits for the log store: over the cap the oldest segment goes, on a full disk the
newest lines go, and either way a gap record with the count takes their place. Nothing is synced to the platter: `kill -9` loses
nothing that was appended, and a power loss ends the tasks too. All of it runs on the loop's thread: page-cache writes of a few
kilobytes, whose order is the point.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from iris_controller.quiet import QuietLog
from iris_controller.worker import batches, segments
from iris_controller.worker.batches import DISK_FULL, SPOOL_FULL, PushBuilder
from iris_controller.worker.config import now_ms, reason
from iris_controller.worker.cursor import Cursor, Ranges, follow, ranges, widen, within
from iris_controller.worker.segments import Kind
from iris_core.wire.gen.iris.v1 import logs_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from iris_controller.worker.batches import Line

_log = logging.getLogger("iris.worker.spool")

_SEGMENT_BYTES = 4 * 1024 * 1024
_IDLE_BYTES = 256 * 1024
_SMALL_LOSS = 1000
_TROUBLE_EVERY_S = 10.0


@dataclass(slots=True, eq=False)
class Producer:
    """Who writes lines, numbered from 0. `next` is how many it has produced, spooled or lost."""

    slot: int
    header: bytes
    next: int = 0
    lost_from: int | None = None
    opened_in: int = -1
    closed: bool = False

    @property
    def identity(self) -> logs_pb2.LogBatch:
        """Name, key, attempt and incarnation; no entries."""
        return logs_pb2.LogBatch.FromString(self.header)

    @property
    def stored(self) -> int:
        """The first number that is not in the spool."""
        return self.next if self.lost_from is None else self.lost_from


@dataclass(frozen=True, slots=True)
class Push:
    """What goes out next: `body` is a serialised PushLogsRequest. Given back to `ack` once the log store has it."""

    body: bytes
    position: tuple[int, int]


class Spool:
    """See the module. `cap` is in bytes; `on_data` is called whenever there is something to ship."""

    def __init__(self, folder: Path, cap: int, on_data: Callable[[], None] = lambda: None) -> None:
        self.on_data = on_data
        self._folder = str(folder)
        self._cap = cap
        self._segment_bytes = max(4096, min(_SEGMENT_BYTES, cap // 8))
        self._sizes: dict[int, int] = {}
        self._total = 0
        self._active = 0
        self._fd = -1
        self._open: dict[int, Producer] = {}
        self._losing: dict[int, Producer] = {}
        self._gaps: deque[tuple[bytes, int, int]] = deque()
        self.closed: dict[str, int] = {}
        """Of attempts whose producer an earlier worker closed: how many lines they wrote in all. Filled by `recover`."""
        self._slot = 0
        self._cursor = Cursor(0, 0)
        self._acked = (0, 0)
        self._reading: tuple[int, int] = (-1, -1)
        self.lines = self.lost = 0
        """Since this worker started: lines produced, and of them those that will never arrive."""
        self.last_line_at_ms = 0
        self._failing = False
        # A disk that is all but full takes one line and refuses the next, and the worker's own log is on it.
        self._lost, self._back = QuietLog(_log, _TROUBLE_EVERY_S), QuietLog(_log, _TROUBLE_EVERY_S)

    # Opening ------------------------------------------------------------------------------------------------------

    def recover(self) -> list[Producer]:
        """Reads what an earlier worker left; call it once, first. Returns the producers it never closed.

        Raises OSError: the folder can not be read.
        """
        found: dict[int, Producer] = {}
        lost: Ranges = {}
        acked = (0, 0)
        for number in segments.numbers(self._folder):
            size = 0
            with open(segments.path(self._folder, number), "rb", buffering=0) as file:
                for record in segments.read(file.fileno(), 0, os.fstat(file.fileno()).st_size):
                    size = record.end
                    self._slot = max(self._slot, record.slot)
                    match record.kind:
                        case Kind.OPEN:
                            known = found.setdefault(record.slot, Producer(record.slot, record.payload))
                            known.next = max(known.next, record.first)
                        case Kind.LINES if record.slot in found:
                            known = found[record.slot]
                            known.next = max(known.next, record.first + record.span)
                        case Kind.CLOSE:
                            ended = found.pop(record.slot, None)
                            if ended is not None:
                                self.closed[ended.identity.attempt_uid] = ended.next
                        case Kind.ACK:
                            acked = max(acked, (record.first, record.span))
                        case Kind.LOST:
                            widen(lost, record.payload, record)
            self._sizes[number] = size
            self._total += size
        self._active = max(self._sizes, default=0)
        start = max(acked, (min(self._sizes, default=0), 0))
        self._cursor = Cursor(start[0], 0)
        self._acked = start
        # Slots are named at a segment's head: what lies before the cursor is read again, but not shipped.
        self._advance(None, stop=start[1])
        self._delete_before(start[0])
        self._gaps.extend((head, first, end - first) for head, (first, end) in lost.items())
        self._open = dict(found)
        self._rotate()
        return list(found.values())

    def open(self, producer: str, key: str, attempt_uid: str = "", incarnation: int = 0) -> Producer:
        """A new producer, from number 0. It must be a name never used before."""
        self._slot += 1
        made = Producer(self._slot, batches.header(producer, key, attempt_uid, incarnation))
        self._open[made.slot] = made
        self._append(made, b"")
        return made

    # Writing ------------------------------------------------------------------------------------------------------

    def append(self, producer: Producer, lines: Sequence[Line], now_ms: int) -> None:
        """Numbers and stores the lines; never raises and never waits for anybody."""
        self.last_line_at_ms = now_ms
        self._store(producer, len(lines), batches.entries(lines, producer.next, now_ms))

    def append_gap(self, producer: Producer, count: int, reason: str, now_ms: int) -> None:
        """Says that the next `count` lines are lost."""
        self.lost += count
        self._store(producer, count, batches.gap(producer.next, count, reason, now_ms))

    def close(self, producer: Producer) -> None:
        """The producer has written its last line."""
        producer.closed = True
        if producer.lost_from is None:
            self._write_close(producer)

    def shut(self) -> None:
        """Closes the files; what is in them stays for the next start."""
        for fd in {self._fd, self._reading[1]} - {-1}:
            os.close(fd)
        self._fd, self._reading = -1, (-1, -1)

    def _store(self, producer: Producer, count: int, payload: bytes) -> None:
        data = b""
        if producer.lost_from is not None:
            lost = producer.next - producer.lost_from
            gap = batches.gap(producer.lost_from, lost, DISK_FULL, now_ms())
            data = segments.encode(Kind.LINES, producer.slot, producer.lost_from, lost, gap)
        data += segments.encode(Kind.LINES, producer.slot, producer.next, count, payload)
        if self._append(producer, data):
            if producer.lost_from is not None:
                producer.lost_from = None
                self._losing.pop(producer.slot, None)
        else:
            self.lost += count
            if producer.lost_from is None:
                producer.lost_from = producer.next
                self._losing[producer.slot] = producer
        producer.next += count
        self.lines += count
        self.on_data()

    def _write_close(self, producer: Producer) -> None:
        if self._open.pop(producer.slot, None) is not None and producer.opened_in == self._active:
            self._append(None, segments.encode(Kind.CLOSE, producer.slot, 0, 0))

    def _append(self, producer: Producer | None, data: bytes) -> bool:
        """Writes `data`, after the name of the producer where this segment does not have it yet."""
        full = self._fd < 0 or self._sizes[self._active] + len(data) > self._segment_bytes
        if full and not self._rotate():
            return False
        if producer is not None and producer.opened_in != self._active:
            data = segments.encode(Kind.OPEN, producer.slot, producer.stored, 0, producer.header) + data
        while self._total + len(data) > self._cap and len(self._sizes) > 1:
            self._drop_oldest()
        if not data or not self._write(data):
            return not data
        if producer is not None:
            producer.opened_in = self._active
        return True

    def _write(self, data: bytes) -> bool:
        size = self._sizes[self._active]
        try:
            written = os.write(self._fd, data)
            if written != len(data):
                os.ftruncate(self._fd, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._trouble(error)
            return False
        self._sizes[self._active] = size + written
        self._total += written
        if self._failing:
            self._failing = False
            self._back.warning("the spool can be written again")
        return True

    def _trouble(self, error: OSError) -> None:
        if not self._failing:
            self._failing = True
            self._lost.warning("output is being lost: cannot write the spool: %s", reason(error))

    def _rotate(self) -> bool:
        """Starts a segment that names every open producer, so that older ones can go. Returns False on a full disk."""
        number = self._active + 1
        path = segments.path(self._folder, number)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        head = [segments.encode(Kind.OPEN, made.slot, made.stored, 0, made.header) for made in self._open.values()]
        try:
            os.makedirs(self._folder, 0o700, exist_ok=True)
            fd = os.open(path, flags, 0o600)
        except OSError as error:
            self._trouble(error)
            return False
        previous = self._active, self._fd
        self._active, self._fd, self._sizes[number] = number, fd, 0
        if head and not self._write(b"".join(head)):
            # An empty file would only be in the way of the next try.
            os.close(fd)
            os.unlink(path)
            del self._sizes[number]
            self._active, self._fd = previous
            return False
        for made in self._open.values():
            made.opened_in = number
        if previous[1] >= 0:
            os.close(previous[1])
        return True

    # Shipping -----------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """What it takes on disk, in bytes."""
        return self._total

    @property
    def cap(self) -> int:
        """What it may take, in bytes."""
        return self._cap

    @property
    def waiting_bytes(self) -> int:
        """What the log store has not acknowledged, names and notes of the spool's own included."""
        segment, offset = self._acked
        return sum(
            size - min(offset, size) * (number == segment) for number, size in self._sizes.items() if number >= segment
        )

    @property
    def empty(self) -> bool:
        """Everything was taken (whether or not it was acknowledged)."""
        return not self._gaps and not self._losing and not self._unread()

    def take(self, limit: int) -> Push | None:
        """The next lines in order, about `limit` bytes of them; None if there are none.

        The push before it must have been acknowledged: what was taken is in that push alone.
        """
        push = PushBuilder()
        while self._gaps and push.size < limit:
            head, first, count = self._gaps.popleft()
            push.add(head, batches.gap(first, count, SPOOL_FULL, now_ms()))
        if push.size < limit:
            self._advance(push, limit=limit)
        if not self._unread():
            self._take_losing(push)
        if push:
            return Push(push.body(), (self._cursor.segment, self._cursor.offset))
        if self._sizes.get(self._active, 0) > _IDLE_BYTES and self._rotate():
            self._cursor = Cursor(self._active, 0)
            self._advance(None)
            self._delete_before(self._active)
        return None

    def ack(self, push: Push) -> None:
        """The log store has it: it need never be read again."""
        segment, offset = self._acked = push.position
        self._append(None, segments.encode(Kind.ACK, 0, segment, offset))
        self._delete_before(segment)

    def _take_losing(self, push: PushBuilder) -> None:
        for producer in self._losing.values():
            if producer.lost_from is not None:
                lost = producer.next - producer.lost_from
                push.add(producer.header, batches.gap(producer.lost_from, lost, DISK_FULL, now_ms()))
                producer.lost_from = None
            if producer.closed:
                self._write_close(producer)
        self._losing.clear()

    def _unread(self) -> bool:
        at = self._cursor
        return at.segment < self._active or at.offset < self._sizes.get(self._active, 0)

    def _advance(self, push: PushBuilder | None, *, limit: int = 0, stop: int | None = None) -> None:
        """Moves the cursor until `push` holds `limit` bytes, or over this segment up to `stop`."""
        while True:
            at = self._cursor
            end = self._sizes.get(at.segment, 0) if stop is None else stop
            if at.offset < end:
                for record in segments.read(self._reader(at.segment), at.offset, end):
                    at.offset = record.end
                    follow(at, record, push)
                    if push is not None and push.size >= limit:
                        return
            following = min((number for number in self._sizes if number > at.segment), default=None)
            if stop is not None or following is None:
                return
            self._cursor = Cursor(following, 0, before=at.slots)

    def _reader(self, number: int) -> int:
        if self._reading[0] != number:
            if self._reading[1] >= 0:
                os.close(self._reading[1])
            self._reading = (-1, -1)
            self._reading = (number, os.open(segments.path(self._folder, number), os.O_RDONLY | os.O_CLOEXEC))
        return self._reading[1]

    # Making room --------------------------------------------------------------------------------------------------

    def _delete_before(self, segment: int) -> None:
        for number in [number for number in self._sizes if number < segment and number != self._active]:
            self._remove(number)

    def _remove(self, number: int) -> None:
        try:
            os.unlink(segments.path(self._folder, number))
        except OSError as error:
            _log.warning("cannot remove a spool segment: %s", error)
        self._total -= self._sizes.pop(number)

    def _drop_oldest(self) -> None:
        number = min(self._sizes)
        size = self._sizes[number]
        taken = within((self._cursor.segment, self._cursor.offset), number, size)
        with open(segments.path(self._folder, number), "rb", buffering=0) as file:
            noted = ranges(file.fileno(), within(self._acked, number, size), size, notes=True)
            lost = ranges(file.fileno(), taken, size) if taken < size else {}
        if number >= self._cursor.segment:
            self._cursor = Cursor(min(other for other in self._sizes if other > number), 0)
        self._remove(number)
        # Written down too, with what is on its way: if this worker dies before it has shipped them, the next one tells.
        if len(noted) <= _SMALL_LOSS:
            for head, (first, end) in noted.items():
                self._write(segments.encode(Kind.LOST, 0, first, end - first, head))
        if lost:
            self._gaps.extend((head, first, end - first) for head, (first, end) in lost.items())
            total = sum(end - first for first, end in lost.values())
            self.lost += total
            _log.error("the spool is full: the %d oldest lines of %d producers are lost", total, len(lost))
