"""T19: a hot read, GetJobState, beside a bare grpc.aio echo of the same shape: processor time of the server for as many calls.

Ours passes the public port, authentication and the roles table; the echo does nothing.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING

import grpc
import psutil

from benchmarks.controller_process import Running, controller, request
from benchmarks.measure import Sample, Side
from iris_core.wire.gen.iris.v1 import controller_pb2

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from benchmarks.measure import Report

CALLS = 3_000
AT_ONCE = 32
PAIRS = 5
BOUND = 2.0
"""At least half the rate of the echo."""
ECHO = """
import asyncio, grpc

async def main():
    async def echo(request, context):
        return request

    class Handlers(grpc.GenericRpcHandler):
        def service(self, details):
            return grpc.unary_unary_rpc_method_handler(echo)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Handlers(),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()

import uvloop
uvloop.run(main())
"""


async def rate(server: psutil.Process, call: Callable[[], Awaitable[object]]) -> float:
    """Seconds of the server's processor time for `CALLS` calls."""

    async def some() -> None:
        for _ in range(CALLS // AT_ONCE):
            await call()

    before = server.cpu_times()
    await asyncio.gather(*(some() for _ in range(AT_ONCE)))
    after = server.cpu_times()
    return float(after.user + after.system - before.user - before.system)


async def race(running: Running, echo: psutil.Process, port: int) -> tuple[list[Sample], list[Sample]]:
    await running.launch(request("/bench/read"))
    await running.finished(["/bench/read"])
    asked = controller_pb2.GetJobStateRequest(job_ids=["/bench/read"])

    async def ours() -> None:
        await running.client.call("ControllerService/GetJobState", asked, controller_pb2.GetJobStateResponse)

    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        bare = channel.unary_unary("/echo/Echo", request_serializer=None, response_deserializer=None)
        body = bytes(200)

        async def theirs() -> None:
            await bare(body)

        mine, other = [], []
        for number in range(PAIRS + 1):
            pair = await rate(running.process, ours), await rate(echo, theirs)
            if number:
                mine.append(Sample(pair[0]))
                other.append(Sample(pair[1]))
        return mine, other


async def measure(echo: psutil.Process, port: int) -> tuple[list[Sample], list[Sample]]:
    async with controller(workers=1) as running:
        return await race(running, echo, port)


def run(report: Report) -> None:
    echo = subprocess.Popen([sys.executable, "-c", ECHO], stdout=subprocess.PIPE)
    try:
        assert echo.stdout is not None
        port = int(echo.stdout.readline())
        mine, other = asyncio.run(measure(psutil.Process(echo.pid), port))
    finally:
        echo.terminate()
        echo.wait(30)
    ours, theirs = Side("Iris", tuple(mine)), Side("bare grpc.aio echo", tuple(other))
    what = f"GetJobState, {CALLS:,} calls, {AT_ONCE} at once, CPU of the server"
    report.compare("T19", what, ours, theirs, at_most=BOUND)
    report.absolute("T19", "reads per second of the controller's processor time", CALLS / ours.wall_s, "a second")
