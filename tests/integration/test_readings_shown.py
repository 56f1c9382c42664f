"""What workers measure of running tasks, as the commands and Watch show it: current memory, CPU, and the peak also afterwards."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2, worker_pb2
from providers.fake.worker import run_on
from tests.integration.controller_rig import Rig, launch_request, rig

if TYPE_CHECKING:
    from pathlib import Path

    from providers.fake.worker import FakeWorker

pytestmark = pytest.mark.asyncio
RUNNING = common_pb2.JOB_STATE_RUNNING


async def listed(world: Rig, job_id: str) -> list[controller_pb2.TaskStatus]:
    request = controller_pb2.ListTasksRequest(job_id=job_id)
    return list((await world.call("ListTasks", request, controller_pb2.ListTasksResponse)).tasks)


async def watched(world: Rig, job_id: str, wanted: object) -> controller_pb2.TaskStatus:
    """The first row of the job's first task that is as wanted."""
    assert callable(wanted)
    selector = controller_pb2.WatchSelector(id="t", kind=controller_pb2.WATCH_KIND_TASKS, job_ids=[job_id])
    request = controller_pb2.WatchRequest(selectors=[selector])
    async with asyncio.timeout(30):
        async for message in world.controller.hub.watch(request, None):
            rows = [message.snapshot.rows] if message.HasField("snapshot") else list(message.delta.rows)
            for status in (status for part in rows for status in part.tasks):
                if status.task_index == 0 and wanted(status):
                    return status
    raise AssertionError("the stream ended")


def usage(uid: str, memory: int, peak: int, cpu: int = 0) -> worker_pb2.AttemptUsage:
    return worker_pb2.AttemptUsage(attempt_uid=uid, memory_bytes=memory, memory_peak_bytes=peak, cpu_millicores=cpu)


async def started(world: Rig, worker: FakeWorker, replicas: int = 2) -> tuple[str, str]:
    request = launch_request("/u/read")
    request.replicas = replicas
    job_id = (await world.call("LaunchJob", request, controller_pb2.LaunchJobResponse)).job_id
    await world.until(job_id, lambda job: sum(c.count for c in job.task_counts if c.state == 3) == replicas)
    return job_id, (await world.task(f"{job_id}/0")).task.attempt_uid


async def test_current_use_is_shown_while_it_runs_and_the_peak_for_good(tmp_path: Path) -> None:
    async with rig(tmp_path) as world, world.worker(script=run_on) as worker:
        job_id, uid = await started(world, worker)
        watching = asyncio.create_task(watched(world, job_id, lambda task: task.memory_bytes == 5_000))
        await asyncio.sleep(0)
        worker.heartbeat([usage(uid, 5_000, 9_000, 1_500), usage("f" * 16, 1, 1)])
        row = await watching
        assert (row.memory_peak_bytes, row.cpu_millicores, row.state) == (9_000, 1_500, common_pb2.TASK_STATE_RUNNING)
        found = await world.task(f"{job_id}/0")
        assert (found.task.memory_bytes, found.task.memory_peak_bytes) == (5_000, 9_000)
        assert found.attempts[0].memory_peak_bytes == 9_000
        assert [task.memory_bytes for task in await listed(world, job_id)] == [5_000, 0]
        end = worker.observation(uid, common_pb2.TASK_STATE_SUCCEEDED, exit_code=0, memory_peak_bytes=12_000)
        worker.report([end])
        row = await watched(world, job_id, lambda task: task.state == common_pb2.TASK_STATE_SUCCEEDED)
        assert (row.memory_peak_bytes, row.memory_bytes, row.cpu_millicores) == (12_000, 0, 0), "Watch keeps the peak"
        assert (await listed(world, job_id))[0].memory_peak_bytes == 12_000


async def test_another_worker_cannot_speak_of_it_and_a_new_controller_knows_the_peaks(tmp_path: Path) -> None:
    async with rig(tmp_path) as world, world.worker(script=run_on) as worker:
        job_id, uid = await started(world, worker)
        async with world.worker("w2", script=run_on) as other:
            other.heartbeat([usage(uid, 7, 7)])
            end = worker.observation(uid, common_pb2.TASK_STATE_SUCCEEDED, exit_code=0, memory_peak_bytes=3_000)
            worker.report([end])
            await world.until(
                job_id, lambda job: any(c.state == common_pb2.TASK_STATE_SUCCEEDED for c in job.task_counts)
            )
            assert (await listed(world, job_id))[0].memory_peak_bytes == 3_000
    async with rig(tmp_path) as world:
        assert (await world.job(job_id)).state == RUNNING
        row = await watched(world, job_id, lambda task: True)
        assert row.memory_peak_bytes == 3_000
