"""Endpoints of running tasks on a controller of the test's own."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from iris_core.wire.gen.iris.v1 import common_pb2, endpoints_pb2
from providers.fake.worker import FakeWorker, run_on
from tests.integration.controller_rig import CONFIG, Rig, rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from iris_core.client.aio import GrpcAsyncClient


@asynccontextmanager
async def running(path: Path, *jobs: str, config: str = CONFIG) -> AsyncIterator[tuple[Rig, FakeWorker]]:
    """A controller with one worker on which the first task of each job runs."""
    async with rig(path, config) as r, r.worker(script=run_on) as worker:
        for job in jobs or ("/u/a",):
            await r.launch(job)
            await r.until_state(job, common_pb2.JOB_STATE_RUNNING)
        yield r, worker


async def register(client: Rig | GrpcAsyncClient, name: str, **values: object) -> endpoints_pb2.Endpoint:
    request = endpoints_pb2.RegisterEndpointRequest(name=name, **values)  # type: ignore[arg-type]
    if not request.address:
        request.address = ":8080"
    called = client.client if isinstance(client, Rig) else client
    answer = await called.call(
        "ControllerService/RegisterEndpoint", request, endpoints_pb2.RegisterEndpointResponse, timeout_s=20
    )
    return answer.endpoint


async def listed(client: Rig | GrpcAsyncClient, prefix: str = "/u/", exact: bool = False) -> list[str]:
    request = endpoints_pb2.ListEndpointsRequest(prefix=prefix, exact=exact)
    called = client.client if isinstance(client, Rig) else client
    answer = await called.call("ControllerService/ListEndpoints", request, endpoints_pb2.ListEndpointsResponse)
    return [endpoint.name for endpoint in answer.endpoints]


async def token_of(r: Rig, worker: FakeWorker, job: str = "/u/a") -> str:
    """The token that the task of a job was given."""
    uid = (await r.task(f"{job}/0")).attempts[-1].attempt_uid
    await worker.until(lambda w: uid in w.seen)
    return worker.seen[uid].run.token
