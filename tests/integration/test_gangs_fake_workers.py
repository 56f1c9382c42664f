"""Gangs and evictions over real streams: who is told what, and when, by workers that take their time to end what they run."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2, worker_pb2
from providers.fake.worker import FakeWorker, run_on
from tests.integration.controller_rig import Rig, launch_request, rig

pytestmark = pytest.mark.asyncio
RUNNING = common_pb2.TASK_STATE_RUNNING
PREEMPTED = common_pb2.TASK_STATE_PREEMPTED
BATCH = common_pb2.PRIORITY_BAND_BATCH
PRODUCTION = common_pb2.PRIORITY_BAND_PRODUCTION


def lingers(worker: FakeWorker, wanted: worker_pb2.DesiredAttempt) -> Iterable[worker_pb2.Observation]:
    """Runs for ever, and does not say when it has been stopped: the test does."""
    return [] if wanted.HasField("stop") else run_on(worker, wanted)


def stopping(worker: FakeWorker) -> list[str]:
    return [a.attempt_uid for a in worker.desired.attempts if a.HasField("stop")]


def confirm(worker: FakeWorker) -> None:
    worker.report([worker.observation(uid, common_pb2.TASK_STATE_KILLED) for uid in stopping(worker)])


@asynccontextmanager
async def slice_of(r: Rig, size: int = 2) -> AsyncIterator[list[FakeWorker]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                r.worker(f"x-{index}", lingers, attributes={"tpu-name": "x", "tpu-worker-id": str(index)})
            )
            for index in range(size)
        ]


async def launch(r: Rig, name: str, band: common_pb2.PriorityBand, tasks: int, group_by: str = "tpu-name") -> None:
    request = launch_request(name, priority_band=band, max_retries_preemption=3)
    request.replicas = tasks
    request.resources.cpu_millicores = 3_000
    if group_by:
        request.coscheduling.group_by = group_by
    await r.call("LaunchJob", request, controller_pb2.LaunchJobResponse)


async def states(r: Rig, job_id: str, tasks: int) -> list[int]:
    return [(await r.task(f"{job_id}/{index}")).task.state for index in range(tasks)]


async def test_a_production_gang_evicts_a_batch_gang_and_each_member_waits_for_its_own_worker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with rig(tmp_path) as r, slice_of(r) as workers:
        await launch(r, "/u/low", BATCH, 2)
        await r.until("/u/low", lambda job: [(c.state, c.count) for c in job.task_counts] == [(RUNNING, 2)])
        with caplog.at_level(logging.INFO, "iris.audit"):
            await launch(r, "/v/high", PRODUCTION, 2)
            for worker in workers:
                await worker.until(lambda w: bool(stopping(w)))
        assert await states(r, "/v/high", 2) == [common_pb2.TASK_STATE_ASSIGNED] * 2
        assert all(len(worker.desired.attempts) == 1 for worker in workers), "the new attempt is not told of yet"
        confirm(workers[1])
        await workers[1].until(lambda w: any(a.HasField("run") for a in w.desired.attempts))
        await r.until("/v/high", lambda job: job.state == common_pb2.JOB_STATE_RUNNING)
        assert stopping(workers[0]) and len(workers[0].desired.attempts) == 1, "its neighbour's end is not its own"
        confirm(workers[0])
        await workers[0].until(lambda w: any(a.HasField("run") for a in w.desired.attempts))
        for index in range(2):
            low = await r.task(f"/u/low/{index}")
            assert (low.task.state, low.task.preemption_count) == (common_pb2.TASK_STATE_PENDING, 1)
            assert low.attempts[0].state == PREEMPTED
            assert low.attempts[0].error == f"Preempted by /v/high/{index} (production over batch)"
        told = [record.getMessage() for record in caplog.records if "event=task_preempted" in record.getMessage()]
        assert len(told) == 2
        assert all(f"entity=/u/low/{i} trigger=/v/high/{i} " in line for i, line in enumerate(sorted(told)))
        await r.until("/u/low", lambda job: "needs 2 workers sharing tpu-name" in job.pending_reason)


async def test_a_withheld_attempt_is_told_after_a_restart_of_the_controller_too(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker("w", lingers) as worker:
        await launch(r, "/u/low", BATCH, 1, "")
        await r.until("/u/low", lambda job: job.state == common_pb2.JOB_STATE_RUNNING)
        await launch(r, "/v/high", PRODUCTION, 1, "")
        await worker.until(lambda w: bool(stopping(w)))
        (victim,) = stopping(worker)
        boot_id = worker.boot_id
    holding = [worker_pb2.Observation(attempt_uid=victim, state=RUNNING)]
    async with rig(tmp_path) as r, r.worker("w", lingers, boot_id=boot_id, holding=holding) as worker:
        await worker.until(lambda w: bool(stopping(w)))
        assert [a.attempt_uid for a in worker.desired.attempts] == [victim]
        confirm(worker)
        await worker.until(lambda w: any(a.HasField("run") for a in w.desired.attempts))
        await r.until("/v/high", lambda job: job.state == common_pb2.JOB_STATE_RUNNING)


async def test_a_small_task_on_one_host_of_a_gang_goes_alone(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        r = await stack.enter_async_context(rig(tmp_path))
        for index in range(4):
            attributes = {"tpu-name": "x", "tpu-worker-id": str(index)}
            await stack.enter_async_context(r.worker(f"x-{index}", run_on, attributes=attributes))
        for name, band, tasks, group_by in (("/t/squat", BATCH, 1, ""), ("/t/prod", PRODUCTION, 4, "tpu-name")):
            request = launch_request(name, priority_band=band, max_retries_preemption=3)
            request.replicas = tasks
            request.resources.memory_bytes = 15 << 30
            if group_by:
                request.coscheduling.group_by = group_by
            await r.call("LaunchJob", request, controller_pb2.LaunchJobResponse)
            await r.until(name, lambda job: [c.state for c in job.task_counts] == [RUNNING])
        await r.until("/t/squat", lambda job: job.preemption_count == 1)
        task = await r.task("/t/squat/0")
        assert task.attempts[0].state == PREEMPTED and "Preempted by /t/prod/" in task.attempts[0].error
        assert sorted([(await r.task(f"/t/prod/{i}")).task.worker_id for i in range(4)]) == [f"x-{i}" for i in range(4)]
