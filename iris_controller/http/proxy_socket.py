"""Websockets through the proxy: the workload is asked first, and what either side says goes to the other.

Must never accept a caller before its workload has accepted the controller.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.typing import Subprotocol

from iris_controller.http.proxy import (
    CONNECT_S,
    PARTS_PER_TURN,
    BadGateway,
    GatewayTimeout,
    HttpProxy,
    Shares,
    raw_path,
)
from iris_controller.http.proxy_frames import Workload
from iris_controller.http.proxy_headers import upward

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import Receive, Scope, Send

    from iris_controller.http.proxy import Page
    from iris_controller.http.proxy_target import Target, Targets

MAX_MESSAGE: Final = 16 << 20
GOING_AWAY: Final = 1001
NO_STATUS: Final = 1005
ABNORMAL: Final = 1006


class Proxy:
    """All below `/proxy/`, by what the caller speaks."""

    def __init__(self, targets: Targets, own: Mapping[str, Page]) -> None:
        self._http = HttpProxy(targets, own)
        self._socket = SocketProxy(targets)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._http if scope["type"] == "http" else self._socket)(scope, receive, send)

    async def close(self) -> None:
        await self._http.close()


class SocketProxy:
    """Relays one websocket per call."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets
        self._shares = Shares()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises RpcError as long as the caller is not accepted."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        # A socket may carry anything, so it counts as a change.
        target = self._targets.find(raw_path(scope), "WEBSOCKET", headers, scope["iris.peer"])
        with self._shares.one(target):
            await self._pass(scope, receive, send, target, headers)

    async def _pass(self, scope: Scope, receive: Receive, send: Send, target: Target, headers: dict[str, str]) -> None:
        workload = await self._dial(scope, target, headers)
        try:
            await receive()
            await send({"type": "websocket.accept", "subprotocol": workload.subprotocol})
            await _relay(workload, receive, send)
        finally:
            with suppress(Exception):
                await workload.close()

    @staticmethod
    async def _dial(scope: Scope, target: Target, headers: dict[str, str]) -> ClientConnection:
        host = f"[{target.host}]" if ":" in target.host else target.host
        path = target.path.decode("ascii", "replace")
        query = scope["query_string"].decode("ascii", "replace")
        uri = f"{'wss' if target.secure else 'ws'}://{host}:{target.port}{path}{'?' + query if query else ''}"
        given = upward(scope["headers"], target, scope["iris.peer"], headers.get("host", ""))
        extra = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in given
            if name != b"host" and not name.startswith(b"sec-websocket-")
        ]
        try:
            return await _Dial(
                uri,
                subprotocols=[Subprotocol(name) for name in scope["subprotocols"]] or None,
                additional_headers=extra,
                compression=None,
                open_timeout=CONNECT_S,
                ping_interval=None,
                max_size=MAX_MESSAGE,
                create_connection=Workload,
                user_agent_header=None,
                proxy=None,
            )
        except TimeoutError as error:
            raise GatewayTimeout(
                f"endpoint {target.name} did not take the websocket within {CONNECT_S:g} s", target.name
            ) from error
        except (OSError, InvalidHandshake, InvalidURI) as error:
            raise BadGateway(f"endpoint {target.name} takes no websocket there", target.name) from error


class _Dial(connect):
    """The library goes where an answer sends it, which would be anywhere the controller can reach."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


async def _relay(workload: ClientConnection, receive: Receive, send: Send) -> None:
    up = asyncio.create_task(_upward(workload, receive), name="proxy: to the workload")
    down = asyncio.create_task(_downward(workload, send), name="proxy: from the workload")
    try:
        await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (up, down):
            task.cancel()
        await asyncio.wait({up, down})
    for task in (up, down):
        if not task.cancelled() and task.exception() is not None:
            raise task.exception()  # type: ignore[misc]


async def _upward(workload: ClientConnection, receive: Receive) -> None:
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            code = message.get("code") or GOING_AWAY
            with suppress(ConnectionClosed):
                await workload.close(code if code not in (NO_STATUS, ABNORMAL) else GOING_AWAY)
            return
        text = message.get("text")
        with suppress(ConnectionClosed):
            await workload.send(text if text is not None else message["bytes"])


async def _downward(workload: ClientConnection, send: Send) -> None:
    try:
        for number in count(1):
            said = await workload.recv()
            kind = "text" if isinstance(said, str) else "bytes"
            try:
                await send({"type": "websocket.send", kind: said})
            except OSError:
                # The caller left.
                return
            if not number % PARTS_PER_TURN:
                await asyncio.sleep(0)
    except ConnectionClosed as closed:
        received = closed.rcvd
        code = received.code if received is not None and received.code != NO_STATUS else 1000 if received else 1011
        with suppress(Exception):
            await send({"type": "websocket.close", "code": code, "reason": received.reason if received else ""})
