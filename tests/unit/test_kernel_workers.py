"""What a worker should be doing, and how long a broken one is trusted."""

from __future__ import annotations

import pytest

from iris_controller.state import kernel
from iris_controller.state.desired import Desired, StopReason, desired_for
from iris_controller.state.observed import FailureKind
from iris_controller.state.staging import MAX_IN_A_ROW, MAX_IN_ALL
from iris_core.model.states import JobState, TaskState
from tests.unit.kernel_world import JOB, World

S = TaskState


def test_the_desired_set_follows_the_attempts() -> None:
    world = World()
    world.add_worker()
    world.submit(tasks=4, timeout_ms=1000, max_task_failures=1)
    uids = [world.assign(i) for i in range(4)]
    world.observe(uids[1], S.BUILDING)
    world.observe(uids[2], S.RUNNING)
    world.observe(uids[3], S.RUNNING)
    with world.batch() as o:
        kernel.time_out(o, uids[3], world.now_ms)
    assert desired_for(world.model, "w") == [
        Desired(uids[0], "run"),
        Desired(uids[1], "keep"),
        Desired(uids[2], "keep"),
        Desired(uids[3], "stop", StopReason.TASK_TIMEOUT),
    ]
    assert desired_for(world.model, "unknown") == []


@pytest.mark.parametrize("how", ["cancel", "complete", "parent"])
def test_an_end_the_controller_decided_is_to_be_stopped_until_confirmed(how: str) -> None:
    world = World()
    world.add_worker()
    world.submit("/u/top")
    world.submit("/u/top/job")
    parent = world.running(job_id="/u/top")
    uid = world.assign(job_id="/u/top/job")
    with world.batch() as o:
        if how == "cancel":
            kernel.cancel(o, "/u/top/job", "x", "", world.now_ms)
        elif how == "complete":
            kernel.complete(o, "/u/top/job", "x", world.now_ms)
        else:
            kernel.observe(o, "w", kernel.Observed(parent, S.SUCCEEDED), world.now_ms)
    reason = StopReason.CANCELLED if how == "cancel" else StopReason.JOB_TERMINATED
    assert Desired(uid, "stop", reason) in desired_for(world.model, "w")
    assert "w" in world.changes.dispatch
    world.observe(uid, S.MISSING)
    assert uid not in [d.uid for d in desired_for(world.model, "w")]


def fail_staging(world: World, times: int = 1) -> None:
    for _ in range(times):
        uid = world.assign()
        world.observe(uid, S.WORKER_FAILED, failure_kind=FailureKind.STAGING, error="no space left")


def test_three_failures_to_stage_in_a_row_exclude_the_worker() -> None:
    world = World()
    world.add_worker()
    world.submit()
    assert (MAX_IN_A_ROW, MAX_IN_ALL) == (3, 10), "the numbers that operators know"
    fail_staging(world, MAX_IN_A_ROW - 1)
    assert not world.model.workers["w"].excluded
    fail_staging(world)
    worker = world.model.workers["w"]
    assert (worker.excluded, worker.excluded_reason, worker.build_failures) == (True, "no space left", MAX_IN_A_ROW)
    assert world.audit.count("worker_failing w") == 1
    with world.batch() as o:
        assert kernel.assign(o, world.task(), "w", world.uid(), world.now_ms) is None
    assert (world.task().failure_count, world.task().preemption_count) == (0, 0)
    assert world.job().state is JobState.RUNNING


def test_an_attempt_that_runs_forgives_the_row_but_not_the_total() -> None:
    world = World()
    world.add_worker()
    world.submit(max_retries_failure=1000)
    for _ in range(MAX_IN_ALL - 1):
        fail_staging(world)
        assert not world.model.workers["w"].excluded
        world.observe(world.running(), S.FAILED)
    fail_staging(world)
    assert world.model.workers["w"].excluded and world.model.workers["w"].build_failures == MAX_IN_ALL


def test_an_attempt_assigned_before_the_exclusion_lifts_it_by_running() -> None:
    world = World()
    world.add_worker()
    world.submit(tasks=2)
    good = world.assign(1)
    fail_staging(world, MAX_IN_A_ROW)
    assert world.model.workers["w"].excluded
    world.observe(good, S.RUNNING)
    worker = world.model.workers["w"]
    assert (worker.excluded, worker.excluded_reason, worker.staging_streak) == (False, "", 0)


def test_a_failing_command_is_not_the_machines_fault() -> None:
    world = World()
    world.add_worker()
    world.submit(max_retries_failure=10)
    for _ in range(5):
        world.observe(world.assign(), S.FAILED, failure_kind=FailureKind.COMMAND, exit_code=1)
    assert world.model.workers["w"].build_failures == 0
    assert world.task(0, JOB).failure_count == 5


def test_losing_a_worker_is_written_down_with_what_it_held() -> None:
    world = World()
    world.add_worker()
    world.submit(tasks=2)
    world.running(0)
    world.running(1)
    with world.batch() as o:
        kernel.worker_lost(o, "w", "no message for 50s\nevent=forged", world.now_ms)
        (event,) = [e for e in o.audit if e.action == "worker_failed"]
    assert event.entity == "w" and event.values["attempts"] == 2
    assert world.task().error == "worker w was lost: no message for 50s\nevent=forged"
