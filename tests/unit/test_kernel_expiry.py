"""The scheduling deadline: what waits when it passes, and what comes back to the queue after it (control-plane §1.7)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from iris_controller.commits import Committed
from iris_controller.loop import ControllerLoop
from iris_controller.state import kernel, submit
from iris_controller.state.kick import kick
from iris_controller.state.model import Model
from iris_controller.state.overlay import Overlay
from iris_controller.timers import Timers
from iris_core.model.ids import TaskId
from iris_core.model.states import JobState, TaskState
from tests.unit.kernel_world import JOB, World, check_invariants
from tests.unit.test_core_loop import SilentTicks, Store
from tests.unit.test_store_loop import NOW, job, worker
from tests.unit.test_store_loop import rig as stored_rig

S = TaskState
TIMEOUT = 60_000


def expire(world: World) -> int:
    with world.batch() as o:
        return kernel.expire_scheduling(o, JOB, world.now_ms)


def world_past_its_deadline(tasks: int = 1) -> World:
    """Every task runs, and the deadline has passed."""
    world = World()
    world.add_worker(cpu=64)
    world.submit(tasks=tasks, scheduling_timeout_ms=TIMEOUT, max_retries_failure=3)
    for index in range(tasks):
        world.running(index)
    assert expire(world) == 0
    assert world.job().scheduling_expired and world.job().state is JobState.RUNNING
    return world


def test_a_task_that_runs_when_the_deadline_passes_runs_on() -> None:
    world = world_past_its_deadline()
    world.observe(world.task().attempt_uid, S.SUCCEEDED)
    assert world.job().state is JobState.SUCCEEDED


@pytest.mark.parametrize("how", ["failed", "preempted", "lost"])
def test_a_task_that_comes_back_after_the_deadline_ends_in_the_same_batch(how: str) -> None:
    world = world_past_its_deadline()
    uid = world.task().attempt_uid
    with world.batch() as o:
        if how == "failed":
            kernel.observe(o, "w", kernel.Observed(uid, S.FAILED, error="boom"), world.now_ms)
        elif how == "preempted":
            kick(o, [(f"{JOB}/0", TaskId.parse(f"{JOB}/0"))], S.PREEMPTED, "ops", "", world.now_ms)
        else:
            kernel.worker_lost(o, "w", "gone", world.now_ms)
    task = world.last_task()
    assert task.state is S.UNSCHEDULABLE and JOB not in world.model.pending
    assert world.job().state is JobState.UNSCHEDULABLE
    error = world.job().error or ""
    assert error.startswith("back in the queue after its scheduling deadline, 1m after submission; its last attempt: ")
    assert world.audit.count(f"task_unschedulable {JOB}/0") == 1
    assert expire(world) == 0 and world.audit.count(f"task_unschedulable {JOB}/0") == 1
    check_invariants(world.model)


def test_a_gang_of_which_a_member_is_lost_after_the_deadline_ends_whole() -> None:
    world = World()
    for index in range(2):
        world.add_worker(f"w{index}", attributes={"pool": "a"})
    world.submit(tasks=2, scheduling_timeout_ms=TIMEOUT, group_by="pool")
    with world.batch() as o:
        assert kernel.assign_gang(o, JOB, [(i, f"w{i}", world.uid()) for i in range(2)], world.now_ms)
    uids = [world.task(i).attempt_uid for i in range(2)]
    for index, uid in enumerate(uids):
        world.observe(uid, S.RUNNING, f"w{index}")
    assert expire(world) == 0
    with world.batch() as o:
        kernel.worker_lost(o, "w0", "gone", world.now_ms)
    assert [world.last_task(i).state for i in range(2)] == [S.UNSCHEDULABLE] * 2
    assert world.model.attempts[uids[1]].state is S.COSCHED_FAILED, "the mate was bounced first, and pays nothing"
    assert world.job().state is JobState.UNSCHEDULABLE
    check_invariants(world.model)


@pytest.mark.asyncio
async def test_a_restart_changes_nothing_about_a_deadline_that_has_passed(tmp_path: Path) -> None:
    async with stored_rig(tmp_path / "c.sqlite3") as r:
        await r.loop.submit("w", lambda o, now: o.workers.update({"w1": worker("w1")}))
        new = job("/u/a", scheduling_timeout_ms=5_000)
        await r.loop.submit("a", lambda o, now: submit.admit(o, new, now))
        await r.until_quiet()
        await r.loop.submit("expire", lambda o, now: kernel.expire_scheduling(o, "/u/a", now))
        uid = next(iter(r.model.attempts))
        with closing(sqlite3.connect(r.path)) as connection:
            assert connection.execute("SELECT scheduling_expired FROM jobs").fetchall() == [(1,)]
        loaded = r.loaded()
        assert loaded.jobs == r.model.jobs
        for found in (loaded, r.model):
            o = Overlay(found)
            kernel.observe(o, "w1", kernel.Observed(uid, S.RUNNING), NOW)
            kernel.worker_lost(o, "w1", "gone", NOW)
            kernel.settle(o, NOW)
            ended = o.task("/u/a", 0)
            assert ended is not None and ended.state is S.UNSCHEDULABLE


class Clocks:
    """A controller's two clocks, its queue, and one job with a deadline five seconds after its submission."""

    def __init__(self, running: bool = False, wall_at_boot: int = NOW) -> None:
        self.wall = NOW
        self.monotonic = 100.0
        self.model = Model()
        self.loop = ControllerLoop(self.model, Store(), SilentTicks(), wall_ms=lambda: self.wall)
        o = Overlay(self.model)
        submit.admit(o, job("/u/a", scheduling_timeout_ms=5_000), NOW)
        if running:
            o.workers["w1"] = worker("w1")
            task = o.task("/u/a", 0)
            assert task is not None
            kernel.assign(o, task, "w1", "a" * 16, NOW)
            kernel.settle(o, NOW)
        self.model.apply(o)
        self.wall = wall_at_boot
        self.timers = Timers(self.loop, clock=lambda: self.monotonic)

    def fired_after(self, seconds: float) -> int:
        self.monotonic = 100.0 + seconds
        return self.timers.fire()


