"""LogService handed on as raw bytes to a real gRPC server in a process of its own, through its death and return."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from iris_controller.rpc.errors import DETAIL_KEY
from iris_core.wire.gen.iris.v1 import common_pb2, logs_pb2
from tests.integration.port_env import run, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.port_env import Env

PUSH = "/iris.v1.LogService/PushLogs"
FETCH = "/iris.v1.LogService/FetchLogs"

# A log store of a few lines: it echoes, fails or waits by what `source` says, and tells what it saw.
STORE = """
import asyncio, sys, grpc
from iris_core.wire.gen.iris.v1 import common_pb2, logs_pb2

def say(text):
    print(text, flush=True)

class Store(grpc.GenericRpcHandler):
    def service(self, details):
        if details.method.endswith("/PushLogs"):
            return grpc.unary_unary_rpc_method_handler(self.push)
        return grpc.unary_unary_rpc_method_handler(self.fetch)

    async def push(self, raw, context):
        request = logs_pb2.PushLogsRequest.FromString(raw)
        marks = [logs_pb2.ProducerMark(producer=b.producer, next_number=len(b.entries)) for b in request.batches]
        return logs_pb2.PushLogsResponse(marks=marks).SerializeToString()

    async def fetch(self, raw, context):
        request = logs_pb2.FetchLogsRequest.FromString(raw)
        names = sorted(key for key, _ in context.invocation_metadata())
        if request.source == "wait":
            say(f"waiting {context.time_remaining():.0f}")
            try:
                await asyncio.sleep(60)
            finally:
                say("cancelled")
        if request.source == "fail":
            detail = common_pb2.ErrorDetail(code="bad_regex", field="regex", position=3, hint="close it")
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the bracket is open",
                                (("iris-error-detail-bin", detail.SerializeToString()), ("x-inner", "hidden")))
        if request.source == "plain":
            await context.abort(grpc.StatusCode.INTERNAL, "boom\\n at /secret/path line 3")
        context.set_trailing_metadata((("iris-lag-ms", "17"), ("x-inner", "hidden")))
        return logs_pb2.FetchLogsResponse(capped_reason=",".join(names), scanned=int(sys.argv[1])).SerializeToString()

async def main():
    server = grpc.aio.server(options=(("grpc.max_receive_message_length", -1),))
    server.add_generic_rpc_handlers((Store(),))
    say(server.add_insecure_port(f"127.0.0.1:{sys.argv[2]}"))
    await server.start()
    await server.wait_for_termination()

