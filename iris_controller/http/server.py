"""uvicorn on an inner loopback port, inside somebody else's event loop.

It handles no signals, writes no log of its own and keeps no clock ticking. Two things are added to its HTTP/1.1: a caller that has
said all may still read its answer (half-close), and one that dribbles its headers is cut off. Must never listen on anything but
loopback, and never believe a forwarding header about who calls.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from iris_controller.http import splice
from iris_controller.http.proxy_socket import MAX_MESSAGE

if TYPE_CHECKING:
    from starlette.types import ASGIApp

HEADERS_S = 10.0
"""How long a caller may take to send the headers of a request, in seconds."""
KEEP_ALIVE_S = 75
_BACKLOG = 512


class HttpServer:
    """Serves `app` on 127.0.0.1. `port` is valid after `bind`, which comes first: the public port must know it."""

    def __init__(self, app: ASGIApp | None = None) -> None:
        self.app = app
        self.port = 0
        self._socket: socket.socket | None = None
        self._server: uvicorn.Server | None = None

    def bind(self) -> str:
        """Takes a free port and returns it as `127.0.0.1:port`. Raises OSError."""
        # The protocol by name: only then does asyncio's own loop send small pieces at once, and not 40 ms later.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.setblocking(False)
        self._socket.bind(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Begins to serve."""
        assert self._socket is not None and self.app is not None, "bind first, and give it an app"
        config = uvicorn.Config(
            self.app,
            http=_Protocol,
            ws="websockets-sansio",
            ws_max_size=MAX_MESSAGE,
            loop="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            backlog=_BACKLOG,
        )
        config.load()
        self._server = uvicorn.Server(config)
        self._server.lifespan = config.lifespan_class(config)
        await self._server.startup(sockets=[self._socket])

    async def stop(self, grace_s: float = 1.0) -> None:
        """Takes no new connections, waits `grace_s` for answers under way, then cancels them."""
        server = self._server
        if server is None:
            if self._socket is not None:
                self._socket.close()
            return
        self._server = None
        # Annotated as whole seconds, passed on to wait_for as it is.
        server.config.timeout_graceful_shutdown = max(grace_s, 0.01)  # type: ignore[assignment]
        await server.shutdown(sockets=[self._socket] if self._socket else [])
        while server.server_state.tasks:
            await asyncio.wait(set(server.server_state.tasks))
        for connection in list(server.server_state.connections):
            connection.transport.abort()


class _Protocol(H11Protocol):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._slow: asyncio.TimerHandle | None = None
        self._upgraded = False

    def handle_websocket_upgrade(self, event: Any) -> None:
        self._upgraded = True
        super().handle_websocket_upgrade(event)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._idle() and not self._upgraded:
            self._watch_headers()
        else:
            self._stop_watching()

    def eof_received(self) -> bool:  # type: ignore[override]
        if self._idle() or self.cycle.more_body:
            self.transport.close()
        else:
            self.cycle.keep_alive = False
            self._look()
        return True

    def _look(self) -> None:
        # Nothing is read any more, so a reset would show only with the next write, and an answer may take for ever.
        if self.transport.is_closing():
            return
        if splice.given_up(self.transport):
            self.transport.abort()
        else:
            self.loop.call_later(splice.LOOK_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        super().connection_lost(exc)

    def _idle(self) -> bool:
        # Annotated as never None, and None until the first request.
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _watch_headers(self) -> None:
        if self._slow is None and not self._upgraded and not self.transport.is_closing():
            self._slow = self.loop.call_later(HEADERS_S, self.transport.abort)

    def _stop_watching(self) -> None:
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None
