"""The proxy: what tasks serve, reached through the controller's one port (control-plane §5).

Bodies pass as they come, both ways, with the pace of the slower side; an endless answer ends when its caller leaves. Nothing is
followed, retried or kept. A workload is nobody's friend: whatever it sends, others keep their turn and their share of the connections. Must never
reach anything that is not registered, never wait without a limit for a connection or for an answer to begin, and never outlive its caller.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import httpcore
from starlette.responses import Response

from iris_controller.http.proxy_dial import Dialler, Head, awaited
from iris_controller.http.proxy_headers import downward, upward
from iris_controller.rpc.errors import RpcError, unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

    from starlette.types import Receive, Scope, Send

    from iris_controller.http.proxy_target import Target, Targets

    Page = Callable[[bytes], Awaitable[tuple[int, bytes]]]
    """Status and text of the page at a path."""

log = logging.getLogger("iris.proxy")

CONNECT_S: Final = 5.0
POOL_S: Final = 10.0
"""How long a request waits for one of the connections."""
WRITE_S: Final = 120.0
"""How long a workload may take none of a body; meanwhile nobody sees whether the caller is still there."""
ANSWER_S: Final = 300.0
"""How long a workload may take from the end of a request to the whole head of its answer; the answer itself may go on for ever."""
KEPT_S: Final = 2.0
"""Shorter than servers keep a quiet connection (5 s with most), so that none is closed while a request is on its way."""
CONNECTIONS: Final = 512
CONNECTIONS_PER_USER: Final = 256
"""Requests under way to the endpoints of one user: the rest is for the others."""
PARTS_PER_TURN: Final = 16
_TIMEOUTS: Final = {"connect": CONNECT_S, "pool": POOL_S, "read": None, "write": WRITE_S}


class HttpProxy:
    """Relays requests; `close` ends what is under way. `own` answers for endpoints of ours that speak no HTTP, by name."""

    def __init__(self, targets: Targets, own: Mapping[str, Page]) -> None:
        self._targets = targets
        self._own = own
        self._pool: httpcore.AsyncConnectionPool | None = None
        self._shares = Shares()

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises RpcError as long as nothing was answered."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        target = self._targets.find(raw_path(scope), scope["method"], headers, scope["iris.peer"])
        page = self._own.get(target.name)
        if page is not None:
            status, text = await page(target.path)
            await Response(text, status, media_type="text/plain")(scope, receive, send)
            return
        with self._shares.one(target):
            await self._pass(scope, receive, send, target, headers)

    async def _pass(self, scope: Scope, receive: Receive, send: Send, target: Target, headers: dict[str, str]) -> None:
        if self._pool is None:
            self._pool = httpcore.AsyncConnectionPool(
                max_connections=CONNECTIONS, keepalive_expiry=KEPT_S, network_backend=Dialler()
            )
        sent = upward(scope["headers"], target, scope["iris.peer"], headers.get("host", ""))
        body = _Body(receive)
        chunked = "transfer-encoding" in headers
        if chunked:
            sent.append((b"transfer-encoding", b"chunked"))
        has_body = chunked or headers.get("content-length", "0") != "0"
        if not has_body:
            body.watch()
        request = httpcore.Request(
            scope["method"],
            httpcore.URL(
                scheme="https" if target.secure else "http",
                host=target.host,
                port=target.port,
                target=_with_query(target.path, scope),
            ),
            headers=sent,
            content=body.parts() if has_body else None,
            extensions={"timeout": _TIMEOUTS},
        )
        relaying = asyncio.ensure_future(self._relay(self._pool, request, target, body, send))
        gone = asyncio.ensure_future(body.caller_left.wait())
        try:
            await asyncio.wait({relaying, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            body.close()
            if not relaying.done():
                relaying.cancel()
                await asyncio.wait({relaying})
        if not relaying.cancelled():
            relaying.result()

    async def _relay(
        self, pool: httpcore.AsyncConnectionPool, request: httpcore.Request, target: Target, body: _Body, send: Send
    ) -> None:
        head = Head(ANSWER_S)
        awaited.set(head)
        try:
            response = await pool.handle_async_request(request)
        except Exception as error:
            raise failed(target, error) from error
        head.whole = True
        try:
            if not 200 <= response.status <= 599:
                raise failed(target, httpcore.RemoteProtocolError(f"status {response.status}"))
            body.watch()
            await send(
                {
                    "type": "http.response.start",
                    "status": response.status,
                    "headers": downward(response.headers, target),
                }
            )
            try:
                number = 0
                async for part in response.aiter_stream():
                    if part:
                        await send({"type": "http.response.body", "body": part, "more_body": True})
                    number += 1
                    if not number % PARTS_PER_TURN:
                        # Parts that are here already come without a pause, and may be of one byte each.
                        await asyncio.sleep(0)
            except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
                # Half an answer is out; the broken connection says so.
                raise failed(target, error) from error
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await response.aclose()


class _Body:
    """A request's body as it comes, and the news that its caller has left."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._watching: asyncio.Task[None] | None = None
        self.caller_left = asyncio.Event()

    async def parts(self) -> AsyncIterator[bytes]:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.caller_left.set()
                return
            yield message.get("body", b"")
            if not message.get("more_body", False):
                # The answer may take for ever.
                self.watch()
                return

    def watch(self) -> None:
        """From here on nobody reads the body any more. May be called again."""
        if self._watching is None:
            self._watching = asyncio.create_task(self._until_gone(), name="proxy: watch for a disconnect")

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.caller_left.set()

    def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()


