"""Every row of the task transition table (control-plane §1.4), and the guards before it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from iris_controller.state import kernel
from iris_controller.state.observed import MAX_TEXT_BYTES, WORKER_LOST_SPEC, FailureKind, Observed
from iris_controller.state.overlay import Overlay
from iris_controller.state.records import Charge
from iris_core.model.states import ACTIVE, JobState, TaskState
from tests.unit.kernel_world import JOB, World, check_invariants

S = TaskState


@dataclass(frozen=True)
class Row:
    """One line of the table: a task brought into `start`, what its worker says, and what becomes of it."""

    start: TaskState
    says: TaskState
    task: TaskState
    attempt: TaskState
    charge: Charge = Charge.NONE
    retries: int = 0
    """Of both budgets."""
    kind: FailureKind = FailureKind.UNSPECIFIED
    timeout_ms: int = 0


ROWS = [
    Row(S.ASSIGNED, S.BUILDING, S.BUILDING, S.BUILDING),
    Row(S.BUILDING, S.BUILDING, S.BUILDING, S.BUILDING),
    *(Row(start, S.RUNNING, S.RUNNING, S.RUNNING) for start in ACTIVE),
    *(Row(start, S.SUCCEEDED, S.SUCCEEDED, S.SUCCEEDED) for start in ACTIVE),
    *(Row(start, S.FAILED, S.FAILED, S.FAILED, Charge.FAILURE) for start in ACTIVE),
    *(Row(start, S.FAILED, S.PENDING, S.FAILED, Charge.FAILURE, retries=1) for start in ACTIVE),
    *(Row(S.ASSIGNED, says, S.PENDING, S.WORKER_FAILED) for says in (S.WORKER_FAILED, S.KILLED, S.MISSING)),
    *(
        Row(start, says, S.WORKER_FAILED, S.WORKER_FAILED, Charge.PREEMPTION)
        for start in (S.BUILDING, S.RUNNING)
        for says in (S.WORKER_FAILED, S.KILLED, S.MISSING)
    ),
    *(
        Row(start, says, S.PENDING, S.WORKER_FAILED, Charge.PREEMPTION, retries=1)
        for start in (S.BUILDING, S.RUNNING)
        for says in (S.WORKER_FAILED, S.KILLED, S.MISSING)
    ),
    # A timeout that the worker enforced is not retried, whatever the budget; without a limit there was none to enforce.
    Row(S.RUNNING, S.FAILED, S.FAILED, S.FAILED, Charge.FAILURE, 5, FailureKind.TIMEOUT, timeout_ms=1000),
    Row(S.RUNNING, S.FAILED, S.PENDING, S.FAILED, Charge.FAILURE, 5, FailureKind.TIMEOUT),
    # Failing to stage is the machine's fault, whatever the worker calls it.
    Row(S.ASSIGNED, S.FAILED, S.PENDING, S.WORKER_FAILED, Charge.NONE, 0, FailureKind.STAGING),
    Row(S.BUILDING, S.WORKER_FAILED, S.PENDING, S.WORKER_FAILED, Charge.PREEMPTION, 1, FailureKind.STAGING),
    Row(S.RUNNING, S.FAILED, S.FAILED, S.FAILED, Charge.FAILURE, 0, FailureKind.OUT_OF_MEMORY),
]


def started(start: TaskState, retries: int = 0, timeout_ms: int = 0) -> tuple[World, str]:
    """A job of two tasks whose first is in `start`; the second keeps the job from ending by rule 2."""
    world = World()
    world.add_worker()
    world.submit(
        tasks=2,
        max_retries_failure=retries,
        max_retries_preemption=retries,
        max_task_failures=1,
        timeout_ms=timeout_ms,
    )
    uid = world.assign()
    if start is not S.ASSIGNED:
        assert world.observe(uid, start)
    assert world.task().state is start
    return world, uid


@pytest.mark.parametrize(
    "row", ROWS, ids=lambda r: f"{r.start.name}-{r.says.name}-{r.task.name}-{r.kind.name}-{r.retries}"
)
def test_what_a_worker_says_moves_the_task_by_the_table(row: Row) -> None:
    world, uid = started(row.start, row.retries, row.timeout_ms)

    assert world.observe(uid, row.says, failure_kind=row.kind)

    task, attempt = world.last_task() if world.changes.tasks else world.task(), world.last_attempt(uid)
    assert (task.state, attempt.state) == (row.task, row.attempt)
    assert attempt.charge is row.charge
    assert task.failure_count == (row.charge is Charge.FAILURE)
    assert task.preemption_count == (row.charge is Charge.PREEMPTION)
    assert (attempt.finished_at_ms is not None) == (row.attempt not in ACTIVE)
    assert (task.finished_at_ms is not None) == (row.task not in ACTIVE | {S.PENDING})
    assert (task.worker_id == "") == (row.task is S.PENDING)
    check_invariants(world.model)


@pytest.mark.parametrize("state", [S.UNSPECIFIED, S.PENDING, S.UNSCHEDULABLE, S.PREEMPTED, S.COSCHED_FAILED])
def test_what_no_worker_can_know_is_refused(state: TaskState) -> None:
    world, uid = started(S.RUNNING)
    accepted = world.observe(uid, state)
    assert accepted is False
    assert world.task().state is S.RUNNING and not world.changes


@pytest.mark.parametrize("number", [-1, 13, 99, 2**31 - 1])
def test_a_state_of_another_release_is_refused(number: int) -> None:
    world, uid = started(S.RUNNING)
    assert not world.observe(uid, number)
    assert world.task().state is S.RUNNING


@pytest.mark.parametrize(
    ("start", "back"), [(S.BUILDING, S.ASSIGNED), (S.RUNNING, S.BUILDING), (S.RUNNING, S.ASSIGNED)]
)
def test_a_step_back_is_refused(start: TaskState, back: TaskState) -> None:
    world, uid = started(start)
    assert not world.observe(uid, back)
    assert world.task().state is start


def test_an_unknown_attempt_or_another_workers_is_refused() -> None:
    world, uid = started(S.RUNNING)
    world.add_worker("other")
    assert not world.observe("f" * 16, S.SUCCEEDED)
    assert not world.observe(uid, S.SUCCEEDED, worker_id="other")
    assert world.task().state is S.RUNNING


def test_running_after_the_end_changes_nothing() -> None:
    world, uid = started(S.RUNNING, retries=1)
    assert world.observe(uid, S.FAILED)
    assert not world.observe(uid, S.RUNNING)
    assert not world.observe(uid, S.SUCCEEDED)
    assert world.task().state is S.PENDING


def test_in_one_batch_the_first_end_counts_and_a_duplicate_is_harmless() -> None:
    world, uid = started(S.RUNNING)
    with world.batch() as o:
        answers = [
            kernel.observe(o, "w", Observed(uid, s), world.now_ms) for s in (S.FAILED, S.FAILED, S.SUCCEEDED, S.RUNNING)
        ]
    assert answers == [True, True, False, False]
    assert world.task().state is S.FAILED and world.task().failure_count == 1


def test_a_late_report_of_an_earlier_attempt_does_not_touch_the_current_one() -> None:
    world, first = started(S.RUNNING, retries=1)
    world.observe(first, S.WORKER_FAILED)
    second = world.running()
    assert not world.observe(first, S.SUCCEEDED)
    assert world.task().state is S.RUNNING and world.task().attempt_uid == second
    assert world.task().attempt_number == 1


def test_an_attempt_that_was_preempted_and_replaced_only_stamps_its_own_end() -> None:
    """Its task runs again elsewhere before its worker has confirmed: what that says now is about the past."""
    world, first = started(S.RUNNING)
    world.add_worker("other")
    with world.batch() as o:
        o.set_attempt(world.model.attempts[first], state=S.PREEMPTED, stop_reason=2)
        o.set_task(world.task(), state=S.PENDING, worker_id="")
    second = world.running(worker_id="other")
    for says in (S.RUNNING, S.FAILED):
        assert world.observe(first, says, exit_code=143)
    assert world.last_attempt(first).state is S.PREEMPTED and world.last_attempt(first).exit_code == 143
    assert world.task().state is S.RUNNING and world.task().attempt_uid == second
    assert world.task().failure_count == 0
    check_invariants(world.model)


def test_duplicates_of_progress_change_nothing() -> None:
    world, uid = started(S.RUNNING)
    before = world.task()
    world.now_ms += 5_000
    assert world.observe(uid, S.RUNNING)
    assert world.task() is before and not world.changes


def test_memory_seen_while_running_is_kept_at_its_peak() -> None:
    world, uid = started(S.RUNNING)
    for peak in (100, 300, 200):
        world.observe(uid, S.RUNNING, memory_peak_bytes=peak)
    assert world.model.attempts[uid].memory_peak_bytes == 300
    world.observe(uid, S.SUCCEEDED, memory_peak_bytes=250, log_lines=7)
    assert (world.last_attempt(uid).memory_peak_bytes, world.last_attempt(uid).log_lines) == (300, 7)


@pytest.mark.parametrize(
    ("says", "code", "stored"), [(S.SUCCEEDED, None, 0), (S.FAILED, 3, 3), (S.FAILED, 137, 137), (S.FAILED, None, None)]
)
def test_the_exit_code_reaches_task_and_attempt(says: TaskState, code: int | None, stored: int | None) -> None:
    world, uid = started(S.RUNNING)
    world.observe(uid, says, exit_code=code)
    assert world.task().exit_code == stored
    assert world.last_attempt(uid).exit_code == stored


@pytest.mark.parametrize("text", ["x" * 10_000_000, "é" * 5_000, "\U0001f600" * 2_000, "\ud800" * 5_000])
def test_a_long_error_is_cut_and_says_so(text: str) -> None:
    world, uid = started(S.RUNNING)
    world.observe(uid, S.FAILED, error=text)
    error = world.task().error
    assert error is not None
    assert len(error.encode()) <= MAX_TEXT_BYTES
    assert error.endswith("bytes)") and "cut" in error


def test_a_failure_without_a_text_gets_one() -> None:
    world, uid = started(S.RUNNING)
    world.observe(uid, S.FAILED, exit_code=3)
    assert world.task().error == "exit code 3"


def test_a_kill_that_nobody_asked_for_says_so() -> None:
    world, uid = started(S.RUNNING, retries=1)
    world.observe(uid, S.KILLED)
    assert "nobody asked" in (world.task().error or "")
    assert world.last_attempt(uid).terminal_reason == "killed"


def test_missing_names_what_was_lost() -> None:
    world, uid = started(S.RUNNING, retries=1)
    world.observe(uid, S.MISSING)
    assert world.task().error == WORKER_LOST_SPEC


@pytest.mark.parametrize(
    ("said_start", "said_end", "start", "end"),
    [
        (0, 0, 10_000, 20_000),
        (9_000, 15_000, 9_000, 15_000),
        (1, 2, 5_000, 5_000),  # a clock far behind
        (10**15, 10**15, 10_000, 20_000),  # a clock far ahead
        (9_500, 8_000, 9_500, 9_500),  # ended before it started
    ],
)
def test_a_workers_clock_is_held_between_creation_and_now(said_start: int, said_end: int, start: int, end: int) -> None:
    world = World()
    world.add_worker()
    world.now_ms = 4_000
    world.submit(tasks=2)
    world.now_ms = 5_000
    uid = world.assign()
    world.now_ms = 10_000
    world.observe(uid, S.RUNNING, started_at_ms=said_start)
    assert world.task().started_at_ms == start
    world.now_ms = 20_000
    world.observe(uid, S.SUCCEEDED, started_at_ms=said_start, finished_at_ms=said_end)
    attempt = world.last_attempt(uid)
    assert (attempt.started_at_ms, attempt.finished_at_ms) == (start, end)


def test_no_duration_is_negative_when_the_controllers_clock_is_set_back() -> None:
    world, uid = started(S.RUNNING)
    world.now_ms -= 3_600_000
    world.observe(uid, S.SUCCEEDED)
    attempt, task = world.last_attempt(uid), world.task()
    assert attempt.finished_at_ms is not None and attempt.started_at_ms is not None
    assert attempt.created_at_ms <= attempt.started_at_ms <= attempt.finished_at_ms
    assert task.finished_at_ms is not None and task.finished_at_ms >= task.submitted_at_ms
    with world.batch() as o:
        kernel.cancel(o, JOB, "someone", "", world.now_ms)
    assert (world.job().finished_at_ms or 0) >= world.job().submitted_at_ms


# Decisions of the controller ----------------------------------------------------------------------------------


def test_assigning_makes_the_next_attempt() -> None:
    world, uid = started(S.ASSIGNED)
    task, attempt = world.task(), world.model.attempts[uid]
    assert (task.attempt_number, task.attempt_uid, task.worker_id) == (0, uid, "w")
    assert (attempt.number, attempt.state, attempt.task_id) == (0, S.ASSIGNED, f"{JOB}/0")
    assert world.model.usage["w"].cpu_millicores == 1000
    assert world.job().state is JobState.RUNNING


@pytest.mark.parametrize(
    "spoil", ["task running", "job cancelled", "worker gone", "worker degraded", "worker excluded"]
)
def test_a_plan_that_the_world_overtook_is_not_applied(spoil: str) -> None:
    world = World()
    world.add_worker()
    world.submit()
    stale = world.task()
    if spoil == "task running":
        world.assign()
    with world.batch() as o:
        if spoil == "job cancelled":
            kernel.cancel(o, JOB, "someone", "", world.now_ms)
        elif spoil == "worker gone":
            o.workers["w"] = None
        elif spoil != "task running":
            worker = o.worker("w")
            assert worker is not None
            o.set_worker(worker, placeable=spoil != "worker degraded", excluded=spoil == "worker excluded")
        assert kernel.assign(o, stale, "w", world.uid(), world.now_ms) is None
    check_invariants(world.model)


def test_a_uid_is_never_used_twice() -> None:
    world, uid = started(S.ASSIGNED)
    with pytest.raises(ValueError, match="in use"):
        kernel.assign(Overlay(world.model), world.task(1), "w", uid, world.now_ms)


@pytest.mark.parametrize(
    ("start", "retries", "task", "charge"),
    [
        (S.ASSIGNED, 0, S.PENDING, Charge.NONE),
        (S.BUILDING, 0, S.WORKER_FAILED, Charge.PREEMPTION),
        (S.RUNNING, 0, S.WORKER_FAILED, Charge.PREEMPTION),
        (S.RUNNING, 1, S.PENDING, Charge.PREEMPTION),
    ],
)
@pytest.mark.parametrize("how", ["lost", "missing"])
def test_a_lost_worker_resolves_its_attempts(
    how: str, start: TaskState, retries: int, task: TaskState, charge: Charge
) -> None:
    world, uid = started(start, retries)
    with world.batch() as o:
        if how == "lost":
            assert kernel.worker_lost(o, "w", "no message for 50s", world.now_ms) == 1
        else:
            assert kernel.attempts_missing(o, "w", set(), world.now_ms) == 1
    assert world.task().state is task
    attempt = world.last_attempt(uid)
    assert (attempt.state, attempt.charge) == (S.WORKER_FAILED, charge)
    assert attempt.finished_at_ms is not None
    assert world.model.usage["w"].tasks == 0
    check_invariants(world.model)


def test_a_restarted_worker_keeps_what_it_still_holds() -> None:
    world, kept = started(S.RUNNING, retries=1)
    lost = world.running(1)
    with world.batch() as o:
        assert kernel.attempts_missing(o, "w", {kept}, world.now_ms) == 1
    assert (world.task(0).state, world.task(1).state) == (S.RUNNING, S.PENDING)
    assert list(world.model.attempts) == [kept] and lost not in world.model.attempts


def test_an_execution_timeout_is_final_and_holds_the_capacity_until_the_worker_confirms() -> None:
    world, uid = started(S.RUNNING, retries=9, timeout_ms=90_000)
    with world.batch() as o:
        assert kernel.time_out(o, uid, world.now_ms)
    task, attempt = world.task(), world.model.attempts[uid]
    assert (task.state, task.failure_count) == (S.FAILED, 1)
    assert task.error == "ran longer than its limit of 1m30s"
    assert (attempt.state, attempt.charge, attempt.finished_at_ms) == (S.FAILED, Charge.FAILURE, None)
    assert world.model.usage["w"].tasks == 1
    assert f"task_timeout {JOB}/0" in world.audit

    world.now_ms += 700
    assert world.observe(uid, S.KILLED, exit_code=143)
    attempt = world.last_attempt(uid)
    assert (attempt.state, attempt.finished_at_ms, attempt.exit_code) == (S.FAILED, world.now_ms, 143)
    assert world.model.usage["w"].tasks == 0 and world.task().state is S.FAILED


def test_a_timeout_of_an_attempt_that_is_over_is_nothing() -> None:
    world, uid = started(S.RUNNING, retries=1)
    world.observe(uid, S.FAILED)
    with world.batch() as o:
        assert not kernel.time_out(o, uid, world.now_ms)
    assert world.task().state is S.PENDING


@pytest.mark.parametrize("start", sorted(ACTIVE))
@pytest.mark.parametrize("confirms", [S.KILLED, S.SUCCEEDED, S.FAILED, S.WORKER_FAILED, S.MISSING])
def test_a_cancelled_attempt_stays_killed_whatever_its_worker_says(start: TaskState, confirms: TaskState) -> None:
    world, uid = started(start, retries=1)
    with world.batch() as o:
        assert kernel.cancel(o, JOB, "someone", "enough", world.now_ms) == [JOB]
    killed = world.last_task()
    assert killed.state is S.KILLED
    attempt = world.model.attempts[uid]
    assert attempt.finished_at_ms is None and world.model.usage["w"].tasks == 1
    assert world.job().state is JobState.KILLED and world.job().error == "cancelled by someone: enough"

    assert world.observe(uid, S.RUNNING)  # it has not heard yet
    assert uid in world.model.attempts
    assert world.observe(uid, confirms)
    assert world.last_attempt(uid).state is S.KILLED
    assert world.last_attempt(uid).finished_at_ms is not None
    assert not world.changes.tasks and world.model.usage["w"].tasks == 0
    check_invariants(world.model)


def test_a_dead_worker_confirms_what_was_cancelled() -> None:
    world, uid = started(S.RUNNING)
    with world.batch() as o:
        kernel.cancel(o, JOB, "someone", "", world.now_ms)
    with world.batch() as o:
        kernel.worker_lost(o, "w", "gone", world.now_ms)
    attempt = world.last_attempt(uid)
    assert (attempt.state, attempt.charge) == (S.KILLED, Charge.NONE) and attempt.finished_at_ms is not None
    assert not world.model.attempts


def test_only_pending_tasks_meet_the_scheduling_deadline() -> None:
    world = World()
    world.add_worker()
    world.submit(tasks=3, scheduling_timeout_ms=60_000)
    uid = world.running()
    assert world.job().scheduling_deadline_ms == world.job().submitted_at_ms + 60_000
    world.model.reasons[JOB] = "no workers attached"
    with world.batch() as o:
        assert kernel.expire_scheduling(o, JOB, world.now_ms) == 2
    assert world.job().state is JobState.UNSCHEDULABLE
    assert world.job().error == "task 1: not scheduled within 1m: no workers attached"
    assert world.last_task(0).state is S.KILLED and world.last_task(1).state is S.UNSCHEDULABLE
    assert world.model.attempts[uid].state is S.KILLED
    assert f"task_unschedulable {JOB}/1" in world.audit
    with world.batch() as o:
        assert kernel.expire_scheduling(o, JOB, world.now_ms) == 0


def test_the_budget_is_spent_before_the_task_fails() -> None:
    world = World()
    world.add_worker()
    world.submit(max_retries_failure=2)
    for _ in range(2):
        world.observe(world.running(), S.FAILED, exit_code=1)
        assert world.task().state is S.PENDING
    world.observe(world.running(), S.FAILED, exit_code=1)
    task = world.last_task()
    assert (task.state, task.failure_count, task.attempt_number) == (S.FAILED, 3, 2)
    assert world.audit.count(f"task_retry {JOB}/0") == 2


def test_budgets_do_not_mix() -> None:
    world = World()
    world.add_worker()
    world.submit(max_retries_failure=1, max_retries_preemption=1)
    world.observe(world.running(), S.WORKER_FAILED)
    world.observe(world.running(), S.FAILED)
    assert (world.task().failure_count, world.task().preemption_count) == (1, 1)
    world.observe(world.assign(), S.WORKER_FAILED)  # free: it had not begun
    assert world.task().state is S.PENDING
    world.observe(world.running(), S.MISSING)
    assert world.last_task().state is S.WORKER_FAILED


def test_a_retried_task_starts_clean() -> None:
    world = World()
    world.add_worker()
    world.submit(max_retries_failure=1)
    world.observe(world.running(), S.FAILED, exit_code=9, error="boom")
    assert (world.task().error, world.task().started_at_ms) == ("boom", None)
    world.assign()
    assert (world.task().error, world.task().exit_code, world.task().finished_at_ms) == (None, None, None)
