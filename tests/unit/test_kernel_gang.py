"""Gangs: placed together, bounced together, torn down together, and nobody pays for a mate (control-plane §1.4, §1.6)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_controller.state import kernel
from iris_controller.state.desired import StopReason, desired_for
from iris_controller.state.kick import kick
from iris_controller.state.observed import FailureKind, Observed
from iris_controller.state.overlay import Overlay
from iris_controller.state.records import Charge
from iris_core.model.ids import parse_target
from iris_core.model.states import ACTIVE, TERMINAL, JobState, TaskState
from tests.unit.kernel_world import JOB, World, check_invariants

S = TaskState
SIZE = 4


def gang(world: World | None = None, tasks: int = SIZE, **values: Any) -> World:
    """A world with one worker per member, and a pending gang."""
    world = world or World()
    for index in range(tasks):
        world.add_worker(f"w{index}", attributes={"slice": "s1"})
    values.setdefault("max_retries_preemption", 1)
    world.submit(tasks=tasks, group_by="slice", **values)
    return world


def place(world: World, *, begin: bool = True) -> list[str]:
    """The attempts of the pending members, placed together; running with `begin`."""
    pending = [t.index for t in world.model.tasks[JOB] if t.state is S.PENDING]
    with world.batch() as o:
        placed = kernel.assign_gang(o, JOB, [(i, f"w{i}", world.uid()) for i in pending], world.now_ms)
    assert len(placed) == len(pending)
    if begin:
        with world.batch() as o:
            for attempt in placed:
                assert kernel.observe(o, attempt.worker_id, Observed(attempt.uid, S.RUNNING), world.now_ms)
    return [attempt.uid for attempt in placed]


def states(world: World) -> list[TaskState]:
    return [world.last_task(i).state if (JOB, i) in world.changes.tasks else world.task(i).state for i in range(SIZE)]


def confirm(world: World) -> None:
    """Every worker says that what it was to stop is gone."""
    with world.batch() as o:
        for attempt in list(world.model.attempts.values()):
            if attempt.state in TERMINAL:
                kernel.observe(o, attempt.worker_id, Observed(attempt.uid, S.KILLED), world.now_ms)


# --- placing ---------------------------------------------------------------------------------------------------------


def test_a_member_is_never_placed_alone() -> None:
    world = gang()
    with world.batch() as o:
        task = o.task(JOB, 0)
        assert task is not None
        assert kernel.assign(o, task, "w0", world.uid(), world.now_ms) is None
    assert states(world) == [S.PENDING] * SIZE and not world.model.attempts


@pytest.mark.parametrize(
    "change",
    ["one missing", "one twice", "one too many", "worker gone", "worker closed", "other slice", "no slice", "job over"],
)
def test_a_gang_of_which_one_member_cannot_be_placed_is_not_placed_at_all(change: str) -> None:
    world = gang()
    places = [(i, f"w{i}", world.uid()) for i in range(SIZE)]
    if change == "one missing":
        places.pop()
    elif change == "one twice":
        places[1] = (0, "w1", places[1][2])
    elif change == "one too many":
        places.append((SIZE, "w0", world.uid()))
    elif change == "worker gone":
        with world.batch() as o:
            o.workers["w2"] = None
    elif change == "worker closed":
        world.change_worker("w2", placeable=False)
    elif change == "other slice":
        world.change_worker("w2", attributes={"slice": "s2"})
    elif change == "no slice":
        world.change_worker("w2", attributes={})
    else:
        with world.batch() as o:
            kernel.cancel(o, JOB, "ann", "", world.now_ms)
    with world.batch() as o:
        assert kernel.assign_gang(o, JOB, places, world.now_ms) == []
        assert not o.dirty


def test_a_uid_is_not_used_twice() -> None:
    world = gang()
    for places in ([(i, f"w{i}", "0" * 16) for i in range(SIZE)],):
        with pytest.raises(ValueError, match="twice"):
            kernel.assign_gang(Overlay(world.model), JOB, places, world.now_ms)
    uids = place(world)
    with pytest.raises(ValueError, match="in use"):
        kernel.assign_gang(Overlay(world.model), JOB, [(0, "w0", uids[0])], world.now_ms)


def test_a_job_that_is_no_gang_is_not_placed_as_one() -> None:
    world = World()
    world.add_worker("w0", attributes={"slice": "s1"})
    world.submit(tasks=1)
    assert kernel.assign_gang(Overlay(world.model), JOB, [(0, "w0", world.uid())], world.now_ms) == []


# --- bounce ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("begin", [True, False])
def test_a_lost_member_bounces_its_mates_which_are_charged_nothing(begin: bool) -> None:
    world = gang()
    uids = place(world, begin=begin)
    with world.batch() as o:
        kernel.worker_lost(o, "w1", "gone", world.now_ms)
    check_invariants(world.model)
    assert states(world) == [S.PENDING] * SIZE
    lost = world.last_attempt(uids[1])
    assert (lost.state, lost.charge) == (S.WORKER_FAILED, Charge.PREEMPTION if begin else Charge.NONE)
    for index in (0, 2, 3):
        attempt, task = world.last_attempt(uids[index]), world.task(index)
        assert (attempt.state, attempt.charge, attempt.finished_at_ms) == (S.COSCHED_FAILED, Charge.NONE, None)
        assert (task.preemption_count, task.failure_count, task.worker_id) == (0, 0, "")
        assert task.error == "gang mate task 1 went back to the queue: worker w1 was lost: gone"
        assert [(d.want, d.stop_reason) for d in desired_for(world.model, f"w{index}")] == [
            ("stop", StopReason.PREEMPTED)
        ]
        assert world.model.usage_of(f"w{index}").tasks == 1, "held until confirmed"
    assert world.audit[-1] == f"gang_requeued {JOB}"
    confirm(world)
    assert not world.model.attempts
    place(world)
    assert states(world) == [S.RUNNING] * SIZE
    assert [world.task(i).attempt_number for i in range(SIZE)] == [1] * SIZE


def test_a_failure_that_is_retried_bounces_too_and_a_preempted_member_as_well() -> None:
    world = gang(max_retries_failure=1, max_retries_preemption=1)
    uids = place(world)
    assert world.observe(uids[2], S.FAILED, "w2", exit_code=3)
    assert states(world) == [S.PENDING] * SIZE
    assert [world.task(i).failure_count for i in range(SIZE)] == [0, 0, 1, 0]
    confirm(world)
    place(world)
    with world.batch() as o:
        kick(o, [("t", parse_target(f"{JOB}/3"))], S.PREEMPTED, "ann", "", world.now_ms)
    assert states(world) == [S.PENDING] * SIZE
    assert [world.task(i).preemption_count for i in range(SIZE)] == [0, 0, 0, 1]


def test_what_has_succeeded_stays_and_the_rest_is_placed_again_together() -> None:
    world = gang()
    uids = place(world)
    world.observe(uids[0], S.SUCCEEDED, "w0")
    with world.batch() as o:
        kernel.worker_lost(o, "w1", "gone", world.now_ms)
    assert states(world) == [S.SUCCEEDED, S.PENDING, S.PENDING, S.PENDING]
    confirm(world)
    again = place(world)
    assert len(again) == 3
    with world.batch() as o:
        for index, uid in enumerate(again, start=1):
            kernel.observe(o, f"w{index}", Observed(uid, S.SUCCEEDED), world.now_ms)
    assert world.job().state is JobState.SUCCEEDED


def test_a_bounced_mate_s_later_word_changes_nothing_but_its_end() -> None:
    world = gang()
    uids = place(world)
    with world.batch() as o:
        kernel.worker_lost(o, "w1", "gone", world.now_ms)
    for said in (S.RUNNING, S.FAILED):
        world.observe(uids[0], said, "w0", exit_code=9)
    attempt = world.last_attempt(uids[0])
    assert (attempt.state, attempt.charge, attempt.exit_code) == (S.COSCHED_FAILED, Charge.NONE, 9)
    assert (world.task(0).state, world.task(0).failure_count) == (S.PENDING, 0)


# --- tear-down -------------------------------------------------------------------------------------------------------


def test_a_member_lost_for_good_tears_the_gang_down() -> None:
    world = gang(max_retries_preemption=0)
    uids = place(world)
    with world.batch() as o:
        kernel.worker_lost(o, "w1", "gone", world.now_ms)
    check_invariants(world.model)
    assert states(world) == [S.COSCHED_FAILED, S.WORKER_FAILED, S.COSCHED_FAILED, S.COSCHED_FAILED]
    assert (world.job().state, world.job().error) == (JobState.WORKER_FAILED, "task 1: worker w1 was lost: gone")
    for index in (0, 2, 3):
        attempt = world.last_attempt(uids[index])
        assert (attempt.state, attempt.charge, attempt.finished_at_ms) == (S.COSCHED_FAILED, Charge.NONE, None)
        assert [(d.want, d.stop_reason) for d in desired_for(world.model, f"w{index}")] == [
            ("stop", StopReason.JOB_TERMINATED)
        ]
    assert f"gang_terminated {JOB}" in world.audit
    assert world.job().preemption_count == 1


@pytest.mark.parametrize("how", ["reported", "timeout", "operator"])
def test_a_member_that_fails_for_good_ends_its_mates_as_cosched_failed_and_the_job_as_failed(how: str) -> None:
    world = gang(max_retries_failure=int(how != "reported"), timeout_ms=1_000)
    uids = place(world)
    with world.batch() as o:
        if how == "reported":
            kernel.observe(o, "w0", Observed(uids[0], S.FAILED, 1, "bad"), world.now_ms)
        elif how == "timeout":
            kernel.time_out(o, uids[0], world.now_ms)
        else:
            kick(o, [("t", parse_target(f"{JOB}/0"))], S.FAILED, "ann", "", world.now_ms)
    assert states(world) == [S.FAILED, *[S.COSCHED_FAILED] * 3]
    assert world.job().state is JobState.FAILED
    assert (world.job().failure_count, world.job().preemption_count) == (1, 0)


def test_a_tolerated_failure_still_ends_the_gang_and_the_job_says_whose_it_was() -> None:
    world = gang(max_task_failures=1)
    uids = place(world)
    world.observe(uids[2], S.FAILED, "w2", exit_code=1, error="bad")
    assert states(world) == [S.COSCHED_FAILED, S.COSCHED_FAILED, S.FAILED, S.COSCHED_FAILED]
    assert (world.job().state, world.job().error) == (
        JobState.WORKER_FAILED,
        "task 0: gang mate task 2 failed: bad",
    )


def test_a_member_in_the_queue_ends_with_a_gang_that_is_torn_down() -> None:
    world = gang(max_retries_failure=0, max_retries_preemption=5)
    uids = place(world)
    with world.batch() as o:
        kernel.observe(o, "w3", Observed(uids[3], S.WORKER_FAILED), world.now_ms)
        kernel.observe(o, "w1", Observed(uids[1], S.FAILED, 1), world.now_ms)
    assert states(world) == [S.COSCHED_FAILED, S.FAILED, S.COSCHED_FAILED, S.COSCHED_FAILED]
    assert world.last_attempt(uids[3]).charge is Charge.PREEMPTION
    assert world.last_attempt(uids[3]).state is S.WORKER_FAILED, "the attempt keeps its own end"


def test_cancel_and_deadline_end_a_gang_as_any_job() -> None:
    world = gang(scheduling_timeout_ms=5)
    with world.batch() as o:
        kernel.expire_scheduling(o, JOB, world.now_ms)
    assert world.job().state is JobState.UNSCHEDULABLE
    world = gang()
    place(world)
    with world.batch() as o:
        kernel.cancel(o, JOB, "ann", "", world.now_ms)
    assert states(world) == [S.KILLED] * SIZE


# --- order -----------------------------------------------------------------------------------------------------------

ENDS = (S.SUCCEEDED, S.FAILED, S.WORKER_FAILED, S.KILLED, S.MISSING)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, SIZE - 1), st.sampled_from(ENDS)), min_size=1, max_size=SIZE, unique_by=lambda x: x[0]),
    st.randoms(use_true_random=False),
    st.integers(0, 1),
    st.integers(0, 1),
    st.integers(0, 1),
)  # fmt: skip
def test_the_order_of_a_batch_does_not_matter_and_the_gang_stays_whole(
    said: list[tuple[int, TaskState]], random: Any, failures: int, preemptions: int, tolerated: int
) -> None:
    def run(order: list[tuple[int, TaskState]]) -> Any:
        world = gang(max_retries_failure=failures, max_retries_preemption=preemptions, max_task_failures=tolerated)
        uids = place(world)
        with world.batch() as o:
            for index, state in order:
                kernel.observe(
                    o, f"w{index}", Observed(uids[index], state, 1, f"e{index}", FailureKind.COMMAND), world.now_ms
                )
        check_invariants(world.model)
        found = states(world)
        kinds = {"active" if s in ACTIVE else "pending" for s in found if s in ACTIVE or s is S.PENDING}
        assert len(kinds) <= 1, found
        told = dict(order)
        for index, uid in enumerate(uids):
            attempt = world.last_attempt(uid)
            if index not in told:
                assert attempt.charge is Charge.NONE
            else:
                charge = {S.SUCCEEDED: Charge.NONE, S.FAILED: Charge.FAILURE}.get(told[index], Charge.PREEMPTION)
                assert attempt.charge is charge, "each pays for its own end and for no other"
        return found, world.job(), dict(world.changes.tasks), dict(world.changes.attempts)

    shuffled = list(said)
    random.shuffle(shuffled)
    assert run(said) == run(shuffled)
