"""The whole controller with workers that run nothing: T11 (submit → done, durable) and T18 (the latency of its RPCs).

The controller is a process of its own, so that its CPU is its own; the fake workers and the client are in this one. Prints tasks per
second, tasks per second of the controller's CPU, and the median of ListJobs(50), LaunchJob and ListTasks(1,000).
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil

from iris_core.client.aio import GrpcAsyncClient
from iris_core.client.calls import Credentials
from iris_core.client.endpoint import parse_url
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2
from providers.fake.worker import FakeWorker

CONFIG = "name: bench\nplatform: {local: }\ncontroller: {local: {port: 0}}\nworker_provider: {}\n"
WORKERS = 8
TASKS = 4_000
JOBS = 40


def request(name: str, replicas: int = 1) -> controller_pb2.LaunchJobRequest:
    made = controller_pb2.LaunchJobRequest(name=name, replicas=replicas)
    made.entrypoint.run_command.argv.append("true")
    made.resources.cpu_millicores = 100
    made.resources.memory_bytes = 1 << 20
    return made


def start(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    """A controller on an empty state directory, and its URL."""
    (folder / "bench.yaml").write_text(CONFIG)
    reading, writing = os.pipe()
    words = [
        sys.executable,
        "-m",
        "iris_controller.main",
        "serve",
        "--config",
        str(folder / "bench.yaml"),
        "--embedded",
    ]
    words += ["--state-dir", str(folder / "state"), "--ready-fd", str(writing)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, pass_fds=(writing,), start_new_session=True)
    os.close(writing)
    with os.fdopen(reading, "rb") as ready:
        line = ready.readline()
    if not line:
        raise RuntimeError((folder / "log").read_text()[-2000:])
    return process, str(json.loads(line)["url"])


async def finished(client: GrpcAsyncClient, job_ids: list[str]) -> None:
    while True:
        ask = controller_pb2.GetJobStateRequest(job_ids=job_ids)
        answer = await client.call("ControllerService/GetJobState", ask, controller_pb2.GetJobStateResponse)
        if all(state == common_pb2.JOB_STATE_SUCCEEDED for state in answer.states.values()):
            return
        await asyncio.sleep(0.02)


async def throughput(client: GrpcAsyncClient, pid: int, label: str, jobs: int, tasks: int) -> None:
    process = psutil.Process(pid)
    before = process.cpu_times()
    began = time.perf_counter()
    names = [f"/bench/{label}{n}" for n in range(jobs)]
    launch = "ControllerService/LaunchJob"
    await asyncio.gather(
        *(
            client.call(launch, request(n, tasks // jobs), controller_pb2.LaunchJobResponse, timeout_s=120)
            for n in names
        )
    )
    await finished(client, names)
    wall = time.perf_counter() - began
    after = process.cpu_times()
    cpu = after.user + after.system - before.user - before.system
    print(f"T11 {label}: {jobs} jobs, {tasks} tasks: {tasks / wall:.0f} tasks/s, {tasks / cpu:.0f} per CPU second")


async def median(times: int, action: Callable[[int], Awaitable[object]]) -> float:
    spent = []
    for n in range(times):
        began = time.perf_counter()
        await action(n)
        spent.append(time.perf_counter() - began)
    return statistics.median(spent) * 1000


async def latencies(client: GrpcAsyncClient) -> None:
    listing = controller_pb2.ListJobsRequest(page_size=50)
    tasks = controller_pb2.ListTasksRequest(job_id="/bench/wide", page_size=1_000)
    await client.call("ControllerService/LaunchJob", request("/bench/wide", 1_000), controller_pb2.LaunchJobResponse)
    await finished(client, ["/bench/wide"])
    launched = await median(
        100,
        lambda n: client.call("ControllerService/LaunchJob", request(f"/bench/l{n}"), controller_pb2.LaunchJobResponse),
    )
    listed = await median(
        100, lambda n: client.call("ControllerService/ListJobs", listing, controller_pb2.ListJobsResponse)
    )
    paged = await median(
        50, lambda n: client.call("ControllerService/ListTasks", tasks, controller_pb2.ListTasksResponse)
    )
    print(f"T18: ListJobs(50) p50 {listed:.1f} ms, LaunchJob p50 {launched:.1f} ms, ListTasks(1000) p50 {paged:.1f} ms")


async def measure(folder: Path) -> None:
    process, url = start(folder)
    try:
        client = GrpcAsyncClient(parse_url(url), Credentials())
        target = url.removeprefix("http://")
        workers = [FakeWorker(target, f"w{n}", cpu_millicores=8_000) for n in range(WORKERS)]
        for worker in workers:
            await worker.__aenter__()
        await throughput(client, process.pid, "many", JOBS, TASKS)
        await throughput(client, process.pid, "single", 600, 600)
        await latencies(client)
        for worker in workers:
            await worker.__aexit__()
        await client.close()
    finally:
        process.terminate()
        process.wait(60)


def main() -> None:
    """`python -m benchmarks.controller_dispatch`"""
    with tempfile.TemporaryDirectory(prefix="iris-bench-", ignore_cleanup_errors=True) as folder:
        asyncio.run(measure(Path(folder)))


if __name__ == "__main__":
    main()