@pytest.mark.asyncio
@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
async def test_a_clock_that_is_set_while_a_deadline_runs_moves_nothing(step_ms: int) -> None:
    clocks = Clocks()
    clocks.wall += step_ms
    assert clocks.fired_after(4.9) == 0
    assert clocks.fired_after(5.1) == 1


@pytest.mark.asyncio
@pytest.mark.parametrize(("step_ms", "after_s"), [(-3_600_000, 5.0), (3_600_000, 0.0), (2_000, 3.0)])
async def test_a_clock_that_was_set_before_a_boot_gives_no_more_than_the_whole_time(
    step_ms: int, after_s: float
) -> None:
    clocks = Clocks(wall_at_boot=NOW + step_ms)
    assert clocks.fired_after(after_s - 0.1) == 0
    assert clocks.fired_after(after_s + 0.1) == 1


@pytest.mark.asyncio
async def test_the_deadline_of_a_job_whose_tasks_all_run_is_noted_too() -> None:
    assert Clocks(running=True).fired_after(5.1) == 1


@pytest.mark.asyncio
async def test_a_job_submitted_after_the_clock_went_back_waits_as_long_as_it_asked_for() -> None:
    clocks = Clocks()
    clocks.wall -= 3_600_000
    o = Overlay(clocks.model)
    submit.admit(o, job("/u/b", scheduling_timeout_ms=2_000), clocks.wall)
    late = o.job("/u/b")
    assert late is not None and late.submitted_at_ms == NOW + 1, "submit times only grow"
    clocks.timers._committed(Committed(1, clocks.model.apply(o), clocks.wall))
    assert clocks.fired_after(1.9) == 0
    assert clocks.fired_after(2.1) == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
async def test_a_clock_that_is_set_while_a_task_runs_gives_it_neither_more_nor_less_time(step_ms: int) -> None:
    clocks = Clocks(running=True)
    o = Overlay(clocks.model)
    submit.admit(o, job("/u/timed", timeout_ms=3_000), NOW)
    task = o.task("/u/timed", 0)
    assert task is not None
    kernel.assign(o, task, "w1", "b" * 16, NOW)
    kernel.observe(o, "w1", kernel.Observed("b" * 16, S.RUNNING, started_at_ms=NOW), NOW)
    kernel.settle(o, NOW)
    clocks.timers._committed(Committed(1, clocks.model.apply(o), NOW))
    clocks.wall += step_ms
    assert clocks.fired_after(2.9) == 0
    assert clocks.fired_after(3.1) == 1
