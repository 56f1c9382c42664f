"""The public port on real sockets: both protocols, half-close, back-pressure, slow and strange callers."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from iris_controller.http import port as port_module
from iris_controller.http import server as server_module
from iris_controller.http.port import PublicPort
from iris_controller.http.splice import reset
from iris_controller.rpc.errors import DETAIL_KEY, precondition
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2
from tests.integration.port_env import run, serving
from tests.ports import listening

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.integration.port_env import Env

LIST_JOBS = "/iris.v1.ControllerService/ListJobs"
WATCH = "/iris.v1.ControllerService/Watch"


async def until(condition: Callable[[], object], what: str) -> None:
    """Waits for a condition that no event announces."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 (some conditions have no event)
            await asyncio.sleep(0.005)
    assert condition(), what


async def connect(env: Env, limit: int = 1 << 24) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host = env.port.addresses[0].rpartition(":")[0].strip("[]")
    return await asyncio.open_connection(host, env.port.port, limit=limit)


def post(path: str, body: bytes = b"{}", *more: str, host: str = "localhost") -> bytes:
    lines = [
        f"POST {path} HTTP/1.1", f"host: {host}", "content-type: application/json", f"content-length: {len(body)}", *more,
    ]  # fmt: skip
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def exchange(env: Env, sent: bytes, *, half_close: bool = False) -> bytes:
    """All that the port answers until it closes."""
    reader, writer = await connect(env)
    writer.write(sent)
    if half_close:
        writer.write_eof()
    try:
        async with asyncio.timeout(60):
            return await reader.read()
    finally:
        writer.close()


