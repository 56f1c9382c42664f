"""Connections to a controller through a tunnel: opened with the first call, opened again after it broke, closed with the client.

The tunnel itself is made by whoever composes the program (`Target.through`): nothing here knows of ssh. Must never answer a call out of a
tunnel that is not there: a way that broke is said as what it is.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Self

from iris_core.contracts import AsyncClient, Client, ConnectFailed, R, Tunnel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from types import TracebackType

    from google.protobuf.message import Message


class TunnelledClient:
    """A controller behind a tunnel (`contracts.Client`). `inner` makes the connection to an address on this machine."""

    def __init__(self, url: str, through: Callable[[], Tunnel], inner: Callable[[str], Client]) -> None:
        self.url = url
        self._through = through
        self._inner = inner
        self._lock = threading.Lock()
        self._tunnel: Tunnel | None = None
        self._client: Client | None = None

    def call(self, method: str, request: Message, response: type[R], *, timeout_s: float = 30.0) -> R:
        """One answer. Raises ConnectFailed, RpcFailed, Denied."""
        client, tunnel = self._open()
        try:
            return client.call(method, request, response, timeout_s=timeout_s)
        except ConnectFailed as error:
            raise explained(error, tunnel, self.url) from error

    def stream(self, method: str, request: Message, response: type[R]) -> Iterator[R]:
        """Answers as they come; closing the iterator ends the call. Raises ConnectFailed, RpcFailed, Denied."""
        client, tunnel = self._open()
        try:
            yield from client.stream(method, request, response)
        except ConnectFailed as error:
            raise explained(error, tunnel, self.url) from error

    def _open(self) -> tuple[Client, Tunnel]:
        with self._lock:
            if self._client is not None and self._tunnel is not None and self._tunnel.alive:
                return self._client, self._tunnel
            self._drop()
            self._tunnel = self._through()
            self._client = self._inner(self._tunnel.url)
            return self._client, self._tunnel

    def _drop(self) -> None:
        if self._client is not None:
            self._client.close()
        if self._tunnel is not None:
            self._tunnel.close()
        self._client = self._tunnel = None

    def close(self) -> None:
        """Closes both. A second time is no error."""
        with self._lock:
            self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class TunnelledAsyncClient:
    """The same for an event loop (`contracts.AsyncClient`); the tunnel is opened and closed in a thread."""

    def __init__(self, url: str, through: Callable[[], Tunnel], inner: Callable[[str], AsyncClient]) -> None:
        self.url = url
        self._through = through
        self._inner = inner
        self._lock = asyncio.Lock()
        self._closed = False
        self._tunnel: Tunnel | None = None
        self._client: AsyncClient | None = None

    async def call(self, method: str, request: Message, response: type[R], *, timeout_s: float = 30.0) -> R:
        """One answer. Raises ConnectFailed, RpcFailed, Denied."""
        client, tunnel = await self._open()
        try:
            return await client.call(method, request, response, timeout_s=timeout_s)
        except ConnectFailed as error:
            raise explained(error, tunnel, self.url) from error

    async def stream(self, method: str, request: Message, response: type[R]) -> AsyncIterator[R]:
        """Answers as they come; closing the iterator ends the call. Raises ConnectFailed, RpcFailed, Denied."""
        client, tunnel = await self._open()
        answers = client.stream(method, request, response)
        try:
            async for answer in answers:
                yield answer
        except ConnectFailed as error:
            raise explained(error, tunnel, self.url) from error
        finally:
            close = getattr(answers, "aclose", None)
            if close is not None:
                await close()

    async def _open(self) -> tuple[AsyncClient, Tunnel]:
        async with self._lock:
            if self._closed:
                raise ConnectFailed(f"the connection to {self.url} was closed")
            if self._client is not None and self._tunnel is not None and self._tunnel.alive:
                return self._client, self._tunnel
            await self._drop()
            opening = asyncio.ensure_future(asyncio.to_thread(self._through))
            try:
                self._tunnel = await asyncio.shield(opening)
            except asyncio.CancelledError:
                # The thread goes on; what it opens must not be left behind.
                opening.add_done_callback(_close_late)
                raise
            self._client = self._inner(self._tunnel.url)
            return self._client, self._tunnel

    async def _drop(self) -> None:
        client, tunnel = self._client, self._tunnel
        self._client = self._tunnel = None
        if client is not None:
            await client.close()
        if tunnel is not None:
            await asyncio.to_thread(tunnel.close)

    async def close(self) -> None:
        """Closes both. A second time is no error."""
        self._closed = True
        async with self._lock:
            await self._drop()


def _close_late(opening: asyncio.Future[Tunnel]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        threading.Thread(target=opening.result().close, name="close a tunnel").start()


def explained(error: ConnectFailed, tunnel: Tunnel, url: str) -> ConnectFailed:
    """The error in words that mean something outside of this machine: the address of the tunnel's end here says nothing."""
    problem = tunnel.problem()
    if problem:
        return ConnectFailed(problem, hint="cluster controller status says how it stands")
    return ConnectFailed(error.message.replace(tunnel.url, url), hint=error.hint)
