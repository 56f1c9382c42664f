"""T20: ten times the production mix of calls while 50 tasks a second finish, beside the same without the calls.

A tick is seen from outside here: from the acknowledgement of a submission until the order for its first task is at a worker, which is
one planned slice, one durable transaction and one message.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.controller_process import Running, controller, request
from iris_core.wire.gen.iris.v1 import controller_pb2, endpoints_pb2
from providers.fake.worker import run_on, succeed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from google.protobuf.message import Message

    from benchmarks.measure import Report
    from iris_core.wire.gen.iris.v1 import worker_pb2
    from providers.fake.worker import FakeWorker

WORKERS = 8
SECONDS = 20.0
ROUNDS = 3
JOBS_PER_SECOND, TASKS_PER_JOB = 10, 5
TIMES = 10
MIX = {
    "GetJobState": 7.85,
    "ListEndpoints": 0.90,
    "GetJobStatus": 0.73,
    "RegisterEndpoint": 0.45,
    "ListJobs": 0.29,
    "ExecuteRawQuery": 0.10,
    "LaunchJob": 0.05,
    "ListWorkers": 0.03,
    "ListTasks": 0.02,
}
"""Calls a second, as observed in production."""
HOLD = "/bench/hold"


class Orders:
    """When the first task of each job was ordered; the script of all workers. What holds an endpoint runs on."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}
        self.holding = asyncio.Event()

    def __call__(self, worker: FakeWorker, wanted: worker_pb2.DesiredAttempt) -> Iterable[worker_pb2.Observation]:
        job_id = wanted.run.task_id.rpartition("/")[0]
        self.at.setdefault(job_id, time.perf_counter())
        if job_id != HOLD:
            return succeed(worker, wanted)
        self.holding.set()
        return run_on(worker, wanted)


class Mix:
    """The calls, their durations, and what failed."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._number = 0
        self.spent: dict[str, list[float]] = {method: [] for method in MIX}
        self.errors: list[str] = []

    async def one(self, method: str, _: int) -> None:
        self._number += 1
        began = time.perf_counter()
        try:
            await self._call(method, self._number)
        except Exception as error:
            self.errors.append(f"{method}: {error}")
        self.spent[method].append(time.perf_counter() - began)

    async def _call(self, method: str, number: int) -> None:
        asked, kind = message(method, number)
        await self._running.client.call(f"ControllerService/{method}", asked, kind, timeout_s=30)


def message(method: str, number: int) -> tuple[Message, type[Message]]:
    """What is asked, and the kind of the answer."""
    pb = controller_pb2
    match method:
        case "GetJobState":
            return pb.GetJobStateRequest(job_ids=[HOLD]), pb.GetJobStateResponse
        case "ListEndpoints":
            return endpoints_pb2.ListEndpointsRequest(), endpoints_pb2.ListEndpointsResponse
        case "GetJobStatus":
            return pb.GetJobStatusRequest(job_id=HOLD), pb.GetJobStatusResponse
        case "RegisterEndpoint":
            name = f"e{number % 20}"
            asked = endpoints_pb2.RegisterEndpointRequest(
                name=f"{HOLD}/{name}", address=":8080", task_id=f"{HOLD}/0", endpoint_id=name
            )
            return asked, endpoints_pb2.RegisterEndpointResponse
        case "ListJobs":
            return pb.ListJobsRequest(page_size=50), pb.ListJobsResponse
        case "ExecuteRawQuery":
            sql = "SELECT state, count(*) FROM tasks GROUP BY state"
            return pb.ExecuteRawQueryRequest(sql=sql), pb.ExecuteRawQueryResponse
        case "LaunchJob":
            return request(f"/bench/mix-{time.monotonic_ns()}"), pb.LaunchJobResponse
        case "ListWorkers":
            return pb.ListWorkersRequest(), pb.ListWorkersResponse
    return pb.ListTasksRequest(job_id=HOLD), pb.ListTasksResponse


async def paced(per_second: float, action: Callable[[int], Awaitable[None]]) -> None:
    """Starts the action so often, for `SECONDS`, whether or not the ones before have ended; then waits for all."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    tasks = []
    for number in range(int(per_second * SECONDS)):
        await asyncio.sleep(max(0.0, began + number / per_second - loop.time()))
        tasks.append(asyncio.ensure_future(action(number)))
    await asyncio.gather(*tasks)


async def phase(running: Running, orders: Orders, label: str, mix: Mix | None) -> list[float]:
    """Seconds of each tick."""
    acknowledged: dict[str, float] = {}

    async def submit(number: int) -> None:
        name = f"/bench/{label}-{number}"
        await running.launch(request(name, TASKS_PER_JOB))
        acknowledged[name] = time.perf_counter()

    work = [paced(JOBS_PER_SECOND, submit)]
    if mix is not None:
        work += [paced(rate * TIMES, partial(mix.one, method)) for method, rate in MIX.items()]
    await asyncio.gather(*work)
    await running.finished(list(acknowledged))
    return [max(0.0, orders.at[name] - at) for name, at in acknowledged.items()]


async def measure() -> tuple[list[float], list[float], Mix]:
    """Ticks without and with the calls, and the calls."""
    async with controller(WORKERS) as running:
        orders = Orders()
        for worker in running.workers:
            worker.script = orders
        mix = Mix(running)
        await running.launch(request(HOLD))
        await orders.holding.wait()
        calm: list[float] = []
        busy: list[float] = []
        for round_ in range(ROUNDS):
            calm += await phase(running, orders, f"calm{round_}", None)
            busy += await phase(running, orders, f"busy{round_}", mix)
        return calm, busy, mix


def percentile(values: list[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def run(report: Report) -> None:
    calm, busy, mix = asyncio.run(measure())
    per_second = sum(MIX.values()) * TIMES
    report.absolute("T20", "tick p99, calm: 50 tasks a second finish", percentile(calm, 99) * 1000, "ms")
    report.absolute("T20", f"tick p99 with {per_second:.0f} calls a second", percentile(busy, 99) * 1000, "ms")
    ratio = percentile(busy, 99) / percentile(calm, 99)
    report.absolute("T20", "ratio of the two", ratio, "×", at_most=1.5)
    every = [seconds for spent in mix.spent.values() for seconds in spent]
    report.absolute("T20", "the calls, p50", percentile(every, 50) * 1000, "ms")
    report.absolute("T20", "the calls, p99", percentile(every, 99) * 1000, "ms", at_most=50)
    for method in ("GetJobState", "LaunchJob", "ExecuteRawQuery"):
        report.absolute("T20", f"{method}, p50", percentile(mix.spent[method], 50) * 1000, "ms")
        report.absolute("T20", f"{method}, p99", percentile(mix.spent[method], 99) * 1000, "ms")
    report.absolute("T20", f"errors of {len(every):,} calls", len(mix.errors), "errors", at_most=0)
    for error in mix.errors[:3]:
        print(f"      {error}", flush=True)
