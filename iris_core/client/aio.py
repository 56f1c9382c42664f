"""The connection of an event loop: the console.

One channel, every call a coroutine, every stream an async iterator that ends its call when it is closed. Must never
block the loop, and never restart a stream by itself: only the reader knows from which revision to go on.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from iris_core.client.calls import Credentials, Repeater, identified
from iris_core.client.grpc_client import channel_options, deadline, load_grpc, translate
from iris_core.contracts import ConnectFailed, IrisError, R
from iris_core.wire.services import PACKAGE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import grpc.aio
    from google.protobuf.message import Message

    from iris_core.client.endpoint import Endpoint


class GrpcAsyncClient:
    """A controller over gRPC (`contracts.AsyncClient`). Make it inside the running loop; it connects with the first
    call.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        credentials: Credentials = Credentials(),  # noqa: B008 (frozen)
    ) -> None:
        lib = load_grpc()
        self.url = endpoint.url
        self._endpoint = endpoint
        self._error: type[grpc.RpcError] = lib.RpcError
        self._credentials = credentials
        self._metadata = tuple(credentials.headers())
        self._answered = False
        self._closed = False
        self._channel: grpc.aio.Channel = (
            lib.aio.secure_channel(endpoint.authority, lib.ssl_channel_credentials(), options=channel_options())
            if endpoint.tls
            else lib.aio.insecure_channel(endpoint.authority, options=channel_options())
        )

    async def call(self, method: str, request: Message, response: type[R], *, timeout_s: float = 30.0) -> R:
        """One answer. Raises ConnectFailed, RpcFailed, Denied."""
        message, repeatable = identified(request)
        stub = self._channel.unary_unary(
            f"/{PACKAGE}.{method}",
            request_serializer=lambda value: value.SerializeToString(),
            response_deserializer=response.FromString,
        )
        metadata = (*self._metadata, *self._credentials.now(change=repeatable))
        repeater = Repeater(time.monotonic, method, answered=self._answered)
        while True:
            try:
                answer: R = await stub(message, timeout=deadline(timeout_s), metadata=metadata)
            except asyncio.CancelledError:
                self._tell_closed()
                raise
            except self._error as raw:
                error = self._translate(raw, timeout_s)
                delay = repeater.delay_s(error) if repeatable else None
                if delay is None:
                    raise repeater.last(error) from None
                await asyncio.sleep(delay)
            else:
                self._answered = True
                return answer

    async def stream(self, method: str, request: Message, response: type[R]) -> AsyncIterator[R]:
        """Answers as they come; closing the iterator ends the call. Raises ConnectFailed, RpcFailed, Denied."""
        stub = self._channel.unary_stream(
            f"/{PACKAGE}.{method}",
            request_serializer=lambda value: value.SerializeToString(),
            response_deserializer=response.FromString,
        )
        call = stub(request, metadata=(*self._metadata, *self._credentials.now(change=False)))
        try:
            async for answer in call:
                self._answered = True
                yield answer
        except asyncio.CancelledError:
            self._tell_closed()
            raise
        except self._error as raw:
            raise self._translate(raw, None) from None
        finally:
            call.cancel()

    def _translate(self, raw: Any, timeout_s: float | None) -> IrisError:
        error = translate(raw, self._endpoint, timeout_s)
        if not isinstance(error, ConnectFailed):
            self._answered = True
        return error

    def _tell_closed(self) -> None:
        """Raises ConnectFailed where it was the channel's end that cancelled a call, and nobody the task that waits for it: such a
        task has to go on, or what it keeps up to date stands still for ever."""
        task = asyncio.current_task()
        if self._closed and (task is None or not task.cancelling()):
            raise ConnectFailed(f"the connection to {self.url} was closed") from None

    async def close(self) -> None:
        """Ends what is in flight: it raises ConnectFailed. A second time is no error."""
        self._closed = True
        await self._channel.close(None)
