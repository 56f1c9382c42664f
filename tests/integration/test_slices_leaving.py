"""Workers whose slice is being deleted are told as stopping, and are not counted as unwell."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from iris_core.client import plans
from iris_core.client.context import ClientContext
from iris_core.wire.gen.iris.v1 import autoscaler_pb2, backends_pb2, controller_pb2
from providers.fake.machines import Outcome
from tests.integration.test_autoscaler_rpc import cluster, job

pytestmark = pytest.mark.asyncio


async def test_workers_of_a_slice_that_is_being_deleted_are_stopping_and_counted_apart(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        c.machines.script("cpu", [Outcome(delete_s=None)])
        await c.rig.call("LaunchJob", job("/u/a"), controller_pb2.LaunchJobResponse)
        (row,) = (await c.until("ready", ready=1)).slices

        async def status() -> tuple[int, int, int]:
            answer = await c.rig.call(
                "GetClusterStatus",
                controller_pb2.GetClusterStatusRequest(),
                controller_pb2.GetClusterStatusResponse,
            )
            return answer.workers_healthy, answer.workers_total, answer.workers_leaving

        async def reaches(wanted: tuple[int, int, int]) -> None:
            async with asyncio.timeout(30):
                while await status() != wanted:
                    await c.rig.controller.loop.next_commit(0.2)

        await reaches((1, 1, 0))
        request = autoscaler_pb2.DeleteSliceRequest(slice_id=row.slice_id)
        plan = await plans.make(c.rig.client, "ControllerService/DeleteSlice", [request])
        (outcome,) = await plans.carry_out(c.rig.client, plan, ClientContext("sdk"), confirm="machines")
        assert outcome.fate is plans.Fate.DONE
        await c.until("the work moved", draining=1, ready=1)
        await reaches((1, 2, 1))
        listed = await c.rig.call(
            "ListWorkers", controller_pb2.ListWorkersRequest(), controller_pb2.ListWorkersResponse
        )
        reasons = {worker.worker_id: worker.health_reason for worker in listed.workers}
        assert reasons.pop(row.vms[0].worker_id) == "stopping: its slice is being deleted"
        assert list(reasons.values()) == [""]
        provider = await c.rig.call(
            "GetProviderStatus", backends_pb2.GetProviderStatusRequest(), backends_pb2.GetProviderStatusResponse
        )
        assert [problem.reason for problem in provider.problems] == ["stopping: its slice is being deleted"]
