"""Slices of which a worker gets no work any more, because it failed to stage: nothing is given to it, so it cannot clear itself."""

from __future__ import annotations

from typing import Any

import pytest

from iris_controller.rpc.views import worker_view
from iris_controller.state.observed import FailureKind
from iris_controller.state.staging import MAX_IN_A_ROW
from iris_core.model.resources import Device
from iris_core.model.states import ACTIVE, TaskState
from iris_core.wire.gen.iris.v1 import controller_pb2
from providers.fake.machines import Outcome
from tests.unit.autoscaler_world import AutoscalerWorld, calm, group, tpu_group
from tests.unit.kernel_world import job_spec

pytestmark = pytest.mark.asyncio

DISK = "cannot stage the bundle: no space left on device"


def fail_to_stage(w: AutoscalerWorld, worker_id: str, times: int = MAX_IN_A_ROW) -> None:
    """What is on the worker fails there, and whoever has to leave for it does, so many times."""
    for _ in range(times):
        w.world.plan()
        (attempt,) = [a for a in w.world.model.attempts_on(worker_id) if a.state in ACTIVE]
        w.world.observe(attempt.uid, TaskState.WORKER_FAILED, worker_id, failure_kind=FailureKind.STAGING, error=DISK)
        for held in list(w.world.model.attempts.values()):
            if held.state is TaskState.COSCHED_FAILED and held.finished_at_ms is None:
                w.world.observe(held.uid, TaskState.KILLED, held.worker_id)
        w.queue.tell()


def view(w: AutoscalerWorld, worker_id: str) -> controller_pb2.WorkerStatus:
    return worker_view(w.world.model, w.world.model.workers[worker_id], 0)


def reason(w: AutoscalerWorld, worker_id: str) -> str:
    return view(w, worker_id).health_reason


async def test_an_idle_slice_with_such_a_worker_is_replaced_and_the_work_that_waits_for_it_runs() -> None:
    w = AutoscalerWorld(tpu_group(max_slices=1))
    spec = job_spec(1, device=Device("tpu", "v5litepod-16", 4), group_by="tpu-name")
    w.world.submit(tasks=4, spec=spec)
    await w.look(3)
    await w.pass_time(20)
    first = w.machines.created[0].slice_id
    bad = f"{first}-w-2"
    fail_to_stage(w, bad)
    assert w.world.model.workers[bad].excluded and w.lifecycles() == {first: "ready"}
    await w.look()
    said = f"worker {bad} gets no work, it failed to stage 3 times: {DISK}"
    assert w.said("worker_failed", "failed") == [f"{said}; its slice is replaced"]
    assert w.world.model.slices[first].error_message == said
    row = w.world.model.scaling_groups["tpu"]
    assert (row.consecutive_failures, row.failure_reason) == (1, said), "the group makes the next after a pause"
    await w.pass_time(60)
    assert w.machines.deleted == [first] and bad not in w.world.model.workers
    assert [s.scale_group for s in w.machines.created] == ["tpu", "tpu"] and w.count("ready") == 1
    assert {w.world.task(i).state for i in range(4)} == {TaskState.ASSIGNED}
    assert {w.world.task(i).preemption_count for i in range(4)} == {0}, "nobody paid for it"


async def test_what_runs_beside_it_is_not_ended_for_it() -> None:
    w = AutoscalerWorld(group(num_vms=2, max_slices=1))
    for name in ("/u/a", "/u/b"):
        w.world.submit(name, cpu=3)
    await w.look(3)
    await w.pass_time(20)
    slice_id = w.machines.created[0].slice_id
    bad, good = w.world.task(job_id="/u/a").worker_id, w.world.task(job_id="/u/b")
    w.world.observe(good.attempt_uid, TaskState.RUNNING, good.worker_id)
    fail_to_stage(w, bad)
    assert w.world.model.workers[bad].excluded and bad != good.worker_id
    await w.pass_time(300)
    assert w.lifecycles() == {slice_id: "ready"} and not w.said("worker_failed")
    assert w.world.task(job_id="/u/b").state is TaskState.RUNNING
    told = view(w, bad)
    what = "its slice is replaced once nothing runs on it and its group pauses no more"
    assert told.excluded and told.health_reason.endswith(f"{DISK}; {what}")
    w.world.observe(good.attempt_uid, TaskState.SUCCEEDED, good.worker_id)
    w.queue.tell()
    await w.look()
    assert w.lifecycles() == {slice_id: "draining"} and len(w.said("worker_failed")) == 1
    told = view(w, bad)
    assert (told.excluded, told.health_reason) == (False, "stopping: its slice is being deleted"), (
        "none is to bring it back"
    )


