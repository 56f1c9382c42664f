"""`job rerun` and the dry runs that show the server's plan: what is sent, what is printed, and each way they fail."""

from __future__ import annotations

import pytest

from iris_core.contracts import RpcFailed
from iris_core.model.constraints import Mode, parse_constraint
from iris_core.wire.convert import constraint_from_wire, constraint_to_wire
from iris_core.wire.gen.iris.v1 import budgets_pb2, common_pb2, plan_pb2
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from tests.unit.cli_world import World

METHOD = "ControllerService/LaunchJob"


@pytest.fixture
def world() -> World:
    found = World()
    job = found.job("/ada/train", "failed", incarnation=17)
    request = pb.LaunchJobRequest(name="/ada/train")
    request.resources.cpu_millicores, request.resources.memory_bytes = 4_000, 1_000_000_000
    found.client.answer("GetJobStatus", pb.GetJobStatusResponse(job=job, request=request))
    found.client.answer("LaunchJob", lambda request: pb.LaunchJobResponse(job_id=request.name))
    return found


def launched(world: World) -> pb.LaunchJobRequest:
    (request,) = world.client.called("LaunchJob")
    assert isinstance(request, pb.LaunchJobRequest)
    return request


def test_a_rerun_names_its_original_and_only_what_changes(world: World) -> None:
    done = world.cli("job", "rerun", "/ada/train")
    assert (done.code, done.out) == (0, "/ada/train-rerun\n")
    sent = launched(world)
    assert (sent.rerun.job_id, sent.rerun.incarnation) == ("/ada/train", 17)
    assert sent.existing_job_policy == common_pb2.EXISTING_JOB_POLICY_ERROR and sent.request_id
    for name in ("rerun", "name", "request_id", "submit_argv", "client_revision_date", "existing_job_policy"):
        sent.ClearField(name)
    assert sent == pb.LaunchJobRequest(), "everything else is the original's"


def test_overrides_are_sent_and_zeros_are_cleared(world: World) -> None:
    done = world.cli(
        "job", "rerun", "/ada/train", "--job-name", "b", "--memory", "2GB", "--replicas", "3", "-e", "LR", "0.1",
        "--remove-env", "OLD", "--timeout", "0", "--priority", "batch", "--max-retries-failure", "2", "--", "python", "x.py",
    )  # fmt: skip
    assert (done.code, done.out) == (0, "/ada/b\n")
    sent = launched(world)
    assert (sent.resources.cpu_millicores, sent.resources.memory_bytes) == (4_000, 2_000_000_000)
    assert sent.replicas == 3 and dict(sent.environment.env_vars) == {"LR": "0.1"}
    assert list(sent.rerun.remove_env) == ["OLD"] and list(sent.rerun.clear) == ["timeout_ms"]
    assert sent.priority_band == common_pb2.PRIORITY_BAND_BATCH and sent.max_retries_failure == 2
    assert list(sent.entrypoint.run_command.argv) == ["python", "x.py"]


def places(world: World, *words: str) -> tuple[list[str], list[str]]:
    """What the rerun may be placed on, and which fields are emptied."""
    before = pb.GetJobStatusResponse(job=world.job("/ada/train", "failed", incarnation=17))
    for text, mode in (("region=us", 1), ("zone=us-a", 1), ("pool=a,b", 1), ("preemptible!=true", 2)):
        before.request.constraints.append(constraint_to_wire(parse_constraint(text, mode=Mode(mode))))
    world.client.answer("GetJobStatus", before)
    assert world.cli("job", "rerun", "/ada/train", *words).code == 0
    sent = world.client.called("LaunchJob")[-1]
    return [str(constraint_from_wire(message)) for message in sent.constraints], list(sent.rerun.clear)


def test_where_it_may_run_is_changed_apart_from_what_it_needs(world: World) -> None:
    assert places(world) == ([], []), "left to the server"
    assert places(world, "--region", "eu", "--region", "asia") == (
        ["zone=us-a", "pool=a,b", "preemptible!=true", "region=eu,asia"],
        [],
    )
    assert places(world, "--constraint", "gpu-count>=4", "--zone", "") == (
        ["region=us", "preemptible!=true", "gpu-count>=4"],
        [],
    )
    everything = ("--region", "", "--zone", "", "--constraint", "", "--prefer", "")
    assert places(world, *everything) == ([], ["constraints"])


