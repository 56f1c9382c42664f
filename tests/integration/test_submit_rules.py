"""What a controller makes of a submission: stored whole, refused with the field at fault, told once, or doubted (control-plane §1.8)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from iris_controller.rpc.launch import MAX_PORTS
from iris_core.contracts import IrisError, RpcFailed
from iris_core.model.constraints import MAX_CONSTRAINTS
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2, worker_pb2
from providers.fake.worker import FakeWorker, run_on
from tests.integration.controller_rig import CONFIG, Rig, connect, launch_request, rig

pytestmark = pytest.mark.asyncio

RUNNING = common_pb2.JOB_STATE_RUNNING
SUCCEEDED = common_pb2.JOB_STATE_SUCCEEDED
ERROR = common_pb2.EXISTING_JOB_POLICY_ERROR
KEEP = common_pb2.EXISTING_JOB_POLICY_KEEP
RECREATE = common_pb2.EXISTING_JOB_POLICY_RECREATE
EIGHT = common_pb2.Resources(cpu_millicores=100, device=common_pb2.Device(kind="gpu", variant="h100", count=8))
FEW = CONFIG.replace("controller: {", "controller: {max_active_tasks_per_user: 5, ")
WITH_GROUP = (
    CONFIG + "scale_groups:\n  cpu:\n    num_vms: 1\n    max_slices: 0\n    zones: [asia-east1-a]\n"
    "    resources: {cpu: 8, ram: 16GB, device_type: cpu, capacity_type: on-demand}\n"
)


async def refusal(r: Rig, name: str = "/u/j", **values: Any) -> RpcFailed:
    """How a submission is refused; nothing of it may be left."""
    request = values.pop("request", None) or launch_request(name, **values)
    with pytest.raises(IrisError) as caught:
        await r.call("LaunchJob", request, controller_pb2.LaunchJobResponse)
    error = caught.value
    assert isinstance(error, RpcFailed), error
    return error


def constraint(key: str, op: int, *values: str, mode: int = 0) -> common_pb2.Constraint:
    found = common_pb2.Constraint(key=key, op=op, mode=mode)  # type: ignore[arg-type]
    for value in values:
        found.values.add(text=value)
    return found


def rows(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "db" / "controller.sqlite3")) as connection:
        return connection.execute(sql).fetchall()


async def dispatched(worker: FakeWorker, job_id: str) -> worker_pb2.RunSpec:
    """What the worker was told of a job."""
    await worker.until(lambda w: job_id in w.specs)
    return worker.specs[job_id]


async def test_every_option_is_stored_under_the_names_that_operators_query(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.launch(
            "/u/j",
            max_retries_failure=2,
            max_retries_preemption=0,
            max_task_failures=1,
            timeout_ms=1_000,
            scheduling_timeout_ms=2_000,
            ports=["http"],
            task_image="ghcr.io/x/y@sha256:1",
            container_profile=common_pb2.CONTAINER_PROFILE_PRIVILEGED,
            existing_job_policy=ERROR,
            preemption_policy=common_pb2.JOB_PREEMPTION_POLICY_PRESERVE_CHILDREN,
            priority_band=common_pb2.PRIORITY_BAND_SYSTEM,
            system_reason="the hero run",
            submit_argv=["iris", "job", "run", "--token=x"],
            constraints=[constraint("Region", common_pb2.CONSTRAINT_OP_IN, "EU", "us")],
        )
        row = rows(
            tmp_path,
            "SELECT max_retries_failure, max_retries_preemption, max_task_failures, timeout_ms, scheduling_timeout_ms, ports_json,"
            " task_image, container_profile, fail_if_exists, existing_job_policy, preemption_policy, priority_band,"
            " submit_argv_json, constraints_json FROM job_config WHERE job_id = '/u/j'",
        )[0]
        assert row[:12] == (2, 0, 1, 1_000, 2_000, '["http"]', "ghcr.io/x/y@sha256:1", 4, 1, 1, 2, 1)
        assert json.loads(row[12]) == ["iris", "job", "run", "--token=[redacted:token]"]
        assert json.loads(row[13]) == [{"key": "region", "op": "IN", "values": ["eu", "us"], "mode": "REQUIRED"}]
        deadline = rows(tmp_path, "SELECT scheduling_deadline_epoch_ms - submitted_at_ms FROM jobs")
        assert deadline == [(2_000,)]


async def test_a_duplicate_is_one_job_and_a_namesake_is_refused(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        one, two = await asyncio.gather(*(r.launch("/u/j", request_id="same") for _ in range(2)))
        assert one == two == await r.launch("/u/j", request_id="same")
        error = await refusal(r, "/u/j", request_id="other")
        assert (error.status, error.code) == ("ALREADY_EXISTS", "job_exists")
        kept = await r.launch("/u/j", existing_job_policy=KEEP)
        assert kept.incarnation == one.incarnation and kept.existing and not one.existing
        assert (await r.launch("/u/j", existing_job_policy=RECREATE)).incarnation > one.incarnation
        await r.cancel("/u/j")
        assert (await refusal(r, "/u/j", existing_job_policy=ERROR)).code == "job_exists"
        assert (await r.launch("/u/j")).incarnation > one.incarnation


async def test_the_cap_counts_replicas_and_refuses_whole(tmp_path: Path) -> None:
    async with rig(tmp_path, FEW) as r, r.worker():
        request = launch_request("/u/a")
        request.replicas = 6
        error = await refusal(r, request=request)
        assert (error.status, error.code) == ("RESOURCE_EXHAUSTED", "too_many_tasks")
        assert "0 unfinished tasks and may have 5: 6 more" in error.message
        assert rows(tmp_path, "SELECT count(*) FROM jobs") == [(0,)]
        request.replicas = 5
        await r.call("LaunchJob", request, controller_pb2.LaunchJobResponse)
        await r.until_state("/u/a", SUCCEEDED)
        await r.call("LaunchJob", launch_request("/u/b"), controller_pb2.LaunchJobResponse)


async def test_ten_thousand_tasks_are_taken_and_one_more_is_a_failed_job(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        request = launch_request("/u/most")
        request.replicas = 10_000
        await r.call("LaunchJob", request, controller_pb2.LaunchJobResponse)
        assert (await r.job("/u/most")).num_tasks == 10_000
        for name, replicas in (("/v/more", 10_001), ("/v/less", -1)):
            request = launch_request(name)
            request.replicas = replicas
            await r.call("LaunchJob", request, controller_pb2.LaunchJobResponse)
            job = await r.job(name)
            assert (job.state, job.num_tasks) == (common_pb2.JOB_STATE_FAILED, 0)
            assert job.error == f"replicas {replicas} is outside 1..10000"
        error = await refusal(r, request=_of("/u/over", 6_001))
        assert "10000 unfinished tasks and may have 16000: 6001 more" in error.message


def _of(name: str, replicas: int) -> controller_pb2.LaunchJobRequest:
    request = launch_request(name)
    request.replicas = replicas
    return request


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (constraint("region", common_pb2.CONSTRAINT_OP_EQ), "takes exactly one value, not 0"),
        (constraint("region", common_pb2.CONSTRAINT_OP_EQ, "a", "b"), "takes exactly one value, not 2"),
        (constraint("region", common_pb2.CONSTRAINT_OP_EXISTS, "a"), "takes no value"),
        (constraint("region", common_pb2.CONSTRAINT_OP_IN), "takes 1 to 256 values"),
        (constraint("region", 0, "a"), "unknown operator 0"),
        (constraint("region", 42, "a"), "unknown operator 42"),
        (constraint("region", common_pb2.CONSTRAINT_OP_EQ, "a", mode=7), "unknown mode 7"),
        (constraint("gpu-count", common_pb2.CONSTRAINT_OP_EQ, "many"), "gpu-count is a whole number, not 'many'"),
        (constraint("preemptible", common_pb2.CONSTRAINT_OP_EQ, "maybe"), "preemptible is true or false"),
        (constraint("x", common_pb2.CONSTRAINT_OP_GT, "y"), "is not a number"),
        (constraint("", common_pb2.CONSTRAINT_OP_EXISTS), "is not an attribute name"),
        (
            common_pb2.Constraint(key="x", op=common_pb2.CONSTRAINT_OP_EQ, values=[common_pb2.AttributeValue()]),
            "the constraint on 'x' has a value that is neither text nor a number",
        ),
        (
            common_pb2.Constraint(
                key="x", op=common_pb2.CONSTRAINT_OP_EQ, values=[common_pb2.AttributeValue(number=float("nan"))]
            ),
            "is out of range",
        ),
    ],
)
async def test_a_constraint_that_cannot_be_is_refused(tmp_path: Path, wrong: common_pb2.Constraint, said: str) -> None:
    async with rig(tmp_path) as r:
        error = await refusal(r, constraints=[wrong])
        assert error.status == "INVALID_ARGUMENT" and said in error.message, error
        if "unknown operator" in said:
            assert "EQ, NE, EXISTS" in error.hint


async def test_a_request_that_would_cost_everybody_is_refused_before_it_is_looked_at(tmp_path: Path) -> None:
    many = [constraint(f"k{n}", common_pb2.CONSTRAINT_OP_NE, "x") for n in range(MAX_CONSTRAINTS + 1)]
    async with rig(tmp_path) as r:
        for field, asked, said in (
            ("constraints", {"constraints": many}, "101 constraints, at most 100 are allowed"),
            ("environment.setup_scripts", {"environment": setup("#" + "x" * (1 << 20))}, "1 MiB of them"),
            ("environment.setup_scripts", {"environment": setup(*["true"] * 1001)}, "more than 1000 setup steps"),
            ("environment.setup_scripts", {"environment": setup("echo a\0b")}, "contains a NUL"),
            ("submit_argv", {"submit_argv": ["x" * (4 << 20), "y"]}, "longer than 4 MiB"),
        ):
            error = await refusal(r, **asked)
            assert (error.status, error.field) == ("INVALID_ARGUMENT", field) and said in error.message, error
        await r.launch("/u/j", constraints=many[1:])


def setup(*scripts: str) -> controller_pb2.Environment:
    return controller_pb2.Environment(setup_scripts=scripts)


async def test_ports_that_no_host_could_give_are_refused(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        for ports, said in (
            ([f"p{n}" for n in range(MAX_PORTS + 1)], "101 ports, at most 100 are allowed"),
            (["http", "metrics", "http"], "the ports 'http', asked for twice, would share IRIS_PORT_HTTP"),
            (["http", "HTTP"], "the ports 'http' and 'HTTP' would share IRIS_PORT_HTTP"),
        ):
            error = await refusal(r, ports=ports)
            assert (error.status, error.field) == ("INVALID_ARGUMENT", "ports") and said in error.message, error
        await r.launch("/u/j", ports=["http", "metrics"])


async def test_what_nobody_has_is_taken_with_a_warning(tmp_path: Path) -> None:
    places = {"region": "europe-west4", "zone": "europe-west4-a", "rack": "rack-1", "device-type": "tpu"}
    eq, exists = common_pb2.CONSTRAINT_OP_EQ, common_pb2.CONSTRAINT_OP_EXISTS

    async def doubts(*constraints: common_pb2.Constraint) -> list[str]:
        answer = await r.launch("/u/j", constraints=constraints, existing_job_policy=RECREATE)
        return list(answer.warnings)

    async with rig(tmp_path, WITH_GROUP) as r:
        async with r.worker(attributes=places):
            await r.controller.loop.next_commit(5)
            async with asyncio.timeout(60):
                while "w1" not in r.controller.model.workers:
                    await r.controller.loop.next_commit(0.5)
            assert await doubts(constraint("region", eq, "Europe-West4"), constraint("rack", exists)) == []
            assert await doubts(constraint("region", eq, "europe-wets4")) == [
                "no worker has region=europe-wets4; did you mean 'europe-west4'?"
            ]
            assert await doubts(constraint("zone", eq, "asia-east1-b")) == [
                "no worker has zone=asia-east1-b; did you mean 'asia-east1-a'?"
            ], "what a scale group could make is known, too"
            assert await doubts(constraint("regoin", eq, "x")) == [
                "no worker has an attribute regoin; did you mean 'region'?"
            ]
            for group_by, said in (
                ("racc", ["no worker has an attribute racc; did you mean 'rack'?"]),
                ("rack", []),
            ):
                gang = controller_pb2.CoschedulingConfig(group_by=group_by)
                answer = await r.launch("/u/j", coscheduling=gang, existing_job_policy=RECREATE)
                assert list(answer.warnings) == said
            assert await doubts(constraint("device-type", eq, "gpu")) == ["no worker has device-type=gpu"]
            assert (
                await doubts(
                    constraint("region", eq, "mars", mode=common_pb2.CONSTRAINT_MODE_PREFERRED),
                    constraint("region", common_pb2.CONSTRAINT_OP_NE, "mars"),
                    constraint("availability:h100", exists),
                )
                == []
            )
            first = await r.launch("/u/once", constraints=[constraint("rack", eq, "rack-2")], request_id="r")
            again = await r.launch("/u/once", constraints=[constraint("rack", eq, "rack-2")], request_id="r")
            assert first == again and list(first.warnings) == ["no worker has rack=rack-2; did you mean 'rack-1'?"]


async def test_an_old_client_is_turned_away_at_the_root_and_an_unknown_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iris_controller.services.revision_date", lambda: "2026-03-20")
    async with rig(tmp_path) as r:
        error = await refusal(r, client_revision_date="2026-03-05")
        assert (error.status, error.code) == ("FAILED_PRECONDITION", "client_too_old")
        assert "15 days older" in error.message and "update the client" in error.hint
        assert (await refusal(r, client_revision_date="soon")).status == "INVALID_ARGUMENT"
        for n, date in enumerate(("2026-03-06", "2030-01-01", "")):
            await r.launch(f"/u/j{n}", client_revision_date=date)
        await r.launch("/u/j0/child", client_revision_date="2020-01-01")


async def test_profiles_that_reach_further_are_for_admins_and_gvisor_is_for_cpus(tmp_path: Path) -> None:
    gpu = common_pb2.Resources(cpu_millicores=100, device=common_pb2.Device(kind="gpu", variant="h100", count=1))
    async with rig(tmp_path) as r, r.worker(script=run_on) as worker:
        await r.launch("/u/a")
        await r.until_state("/u/a", RUNNING)
        token = next(d.run.token for d in worker.seen.values() if d.run.task_id == "/u/a/0")
        inside = connect(r.controller, token)
        try:
            for profile in (common_pb2.CONTAINER_PROFILE_DOCKER_ACCESS, common_pb2.CONTAINER_PROFILE_PRIVILEGED):
                request = launch_request("/u/a/kid", container_profile=profile)
                with pytest.raises(IrisError, match="needs an admin"):
                    await inside.call("ControllerService/LaunchJob", request, controller_pb2.LaunchJobResponse)
                await r.launch(f"/u/by-admin-{profile}", container_profile=profile)
            request = launch_request("/u/a/kid", container_profile=common_pb2.CONTAINER_PROFILE_GVISOR)
            await inside.call("ControllerService/LaunchJob", request, controller_pb2.LaunchJobResponse)
        finally:
            await inside.close()
        error = await refusal(r, resources=gpu, container_profile=common_pb2.CONTAINER_PROFILE_GVISOR)
        assert error.status == "INVALID_ARGUMENT" and "no accelerators" in error.message
        for copies in (3, -1):
            error = await refusal(r, resources=EIGHT, processes_per_task=copies)
            assert error.status == "INVALID_ARGUMENT" and f"{copies} processes cannot share 8 GPUs" in error.message
        assert "profile 77 is unknown" in (await refusal(r, container_profile=77)).message
        assert "name of an image" in (await refusal(r, task_image="a b")).message
        assert (
            "does not name hero"
            in (await refusal(r, priority_band=common_pb2.PRIORITY_BAND_SYSTEM, system_reason="heroic")).message
        )


async def test_a_child_has_its_parent_s_environment_beneath_its_own_and_its_setup_if_it_asks(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker(script=run_on) as worker:
        parent = launch_request("/u/a")
        parent.environment.env_vars.update({"A": "parent", "B": "parent", "API_TOKEN": "hunter2"})
        parent.environment.setup_scripts.append("echo parent")
        data = b"PK\x05\x06" + bytes(18)
        bundle = controller_pb2.PutBundleRequest(bundle_id=hashlib.sha256(data).hexdigest(), data=data)
        await r.call("PutBundle", bundle, controller_pb2.PutBundleResponse)
        parent.bundle_id = bundle.bundle_id
        await r.call("LaunchJob", parent, controller_pb2.LaunchJobResponse)
        child = launch_request("/u/a/kid", inherit_workspace=True)
        child.environment.env_vars["B"] = "child"
        await r.call("LaunchJob", child, controller_pb2.LaunchJobResponse)
        await r.launch("/u/a/bare")
        spec = await dispatched(worker, "/u/a/kid")
        assert dict(spec.environment.env_vars) == {"A": "parent", "B": "child", "API_TOKEN": "hunter2"}
        assert list(spec.environment.setup_scripts) == ["echo parent"] and spec.bundle_id == bundle.bundle_id
        bare = await dispatched(worker, "/u/a/bare")
        assert dict(bare.environment.env_vars)["A"] == "parent"
        assert not bare.environment.setup_scripts and not bare.bundle_id
        stored = rows(tmp_path, "SELECT environment_json FROM job_config WHERE job_id = '/u/a/kid'")[0][0]
        assert "hunter2" not in stored and '"A": "parent"' in stored


async def test_large_files_are_blobs_and_small_ones_rows(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker(script=run_on) as worker:
        large, small = b"x" * 10_241, b"y" * 10_240
        request = launch_request("/u/j")
        request.entrypoint.workdir_files.update({"big/large": large, "small": small})
        await r.call("LaunchJob", request, controller_pb2.LaunchJobResponse)
        blob_id = hashlib.sha256(large).hexdigest()
        spec = await dispatched(worker, "/u/j")
        assert dict(spec.entrypoint.workdir_file_refs) == {"big/large": blob_id}
        assert dict(spec.entrypoint.workdir_files) == {"small": small}
        assert rows(tmp_path, "SELECT filename, length(data) FROM job_workdir_files") == [("small", 10_240)]
        heavy = launch_request("/u/heavy")
        heavy.entrypoint.workdir_files.update({f"f{n}": bytes(1 << 20) for n in range(17)})
        assert "more than 1000 files or 16 MiB" in (await refusal(r, request=heavy)).message
        again = launch_request("/u/again")
        again.entrypoint.workdir_file_refs["copy"] = blob_id
        await r.call("LaunchJob", again, controller_pb2.LaunchJobResponse)
        again.name = "/u/third"
        again.entrypoint.workdir_file_refs["copy"] = "0" * 64
        assert (await refusal(r, request=again)).code == "bundle_missing"
        again.entrypoint.workdir_file_refs["../copy"] = blob_id
        assert "is not a plain relative path" in (await refusal(r, request=again)).message


async def test_a_kick_of_an_attempt_that_is_over_is_refused_and_reports_of_strangers_change_nothing(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as r, r.worker(script=run_on) as worker:
        await r.launch("/u/a")
        await r.until_state("/u/a", RUNNING)
        kick = controller_pb2.KickTasksRequest(
            targets=["/u/a/0:7", "/u/a/9", "/u/nobody/0"], desired_state=common_pb2.TASK_STATE_FAILED
        )
        answer = await r.call("KickTasks", kick, controller_pb2.KickTasksResponse)
        assert [result.queued for result in answer.results] == [False] * 3
        assert answer.results[0].detail == "attempt 7 is not the current one, attempt 0 is"
        uid = next(iter(worker.seen))
        worker.report([worker.observation("f" * 16, common_pb2.TASK_STATE_FAILED)])
        ended = worker.observation(uid, common_pb2.TASK_STATE_SUCCEEDED, exit_code=0)
        worker.report([ended])
        await r.until_state("/u/a", SUCCEEDED)
        worker.report([worker.observation(uid, common_pb2.TASK_STATE_FAILED, exit_code=1)])
        async with asyncio.timeout(60):
            while r.controller.sessions.ignored_observations < 2:
                await r.controller.loop.next_commit(0.5)
        job = await r.job("/u/a")
        assert (job.state, job.failure_count) == (SUCCEEDED, 0)