async def test_work_that_came_to_the_slice_meanwhile_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    w = AutoscalerWorld(group(num_vms=2, max_slices=1))
    w.world.submit("/u/a", cpu=3)
    await w.look(3)
    await w.pass_time(20)
    slice_id = w.machines.created[0].slice_id
    fail_to_stage(w, w.world.task(job_id="/u/a").worker_id)
    post = w.queue.post

    def placed_first(name: str, plan: Any) -> Any:
        if name == "slices":
            w.world.plan()
        return post(name, plan)

    monkeypatch.setattr(w.queue, "post", placed_first)
    await w.look()
    assert w.world.task(job_id="/u/a").state is TaskState.ASSIGNED, "the other worker took it"
    assert w.lifecycles() == {slice_id: "ready"} and not w.said("worker_failed")


async def test_what_all_machines_fail_at_takes_one_slice_after_the_other_and_never_all() -> None:
    w = AutoscalerWorld(group(max_slices=3, buffer_slices=3))
    await w.look(3)
    await w.pass_time(30)
    before = set(w.lifecycles())
    assert len(before) == 3 and w.count("ready") == 3
    for worker_id in list(w.world.model.workers):
        worker = w.world.model.workers[worker_id]
        w.world.change_worker(worker_id, excluded=True, excluded_reason=DISK, build_failures=worker.build_failures + 3)
    w.queue.tell()
    least = 3
    for _ in range(200):
        if not before & set(w.lifecycles()):
            break
        await w.pass_time(2, step=1)
        least = min(least, w.count("ready"))
    assert not before & set(w.lifecycles()) and least == 2
    await w.pass_time(60)
    assert w.count("ready") == 3 and len(w.said("worker_failed")) == 3


async def test_slices_that_all_break_alike_are_bought_ever_more_seldom() -> None:
    w = AutoscalerWorld(group(max_slices=1, buffer_slices=1))
    await w.look(3)
    for _ in range(360):
        await w.pass_time(10, step=5)
        for worker_id, worker in list(w.world.model.workers.items()):
            if worker.attached and not worker.excluded:
                w.world.change_worker(worker_id, excluded=True, excluded_reason=DISK, build_failures=3)
                w.queue.tell()
    assert 5 <= len(w.machines.created) <= 14, "in an hour"


async def test_a_controller_that_starts_anew_does_not_take_the_next_one_for_that() -> None:
    one = group(max_slices=2, buffer_slices=2)
    w = AutoscalerWorld(one)
    await w.look(3)
    await w.pass_time(30)
    assert w.count("ready") == 2
    w.machines.script("cpu", [Outcome(ready_s=3600)])
    for worker_id in list(w.world.model.workers):
        w.world.change_worker(worker_id, excluded=True, excluded_reason=DISK, build_failures=3)
    w.queue.tell()
    # The clock of the machine is older than the controller.
    w.clock.advance(3600)
    w.world.now_ms += 3_600_000
    await w.look()
    await w.pass_time(2, step=1)
    assert w.lifecycles() and w.count("ready") == len(w.lifecycles()) == 1, (
        "the other one is gone, and the next not made yet"
    )
    (left,) = w.lifecycles()
    await w.scaler.close()
    again = AutoscalerWorld(one, world=w.world, machines=w.machines, clock=w.clock)
    await again.look(2)
    assert again.lifecycles()[left] == "ready" and not again.said("worker_failed")
    await again.pass_time(60)
    assert again.lifecycles()[left] == "ready" and len(again.lifecycles()) == 2, "the next one is on its way"


async def test_who_brings_a_worker_back_is_said_where_nobody_replaces_it() -> None:
    w = AutoscalerWorld(group(max_slices=1), delay_ms=10_000)
    spec = w.scaler.spec(w.config.scale_groups["cpu"], manual=True)
    await w.scaler.create_manual(spec)
    await calm()
    await w.look(2)
    w.world.add_worker("static")
    for worker_id in ("static", f"{spec.slice_id}-w-0"):
        w.world.change_worker(worker_id, excluded=True, excluded_reason=DISK, build_failures=3, health_reason="")
    w.queue.tell()
    await w.pass_time(60)
    assert w.lifecycles() == {spec.slice_id: "ready"} and not w.said("worker_failed"), (
        "an operator's slice is left alone"
    )
    told = f"gets no work, it failed to stage 3 times: {DISK}; mend the machine, then restart its worker"
    assert reason(w, "static") == told
    assert reason(w, f"{spec.slice_id}-w-0") == f"{told}, or delete its slice"
