"""The proxy, in front of real servers: what passes, how, and what nobody gets through it (S6)."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from websockets.asyncio.client import connect as dial
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidStatus

from iris_controller.rpc.auth import Role
from iris_core.auth.keys import load_or_create_key
from iris_core.auth.tokens import TokenSigner
from iris_core.wire.gen.iris.v1 import endpoints_pb2
from tests.integration.controller_rig import CONFIG, Rig, connect
from tests.integration.endpoint_world import register, running, token_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

pytestmark = pytest.mark.asyncio
LINK = endpoints_pb2.ENDPOINT_ACCESS_LINK

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Upstream:
    """A server of a task: keeps what it was asked, answers with `reply`."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.reply: Callable[[bytes, Streams], Awaitable[None]] = self.say_ok
        self.gone = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            await self.reply(head, (reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            self.gone.set()
        finally:
            writer.close()

    async def say_ok(self, head: bytes, streams: Streams) -> None:
        streams[1].write(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\nx-from: task\r\n\r\nhi\n")
        await streams[1].drain()

    def asked(self) -> list[str]:
        return [head.split(b"\r\n", 1)[0].decode("latin-1") for head in self.heads]

    def headers(self) -> dict[str, str]:
        lines = self.heads[-1].decode("latin-1").split("\r\n")[1:-2]
        return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


@asynccontextmanager
async def proxied(path: Path, config: str = CONFIG, **values: Any) -> AsyncIterator[tuple[Rig, Upstream, Any]]:
    """A running task with an endpoint `/u/a/web`."""
    upstream = Upstream()
    server = await asyncio.start_server(upstream, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with running(path, config=config) as (r, worker):
        await register(r, "web", task_id="/u/a/0", address=f":{port}", **values)
        try:
            yield r, upstream, worker
        finally:
            server.close()


async def ask(
    r: Rig, path: str, *, method: str = "GET", body: bytes = b"", raw: bytes | None = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """One request over a connection of its own; the path is sent as it is."""
    reader, writer = await asyncio.open_connection("127.0.0.1", r.controller.port.port)
    given = {"host": "localhost", "connection": "close"} | {k.replace("_", "-"): v for k, v in headers.items()}
    if body:
        given["content-length"] = str(len(body))
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    writer.write(raw or f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body)
    try:
        answer = await asyncio.wait_for(reader.read(), 30)
    finally:
        writer.close()
    head, _, rest = answer.partition(b"\r\n\r\n")
    first, *others = head.decode("latin-1").split("\r\n")
    found = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in others)}
    return int(first.split()[1]) if first else 0, found, rest


async def test_a_request_passes_without_credentials_and_the_answer_as_it_is(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (r, upstream, _):
        status, headers, body = await ask(
            r,
            "/proxy/u.a.web/a%20b/%2e%2e/c?x=1&y=%2F",
            x_kept="yes",
            x_forwarded_host="evil",
            cookie="mine=1; iris_session=secret; other=2",
            connection="close, x-hop",
            x_hop="1",
            iris_read_only="0",
        )
        # A header that says that somebody forwarded the call takes the trust in its address away.
        assert status == 401
        status, headers, body = await ask(
            r,
            "/proxy/u.a.web/a%20b/%2e%2e/c?x=1&y=%2F",
            x_kept="yes",
            cookie="mine=1; iris_session=secret; other=2",
            connection="close, x-hop",
            x_hop="1",
        )
        assert (status, body, headers["x-from"]) == (200, b"hi\n", "task")
        assert upstream.asked() == ["GET /a%20b/%2e%2e/c?x=1&y=%2F HTTP/1.1"], "byte by byte"
        sent = upstream.headers()
        assert sent["x-kept"] == "yes"
        assert sent["cookie"] == "mine=1; other=2"
        assert sent["x-forwarded-for"] == "127.0.0.1"
        assert sent["x-forwarded-prefix"] == "/proxy/u.a.web"
        assert "x-hop" not in sent and "authorization" not in sent
        assert sent["host"].startswith("127.0.0.1:")
        signer = TokenSigner(load_or_create_key(tmp_path / "signing.key"))
        status, _, _ = await ask(r, "/proxy/u.a.web/", authorization=f"Bearer {signer.user_token('mallory')}")
        assert status == 200
        assert "authorization" not in upstream.headers()


async def test_a_body_streams_up_and_an_answer_streams_down_before_it_is_whole(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (r, upstream, _):
        go_on = asyncio.Event()

        async def reply(head: bytes, streams: Streams) -> None:
            reader, writer = streams
            length = int(upstream.headers()["content-length"])
            size = 0
            while size < length:
                size += len(await reader.read(1 << 16))
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n")
            await writer.drain()
            await go_on.wait()
            writer.write(b"6\r\nsecond\r\n0\r\n\r\n")
            await writer.drain()

        upstream.reply = reply
        size = 32 << 20
        reader, writer = await asyncio.open_connection("127.0.0.1", r.controller.port.port)
        head = (
            f"POST /proxy/u.a.web/up HTTP/1.1\r\nhost: localhost\r\ncontent-length: {size}\r\nconnection: close\r\n\r\n"
        )
        writer.write(head.encode())
        for _ in range(size >> 20):
            writer.write(bytes(1 << 20))
            await writer.drain()
        async with asyncio.timeout(30):
            await reader.readuntil(b"first")
            go_on.set()
            rest = await reader.read()
        writer.close()
        assert b"second" in rest and rest.endswith(b"0\r\n\r\n")


async def test_a_chunked_body_arrives_whole(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (r, upstream, _):

        async def reply(head: bytes, streams: Streams) -> None:
            text = b""
            while not text.endswith(b"0\r\n\r\n"):
                text += await streams[0].read(1000)
            upstream.bodies.append(text)
            await upstream.say_ok(head, streams)

        upstream.reply = reply
        raw = (
            b"PUT /proxy/u.a.web/x HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
            b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
        )
        status, _, _ = await ask(r, "", raw=raw)
        assert status == 200
        assert b"abc" in upstream.bodies[0] and b"de" in upstream.bodies[0]


async def test_an_endless_answer_ends_when_its_caller_leaves(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (r, upstream, _):

        async def reply(head: bytes, streams: Streams) -> None:
            streams[1].write(b"HTTP/1.1 200 OK\r\n\r\nfirst")
            left = asyncio.ensure_future(streams[0].read())
            while not left.done():
                # A caller that says nothing more may still listen; that it does not shows with the next bytes.
                streams[1].write(b"more")
                await streams[1].drain()
                await asyncio.wait({left}, timeout=0.05)
            upstream.gone.set()

        upstream.reply = reply
        reader, writer = await asyncio.open_connection("127.0.0.1", r.controller.port.port)
        writer.write(b"GET /proxy/u.a.web/ HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await asyncio.wait_for(reader.readuntil(b"first"), 60)
        writer.transport.abort()
        await asyncio.wait_for(upstream.gone.wait(), 60)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"", 502),
        (b"HTTP/1.1 200 OK\r\ncontent-length: nonsense\r\n\r\n", 502),
        (b"\x16\x03\x01garbage\r\n\r\n", 502),
    ],
)
async def test_a_server_that_breaks_off_is_a_bad_gateway(tmp_path: Path, answer: bytes, status: int) -> None:
    async with proxied(tmp_path) as (r, upstream, _):

        async def reply(head: bytes, streams: Streams) -> None:
            streams[1].write(answer)
            await streams[1].drain()

        upstream.reply = reply
        found, _, body = await ask(r, "/proxy/u.a.web/")
        assert found == status
        assert b"/u/a/web" in body and b"Traceback" not in body


async def test_half_an_answer_is_not_a_whole_one(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (r, upstream, _):

        async def reply(head: bytes, streams: Streams) -> None:
            streams[1].write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
            await streams[1].drain()

        upstream.reply = reply
        status, headers, body = await ask(r, "/proxy/u.a.web/")
        assert (status, headers["content-length"], body) == (200, "100", b"half")


async def test_nobody_listening_is_a_bad_gateway_and_nothing_registered_is_not_found(tmp_path: Path) -> None:
    async with running(tmp_path) as (r, _):
        probe = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = probe.sockets[0].getsockname()[1]
        probe.close()
        await register(r, "web", task_id="/u/a/0", address=f":{port}")
        status, _, body = await ask(r, "/proxy/u.a.web/")
        assert status == 502 and b"could not be reached" in body
        for path in ("/proxy/u.a.none/", "/proxy/", "/proxy//", "/proxy/%00/", "/proxy/u.a/web", "/proxy/%ff/"):
            status, _, body = await ask(r, path)
            assert status in (400, 404), path


async def test_cookies_redirects_and_service_workers_stay_below_the_prefix(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (r, upstream, _):

        async def reply(head: bytes, streams: Streams) -> None:
            port = upstream.headers()["host"].rpartition(":")[2]
            where = {
                b"/abs": b"/login?next=/",
                b"/own": f"http://127.0.0.1:{port}/x".encode(),
                b"/away": b"https://example.org/",
                b"/rel": b"here",
            }[head.split(b" ")[1]]
            streams[1].write(
                b"HTTP/1.1 302 Found\r\ncontent-length: 0\r\nlocation: " + where + b"\r\n"
                b"set-cookie: a=1; Path=/; Domain=localhost; HttpOnly\r\nservice-worker-allowed: /\r\n"
                b"connection: close, x-inner\r\nx-inner: 1\r\n\r\n"
            )
            await streams[1].drain()

        upstream.reply = reply
        for path, location in [
            ("/abs", "/proxy/u.a.web/login?next=/"),
            ("/own", "/proxy/u.a.web/x"),
            ("/away", "https://example.org/"),
            ("/rel", "here"),
        ]:
            status, headers, _ = await ask(r, f"/proxy/u.a.web{path}")
            assert (status, headers["location"]) == (302, location), "redirects are told, never followed"
            assert headers["set-cookie"] == "a=1; HttpOnly; Path=/proxy/u.a.web/"
            assert "service-worker-allowed" not in headers and "x-inner" not in headers
            assert headers["referrer-policy"] == "same-origin"


async def test_a_link_opens_its_endpoint_and_nothing_else_until_it_expires(tmp_path: Path) -> None:
    async with proxied(tmp_path, access=LINK) as (r, upstream, _):
        await register(r, "other", task_id="/u/a/0", address=":1", access=LINK)
        request = endpoints_pb2.MintEndpointTokenRequest(name="/u/a/web", ttl_ms=60_000)
        path = (await r.call("MintEndpointToken", request, endpoints_pb2.MintEndpointTokenResponse)).path
        # As if through a load balancer: no trust in the address.
        outside: dict[str, Any] = {"x_forwarded_for": "203.0.113.9"}
        status, _, body = await ask(r, path + "deep?q=1", **outside)
        assert (status, body) == (200, b"hi\n")
        assert upstream.asked()[-1] == "GET /deep?q=1 HTTP/1.1"
        token = path.split("/")[3]
        assert token not in "".join(upstream.heads[-1].decode().split("\r\n")[0:1])
        assert (await ask(r, f"/proxy/t/{token}/u.a.other/", **outside))[0] == 403
        assert (await ask(r, f"/proxy/t/{token[:-4]}AAAA/u.a.web/", **outside))[0] == 401
        assert (await ask(r, "/proxy/t//u.a.web/", **outside))[0] == 401
        assert (await ask(r, "/proxy/t/", **outside))[0] in (401, 404)
        status, _, body = await ask(
            r,
            "/iris.v1.ControllerService/ListJobs",
            method="POST",
            body=b"{}",
            content_type="application/json",
            authorization=f"Bearer {token}",
        )
        assert status == 401, "it is no credential for an RPC"
        signer = TokenSigner(load_or_create_key(tmp_path / "signing.key"), clock=lambda: 1_000.0)
        old = signer.endpoint_token("/u/a/web", "x", 60)
        assert (await ask(r, f"/proxy/t/{old}/u.a.web/", **outside))[0] == 401
        user = signer.user_token("x")
        assert (await ask(r, f"/proxy/t/{user}/u.a.web/", **outside))[0] == 401
        await register(
            r,
            "web",
            task_id="/u/a/0",
            endpoint_id=next(
                e.endpoint_id for e in r.controller.model.endpoints.by_id.values() if e.name == "/u/a/web"
            ),
            address=":1",
        )
        assert (await ask(r, path, **outside))[0] == 403, "made private, the links that are out are void"


async def test_a_private_endpoint_gives_no_link_and_only_its_owner_mints(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (r, _, _):
        signer = TokenSigner(load_or_create_key(tmp_path / "signing.key"))
        body = b'{"name":"/u/a/web"}'
        mint = "/iris.v1.ControllerService/MintEndpointToken"
        status, _, text = await ask(r, mint, method="POST", body=body, content_type="application/json")
        assert status == 412 and b"private" in text
        status, _, _ = await ask(
            r,
            mint,
            method="POST",
            body=body,
            content_type="application/json",
            authorization=f"Bearer {signer.user_token('mallory')}",
        )
        assert status == 403


async def test_who_may_use_the_proxy(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (r, _, worker):
        signer = TokenSigner(load_or_create_key(tmp_path / "signing.key"))
        task = await token_of(r, worker)
        for token, method, status in [
            (signer.user_token("x"), "POST", 200),
            (signer.user_token("x", read_only=True), "GET", 200),
            (signer.user_token("x", read_only=True), "POST", 403),
            (signer.user_token("x", dashboard=True), "GET", 200),
            (signer.user_token("x", dashboard=True), "DELETE", 403),
            (signer.worker_token("w1"), "GET", 403),
            (task, "GET", 200),
            ("nonsense", "GET", 401),
        ]:
            found, _, body = await ask(r, "/proxy/u.a.web/", method=method, authorization=f"Bearer {token}")
            assert found == status, (method, status, body)
        assert (await ask(r, "/proxy/u.a.web/", x_forwarded_for="203.0.113.9"))[0] == 401
        assert (await ask(r, "/proxy/u.a.web/", host="evil.example"))[0] == 403
        assert (await ask(r, "/proxy/u.a.web/", origin="http://evil.example"))[0] == 403
        assert {str(role) for role in Role} >= {"admin", "task"}


async def test_a_tasks_page_cannot_speak_to_the_controller(tmp_path: Path) -> None:
    """It has the controller's own origin, and an operator who looks at it is an admin by their address."""
    async with proxied(tmp_path) as (r, _, _):
        page: dict[str, Any] = {"origin": "http://localhost", "sec_fetch_site": "same-origin", "sec_fetch_mode": "cors"}
        status, _, _ = await ask(r, "/proxy/u.a.web/api", method="POST", **page)
        assert status == 200, "its own server it may ask"
        status, _, _ = await ask(
            r,
            "/iris.v1.ControllerService/TerminateJob",
            method="POST",
            body=b'{"jobId":"/u/a"}',
            content_type="application/json",
            **page,
        )
        assert status == 403
        assert (await ask(r, "/metrics", sec_fetch_site="same-origin", sec_fetch_mode="no-cors"))[0] == 403
        assert (await ask(r, "/metrics", sec_fetch_site="none", sec_fetch_mode="navigate"))[0] == 200


async def test_an_endpoint_that_points_back_here_is_nobody_special(tmp_path: Path) -> None:
    async with running(tmp_path) as (r, _):
        await register(r, "loop", task_id="/u/a/0", address=f":{r.controller.port.port}")
        status, _, body = await ask(
            r,
            "/proxy/u.a.loop/iris.v1.ControllerService/TerminateJob",
            method="POST",
            body=b'{"jobId":"/u/a"}',
            content_type="application/json",
        )
        assert status == 401, body


async def test_the_log_stores_health_and_configured_services_are_reached(tmp_path: Path) -> None:
    upstream = Upstream()
    server = await asyncio.start_server(upstream, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    config = CONFIG + f"endpoints:\n  /system/tb: {{uri: 'http://127.0.0.1:{port}'}}\n  cloud: {{uri: 'gcp://x'}}\n"
    async with proxied(tmp_path, config) as (r, _, _):
        assert (await ask(r, "/proxy/system.log-server/health"))[::2] == (200, b"ok\n")
        assert (await ask(r, "/proxy/system.log-server/other"))[0] == 404
        assert (await ask(r, "/proxy/system/log-server/health"))[0] == 404
        assert (await ask(r, "/proxy/system.tb/x"))[0] == 200
        assert upstream.asked() == ["GET /x HTTP/1.1"]
        status, _, body = await ask(r, "/proxy/cloud/x")
        assert status == 412 and b"gcp://x" in body, "it is there, and why it cannot be reached is said"
    server.close()


async def test_names_with_dots_of_their_own(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (r, _, _):
        port = r.controller.model.endpoints.by_id[next(iter(r.controller.model.endpoints.by_id))].address
        await register(r, "v1.2/x", task_id="/u/a/0", address=port)
        assert (await ask(r, "/proxy/u.a.v1.2.x/"))[0] == 200
        await register(r, "v1/2.x", task_id="/u/a/0", address=port)
        status, _, body = await ask(r, "/proxy/u.a.v1.2.x/")
        assert status == 412 and b"/u/a/v1.2/x" in body and b"/u/a/v1/2.x" in body
        for exact in ("%2Fu%2Fa%2Fv1.2%2Fx", "%2fu%2fa%2fv1%2f2.x"):
            assert (await ask(r, f"/proxy/{exact}/"))[0] == 200
        assert (await ask(r, "/proxy/%252Fu%252Fa%252Fweb/"))[0] == 404, "decoded once"


async def test_fuzzed_paths_reach_only_what_is_registered(tmp_path: Path, soak: bool) -> None:
    pieces = [
        "..", "%2e%2e", "%252e", "%2f", "%252f", "//", "/", "\\", "%5c", ".", "u.a.web", "u", "a", "web", "t",
        "http://169.254.169.254/", "http:%2f%2f127.0.0.1:1", "@127.0.0.1:1", "%0d%0a", "%00", "?", "#", ";", "system",
        "log-server", "%e2%80%ae", "~", "*", "localhost:80", "[::1]", "%",
    ]  # fmt: skip
    rng = random.Random(20_261_129)
    async with proxied(tmp_path) as (r, upstream, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", r.controller.port.port)
        for _ in range(10_000 if soak else 1_000):
            path = "/proxy/" + "".join(rng.choice(pieces) for _ in range(rng.randrange(1, 7)))
            if rng.random() < 0.1:
                path = rng.choice(pieces) + path
            seen = len(upstream.heads)
            writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
            status = int(head.split(b" ", 2)[1])
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
            await reader.readexactly(length)
            assert b"Traceback" not in head
            if b"connection: close" in head.lower():
                writer.close()
                reader, writer = await asyncio.open_connection("127.0.0.1", r.controller.port.port)
            if len(upstream.heads) > seen:
                assert path.startswith("/proxy/u.a.web"), path
                assert status == 200
            else:
                assert status in (200, 400, 404, 502), (path, head)
                assert status != 200 or path.startswith("/proxy/system.log-server/health"), path
        writer.close()


# Websockets ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def socketed(
    path: Path, handler: Callable[[ServerConnection], Awaitable[None]], **values: Any
) -> AsyncIterator[tuple[Rig, str]]:
    async with serve(handler, "127.0.0.1", 0, **values) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with running(path) as (r, _):
            await register(r, "ws", task_id="/u/a/0", address=f":{port}", access=LINK)
            yield r, f"ws://localhost:{r.controller.port.port}/proxy/u.a.ws"


async def test_a_websocket_carries_both_kinds_both_ways_and_its_close(tmp_path: Path) -> None:
    seen: dict[str, str] = {}

    async def handler(socket: ServerConnection) -> None:
        assert socket.request is not None
        seen.update({k.lower(): v for k, v in socket.request.headers.raw_items()})
        seen["path"] = socket.request.path
        async for message in socket:
            if message == "bye":
                await socket.close(4321, "as asked")
            await socket.send(message)

    async with socketed(tmp_path, handler, subprotocols=["b"]) as (_, url):
        async with dial(f"{url}/s/x%2Fy?q=1", subprotocols=["a", "b"], proxy=None) as socket:  # type: ignore[list-item]
            assert socket.subprotocol == "b"
            for message in ("text é", b"\x00\xff", "x" * 100_000):
                await socket.send(message)
                assert await asyncio.wait_for(socket.recv(), 60) == message
            await socket.send("bye")
            with pytest.raises(ConnectionClosed) as closed:
                await asyncio.wait_for(socket.recv(), 60)
            assert closed.value.rcvd is not None
            assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4321, "as asked")
        assert seen["path"] == "/s/x%2Fy?q=1"
        assert seen["x-forwarded-prefix"] == "/proxy/u.a.ws"


async def test_a_caller_who_leaves_ends_the_workloads_socket(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def handler(socket: ServerConnection) -> None:
        await socket.send("hello")
        await socket.wait_closed()
        ended.set()

    async with socketed(tmp_path, handler) as (_, url), dial(url, proxy=None) as socket:
        assert await asyncio.wait_for(socket.recv(), 60) == "hello"
        socket.transport.abort()
        await asyncio.wait_for(ended.wait(), 60)


async def test_a_quiet_websocket_lives_longer_than_a_request_may_take_to_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iris_controller.http.server.HEADERS_S", 0.2)
    go_on = asyncio.Event()

    async def handler(socket: ServerConnection) -> None:
        await go_on.wait()
        await socket.send("late")

    async with socketed(tmp_path, handler) as (_, url), dial(url, proxy=None) as socket:
        await asyncio.wait({asyncio.ensure_future(socket.wait_closed())}, timeout=1.0)
        go_on.set()
        assert await asyncio.wait_for(socket.recv(), 60) == "late"


async def test_a_websocket_nobody_may_open(tmp_path: Path) -> None:
    async def handler(socket: ServerConnection) -> None:
        await socket.wait_closed()

    async with socketed(tmp_path, handler) as (r, url):
        signer = TokenSigner(load_or_create_key(tmp_path / "signing.key"))
        read_only = {"authorization": f"Bearer {signer.user_token('x', read_only=True)}"}
        for address, headers, origin, status in [
            (url.replace("u.a.ws", "u.a.none"), {}, None, 404),
            (url, {"x-forwarded-for": "203.0.113.9"}, None, 401),
            (url, {}, "http://evil.example", 403),
            (url, read_only, None, 403),
            (url.partition("/proxy")[0] + "/iris.v1.ControllerService/Watch", {}, None, 403),
            (url.partition("/proxy")[0] + "/health", {}, None, 403),
        ]:
            with pytest.raises(InvalidStatus) as caught:
                async with dial(address, additional_headers=headers, origin=origin, proxy=None):  # type: ignore[arg-type]
                    pass
            assert caught.value.response.status_code == status, address
        client = connect(r.controller)
        await register(client, "dead", task_id="/u/a/0", address=":1")
        with pytest.raises(InvalidStatus) as caught:
            async with dial(url.replace("u.a.ws", "u.a.dead"), proxy=None):
                pass
        assert caught.value.response.status_code == 502
        await client.close()


async def test_the_controller_stops_while_a_websocket_is_open(tmp_path: Path) -> None:
    async def handler(socket: ServerConnection) -> None:
        await socket.wait_closed()

    async with socketed(tmp_path, handler) as (r, url):
        socket = await dial(url, proxy=None)
        stopping = asyncio.ensure_future(r.controller.servers.end_streams())
        await asyncio.wait_for(stopping, 60)
        await asyncio.wait_for(socket.wait_closed(), 60)
