"""Connections to a controller, for a program that waits and for one with an event loop. Must never say by which transport."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from google.protobuf.message import Message

R = TypeVar("R", bound="Message")


class Client(Protocol):
    """A synchronous connection to a controller, for the command line and scripts.

    `method` is `Service/Name` (`iris_core.wire.services`). Raises ConnectFailed, RpcFailed, Denied. The generated request and
    response classes are those of the method. A mutation without a `request_id` gets one.
    """

    url: str

    def call(self, method: str, request: Message, response: type[R], *, timeout_s: float = 30.0) -> R: ...

    def stream(self, method: str, request: Message, response: type[R]) -> Iterator[R]: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class AsyncClient(Protocol):
    """The same connection for an event loop: the console."""

    url: str

    async def call(self, method: str, request: Message, response: type[R], *, timeout_s: float = 30.0) -> R: ...

    def stream(self, method: str, request: Message, response: type[R]) -> AsyncIterator[R]: ...

    async def close(self) -> None: ...
