"""Plans over the wire: what they say, that a token does exactly what was planned, and every way in which it is refused."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import TypeVar

import httpcore
import pytest
from google.protobuf.message import Message

from iris_core.client.context import ClientContext, sending
from iris_core.client.endpoint import parse_url
from iris_core.client.http_client import HttpClient
from iris_core.contracts import Denied, RpcFailed
from iris_core.wire.gen.iris.v1 import budgets_pb2, common_pb2, plan_pb2
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from providers.fake.worker import run_on
from tests.integration.controller_rig import Rig, launch_request, rig

pytestmark = pytest.mark.asyncio

R = TypeVar("R", bound=Message)
RUNNING = common_pb2.JOB_STATE_RUNNING


async def plan(r: Rig, method: str, *requests: Message) -> plan_pb2.PlanResponse:
    asked = plan_pb2.PlanRequest(
        method=f"ControllerService/{method}", requests=[request.SerializeToString() for request in requests]
    )
    return await r.call("Plan", asked, plan_pb2.PlanResponse)


def _remove(folder: Path, name: str) -> None:
    (stored,) = folder.rglob(name)
    stored.unlink()


async def under(r: Rig, token: str, method: str, request: Message, response: type[R], confirm: str = "") -> R:
    with sending(plan_token=token, confirm=confirm):
        return await r.call(method, request, response)


async def test_cancelling_says_what_ends_and_the_token_ends_exactly_that(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "iris.audit")
    async with rig(tmp_path) as r, r.worker("w1", run_on):
        await r.launch("/ada/train")
        await r.launch("/ada/train/eval")
        await r.until_state("/ada/train/eval", RUNNING)
        await r.until_state("/ada/train", RUNNING)
        request = pb.TerminateJobRequest(job_id="/ada/train")
        found = await plan(r, "TerminateJob", request)
        assert found.tier == 2, "a child job ends, too"
        assert list(found.effects) == ["ends 2 running tasks as killed", "ends 1 child job below it, too"]
        assert (found.counts.jobs, found.counts.child_jobs, found.counts.running_tasks) == (2, 1, 2)
        assert [(t.kind, t.id, t.note) for t in found.targets] == [("job", "/ada/train", "running")]
        assert found.token and found.cluster == "rig" and 0 < found.expires_in_ms <= 300_000
        with sending(context=ClientContext("console", "iris-core job cancel /ada/train", "too slow", True)):
            request.reason = "too slow"
            request.request_id = "once"
            ended = await under(r, found.token, "TerminateJob", request, pb.TerminateJobResponse)
            again = await under(r, found.token, "TerminateJob", request, pb.TerminateJobResponse)
        assert list(ended.job_ids) == ["/ada/train", "/ada/train/eval"] and again == ended
        request.request_id = "twice"
        with pytest.raises(RpcFailed, match="carried out before") as refused:
            await under(r, found.token, "TerminateJob", request, pb.TerminateJobResponse)
        assert refused.value.code == "replan"
    lines = [line for line in caplog.messages if line.startswith("event=operator_change")]
    assert len(lines) == 1, "a repeat is no second change"
    assert lines[0].startswith("event=operator_change entity=/ada/train trigger=local_admin method=TerminateJob")
    for part in (
        "interface=console",
        'command="iris-core job cancel /ada/train"',
        'reason="too slow"',
        "pasted=true",
        "targets=/ada/train target_count=1 job_ids=2 planned=true plan_targets=1 plan_jobs=2 plan_running_tasks=2",
    ):
        assert part in lines[0], part


async def test_what_was_replaced_or_ended_meanwhile_is_refused_and_nothing_is_done(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker("w1", run_on):
        await r.launch("/ada/a")
        await r.until_state("/ada/a", RUNNING)
        cancel = pb.TerminateJobRequest(job_id="/ada/a")
        kick = pb.KickTasksRequest(targets=["/ada/a/0"], desired_state=common_pb2.TASK_STATE_PREEMPTED)
        of_job, of_task = await plan(r, "TerminateJob", cancel), await plan(r, "KickTasks", kick)
        assert [t.id for t in of_task.targets] == ["/ada/a/0:0"]
        await r.cancel("/ada/a")
        with pytest.raises(RpcFailed, match="the job of /ada/a/0:0 has ended; nothing was done") as refused:
            await under(r, of_task.token, "KickTasks", kick, pb.KickTasksResponse)
        assert refused.value.code == "replan" and refused.value.status == "FAILED_PRECONDITION"
        await r.launch("/ada/a")
        await r.until_state("/ada/a", RUNNING)
        with pytest.raises(RpcFailed, match="job /ada/a was replaced by a new job of that name") as refused:
            await under(r, of_job.token, "TerminateJob", cancel, pb.TerminateJobResponse)
        assert refused.value.code == "replan"
        assert (await r.job("/ada/a")).state == RUNNING
        with pytest.raises(RpcFailed, match="made for another request"):
            other = pb.TerminateJobRequest(job_id="/ada/b")
            await r.launch("/ada/b")
            await under(r, of_job.token, "TerminateJob", other, pb.TerminateJobResponse)


async def test_tasks_without_an_attempt_are_left_out_of_what_is_to_be_sent(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker("w1", run_on):
        await r.launch("/ada/a")
        await r.launch("/ada/waits", resources=common_pb2.Resources(cpu_millicores=10_000_000, memory_bytes=1))
        await r.until_state("/ada/a", RUNNING)
        found = await plan(
            r,
            "KickTasks",
            pb.KickTasksRequest(
                targets=["/ada/a/0", "/ada/waits/0", "/ada/none/0", "nonsense", "/ada/a"],
                desired_state=common_pb2.TASK_STATE_FAILED,
            ),
        )
        assert [skip.id for skip in found.skipped] == ["/ada/waits/0", "/ada/none/0", "nonsense", "/ada/a"]
        sent = pb.KickTasksRequest.FromString(found.requests[0])
        assert list(sent.targets) == ["/ada/a/0"] and found.tier == 1
        assert list(found.effects) == [
            "ends the attempt as failed, whatever budget is left",
            "ends job /ada/a: more tasks fail than tolerated",
        ]
        answer = await under(r, found.token, "KickTasks", sent, pb.KickTasksResponse)
        assert [k.queued for k in answer.results] == [True]
        nothing = await plan(r, "TerminateJob", pb.TerminateJobRequest(job_id="/ada/a"))
        assert not nothing.token and [skip.why for skip in nothing.skipped] == ["has ended as failed"]


async def test_a_budget_that_somebody_else_set_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        mine = budgets_pb2.SetUserBudgetRequest(user_id="ada", budget_limit=500)
        found = await plan(r, "SetUserBudget", mine)
        assert found.effects[0].endswith("→ 500") and found.targets[0].kind == "budget"
        theirs = budgets_pb2.SetUserBudgetRequest(user_id="ada", budget_limit=9_000)
        await r.call("SetUserBudget", theirs, budgets_pb2.SetUserBudgetResponse)
        with pytest.raises(RpcFailed, match="the budget of ada was changed") as refused:
            await under(r, found.token, "SetUserBudget", mine, budgets_pb2.SetUserBudgetResponse)
        assert refused.value.code == "replan"
        now = await r.call(
            "GetUserBudget", budgets_pb2.GetUserBudgetRequest(user_id="ada"), budgets_pb2.GetUserBudgetResponse
        )
        assert now.budget.budget_limit == 9_000


async def test_plans_speak_json_and_refuse_what_is_none(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.launch("/ada/a")
        method = "ControllerService/TerminateJob"
        status, body = await r.post("Plan", {"method": method, "requests_json": [json.dumps({"job_id": "/ada/a"})]})
        assert status == 200 and body["tier"] == 1 and body["token"]
        for asked, said in (
            ({"method": "ControllerService/ListJobs", "requests_json": ["{}"]}, "cannot be planned"),
            ({"method": method}, "1 to 1000 requests"),
            ({"method": method, "requests_json": ['{"jobb": 1}']}, "number 0 is not a valid"),
            ({"method": method, "requests_json": ['{"job_id": "a"}']}, "job id"),
        ):
            status, body = await r.post("Plan", asked)
            assert status == 400 and said in body["error"]["message"] if "error" in body else said in body["message"]


async def test_over_http_a_token_works_as_well_and_a_forged_context_forges_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "iris.audit")
    forged = "x event=job_cancelled entity=/bob/b trigger=bob\nevent=job_cancelled entity=/bob/c"
    async with rig(tmp_path) as r:
        await r.launch("/ada/a")
        await r.launch("/ada/b")
        request = pb.TerminateJobRequest(job_id="/ada/a", request_id="r1")
        found = await plan(r, "TerminateJob", request)
        with HttpClient(parse_url(r.controller.port.url)) as http:

            def end(token: str, sent: pb.TerminateJobRequest, context: ClientContext) -> list[str]:
                with sending(plan_token=token, context=context):
                    answer = http.call("ControllerService/TerminateJob", sent, pb.TerminateJobResponse)
                return list(answer.job_ids)

            context = ClientContext("cli", forged, forged)
            assert await asyncio.to_thread(end, found.token, request, context) == ["/ada/a"]
            other = pb.TerminateJobRequest(job_id="/ada/b", request_id="r2")
            with pytest.raises(RpcFailed, match="another request"):
                await asyncio.to_thread(end, found.token, other, context)
        async with httpcore.AsyncConnectionPool() as pool:
            answer = await pool.request(
                "POST",
                f"{r.controller.port.url}/iris.v1.ControllerService/TerminateJob",
                headers={"content-type": "application/json", "iris-client-context": "y" * 3000},
                content=b'{"job_id": "/ada/b"}',
            )
            assert answer.status == 200, "a context that cannot be read stops nothing"
    lines = [line for line in caplog.messages if line.startswith("event=operator_change")]
    assert len(lines) == 2 and all("\n" not in line and "event=job_cancelled" not in line for line in lines)
    assert all(" trigger=bob" not in line and " entity=/bob" not in line for line in lines)
    assert (
        'client_context="left out: 3000 bytes, at most 2048" targets=/ada/b target_count=1 job_ids=1 planned=false'
        in lines[1]
    )


async def test_a_read_only_console_may_plan_and_may_not_carry_out(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.launch("/ada/a")
        request = pb.TerminateJobRequest(job_id="/ada/a")
        with sending(read_only=True):
            found = await plan(r, "TerminateJob", request)
            assert found.token
            with pytest.raises(Denied, match="read-only"):
                await under(r, found.token, "TerminateJob", request, pb.TerminateJobResponse)
        assert (await r.job("/ada/a")).state == common_pb2.JOB_STATE_PENDING


async def test_a_rerun_takes_its_secrets_along_and_says_what_is_gone(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        first = launch_request("/ada/a", timeout_ms=60_000)
        first.entrypoint.run_command.argv[:] = ["train", "--lr", "1"]
        first.environment.env_vars.update({"HF_TOKEN": "hf_geheim", "MODE": "fast", "OLD": "1"})
        made = await r.call("LaunchJob", first, pb.LaunchJobResponse)
        again = pb.LaunchJobRequest(name="/ada/b", replicas=2, submit_argv=["iris", "job", "rerun"])
        again.environment.env_vars["MODE"] = "slow"
        again.rerun.job_id, again.rerun.incarnation = "/ada/a", made.incarnation
        again.rerun.remove_env.append("OLD")
        again.rerun.clear.append("timeout_ms")
        found = await plan(r, "LaunchJob", again)
        assert found.effects[0] == "submits /ada/b: 2 tasks in band interactive" and found.tier == 0
        await under(r, found.token, "LaunchJob", again, pb.LaunchJobResponse)
        job = r.controller.model.jobs["/ada/b"]
        stored = pb.LaunchJobRequest.FromString(job.spec.request)
        assert dict(stored.environment.env_vars).keys() == {"HF_TOKEN", "MODE"}
        assert stored.environment.env_vars["MODE"] == "slow" and b"hf_geheim" not in job.spec.request
        assert list(stored.entrypoint.run_command.argv) == ["train", "--lr", "1"]
        assert (job.num_tasks, job.spec.timeout_ms, stored.rerun.job_id) == (2, 0, "/ada/a")
        again.rerun.incarnation = 1
        with pytest.raises(RpcFailed, match="was replaced") as refused:
            await plan(r, "LaunchJob", again)
        assert refused.value.code == "replan"
        again.rerun.incarnation = 0
        again.rerun.remove_env[:] = ["NONE"]
        with pytest.raises(RpcFailed, match="was not given 'NONE'"):
            await plan(r, "LaunchJob", again)


async def test_a_rerun_whose_bundle_is_gone_is_refused_by_its_plan(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        data = b"PK\x05\x06" + bytes(18)
        bundle = hashlib.sha256(data).hexdigest()
        await r.call("PutBundle", pb.PutBundleRequest(bundle_id=bundle, data=data), pb.PutBundleResponse)
        await r.launch("/ada/a", bundle_id=bundle)
        again = pb.LaunchJobRequest(name="/ada/b", rerun=pb.Rerun(job_id="/ada/a"))
        assert (await plan(r, "LaunchJob", again)).token
        await asyncio.to_thread(_remove, tmp_path, f"{bundle}.zip")
        with pytest.raises(RpcFailed, match="is no longer stored") as refused:
            await plan(r, "LaunchJob", again)
        assert refused.value.code == "bundle_missing"
