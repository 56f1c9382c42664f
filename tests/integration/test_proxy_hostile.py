"""The proxy before workloads that misbehave on purpose: nobody else waits for them, and nothing stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING

import httpcore
import pytest
from websockets.asyncio.client import connect as dial
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.utils import accept_key

from iris_controller.http import proxy, splice
from iris_controller.http.proxy_dial import Dialler, Head, awaited
from iris_controller.http.proxy_frames import PIECE
from iris_controller.http.proxy_target import Target
from iris_controller.http.splice import reset
from tests.integration.endpoint_world import register, running
from tests.integration.test_proxy import Streams, ask, proxied

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.controller_rig import Rig

pytestmark = pytest.mark.asyncio

GET = b"GET /proxy/u.a.web/ HTTP/1.1\r\nhost: localhost\r\n\r\n"
POST = b"POST /proxy/u.a.web/ HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\nhi"
CHUNKED = b"POST /proxy/u.a.web/ HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"


async def send(r: Rig, raw: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", r.controller.port.port)
    writer.write(raw)
    await writer.drain()
    return reader, writer


@pytest.mark.parametrize("raw", [GET, POST, CHUNKED], ids=["get", "post", "chunked"])
async def test_a_caller_who_leaves_before_the_answer_takes_the_request_along(tmp_path: Path, raw: bytes) -> None:
    async with proxied(tmp_path) as (r, upstream, _):
        asked = asyncio.Event()

        async def reply(head: bytes, streams: Streams) -> None:
            asked.set()
            while await streams[0].read(1000):
                pass
            upstream.gone.set()

        upstream.reply = reply
        _, writer = await send(r, raw)
        await asyncio.wait_for(asked.wait(), 60)
        # An end alone may be half of one; who has really gone answers the port's probes with a reset.
        reset(writer.get_extra_info("socket"))
        writer.transport.abort()
        await asyncio.wait_for(upstream.gone.wait(), 60)


async def test_a_caller_who_ended_their_side_and_then_vanished_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splice, "LOOK_S", 0.05)
    async with proxied(tmp_path) as (r, upstream, _):
        asked = asyncio.Event()

        async def reply(head: bytes, streams: Streams) -> None:
            asked.set()
            await streams[0].read()
            upstream.gone.set()

        upstream.reply = reply
        _, writer = await send(r, GET)
        await asyncio.wait_for(asked.wait(), 60)
        writer.write_eof()
        done, _ = await asyncio.wait({asyncio.ensure_future(upstream.gone.wait())}, timeout=0.5)
        assert not done, "who has only said all may still listen"
        reset(writer.get_extra_info("socket"))
        writer.transport.abort()
        await asyncio.wait_for(upstream.gone.wait(), 60)


@pytest.mark.parametrize(
    "flood",
    [b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, b"x-a: " + b"b" * 60_000 + b"\r\n"],
    ids=["interim answers", "headers"],
)
async def test_what_never_becomes_an_answer_is_given_up(tmp_path: Path, flood: bytes) -> None:
    async with proxied(tmp_path) as (r, upstream, _):

        async def reply(head: bytes, streams: Streams) -> None:
            streams[1].write(b"HTTP/1.1 200 OK\r\n" if flood.startswith(b"x") else b"")
            while True:
                streams[1].write(flood)
                await streams[1].drain()

        upstream.reply = reply
        status, _, body = await ask(r, "/proxy/u.a.web/")
        assert status == 502 and b"no answer in HTTP" in body
        await asyncio.wait_for(upstream.gone.wait(), 60)


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nx-a: b", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_what_does_not_begin_to_answer_is_given_up_after_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(proxy, "ANSWER_S", 0.3)
    async with proxied(tmp_path) as (r, upstream, _):

        async def reply(head: bytes, streams: Streams) -> None:
            streams[1].write(said)
            await streams[0].read()
            upstream.gone.set()

        upstream.reply = reply
        status, _, body = await asyncio.wait_for(ask(r, "/proxy/u.a.web/"), 60)
        assert status == 504 and b"/u/a/web did not begin to answer within 0.3 s" in body, body
        await asyncio.wait_for(upstream.gone.wait(), 60)


async def test_an_answer_that_has_begun_may_go_on_for_ever() -> None:
    told: list[float | None] = []

    class Said(httpcore.AsyncMockStream):
        async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
            told.append(timeout)
            return await super().read(max_bytes, timeout)

    class Backend(httpcore.AsyncMockBackend):
        async def connect_tcp(self, *_args: object, **_more: object) -> httpcore.AsyncNetworkStream:
            return Said([b"HTTP/1.1 200 OK\r\n", b"\r\n", b"first ", b"last"])

    head = Head(300.0)
    awaited.set(head)
    dialler = Dialler()
    dialler._inner = Backend([])  # type: ignore[assignment]
    stream = await dialler.connect_tcp("h", 1)
    for _ in range(2):
        await stream.read(100)
    head.whole = True
    for _ in range(2):
        await stream.read(100)
    first, second, *rest = told
    assert first is not None and second is not None and 0 < second <= first <= 300.0, "one limit for the whole head"
    assert rest == [None, None]


async def test_a_connection_that_nobody_takes_is_given_up_after_a_time() -> None:
    error = proxy.failed(Target("/u/a/web", "127.0.0.1", 1, False, b"/", "/p"), httpcore.ConnectTimeout())
    assert error.http_status == 504 and error.message == "endpoint /u/a/web did not take the connection within 5 s"


async def test_an_interim_answer_is_passed_over_and_a_long_head_is_taken(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (r, upstream, _):

        async def reply(head: bytes, streams: Streams) -> None:
            streams[1].write(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n")
            streams[1].write(b"x-long: " + b"a" * 50_000 + b"\r\n\r\nok")
            await streams[1].drain()

        upstream.reply = reply
        status, headers, body = await ask(r, "/proxy/u.a.web/")
        assert (status, len(headers["x-long"]), body) == (200, 50_000, b"ok")


@pytest.mark.parametrize("status", [0, 101, 600, 999])
async def test_a_status_that_is_none_is_a_bad_gateway(tmp_path: Path, status: int) -> None:
    async with proxied(tmp_path) as (r, upstream, _):

        async def reply(head: bytes, streams: Streams) -> None:
            streams[1].write(f"HTTP/1.1 {status:03} Odd\r\ncontent-length: 2\r\n\r\nok".encode())
            await streams[1].drain()

        upstream.reply = reply
        found, _, body = await ask(r, "/proxy/u.a.web/")
        assert found == 502 and b"/u/a/web" in body


async def test_a_length_beside_chunks_is_not_the_bodys(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (r, upstream, _):

        async def reply(head: bytes, streams: Streams) -> None:
            streams[1].write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n")
            streams[1].write(b"5\r\nhello\r\n0\r\n\r\n")
            await streams[1].drain()

        upstream.reply = reply
        status, headers, body = await ask(r, "/proxy/u.a.web/")
        assert status == 200 and "content-length" not in headers
        assert b"hello" in body and body.endswith(b"0\r\n\r\n")


async def test_an_endless_body_in_the_smallest_parts_leaves_others_their_turn(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (r, upstream, _):

        async def reply(head: bytes, streams: Streams) -> None:
            streams[1].write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 50_000)
            streams[1].write(b"0\r\n\r\n")
            await streams[1].drain()

        upstream.reply = reply
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        status, _, body = await ask(r, "/proxy/u.a.web/")
        counting.cancel()
        assert (status, body.count(b"x")) == (200, 50_000)
        assert turns >= 50_000 // proxy.PARTS_PER_TURN


async def test_one_user_cannot_take_every_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "CONNECTIONS_PER_USER", 3)
    waiting = asyncio.Event()
    asked = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        head = await reader.readuntil(b"\r\n\r\n")
        if b"/never" in head:
            asked += 1
            if asked == 3:
                waiting.set()
            await reader.read()
        else:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with running(tmp_path, "/u/a", "/v/a") as (r, _):
        for name in ("/u/a", "/v/a"):
            await register(r, "web", task_id=f"{name}/0", address=f":{port}")
        held = [await send(r, GET.replace(b".web/", b".web/never")) for _ in range(3)]
        await asyncio.wait_for(waiting.wait(), 60)
        status, headers, body = await ask(r, "/proxy/u.a.web/")
        assert status == 503 and b"endpoints of u" in body and headers["retry-after"] == "1"
        assert (await ask(r, "/proxy/v.a.web/"))[0] == 200, "another user's is reached"
        for _, writer in held:
            reset(writer.get_extra_info("socket"))
            writer.transport.abort()
        async with asyncio.timeout(60):
            while (await ask(r, "/proxy/u.a.web/"))[0] != 200:
                pass
    server.close()


@pytest.mark.parametrize("frame", [b"\x82\x00", b"\x89\x00"], ids=["empty messages", "pings"])
async def test_a_flood_of_the_smallest_frames_leaves_others_their_turn(tmp_path: Path, frame: bytes) -> None:
    async with proxied(tmp_path) as (r, upstream, _):

        async def reply(head: bytes, streams: Streams) -> None:
            reader, writer = streams
            key = re.search(rb"(?i)sec-websocket-key: *(\S+)", head)
            assert key is not None
            accept = accept_key(key[1].decode())
            writer.write(b"HTTP/1.1 101 S\r\nupgrade: websocket\r\nconnection: upgrade\r\n")
            writer.write(f"sec-websocket-accept: {accept}\r\n\r\n".encode() + frame * 50_000 + b"\x81\x03end")
            while await reader.read(1 << 16):
                pass

        upstream.reply = reply
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        got = 0
        url = f"ws://127.0.0.1:{r.controller.port.port}/proxy/u.a.web/"
        async with dial(url, max_queue=None, open_timeout=60, ping_interval=None) as socket:
            counting = asyncio.create_task(count())
            async with asyncio.timeout(60):
                while await socket.recv() != "end":
                    got += 1
            counting.cancel()
            assert got == (50_000 if frame == b"\x82\x00" else 0)
        assert turns >= 50_000 * len(frame) // PIECE // 2


async def test_a_caller_who_leaves_a_websocket_is_no_fault_of_ours(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def talk(connection: ServerConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                await connection.send("more")
                await asyncio.sleep(0)
        left.set()

    left = asyncio.Event()
    async with serve(talk, "127.0.0.1", 0) as server, running(tmp_path) as (r, _):
        port = server.sockets[0].getsockname()[1]
        await register(r, "web", task_id="/u/a/0", address=f":{port}")
        for number in range(5):
            left.clear()
            url = f"ws://127.0.0.1:{r.controller.port.port}/proxy/u.a.web/"
            async with dial(url, open_timeout=60) as socket:
                await socket.recv()
                if number % 2:
                    socket.transport.abort()
            await asyncio.wait_for(left.wait(), 60)
    assert "fault" not in caplog.text


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_websocket_goes_where_it_was_registered_and_nowhere_else(tmp_path: Path, status: int) -> None:
    """A redirect in the handshake would have the controller dial whatever it can reach."""
    async with proxied(tmp_path) as (r, upstream, _):
        dialled: list[object] = []

        async def inside(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            dialled.append(writer.get_extra_info("peername"))
            writer.close()

        hidden = await asyncio.start_server(inside, "127.0.0.1", 0)
        port = hidden.sockets[0].getsockname()[1]

        async def reply(head: bytes, streams: Streams) -> None:
            streams[1].write(f"HTTP/1.1 {status} Go\r\nlocation: ws://127.0.0.1:{port}/x\r\n".encode())
            streams[1].write(b"content-length: 0\r\n\r\n")
            await streams[1].drain()

        upstream.reply = reply
        with pytest.raises(InvalidStatus) as caught:
            await dial(f"ws://127.0.0.1:{r.controller.port.port}/proxy/u.a.web/", open_timeout=60)
        assert caught.value.response.status_code == 502
        assert dialled == []
        hidden.close()