def failed(target: Target, error: Exception) -> RpcError:
    """What the caller is told of a workload that cannot be reached."""
    if isinstance(error, httpcore.PoolTimeout):
        return busy(target.name)
    late = ""
    if isinstance(error, httpcore.ConnectTimeout):
        late = f"did not take the connection within {CONNECT_S:g} s"
    elif isinstance(error, httpcore.ReadTimeout):
        late = f"did not begin to answer within {ANSWER_S:g} s"
    if late:
        log.info("endpoint %s %s", target.name, late)
        return GatewayTimeout(f"endpoint {target.name} {late}", target.name)
    what = "could not be reached"
    if isinstance(error, httpcore.ProtocolError):
        what = "sent what is no answer in HTTP, or none"
    elif isinstance(error, httpcore.WriteTimeout):
        what = f"took nothing of the request for {WRITE_S:.0f} s"
    elif isinstance(error, httpcore.ReadError | httpcore.WriteError):
        what = "broke the connection off"
    log.info("endpoint %s %s: %s", target.name, what, type(error).__name__)
    return BadGateway(f"endpoint {target.name} {what}", target.name)


def busy(subject: str) -> RpcError:
    return unavailable(f"too many requests are under way to {subject}", code="proxy_busy", subject=subject)


class Shares:
    """Counts what is under way to the endpoints of each user, so that those of one cannot take every connection."""

    def __init__(self) -> None:
        self._under_way: Counter[str] = Counter()

    @contextmanager
    def one(self, target: Target) -> Iterator[None]:
        """Raises UNAVAILABLE: the user has their share."""
        user = target.name.split("/", 2)[1]
        if self._under_way[user] >= CONNECTIONS_PER_USER:
            raise busy(f"endpoints of {user}")
        self._under_way[user] += 1
        try:
            yield
        finally:
            self._under_way[user] -= 1
            if not self._under_way[user]:
                del self._under_way[user]


class BadGateway(RpcError):
    """The workload's fault: HTTP 502."""

    def __init__(self, message: str, subject: str) -> None:
        super().__init__("UNAVAILABLE", message, code="bad_gateway", subject=subject, retry_after_ms=1_000)

    @property
    def http_status(self) -> int:
        return 502


class GatewayTimeout(RpcError):
    """The workload is there and does nothing: HTTP 504."""

    def __init__(self, message: str, subject: str) -> None:
        super().__init__("DEADLINE_EXCEEDED", message, code="gateway_timeout", subject=subject)


def raw_path(scope: Scope) -> bytes:
    """The path as the caller wrote it."""
    found: bytes = scope.get("raw_path") or scope["path"].encode()
    return found.partition(b"?")[0]


def _with_query(path: bytes, scope: Scope) -> bytes:
    query: bytes = scope["query_string"]
    return path + b"?" + query if query else path
