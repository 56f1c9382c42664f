"""An operator's preempt and fail: what they do to task, attempt, budgets and job, and what they refuse (control-plane §1.9)."""

from __future__ import annotations

import pytest

from iris_controller.state import kernel
from iris_controller.state.desired import StopReason, desired_for
from iris_controller.state.kick import End, Kicked, kick
from iris_controller.state.overlay import Overlay
from iris_controller.state.records import Charge
from iris_core.model.ids import parse_target
from iris_core.model.states import ACTIVE, JobState, TaskState
from tests.unit.kernel_world import JOB, World, check_invariants

PREEMPTED: End = TaskState.PREEMPTED
FAILED: End = TaskState.FAILED


@pytest.fixture
def world() -> World:
    world = World()
    world.add_worker()
    return world


def bring(world: World, state: TaskState, index: int = 0) -> str:
    uid = world.assign(index)
    if state is not TaskState.ASSIGNED:
        assert world.observe(uid, state)
    return uid


def do_kick(world: World, *targets: str, end: End = PREEMPTED, dry_run: bool = False, reason: str = "") -> list[Kicked]:
    with world.batch() as o:
        results = kick(o, [(t, parse_target(t)) for t in targets], end, "ann", reason, world.now_ms, dry_run=dry_run)
    check_invariants(world.model)
    return results


@pytest.mark.parametrize("state", sorted(ACTIVE))
def test_preempt_charges_the_preemption_budget_from_any_active_state_and_the_task_waits_again(
    world: World, state: TaskState
) -> None:
    world.submit()
    uid = bring(world, state)
    assert do_kick(world, f"{JOB}/0", reason="drain") == [Kicked(f"{JOB}/0", f"{JOB}/0", True)]
    task, attempt = world.task(), world.model.attempts[uid]
    assert (task.state, task.worker_id, task.preemption_count, task.failure_count) == (TaskState.PENDING, "", 1, 0)
    assert (attempt.state, attempt.charge, attempt.finished_at_ms) == (TaskState.PREEMPTED, Charge.PREEMPTION, None)
    assert attempt.error == task.error == "preempted by ann: drain"
    assert world.audit[-1] == f"task_preempted {JOB}/0"
    assert [(d.want, d.stop_reason) for d in desired_for(world.model, "w")] == [("stop", StopReason.PREEMPTED)]
    assert world.model.usage_of("w").tasks == 1, "its capacity is held until the worker confirms"
    assert world.observe(uid, TaskState.KILLED)
    assert world.model.usage_of("w").tasks == 0
    assert world.last_attempt(uid).state is TaskState.PREEMPTED
    assert world.assign() != uid and world.task().attempt_number == 1


@pytest.mark.parametrize("state", sorted(ACTIVE))
def test_preempt_without_budget_is_the_end(world: World, state: TaskState) -> None:
    world.submit(max_retries_preemption=0)
    uid = bring(world, state)
    do_kick(world, f"{JOB}/0")
    task = world.last_task()
    assert (task.state, task.preemption_count, task.worker_id) == (TaskState.PREEMPTED, 1, "w")
    assert world.last_attempt(uid).charge is Charge.PREEMPTION
    assert (world.job().state, world.job().error) == (JobState.WORKER_FAILED, "preempted by ann")


@pytest.mark.parametrize("state", sorted(ACTIVE))
def test_fail_is_never_retried_and_charges_a_failure(world: World, state: TaskState) -> None:
    world.submit(max_retries_failure=5, max_retries_preemption=5)
    uid = bring(world, state)
    do_kick(world, f"{JOB}/0", end=FAILED, reason="bad output")
    task, attempt = world.last_task(), world.last_attempt(uid)
    assert (task.state, task.failure_count, task.preemption_count) == (TaskState.FAILED, 1, 0)
    assert (attempt.state, attempt.charge, attempt.finished_at_ms) == (TaskState.FAILED, Charge.FAILURE, None)
    assert (world.job().state, world.job().error) == (JobState.FAILED, "failed by ann: bad output")
    assert f"task_failed {JOB}/0" in world.audit
    assert [(d.want, d.stop_reason) for d in desired_for(world.model, "w")] == [("stop", StopReason.CANCELLED)]


def test_a_job_stands_for_its_active_tasks(world: World) -> None:
    world.submit(tasks=4)
    for index in (0, 2):
        bring(world, TaskState.RUNNING, index)
    results = do_kick(world, JOB)
    assert results == [Kicked(JOB, f"{JOB}/{index}", True) for index in (0, 2)]
    assert world.job().preemption_count == 2
    (again,) = do_kick(world, JOB)
    assert not again.accepted and "none of its tasks is on a worker" in again.detail


