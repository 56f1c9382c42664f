"""What tasks mean for their job and its descendants (control-plane §1.5), whatever the order of events."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from iris_controller.state import kernel
from iris_controller.state.desired import StopReason
from iris_controller.state.model import Model
from iris_controller.state.observed import FailureKind, Observed
from iris_controller.state.overlay import Overlay
from iris_controller.state.records import ChildrenPolicy
from iris_controller.state.rollup import rolled_up, terminates_children
from iris_controller.state.submit import NewJob, admit
from iris_core.model.states import JOB_TERMINAL, TERMINAL, JobState, TaskState
from tests.unit.kernel_world import JOB, World, check_invariants, job_spec

S, J = TaskState, JobState
CHILD = f"{JOB}/child"
GRANDCHILD = f"{CHILD}/deep"


def job_of(*states: TaskState, tolerated: int = 0, started: bool = False, state: JobState = J.PENDING) -> Any:
    world = World()
    world.submit(tasks=len(states), max_task_failures=tolerated)
    counts = [0] * 13
    for task_state in states:
        counts[task_state] += 1
    return Overlay(world.model).set_job(
        world.job(), counts=tuple(counts), state=state, started_at_ms=5 if started else None
    )


@pytest.mark.parametrize(
    ("job", "state"),
    [
        (job_of(S.PENDING), J.PENDING),
        (job_of(S.PENDING, started=True, state=J.RUNNING), J.RUNNING),  # a retry gap is no step back
        (job_of(S.PENDING, S.ASSIGNED), J.RUNNING),
        (job_of(S.BUILDING), J.RUNNING),
        (job_of(S.RUNNING, S.SUCCEEDED), J.RUNNING),
        (job_of(S.SUCCEEDED, S.SUCCEEDED), J.SUCCEEDED),
        (job_of(S.FAILED, S.RUNNING), J.FAILED),
        (job_of(S.FAILED, S.RUNNING, tolerated=1), J.RUNNING),
        (job_of(S.FAILED, S.FAILED, S.RUNNING, tolerated=1), J.FAILED),
        (job_of(S.FAILED, S.SUCCEEDED, tolerated=1), J.SUCCEEDED),
        (job_of(S.UNSCHEDULABLE, S.RUNNING), J.UNSCHEDULABLE),
        (job_of(S.FAILED, S.UNSCHEDULABLE), J.FAILED),
        (job_of(S.UNSCHEDULABLE, S.KILLED), J.UNSCHEDULABLE),
        (job_of(S.KILLED, S.RUNNING), J.KILLED),
        (job_of(S.KILLED, S.WORKER_FAILED), J.KILLED),
        (job_of(S.WORKER_FAILED, S.RUNNING), J.RUNNING),
        (job_of(S.WORKER_FAILED, S.PENDING, started=True), J.RUNNING),
        (job_of(S.WORKER_FAILED, S.SUCCEEDED), J.WORKER_FAILED),
        (job_of(S.PREEMPTED, S.SUCCEEDED), J.WORKER_FAILED),
        (job_of(S.COSCHED_FAILED, S.SUCCEEDED), J.WORKER_FAILED),
        (job_of(S.WORKER_FAILED, S.FAILED, tolerated=1), J.WORKER_FAILED),
        *((job_of(S.SUCCEEDED, state=state), state) for state in sorted(JOB_TERMINAL)),
        *((job_of(S.RUNNING, state=state), state) for state in sorted(JOB_TERMINAL)),
    ],
)
def test_the_rules_in_order(job: Any, state: JobState) -> None:
    assert rolled_up(job) is state


def pair(tasks: int = 1, **values: Any) -> World:
    """A running job with a running child and grandchild."""
    world = World()
    world.add_worker(cpu=100)
    world.submit(JOB, tasks=tasks, **values)
    world.running()
    world.submit(CHILD)
    world.running(job_id=CHILD)
    world.submit(GRANDCHILD)
    return world


def states(world: World) -> list[JobState]:
    return [world.job(job_id).state for job_id in (JOB, CHILD, GRANDCHILD)]


def end(world: World, state: TaskState, job_id: str = JOB, **values: Any) -> None:
    world.observe(world.task(0, job_id).attempt_uid, state, **values)


T, K = ChildrenPolicy.TERMINATE_CHILDREN, ChildrenPolicy.PRESERVE_CHILDREN


@pytest.mark.parametrize(
    ("says", "policy", "dies"),
    [
        (S.SUCCEEDED, T, True),
        (S.SUCCEEDED, K, True),  # success always ends the tree
        (S.FAILED, T, True),
        (S.FAILED, K, False),
        (S.FAILED, ChildrenPolicy.UNSPECIFIED, True),  # one task: terminate
    ],
)
def test_descendants_end_with_the_job_by_its_policy(says: TaskState, policy: ChildrenPolicy, dies: bool) -> None:
    world = pair(children_policy=policy)
    end(world, says)
    job, child, grandchild = states(world)
    assert job is (J.SUCCEEDED if says is S.SUCCEEDED else J.FAILED)
    assert (child, grandchild) == ((J.KILLED, J.KILLED) if dies else (J.RUNNING, J.PENDING))
    if dies:
        assert world.job(CHILD).error == f"its parent job {JOB} ended as {job.name.lower()}"
        attempt = next(a for a in world.model.attempts.values() if a.job_id == CHILD)
        assert (attempt.state, attempt.stop_reason) == (S.KILLED, StopReason.JOB_TERMINATED)
    check_invariants(world.model)


def test_without_a_policy_many_tasks_preserve() -> None:
    assert terminates_children(job_of(S.PENDING))
    assert not terminates_children(job_of(S.PENDING, S.PENDING))


@pytest.mark.parametrize(("policy", "dies"), [(T, True), (K, False), (ChildrenPolicy.UNSPECIFIED, True)])
def test_a_retry_ends_the_children_once_where_the_policy_says_so(policy: ChildrenPolicy, dies: bool) -> None:
    world = pair(max_retries_failure=1, children_policy=policy)
    end(world, S.FAILED)
    assert states(world)[0] is J.RUNNING
    assert world.job(CHILD).state is (J.KILLED if dies else J.RUNNING)
    if dies:
        assert world.job(CHILD).error == f"its parent job {JOB} is being retried"
        world.running()
        world.submit(f"{JOB}/next")
        world.submit("/u/elsewhere")
        assert world.job(f"{JOB}/next").state is J.PENDING  # only those of the attempt that ended
    check_invariants(world.model)


def test_a_child_submitted_after_the_retry_in_the_same_batch_lives() -> None:
    world = pair(max_retries_failure=1)
    uid = world.task().attempt_uid
    with world.batch() as o:
        kernel.observe(o, "w", Observed(uid, S.FAILED), world.now_ms)
        admit(o, NewJob(f"{JOB}/next", "u", 1, job_spec()), world.now_ms)
    assert world.job(CHILD).state is J.KILLED
    assert world.job(f"{JOB}/next").state is J.PENDING


def test_a_job_ends_with_its_first_final_failure_and_the_rest_is_killed() -> None:
    world = World()
    world.add_worker()
    world.submit(tasks=3)
    uids = [world.running(0), world.running(1)]
    world.now_ms += 1_000
    world.observe(uids[1], S.FAILED, exit_code=4, error="bad")
    job = world.job()
    assert (job.state, job.error, job.exit_code) == (J.FAILED, "task 1: bad", 4)
    assert (job.finished_at_ms, job.counts[S.KILLED], job.counts[S.FAILED]) == (world.now_ms, 2, 1)
    assert [world.last_task(i).state for i in range(3)] == [S.KILLED, S.FAILED, S.KILLED]
    assert list(world.model.attempts) == [uids[0]]
    assert f"job_terminated {JOB}" in world.audit
    check_invariants(world.model)


def test_the_error_is_that_of_the_task_which_decided_not_of_one_that_recovered() -> None:
    world = World()
    world.add_worker()
    world.submit(tasks=2, max_task_failures=1, max_retries_failure=1)
    world.observe(world.running(1), S.FAILED, error="recovers", exit_code=9)
    world.observe(world.running(1), S.SUCCEEDED)
    world.observe(world.running(0), S.WORKER_FAILED, error="lost")
    world.observe(world.running(0), S.FAILED, error="first", exit_code=1)
    world.observe(world.running(0), S.FAILED, error="second", exit_code=2)
    assert (world.job().state, world.job().error, world.job().exit_code) == (J.SUCCEEDED, None, 0)

    world = World()
    world.add_worker()
    world.submit(tasks=3, max_task_failures=1)
    world.observe(world.running(2), S.FAILED, error="early", exit_code=7)
    world.now_ms += 10
    world.observe(world.running(0), S.FAILED, error="late", exit_code=8)
    assert (world.job().error, world.job().exit_code) == ("task 2: early", 7)


def test_a_single_task_job_carries_its_tasks_error_as_it_is() -> None:
    world = World()
    world.add_worker()
    world.submit()
    world.observe(world.running(), S.FAILED, error="boom", exit_code=3)
    assert (world.job().error, world.job().exit_code) == ("boom", 3)


def test_lost_for_good_waits_for_the_others() -> None:
    world = World()
    world.add_worker()
    world.submit(tasks=2, max_retries_preemption=0)
    world.observe(world.running(0), S.WORKER_FAILED, error="gone")
    assert world.job().state is J.RUNNING
    world.observe(world.running(1), S.SUCCEEDED)
    assert (world.job().state, world.job().error) == (J.WORKER_FAILED, "task 0: gone")


# Cancel and complete ------------------------------------------------------------------------------------------


def test_cancel_ends_the_whole_subtree_and_is_idempotent() -> None:
    world = pair()
    world.submit("/u/other")
    with world.batch() as o:
        assert kernel.cancel(o, JOB, "someone", "", world.now_ms) == [JOB, CHILD, GRANDCHILD]
    assert states(world) == [J.KILLED] * 3 and world.job("/u/other").state is J.PENDING
    assert [world.audit.count(f"job_cancelled {j}") for j in (JOB, CHILD, GRANDCHILD)] == [1, 1, 1]
    before = world.job()
    with world.batch() as o:
        assert kernel.cancel(o, JOB, "someone", "", world.now_ms) == []
    assert world.job() is before
    check_invariants(world.model)


@pytest.mark.parametrize("says", [S.SUCCEEDED, S.FAILED])
def test_cancel_never_overwrites_a_proper_end(says: TaskState) -> None:
    world = pair(children_policy=K)
    end(world, says)
    ended = world.job()
    with world.batch() as o:
        killed = kernel.cancel(o, JOB, "someone", "", world.now_ms)
    assert world.job() is ended
    assert killed == ([] if says is S.SUCCEEDED else [CHILD, GRANDCHILD])  # those that outlived it


def test_cancel_may_overwrite_worker_failed() -> None:
    world = World()
    world.add_worker()
    world.submit(max_retries_preemption=0)
    world.observe(world.running(), S.WORKER_FAILED)
    finished = world.job().finished_at_ms
    world.now_ms += 1_000
    with world.batch() as o:
        assert kernel.cancel(o, JOB, "someone", "never mind", world.now_ms) == [JOB]
    assert (world.job().state, world.job().finished_at_ms) == (J.KILLED, finished)


def test_cancel_after_the_last_task_ended_in_the_same_batch_comes_too_late() -> None:
    world = pair()
    uid = world.task().attempt_uid
    with world.batch() as o:
        kernel.observe(o, "w", Observed(uid, S.SUCCEEDED), world.now_ms)
        assert kernel.cancel(o, JOB, "someone", "", world.now_ms) == []
    assert world.job().state is J.SUCCEEDED


def test_cancel_of_an_unknown_job_is_nothing() -> None:
    world = World()
    with world.batch() as o:
        assert kernel.cancel(o, "/u/none", "someone", "", world.now_ms) == []
        assert not o.dirty


def test_complete_declares_the_subtree_done_and_stops_what_runs() -> None:
    world = pair(tasks=2)
    uid = world.task().attempt_uid
    with world.batch() as o:
        assert kernel.complete(o, JOB, "someone", world.now_ms) == [JOB, CHILD, GRANDCHILD]
    assert states(world) == [J.SUCCEEDED] * 3
    assert all(world.last_task(i).state is S.SUCCEEDED for i in range(2))
    attempt = world.model.attempts[uid]
    assert (attempt.state, attempt.finished_at_ms, attempt.stop_reason) == (
        S.SUCCEEDED,
        None,
        StopReason.JOB_TERMINATED,
    )
    world.observe(uid, S.KILLED, exit_code=143)
    assert world.last_attempt(uid).state is S.SUCCEEDED and uid not in world.model.attempts
    with world.batch() as o:
        assert kernel.complete(o, JOB, "someone", world.now_ms) == []
    check_invariants(world.model)


# Order ----------------------------------------------------------------------------------------------------------


def shape(model: Model) -> tuple[Any, ...]:
    return (
        dict(model.jobs),
        {job_id: list(rows) for job_id, rows in model.tasks.items()},
        dict(model.attempts),
        {k: list(v) for k, v in model.pending.items()},
        {w: u.copy() for w, u in model.usage.items()},
    )


def test_the_order_of_a_batch_of_observations_does_not_matter() -> None:
    """Parent and child both end, one task retries, one is lost, one fails for good: 6 observations, all 720 orders."""

    def build() -> tuple[World, list[Observed]]:
        world = World()
        world.add_worker(cpu=100)
        world.submit(JOB, tasks=4, max_retries_failure=1, max_retries_preemption=0, max_task_failures=1)
        uids = [world.running(i) for i in range(4)]
        world.observe(uids[3], S.FAILED)
        uids[3] = world.running(3)
        world.submit(CHILD, tasks=2, children_policy=T)
        children = [world.running(i, CHILD) for i in range(2)]
        return world, [
            Observed(uids[0], S.SUCCEEDED),
            Observed(uids[1], S.MISSING),
            Observed(uids[2], S.SUCCEEDED, memory_peak_bytes=5),
            Observed(uids[3], S.FAILED, exit_code=2, error="again"),
            Observed(children[0], S.SUCCEEDED),
            Observed(children[1], S.FAILED, failure_kind=FailureKind.COMMAND, exit_code=1),
        ]

    results = []
    for order in itertools.permutations(range(6)):
        world, said = build()
        with world.batch() as o:
            for position in order:
                assert kernel.observe(o, "w", said[position], world.now_ms)
        results.append(shape(world.model))
    assert all(result == results[0] for result in results)
    jobs = results[0][0]
    assert (jobs[JOB].state, jobs[CHILD].state) == (J.WORKER_FAILED, J.FAILED)


def test_a_child_that_ended_in_the_same_batch_as_its_parent_keeps_its_end() -> None:
    for first, second in ((JOB, CHILD), (CHILD, JOB)):
        world = pair()
        with world.batch() as o:
            for job_id in (first, second):
                uid = world.task(0, job_id).attempt_uid
                kernel.observe(o, "w", Observed(uid, S.SUCCEEDED), world.now_ms)
        assert states(world) == [J.SUCCEEDED, J.SUCCEEDED, J.KILLED]


def test_settling_between_the_commands_of_a_batch_changes_nothing_about_its_end() -> None:
    def run(settle_between: bool) -> tuple[Any, ...]:
        world = pair(tasks=3, max_retries_failure=1)
        uid, other = world.task().attempt_uid, world.running(1)
        with world.batch() as o:
            for obs in (Observed(uid, S.FAILED), Observed(other, S.SUCCEEDED)):
                kernel.observe(o, "w", obs, world.now_ms)
                if settle_between:
                    kernel.settle(o, world.now_ms)
        return shape(world.model)

    assert run(True) == run(False)


def test_every_terminal_task_state_is_counted_by_some_rule() -> None:
    for state in TERMINAL:
        assert rolled_up(job_of(state)) in JOB_TERMINAL
