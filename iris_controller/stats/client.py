"""Rows of registered tables on their way to finelog: numbered per table, pushed in the background, never waited for.

`write` may be called from any thread, also while finelog is down or being replaced. Every row has a number of its producer in its
table, so a push that is repeated is dropped by the store, and rows that had to go show there as missing: measurements wait in
bounded memory, of which the oldest of the fullest table go first; rows of tables that a spool keeps wait on disk (`spool`). Must
never raise into the code that measures.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from iris_controller.quiet import QuietLog
from iris_core.model.errors import ModelError
from iris_core.wire.gen.iris.v1 import stats_pb2
from iris_core.wire.rows import batch_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from iris_controller.stats.spool import RowSpool
    from iris_core.model.tables import Table

    Row = Mapping[str, Any]

_log = logging.getLogger("iris.stats")

T = TypeVar("T")

MAX_WAITING_BYTES = 8 << 20
BATCH_ROWS = 1_000
PUSH_BYTES = 1 << 20
GATHER_S = 0.2
RETRY_S = (0.2, 10.0)
REFUSALS = frozenset({"INVALID_ARGUMENT", "NOT_FOUND"})
"""Codes of a store that does not know the table, or whose table the rows do not fit: asking again changes nothing."""
_ROW_BYTES = 128


class CannotPush(Exception):
    """The store did not take a push. `refused`: it never will; otherwise it is to be tried again after `retry_s`."""

    def __init__(self, message: str, *, refused: bool = False, retry_s: float = 0.0) -> None:
        super().__init__(message)
        self.refused = refused
        self.retry_s = retry_s


@dataclass(slots=True)
class _Waiting:
    """The rows of one table that wait in memory: numbers `first` up to `next`."""

    table: Table
    rows: deque[tuple[Row, int]]
    next: int = 0
    size: int = 0

    @property
    def first(self) -> int:
        return self.next - len(self.rows)

    def drop(self) -> None:
        self.size -= self.rows.popleft()[1]


class StatsClient:
    """See the module. `push` takes a serialised `WriteRowsRequest` and gives the store's answer, or raises CannotPush.

    Rows of the tables in `kept` go through the spool. `start` and `close` belong to an event loop.
    """

    def __init__(
        self,
        push: Callable[[bytes], Awaitable[bytes]],
        producer: str,
        *,
        spool: RowSpool | None = None,
        kept: Iterable[Table] = (),
        max_waiting_bytes: int = MAX_WAITING_BYTES,
    ) -> None:
        self._push = push
        self._producer = producer
        self._spool = spool
        self._kept = frozenset(table.name for table in kept) if spool is not None else frozenset()
        self._max_bytes = max_waiting_bytes
        self._lock = threading.Lock()
        self._waiting: dict[str, _Waiting] = {}
        self._lost = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        # Encoding and the disk, in order and beside the loop.
        self._hand = ThreadPoolExecutor(1, thread_name_prefix="stats")
        self._quiet = QuietLog(_log, 60.0)
        self._told = ""
        self._push_bytes = PUSH_BYTES

    @property
    def lost_rows(self) -> int:
        """Rows that had to go for want of room, or because finelog refuses them."""
        return self._lost + (self._spool.lost_rows if self._spool is not None else 0)

    @property
    def waiting_rows(self) -> int:
        with self._lock:
            held = sum(len(waiting.rows) for waiting in self._waiting.values())
        return held + (self._spool.waiting_rows if self._spool is not None else 0)

    def write(self, table: Table, row: Row) -> None:
        """Takes one row; returns at once. The row must not be changed afterwards."""
        self.write_all(table, (row,))

    def write_all(self, table: Table, rows: Sequence[Row]) -> None:
        """As `write`, for many."""
        if not rows:
            return
        sized = [
            (row, _ROW_BYTES + sum(len(value) for value in row.values() if isinstance(value, (str, bytes))))
            for row in rows
        ]
        with self._lock:
            waiting = self._waiting.get(table.name)
            if waiting is None:
                waiting = self._waiting[table.name] = _Waiting(table, deque())
            waiting.rows.extend(sized)
            waiting.next += len(sized)
            waiting.size += sum(size for _, size in sized)
            self._make_room()
            loop = self._loop
        if loop is not None and not self._wake.is_set():
            # The loop is gone: so is everybody who could send it.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._wake.set)

    def _make_room(self) -> None:
        while sum(waiting.size for waiting in self._waiting.values()) > self._max_bytes:
            fullest = max(self._waiting.values(), key=lambda waiting: waiting.size)
            if len(fullest.rows) <= 1:
                return
            fullest.drop()
            self._lost += 1

    def start(self) -> None:
        """Begins to send, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._wake.set()
        self._task = self._loop.create_task(self._run(), name="ship rows")

    async def close(self, timeout_s: float) -> int:
        """Sends what waits, for that long at most and while the store takes it, and ends.

        Returns how many rows were left unsent; of these a spool keeps its own.
        """
        self._closing.set()
        self._wake.set()
        if self._task is not None:
            _, pending = await asyncio.wait([self._task], timeout=timeout_s)
            for task in pending:
                task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._spool is not None:
            # What came last, or could not be written while a push hung.
            await self._by_hand(self._keep)
            await self._by_hand(self._spool.close)
        left = self.waiting_rows
        self._hand.shutdown()
        return left

    async def _by_hand(self, work: Callable[..., T], *values: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._hand, work, *values)

    # Sending ------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        delay = RETRY_S[0]
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not self._closing.is_set():
                await asyncio.sleep(GATHER_S)
            try:
                await self._send_all()
            except Exception as error:
                if not isinstance(error, CannotPush):
                    _log.exception("rows cannot be sent")
                elif str(error) != self._told:
                    _log.info("rows wait for the log store: %s", error)
                    self._told = str(error)
                if self._closing.is_set():
                    return
                self._wake.set()
                await self._pause(max(delay, error.retry_s if isinstance(error, CannotPush) else 0.0))
                delay = min(delay * 2, RETRY_S[1])
                continue
            delay, self._told = RETRY_S[0], ""
            if self._closing.is_set() and not self._wake.is_set():
                return

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                # New rows of kept tables go to disk also while nothing can be sent.
                while not self._closing.is_set():
                    self._wake.clear()
                    if self._spool is not None:
                        await self._by_hand(self._keep)
                    await self._wake.wait()
                    await asyncio.sleep(GATHER_S)
        self._wake.set()

    async def _send_all(self) -> None:
        spool = self._spool
        if spool is not None:
            await self._by_hand(self._keep)
            while not spool.empty:
                await self._send_kept(spool)
                await self._by_hand(self._keep)
        while (batch := await self._by_hand(self._next_batch)) is not None:
            await self._send(batch)

    async def _send_kept(self, spool: RowSpool) -> None:
        bodies = await self._by_hand(spool.take, self._push_bytes)
        if not bodies:
            return
        try:
            marks = await self._pushed([stats_pb2.RowBatch.FromString(body) for body in bodies])
        except CannotPush as error:
            if not error.refused:
                raise
            # One of them is at fault, and everything behind it would wait for ever: the first is tried alone.
            self._push_bytes = 1
            if len(bodies) == 1:
                self._quiet.warning("the log store refuses events, which are dropped: %s", error)
                await self._by_hand(spool.refuse)
                self._push_bytes = PUSH_BYTES
            return
        self._push_bytes = PUSH_BYTES
        if not await self._by_hand(spool.ack, marks):
            raise CannotPush("the log store acknowledged nothing")

    async def _send(self, batch: stats_pb2.RowBatch) -> None:
        end = batch.first_number + batch.rows
        try:
            mark = (await self._pushed([batch])).get((batch.table, batch.producer), 0)
        except CannotPush as error:
            if not error.refused:
                raise
            self._quiet.warning("the log store refuses rows of %s, which are dropped: %s", batch.table, error)
            mark = end
            self._lost += batch.rows
        if mark < end:
            raise CannotPush("the log store did not acknowledge everything")
        with self._lock:
            waiting = self._waiting[batch.table]
            while waiting.rows and waiting.first < end:
                waiting.drop()

    async def _pushed(self, batches: list[stats_pb2.RowBatch]) -> dict[tuple[str, str], int]:
        answer = await self._push(stats_pb2.WriteRowsRequest(batches=batches).SerializeToString())
        marks = stats_pb2.WriteRowsResponse.FromString(answer).marks
        return {(mark.table, mark.producer): mark.next_number for mark in marks}

    # Batches ------------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        """Moves rows of kept tables to the spool. Blocks."""
        assert self._spool is not None
        for name in self._kept:
            while True:
                with self._lock:
                    waiting = self._waiting.get(name)
                    if waiting is None or not waiting.rows:
                        break
                    batch_rows = [row for row, _ in list(waiting.rows)[:BATCH_ROWS]]
                    first = waiting.first
                batch = self._encoded(waiting.table, first, batch_rows)
                if batch is not None:
                    self._spool.append(batch)
                with self._lock:
                    while waiting.rows and waiting.first < first + len(batch_rows):
                        waiting.drop()

    def _next_batch(self) -> stats_pb2.RowBatch | None:
        while True:
            with self._lock:
                found = next(
                    (w for name, w in self._waiting.items() if w.rows and name not in self._kept),
                    None,
                )
                if found is None:
                    return None
                first = found.first
                rows: list[Row] = []
                size = 0
                for row, bytes_ in found.rows:
                    size += bytes_
                    if rows and (size > PUSH_BYTES or len(rows) >= BATCH_ROWS):
                        break
                    rows.append(row)
            batch = self._encoded(found.table, first, rows)
            if batch is not None:
                return batch
            with self._lock:
                while found.rows and found.first < first + len(rows):
                    found.drop()

    def _encoded(self, table: Table, first: int, rows: list[Row]) -> stats_pb2.RowBatch | None:
        """None: a row does not fit its table, by a fault of ours; they are counted."""
        try:
            return batch_of(table, self._producer, first, rows)
        except ModelError as error:
            self._quiet.warning("%d rows cannot be sent: %s", len(rows), error.message)
            self._lost += len(rows)
            return None