# Both protocols ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("needs_curl")
def test_grpc_and_http_answer_on_one_port() -> None:
    async def jobs(request: Any, call: Any) -> Any:
        return controller_pb2.ListJobsResponse(next_page_token=call.peer, total_count=len(request.prefix))

    async def main() -> None:
        async with serving({"ControllerService/ListJobs": jobs}) as env, env.channel() as channel:
            ask = channel.unary_unary(
                LIST_JOBS,
                controller_pb2.ListJobsRequest.SerializeToString,
                controller_pb2.ListJobsResponse.FromString,
            )
            answer = await ask(controller_pb2.ListJobsRequest(prefix="/a/b"))
            assert answer.total_count == 4
            assert answer.next_page_token.startswith("127.0.0.1:")

            process = await asyncio.create_subprocess_exec(
                "curl", "-sS", "--noproxy", "*", "-d", '{"prefix": "/a/b"}', "-H", "content-type: application/json",
                "-w", "\n%{http_code} %{content_type} %{local_port}", env.port.url + LIST_JOBS,
                stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            out, _ = await process.communicate()
            body, status = out.decode().split("\n")
            code, kind, local_port = status.split(" ")
            assert (code, kind) == ("200", "application/json")
            # Not the port's own connection: the caller's.
            assert json.loads(body) == {"total_count": "4", "next_page_token": f"127.0.0.1:{local_port}"}

    run(main())


def test_a_message_may_come_in_single_bytes_and_pipelined() -> None:
    async def main() -> None:
        async with serving() as env:
            reader, writer = await connect(env)
            for byte in post(LIST_JOBS):
                writer.write(bytes([byte]))
                await writer.drain()
            assert b" 200 " in await reader.readuntil(b"\r\n")
            writer.write(post(LIST_JOBS) + post(LIST_JOBS, b"{}", "connection: close"))
            rest = await reader.read()
            writer.close()
            assert rest.count(b"HTTP/1.1 200 ") == 2
            assert len(env.served) == 3

    run(main())


def test_every_kind_of_stream_over_grpc() -> None:
    seen: list[str] = []

    async def attach(requests: AsyncIterator[Any], call: Any) -> AsyncIterator[Any]:
        from iris_core.wire.gen.iris.v1 import worker_pb2

        async for request in requests:
            seen.append(request.hello.worker_id)
            yield worker_pb2.AttachResponse(ack=worker_pb2.ObservationAck(seq=len(seen)))
        seen.append("end")
        # The caller has said all; the answer may still go on.
        yield worker_pb2.AttachResponse(ack=worker_pb2.ObservationAck(seq=99))

    async def main() -> None:
        from iris_core.wire.gen.iris.v1 import worker_pb2

        async with serving({"WorkerService/Attach": attach}) as env, env.channel() as channel:
            call = channel.stream_stream(
                "/iris.v1.WorkerService/Attach",
                worker_pb2.AttachRequest.SerializeToString,
                worker_pb2.AttachResponse.FromString,
            )()
            for name in ("a", "b"):
                await call.write(worker_pb2.AttachRequest(hello=worker_pb2.WorkerHello(worker_id=name)))
                assert (await call.read()).ack.seq == len(seen)
            await call.done_writing()
            assert (await call.read()).ack.seq == 99
            assert await call.code() is grpc.StatusCode.OK
            assert seen == ["a", "b", "end"]

    run(main())


def test_errors_are_the_same_over_grpc_json_and_ndjson() -> None:
    async def one(request: Any, call: Any) -> Any:
        raise precondition("/a/b", "not now", hint="later", retry_after_ms=1500)

    async def late(request: Any, call: Any) -> AsyncIterator[Any]:
        yield controller_pb2.WatchResponse()
        raise precondition("/a/b", "not now", hint="later", retry_after_ms=1500)

    async def early(request: Any, call: Any) -> AsyncIterator[Any]:
        if request is not None:
            raise precondition("/a/b", "not now", hint="later", retry_after_ms=1500)
        yield

    expected = {
        "status": "FAILED_PRECONDITION",
        "message": "not now",
        "code": "failed_precondition",
        "subject": "/a/b",
        "hint": "later",
        "retry_after_ms": "1500",
    }

    async def main() -> None:
        async with serving({"ControllerService/ListJobs": one, "ControllerService/Watch": late}) as env:
            async with env.channel() as channel:
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await channel.unary_unary(LIST_JOBS)(b"")
            assert error.value.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert error.value.details() == "not now"
            trailing: Any = error.value.trailing_metadata()
            detail = common_pb2.ErrorDetail.FromString(dict(trailing)[DETAIL_KEY])
            assert (detail.subject, detail.hint, detail.retry_after_ms) == ("/a/b", "later", 1500)

            head, _, body = (await exchange(env, post(LIST_JOBS, b"{}", "connection: close"))).partition(b"\r\n\r\n")
            assert b" 412 " in head
            assert b"retry-after: 2" in head
            assert json.loads(body) == expected

            head, _, body = (await exchange(env, post(WATCH, b"{}", "connection: close"))).partition(b"\r\n\r\n")
            assert b" 200 " in head
            assert b"application/x-ndjson" in head
            lines = [json.loads(line) for line in body.split(b"\r\n") if line.startswith(b"{")]
            assert lines == [{}, {"error": expected}]
        async with serving({"ControllerService/Watch": early}) as env:
            head, _, body = (await exchange(env, post(WATCH, b"{}", "connection: close"))).partition(b"\r\n\r\n")
            assert b" 412 " in head
            assert json.loads(body) == expected

    run(main())


@pytest.mark.parametrize("over", ["grpc", "ndjson", "ndjson, orderly"])
def test_a_caller_that_leaves_ends_its_stream(over: str) -> None:
    """Also one whose stream says nothing more, unless the caller only stopped talking."""
    ended: list[bool] = []

    async def watch(request: Any, call: Any) -> AsyncIterator[Any]:
        try:
            yield controller_pb2.WatchResponse(heartbeat=controller_pb2.WatchHeartbeat(now_ms=1))
            if over == "ndjson, orderly":
                # One that closed may still be reading; the next lines tell.
                while True:
                    await asyncio.sleep(0.05)
                    yield controller_pb2.WatchResponse()
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def main() -> None:
        async with serving({"ControllerService/Watch": watch}) as env:
            if over == "grpc":
                async with env.channel() as channel:
                    call = channel.unary_stream(WATCH)(b"")
                    assert await call.read()
                    call.cancel()
                    await until(lambda: ended, "the handler ends")
                    # A call keeps its connection.
                    del call
            else:
                reader, writer = await connect(env)
                writer.write(post(WATCH))
                await reader.readuntil(b'"now_ms"')
                if over == "ndjson":
                    reset(writer.get_extra_info("socket"))
                    writer.transport.abort()
                writer.close()
                await until(lambda: ended, "the handler ends")
            await until(lambda: env.port.connections == 0, "the connection is gone")
            assert env.port.peer_of(f"ipv4:127.0.0.1:{env.port.port}") is None
            assert not env.port._links

    run(main())


def test_a_mutation_is_finished_and_audited_though_its_caller_left(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "iris.audit")
    seen: list[str] = []
    release = asyncio.Event()

    async def put(request: Any, call: Any) -> Any:
        seen.append("begun")
        await call.cancelled.wait()
        await release.wait()
        seen.append("done")
        call.audit(size=len(request.data), entity="bundle x=1")
        return controller_pb2.PutBundleResponse()

    async def main() -> None:
        async with serving({"ControllerService/PutBundle": put}) as env:
            async with env.channel() as channel:
                method = channel.unary_unary("/iris.v1.ControllerService/PutBundle")
                request = controller_pb2.PutBundleRequest(bundle_id="b", data=b"abc").SerializeToString()
                call = method(request)
                waiting = asyncio.ensure_future(call)
                await until(lambda: seen, "the handler runs")
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                release.set()
                await until(lambda: "done" in seen, "it goes on")
            await until(lambda: caplog.records, "it is audited")
        line = caplog.records[0].getMessage()
        start = 'event=bundle_stored entity="bundle x\\u003d1" trigger=local_admin via=loopback peer=127.0.0.1:'
        assert line.startswith(start)
        assert line.endswith(" size=3")

    run(main())


def test_a_mutation_that_fails_after_its_caller_left_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    begun = asyncio.Event()

    async def put(request: Any, call: Any) -> Any:
        begun.set()
        await call.cancelled.wait()
        raise ZeroDivisionError

    async def main() -> None:
        async with serving({"ControllerService/PutBundle": put}) as env, env.channel() as channel:
            call = channel.unary_unary("/iris.v1.ControllerService/PutBundle")(b"")
            waiting = asyncio.ensure_future(call)
            await begun.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            said = "ControllerService/PutBundle failed after its caller had left"
            await until(lambda: said in caplog.messages, "the failure is logged")

    run(main())


def test_a_callers_deadline_ends_a_read() -> None:
    async def jobs(request: Any, call: Any) -> Any:
        left = call.time_left_s()
        assert left is not None
        assert left <= 0.2
        await asyncio.Event().wait()

    async def main() -> None:
        async with serving({"ControllerService/ListJobs": jobs}) as env, env.channel() as channel:
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await channel.unary_unary(LIST_JOBS)(b"", timeout=0.2)
            assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    run(main())


# Half-close and slow readers -----------------------------------------------------------------------------------------


def test_a_caller_that_has_said_all_still_gets_its_answer() -> None:
    async def jobs(request: Any, call: Any) -> Any:
        await asyncio.sleep(0.05)
        return controller_pb2.ListJobsResponse(total_count=7)

    async def main() -> None:
        async with serving({"ControllerService/ListJobs": jobs}) as env:
            answer = await exchange(env, post(LIST_JOBS), half_close=True)
            assert b" 200 " in answer
            assert answer.endswith(b'{"total_count":"7"}')
            stream = await exchange(env, post(WATCH), half_close=True)
            assert stream.endswith(b"0\r\n\r\n")
            assert b"ok\n" in await exchange(env, b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n", half_close=True)
            # Half a request and an end is no request.
            assert await exchange(env, post(LIST_JOBS, b"{}")[:-1], half_close=True) == b""
            assert await exchange(env, b"GET /health HT", half_close=True) == b""
            assert await exchange(env, b"G", half_close=True) == b""
            await until(lambda: env.port.connections == 0, "all are gone")

    run(main())


@pytest.mark.parametrize("over", ["grpc", "ndjson"])
def test_a_slow_reader_holds_up_its_own_stream_alone(over: str) -> None:
    sent = {"slow": 0}
    chunk = controller_pb2.WatchResponse(resync=controller_pb2.WatchResync(reason="x" * 60_000)).SerializeToString()
    total = 2000

    async def watch(request: Any, call: Any) -> AsyncIterator[Any]:
        for _ in range(total):
            yield chunk
            sent["slow"] += 1

    async def main() -> None:
        async with serving({"ControllerService/Watch": watch}) as env:
            kept = env.channel()
            channel = await kept.__aenter__()
            if over == "grpc":
                call = channel.unary_stream(WATCH)(b"")
                assert await call.read()
            else:
                reader, writer = await connect(env, limit=1 << 16)
                writer.write(post(WATCH))
                assert await reader.readexactly(1000)
            # It stops by itself, long before the end: 120 MB are not held anywhere.
            before = -1
            while before != sent["slow"]:
                before = sent["slow"]
                await asyncio.sleep(0.3)
            assert before < total // 4
            # Meanwhile others are served.
            async with env.channel() as other:
                await other.unary_unary(LIST_JOBS)(b"", timeout=5)
            # And once it reads, it gets everything.
            if over == "grpc":
                count = 1
                while (await call.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
                    count += 1
                assert count == total
            else:
                rest = 0
                while data := await reader.read(1 << 20):
                    rest += data.count(b"resync")
                    if data.endswith(b"0\r\n\r\n"):
                        break
                writer.close()
            assert sent["slow"] == total
            await kept.__aexit__(None, None, None)

    run(main())


def test_a_large_request_and_answer_pass_whole() -> None:
    data = bytes(range(256)) * (25 * 4096)

    async def put(request: Any, call: Any) -> Any:
        assert request.data == data
        return controller_pb2.PutBundleResponse(existed=True)

    async def chunks(request: Any, call: Any) -> AsyncIterator[Any]:
        from iris_core.wire.gen.iris.v1 import worker_pb2

        yield worker_pb2.GetBundleResponse(chunk=data)

    async def main() -> None:
        handlers: dict[str, Callable[..., Any]] = {
            "ControllerService/PutBundle": put,
            "WorkerService/GetBundle": chunks,
        }
        async with serving(handlers) as env:
            async with env.channel() as channel:
                message = controller_pb2.PutBundleRequest(bundle_id="b", data=data)
                answer = await channel.unary_unary("/iris.v1.ControllerService/PutBundle")(message.SerializeToString())
                assert controller_pb2.PutBundleResponse.FromString(answer).existed
                call = channel.unary_stream("/iris.v1.WorkerService/GetBundle")(b"")
                assert data in await call.read()
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await channel.unary_unary("/iris.v1.ControllerService/PutBundle")(bytes(27 << 20))
                assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                assert "at most 27262976" in str(error.value.details())
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await channel.unary_unary("/iris.v1.ControllerService/PutBundle")(bytes(65 << 20))
                assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            announced = await exchange(
                env, post(LIST_JOBS, b"{}", "connection: close")[:-2].replace(b"h: 2", b"h: 99999999")
            )
            assert b" 413 " in announced
            assert b"request_too_large" in announced

    run(main())


# Strange callers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "says"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"not TLS: use http://127.0.0.1:"),
        (b"\x16\x01", b"this is neither"),
        (b"\x00\x00\x00\x00", b"this is neither"),
        (b"hello\n", b"this is neither"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", b"this is neither"),
        (b" GET / HTTP/1.1\r\n", b"this is neither"),
        (b"A" * 17, b"this is neither"),
        (b"A ", b"this is neither"),
        (b"\xff" * 100_000, b"this is neither"),
    ],
    ids=["tls", "almost tls", "zeros", "words", "ssh", "space", "long word", "short word", "much"],
)
def test_what_is_neither_gets_one_clear_line(first: bytes, says: bytes) -> None:
    async def main() -> None:
        async with serving() as env:
            answer = await exchange(env, first)
            head, _, line = answer.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 400 ")
            assert says in line
            assert line.count(b"\n") == 1
            await until(lambda: env.port.connections == 0, "it is closed")

    run(main())


@pytest.mark.usefixtures("needs_curl")
def test_a_tls_client_is_told_at_once() -> None:
    async def main() -> None:
        async with serving() as env:
            process = await asyncio.create_subprocess_exec(
                "curl", "-sSk", "--noproxy", "*", f"https://{env.address}/health", stderr=asyncio.subprocess.PIPE
            )
            _, err = await asyncio.wait_for(process.communicate(), 60)
            assert process.returncode == 35
            assert err.count(b"\n") == 1

    run(main())


def test_one_that_says_nothing_is_cut_off_and_holds_up_nobody() -> None:
    async def main() -> None:
        async with serving(first_bytes_s=0.3) as env:
            silent = [await connect(env) for _ in range(20)]
            for _, writer in silent[:10]:
                writer.write(b"P")
            async with env.channel() as channel:
                await channel.unary_unary(LIST_JOBS)(b"", timeout=5)
                for reader, writer in silent:
                    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                        await asyncio.wait_for(reader.readexactly(1), 60)
                    writer.close()
                # A connection that has been recognised is not cut off.
                await channel.unary_unary(LIST_JOBS)(b"", timeout=5)
            await until(lambda: env.port.connections == 0, "all are gone")

    run(main())


def test_one_that_dribbles_its_headers_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "HEADERS_S", 0.3)

    async def main() -> None:
        async with serving() as env:
            reader, writer = await connect(env)
            writer.write(b"GET /health HTTP/1.1\r\n")

            async def dribble() -> None:
                try:
                    while True:
                        writer.write(b"x: y\r\n")
                        await writer.drain()
                        await asyncio.sleep(0.02)
                except ConnectionError:
                    pass

            slow = asyncio.create_task(dribble())
            try:
                data = await asyncio.wait_for(reader.read(), 60)
            except ConnectionError:
                data = b""
            assert data == b""
            await slow
            writer.close()

            # A long answer is not a slow header, and neither is a connection kept alive.
            reader, writer = await connect(env)
            for _ in range(3):
                writer.write(post(LIST_JOBS))
                assert b" 200 " in await reader.readuntil(b"{}")
            writer.close()

    run(main())


def test_more_connections_than_the_limit_are_closed() -> None:
    async def main() -> None:
        async with serving(max_connections=5) as env:
            held = [await connect(env) for _ in range(5)]
            await until(lambda: env.port.connections == 5, "all are counted")
            reader, writer = await connect(env)
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await asyncio.wait_for(reader.readexactly(1), 60)
            writer.close()
            for _, other in held:
                other.close()
            await until(lambda: env.port.connections == 0, "room again")
            assert b"ok\n" in await exchange(env, b"GET /health HTTP/1.0\r\nhost: localhost\r\n\r\n")

    run(main())


def test_only_the_port_leads_in() -> None:
    """The inner servers are on loopback, where anybody on this machine could dial them: they are nobody there."""

    async def main() -> None:
        async with serving() as env:
            inner_grpc, inner_http = (env.port._targets[kind] for kind in (port_module.GRPC, port_module.HTTP))
            async with grpc.aio.insecure_channel(f"{inner_grpc[0]}:{inner_grpc[1]}") as channel:
                direct: Any = channel
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await direct.unary_unary(LIST_JOBS)(b"", metadata=(("authorization", "Bearer " + token(env)),))
                assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
            reader, writer = await asyncio.open_connection(*inner_http)
            writer.write(post(LIST_JOBS, b"{}", f"authorization: Bearer {token(env)}", "connection: close"))
            assert b" 401 " in await reader.read()
            writer.close()
            assert not env.served

    run(main())


def token(env: Env) -> str:
    return env.signer.user_token("ann")


def test_while_the_inner_servers_are_away() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            nobody = f"127.0.0.1:{closed.getsockname()[1]}"
        port = PublicPort("127.0.0.1", 0, nobody, nobody)
        await port.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
        writer.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        answer = await reader.read()
        assert b" 503 " in answer
        assert b"starting or stopping" in answer
        writer.close()
        await port.close()

    run(main())


def test_closing_lets_answers_finish_and_then_breaks_the_rest() -> None:
    release = asyncio.Event()

    async def jobs(request: Any, call: Any) -> Any:
        await release.wait()
        return controller_pb2.ListJobsResponse()

    async def main() -> None:
        async with serving({"ControllerService/ListJobs": jobs}) as env:
            finishing = asyncio.create_task(exchange(env, post(LIST_JOBS, b"{}", "connection: close")))
            await until(lambda: env.port.connections == 1, "it is there")
            idle_reader, idle_writer = await connect(env)
            await until(lambda: env.port.connections == 2, "so is the idle one")
            closing = asyncio.create_task(env.port.close(0.5))
            await asyncio.sleep(0)
            await until(lambda: not listening(env.port.port), "nobody is let in any more")
            release.set()
            assert b" 200 " in await finishing
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await idle_reader.readexactly(1)
            idle_writer.close()
            await closing
            assert env.port.connections == 0

    run(main())


# Addresses -----------------------------------------------------------------------------------------------------------


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.parametrize("host", ["::1", "[::1]", "localhost", "::"])
@pytest.mark.usefixtures("needs_curl")
def test_ipv6_and_names(host: str) -> None:
    if not has_ipv6():
        pytest.skip("no IPv6 on this machine")

    async def main() -> None:
        async with serving(host=host) as env:
            dialled = {"localhost": "localhost"}.get(host, "[::1]")
            assert env.port.url == f"http://{dialled}:{env.port.port}"
            async with env.channel() as channel:
                await channel.unary_unary(LIST_JOBS)(b"", timeout=10)
            names = {"localhost": env.port.addresses, "::": ["[::1]:0", "127.0.0.1:0"]}.get(host, ["[::1]:0"])
            for name in (address.rpartition(":")[0] for address in names):
                process = await asyncio.create_subprocess_exec(
                    "curl", "-sSg", "--noproxy", "*", "-X", "POST", "-H", "content-type: application/json",
                    f"http://{name}:{env.port.port}{LIST_JOBS}", stdout=asyncio.subprocess.PIPE,
                )  # fmt: skip
                out, _ = await process.communicate()
                assert out == b"{}", name
            said = {address.rpartition(":")[0].strip("[]") for address in env.port.addresses}
            assert listening(env.port.port) == said
            assert said == {"::1"} or host in ("localhost", "::")

    run(main())


@pytest.mark.parametrize(
    ("host", "number", "says"),
    [
        ("127.0.0.1", errno.EADDRINUSE, r"port \d+ on 127\.0\.0\.1 is in use"),
        ("203.0.113.1", errno.EADDRNOTAVAIL, r"203\.0\.113\.1 is no address of this machine"),
        ("no such host", errno.EADDRNOTAVAIL, r"'no such host' is neither an address nor a name"),
    ],
)
def test_a_port_that_cannot_be_had_is_one_clear_line(host: str, number: int, says: str) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = PublicPort(host, taken.getsockname()[1], "127.0.0.1:1", "127.0.0.1:1")
            with pytest.raises(OSError, match=says) as error:
                await port.start()
            assert error.value.errno == number
            assert "\n" not in str(error.value)
            await port.close()

    run(main())


def test_two_ports_cannot_share_a_number() -> None:
    async def main() -> None:
        async with serving() as env:
            second = PublicPort("127.0.0.1", env.port.port, "127.0.0.1:1", "127.0.0.1:1")
            with pytest.raises(OSError, match="is in use"):
                await second.start()

    run(main())
