"""A real controller inside the test's event loop: real store, real sockets, real log store process; no local workers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpcore
from google.protobuf.message import Message

from iris_controller.options import ServeOptions
from iris_controller.serve import Controller
from iris_controller.state.records import Worker
from iris_core.client.aio import GrpcAsyncClient
from iris_core.client.calls import Credentials
from iris_core.client.endpoint import parse_url
from iris_core.config.cluster import parse_config
from iris_core.model.states import WorkerHealth
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2
from providers.fake.worker import FakeWorker, Script, succeed

R = TypeVar("R", bound=Message)
CONFIG = "name: rig\nplatform: {local: }\ncontroller: {local: {port: 0}}\nworker_provider: {}\n"


class Rig:
    """One controller and a client of it."""

    def __init__(self, controller: Controller, client: GrpcAsyncClient) -> None:
        self.controller = controller
        self.client = client
        self.target = f"127.0.0.1:{controller.port.port}"

    def worker(self, worker_id: str = "w1", script: Script = succeed, **values: object) -> FakeWorker:
        """Entered, it is one that the scheduler may use, or one that was rejected."""
        return _Ready(self, worker_id, script, **values)

    async def call(self, name: str, request: Message, response: type[R]) -> R:
        return await self.client.call(f"ControllerService/{name}", request, response)

    async def post(self, name: str, body: object) -> tuple[int, Any]:
        """The same call over HTTP: status and the answer's JSON."""
        async with httpcore.AsyncConnectionPool() as http:
            answer = await http.request(
                "POST",
                f"{self.controller.port.url}/iris.v1.ControllerService/{name}",
                headers={"content-type": "application/json"},
                content=json.dumps(body).encode(),
            )
        return answer.status, json.loads(answer.content)

    async def launch(self, name: str, **values: object) -> controller_pb2.LaunchJobResponse:
        return await self.call("LaunchJob", launch_request(name, **values), controller_pb2.LaunchJobResponse)

    async def job(self, job_id: str) -> controller_pb2.JobStatus:
        request = controller_pb2.GetJobStatusRequest(job_id=job_id)
        return (await self.call("GetJobStatus", request, controller_pb2.GetJobStatusResponse)).job

    async def task(self, task_id: str) -> controller_pb2.GetTaskStatusResponse:
        request = controller_pb2.GetTaskStatusRequest(task_id=task_id)
        return await self.call("GetTaskStatus", request, controller_pb2.GetTaskStatusResponse)

    async def cancel(self, job_id: str) -> list[str]:
        request = controller_pb2.TerminateJobRequest(job_id=job_id)
        return list((await self.call("TerminateJob", request, controller_pb2.TerminateJobResponse)).job_ids)

    async def until(self, job_id: str, wanted: Callable[[controller_pb2.JobStatus], bool]) -> controller_pb2.JobStatus:
        """Waits on commits until the job is as wanted; raises TimeoutError."""
        async with asyncio.timeout(30):
            while True:
                status = await self.job(job_id)
                if wanted(status):
                    return status
                await self.controller.loop.next_commit(0.5)

    async def until_workers(self, wanted: Callable[[Sequence[Worker]], bool]) -> None:
        """Waits on commits until the workers of the model are as wanted; raises TimeoutError."""
        async with asyncio.timeout(30):
            while not wanted(list(self.controller.model.workers.values())):
                await self.controller.loop.next_commit(0.5)

    async def until_state(self, job_id: str, state: common_pb2.JobState) -> controller_pb2.JobStatus:
        """Waits until the job is in the state; for RUNNING also until a worker says that it runs a task of it."""

        def reached(job: controller_pb2.JobStatus) -> bool:
            said = {count.state for count in job.task_counts}
            return job.state == state and (
                state != common_pb2.JOB_STATE_RUNNING or common_pb2.TASK_STATE_RUNNING in said
            )

        return await self.until(job_id, reached)


class _Ready(FakeWorker):
    """Waits until the controller counts it as healthy: what a test then sees of the fleet does not depend on when a report arrived."""

    def __init__(self, rig: Rig, worker_id: str, script: Script, **values: object) -> None:
        super().__init__(rig.target, worker_id, script, **values)  # type: ignore[arg-type]
        self._rig = rig

    async def __aenter__(self) -> FakeWorker:
        await super().__aenter__()

        def ready(workers: Sequence[Worker]) -> bool:
            return self.rejected is not None or any(
                w.worker_id == self.worker_id and w.health is WorkerHealth.HEALTHY for w in workers
            )

        await self._rig.until_workers(ready)
        return self


def launch_request(name: str, **values: object) -> controller_pb2.LaunchJobRequest:
    request = controller_pb2.LaunchJobRequest(name=name, replicas=1, **values)  # type: ignore[arg-type]
    if not request.entrypoint.run_command.argv:
        request.entrypoint.run_command.argv.append("true")
    if not request.HasField("resources"):
        request.resources.cpu_millicores = 100
        request.resources.memory_bytes = 1 << 20
    return request


async def start(state_dir: Path, config: str = CONFIG, host: str = "127.0.0.1", fresh: bool = False) -> Controller:
    options = ServeOptions(
        config=parse_config(config), state_dir=state_dir, host=host, port=0, fresh=fresh, embedded=True
    )
    controller = Controller(options)
    await controller.start()
    return controller


def connect(controller: Controller, token: str = "") -> GrpcAsyncClient:
    return GrpcAsyncClient(parse_url(controller.port.url), Credentials(token=token))


@asynccontextmanager
async def rig(state_dir: Path, config: str = CONFIG) -> AsyncIterator[Rig]:
    controller = await start(state_dir, config)
    client = connect(controller)
    try:
        yield Rig(controller, client)
    finally:
        await client.close()
        await controller.stop()
