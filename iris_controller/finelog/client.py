"""A process's own log lines on their way to finelog: a bounded queue that never blocks whoever logs.

`LogShipper.ship` may be called from any thread, also while finelog is down or being replaced: lines wait, and go out in order with
their numbers, so that finelog drops what it has already. When too much waits the oldest lines go, and a gap record with their count
takes their place. Must never raise into the code that logs, and never log itself.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from iris_controller.rpc.errors import RpcError
from iris_controller.rpc.passthrough import PassThrough
from iris_core.model.text import counted
from iris_core.wire.gen.iris.v1 import common_pb2, logs_pb2, pipeline_pb2
from iris_core.wire.services import method

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_QUEUE_BYTES = 8 << 20
PUSH_BYTES = 1 << 20
MAX_LINES = 10_000
MAX_LINE_BYTES = 256 << 10
SEAM_CHARACTERS = 4096
"""On either side of where two parts of a line are joined, what the later one carries for whoever searches."""
GATHER_SECONDS = 0.2
PUSH_SECONDS = 10.0
RETRY_SECONDS = (0.1, 5.0)
ENTRY_OVERHEAD = 64


class LogShipper:
    """Ships lines under one key as one producer. `start` and `close` belong to an event loop, `ship` to anybody.

    `address` gives `host:port` of finelog as it is now, "" while there is none.
    """

    def __init__(
        self, address: Callable[[], str], key: str, producer: str, *, max_queue_bytes: int = MAX_QUEUE_BYTES
    ) -> None:
        self._finelog = PassThrough(address, "the log store")
        self._key = key
        self._producer = producer
        self._max_bytes = max_queue_bytes
        self._lock = threading.Lock()
        self._entries: deque[logs_pb2.LogEntry] = deque()
        self._bytes = 0
        self._next_number = 0
        # Lines that went out of the queue: always those right before the first that waits.
        self._gap = 0
        self._told_lost = 0
        self._problem = ""
        self._last_line_at_ms = self._last_ack_at_ms = 0
        self._most_lines = MAX_LINES
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def lost_lines(self) -> int:
        """Lines that had to go for want of room, or because finelog refuses them."""
        return self._told_lost + self._gap

    def health(self) -> pipeline_pb2.ShipperHealth:
        """How its queue is."""
        now_ms = time.time_ns() // 1_000_000
        with self._lock:
            first = self._entries[0].epoch_ms if self._entries else now_ms
            return pipeline_pb2.ShipperHealth(
                spool_bytes=self._bytes,
                spool_cap_bytes=self._max_bytes,
                waiting_bytes=self._bytes,
                lag_ms=max(0, now_ms - first),
                lines=self._next_number,
                lost_lines=self.lost_lines,
                last_line_at_ms=self._last_line_at_ms,
                last_ack_at_ms=self._last_ack_at_ms,
                problem=self._problem,
            )

    def ship(
        self,
        text: str,
        *,
        level: common_pb2.LogLevel = common_pb2.LOG_LEVEL_INFO,
        epoch_ms: int | None = None,
        source: str = "iris",
    ) -> None:
        """Takes one line; returns at once. A line over 256 KiB goes in parts."""
        when = time.time_ns() // 1_000_000 if epoch_ms is None else epoch_ms
        data = text.encode(errors="replace")
        with self._lock:
            part, tail = 0, ""
            while len(data) > MAX_LINE_BYTES:
                head = data[:MAX_LINE_BYTES].decode(errors="ignore")
                data = data[len(head.encode()) :]
                self._append(head, level, when, source, partial=True, part=part, tail=tail)
                part, tail = part + 1, head[-SEAM_CHARACTERS:]
            self._append(data.decode(), level, when, source, partial=False, part=part, tail=tail)
            loop = self._loop
        if loop is not None and not self._wake.is_set():
            try:
                loop.call_soon_threadsafe(self._wake.set)
            except RuntimeError:
                # The loop is gone: so is everybody who could send it.
                pass

    def _append(
        self,
        data: str,
        level: common_pb2.LogLevel,
        epoch_ms: int,
        source: str,
        *,
        partial: bool,
        part: int,
        tail: str,
    ) -> None:
        entry = logs_pb2.LogEntry(
            number=self._next_number,
            epoch_ms=epoch_ms,
            source=source,
            data=data,
            level=level,
            partial=partial,
            part=part,
            seam=tail + data[:SEAM_CHARACTERS] if part else "",
        )
        self._next_number += 1
        self._last_line_at_ms = epoch_ms
        self._entries.append(entry)
        self._bytes += entry.ByteSize() + ENTRY_OVERHEAD
        while self._bytes > self._max_bytes and len(self._entries) > 1:
            self._drop_first()

    def _drop_first(self) -> None:
        entry = self._entries.popleft()
        self._bytes -= entry.ByteSize() + ENTRY_OVERHEAD
        self._gap += 1

    def start(self) -> None:
        """Begins to send, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._wake.set()
        self._task = self._loop.create_task(self._run(), name=f"ship {self._key}")

    async def close(self, timeout_s: float = 5.0) -> int:
        """Sends what waits, for that long at most, and ends. Returns how many lines were left unsent."""
        self._closing.set()
        self._wake.set()
        if self._task is not None:
            _, pending = await asyncio.wait([self._task], timeout=timeout_s)
            for task in pending:
                task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._finelog.close()
        with self._lock:
            return len(self._entries)

    async def _run(self) -> None:
        delay = RETRY_SECONDS[0]
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not self._closing.is_set():
                await asyncio.sleep(GATHER_SECONDS)
            while batch := self._next_batch():
                wait = await self._push(batch)
                if wait is None:
                    delay = RETRY_SECONDS[0]
                    if self._bytes < PUSH_BYTES and self._most_lines == MAX_LINES and not self._closing.is_set():
                        # Also what came meanwhile is gathered: each push costs the store a write to its disk.
                        await self._pause(GATHER_SECONDS)
                    continue
                await self._pause(max(delay, wait))
                delay = min(delay * 2, RETRY_SECONDS[1])
            if self._closing.is_set():
                return

    async def _pause(self, seconds: float) -> None:
        """Waits; only for a moment when there is little time left."""
        if self._closing.is_set():
            await asyncio.sleep(RETRY_SECONDS[0])
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    def _next_batch(self) -> logs_pb2.LogBatch | None:
        with self._lock:
            if not self._entries:
                return None
            batch = logs_pb2.LogBatch(producer=self._producer, key=self._key)
            first = self._entries[0]
            if self._gap:
                dropped = f"{counted(self._gap, 'line')} {'was' if self._gap == 1 else 'were'} dropped"
                batch.entries.add(
                    number=first.number - self._gap,
                    epoch_ms=first.epoch_ms,
                    source="iris",
                    data=f"[iris] {dropped} because too many waited for the log store",
                    level=common_pb2.LOG_LEVEL_WARNING,
                    gap=self._gap,
                )
            size = 0
            for entry in self._entries:
                size += entry.ByteSize()
                if batch.entries and (size > PUSH_BYTES or len(batch.entries) >= self._most_lines):
                    break
                batch.entries.append(entry)
            return batch

    async def _push(self, batch: logs_pb2.LogBatch) -> float | None:
        """None: finelog has it. Otherwise how many seconds it asks to wait."""
        request = logs_pb2.PushLogsRequest(batches=[batch]).SerializeToString()
        try:
            answer, _ = await self._finelog.unary(method("LogService/PushLogs"), request, PUSH_SECONDS)
        except RpcError as error:
            if error.status == "INVALID_ARGUMENT":
                self._refused(batch)
                return None
            self._problem = error.message
            return error.retry_after_ms / 1000
        marks = logs_pb2.PushLogsResponse.FromString(answer).marks
        mark = next((mark.next_number for mark in marks if mark.producer == self._producer), 0)
        if mark <= batch.entries[0].number:
            return 0.0
        self._problem, self._last_ack_at_ms = "", time.time_ns() // 1_000_000
        self._forget_below(mark, batch.entries[0].gap)
        self._most_lines = MAX_LINES
        return None

    def _refused(self, batch: logs_pb2.LogBatch) -> None:
        """It would be refused for ever, and everything behind it would wait: finds the line that is at fault, and lets it go."""
        self._most_lines = len(batch.entries) // 2
        if self._most_lines:
            return
        self._most_lines = MAX_LINES
        with self._lock:
            if self._entries and self._entries[0].number <= batch.entries[-1].number:
                self._drop_first()

    def _forget_below(self, number: int, told_lost: int) -> None:
        with self._lock:
            while self._entries and self._entries[0].number < number:
                self._bytes -= self._entries.popleft().ByteSize() + ENTRY_OVERHEAD
            first = self._entries[0].number if self._entries else self._next_number
            # Lines that went while they were on their way arrived after all.
            self._gap = min(self._gap, max(0, first - number))
            self._told_lost += told_lost


class ShippingHandler(logging.Handler):
    """Gives every record of a logger to a shipper."""

    LEVELS = (
        (logging.CRITICAL, common_pb2.LOG_LEVEL_CRITICAL),
        (logging.ERROR, common_pb2.LOG_LEVEL_ERROR),
        (logging.WARNING, common_pb2.LOG_LEVEL_WARNING),
        (logging.INFO, common_pb2.LOG_LEVEL_INFO),
    )

    def __init__(self, shipper: LogShipper) -> None:
        super().__init__()
        self._shipper = shipper

    def emit(self, record: logging.LogRecord) -> None:
        level = next((ours for theirs, ours in self.LEVELS if record.levelno >= theirs), common_pb2.LOG_LEVEL_DEBUG)
        try:
            self._shipper.ship(self.format(record), level=level, epoch_ms=int(record.created * 1000))
        except Exception:
            self.handleError(record)
