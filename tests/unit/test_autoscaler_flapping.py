"""Room that is about to be back is no reason for another slice; what the provider made is never forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from iris_controller.state.overlay import Overlay
from iris_controller.store.writer import CommitFailed
from iris_core.model.resources import Device
from iris_core.model.states import ACTIVE, TaskState, WorkerHealth
from tests.unit.autoscaler_world import AutoscalerWorld, group, tpu_group
from tests.unit.kernel_world import World, job_spec

pytestmark = pytest.mark.asyncio

CHIPS = Device("tpu", "v5litepod-16", 4)


def gang(world: World, job_id: str = "/u/gang") -> None:
    world.submit(job_id, tasks=4, spec=job_spec(1, device=CHIPS, group_by="tpu-name"))


def begin(world: World) -> None:
    for attempt in list(world.model.attempts.values()):
        if attempt.state is TaskState.ASSIGNED:
            world.observe(attempt.uid, TaskState.RUNNING, attempt.worker_id)


def confirm(world: World) -> None:
    for attempt in list(world.model.attempts.values()):
        if attempt.state not in ACTIVE:
            world.observe(attempt.uid, TaskState.KILLED, attempt.worker_id)


async def running_gang() -> AutoscalerWorld:
    w = AutoscalerWorld(tpu_group(max_slices=3))
    gang(w.world)
    await w.look(3)
    await w.pass_time(30)
    begin(w.world)
    assert w.count("ready") == 1 and len(w.machines.created) == 1
    return w


async def test_a_gang_that_bounces_waits_for_its_mates_to_end_and_not_for_another_slice() -> None:
    w = await running_gang()
    member = w.world.task(2, "/u/gang")
    w.world.observe(member.attempt_uid, TaskState.WORKER_FAILED, member.worker_id)
    w.queue.tell()
    await w.look(3)
    await w.pass_time(20)
    assert len(w.machines.created) == 1
    confirm(w.world)
    await w.look(3)
    assert all(task.state is TaskState.ASSIGNED for task in w.world.model.tasks["/u/gang"])
    assert len(w.machines.created) == 1


async def test_room_that_does_not_come_back_is_waited_for_no_longer_than_a_minute() -> None:
    w = await running_gang()
    member = w.world.task(2, "/u/gang")
    w.world.observe(member.attempt_uid, TaskState.WORKER_FAILED, member.worker_id)
    w.queue.tell()
    await w.pass_time(80)
    assert len(w.machines.created) == 2


async def test_only_one_gang_waits_for_one_slice_that_gets_free() -> None:
    w = await running_gang()
    gang(w.world, "/u/next")
    member = w.world.task(2, "/u/gang")
    w.world.observe(member.attempt_uid, TaskState.WORKER_FAILED, member.worker_id)
    w.queue.tell()
    await w.look(3)
    assert len(w.machines.created) == 2


@pytest.mark.parametrize("attached", [True, False])
async def test_workers_that_have_to_come_back_after_a_restart_are_waited_for(attached: bool) -> None:
    w = AutoscalerWorld(tpu_group(buffer_slices=1, max_slices=3))
    await w.look(3)
    await w.pass_time(30)
    assert w.count("ready") == 1
    for worker_id in list(w.world.model.workers):
        w.world.change_worker(worker_id, attached=attached, placeable=False, health=WorkerHealth.DEGRADED)
    again = AutoscalerWorld(
        tpu_group(buffer_slices=1, max_slices=3), world=w.world, machines=w.machines, clock=w.clock, attach=False
    )
    gang(w.world)
    await again.look(3)
    await again.pass_time(10)
    assert len(w.machines.created) <= 2, "the buffer at most"
    for worker_id in list(w.world.model.workers):
        w.world.change_worker(worker_id, attached=True, placeable=True, health=WorkerHealth.HEALTHY)
    await again.look(3)
    assert all(task.state is TaskState.ASSIGNED for task in w.world.model.tasks["/u/gang"])
    await w.scaler.close()


async def test_a_restart_before_the_workers_are_back_asks_for_nothing_when_no_buffer_is_wanted() -> None:
    w = await running_gang()
    for task in list(w.world.model.tasks["/u/gang"]):
        w.world.observe(task.attempt_uid, TaskState.SUCCEEDED, task.worker_id)
    for worker_id in list(w.world.model.workers):
        w.world.change_worker(worker_id, attached=False, placeable=False, health=WorkerHealth.DEGRADED)
    gang(w.world, "/u/next")
    again = AutoscalerWorld(tpu_group(max_slices=3), world=w.world, machines=w.machines, clock=w.clock, attach=False)
    await again.look(3)
    assert len(w.machines.created) == 1


async def test_a_slice_whose_row_could_not_be_written_is_adopted() -> None:
    w = AutoscalerWorld(group(max_slices=2))
    post = w.queue.post

    def full(name: str, plan: Callable[[Overlay, int], Any]) -> asyncio.Future[Any]:
        if name != "slice asked for":
            return post(name, plan)
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        done.set_exception(CommitFailed("database or disk is full"))
        return done

    w.queue.post = full  # type: ignore[method-assign]
    w.world.submit(cpu=3)
    await w.look(2)
    w.queue.post = post  # type: ignore[method-assign]
    await w.pass_time(40)
    assert set(w.machines.alive) == set(w.lifecycles()), "a machine that nobody knows of would run for ever"
