"""`cluster vm`, `create-slice` and `delete-slice`: what is sent, what is printed, and each way it fails."""

from __future__ import annotations

import json

import pytest

from iris_core.contracts import RpcFailed
from iris_core.wire.gen.iris.v1 import autoscaler_pb2 as pb
from iris_core.wire.gen.iris.v1 import controller_pb2, plan_pb2
from tests.unit.cli_world import World

TPU = pb.ScaleGroupStatus(
    name="tpu",
    accelerator="v5litepod-16",
    num_vms=4,
    max_slices=3,
    buffer_slices=1,
    zone="us-central1-a",
    preemptible=True,
    demand=2,
    peak_demand=5,
    availability="backoff",
    availability_reason="backing off for 20s after a failure: stock\x1b[31m out",
    blocked_until_ms=1,
    consecutive_failures=2,
    failure_reason="stock out",
    decision="blocked",
    decision_reason="backing off",
    slice_state_counts={"ready": 1, "booting": 1, "draining": 0},
    slices=[
        pb.SliceStatus(
            slice_id="tpu-0badcafe",
            scale_group="tpu",
            lifecycle="ready",
            busy=True,
            manual=True,
            vms=[pb.VmStatus(vm_id="vm-1", worker_id="tpu-0badcafe-w-0", address="10.0.0.1:10001", state="ready")],
        )
    ],
)
CPU = pb.ScaleGroupStatus(name="cpu", num_vms=1, max_slices=2, availability="available")


@pytest.fixture
def world() -> World:
    world = World()
    world.client.answer(
        "GetAutoscalerStatus",
        pb.GetAutoscalerStatusResponse(
            groups=[CPU, TPU], enabled=True, current_demand=7, detail="429 too many requests"
        ),
    )
    world.client.answer("GetClusterStatus", controller_pb2.GetClusterStatusResponse(cluster="prod"))
    world.client.answer(
        "DeleteSlice",
        pb.DeleteSliceResponse(worker_ids=["w-0", "w-1"], task_ids=["/u/a/0", "/u/a/1"], generation=17),
    )
    method = "ControllerService/DeleteSlice"
    looked_at = pb.DeleteSliceRequest(slice_id="tpu-0badcafe", generation=17)
    world.client.answer(
        "Plan",
        plan_pb2.PlanResponse(method=method, tier=3, token="tok", requests=[looked_at.SerializeToString()]),
    )
    return world


def test_vm_status_tells_each_group_with_its_slices_and_machines(world: World) -> None:
    done = world.cli("cluster", "vm", "status")
    assert done.code == 0
    text = done.out
    for line in (
        "tpu: v5litepod-16, 4 machines a slice, us-central1-a, preemptible",
        "  slices        1 of 2 ready, at most 3, 1 booting",
        "  demand        2 (peak 5), 1 kept to spare",
        "  failures      2 in a row: stock out",
        "  decision      blocked: backing off",
        "    vm-1  ready, not attached at 10.0.0.1:10001",
        "Last evaluation: not yet, 7 tasks without room",
    ):
        assert line in text.splitlines(), text
    assert "\x1b" not in text and "by an operator" in text
    assert "429 too many requests" in done.err


def test_vm_status_of_one_group_and_as_json(world: World) -> None:
    found = json.loads(world.cli("cluster", "vm", "status", "--scale-group", "cpu", "-o", "json").out)
    assert [group["name"] for group in found["groups"]] == ["cpu"]
    done = world.cli("cluster", "vm", "status", "--scale-group", "tpus")
    assert done.code == 2 and "did you mean 'tpu'?" in done.err


def test_cluster_status_counts_the_slices_of_each_group(world: World) -> None:
    world.client.answer("ListWorkers", controller_pb2.ListWorkersResponse())
    lines = world.cli("cluster", "status").out.splitlines()
    at = lines.index("SCALE GROUP  BOOTING  INITIALIZING  READY  FAILED  DEMAND")
    assert [line.split() for line in lines[at + 1 : at + 3]] == [
        ["cpu", "0", "0", "0", "0", "0"],
        ["tpu", "1", "0", "1", "0", "2"],
    ]
    groups = json.loads(world.cli("cluster", "status", "-o", "json").out)["scale_groups"]
    assert groups[1] == {"scale_group": "tpu", "booting": 1, "initializing": 0, "ready": 1, "failed": 0, "demand": 2}


