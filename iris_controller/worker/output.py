"""What an attempt prints: its pipes, read on the loop a slice at a time, and its one sequence of lines in the spool.

Every stream of every attempt gets the same small slice per turn, so that one that floods cannot hold up another or the loop.
The writer is never slowed down on behalf of the log store: what is read goes to the spool, and the spool never waits.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from typing import TYPE_CHECKING

from iris_controller.worker.config import now_ms
from iris_controller.worker.lines import LineSplitter, Parts, own_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_controller.worker.batches import Line
    from iris_controller.worker.spool import Producer, Spool

_SLICE = 64 * 1024
_SMALL_SLICE = 4 * 1024
_MANY_LINES = 500
_UNFINISHED_S = 1.0


class Output:
    """The lines of one attempt, whichever of its processes writes them."""

    def __init__(self, spool: Spool, producer: Producer) -> None:
        self._spool = spool
        self._producer = producer
        self._streams: set[_Stream] = set()
        self._quiet = asyncio.Event()
        self._quiet.set()

    @property
    def lines(self) -> int:
        """How many lines were produced so far."""
        return self._producer.next

    def write(self, source: str, text: str) -> None:
        """Adds a line of ours."""
        self._spool.append(self._producer, [own_line(source, text)], now_ms())

    def pipe(self, source: str) -> int:
        """A new pipe that is read from now on. Returns the end to write to; the caller closes it after the spawn."""
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        self._streams.add(_Stream(self, read_end, source))
        self._quiet.clear()
        return write_end

    def catch_up(self) -> None:
        """Takes what is in the pipes now; they are read on."""
        for stream in tuple(self._streams):
            stream.drain()

    async def drained(self, limit_s: float) -> bool:
        """Waits until every pipe is at its end. After `limit_s` what is still open is given up; returns False then."""
        self.catch_up()
        if not self._quiet.is_set():
            try:
                await asyncio.wait_for(self._quiet.wait(), limit_s)
            except TimeoutError:
                self.abandon()
                return False
        return True

    def abandon(self) -> None:
        """Takes what is in the pipes now and reads no further."""
        for stream in tuple(self._streams):
            stream.drain()
            stream.finish()

    def close(self) -> None:
        """The last line is written."""
        self.abandon()
        self._spool.close(self._producer)

    def store(self, lines: Sequence[Line]) -> None:
        """For the streams alone."""
        self._spool.append(self._producer, lines, now_ms())

    def ended(self, stream: _Stream) -> None:
        """For the streams alone."""
        self._streams.discard(stream)
        if not self._streams:
            self._quiet.set()


class _Stream:
    def __init__(self, output: Output, fd: int, source: str) -> None:
        self._output = output
        self._fd = fd
        self._parts = Parts(source)
        self._splitter = LineSplitter()
        self._slice = _SLICE
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._since = 0.0  # since when the splitter's unfinished line waits
        self._loop.add_reader(fd, self._readable)

    def drain(self) -> None:
        """Reads what the pipe holds at this moment (at most its capacity, so it cannot go on for ever)."""
        if self._fd < 0:
            return
        for _ in range(fcntl.fcntl(self._fd, fcntl.F_GETPIPE_SZ) // _SLICE + 1):
            if not self._read(_SLICE):
                return

    def finish(self) -> None:
        """Reads no further."""
        if self._fd < 0:
            return
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._fd = -1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pieces = self._splitter.finish()
        if pieces:
            self._output.store(self._parts.lines(pieces, self._output.lines))
        self._output.ended(self)

    def _readable(self) -> None:
        self._read(self._slice)

    def _read(self, size: int) -> bool:
        """Returns whether there may be more at once."""
        try:
            chunk = os.read(self._fd, size)
        except BlockingIOError:
            return False
        except OSError:
            chunk = b""
        if not chunk:
            self.finish()
            return False
        pieces = self._splitter.feed(chunk)
        if pieces:
            self._output.store(self._parts.lines(pieces, self._output.lines))
            self._slice = _SMALL_SLICE if len(pieces) > _MANY_LINES else _SLICE
        if pieces or not self._since:
            self._since = self._loop.time()
        if self._splitter.pending and self._timer is None:
            self._timer = self._loop.call_later(_UNFINISHED_S, self._overdue)
        elif not self._splitter.pending:
            self._since = 0.0
        return True

    def _overdue(self) -> None:
        self._timer = None
        if not self._splitter.pending:
            return
        left = self._since + _UNFINISHED_S - self._loop.time()
        if left > 0.001:
            self._timer = self._loop.call_later(left, self._overdue)
            return
        pieces = self._splitter.flush()
        if pieces:
            self._output.store(self._parts.lines(pieces, self._output.lines))
        self._since = self._loop.time()
        if self._splitter.pending:
            self._timer = self._loop.call_later(_UNFINISHED_S, self._overdue)