asyncio.run(main())
"""


class Store:
    """The process; `said` are its lines."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None
        self.address = ""
        self.generation = 0
        self.said: list[str] = []

    def start(self, port: int = 0) -> None:
        self.generation += 1
        self.process = subprocess.Popen(
            [sys.executable, "-c", STORE, str(self.generation), str(port)], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.address = f"127.0.0.1:{int(self.process.stdout.readline())}"
        self._listener = threading.Thread(target=self._listen, args=(self.process,))
        self._listener.start()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self.said.append(line.strip())

    def kill(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._listener.join()


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    made.start()
    yield made
    made.kill()


async def heard(store: Store, line: str) -> None:
    async with asyncio.timeout(60):
        while line not in store.said:  # noqa: ASYNC110 (another process says it)
            await asyncio.sleep(0.01)


async def fetch(channel: Any, source: str = "/a/b/0:0", **more: Any) -> tuple[logs_pb2.FetchLogsResponse, Any]:
    request = logs_pb2.FetchLogsRequest(source=source, match_scope=common_pb2.MATCH_SCOPE_EXACT)
    call = channel.unary_unary(FETCH)(request.SerializeToString(), **more)
    answer = await call
    return logs_pb2.FetchLogsResponse.FromString(answer), dict(await call.trailing_metadata())


def detail(error: grpc.aio.AioRpcError) -> common_pb2.ErrorDetail:
    trailing: Any = error.trailing_metadata()
    return common_pb2.ErrorDetail.FromString(dict(trailing)[DETAIL_KEY])


async def post(env: Env, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", env.port.port)
    data = json.dumps(body).encode()
    writer.write(
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"
        f"content-length: {len(data)}\r\n\r\n".encode()
        + data
    )
    head, _, rest = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split(b" ", 2)[1]), json.loads(rest)


def test_bytes_metadata_and_errors_pass(store: Store) -> None:
    async def main() -> None:
        async with serving(raw={"LogService": lambda: store.address}) as env, env.channel() as channel:
            token = env.signer.user_token("ann")
            answer, trailing = await fetch(channel, metadata=(("authorization", f"Bearer {token}"), ("x-mine", "1")))
            # The caller's headers stay here, its credential above all.
            assert "authorization" not in answer.capped_reason
            assert "x-mine" not in answer.capped_reason
            assert trailing["iris-lag-ms"] == "17"
            assert "x-inner" not in trailing

            batch = logs_pb2.LogBatch(producer="p", entries=[logs_pb2.LogEntry(data="x" * 1000)] * 20_000)
            large = logs_pb2.PushLogsRequest(batches=[batch]).SerializeToString()
            assert len(large) > 20_000_000
            pushed = logs_pb2.PushLogsResponse.FromString(await channel.unary_unary(PUSH)(large))
            assert pushed.marks[0].next_number == 20_000

            with pytest.raises(grpc.aio.AioRpcError) as error:
                await fetch(channel, "fail")
            assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert error.value.details() == "the bracket is open"
            found = detail(error.value)
            assert (found.code, found.field, found.position, found.hint) == ("bad_regex", "regex", 3, "close it")

            with pytest.raises(grpc.aio.AioRpcError) as error:
                await fetch(channel, "plain")
            assert error.value.code() is grpc.StatusCode.INTERNAL
            assert "\n" not in str(error.value.details())

            ask = {"source": "/a/b", "match_scope": "MATCH_SCOPE_PREFIX"}
            status, body = await post(env, FETCH, ask)
            assert (status, body["scanned"]) == (200, "1")
            status, body = await post(env, FETCH, ask | {"source": "fail"})
            assert (status, body["position"], body["message"]) == (400, 3, "the bracket is open")
            status, body = await post(env, FETCH, ask | {"sauce": "x"})
            assert (status, body["field"]) == (400, "sauce")

    run(main())


def test_deadline_and_cancellation_pass(store: Store) -> None:
    async def main() -> None:
        async with serving(raw={"LogService": lambda: store.address}) as env, env.channel() as channel:
            call = asyncio.ensure_future(fetch(channel, "wait", timeout=20))
            await heard(store, "waiting 20")
            call.cancel()
            await heard(store, "cancelled")
            store.said.clear()
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await fetch(channel, "wait", timeout=0.5)
            assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            await heard(store, "cancelled")

    run(main())


async def refused(env: Env, channel: Any) -> None:
    """Down is one clear line, at once, over both."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await fetch(channel, timeout=10)
    assert error.value.code() is grpc.StatusCode.UNAVAILABLE
    assert error.value.details() == "the log store is not running; the controller is restarting it"
    assert detail(error.value).code == "log_store_down"
    assert detail(error.value).retry_after_ms == 1000
    status, body = await post(env, FETCH, {"source": "/a/b", "match_scope": 1})
    assert (status, body["status"], body["code"]) == (503, "UNAVAILABLE", "log_store_down")


async def back(channel: Any, generation: int) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                answer, _ = await fetch(channel, timeout=5)
            except grpc.aio.AioRpcError as error:
                assert error.code() is grpc.StatusCode.UNAVAILABLE
                await asyncio.sleep(0.02)
                continue
            if answer.scanned == generation:
                return


def test_death_and_return(store: Store) -> None:
    async def main() -> None:
        address = [store.address]
        async with serving(raw={"LogService": lambda: address[0]}) as env, env.channel() as channel:
            await fetch(channel)

            # In the middle of a call.
            waiting = asyncio.ensure_future(fetch(channel, "wait"))
            await heard(store, "waiting 60")
            store.kill()
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await waiting
            assert error.value.code() is grpc.StatusCode.UNAVAILABLE
            await refused(env, channel)

            # At the same address, as one that was restarted in place.
            store.start(int(store.address.rpartition(":")[2]))
            await back(channel, 2)

            # Known to be gone, then at another address.
            store.kill()
            address[0] = ""
            await refused(env, channel)
            store.start()
            assert store.address != address[0]
            address[0] = store.address
            await back(channel, 3)

            # The rest of the port never noticed.
            await channel.unary_unary("/iris.v1.ControllerService/ListJobs")(b"", timeout=5)

    run(main())


def test_an_unauthorised_call_never_reaches_the_store(store: Store) -> None:
    async def main() -> None:
        async with serving(raw={"LogService": lambda: store.address}) as env, env.channel() as channel:
            user = (("authorization", f"Bearer {env.signer.user_token('ann')}"),)
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await channel.unary_unary(PUSH)(b"", metadata=user)
            assert error.value.code() is grpc.StatusCode.PERMISSION_DENIED
            env.pretend.append("203.0.113.9:4000")
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await fetch(channel, "wait")
            assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert store.said == []

    run(main())