def test_cluster_status_says_of_a_worker_that_gets_no_work_what_brings_it_back(world: World) -> None:
    why = "gets no work, it failed to stage 3 times: no space left; mend the machine, then restart its worker"
    rows = [
        controller_pb2.WorkerStatus(
            worker_id=f"bad-{n}", health="WORKER_HEALTH_HEALTHY", health_reason=why if n else "", excluded=n > 0
        )
        for n in range(8)
    ]
    dead = controller_pb2.WorkerStatus(
        worker_id="a", health="WORKER_HEALTH_DEAD", health_reason="silent", excluded=True
    )
    going = controller_pb2.WorkerStatus(worker_id="b", health="WORKER_HEALTH_HEALTHY", stopping=True, excluded=True)
    world.client.answer("ListWorkers", controller_pb2.ListWorkersResponse(workers=[dead, going, *rows]))
    world.client.answer(
        "GetClusterStatus",
        controller_pb2.GetClusterStatusResponse(workers_total=8, workers_healthy=1, workers_excluded=7),
    )
    told = world.cli("cluster", "status").out
    assert "Workers:   1/8 healthy, 7 workers get no work after failing to stage\n" in told
    lines = [line for line in told.splitlines() if line.startswith("Worker: ")]
    assert lines[:5] == [f"Worker:    bad-{n} {why}" for n in range(1, 6)]
    assert lines[5:] == ["Worker:    2 more that get no work: iris rpc controller list-workers"]
    assert json.loads(world.cli("cluster", "status", "-o", "json").out)["workers_excluded"] == 7
    world.client.answer("ListWorkers", controller_pb2.ListWorkersResponse(workers=[rows[0]], next_page_token="more"))
    assert "Worker:    7 that get no work: iris rpc" in world.cli("cluster", "status").out
    world.client.answer("ListWorkers", controller_pb2.ListWorkersResponse(workers=rows[:7]))
    assert "Worker:    2 more that get no work: iris rpc" in world.cli("cluster", "status").out
    world.client.answer(
        "GetClusterStatus", controller_pb2.GetClusterStatusResponse(workers_total=7, workers_excluded=6)
    )
    assert "Worker:    1 more that gets no work: iris rpc" in world.cli("cluster", "status").out


def test_vm_logs_are_made_harmless(world: World) -> None:
    world.client.answer(
        "GetVmLogs",
        pb.GetVmLogsResponse(
            vm=pb.VmStatus(vm_id="vm-1", state="ready", worker_id="w", attached=True), lines=["a\x1b]0;x", "b"]
        ),
    )
    done = world.cli("cluster", "vm", "logs", "vm-1", "--max-lines", "2")
    assert done.code == 0 and "\x1b" not in done.out and done.out.endswith("b\n")
    assert "vm-1 is ready, worker w, attached" in done.err
    assert world.client.called("GetVmLogs")[0].max_lines == 2
    world.client.answer("GetVmLogs", RpcFailed("NOT_FOUND", "there is no machine 'vm-2'"))
    assert world.cli("cluster", "vm", "logs", "vm-2").code == 1


def test_a_slice_is_made_and_named_on_stdout(world: World) -> None:
    world.client.answer("CreateSlice", pb.CreateSliceResponse(slice_id="cpu-00000001", worker_ids=["cpu-00000001-w-0"]))
    done = world.cli("cluster", "create-slice", "--scale-group", "cpu")
    assert (done.code, done.out) == (0, "cpu-00000001\n")
    assert "cpu-00000001-w-0" in done.err
    dry = world.cli("cluster", "create-slice", "--scale-group", "cpu", "--dry-run")
    assert (dry.code, dry.out) == (0, "") and world.client.called("CreateSlice")[1].dry_run
    assert world.cli("cluster", "create-slice").code == 2


def test_deleting_a_slice_is_confirmed_with_the_clusters_name(world: World) -> None:
    bare = world.cli("cluster", "delete-slice", "tpu-0badcafe")
    assert bare.code == 2 and "--confirm prod" in bare.err
    assert "stops 2 tasks on 2 workers" in bare.err
    wrong = world.cli("cluster", "delete-slice", "tpu-0badcafe", "--confirm", "dev")
    assert wrong.code == 2 and "nothing was changed" in wrong.err
    assert all(request.dry_run for request in world.client.called("DeleteSlice"))
    done = world.cli("cluster", "delete-slice", "tpu-0badcafe", "--confirm", "prod", "--reason", "maintenance")
    assert (done.code, done.out) == (0, "deleting tpu-0badcafe\n")
    sent = world.client.called("DeleteSlice")[-1]
    assert (sent.confirm, sent.generation, sent.reason) == ("prod", 17, "maintenance")
    (planned,) = world.client.called("Plan")[-1].requests
    assert pb.DeleteSliceRequest.FromString(planned) == pb.DeleteSliceRequest(slice_id="tpu-0badcafe", generation=17)


def test_a_slice_that_goes_already_needs_no_confirmation(world: World) -> None:
    skip = plan_pb2.PlanSkip(id="tpu-0badcafe", why="is draining already")
    world.client.answer("Plan", plan_pb2.PlanResponse(method="ControllerService/DeleteSlice", tier=3, skipped=[skip]))
    done = world.cli("cluster", "delete-slice", "tpu-0badcafe")
    assert (done.code, done.out) == (0, "") and "tpu-0badcafe is draining already" in done.err
    assert all(request.dry_run for request in world.client.called("DeleteSlice"))


def test_a_dry_run_of_deleting_prints_the_tasks(world: World) -> None:
    done = world.cli("cluster", "delete-slice", "tpu-0badcafe", "--dry-run")
    assert (done.code, done.out) == (0, "/u/a/0\n/u/a/1\n")
    assert len(world.client.called("DeleteSlice")) == 1
