"""The synchronous connection over HTTP/1.1: unary calls as JSON posts, streams as chunked NDJSON.

h11 speaks the protocol and this room moves the bytes: http.client costs twice its import time and httpx ten times,
which a command that lists jobs would pay each time. Proxy variables of the shell are ignored. Connections are kept
between calls and one that turns out dead before anything was answered is replaced once. Must never follow a redirect,
and never repeat a call that carries no request id.
"""

from __future__ import annotations

import json
import math
import socket
import struct
import time
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Self

from iris_core.client.calls import (
    KEPT_IN_MEMORY,
    MAX_MESSAGE_BYTES,
    Credentials,
    NotReached,
    Repeater,
    Timeout,
    failure,
    identified,
)
from iris_core.contracts import ConnectFailed, IrisError, R
from iris_core.wire.services import PACKAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from google.protobuf.message import Message

    from iris_core.client.endpoint import Endpoint

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
CONNECT_TIMEOUT_S: Final = 10.0
STREAM_SILENCE_S: Final = 90.0
"""A stream that says nothing for so long is broken: every stream of the controller has heartbeats."""

STATUS_OF_HTTP: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    412: "FAILED_PRECONDITION",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
"""What an HTTP status means when the body does not name the gRPC code."""


class HttpClient:
    """A controller over HTTP/1.1 (`contracts.Client`). Connects with the first call; safe for several threads."""

    def __init__(
        self,
        endpoint: Endpoint,
        credentials: Credentials = Credentials(),  # noqa: B008 (frozen)
        *,
        note: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url = endpoint.url
        self._endpoint = endpoint
        self._credentials = credentials
        self._headers = [
            ("host", f"{endpoint.bracketed}:{endpoint.port}"),
            ("content-type", JSON),
            *credentials.headers(),
        ]
        self._note = note
        self._clock = clock
        self._sleep = sleep
        self._answered = False
        self._idle: list[_Wire] = []
        self._lock = Lock()
        self._closed = False

    def call(self, method: str, request: Message, response: type[R], *, timeout_s: float = 30.0) -> R:
        """One answer. Raises ConnectFailed, RpcFailed, Denied."""
        message, repeatable = identified(request)
        body = _to_json(message)
        besides = self._credentials.now(change=repeatable)
        repeater = Repeater(self._clock, method, answered=self._answered, note=self._note)
        while True:
            try:
                status, answer = self._exchange(method, body, timeout_s, besides)
                if status == 200:
                    return _from_json(answer, response, self.url)
                raise error_from_body(status, answer, self.url)
            except IrisError as error:
                delay = repeater.delay_s(error) if repeatable else None
                if delay is None:
                    raise repeater.last(error) from None
                self._sleep(delay)

    def stream(self, method: str, request: Message, response: type[R]) -> Iterator[R]:
        """Answers as they come; closing the iterator ends the call. Raises ConnectFailed, RpcFailed, Denied."""
        wire = _Wire(self._endpoint, self._clock() + CONNECT_TIMEOUT_S, self._clock)
        try:
            wire.send(
                f"/{PACKAGE}.{method}",
                [*self._headers, *self._credentials.now(change=False), ("accept", NDJSON)],
                _to_json(request),
            )
            wire.deadline = self._clock() + STREAM_SILENCE_S
            status = wire.status()
            self._answered = True
            if status != 200:
                raise error_from_body(status, wire.body(), self.url)
            for line in _lines(self._parts(wire)):
                fields = json.loads(line)
                if isinstance(fields, dict) and isinstance(fields.get("error"), dict):
                    raise error_from_fields("UNKNOWN", fields["error"])
                yield _from_json(line, response, self.url)
        except ValueError as error:
            raise ConnectFailed(f"{self.url} does not speak NDJSON: {error}") from None
        finally:
            wire.close()

    def _parts(self, wire: _Wire) -> Iterator[bytes]:
        for part in wire.parts():
            wire.deadline = self._clock() + STREAM_SILENCE_S
            yield part

    def _exchange(
        self, method: str, body: bytes, timeout_s: float, besides: list[tuple[str, str]]
    ) -> tuple[int, bytes]:
        deadline = self._clock() + timeout_s
        with self._lock:
            # One that went stale does not say whether it did so before or after the request.
            wire = self._idle.pop() if self._idle and method not in KEPT_IN_MEMORY else None
        if wire is not None:
            wire.deadline = deadline
            try:
                return self._use(wire, method, body, besides)
            except _Stale:
                # The server closed it while it was idle: nothing of this call was answered.
                pass
        try:
            wire = _Wire(self._endpoint, min(deadline, self._clock() + CONNECT_TIMEOUT_S), self._clock)
            wire.deadline = deadline
            return self._use(wire, method, body, besides)
        except _Stale as error:
            raise ConnectFailed(f"{self.url} closed the connection without an answer") from error

    def _use(self, wire: _Wire, method: str, body: bytes, besides: list[tuple[str, str]]) -> tuple[int, bytes]:
        keep = answered = False
        try:
            wire.send(f"/{PACKAGE}.{method}", [*self._headers, *besides, ("accept", JSON)], body)
            status = wire.status()
            self._answered = True
            answer = wire.body()
            answered, keep = True, wire.reset()
            return status, answer
        finally:
            with self._lock:
                if keep and not self._closed:
                    self._idle.append(wire)
                else:
                    wire.close(abandoned=not answered)

    def close(self) -> None:
        """Closes idle connections. A second time is no error."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for wire in idle:
            wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Stale(Exception):
    """The connection ended before a byte of the answer."""


class _Wire:
    """One HTTP/1.1 connection. `deadline` (monotonic) bounds every wait on it."""

    def __init__(self, endpoint: Endpoint, deadline: float, clock: Callable[[], float]) -> None:
        import h11

        self._h11 = h11
        self._endpoint = endpoint
        self._clock = clock
        self._began = clock()
        self.deadline = deadline
        self._answering = False
        self._socket = self._dial()
        self._connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=64 * 1024)

    def _dial(self) -> socket.socket:
        url = self._endpoint.url
        try:
            raw = socket.create_connection((self._endpoint.dial, self._endpoint.port), self._left_s())
        except socket.gaierror:
            raise NotReached(f"cannot connect to {url}: the host name is unknown") from None
        except TimeoutError:
            raise NotReached(f"cannot connect to {url}: no answer") from None
        except OSError as error:
            raise NotReached(f"cannot connect to {url}: {(error.strerror or str(error)).lower()}") from None
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self._endpoint.tls:
            return raw
        import ssl

        try:
            return ssl.create_default_context().wrap_socket(raw, server_hostname=self._endpoint.host)
        except (ssl.SSLError, OSError) as error:
            raw.close()
            reason = getattr(error, "reason", None) or error
            raise NotReached(f"cannot connect to {url}: the TLS handshake failed ({reason})") from None

    def _left_s(self) -> float | None:
        left = self.deadline - self._clock()
        if left <= 0:
            raise self._too_late()
        return None if left == math.inf else left

    def _too_late(self) -> Timeout:
        # Negative when this process itself stood still meanwhile (Ctrl-Z, a laptop asleep).
        allowed = self.deadline - self._began
        when = f"within {allowed:.0f} s" if allowed > 0 else "before this process was stopped and went on"
        return Timeout(f"{self._endpoint.url} did not answer {when}")

    def send(self, path: str, headers: list[tuple[str, str]], body: bytes) -> None:
        """Sends one POST. Raises _Stale when the peer is gone."""
        self._began = self._clock()
        self._answering = False
        h11 = self._h11
        head = h11.Request(method="POST", target=path, headers=[*headers, ("content-length", str(len(body)))])
        data = b"".join(
            self._connection.send(event) or b"" for event in (head, h11.Data(data=body), h11.EndOfMessage())
        )
        self._socket.settimeout(self._left_s())
        try:
            self._socket.sendall(data)
        except TimeoutError:
            raise self._too_late() from None
        except OSError as error:
            raise _Stale(str(error)) from error

    def _event(self) -> Any:
        h11 = self._h11
        while True:
            try:
                event = self._connection.next_event()
            except h11.RemoteProtocolError as error:
                if not self._answering:
                    raise _Stale(str(error)) from error
                raise ConnectFailed(f"the connection to {self._endpoint.url} broke: {error}") from None
            if event is not h11.NEED_DATA:
                return event
            self._socket.settimeout(self._left_s())
            try:
                data = self._socket.recv(256 * 1024)
            except TimeoutError:
                raise self._too_late() from None
            except OSError as error:
                if not self._answering:
                    raise _Stale(str(error)) from error
                raise ConnectFailed(f"the connection to {self._endpoint.url} broke: {error.strerror}") from None
            if data and not self._answering:
                if not b"HTTP/1.1 ".startswith(data[:9]):
                    raise ConnectFailed(
                        f"what listens at {self._endpoint.url} does not speak HTTP/1.1",
                        hint="check host, port and scheme",
                    )
                self._answering = True
            self._connection.receive_data(data)

    def status(self) -> int:
        """The status of the answer."""
        while True:
            event = self._event()
            if isinstance(event, self._h11.Response):
                return int(event.status_code)
            if isinstance(event, self._h11.ConnectionClosed):
                raise _Stale("closed")

    def parts(self) -> Iterator[bytes]:
        """The answer's body as it arrives."""
        while True:
            event = self._event()
            if isinstance(event, self._h11.Data):
                yield bytes(event.data)
            elif isinstance(event, self._h11.EndOfMessage):
                return
            else:
                raise ConnectFailed(f"the connection to {self._endpoint.url} broke")

    def body(self) -> bytes:
        """The whole body. Raises ConnectFailed when it is larger than any message may be."""
        collected, size = [], 0
        for part in self.parts():
            size += len(part)
            # JSON is wordier than the message it carries.
            if size > 2 * MAX_MESSAGE_BYTES:
                raise ConnectFailed(f"the answer of {self._endpoint.url} is larger than {2 * MAX_MESSAGE_BYTES} bytes")
            collected.append(part)
        return b"".join(collected)

    def reset(self) -> bool:
        """Makes it ready for another call; False when either side wants it closed."""
        if self._connection.our_state is self._h11.DONE and self._connection.their_state is self._h11.DONE:
            self._connection.start_next_cycle()
            return True
        return False

    def close(self, *, abandoned: bool = False) -> None:
        """Hangs up; so that the server hears at once that nobody waits for an answer any more, where one is `abandoned`."""
        if abandoned:
            # An end alone could be that of one who has said all and still listens.
            with suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()


def _lines(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Whole lines of a stream that is cut anywhere; a last line without its end is a broken stream and is dropped."""
    rest: list[bytes] = []
    for part in parts:
        pieces = part.split(b"\n")
        if len(pieces) > 1:
            yield b"".join([*rest, pieces[0]])
            yield from pieces[1:-1]
            rest = []
        rest.append(pieces[-1])


def _to_json(message: Message) -> bytes:
    from google.protobuf import json_format

    return json_format.MessageToJson(message, indent=None, ensure_ascii=False).encode()


def _from_json(body: bytes, response: type[R], url: str) -> R:
    from google.protobuf import json_format

    try:
        return json_format.Parse(body, response(), ignore_unknown_fields=True)
    except (json_format.ParseError, UnicodeDecodeError) as error:
        raise ConnectFailed(f"what {url} answered is not the JSON of iris.v1: {str(error)[:200]}") from None


def error_from_body(status: int, body: bytes, url: str) -> IrisError:
    """The exception for an HTTP answer that is not 200: its JSON body, or what a proxy in between has to say."""
    name = STATUS_OF_HTTP.get(status, "UNKNOWN")
    try:
        fields = json.loads(body)
    except ValueError:
        fields = None
    if isinstance(fields, dict):
        inner = fields.get("error", fields)
        if isinstance(inner, dict):
            return error_from_fields(name, inner)
    if status in (502, 503, 504):
        return ConnectFailed(f"{url} answered HTTP {status}: nothing behind it answers")
    if status in (301, 302, 303, 307, 308):
        return ConnectFailed(f"{url} answered HTTP {status}: it wants a login that this command cannot give")
    return failure(name, f"{url} answered HTTP {status} without saying why", None)


def error_from_fields(status: str, fields: dict[str, Any]) -> IrisError:
    """The exception for the error object of the JSON bridge: `iris.v1.ErrorDetail` with `status` and `message` beside
    it.
    """
    from google.protobuf import json_format

    from iris_core.wire.gen.iris.v1.common_pb2 import ErrorDetail

    known = {
        key: value
        for key, value in fields.items()
        if key in ("code", "subject", "field", "position", "hint", "retryAfterMs", "retry_after_ms")
    }
    try:
        detail: ErrorDetail | None = json_format.ParseDict(known, ErrorDetail()) if known else None
    except json_format.ParseError:
        detail = None
    named = fields.get("status")
    return failure(named if isinstance(named, str) and named else status, str(fields.get("message") or ""), detail)
