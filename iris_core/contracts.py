"""The protocols between the floors of the house. All of them live here and nowhere else.

A protocol says what a neighbour may rely on: plain data in and out, the errors it raises, who closes it. Each has a shipped
fake in `providers/fake/` which the tests use. Must never import an implementation, a database or a user interface.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from google.protobuf.message import Message

R = TypeVar("R", bound="Message")


class IrisError(Exception):
    """Any failure that an operator is told about in one line. `exit_code` is the command line's exit code for it.

    ConnectFailed    nobody answers there, or the connection broke          exit 1
    RpcFailed        the server answered with an error                      exit 1
      Denied         UNAUTHENTICATED or PERMISSION_DENIED                   exit 1
    UsageFailed      the caller's words are wrong                           exit 2
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ConnectFailed(IrisError):
    """The endpoint did not answer; nothing is known about what it did with the request."""


class UsageFailed(IrisError):
    """The caller's input is wrong: nothing was sent."""

    exit_code = 2


class RpcFailed(IrisError):
    """The server answered with an error. `status` is the gRPC code's name (`NOT_FOUND`), the rest is `iris.v1.ErrorDetail`."""

    def __init__(
        self,
        status: str,
        message: str,
        *,
        code: str = "",
        subject: str = "",
        field: str = "",
        position: int | None = None,
        hint: str = "",
        retry_after_ms: int = 0,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.code = code
        self.subject = subject
        self.field = field
        self.position = position
        self.retry_after_ms = retry_after_ms
        if status == "INVALID_ARGUMENT":
            self.exit_code = 2


class Denied(RpcFailed):
    """The caller is unknown or may not do this."""


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


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One stored object. `generation` changes with every write and is what compare-and-set compares."""

    name: str
    size_bytes: int
    generation: str


class GenerationMismatch(IrisError):
    """The object is not at the expected generation: somebody else wrote it."""


class ObjectMissing(IrisError):
    """There is no such object."""


class ObjectStore(Protocol):
    """Flat objects under one root URL. Names are relative, `/`-separated, and never leave the root."""

    def put(self, name: str, data: bytes, *, if_generation: str | None = None) -> ObjectInfo:
        """Durable when it returns. `if_generation=""` = only if absent. Raises GenerationMismatch."""
        ...

    def get(self, name: str) -> bytes:
        """Raises ObjectMissing."""
        ...

    def stat(self, name: str) -> ObjectInfo | None: ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]: ...

    def delete(self, name: str) -> None:
        """Deleting what is absent is no error."""
        ...


@dataclass(frozen=True, slots=True)
class ControllerStatus:
    """What is known of a controller process without asking it."""

    running: bool
    url: str
    pid: int
    detail: str


class ControllerHost(Protocol):
    """A place where a controller runs: this machine now, SSH hosts, VMs and Kubernetes later."""

    def status(self) -> ControllerStatus: ...

    def stop(self) -> None: ...


class Tunnel(Protocol):
    """A way to reach a controller that is not directly reachable; open for the life of the command."""

    url: str

    def close(self) -> None: ...
