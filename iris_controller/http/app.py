"""The HTTP side of the public port: health, metrics, and every RPC as JSON (DESIGN §4, §11).

A browser on an operator's machine reaches this port too, whatever page it shows, so each request proves that it is no page's doing
before anything else happens: its Host is ours, its Origin is its own, and a call carries a content type that no form can send. Must
never answer with CORS headers, and never take a credential from a query string.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.routing import Router as Routing

from iris_controller.http.origin import check_origin, check_page
from iris_controller.rpc.errors import RpcError, as_rpc_error, clean, exhausted, invalid, unauthenticated
from iris_controller.rpc.json_rpc import JsonAnswer, JsonStream, json_error, serve_json
from iris_controller.rpc.roles import MAX_MESSAGE_BYTES, may_read
from iris_core.wire.services import PACKAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from iris_controller.http.metrics import Metrics
    from iris_controller.http.port import Link
    from iris_controller.rpc.auth import Authenticator, Identity
    from iris_controller.rpc.dispatch import Router

BODY_S = 60.0
"""How long a caller may take to send a body, in seconds."""
AT_ONCE_S = 0.05
"""From then on it is watched whether who waits for an answer is still there."""

JSON = "application/json"
NDJSON = "application/x-ndjson"
_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


def create_app(
    router: Router,
    authenticator: Authenticator,
    link_of: Callable[[str], Link | None],
    *,
    problems: Callable[[], Sequence[str]],
    metrics: Metrics,
    allowed_hosts: Iterable[str] = (),
    proxy: ASGIApp | None = None,
    probation: Callable[[], bool] = lambda: False,
) -> ASGIApp:
    """The application.

    link_of        `PublicPort.link_of`: the public connection behind an inner one
    problems       what keeps the controller from being ready, one line each; asked at every `/readyz`
    allowed_hosts  names, besides those of loopback, under which the controller is known; without ports
    proxy          answers below `/proxy/`; None = there is none
    probation      whether the release is on probation, which `/health` says
    """
    web = _Web(router, authenticator, problems, metrics, probation)
    found: list[BaseRoute] = [
        Route("/health", web.health),
        Route("/readyz", web.readyz),
        Route("/metrics", web.metrics),
        Route(f"/{PACKAGE}.{{method:path}}", web.rpc),
    ]
    if proxy is not None:
        found.append(Mount("/proxy", proxy))
    routes = Routing(found, redirect_slashes=False)
    return _Guard(routes, link_of, frozenset(name.lower().removesuffix(".") for name in allowed_hosts))


class _Guard:
    """In front of every route: no foreign page gets further, and no exception gets out."""

    def __init__(self, app: ASGIApp, link_of: Callable[[str], Link | None], allowed_hosts: frozenset[str]) -> None:
        self._app = app
        self._link_of = link_of
        self._allowed_hosts = allowed_hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            link = self._link_of(_inner_peer(scope))
            if link is None:
                raise unauthenticated("the caller's address is unknown", hint="use the controller's public port")
            scope["iris.peer"] = link.peer
            # Tells the routing to raise what it refuses instead of answering in plain text.
            scope["app"] = self
            headers = _headers(scope)
            check_origin(headers, link.local, self._allowed_hosts)
            if not scope["path"].startswith("/proxy/"):
                check_page(headers)
            await self._app(scope, receive, watched)
        except HTTPException as error:
            await _refuse(_not_served(error, scope), scope, receive, send)
        except Exception as error:
            told = as_rpc_error(error, clean(scope["path"], 100))
            if started:
                # A broken connection says that the answer is not whole.
                raise told from None
            await _refuse(json_error(told), scope, receive, send)


class _Web:
    def __init__(
        self,
        router: Router,
        authenticator: Authenticator,
        problems: Callable[[], Sequence[str]],
        metrics: Metrics,
        probation: Callable[[], bool],
    ) -> None:
        self._authenticator = authenticator
        self._problems = problems
        self._metrics = metrics
        self._probation = probation
        self.rpc = _Rpc(router)

    async def health(self, request: Request) -> Response:
        said = b"ok, on probation\n" if self._probation() else b"ok\n"
        return Response(said, media_type="text/plain", headers=_HEADERS)

    async def readyz(self, request: Request) -> Response:
        found = list(self._problems())
        status = 503 if found else 200
        if found and not self._reader(request, "/readyz"):
            found = [f"{len(found)} found; authenticate to see them"]
        body = json.dumps({"ready": status == 200, "problems": found}).encode()
        return Response(body, status, media_type=JSON, headers=_HEADERS)

    async def metrics(self, request: Request) -> Response:
        identity = self._identity(request)
        if not may_read(identity, "/metrics"):
            raise RpcError("PERMISSION_DENIED", f"{identity.role} may not read /metrics", code="role")
        return Response(self._metrics.text(), media_type=self._metrics.content_type, headers=_HEADERS)

    def _identity(self, request: Request) -> Identity:
        return self._authenticator.authenticate(_headers(request.scope), request.scope["iris.peer"])

    def _reader(self, request: Request, route: str) -> bool:
        try:
            return may_read(self._identity(request), route)
        except RpcError:
            return False


class _Rpc:
    """`POST /iris.v1.<Service>/<Method>`."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = _headers(scope)
        answer: JsonAnswer | JsonStream | None = _refused(scope, headers)
        if answer is None:
            answer = await self._served(scope, headers, receive)
            if answer is None:
                return
        if isinstance(answer, JsonStream):
            await _stream(answer, receive, send)
        else:
            await _response(answer)(scope, receive, send)

    async def _served(self, scope: Scope, headers: dict[str, str], receive: Receive) -> JsonAnswer | JsonStream | None:
        """The answer; None when the caller left before it was there."""
        whole = asyncio.Event()

        async def body(limit: int) -> bytes:
            found = await _body(headers, receive, min(limit, MAX_MESSAGE_BYTES))
            whole.set()
            return found

        async def gone() -> None:
            # Until the body is there, it is `_body` that reads.
            await whole.wait()
            await _until_gone(receive)

        serving = asyncio.ensure_future(serve_json(self._router, scope["path"], body, headers, scope["iris.peer"]))
        leaving: asyncio.Task[None] | None = None
        try:
            # Nearly all are answered by then, and none of these pays for the watching.
            await asyncio.wait({serving}, timeout=AT_ONCE_S)
            if not serving.done():
                leaving = asyncio.create_task(gone(), name="watch for a disconnect")
                await asyncio.wait({serving, leaving}, return_when=asyncio.FIRST_COMPLETED)
            return serving.result() if serving.done() else None
        finally:
            if leaving is not None:
                leaving.cancel()
                await asyncio.wait({leaving})
            if not serving.done():
                serving.cancel()
                await asyncio.wait({serving})


