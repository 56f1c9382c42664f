"""A call that came over gRPC: raw bytes in, and the answers as they travel.

The router does everything else; this only translates. Every method is served as a raw stream, so that who calls and how large the
request may be are settled before it is received. Must never decode what was not admitted.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import grpc

from iris_controller.rpc.dispatch import as_bytes, name_of
from iris_controller.rpc.errors import as_rpc_error, invalid
from iris_controller.rpc.roles import MAX_MESSAGE_BYTES
from iris_core.wire.services import PACKAGE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from iris_controller.rpc.call import Argument
    from iris_controller.rpc.dispatch import Entry, Router

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_concurrent_streams", 4096),
    # The inner port is found by its number; two servers on one number would share the connections.
    ("grpc.so_reuseport", 0),
    # Clients behind NAT keep idle Watch streams alive by pinging.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
)
"""For `grpc.aio.server(options=…)` of the inner gRPC server."""

_EOF = grpc.aio.EOF  # type: ignore[attr-defined]  # its stubs lack it


class GrpcHandlers(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in its stubs alone
    """All methods of a router, for `server.add_generic_rpc_handlers`.

    `peer_of` gives the real `address:port` behind an inner connection, as `PublicPort.peer_of` does.
    """

    def __init__(self, router: Router, peer_of: Callable[[str], str | None]) -> None:
        self._router = router
        self._peer_of = peer_of

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        """How one call is served; None for what is none of Iris's methods."""
        path = handler_call_details.method
        if not path.startswith(f"/{PACKAGE}."):
            return None

        async def one(_requests: object, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
            return await self._serve(path, context)

        async def many(_requests: object, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            await self._serve(path, context)

        # One answer, its status with it, is one write for gRPC and one for the port.
        unary = self._router.is_unary(path)
        return grpc.stream_unary_rpc_method_handler(one) if unary else grpc.stream_stream_rpc_method_handler(many)

    async def _serve(self, path: str, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        """Answers one call: a unary method by what it returns, a stream by what it writes."""
        started = time.monotonic()
        status = "OK"
        try:
            return await self._answer(path, context)
        except asyncio.CancelledError:
            status = "CANCELLED"
            raise
        except Exception as error:
            told = as_rpc_error(error, name_of(path))
            status = told.status
            await context.abort(told.grpc_code(), told.message, told.metadata())
            raise AssertionError("abort returned") from error
        finally:
            self._router.finished(path, status, started)

    async def _answer(self, path: str, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        router = self._router
        entry, call = router.admit(path, _headers(context.invocation_metadata()), self._peer_of(context.peer()))
        left = context.time_remaining()
        if left is not None:
            call.deadline = time.monotonic() + left
        try:
            if entry.method.client_streaming:
                argument: Argument | AsyncIterator[Argument] = _received(entry, context)
            else:
                raw = await context.read()
                if raw is _EOF:
                    raise invalid("", "no request was sent", code="no_request")
                argument = entry.decoded(raw)
                if not entry.method.server_streaming:
                    answer = await router.one(entry, call, argument)
                    if call.trailing:
                        context.set_trailing_metadata(call.trailing)
                    return as_bytes(answer)
            # The caller learns that it was let in, though the first answer may be long in coming.
            await context.send_initial_metadata(())
            async with aclosing(router.many(entry, call, argument)) as answers:
                async for answer in answers:
                    await context.write(as_bytes(answer))
            return b""
        finally:
            call.cancelled.set()


async def _received(entry: Entry, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Argument]:
    while (raw := await context.read()) is not _EOF:
        yield entry.decoded(raw)


def _headers(metadata: Iterable[tuple[str, str | bytes]] | None) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in metadata or ():
        if isinstance(value, str):
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers
