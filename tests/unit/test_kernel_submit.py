"""Which jobs may enter, and what they inherit (control-plane §1.8)."""

from __future__ import annotations

from typing import Any

import pytest

from iris_controller.state import kernel
from iris_controller.state.overlay import Overlay
from iris_controller.state.submit import (
    Admitted,
    ExistingPolicy,
    KeptExisting,
    MustWait,
    NewJob,
    Refused,
    admit,
)
from iris_core.model.bands import PriorityBand
from iris_core.model.states import JobState, TaskState
from tests.unit.kernel_world import JOB, World, check_invariants, job_spec

CHILD = f"{JOB}/child"


def ask(world: World, job_id: str = JOB, policy: int = 0, tasks: int = 1, user: str = "someone", **limits: Any) -> Any:
    """The admission, or what refused it; either way its batch is applied."""
    with world.batch() as o:
        try:
            return admit(o, NewJob(job_id, user, tasks, job_spec(), policy), world.now_ms, **limits)
        except Refused as refused:
            return refused


def code(answer: Any) -> tuple[str, str]:
    assert isinstance(answer, Refused)
    return answer.status_name, answer.code


def test_a_job_and_its_tasks_enter_together() -> None:
    world = World()
    answer = ask(world, tasks=3)
    assert answer == Admitted(JOB, world.now_ms)
    job = world.job()
    assert (job.state, job.num_tasks, job.depth, job.user_id, job.submitting_user) == (
        JobState.PENDING,
        3,
        1,
        "u",
        "someone",
    )
    assert job.counts[TaskState.PENDING] == 3
    assert world.model.pending[JOB] == [2, 1, 0]
    assert all(world.task(i).attempt_number == -1 for i in range(3))
    assert world.audit == [f"job_submitted {JOB}"]
    check_invariants(world.model)


def test_submit_times_are_unique_and_name_the_incarnation() -> None:
    world = World()
    times = [ask(world, f"/u/j{i}").incarnation for i in range(5)]
    world.now_ms -= 3_600_000
    times.append(ask(world, "/u/later").incarnation)
    assert times == sorted(set(times)) and len(times) == 6
    with world.batch() as o:
        pair = [admit(o, NewJob(f"/u/k{i}", "x", 1, job_spec()), world.now_ms) for i in range(2)]
    assert isinstance(pair[0], Admitted) and isinstance(pair[1], Admitted)
    assert pair[0].incarnation + 1 == pair[1].incarnation


def test_insertion_numbers_are_a_block_per_job() -> None:
    world = World()
    for name, tasks in (("a", 5), ("b", 2), ("c", 1)):
        ask(world, f"/u/{name}", tasks=tasks)
    assert [world.job(f"/u/{n}").priority_insertion for n in "abc"] == [0, 5, 7]


def test_a_child_inherits_band_root_time_and_submitter() -> None:
    world = World()
    with world.batch() as o:
        admit(o, NewJob(JOB, "root-user", 1, job_spec(band=PriorityBand.PRODUCTION)), world.now_ms)
    world.now_ms += 5_000
    ask(world, CHILD, user="a-task")
    ask(world, f"{CHILD}/deep", user="a-task")
    root, child, deep = (world.job(j) for j in (JOB, CHILD, f"{CHILD}/deep"))
    assert child.spec.band is deep.spec.band is PriorityBand.PRODUCTION
    assert world.task(0, CHILD).band is PriorityBand.PRODUCTION
    assert child.root_submitted_ms == deep.root_submitted_ms == root.submitted_at_ms
    assert (child.submitting_user, child.parent_job_id, deep.root_job_id, deep.depth) == ("root-user", JOB, JOB, 3)


def test_without_a_band_a_root_job_is_interactive() -> None:
    world = World()
    ask(world)
    assert world.job().spec.band is PriorityBand.INTERACTIVE


def test_a_child_needs_a_parent_that_is_there_and_not_over() -> None:
    world = World()
    assert code(ask(world, CHILD)) == ("FAILED_PRECONDITION", "parent_missing")
    ask(world)
    assert isinstance(ask(world, CHILD), Admitted)
    with world.batch() as o:
        kernel.cancel(o, JOB, "x", "", world.now_ms)
    answer = ask(world, f"{JOB}/late")
    assert code(answer) == ("FAILED_PRECONDITION", "parent_ended")
    assert "killed" in answer.message and JOB in answer.message


def test_a_parent_that_ends_in_the_same_batch_takes_no_more_children() -> None:
    world = World()
    world.add_worker()
    ask(world)
    uid = world.running()
    with world.batch() as o:
        kernel.observe(o, "w", kernel.Observed(uid, TaskState.SUCCEEDED), world.now_ms)
        with pytest.raises(Refused, match="has ended as succeeded"):
            admit(o, NewJob(CHILD, "x", 1, job_spec()), world.now_ms)


@pytest.mark.parametrize("tasks", [0, -1, 11, 2**31 - 1])
def test_an_impossible_number_of_tasks_is_stored_as_a_failed_job(tasks: int) -> None:
    world = World()
    assert isinstance(ask(world, tasks=tasks, max_replicas=10), Admitted)
    job = world.job()
    assert (job.state, job.num_tasks, job.error) == (JobState.FAILED, 0, f"replicas {tasks} is outside 1..10")
    assert job.finished_at_ms is not None
    assert JOB not in world.model.pending
    check_invariants(world.model)


@pytest.mark.parametrize("tasks", [1, 10])
def test_the_limits_themselves_are_allowed(tasks: int) -> None:
    world = World()
    ask(world, tasks=tasks, max_replicas=10)
    assert world.job().num_tasks == tasks


def test_a_job_has_ten_thousand_tasks_at_most() -> None:
    world = World()
    assert isinstance(ask(world, tasks=10_000), Admitted) and world.job().num_tasks == 10_000
    assert isinstance(ask(world, "/u/more", tasks=10_001), Admitted)  # stored, as what it is; no cap hides it
    assert world.job("/u/more").error == "replicas 10001 is outside 1..10000"
    check_invariants(world.model)


def test_a_user_may_have_so_many_unfinished_tasks_and_a_submit_past_that_is_refused_whole() -> None:
    world = World()
    world.add_worker()
    for i in range(3):
        ask(world, f"/u/j{i}", tasks=2, max_active_tasks=7)
    answer = ask(world, "/u/more", tasks=2, max_active_tasks=7)
    assert code(answer) == ("RESOURCE_EXHAUSTED", "too_many_tasks")
    assert (
        "6 unfinished tasks" in answer.message and "may have 7" in answer.message and "/u/more" not in world.model.jobs
    )
    assert isinstance(ask(world, "/u/one", max_active_tasks=7), Admitted)  # exactly at it
    assert isinstance(ask(world, "/v/other", tasks=7, max_active_tasks=7), Admitted)
    assert isinstance(
        ask(world, "/u/j0", ExistingPolicy.RECREATE, tasks=2, max_active_tasks=7), Admitted
    )  # two for two
    assert code(ask(world, "/u/j0", ExistingPolicy.RECREATE, tasks=3, max_active_tasks=7))[1] == "too_many_tasks"
    assert ask(world, "/u/j0", ExistingPolicy.KEEP, tasks=5, max_active_tasks=7) == KeptExisting(
        "/u/j0", world.job("/u/j0").submitted_at_ms
    )
    world.observe(world.running(0, "/u/j1"), TaskState.SUCCEEDED)
    assert isinstance(ask(world, "/u/next", max_active_tasks=7), Admitted)
    with world.batch() as o:
        kernel.cancel(o, "/u/j1", "x", "", world.now_ms)
    assert isinstance(ask(world, "/u/last", max_active_tasks=7), Admitted)
    check_invariants(world.model)


def test_the_limit_holds_within_a_batch() -> None:
    world = World()
    with world.batch() as o:
        for i in range(2):
            admit(o, NewJob(f"/u/j{i}", "x", 1, job_spec()), world.now_ms, max_active_tasks=2)
        with pytest.raises(Refused):
            admit(o, NewJob("/u/j2", "x", 1, job_spec()), world.now_ms, max_active_tasks=2)
        kernel.cancel(o, "/u/j0", "x", "", world.now_ms)
        admit(o, NewJob("/u/j2", "x", 1, job_spec()), world.now_ms, max_active_tasks=2)
    check_invariants(world.model)


# A job of the same name ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [ExistingPolicy.UNSPECIFIED, ExistingPolicy.ERROR])
def test_a_running_job_keeps_its_name(policy: int) -> None:
    world = World()
    world.add_worker()
    ask(world)
    world.running()
    answer = ask(world, policy=policy)
    assert code(answer) == ("ALREADY_EXISTS", "job_exists")
    assert JOB in answer.message and "running" in answer.message


def test_keep_answers_with_the_running_one() -> None:
    world = World()
    first = ask(world)
    world.now_ms += 10
    assert ask(world, policy=ExistingPolicy.KEEP) == KeptExisting(JOB, first.incarnation)


@pytest.mark.parametrize("policy", [ExistingPolicy.UNSPECIFIED, ExistingPolicy.KEEP, ExistingPolicy.RECREATE])
def test_a_finished_job_is_replaced(policy: int) -> None:
    world = World()
    world.add_worker()
    first = ask(world)
    world.observe(world.running(), TaskState.FAILED)
    second = ask(world, policy=policy, tasks=2)
    assert isinstance(second, Admitted) and second.incarnation > first.incarnation
    assert (world.job().state, world.job().num_tasks, world.task().attempt_number) == (JobState.PENDING, 2, -1)
    assert world.audit[-2:] == [f"job_removed {JOB}", f"job_submitted {JOB}"]
    check_invariants(world.model)


def test_error_refuses_even_a_finished_one() -> None:
    world = World()
    ask(world)
    with world.batch() as o:
        kernel.cancel(o, JOB, "x", "", world.now_ms)
    answer = ask(world, policy=ExistingPolicy.ERROR)
    assert code(answer) == ("ALREADY_EXISTS", "job_exists") and "killed" in answer.message
    assert "cancel" not in answer.hint, "what is over cannot be cancelled"


def test_an_unknown_policy_is_refused() -> None:
    world = World()
    ask(world)
    assert code(ask(world, policy=77)) == ("INVALID_ARGUMENT", "bad_policy")


def test_a_name_is_free_only_when_its_attempts_have_left_their_workers() -> None:
    world = World()
    world.add_worker()
    ask(world)
    uid = world.running()
    with world.batch() as o:
        kernel.cancel(o, JOB, "x", "", world.now_ms)
    assert ask(world) == MustWait(JOB)
    assert ask(world) == MustWait(JOB)
    world.observe(uid, TaskState.KILLED)
    assert isinstance(ask(world), Admitted)
    check_invariants(world.model)


def test_after_waiting_long_enough_the_name_is_taken_by_force() -> None:
    world = World()
    world.add_worker()
    ask(world)
    uid = world.running()
    with world.batch() as o:
        kernel.cancel(o, JOB, "x", "", world.now_ms)
    assert isinstance(ask(world, force=True), Admitted)
    assert uid not in world.model.attempts and world.model.usage["w"].tasks == 0
    assert not world.observe(uid, TaskState.RUNNING)  # a zombie now
    assert world.running() != uid
    check_invariants(world.model)


@pytest.mark.parametrize("policy", list(ExistingPolicy))
@pytest.mark.parametrize("ended", [False, True])
def test_what_can_never_run_takes_no_job_away(policy: ExistingPolicy, ended: bool) -> None:
    world = World()
    world.add_worker()
    ask(world)
    uid = world.running()
    if ended:
        world.observe(uid, TaskState.SUCCEEDED)
    before = world.job()
    with pytest.raises(Refused) as refused, world.batch() as o:
        admit(o, NewJob(JOB, "x", 10_001, job_spec(), policy), world.now_ms)
    assert refused.value.status_name == "INVALID_ARGUMENT"
    assert "replicas 10001 is outside 1..10000" in refused.value.message
    assert world.job() == before


def test_recreate_cancels_and_waits() -> None:
    world = World()
    world.add_worker()
    ask(world)
    ask(world, CHILD)
    uid = world.running()
    assert ask(world, policy=ExistingPolicy.RECREATE) == MustWait(JOB)
    assert world.job().state is world.job(CHILD).state is JobState.KILLED
    assert "replaced" in (world.job().error or "")
    world.observe(uid, TaskState.KILLED)
    assert isinstance(ask(world, policy=ExistingPolicy.RECREATE), Admitted)
    assert CHILD not in world.model.jobs
    check_invariants(world.model)


