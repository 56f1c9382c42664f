"""Every audit event that the manual names is written when its cause happens, and found as the manual finds it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from iris_core.wire.gen.iris.v1 import (
    budgets_pb2,
    checkpoints_pb2,
    common_pb2,
    controller_pb2,
    endpoints_pb2,
    worker_pb2,
)
from providers.fake.worker import FakeWorker, run_on
from tests.integration.controller_rig import CONFIG, Rig, launch_request, rig

pytestmark = pytest.mark.asyncio

RUNNING = common_pb2.JOB_STATE_RUNNING
SHORT = CONFIG.replace("controller: {", "controller: {prune_interval: 100, worker_retention: 100, ")
EVENTS = {
    "worker_registered entity=w1",
    "worker_attached entity=w1",
    "worker_healthy entity=w1",
    "worker_failing entity=broken",
    "worker_failed entity=w1",
    "worker_pruned entity=w1",
    "reconcile_rpc_failed entity=w1",
    "job_submitted entity=/u/a",
    "assignment_queued entity=/u/a",
    "task_preempted entity=/u/a/0",
    "task_failed entity=/u/a/0",
    "job_terminated entity=/u/a",
    "job_removed entity=/u/a",
    "job_cancelled entity=/u/cancelled",
    "job_completed entity=/u/completed",
    "task_timeout entity=/u/slow/0",
    "task_unschedulable entity=/u/late/0",
    "task_retry entity=/u/staged/0",
    "budget_set entity=ann",
    "endpoint_registered entity=/u/a/web",
    "endpoint_expired entity=/u/a/short",
    "endpoint_removed entity=/u/a/taken",
    "endpoint_token_minted entity=/u/a/web",
    "bundle_stored entity=" + hashlib.sha256(b"x").hexdigest(),
    "checkpoint_taken",
}
STAGING = worker_pb2.FAILURE_KIND_STAGING


def cannot_stage(worker: FakeWorker, wanted: worker_pb2.DesiredAttempt) -> Iterable[worker_pb2.Observation]:
    failed = common_pb2.TASK_STATE_WORKER_FAILED
    return [worker.observation(wanted.attempt_uid, failed, failure_kind=STAGING, error="no space left")]


async def kick(r: Rig, task: str, state: common_pb2.TaskState) -> None:
    request = controller_pb2.KickTasksRequest(targets=[task], desired_state=state, reason="drain")
    answer = await r.call("KickTasks", request, controller_pb2.KickTasksResponse)
    assert answer.results[0].queued, answer.results[0].detail


async def endpoints(r: Rig) -> None:
    """One that stays and has a link to it, one that is taken back, and one whose lease ends."""
    link = endpoints_pb2.ENDPOINT_ACCESS_LINK
    for name, lease_ms in (("web", 0), ("taken", 0), ("short", 1_000)):
        request = endpoints_pb2.RegisterEndpointRequest(
            name=name, address="127.0.0.1:1", task_id="/u/a/0", endpoint_id=name, lease_ms=lease_ms, access=link
        )
        await r.call("RegisterEndpoint", request, endpoints_pb2.RegisterEndpointResponse)
    mint = endpoints_pb2.MintEndpointTokenRequest(name="/u/a/web")
    await r.call("MintEndpointToken", mint, endpoints_pb2.MintEndpointTokenResponse)
    unregister = endpoints_pb2.UnregisterEndpointRequest(endpoint_id="taken")
    await r.call("UnregisterEndpoint", unregister, endpoints_pb2.UnregisterEndpointResponse)
    async with asyncio.timeout(30):
        while "short" in r.controller.model.endpoints:
            await r.controller.loop.next_commit(0.5)


async def come_back(r: Rig, boot_id: str, caplog: pytest.LogCaptureFixture) -> None:
    """w1 again, before it is given up. On a busy machine it may be late and is registered anew: then it leaves and comes once more."""
    async with asyncio.timeout(120):
        while "event=worker_attached entity=w1 " not in caplog.text:
            async with r.worker("w1", run_on, boot_id=boot_id):
                await r.until_workers(lambda workers: any(w.worker_id == "w1" and w.placeable for w in workers))
            await r.until_workers(lambda workers: not any(w.worker_id == "w1" and w.attached for w in workers))


async def provoke(r: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """One of each."""
    budget = budgets_pb2.SetUserBudgetRequest(user_id="ann", budget_limit=5)
    await r.call("SetUserBudget", budget, budgets_pb2.SetUserBudgetResponse)
    bundle = controller_pb2.PutBundleRequest(bundle_id=hashlib.sha256(b"x").hexdigest(), data=b"x")
    await r.call("PutBundle", bundle, controller_pb2.PutBundleResponse)
    await r.launch("/u/late", scheduling_timeout_ms=1)
    await r.until_state("/u/late", common_pb2.JOB_STATE_UNSCHEDULABLE)
    async with r.worker("w1", run_on) as first:
        for name in ("/u/a", "/u/cancelled", "/u/completed"):
            await r.launch(name)
            await r.until_state(name, RUNNING)
        await first.until(lambda w: len(w.seen) == 3)
        await endpoints(r)
        await r.cancel("/u/cancelled")
        complete = controller_pb2.CompleteJobRequest(job_id="/u/completed")
        await r.call("CompleteJob", complete, controller_pb2.CompleteJobResponse)
        await r.launch("/u/slow", timeout_ms=1)
        await r.until_state("/u/slow", common_pb2.JOB_STATE_FAILED)
        await kick(r, "/u/a/0", common_pb2.TASK_STATE_PREEMPTED)
        running = common_pb2.TASK_STATE_RUNNING
        await r.until("/u/a", lambda j: j.preemption_count == 1 and any(c.state == running for c in j.task_counts))
        await kick(r, "/u/a/0", common_pb2.TASK_STATE_FAILED)
        await r.until_state("/u/a", common_pb2.JOB_STATE_FAILED)
        await first.until(lambda w: not w.desired.attempts)
    await r.until_workers(lambda workers: not any(w.attached for w in workers))
    await come_back(r, first.boot_id, caplog)
    async with r.worker("broken", cannot_stage):
        await r.launch("/u/staged")
        await r.until_workers(lambda workers: any(w.excluded for w in workers))
    checkpoint = checkpoints_pb2.BeginCheckpointRequest()
    await r.call("BeginCheckpoint", checkpoint, checkpoints_pb2.BeginCheckpointResponse)
    await r.call("LaunchJob", launch_request("/u/a"), controller_pb2.LaunchJobResponse)
    await r.until_workers(lambda workers: not any(w.worker_id == "w1" for w in workers))


async def process_logs(r: Rig, substring: str) -> str:
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "iris-core"),
        *("process", "logs", f"--substring={substring}", "--max-lines", "400"),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "IRIS_CONTROLLER_URL": r.controller.port.url},
    )
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    return out.decode()


async def test_the_events_of_the_manual_are_written_and_found_by_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("iris_controller.options.LOCAL_DEAD_AFTER_S", 3.0)
    async with rig(tmp_path, SHORT) as r:
        await provoke(r, caplog)
        async with asyncio.timeout(60):
            while missing := [e for e in sorted(EVENTS) if f"event={e} " not in await process_logs(r, "event=")]:
                # What is not shipped yet is so within moments.
                print("not yet:", missing)
        preempted = await process_logs(r, "event=task_preempted")
        assert preempted.count("\n") == 1 and "drain" in preempted
        life = await process_logs(r, "/u/a/0")
        assert life.index("task_preempted") < life.index("task_failed"), "one entity's life, in order"