def test_each_target_is_answered_by_itself_in_order(world: World) -> None:
    world.submit(tasks=3, max_task_failures=3)
    bring(world, TaskState.RUNNING, 0)
    done = bring(world, TaskState.RUNNING, 1)
    world.observe(done, TaskState.SUCCEEDED)
    world.submit("/u/over")
    world.submit("/u/one")
    with world.batch() as o:
        kernel.cancel(o, "/u/over", "ann", "", world.now_ms)
    results = do_kick(
        world, f"{JOB}/9", f"{JOB}/2", f"{JOB}/1", f"{JOB}/0:7", f"{JOB}/2:0", "/u/no/0", "/u/no", "/u/over", "/u/over/0",
        "/u/one/1", f"{JOB}/0:0",
    )  # fmt: skip
    assert [r.accepted for r in results] == [False] * 10 + [True]
    assert [r.detail for r in results[:10]] == [
        f"job {JOB} has 3 tasks, none with index 9",
        "it is pending, on no worker",
        "it has ended as succeeded",
        "attempt 7 is not the current one, attempt 0 is",
        "attempt 0 is not the current one, none has begun",
        "there is no unfinished job /u/no",
        "there is no unfinished job /u/no",
        "its job has ended as killed: none of its tasks is on a worker",
        "its job has ended as killed",
        "job /u/one has 1 task, none with index 1",
    ]
    assert results[3].task_id == f"{JOB}/0"
    assert [world.task(i).state for i in range(3)] == [TaskState.PENDING, TaskState.SUCCEEDED, TaskState.PENDING]


def test_an_attempt_that_has_had_its_day_is_never_taken_for_the_next_one(world: World) -> None:
    world.submit(max_retries_preemption=5)
    bring(world, TaskState.RUNNING)
    do_kick(world, f"{JOB}/0:0")
    uid = bring(world, TaskState.RUNNING)
    (again,) = do_kick(world, f"{JOB}/0:0")
    assert (again.accepted, again.detail) == (False, "attempt 0 is not the current one, attempt 1 is")
    assert world.task().attempt_uid == uid and world.task().state is TaskState.RUNNING
    assert world.job().preemption_count == 1


def test_a_task_named_several_times_is_kicked_once(world: World) -> None:
    world.submit()
    bring(world, TaskState.RUNNING)
    results = do_kick(world, f"{JOB}/0", JOB, f"{JOB}/0:0", f"{JOB}/0")
    assert all(r.accepted for r in results)
    assert world.task().preemption_count == 1
    assert world.audit.count(f"task_preempted {JOB}/0") == 1


def test_a_dry_run_answers_the_same_and_changes_nothing(world: World) -> None:
    world.submit(tasks=2)
    bring(world, TaskState.RUNNING)
    overlay = Overlay(world.model)
    targets = [(t, parse_target(t)) for t in (JOB, f"{JOB}/1")]
    results = kick(overlay, targets, FAILED, "ann", "", world.now_ms, dry_run=True)
    assert [r.accepted for r in results] == [True, False]
    assert not overlay.dirty and not overlay.audit
    assert do_kick(world, JOB, f"{JOB}/1", end=FAILED) == results


def test_a_rejection_that_the_caller_decided_on_keeps_its_place(world: World) -> None:
    world.submit()
    bring(world, TaskState.RUNNING)
    with world.batch() as o:
        results = kick(o, [("/x", "no id"), (JOB, parse_target(JOB))], PREEMPTED, "ann", "", world.now_ms)
    assert results == [Kicked("/x", "", False, "no id"), Kicked(JOB, f"{JOB}/0", True)]


def test_the_worker_s_word_after_the_kick_changes_no_charge(world: World) -> None:
    world.submit(max_retries_failure=3)
    uid = bring(world, TaskState.RUNNING)
    do_kick(world, f"{JOB}/0")
    for said in (TaskState.RUNNING, TaskState.FAILED):
        world.observe(uid, said, exit_code=1)
    attempt = world.last_attempt(uid)
    assert (attempt.state, attempt.charge, attempt.exit_code) == (TaskState.PREEMPTED, Charge.PREEMPTION, 1)
    assert (world.task().failure_count, world.task().preemption_count) == (0, 1)


def test_a_kick_of_a_job_that_this_batch_has_ended_is_refused(world: World) -> None:
    world.submit(tasks=2)
    first, second = bring(world, TaskState.RUNNING, 0), bring(world, TaskState.RUNNING, 1)
    with world.batch() as o:
        kernel.observe(o, "w", kernel.Observed(first, TaskState.FAILED, 1), world.now_ms)
        (result,) = kick(o, [("t", parse_target(f"{JOB}/1"))], PREEMPTED, "ann", "", world.now_ms)
    assert not result.accepted
    assert world.last_attempt(second).charge is Charge.NONE


def test_a_retried_parent_takes_its_children_with_it(world: World) -> None:
    world.submit()
    bring(world, TaskState.RUNNING)
    world.submit(f"{JOB}/child")
    do_kick(world, f"{JOB}/0")
    assert world.job(f"{JOB}/child").state is JobState.KILLED