def test_an_attempt_that_leaves_or_arrives_in_the_same_batch_counts() -> None:
    world = World()
    world.add_worker()
    ask(world)
    uid = world.running()
    with world.batch() as o:
        kernel.cancel(o, JOB, "x", "", world.now_ms)
    with world.batch() as o:
        kernel.observe(o, "w", kernel.Observed(uid, TaskState.KILLED), world.now_ms)
        assert isinstance(admit(o, NewJob(JOB, "x", 1, job_spec()), world.now_ms), Admitted)
    with world.batch() as o:
        kernel.assign(o, world.task(), "w", world.uid(), world.now_ms)
        again = NewJob(JOB, "x", 1, job_spec(), ExistingPolicy.RECREATE)
        assert admit(o, again, world.now_ms) == MustWait(JOB)
    check_invariants(world.model)


def test_by_force_nothing_of_the_old_incarnation_is_left_in_the_batch() -> None:
    world = World()
    world.add_worker()
    ask(world)
    world.running()
    with world.batch() as o:
        again = NewJob(JOB, "x", 1, job_spec(), ExistingPolicy.RECREATE)
        assert isinstance(admit(o, again, world.now_ms, force=True), Admitted)
        assert not o.attempts and not o.tasks
    assert not world.model.attempts
    check_invariants(world.model)


def test_recreate_of_a_pending_job_is_immediate() -> None:
    world = World()
    ask(world, tasks=5)
    assert isinstance(ask(world, policy=ExistingPolicy.RECREATE, tasks=2), Admitted)
    assert world.model.pending[JOB] == [1, 0]
    check_invariants(world.model)


@pytest.mark.parametrize("policy", [ExistingPolicy.UNSPECIFIED, ExistingPolicy.KEEP])
def test_a_finished_job_with_a_living_child_is_not_replaced_silently(policy: int) -> None:
    world = World()
    world.add_worker()
    ask(world, tasks=2)  # several tasks: children are preserved
    ask(world, CHILD)
    world.observe(world.running(), TaskState.FAILED)
    assert world.job(CHILD).state is JobState.PENDING
    answer = ask(world, policy=policy)
    assert code(answer) == ("ALREADY_EXISTS", "job_exists") and CHILD in answer.message
    assert isinstance(ask(world, policy=ExistingPolicy.RECREATE), Admitted)
    assert CHILD not in world.model.jobs


def test_a_refusal_changes_nothing() -> None:
    world = World()
    ask(world)
    o = Overlay(world.model)
    with pytest.raises(Refused):
        admit(o, NewJob(JOB, "x", 1, job_spec()), world.now_ms)
    assert not o.dirty and not o.audit


def test_a_name_that_only_the_database_may_still_know_is_removed_there_too() -> None:
    world = World()
    o = Overlay(world.model)
    admit(o, NewJob(JOB, "x", 1, job_spec()), world.now_ms)
    assert JOB in o.deleted_jobs and JOB in o.new_jobs
    world.model.apply(o)
    check_invariants(world.model)


def test_a_job_that_ended_is_not_forgotten_while_a_worker_still_holds_an_attempt_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("iris_controller.state.model.TERMINAL_KEPT", 2)
    world = World()
    world.add_worker()
    ask(world)
    uid = world.running()
    for i in range(5):
        ask(world, f"/u/j{i}")
        with world.batch() as o:
            kernel.cancel(o, f"/u/j{i}", "x", "", world.now_ms)
            kernel.cancel(o, JOB, "x", "", world.now_ms)
    assert JOB in world.model.jobs and "/u/j0" not in world.model.jobs
    assert ask(world) == MustWait(JOB)
    world.observe(uid, TaskState.KILLED)
    ask(world, "/u/last")
    with world.batch() as o:
        kernel.cancel(o, "/u/last", "x", "", world.now_ms)
    assert JOB not in world.model.jobs
    check_invariants(world.model)
