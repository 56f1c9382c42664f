"""The whole controller, a process of its own so that its processor time is its own, with workers that run nothing.

The workers and the clients are in the measuring process and take their share of the same cores.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from iris_core.client.aio import GrpcAsyncClient
from iris_core.client.calls import Credentials
from iris_core.client.endpoint import parse_url
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2
from providers.fake.worker import FakeWorker

CONFIG = "name: bench\nplatform: {local: }\ncontroller: {local: {port: 0}}\nworker_provider: {}\n"
LAUNCH = "ControllerService/LaunchJob"


@dataclass(slots=True)
class Running:
    """A controller on an empty state directory, its workers, and one client."""

    process: psutil.Process
    url: str
    client: GrpcAsyncClient
    workers: list[FakeWorker]

    def cpu_s(self) -> float:
        """Processor time of the controller so far, without its children."""
        spent = self.process.cpu_times()
        return float(spent.user + spent.system)

    def another_client(self) -> GrpcAsyncClient:
        """One with a connection of its own; the caller closes it."""
        return GrpcAsyncClient(parse_url(self.url), Credentials())

    async def launch(self, request: controller_pb2.LaunchJobRequest, client: GrpcAsyncClient | None = None) -> None:
        await (client or self.client).call(LAUNCH, request, controller_pb2.LaunchJobResponse, timeout_s=120)

    async def finished(self, job_ids: list[str], poll_s: float = 0.02) -> None:
        """Waits until all have succeeded. Raises TimeoutError after ten minutes."""
        ask = controller_pb2.GetJobStateRequest(job_ids=job_ids)
        async with asyncio.timeout(600):
            while True:
                answer = await self.client.call(
                    "ControllerService/GetJobState", ask, controller_pb2.GetJobStateResponse
                )
                if all(state == common_pb2.JOB_STATE_SUCCEEDED for state in answer.states.values()):
                    return
                await asyncio.sleep(poll_s)


def request(name: str, replicas: int = 1) -> controller_pb2.LaunchJobRequest:
    """A job of `true`, 0.1 core a task."""
    made = controller_pb2.LaunchJobRequest(name=name, replicas=replicas)
    made.entrypoint.run_command.argv.append("true")
    made.resources.cpu_millicores = 100
    made.resources.memory_bytes = 1 << 20
    return made


def start(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    """The process and its URL. Raises RuntimeError with its last words."""
    (folder / "bench.yaml").write_text(CONFIG)
    reading, writing = os.pipe()
    words = [sys.executable, "-m", "iris_controller.main", "serve", "--embedded"]
    words += ["--config", str(folder / "bench.yaml"), "--state-dir", str(folder / "state"), "--ready-fd", str(writing)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, pass_fds=(writing,), start_new_session=True)
    os.close(writing)
    with os.fdopen(reading, "rb") as ready:
        line = ready.readline()
    if not line:
        raise RuntimeError((folder / "log").read_text()[-2000:])
    return process, str(json.loads(line)["url"])


@asynccontextmanager
async def controller(workers: int, cpu_millicores: int = 8_000) -> AsyncIterator[Running]:
    """Starts it with so many attached workers and ends it."""
    with tempfile.TemporaryDirectory(prefix="iris-bench-", ignore_cleanup_errors=True) as folder:
        process, url = start(Path(folder))
        try:
            async with AsyncExitStack() as stack:
                client = GrpcAsyncClient(parse_url(url), Credentials())
                stack.push_async_callback(client.close)
                target = url.removeprefix("http://")
                attached = [FakeWorker(target, f"w{n}", cpu_millicores=cpu_millicores) for n in range(workers)]
                for worker in attached:
                    await stack.enter_async_context(worker)
                yield Running(psutil.Process(process.pid), url, client, attached)
        finally:
            process.terminate()
            process.wait(60)
