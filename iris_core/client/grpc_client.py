"""The synchronous connection over gRPC.

Imports grpc when it is opened, not before: the import alone costs more than most commands. Generic calls by method
path, no generated stubs, so that a method that only the server's release knows can still be called. Must never repeat
a call that carries no request id.
"""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING, Any, Self

from iris_core.client.calls import (
    DETAIL_KEY,
    MAX_MESSAGE_BYTES,
    Credentials,
    NoHttp2,
    NotReached,
    Repeater,
    Timeout,
    failure,
    identified,
)
from iris_core.contracts import ConnectFailed, IrisError, R
from iris_core.wire.services import PACKAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    import grpc
    from google.protobuf.message import Message

    from iris_core.client.endpoint import Endpoint
    from iris_core.wire.gen.iris.v1.common_pb2 import ErrorDetail


def channel_options() -> list[tuple[str, int]]:
    """Limits and keepalive of every channel. A proxy variable of the shell never applies: the address given is the
    one dialled.
    """
    return [
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.enable_http_proxy", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        # How long one attempt may take, in spite of its name: a busy controller answers late.
        ("grpc.min_reconnect_backoff_ms", 10_000),
        ("grpc.max_reconnect_backoff_ms", 2_000),
    ]


def load_grpc() -> Any:
    """The grpc module, told to keep its own log off the operator's terminal."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    import grpc

    return grpc


def detail_of(metadata: Sequence[tuple[str, Any]] | None) -> ErrorDetail | None:
    """The error detail in trailing metadata, None if there is none that can be read."""
    from google.protobuf.message import DecodeError

    from iris_core.wire.gen.iris.v1.common_pb2 import ErrorDetail

    for key, value in metadata or ():
        if key == DETAIL_KEY and isinstance(value, bytes):
            try:
                return ErrorDetail.FromString(value)
            except DecodeError:
                return None
    return None


def translate(error: Any, endpoint: Endpoint, timeout_s: float | None) -> IrisError:
    """The exception for a failed gRPC call (an object with code(), details() and trailing_metadata())."""
    status = error.code().name
    message = error.details() or ""
    detail = detail_of(error.trailing_metadata())
    if detail is None:
        if status == "DEADLINE_EXCEEDED":
            return Timeout(f"{endpoint.url} did not answer within {timeout_s or 0:g} s")
        if status == "UNAVAILABLE":
            if any(words in message.lower() for words in ("failed parsing http/2", "missing selected alpn")):
                return NoHttp2(f"cannot connect to {endpoint.url}: what listens there does not speak HTTP/2")
            # gRPC says so when it never had a connection; another message may mean that it broke on the way.
            kind = NotReached if "failed to connect" in message or "resolv" in message.lower() else ConnectFailed
            return kind(f"cannot connect to {endpoint.url}: {_reason(message)}")
        if status == "CANCELLED":
            return ConnectFailed(f"the connection to {endpoint.url} was closed")
    return failure(status, message, detail)


def _reason(message: str) -> str:
    """The useful part of what gRPC says about a failed connection."""
    lowered = message.lower()
    for text in ("connection refused", "no route to host", "network is unreachable", "connection reset"):
        if text in lowered:
            return text
    if "handshake" in lowered or "ssl" in lowered or "wrong_version" in lowered:
        return "the TLS handshake failed"
    if any(word in lowered for word in ("dns", "resolution", "resolv", "hostname lookup")):
        return "the host name is unknown"
    if "socket closed" in lowered or "goaway" in lowered or "broken pipe" in lowered:
        return "the connection broke"
    return " ".join(message.split())[:200] or "no answer"


def deadline(timeout_s: float) -> float | None:
    """The call's timeout as gRPC wants it: None for no limit (`math.inf`)."""
    return None if timeout_s == math.inf else timeout_s


class GrpcClient:
    """A controller over gRPC (`contracts.Client`). Connects with the first call; safe for several threads."""

    def __init__(
        self,
        endpoint: Endpoint,
        credentials: Credentials = Credentials(),  # noqa: B008 (frozen)
        *,
        note: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        lib = load_grpc()
        self.url = endpoint.url
        self._endpoint = endpoint
        self._error: type[grpc.RpcError] = lib.RpcError
        self._credentials = credentials
        self._metadata = tuple(credentials.headers())
        self._note = note
        self._clock = clock
        self._sleep = sleep
        self._answered = False
        self._channel: grpc.Channel = (
            lib.secure_channel(endpoint.authority, lib.ssl_channel_credentials(), channel_options())
            if endpoint.tls
            else lib.insecure_channel(endpoint.authority, channel_options())
        )

    def call(self, method: str, request: Message, response: type[R], *, timeout_s: float = 30.0) -> R:
        """One answer. Raises ConnectFailed, RpcFailed, Denied."""
        message, repeatable = identified(request)
        stub = self._channel.unary_unary(
            f"/{PACKAGE}.{method}",
            request_serializer=lambda value: value.SerializeToString(),
            response_deserializer=response.FromString,
        )
        metadata = (*self._metadata, *self._credentials.now(change=repeatable))
        repeater = Repeater(self._clock, method, answered=self._answered, note=self._note)
        while True:
            try:
                answer: R = stub(message, timeout=deadline(timeout_s), metadata=metadata)
            except self._error as raw:
                error = self._translate(raw, timeout_s)
                delay = repeater.delay_s(error) if repeatable else None
                if delay is None:
                    raise repeater.last(error) from None
                self._sleep(delay)
            else:
                self._answered = True
                return answer

    def stream(self, method: str, request: Message, response: type[R]) -> Iterator[R]:
        """Answers as they come; closing the iterator ends the call. Raises ConnectFailed, RpcFailed, Denied."""
        stub = self._channel.unary_stream(
            f"/{PACKAGE}.{method}",
            request_serializer=lambda value: value.SerializeToString(),
            response_deserializer=response.FromString,
        )
        call = stub(request, metadata=(*self._metadata, *self._credentials.now(change=False)))
        try:
            for answer in call:
                self._answered = True
                yield answer
        except self._error as raw:
            raise self._translate(raw, None) from None
        finally:
            call.cancel()  # type: ignore[no-untyped-call]

    def _translate(self, raw: Any, timeout_s: float | None) -> IrisError:
        error = translate(raw, self._endpoint, timeout_s)
        if not isinstance(error, ConnectFailed):
            self._answered = True
        return error

    def close(self) -> None:
        """Ends what is in flight. A second time is no error."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
