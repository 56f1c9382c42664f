"""Duplicate, late and reordered messages change nothing (targets R12); a thundering submit is taken in bounded memory (R16)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from iris_core.contracts import RpcFailed
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2, worker_pb2
from providers.fake.worker import FakeWorker
from tests.integration.controller_rig import Rig, launch_request, rig
from tests.integration.served import launch, served

RETRIED = common_pb2.TASK_STATE_FAILED


class NoisyWorker(FakeWorker):
    """Says things twice, late and out of order; what it says last is always true."""

    chance = random.Random(12)
    late: list[list[worker_pb2.Observation]]

    def report(self, observations: Iterable[worker_pb2.Observation]) -> None:
        said = list(observations)
        super().report(said)
        if not hasattr(self, "late"):
            self.late = []
        if said and self.chance.random() < 0.5:
            super().report(said)
        if said:
            self.late.append(said)
        if len(self.late) > 4:
            super().report(self.late.pop(self.chance.randrange(len(self.late))))


def fails_at_first(worker: FakeWorker, wanted: worker_pb2.DesiredAttempt) -> list[worker_pb2.Observation]:
    """The first attempt of every task fails, the second succeeds."""
    if wanted.HasField("stop"):
        return [worker.observation(wanted.attempt_uid, common_pb2.TASK_STATE_KILLED)]
    running = worker.observation(wanted.attempt_uid, common_pb2.TASK_STATE_RUNNING)
    if wanted.run.attempt_id == 0:
        return [running, worker.observation(wanted.attempt_uid, RETRIED, exit_code=1, error="first")]
    return [running, worker.observation(wanted.attempt_uid, common_pb2.TASK_STATE_SUCCEEDED, exit_code=0)]


async def history(folder: Path, worker: type[FakeWorker], noisy: bool) -> dict[str, Any]:
    chance = random.Random(3)
    async with rig(folder) as r:
        workers = [worker(r.target, f"w{n}", fails_at_first) for n in range(2)]
        async with workers[0], workers[1]:
            for n in range(20):
                request = launch_request(f"/u/j{n}", request_id=f"id{n}", max_retries_failure=1)
                request.replicas = 3
                times = 1 + (noisy and chance.random() < 0.5)
                answers = await asyncio.gather(
                    *(r.call("LaunchJob", request, controller_pb2.LaunchJobResponse) for _ in range(times))
                )
                assert len({a.incarnation for a in answers}) == 1
            for n in range(20):
                await r.until_state(f"/u/j{n}", common_pb2.JOB_STATE_SUCCEEDED)
            if noisy:
                for n in range(20):
                    request = launch_request(f"/u/j{n}", request_id=f"id{n}", max_retries_failure=1)
                    request.replicas = 3
                    await r.call("LaunchJob", request, controller_pb2.LaunchJobResponse)
            return await final(r)


async def final(r: Rig) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for n in range(20):
        for index in range(3):
            shown = await r.task(f"/u/j{n}/{index}")
            found[f"{n}/{index}"] = (shown.task.state, shown.task.failure_count, [a.state for a in shown.attempts])
    return found


@pytest.mark.asyncio
@pytest.mark.timeout(120)
async def test_duplicate_late_and_reordered_messages_end_in_the_same_state(tmp_path: Path) -> None:
    clean = await history(tmp_path / "clean", FakeWorker, False)
    noisy = await history(tmp_path / "noisy", NoisyWorker, True)
    assert noisy == clean
    assert all(state[1] == 1 and len(state[2]) == 2 for state in clean.values())


@pytest.mark.timeout(180)
def test_a_thundering_submit(tmp_path: Path) -> None:
    with served(tmp_path, workers=0) as environment:
        assert environment.process is not None
        process = psutil.Process(environment.process.pid)

        def submit(n: int) -> str:
            with environment.client() as client:
                try:
                    launch(client, f"/u/j{n}", ["true"])
                    return "accepted"
                except RpcFailed as error:
                    return "refused" if error.retry_after_ms else f"lost: {error}"

        with ThreadPoolExecutor(16) as pool:
            outcomes = list(pool.map(submit, range(1_000)))
        assert set(outcomes) <= {"accepted", "refused"}
        with environment.client() as client:
            before = process.memory_info().rss
            for n in range(10):
                # Ten users, because one may have 16,000 tasks.
                launch(client, f"/big{n}/job", ["true"], replicas=10_000)
            request = controller_pb2.GetSchedulerStateRequest()
            state = client.call(
                "ControllerService/GetSchedulerState", request, controller_pb2.GetSchedulerStateResponse
            )
            assert state.total_pending == 100_000 + outcomes.count("accepted")
            grown = process.memory_info().rss - before
            assert grown <= 100_000 * 1024, f"{grown / 100_000:.0f} bytes per pending task"
            for n in range(10):
                gone = controller_pb2.TerminateJobRequest(job_id=f"/big{n}/job")
                client.call("ControllerService/TerminateJob", gone, controller_pb2.TerminateJobResponse, timeout_s=60)
