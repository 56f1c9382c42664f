"""The RPCs of log views, on one event loop: opened, read, searched, followed, exported, and forgotten when nobody uses them.

All searching and reading runs in slices on the threads that answer FetchLogs, in turns with everybody else's. What views take
together is bounded: the one that was idle longest goes first, and a view in use is never taken away. A view belongs to whoever knows
its id, which cannot be guessed. Must never do file work on the loop.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import DecodeError, Message

from iris_controller.finelog import query as queries
from iris_controller.finelog.export import Exporter
from iris_controller.finelog.finding import Find
from iris_controller.finelog.views import MAX_CONTEXT, PAGE_LINES, View
from iris_controller.rpc.errors import RpcError, exhausted, invalid
from iris_core.model.regex import compile_content_regex
from iris_core.wire.gen.iris.v1 import logs_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
    from concurrent.futures import Executor
    from contextlib import AbstractContextManager

    from iris_controller.finelog.store import Store
    from iris_controller.finelog.waiters import Waiters

T = TypeVar("T")
M = TypeVar("M", bound=Message)

MAX_VIEWS = 64
MAX_VIEW_BYTES = 96 << 20
"""What all views take together."""
IDLE_S = 600.0
SWEEP_S = 15.0
OPEN_S = 0.5
"""How long an open waits for the search to be over; a longer one goes on behind the answer."""
FIND_S = 2.0
PAGE = 256
ANSWER_BYTES = 4 << 20
BEAT_S = 5.0
ROUND_S = 0.05
"""No faster than this follows a view, however much is stored."""
HOLD_S = 0.15
"""How long a line of one of several keys waits for earlier ones of the others."""


class _Entry:
    """A view and who uses it."""

    def __init__(self, view: View, clock: Callable[[], float], unshipped: Callable[[], int]) -> None:
        self.view = view
        self._unshipped = unshipped
        self.lock = asyncio.Lock()
        self.building: asyncio.Task[None] | None = None
        self.find: tuple[tuple[str, str, int], Find] | None = None
        self.finding = asyncio.Lock()
        self.users = 0
        self._clock = clock
        self.used = clock()

    @contextmanager
    def in_use(self) -> Iterator[View]:
        """It stays at least until then."""
        self.users += 1
        try:
            yield self.view
        finally:
            self.users -= 1
            self.used = self._clock()

    @property
    def memory_bytes(self) -> int:
        return self.view.memory_bytes + (self.find[1].memory_bytes if self.find is not None else 0)

    def state(self) -> logs_pb2.LogViewState:
        state = self.view.state()
        state.memory_bytes = self.memory_bytes
        state.unshipped_since_ms = self._unshipped()
        state.expires_in_ms = max(0, int((IDLE_S - (0.0 if self.users else self._clock() - self.used)) * 1000))
        return state


class ViewService:
    """See the module. `room` sets answer bytes aside while they are made; `unshipped` tells since when rows are on this disk alone."""

    def __init__(
        self,
        store: Store,
        waiters: Waiters,
        readers: Executor,
        room: Callable[[int], AbstractContextManager[int]],
        *,
        unshipped: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._unshipped = unshipped
        self._waiters = waiters
        self._readers = readers
        self._room = room
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._changing: set[asyncio.Task[None]] = set()
        self._sweep: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def memory_bytes(self) -> int:
        """What all views take."""
        return sum(entry.memory_bytes for entry in self._entries.values())

    # The methods --------------------------------------------------------------------------------------------------

    async def open_log_view(self, raw: bytes) -> bytes:
        """`OpenLogView`. Raises RpcError, ModelError."""
        request = _decoded(logs_pb2.OpenLogViewRequest, raw)
        if request.query.max_lines < 0:
            raise invalid("query.max_lines", f"max_lines {request.query.max_lines} is negative")
        context = request.context if request.HasField("context") else None
        if context is not None and not 0 <= context <= MAX_CONTEXT:
            raise invalid("context", f"the context is 0 to {MAX_CONTEXT:,} lines, not {context}")
        if not 0 <= request.last_lines <= PAGE_LINES:
            what = f"an answer has at most {PAGE_LINES:,} lines, not {request.last_lines}"
            raise invalid("last_lines", what)
        query = queries.merged(queries.parse(request.query), request.also)
        self._make_room()
        entry = _Entry(
            View(self._store, query, limit=request.query.max_lines, context=context), self._clock, self._unshipped
        )
        view_id = secrets.token_hex(16)
        self._entries[view_id] = entry
        answer = logs_pb2.OpenLogViewResponse(view_id=view_id, sources=len(query.scope.sources))
        try:
            # In use from the start: others who open views meanwhile must not make room with it.
            with entry.in_use() as view:
                entry.building = asyncio.create_task(self._build(entry), name=f"log view {query.scope.source}")
                await asyncio.wait([entry.building], timeout=OPEN_S)
                if entry.building.done() and (fault := entry.building.exception()) is not None:
                    raise fault
                if request.last_lines and view.is_complete:
                    first = max(len(view.numbers) - request.last_lines, 0)
                    answer.lines.extend(await self._page(entry, first, request.last_lines))
                answer.state.CopyFrom(entry.state())
        except BaseException:
            # Nobody was told its id: it would search on, and be kept, for nobody.
            self._forget(view_id)
            raise
        self._schedule_sweep()
        return answer.SerializeToString()

    async def read_lines(self, raw: bytes) -> bytes:
        """`ReadLines`. Raises RpcError."""
        request = _decoded(logs_pb2.ReadLinesRequest, raw)
        if request.first < 0:
            raise invalid("first", f"lines are numbered from 0, not from {request.first}")
        if not 0 <= request.count <= PAGE_LINES:
            raise invalid("count", f"a page has 1 to {PAGE_LINES:,} lines, not {request.count}")
        entry = self._entry(request.view_id)
        with entry.in_use() as view:
            count = request.count or PAGE
            first, at = request.first, None
            if request.at_seq or request.at_ms:
                at = await self._run(view.at_time(request.at_ms) if request.at_ms else view.at_seq(request.at_seq))
                first = (at or 0) // count * count
            if first + count > len(view.numbers) and view.is_complete:
                await self._change(self._extend(entry))
            lines = await self._page(entry, first, count)
            number = -1 if at is None else at
            return logs_pb2.ReadLinesResponse(lines=lines, state=entry.state(), at=number).SerializeToString()

    async def find_next(self, raw: bytes) -> bytes:
        """`FindNext`. Raises RpcError, ModelError."""
        request = _decoded(logs_pb2.FindNextRequest, raw)
        if not request.regex and not request.substring and not request.min_level:
            raise invalid("regex", "there is nothing to look for", hint="give a regex, a substring or a level")
        if len(request.substring) > queries.MAX_SUBSTRING:
            raise invalid("substring", f"it has {len(request.substring)} characters, more than {queries.MAX_SUBSTRING}")
        wanted = (request.regex, request.substring, int(request.min_level))
        entry = self._entry(request.view_id)
        with entry.in_use() as view:
            if entry.find is None or entry.find[0] != wanted:
                regex = compile_content_regex(request.regex) if request.regex else None
                entry.find = (wanted, Find(view, regex, request.substring, request.min_level))
            find = entry.find[1]
            is_asked = True
            try:
                await self._change(self._advance(entry, find, lambda: is_asked))
            finally:
                is_asked = False
            hit = find.next(request.from_line, backward=request.backward)
            return logs_pb2.FindNextResponse(
                found=hit is not None,
                number=hit[0] if hit else 0,
                ordinal=hit[1] if hit else 0,
                total=find.total,
                complete=find.is_complete,
                state=entry.state(),
            ).SerializeToString()

    async def close_log_view(self, raw: bytes) -> bytes:
        """`CloseLogView`. One that is not there is closed already."""
        self._forget(_decoded(logs_pb2.CloseLogViewRequest, raw).view_id)
        return b""

    async def tail(self, raw: bytes) -> AsyncIterator[bytes]:
        """`Tail`. Raises RpcError."""
        request = _decoded(logs_pb2.TailRequest, raw)
        if request.first < -1:
            raise invalid("first", f"lines are numbered from 0, not from {request.first}")
        entry = self._entry(request.view_id)
        with entry.in_use() as view, self._waiters.join(view.query.scope) as waiter:
            await self._built(entry)
            at = request.first if request.first >= 0 else len(view.numbers)
            beat = 0.0
            while True:
                began = self._clock()
                await self._change(self._extend(entry))
                while at < len(view.numbers):
                    lines = await self._page(entry, at, 1_000)
                    at += len(lines)
                    beat = self._clock() + BEAT_S
                    yield logs_pb2.TailResponse(lines=lines, state=entry.state()).SerializeToString()
                is_over = (view.is_full and not view.held) or bool(view.query.before) or waiter.is_ended
                if is_over or self._clock() >= beat:
                    beat = self._clock() + BEAT_S
                    yield logs_pb2.TailResponse(state=entry.state()).SerializeToString()
                if is_over:
                    return
                await asyncio.sleep(max(0.0, ROUND_S - (self._clock() - began)))
                await waiter.wait(HOLD_S if view.held else max(0.01, beat - self._clock()))

    async def export_logs(self, raw: bytes) -> AsyncIterator[bytes]:
        """`ExportLogs`. Raises RpcError."""
        request = _decoded(logs_pb2.ExportLogsRequest, raw)
        if request.first < 0:
            raise invalid("first", f"lines are numbered from 0, not from {request.first}")
        entry = self._entry(request.view_id)
        with entry.in_use() as view:
            await self._built(entry)
            end = len(view.numbers)
            before = await self._page(entry, request.first - 1, 1) if 0 < request.first <= end else []
            exporter = Exporter(request.first, before[0] if before else None)
            while exporter.next_line < end:
                lines = await self._page(entry, exporter.next_line, min(PAGE_LINES, end - exporter.next_line))
                if not lines:
                    break
                answer = exporter.take(lines)
                answer.state.CopyFrom(entry.state())
                yield answer.SerializeToString()
            answer = exporter.last()
            answer.state.CopyFrom(entry.state())
            yield answer.SerializeToString()

    async def close(self) -> None:
        """Ends what is under way."""
        if self._sweep is not None:
            self._sweep.cancel()
        under_way = [entry.building for entry in self._entries.values() if entry.building is not None]
        under_way += self._changing
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        self._entries.clear()

    # The work -----------------------------------------------------------------------------------------------------

    async def _build(self, entry: _Entry) -> None:
        async with entry.lock:
            await self._run(entry.view.build())

    async def _built(self, entry: _Entry) -> None:
        """Waits for the search. Raises what it raised."""
        if entry.building is not None:
            await asyncio.shield(entry.building)

    async def _change(self, work: Coroutine[Any, Any, None]) -> None:
        """Does what changes a view to its end, also if its caller leaves: the next one would do again what is under way."""
        task = asyncio.create_task(work)
        self._changing.add(task)
        task.add_done_callback(self._changed)
        await asyncio.shield(task)

    def _changed(self, task: asyncio.Task[None]) -> None:
        self._changing.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited was told; if nobody did, nobody wants to know

    async def _advance(self, entry: _Entry, find: Find, is_asked: Callable[[], bool]) -> None:
        """Searches on for a while. What nobody asks for any more ends with the slice under way: who asks next would wait for all of it."""
        async with entry.finding:
            if is_asked():
                await self._run(find.advance(), FIND_S, is_asked)

    async def _extend(self, entry: _Entry) -> None:
        view = entry.view
        async with entry.lock:
            if view.query.before:
                return
            if not view.is_full:
                await self._run(view.extend(self._clock()))
            view.settle(self._clock() - HOLD_S)

    async def _page(self, entry: _Entry, first: int, count: int) -> list[logs_pb2.ViewLine]:
        with self._room(ANSWER_BYTES) as room:
            return await self._run(entry.view.read(first, count, room))

    async def _run(
        self,
        work: Generator[None, None, T],
        seconds: float | None = None,
        is_asked: Callable[[], bool] = lambda: True,
    ) -> T:
        """The result of the work, done in turns with that of others; None if it was not over in time, or is not asked for any more."""
        loop = asyncio.get_running_loop()
        deadline = None if seconds is None else self._clock() + seconds
        try:
            while True:
                is_over, result = await loop.run_in_executor(self._readers, one_step, work)
                if is_over:
                    return result  # type: ignore[return-value]  # what the generator returned
                if (deadline is not None and self._clock() >= deadline) or not is_asked():
                    work.close()
                    return None  # type: ignore[return-value]  # only for work without a result
        finally:
            # As in the service: of work that nobody waits for any more the slice under way is the last to hold it.
            del work

    # The views ----------------------------------------------------------------------------------------------------

    def _entry(self, view_id: str) -> _Entry:
        entry = self._entries.get(view_id)
        if entry is None:
            raise RpcError(
                "NOT_FOUND",
                "there is no such log view: it was closed, was not used for long, or the log store was restarted",
                code="view_gone",
                field="view_id",
                hint="open it again",
            )
        if entry.building is not None and entry.building.done() and (fault := entry.building.exception()) is not None:
            raise fault
        return entry

    def _make_room(self) -> None:
        """Raises RESOURCE_EXHAUSTED: every view is in use."""
        while len(self._entries) >= MAX_VIEWS or self.memory_bytes > MAX_VIEW_BYTES:
            idle = [(entry.used, view_id) for view_id, entry in self._entries.items() if not entry.users]
            if not idle:
                raise exhausted(
                    f"{len(self._entries)} log views are open and in use",
                    code="too_many_views",
                    hint="close one, or read with FetchLogs",
                    retry_after_ms=5_000,
                )
            self._forget(min(idle)[1])

    def _forget(self, view_id: str) -> None:
        entry = self._entries.pop(view_id, None)
        if entry is not None and entry.building is not None:
            entry.building.cancel()

    def _schedule_sweep(self) -> None:
        if self._sweep is None and self._entries:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP_S, self._expire)

    def _expire(self) -> None:
        self._sweep = None
        now = self._clock()
        for view_id, entry in list(self._entries.items()):
            if not entry.users and now - entry.used >= IDLE_S:
                self._forget(view_id)
        self._schedule_sweep()


def one_step(work: Generator[None, None, T]) -> tuple[bool, T | None]:
    """The next slice of some work: whether that was the last, and its result then."""
    try:
        next(work)
    except StopIteration as end:
        return True, end.value
    return False, None


def _decoded(kind: type[M], raw: bytes) -> M:
    try:
        return kind.FromString(raw)
    except DecodeError as error:
        raise invalid("", f"this is no {kind.DESCRIPTOR.name}", code="malformed") from error
