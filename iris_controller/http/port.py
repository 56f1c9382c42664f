"""The one public port: gRPC and HTTP/1.1 on one listener (DESIGN §4).

The first bytes of a connection say what it speaks; from then on bytes go to and fro between it and the inner gRPC or HTTP server,
unread. Both inner servers see a caller on loopback, so this is the only place that knows the real one: it is written down before a
byte is forwarded and struck out when the connection is gone. Must never look into, keep or delay what it forwards.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
from typing import NamedTuple, cast

from iris_controller.http.splice import InnerEnd
from iris_controller.quiet import QuietLog

log = logging.getLogger("iris.port")

FIRST_BYTES_S = 10.0
"""How long a caller may take to say what it speaks."""
MAX_CONNECTIONS = 8192

_LONGEST_METHOD = 16
_DESCRIPTORS_PER_CONNECTION = 3
_DESCRIPTORS_FOR_OTHERS = 256
_REFUSAL_S = 1.0
_BACKLOG = 512

GRPC, HTTP = "grpc", "http"


class Link(NamedTuple):
    """A public connection: who called, and the address that was called, both as `address:port`."""

    peer: str
    local: str


class PublicPort:
    """Listens on `host`:`port` (0 = any free one) and forwards to the inner servers, each given as `host:port`.

    `host` is an address or a name; every address of a name is listened on, with one port number. `::` takes IPv4 too.
    """

    def __init__(
        self,
        host: str,
        port: int,
        grpc_target: str,
        http_target: str,
        *,
        max_connections: int = MAX_CONNECTIONS,
        first_bytes_s: float = FIRST_BYTES_S,
    ) -> None:
        self.host = host.removeprefix("[").removesuffix("]")
        self.port = port
        self.addresses: list[str] = []
        self.first_bytes_s = first_bytes_s
        self.quiet = QuietLog(log)
        self._targets = {GRPC: _target(grpc_target), HTTP: _target(http_target)}
        self.kinds = frozenset(self._targets)
        self._max_connections = _affordable(max_connections)
        self._links: dict[tuple[str, int], Link] = {}
        self._callers: set[_Caller] = set()
        self._servers: list[asyncio.Server] = []
        self._empty = asyncio.Event()
        self._empty.set()

    async def start(self) -> None:
        """Begins to listen; `port` and `addresses` are those in use afterwards.

        Raises OSError whose `strerror` is one clear line: the port is in use, the name is unknown, it is not allowed.
        """
        loop = asyncio.get_running_loop()
        sockets = await _listen(self.host, self.port)
        self.port = sockets[0].getsockname()[1]
        self.addresses = [_shown(sock.getsockname()) for sock in sockets]
        for sock in sockets:
            server = await loop.create_server(lambda: _Caller(self), sock=sock, backlog=_BACKLOG)
            self._servers.append(server)

    @property
    def url(self) -> str:
        """The port as an URL that works from this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(self.host, self.host)
        return f"http://{_joined(host, self.port)}"

    @property
    def connections(self) -> int:
        """Open public connections."""
        return len(self._callers)

    def peer_of(self, inner_peer: str) -> str | None:
        """The real `address:port` of the caller behind an inner connection; None if it did not come through here.

        `inner_peer` is what gRPC's `context.peer()` says (`ipv4:127.0.0.1:4711`), or `http:` and the address that the HTTP server
        saw. The kind matters: two inner connections to different servers may have one source port.
        """
        link = self.link_of(inner_peer)
        return None if link is None else link.peer

    def link_of(self, inner_peer: str) -> Link | None:
        """Like `peer_of`, with the address that was called."""
        kind = HTTP if inner_peer.startswith("http:") else GRPC
        number = inner_peer.rpartition(":")[2]
        return self._links.get((kind, int(number))) if number.isascii() and number.isdigit() else None

    def stop_listening(self) -> None:
        """Takes no new connections; those that are open go on."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    async def close(self, grace_s: float = 0.0) -> None:
        """Stops listening, lets connections end by themselves for `grace_s`, then breaks them."""
        self.stop_listening()
        if grace_s > 0:
            try:
                async with asyncio.timeout(grace_s):
                    await self._empty.wait()
            except TimeoutError:
                log.info("breaking %d connections that are still open", len(self._callers))
        for caller in list(self._callers):
            caller.abort()
        await self._empty.wait()

    # For the connections ----------------------------------------------------------------------------------------

    def arrived(self, caller: _Caller) -> bool:
        """Counts a connection; False if there are too many."""
        if len(self._callers) >= self._max_connections:
            self.quiet.warning("refused a connection: %d are open, the limit", len(self._callers))
            return False
        self._callers.add(caller)
        self._empty.clear()
        return True

    def left(self, caller: _Caller) -> None:
        """The public connection is closed."""
        self._callers.discard(caller)
        if not self._callers:
            self._empty.set()

    async def dial(self, kind: str, link: Link) -> tuple[socket.socket, tuple[str, int]]:
        """A connected inner socket, its link written down under the returned key. Raises OSError."""
        host, port = self._targets[kind]
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # The protocol by name: only then does asyncio's own loop send small pieces at once, and not 40 ms later.
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, (host, port))
            key = (kind, sock.getsockname()[1])
        except BaseException:
            sock.close()
            raise
        self._links[key] = link
        return sock, key

    def forget(self, key: tuple[str, int], link: Link) -> None:
        """Strikes a link out, unless the source port already belongs to another."""
        if self._links.get(key) is link:
            del self._links[key]


class _Caller(asyncio.Protocol):
    """A public connection until it is spliced, and its bookkeeping until it is gone."""

    def __init__(self, port: PublicPort) -> None:
        self._port = port
        self._transport: asyncio.Transport | None = None
        self._link = Link("", "")
        self._head = b""
        self._timer: asyncio.TimerHandle | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._decided = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, not a check: uvloop's transports are no subclass of asyncio's.
        self._transport = transport = cast("asyncio.Transport", transport)
        if not self._port.arrived(self):
            transport.abort()
            return
        peer, local = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        if not peer or not local:
            # Gone before it was looked at.
            transport.abort()
            return
        self._link = Link(_shown(peer), _shown(local))
        _keep_alive(transport.get_extra_info("socket"))
        self._timer = asyncio.get_running_loop().call_later(self._port.first_bytes_s, self._too_slow)

    def data_received(self, data: bytes) -> None:
        if self._decided:
            # What a refused caller still sends.
            return
        self._head += data
        kind = _spoken(self._head)
        if kind == "":
            return
        self._decided = True
        self._stop_timer()
        assert self._transport is not None
        if kind in self._port.kinds:
            self._transport.pause_reading()
            name = f"dial {kind} for {self._link.peer}"
            self._dialling = asyncio.get_running_loop().create_task(self._forward(kind), name=name)
        elif kind == "tls":
            self._refuse(400, f"this port speaks plain HTTP and gRPC, not TLS: use http://{self._link.local}")
        else:
            self._refuse(400, "this port speaks HTTP/1.1 and gRPC, and this is neither")

    def connection_lost(self, exc: Exception | None) -> None:
        # Only while it is not spliced: afterwards the transport has another protocol.
        self._stop_timer()
        if self._dialling is not None:
            self._dialling.cancel()
        self._port.left(self)

    def abort(self) -> None:
        """Breaks the connection, spliced or not."""
        if self._transport is not None:
            self._transport.abort()

    async def _forward(self, kind: str) -> None:
        transport, link = self._transport, self._link
        assert transport is not None
        loop = asyncio.get_running_loop()
        try:
            sock, key = await self._port.dial(kind, link)
        except OSError as error:
            self._dialling = None
            self._port.quiet.warning("the inner %s server does not answer: %s", kind, error.strerror or error)
            if transport.is_closing():
                return
            transport.resume_reading()
            self._refuse(503, "the controller is starting or stopping: try again in a moment")
            return

        # From here on the inner connection exists and ends by itself if the caller has left.
        self._dialling = None
        head, self._head = self._head, b""
        inner = InnerEnd(
            transport,
            head,
            outer_lost=lambda: self._port.left(self),
            inner_lost=lambda: self._port.forget(key, link),
        )
        try:
            await loop.create_connection(lambda: inner, sock=sock)
        except OSError as error:
            self._port.quiet.warning("the inner %s server broke the connection: %s", kind, error.strerror or error)
            self._port.forget(key, link)
            sock.close()
            transport.abort()

    def _refuse(self, status: int, line: str) -> None:
        """Answers in a way that a person at curl can read, and drains what comes so that the answer is not lost in a reset."""
        assert self._transport is not None
        phrase = {400: "Bad Request", 503: "Service Unavailable"}[status]
        body = line.encode() + b"\n"
        self._transport.write(
            f"HTTP/1.1 {status} {phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode()
            + body
        )
        self._transport.write_eof()
        self._timer = asyncio.get_running_loop().call_later(_REFUSAL_S, self._transport.abort)

    def _too_slow(self) -> None:
        self._port.quiet.warning("closed a connection from %s that said nothing we know", self._link.peer)
        self.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _spoken(head: bytes) -> str:
    """What a connection speaks by its first bytes: GRPC, HTTP, `tls`, `other`, or "" while that is not settled."""
    if head[:1] == b"\x16":
        return "" if len(head) < 2 else "tls" if head[1] == 3 else "other"
    method, space, _ = head[: _LONGEST_METHOD + 1].partition(b" ")
    if not all(65 <= letter <= 90 for letter in method) or (space and len(method) < 3) or len(method) > _LONGEST_METHOD:
        return "other"
    if not space:
        return ""
    # The preface of HTTP/2, which no request of HTTP/1 can begin with.
    return GRPC if method == b"PRI" else HTTP


async def _listen(host: str, port: int) -> list[socket.socket]:
    """Bound sockets on every address of `host`, all with one port number."""
    found = await _resolve(host, port)
    sockets: list[socket.socket] = []
    refused: OSError | None = None
    for family, address in found:
        try:
            sockets.append(_bound(family, (address[0], port, *address[2:]), alone=len(found) == 1))
        except OSError as error:
            if error.errno in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT} and len(found) > 1:
                # `localhost` also names ::1 where there is no IPv6.
                refused = error
                continue
            for sock in sockets:
                sock.close()
            raise _explained(error, address[0], port) from error
        port = sockets[-1].getsockname()[1]
    if not sockets:
        assert refused is not None
        raise _explained(refused, host, port) from refused
    return sockets


async def _resolve(host: str, port: int) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except socket.gaierror as error:
        raise OSError(errno.EADDRNOTAVAIL, f"{host!r} is neither an address nor a name known here") from error
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))  # type: ignore[misc]


def _bound(family: socket.AddressFamily, address: tuple[str | int, ...], *, alone: bool) -> socket.socket:
    # As in `dial`, for what is accepted from it.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            both = alone and address[0] == "::"
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if both else 1)
        sock.bind(address)
        # Two sockets with SO_REUSEADDR may both bind; only one may listen, and that must be known now.
        sock.listen(_BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


def _explained(error: OSError, host: str, port: int) -> OSError:
    where = _joined(host, port)
    match error.errno:
        case errno.EADDRINUSE:
            line = f"port {port} on {host} is in use"
        case errno.EADDRNOTAVAIL:
            line = f"{host} is no address of this machine"
        case errno.EACCES:
            line = f"not allowed to listen on {where}: ports below 1024 need privileges"
        case _:
            line = f"cannot listen on {where}: {error.strerror}"
    return OSError(error.errno, line)


def _target(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _shown(address: tuple[str, int]) -> str:
    """A socket address as text; an IPv4 caller of an IPv6 socket shows as IPv4."""
    return _joined(address[0].removeprefix("::ffff:") if "." in address[0] else address[0], address[1])


def _keep_alive(sock: socket.socket) -> None:
    """Notices within two minutes that a peer vanished without a word, as behind a NAT that forgot it."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)


def _affordable(wanted: int) -> int:
    """As many connections as the process may open files for: running out of them would break the database as well."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, max(16, (soft - _DESCRIPTORS_FOR_OTHERS) // _DESCRIPTORS_PER_CONNECTION))
