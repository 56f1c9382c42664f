"""Connections to workloads that a workload cannot use to keep the controller's loop busy.

The parser takes one event after the other out of what was read without giving anybody else a turn, and before an answer it takes any number
of interim ones. So before an answer's head is whole little is read at a time, and not more than a head may have; and it must be whole within a
time, which begins when all of the request is sent. Must never limit a body.
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import httpcore

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable

MAX_HEAD: Final = 256 << 10
HEAD_READ: Final = 8 << 10


@dataclass(slots=True)
class Head:
    """What came before the answer that a request waits for, for `seconds` at most; `whole` once it is there."""

    seconds: float
    size: int = 0
    whole: bool = False
    until: float = 0.0
    """By the monotonic clock, 0 = nothing was read yet."""

    def time_left_s(self) -> float:
        """Raises ReadTimeout: none."""
        now = time.monotonic()
        self.until = self.until or now + self.seconds
        if self.until <= now:
            raise httpcore.ReadTimeout("no whole head")
        return self.until - now


awaited: ContextVar[Head | None] = ContextVar("awaited", default=None)
"""The head that the request of this context waits for."""


class Dialler(httpcore.AsyncNetworkBackend):
    """The library's connections, read with care. Use it for requests whose context has `awaited` set."""

    def __init__(self) -> None:
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 (the library's protocol)
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        return _Stream(await self._inner.connect_tcp(host, port, timeout, local_address, socket_options))

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


class _Stream(httpcore.AsyncNetworkStream):
    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        head = awaited.get()
        if head is None or head.whole:
            return await self._inner.read(max_bytes, timeout)
        data = await self._inner.read(min(max_bytes, HEAD_READ), head.time_left_s())
        head.size += len(data)
        if head.size > MAX_HEAD:
            raise httpcore.RemoteProtocolError(f"no whole head in {MAX_HEAD} bytes")
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore.AsyncNetworkStream:
        return _Stream(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