def _refused(scope: Scope, headers: dict[str, str]) -> JsonAnswer | None:
    """Why this is no RPC, before anybody asks who sends it."""
    if scope["method"] != "POST":
        return _not_rpc(405, "an RPC is a POST with a JSON body", "method")
    if scope["query_string"]:
        return _not_rpc(
            400, "an RPC takes no query string; a token travels in the authorization header", "query_string"
        )
    kind, _, rest = headers.get("content-type", "").partition(";")
    charset = rest.replace(" ", "").lower()
    if kind.strip().lower() != JSON or charset not in {"", "charset=utf-8", 'charset="utf-8"'}:
        return _not_rpc(415, f"an RPC needs content-type: {JSON}", "content_type")
    if headers.get("content-encoding", "identity").lower() != "identity":
        return _not_rpc(415, "a compressed body is not taken", "content_encoding")
    return None


def _not_rpc(status: int, message: str, code: str) -> JsonAnswer:
    return JsonAnswer(status, json_error(invalid("", message, code=code)).body)


async def _body(headers: dict[str, str], receive: Receive, limit: int) -> bytes:
    """The request's body. Raises RESOURCE_EXHAUSTED over `limit` bytes, DEADLINE_EXCEEDED, CANCELLED if the caller left."""
    announced = headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RpcError("CANCELLED", "the caller left before the body was there", code="disconnected")
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > limit:
                    raise _too_large(limit)
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError as error:
        raise RpcError("DEADLINE_EXCEEDED", f"the body was not there after {BODY_S:.0f} s", code="deadline") from error


def _too_large(limit: int) -> RpcError:
    return exhausted(f"the body has more than the {limit} bytes that this method takes", code="request_too_large")


async def _stream(stream: JsonStream, receive: Receive, send: Send) -> None:
    """Sends line by line; ends the handler as soon as the caller is gone, even while it has nothing to say."""
    gone = asyncio.create_task(_until_gone(receive), name="watch for a disconnect")
    headers = [(b"content-type", NDJSON.encode()), *((k.encode(), v.encode()) for k, v in _HEADERS.items())]
    try:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async with aclosing(stream.lines()) as lines:
            while True:
                step = asyncio.ensure_future(anext(lines, b""))
                try:
                    await asyncio.wait({step, gone}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not step.done():
                        step.cancel()
                        await asyncio.wait({step})
                if step.cancelled() or not (line := step.result()):
                    break
                await send({"type": "http.response.body", "body": line, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    finally:
        gone.cancel()
        await stream.aclose()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _refuse(answer: JsonAnswer, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await _response(answer)(scope, receive, send)
    elif "websocket.http.response" in scope.get("extensions", {}):
        headers = [(b"content-type", JSON.encode()), *((k.encode(), v.encode()) for k, v in _HEADERS.items())]
        await send({"type": "websocket.http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": answer.body})
    else:
        await send({"type": "websocket.close", "code": 1008})


def _response(answer: JsonAnswer) -> Response:
    headers = dict(_HEADERS)
    if answer.retry_after_ms > 0:
        headers["retry-after"] = str(-(-answer.retry_after_ms // 1000))
    if answer.status == 401:
        headers["www-authenticate"] = "Bearer"
    return Response(answer.body, answer.status, media_type=JSON, headers=headers)


def _not_served(error: HTTPException, scope: Scope) -> JsonAnswer:
    """What the routing refuses: an unknown path, a method that a path does not take."""
    path = clean(scope["path"], 200)
    if error.status_code == 404:
        return json_error(RpcError("NOT_FOUND", f"there is nothing at {path}", code="not_found", subject=path))
    return _not_rpc(error.status_code, f"{path} takes no {clean(scope['method'], 20)}", "method")


def _inner_peer(scope: Scope) -> str:
    client = scope.get("client")
    return f"http:{client[0]}:{client[1]}" if client else "http:"


def _headers(scope: Scope) -> dict[str, str]:
    """Headers by lower-case name; several of one name joined, as the RFC has it."""
    headers: dict[str, str] = {}
    for name_bytes, value_bytes in scope["headers"]:
        name, value = name_bytes.decode("latin-1").lower(), value_bytes.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers
