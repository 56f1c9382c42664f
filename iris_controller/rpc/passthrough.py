"""A whole service handed on to another process as raw bytes (DESIGN §6: LogService to the log store).

Nothing is decoded here: deadline, cancellation, trailing metadata and errors go through as they are. That process may be down, or
come back at another address, at any moment; then the caller gets one clear line and may retry at once. Must never forward a
caller's credential: the other side trusts this process, which has authorised the call.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc

from iris_controller.rpc.errors import DETAIL_KEY, RpcError, unavailable
from iris_controller.rpc.roles import MAX_MESSAGE_BYTES
from iris_core.wire.gen.iris.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from iris_core.wire.services import Method

Metadata = tuple[tuple[str, str | bytes], ...]

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # The default backs off for minutes; the process is local and is being restarted.
    ("grpc.initial_reconnect_backoff_ms", 50),
    # How long one attempt may take, in spite of its name: a busy controller answers late.
    ("grpc.min_reconnect_backoff_ms", 10_000),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_http_proxy", 0),
)
_CLOSE_GRACE_S = 5.0


class PassThrough:
    """Calls to one service at the address that `target` gives (`host:port`, "" while there is none).

    `what` names the other process in errors.
    """

    def __init__(self, target: Callable[[], str], what: str) -> None:
        self._target = target
        self._what = what
        self._address = ""
        self._channel: grpc.aio.Channel | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def unary(self, method: Method, request: bytes, timeout_s: float | None) -> tuple[bytes, Metadata]:
        """The answer and its trailing metadata. Raises RpcError."""
        call = self._connected().unary_unary(method.path, bytes, bytes)(request, timeout=timeout_s)
        try:
            answer: bytes = await call
            return answer, _ours(await call.trailing_metadata())
        except grpc.aio.AioRpcError as error:
            raise self._failed(error) from error

    async def stream(self, method: Method, request: bytes, timeout_s: float | None) -> AsyncIterator[bytes]:
        """The answers of a server stream. Raises RpcError."""
        call = self._connected().unary_stream(method.path, bytes, bytes)(request, timeout=timeout_s)
        try:
            async for answer in call:
                yield answer
        except grpc.aio.AioRpcError as error:
            raise self._failed(error) from error
        finally:
            call.cancel()

    async def close(self) -> None:
        """Ends the calls under way."""
        if self._channel is not None:
            await self._channel.close(None)
            self._channel = None
        if self._closing:
            await asyncio.wait(self._closing)

    def _connected(self) -> grpc.aio.Channel:
        address = self._target()
        if not address:
            raise self._down()
        if self._channel is None or address != self._address:
            if self._channel is not None:
                closing = asyncio.create_task(self._channel.close(_CLOSE_GRACE_S), name=f"close {self._address}")
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
            self._address = address
            self._channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        return self._channel

    def _down(self) -> RpcError:
        return unavailable(
            f"{self._what} is not running; the controller is restarting it",
            code="log_store_down",
            subject=self._what,
            hint="try again in a moment",
        )

    def _failed(self, error: grpc.aio.AioRpcError) -> RpcError:
        carried = dict(_ours(error.trailing_metadata())).get(DETAIL_KEY)
        if isinstance(carried, bytes):
            detail = common_pb2.ErrorDetail.FromString(carried)
            return RpcError(
                error.code().name,
                error.details() or "",
                code=detail.code,
                subject=detail.subject,
                field=detail.field,
                position=detail.position if detail.HasField("position") else None,
                hint=detail.hint,
                retry_after_ms=detail.retry_after_ms,
            )
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            return self._down()
        return RpcError(error.code().name, f"{self._what}: {error.details() or error.code().name}", code="log_store")


def _ours(trailing: Any) -> Metadata:
    return tuple((key, value) for key, value in trailing or () if key.startswith("iris-"))
