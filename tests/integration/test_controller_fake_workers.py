"""The controller against workers that follow a script: the whole path of a job, and what a lying worker cannot do."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from iris_core.auth.keys import load_key
from iris_core.auth.tokens import TokenSigner
from iris_core.contracts import Denied, RpcFailed
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2, worker_pb2
from providers.fake.worker import FakeWorker, run_on, succeed
from tests.integration.controller_rig import CONFIG, Rig, connect, launch_request, rig

SUCCEEDED = common_pb2.JOB_STATE_SUCCEEDED
RUNNING = common_pb2.JOB_STATE_RUNNING
KILLED = common_pb2.JOB_STATE_KILLED
pytestmark = pytest.mark.asyncio


async def test_a_job_goes_from_submit_to_done(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker():
        answer = await r.launch("/u/a")
        status = await r.until_state("/u/a", SUCCEEDED)
        assert answer.incarnation == status.incarnation
        assert status.exit_code == 0 and status.num_tasks == 1
        task = await r.task("/u/a/0")
        assert [a.state for a in task.attempts] == [common_pb2.TASK_STATE_SUCCEEDED]
        assert task.task.worker_id == "w1" and task.attempts[0].log_lines == 0


async def test_pending_work_says_why(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.launch("/u/a")
        status = await r.until("/u/a", lambda j: "no worker" in j.pending_reason)
        assert status.state == common_pb2.JOB_STATE_PENDING
        async with r.worker():
            request = launch_request("/u/big")
            request.resources.cpu_millicores = 512_000
            await r.call("LaunchJob", request, controller_pb2.LaunchJobResponse)
            big = await r.until("/u/big", lambda j: "512" in j.pending_reason)
            assert big.state == common_pb2.JOB_STATE_PENDING


async def test_a_repeated_request_id_launches_one_job(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker():
        requests = [launch_request("/u/a", request_id="same") for _ in range(8)]
        answers = await asyncio.gather(*(r.call("LaunchJob", q, controller_pb2.LaunchJobResponse) for q in requests))
        assert len({a.incarnation for a in answers}) == 1
        await r.until_state("/u/a", SUCCEEDED)
        again = await r.call("LaunchJob", requests[0], controller_pb2.LaunchJobResponse)
        assert again.incarnation == answers[0].incarnation, "the answer outlives the job's end"
        with pytest.raises(RpcFailed, match="was used for LaunchJob"):
            await r.call(
                "TerminateJob",
                controller_pb2.TerminateJobRequest(job_id="/u/a", request_id="same"),
                controller_pb2.TerminateJobResponse,
            )


async def test_another_request_under_a_used_id_is_refused_and_does_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker(script=run_on):
        first = await r.launch("/u/a", request_id="same")
        await r.launch("/u/old", request_id="old")
        for name, retries in (("/u/b", 0), ("/u/a", 3)):
            with pytest.raises(RpcFailed) as refused:
                await r.launch(name, request_id="same", max_retries_failure=retries)
            assert (refused.value.status, refused.value.code) == ("INVALID_ARGUMENT", "request_id_reused")
            for part in ("request id same", "another LaunchJob (/u/a)", f"than this one ({name})", "nothing was done"):
                assert part in refused.value.message, refused.value.message
        # Also while the first one is not done, and for what keeps its answers in memory alone.
        both = [r.launch(name, request_id="at once") for name in ("/u/c", "/u/d")]
        answers = await asyncio.gather(*both, return_exceptions=True)
        assert sorted(type(answer).__name__ for answer in answers) == ["LaunchJobResponse", "RpcFailed"], answers
        await r.until_state("/u/a", RUNNING)
        await kick(r, "/u/a/0", request_id="kick")
        with pytest.raises(RpcFailed, match="another KickTasks"):
            await kick(r, "/u/a/0", reason="other", request_id="kick")
        names = set(r.controller.model.jobs)
        assert "/u/b" not in names and len(names & {"/u/c", "/u/d"}) == 1
    with sqlite3.connect(tmp_path / "db" / "controller.sqlite3") as connection:
        # As a release wrote it that kept no digest.
        connection.execute("UPDATE request_ids SET request_sha256 = x'' WHERE request_id = 'old'")
    connection.close()
    async with rig(tmp_path) as r:
        with pytest.raises(RpcFailed, match=r"another LaunchJob \(/u/a\) than this one \(/u/b\)"):
            await r.launch("/u/b", request_id="same")
        assert await r.launch("/u/a", request_id="same") == first
        assert (await r.launch("/u/b", request_id="old")).job_id == "/u/old"


async def test_a_running_name_is_taken_and_a_finished_one_is_replaced(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker(script=run_on):
        first = await r.launch("/u/a")
        await r.until_state("/u/a", RUNNING)
        with pytest.raises(RpcFailed, match="/u/a") as caught:
            await r.launch("/u/a")
        assert caught.value.status == "ALREADY_EXISTS"
        assert await r.cancel("/u/a") == ["/u/a"]
        second = await r.launch("/u/a")
        assert second.incarnation > first.incarnation
        await r.until_state("/u/a", RUNNING)


async def test_cancel_ends_the_subtree_and_holds_capacity_until_confirmed(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        silent = r.worker(script=lambda w, d: [] if d.HasField("stop") else run_on(w, d))
        async with silent:
            await r.launch("/u/a")
            await r.launch("/u/a/kid")
            await r.until_state("/u/a/kid", RUNNING)
            assert await r.cancel("/u/a") == ["/u/a", "/u/a/kid"]
            assert (await r.job("/u/a/kid")).state == KILLED
            await silent.until(lambda w: sum(a.HasField("stop") for a in w.desired.attempts) == 2)
            workers = await r.call(
                "ListWorkers", controller_pb2.ListWorkersRequest(), controller_pb2.ListWorkersResponse
            )
            assert workers.workers[0].committed.cpu_millicores == 200
            silent.report([silent.observation(uid, common_pb2.TASK_STATE_KILLED) for uid in list(silent.seen)])
            async with asyncio.timeout(60):
                while workers.workers[0].committed.cpu_millicores:
                    await r.controller.loop.next_commit(0.5)
                    workers = await r.call(
                        "ListWorkers", controller_pb2.ListWorkersRequest(), controller_pb2.ListWorkersResponse
                    )


async def test_a_lying_worker_is_ignored_and_counted(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker("w1", run_on) as honest, r.worker("w2", run_on) as liar:
        request = launch_request("/u/a")
        request.replicas = 2
        await r.call("LaunchJob", request, controller_pb2.LaunchJobResponse)
        await r.until(
            "/u/a", lambda j: any(c.state == common_pb2.TASK_STATE_RUNNING and c.count == 2 for c in j.task_counts)
        )
        mine = next(iter(honest.seen), "") or next(iter(liar.seen))
        lies = [
            liar.observation("f" * 16, common_pb2.TASK_STATE_SUCCEEDED),
            liar.observation("", common_pb2.TASK_STATE_FAILED, error="x" * 10_000_000),
        ]
        if honest.seen:
            lies.append(liar.observation(mine, common_pb2.TASK_STATE_FAILED, error="not mine"))
        before = r.controller.sessions.ignored_observations
        liar.report(lies)
        await liar.until(lambda w: w.acked >= lies[-1].seq)
        assert r.controller.sessions.ignored_observations == before + len(lies)
        assert (await r.job("/u/a")).state == RUNNING
        for uid in [*honest.seen, *liar.seen]:
            worker = honest if uid in honest.seen else liar
            worker.report([worker.observation(uid, common_pb2.TASK_STATE_SUCCEEDED, exit_code=0)])
            worker.report([worker.observation(uid, common_pb2.TASK_STATE_RUNNING)])
            worker.report([worker.observation(uid, common_pb2.TASK_STATE_FAILED, exit_code=1)])
        assert (await r.until_state("/u/a", SUCCEEDED)).failure_count == 0


async def test_a_long_error_is_cut(tmp_path: Path) -> None:
    def fail(worker: FakeWorker, wanted: worker_pb2.DesiredAttempt) -> list[worker_pb2.Observation]:
        error = "é" * 5_000_000
        return [worker.observation(wanted.attempt_uid, common_pb2.TASK_STATE_FAILED, exit_code=1, error=error)]

    async with rig(tmp_path) as r, r.worker(script=fail):
        await r.launch("/u/a")
        status = await r.until_state("/u/a", common_pb2.JOB_STATE_FAILED)
        assert len(status.error.encode()) <= 4096


async def test_a_worker_that_comes_back_as_another_process_lost_its_tasks(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        async with r.worker(script=run_on):
            await r.launch("/u/a")
            await r.until_state("/u/a", RUNNING)
        async with r.worker(script=succeed):
            await r.until_state("/u/a", SUCCEEDED)
            task = await r.task("/u/a/0")
            assert [a.state for a in task.attempts] == [
                common_pb2.TASK_STATE_WORKER_FAILED,
                common_pb2.TASK_STATE_SUCCEEDED,
            ]
            assert task.task.preemption_count == 1


async def test_a_worker_that_reconnects_keeps_its_tasks(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        async with r.worker(script=run_on, boot_id="a" * 16) as first:
            await r.launch("/u/a")
            await r.until_state("/u/a", RUNNING)
        holding = [o for uid in first.seen for o in [first.observation(uid, common_pb2.TASK_STATE_RUNNING)]]
        async with r.worker(script=run_on, boot_id="a" * 16, holding=holding) as again:
            assert [a.attempt_uid for a in again.desired.attempts] == list(first.seen)
            assert all(a.keep for a in again.desired.attempts)
            again.report([again.observation(uid, common_pb2.TASK_STATE_SUCCEEDED, exit_code=0) for uid in first.seen])
            await r.until_state("/u/a", SUCCEEDED)
            assert len((await r.task("/u/a/0")).attempts) == 1


async def test_a_job_survives_a_restart_of_the_controller(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker(script=run_on, boot_id="a" * 16) as first:
        await r.launch("/u/a")
        await r.until_state("/u/a", RUNNING)
    async with rig(tmp_path) as r:
        assert (await r.job("/u/a")).state == RUNNING
        holding = [first.observation(uid, common_pb2.TASK_STATE_SUCCEEDED, exit_code=0) for uid in first.seen]
        async with r.worker(script=run_on, boot_id="a" * 16, holding=holding) as again:
            await r.until_state("/u/a", SUCCEEDED)
            await again.until(lambda w: w.acked >= holding[-1].seq)


async def test_a_thousand_jobs_and_a_hundred_thousand_tasks_are_taken(tmp_path: Path) -> None:
    config = CONFIG.replace("controller: {", "controller: {max_active_tasks_per_user: 200000, ")
    async with rig(tmp_path, config) as r:
        for batch in range(10):
            await asyncio.gather(*(r.launch(f"/u/j{batch}-{n}") for n in range(30)))
        for n in range(10):
            request = launch_request(f"/u/big{n}")
            request.replicas = 10_000
            await r.call("LaunchJob", request, controller_pb2.LaunchJobResponse)
        jobs = await r.call("ListJobs", controller_pb2.ListJobsRequest(page_size=1), controller_pb2.ListJobsResponse)
        assert jobs.total_count == 310
        state = await r.call(
            "GetSchedulerState", controller_pb2.GetSchedulerStateRequest(), controller_pb2.GetSchedulerStateResponse
        )
        assert state.total_pending == 100_300 and state.queue_capped
        page = await r.call(
            "ListTasks",
            controller_pb2.ListTasksRequest(job_id="/u/big9", page_size=2000),
            controller_pb2.ListTasksResponse,
        )
        assert page.total_count == 10_000 and page.tasks[-1].task_index == 1999 and page.next_page_token


async def test_a_task_token_reaches_its_own_subtree_and_nothing_else(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker(script=run_on) as worker:
        await r.launch("/u/a")
        await r.launch("/u/other")
        await r.until_state("/u/a", RUNNING)
        token = next(d.run.token for d in worker.seen.values() if d.run.task_id == "/u/a/0")
        inside = connect(r.controller, token)
        try:
            launch = "ControllerService/LaunchJob"
            await inside.call(launch, launch_request("/u/a/kid"), controller_pb2.LaunchJobResponse)
            for name in ("/u/b", "/u/a", "/u/other/kid", "/v/a"):
                with pytest.raises(Denied):
                    await inside.call(launch, launch_request(name), controller_pb2.LaunchJobResponse)
            with pytest.raises(Denied):
                await inside.call(
                    "ControllerService/ExecuteRawQuery",
                    controller_pb2.ExecuteRawQueryRequest(sql="SELECT 1"),
                    controller_pb2.ExecuteRawQueryResponse,
                )
            with pytest.raises(Denied):
                request = controller_pb2.TerminateJobRequest(job_id="/u/other")
                await inside.call("ControllerService/TerminateJob", request, controller_pb2.TerminateJobResponse)
            assert await r.cancel("/u/a") == ["/u/a", "/u/a/kid"]
            with pytest.raises(Denied):
                await inside.call(launch, launch_request("/u/a/late"), controller_pb2.LaunchJobResponse)
        finally:
            await inside.close()


async def kick(r: Rig, *targets: str, **values: object) -> list[controller_pb2.KickResult]:
    values.setdefault("desired_state", common_pb2.TASK_STATE_PREEMPTED)
    request = controller_pb2.KickTasksRequest(targets=targets, **values)  # type: ignore[arg-type]
    return list((await r.call("KickTasks", request, controller_pb2.KickTasksResponse)).results)


async def test_a_preempted_task_runs_again_and_a_failed_one_does_not(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker(script=run_on):
        await r.launch("/u/a")
        await r.until_state("/u/a", RUNNING)
        (dry,) = await kick(r, "/u/a", dry_run=True, request_id="same")
        first = await kick(r, "/u/a/0", "/u/a/0:5", "nonsense", reason="drain", request_id="same")
        assert [(k.target, k.task_id, k.queued) for k in (dry, first[0])] == [
            ("/u/a", "/u/a/0", True),
            ("/u/a/0", "/u/a/0", True),
        ]
        assert [k.queued for k in first[1:]] == [False, False] and all(k.detail for k in first[1:])
        await r.until("/u/a", lambda j: j.preemption_count == 1)
        await r.until("/u/a", lambda j: any(c.state == common_pb2.TASK_STATE_RUNNING for c in j.task_counts))
        again = await kick(r, "/u/a/0", "/u/a/0:5", "nonsense", reason="drain", request_id="same")
        assert again == first, "a repeat gets the first answer and kicks nothing"
        attempts = (await r.task("/u/a/0")).attempts
        assert [a.state for a in attempts] == [common_pb2.TASK_STATE_PREEMPTED, common_pb2.TASK_STATE_RUNNING]
        assert "drain" in attempts[0].error and attempts[0].finished_at_ms, "the worker confirmed its end"
        await kick(r, "/u/a/0:1", desired_state=common_pb2.TASK_STATE_FAILED)
        failed = await r.until_state("/u/a", common_pb2.JOB_STATE_FAILED)
        assert (failed.failure_count, failed.preemption_count) == (1, 1)
        (late,) = await kick(r, "/u/a/0:1")
        assert late.detail == "its job has ended as failed"


async def test_a_kick_is_refused_per_target_for_a_stranger_and_whole_when_it_is_malformed(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker(script=run_on):
        for name in ("/u/a", "/v/a"):
            await r.launch(name)
            await r.until_state(name, RUNNING)
        signer = TokenSigner(load_key(tmp_path / "signing.key"))
        stranger = connect(r.controller, signer.user_token("v"))
        try:
            request = controller_pb2.KickTasksRequest(
                targets=["/u/a/0", "/v/a/0"], desired_state=common_pb2.TASK_STATE_FAILED
            )
            answer = await stranger.call("ControllerService/KickTasks", request, controller_pb2.KickTasksResponse)
            assert [k.queued for k in answer.results] == [False, True]
            assert answer.results[0].detail == "/u/a/0 belongs to u, you are v"
        finally:
            await stranger.close()
        assert (await r.job("/u/a")).state == RUNNING
        for targets, state, field in (
            ([], common_pb2.TASK_STATE_FAILED, "targets"),
            (["/u/a/0"] * 10_001, common_pb2.TASK_STATE_FAILED, "targets"),
            (["/u/a/0"], common_pb2.TASK_STATE_KILLED, "desired_state"),
        ):
            with pytest.raises(RpcFailed) as caught:
                await kick(r, *targets, desired_state=state)
            assert (caught.value.status, caught.value.field) == ("INVALID_ARGUMENT", field)


async def test_a_gang_must_say_what_its_workers_share(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker():
        for group_by in ("", "no name"):
            with pytest.raises(RpcFailed) as caught:
                await r.launch("/u/gang", coscheduling=controller_pb2.CoschedulingConfig(group_by=group_by))
            assert (caught.value.status, caught.value.field) == ("INVALID_ARGUMENT", "coscheduling.group_by")
        with pytest.raises(RpcFailed, match="no job"):
            await r.job("/u/gang")


async def test_timeouts(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.launch("/u/wait", scheduling_timeout_ms=200)
        late = await r.until_state("/u/wait", common_pb2.JOB_STATE_UNSCHEDULABLE)
        assert late.error
        async with r.worker(script=run_on):
            await r.launch("/u/slow", timeout_ms=200, max_retries_failure=5)
            failed = await r.until_state("/u/slow", common_pb2.JOB_STATE_FAILED)
            assert failed.failure_count == 1, "an execution timeout is not retried"


async def test_secrets_are_nowhere_to_be_read(tmp_path: Path) -> None:
    secret = "hunter2-canary-value"
    async with rig(tmp_path) as r:
        request = launch_request("/u/a")
        request.environment.env_vars["API_TOKEN"] = secret
        request.environment.env_vars["STAGE"] = "LIVE"
        request.entrypoint.run_command.argv.append(f"--password={secret}")
        request.submit_argv.extend(["job", "run", "-e", "API_TOKEN", secret])
        await r.call("LaunchJob", request, controller_pb2.LaunchJobResponse)
        shown = await r.call(
            "GetJobStatus", controller_pb2.GetJobStatusRequest(job_id="/u/a"), controller_pb2.GetJobStatusResponse
        )
        assert secret not in str(shown)
        assert shown.request.environment.env_vars["STAGE"] == "LIVE"
        assert "API_TOKEN" in shown.request.environment.env_vars
        for path in (tmp_path / "db").iterdir():
            assert secret.encode() not in path.read_bytes(), path
        async with r.worker(script=run_on) as worker:
            await worker.until(lambda w: bool(w.seen))
            specs = worker.desired.specs
            assert specs and specs[0].environment.env_vars["API_TOKEN"] == secret, "the task itself gets it"


async def test_a_stopping_controller_places_nothing_more(tmp_path: Path) -> None:
    def lost(worker: FakeWorker, wanted: worker_pb2.DesiredAttempt) -> list[worker_pb2.Observation]:
        return [worker.observation(wanted.attempt_uid, common_pb2.TASK_STATE_WORKER_FAILED, error="stopped")]

    async with rig(tmp_path) as r, r.worker(script=run_on) as worker:
        await r.launch("/u/a")
        await r.until_state("/u/a", RUNNING)
        r.controller.ticker.pause()
        worker.script = lost
        worker.report([o for uid in worker.seen for o in lost(worker, worker.seen[uid])])
        await r.until("/u/a", lambda j: j.preemption_count == 1)
        await r.launch("/u/b")
        assert len((await r.task("/u/a/0")).attempts) == 1
        assert (await r.job("/u/b")).state == common_pb2.JOB_STATE_PENDING
