"""LogService over gRPC: bytes in, bytes out, errors with their detail.

Requests are decoded here and not by gRPC, so that a malformed one is an INVALID_ARGUMENT, and large ones are decoded off the loop.
Reads run in slices on a few threads and take turns; a caller that goes away ends its read at the next slice. A slow caller holds one
answer in memory, and the more of those there are the smaller the answers get. Must never do file work on the loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message import DecodeError

from iris_controller.finelog import query as queries
from iris_controller.finelog.health import store_health
from iris_controller.finelog.ingest import Ingest, marks_of
from iris_controller.finelog.reader import MAX_ANSWER_BYTES, answering
from iris_controller.finelog.view_service import ViewService, one_step
from iris_controller.finelog.waiters import Waiters
from iris_controller.rpc.errors import RpcError, as_rpc_error, invalid
from iris_core.wire.gen.iris.v1 import logs_pb2
from iris_core.wire.services import method

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from iris_controller.finelog.query import Query
    from iris_controller.finelog.shipping.owners import ShippingStatus
    from iris_controller.finelog.store import Store

log = logging.getLogger("iris.finelog")

READERS = 2
SLICE_SECONDS = 0.02
UNSENT_BYTES = 64 << 20
"""Answers in the making, and those that callers have not taken yet; as this fills up, answers get smaller."""
MIN_ANSWER_BYTES = 128 << 10


class LogService:
    """The methods that take one request and give one answer, on one event loop."""

    def __init__(
        self, store: Store, *, release: str = "", shipping: Callable[[], ShippingStatus | None] = lambda: None
    ) -> None:
        self._store = store
        self._shipping = shipping
        self._release = release
        self._waiters = Waiters()
        self._ingest = Ingest(store, self._waiters.notify)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="finelog-reader")
        self._unsent_bytes = 0
        self._views = ViewService(store, self._waiters, self._readers, self._room, unshipped=self._unshipped_since_ms)

    async def push_logs(self, raw: bytes) -> bytes:
        """`PushLogs`. Raises RpcError."""
        return (await self._ingest.push(raw)).SerializeToString()

    async def fetch_logs(self, raw: bytes) -> bytes:
        """`FetchLogs`. Raises RpcError."""
        try:
            request = logs_pb2.FetchLogsRequest.FromString(raw)
        except DecodeError as error:
            raise invalid("", "this is no FetchLogsRequest", code="malformed") from error
        query = queries.parse(request)
        if query.cursor > self._store.last_seq:
            raise RpcError(
                "OUT_OF_RANGE",
                f"the cursor {query.cursor} is ahead of the store, which ends at {self._store.last_seq}",
                code="cursor_ahead",
                field="cursor",
                hint="the store was replaced: read again from the start",
            )
        # Nothing new ever comes below `before`.
        wait_seconds = 0.0 if query.before else queries.wait_ms(request) / 1000
        response = await self._read(query, list(request.producers), wait_seconds)
        return response.SerializeToString()

    async def get_store_health(self, _: bytes) -> bytes:
        """`GetStoreHealth`."""
        ask = partial(
            store_health,
            self._store,
            fault=self._ingest.fault,
            last_line_at_ms=self._ingest.last_line_at_ms,
            waiting_readers=len(self._waiters),
            release=self._release,
            shipping=self._shipping(),
        )
        views, view_bytes = len(self._views), self._views.memory_bytes
        found = await asyncio.get_running_loop().run_in_executor(self._readers, ask)
        found.views, found.view_bytes = views, view_bytes
        return logs_pb2.GetStoreHealthResponse(store=found).SerializeToString()

    async def _read(self, query: Query, producers: list[str], wait_seconds: float) -> logs_pb2.FetchLogsResponse:
        deadline = time.monotonic() + wait_seconds
        scanned = 0
        with self._waiters.join(query.scope) as waiter:
            while True:
                # Before the lines are read: all lines below a mark are in this answer or behind its cursor.
                marks = marks_of(self._store, producers)
                response = await self._scan(query)
                response.marks.extend(marks)
                scanned += response.scanned
                response.scanned = scanned
                response.unshipped_since_ms = self._unshipped_since_ms()
                if response.entries or response.capped or waiter.is_ended:
                    return response
                if not await waiter.wait(deadline - time.monotonic()):
                    return response
                query = replace(query, cursor=response.cursor)

    def _unshipped_since_ms(self) -> int:
        shipping = self._shipping()
        return shipping.unshipped_since_ms if shipping is not None else 0

    async def _scan(self, query: Query) -> logs_pb2.FetchLogsResponse:
        loop = asyncio.get_running_loop()
        with self._room(MAX_ANSWER_BYTES) as room:
            work = answering(self._store, query, SLICE_SECONDS, max_bytes=room)
            try:
                while True:
                    is_over, answer = await loop.run_in_executor(self._readers, one_step, work)
                    if answer is not None and is_over:
                        return answer
            finally:
                # If its caller left, what remembers why still knows this frame; the slice under way is the last to hold it.
                del work

    @contextmanager
    def _room(self, most: int) -> Iterator[int]:
        """Bytes for an answer that is being made, fewer when much is."""
        room = max(MIN_ANSWER_BYTES, min(most, (UNSENT_BYTES - self._unsent_bytes) // 4))
        # Set aside from the start: many that begin together must not all count on the same room.
        self._unsent_bytes += room
        try:
            yield room
        finally:
            self._unsent_bytes -= room

    def handlers(self) -> grpc.GenericRpcHandler[Any, Any]:
        """What a gRPC server is given."""
        pairs: list[tuple[str, Callable[[bytes], Awaitable[bytes]]]] = [
            ("LogService/PushLogs", self.push_logs),
            ("LogService/FetchLogs", self.fetch_logs),
            ("LogService/GetStoreHealth", self.get_store_health),
            ("LogService/OpenLogView", self._views.open_log_view),
            ("LogService/ReadLines", self._views.read_lines),
            ("LogService/FindNext", self._views.find_next),
            ("LogService/CloseLogView", self._views.close_log_view),
        ]
        streams: list[tuple[str, Callable[[bytes], AsyncIterator[bytes]]]] = [
            ("LogService/Tail", self._views.tail),
            ("LogService/ExportLogs", self._views.export_logs),
        ]
        found = {
            method(name).name: grpc.unary_unary_rpc_method_handler(self._guard(name, call)) for name, call in pairs
        }
        found |= {
            method(name).name: grpc.unary_stream_rpc_method_handler(_guard_stream(name, call)) for name, call in streams
        }
        return grpc.method_handlers_generic_handler("iris.v1.LogService", found)

    def _guard(self, name: str, call: Callable[[bytes], Awaitable[bytes]]) -> Callable[..., Awaitable[bytes]]:
        async def handle(raw: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
            try:
                answer = await call(raw)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                fault = as_rpc_error(error, name)
                await context.abort(fault.grpc_code(), fault.message, fault.metadata())
            size = len(answer)

            def sent(_: object) -> None:
                self._unsent_bytes -= size

            self._unsent_bytes += size
            context.add_done_callback(sent)  # type: ignore[arg-type]  # the stubs name its parameter
            return answer

        return handle

    def end_waits(self) -> None:
        """Readers that wait are answered with what there is."""
        self._waiters.close()

    async def close(self) -> None:
        """Stores what waits and ends the threads. Call it when no request is under way any more."""
        self.end_waits()
        await self._views.close()
        await self._ingest.close()
        await asyncio.to_thread(self._readers.shutdown)


def _guard_stream(name: str, call: Callable[[bytes], AsyncIterator[bytes]]) -> Callable[..., AsyncIterator[bytes]]:
    async def handle(raw: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
        answers = call(raw)
        try:
            async for answer in answers:
                yield answer
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except Exception as error:
            fault = as_rpc_error(error, name)
            await context.abort(fault.grpc_code(), fault.message, fault.metadata())
        finally:
            await answers.aclose()  # type: ignore[attr-defined]  # it is a generator

    return handle
