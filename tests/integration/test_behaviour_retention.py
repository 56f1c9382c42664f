"""A running controller forgets what was over for as long as its cluster file says (control-plane §2.1)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from iris_core.contracts import RpcFailed
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2, worker_pb2
from providers.fake.worker import FakeWorker, run_on, succeed
from tests.integration.controller_rig import CONFIG, rig

pytestmark = pytest.mark.asyncio

SHORT = CONFIG.replace("controller: {", "controller: {prune_interval: 100, job_retention: 1, ")


async def test_a_finished_job_is_gone_and_what_runs_is_not(tmp_path: Path) -> None:
    def script(worker: FakeWorker, wanted: worker_pb2.DesiredAttempt) -> Iterable[worker_pb2.Observation]:
        return (run_on if wanted.run.task_id == "/u/runs/0" else succeed)(worker, wanted)

    async with rig(tmp_path, SHORT) as r, r.worker("w1", script):
        await r.launch("/u/runs")
        await r.until_state("/u/runs", common_pb2.JOB_STATE_RUNNING)
        for name in ("/u/done", "/u/runs/child"):
            await r.launch(name)
        async with asyncio.timeout(30):
            while "/u/done" in r.controller.model.jobs:
                await r.controller.loop.next_commit(0.5)
        with pytest.raises(RpcFailed, match="no job") as caught:
            await r.job("/u/done")
        assert caught.value.status == "NOT_FOUND"
        answer = await r.call("ListJobs", controller_pb2.ListJobsRequest(), controller_pb2.ListJobsResponse)
        assert sorted(job.job_id for job in answer.jobs) == ["/u/runs", "/u/runs/child"], "its tree is not over"
        again = await r.launch("/u/done")
        assert again.incarnation and not again.existing