def test_no_retries_after_preemptions_is_not_the_default(world: World) -> None:
    assert world.cli("job", "rerun", "/ada/train", "--max-retries-preemption", "0").code == 0
    assert launched(world).HasField("max_retries_preemption")


def test_a_name_that_is_taken_gets_a_number_and_one_that_was_typed_does_not(world: World) -> None:
    taken = RpcFailed("ALREADY_EXISTS", "there is a job of that name", code="job_exists")
    world.client.answer("LaunchJob", taken, lambda request: pb.LaunchJobResponse(job_id=request.name))
    assert world.cli("job", "rerun", "/ada/train").out == "/ada/train-rerun-2\n"
    world.client.answer("LaunchJob", taken)
    done = world.cli("job", "rerun", "/ada/train", "--job-name", "b")
    assert done.code == 1 and "there is a job of that name" in done.err


def test_a_dry_run_prints_the_plan_and_what_is_gone_is_said(world: World) -> None:
    plan = plan_pb2.PlanResponse(method=METHOD, effects=["submits /ada/train-rerun: 1 task"], token="t")
    plan.requests.append(b"")
    world.client.answer("Plan", plan)
    done = world.cli("job", "rerun", "/ada/train", "--dry-run")
    assert (done.code, done.out) == (0, "submits /ada/train-rerun: 1 task\n") and "nothing was changed" in done.err
    gone = RpcFailed("FAILED_PRECONDITION", "/ada/train cannot be run again: its bundle is no longer stored")
    world.client.answer("Plan", gone)
    done = world.cli("job", "rerun", "/ada/train", "--dry-run")
    assert done.code == 1 and "its bundle is no longer stored" in done.err
    assert world.client.called("LaunchJob") == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("/ada/train", "--nmae", "x"), "No such option"),
        (("/ada/train", "--name", "x"), "did you mean '--job-name'"),
        (("/ada/train", "python"), "goes after `--`"),
        (("/ada/train", "--job-name", "a/b"), "job name"),
        (("/ada/train", "-e", "A=B", "c"), "-e takes two words"),
        (("train",), "is not a job id"),
        (("/ada/train", "--memory", "lots"), "is not a size"),
        (("/ada/train", "--constraint", "gpu-count>=many"), "--constraint"),
    ],
)
def test_what_is_wrong_is_a_usage_error(world: World, words: tuple[str, ...], said: str) -> None:
    done = world.cli("job", "rerun", *words)
    assert done.code == 2 and said in done.err and world.client.called("LaunchJob") == []


def test_setting_a_budget_and_completing_can_be_tried_first(world: World) -> None:
    plan = plan_pb2.PlanResponse(method="ControllerService/SetUserBudget", effects=["limit of ada: 5 → 9"], hints=["x"])
    plan.requests.append(budgets_pb2.SetUserBudgetRequest(user_id="ada").SerializeToString())
    world.client.answer("Plan", plan)
    done = world.cli("user", "budget", "set", "ada", "--limit", "9", "--max-band", "batch", "--dry-run")
    assert (done.code, done.out) == (0, "limit of ada: 5 → 9\n") and world.client.called("SetUserBudget") == []
    skipped = plan_pb2.PlanResponse(method="ControllerService/CompleteJob")
    skipped.skipped.add(id="/ada/train", why="has ended as failed")
    world.client.answer("Plan", skipped)
    done = world.cli("job", "complete", "/ada/train", "--dry-run")
    assert (done.code, done.out) == (0, "") and "/ada/train: has ended as failed" in done.err
    assert "there is nothing to do" in done.err and world.client.called("CompleteJob") == []


def test_cancelling_says_beside_the_ids_what_would_end() -> None:
    world = World()
    world.job("/ada/a").task_counts.add(state=common_pb2.TASK_STATE_RUNNING, count=2)
    done = world.cli("job", "cancel", "/ada/a", "--dry-run")
    assert (done.code, done.out) == (0, "/ada/a\n") and "ends 2 running tasks as killed" in done.err
    world.client.cluster.plans.absent = True
    done = world.cli("job", "cancel", "/ada/a", "--dry-run")
    assert (done.code, done.out) == (0, "/ada/a\n"), "a controller of an earlier release"
