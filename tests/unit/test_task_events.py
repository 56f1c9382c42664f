"""What the controller tells of its decisions: derived from committed batches, once each, in order, with who and why."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from iris_controller.state import kernel, kick, preempting
from iris_controller.state.observed import FailureKind
from iris_controller.stats import task_state
from iris_controller.stats.task_events import TaskEvents, folded
from iris_core.model.bands import PriorityBand
from iris_core.model.ids import TaskId
from iris_core.model.namespaces import TASK_EVENT, TASK_STATE
from iris_core.model.states import ACTIVE, TaskState
from iris_core.wire.rows import batch_of
from tests.unit.kernel_world import JOB, World, job_spec

if TYPE_CHECKING:
    from iris_controller.state.changes import Changes
    from iris_controller.state.overlay import Overlay


class Told(World):
    """A world whose every batch is told."""

    def __init__(self) -> None:
        super().__init__()
        self.teller = TaskEvents("rig", ())
        self.waits = task_state.Waits({})
        self.rows: list[dict[str, Any]] = []

    def commit(self, o: Overlay) -> Changes:
        changes = super().commit(o)
        jobs = {job_id: self.model.jobs[job_id] for job_id in changes.jobs if job_id in self.model.jobs}
        self.rows += self.teller.of(changes, jobs, self.now_ms)
        self.waits.note(changes, self.now_ms)
        return changes

    def of(self, task_id: str) -> list[tuple[int, str]]:
        return [(row["attempt_id"], row["reason"]) for row in self.rows if row["task_id"] == task_id]

    def last(self, reason: str) -> dict[str, Any]:
        return next(row for row in reversed(self.rows) if row["reason"] == reason)


def test_a_life_without_trouble_is_three_events_with_the_uid_and_the_incarnation() -> None:
    world = Told()
    world.add_worker()
    world.submit()
    incarnation = world.job().submitted_at_ms
    uid = world.running()
    world.observe(uid, TaskState.SUCCEEDED, exit_code=0)
    assert world.of(f"{JOB}/0") == [(0, "Assigned"), (0, "Started"), (0, "Succeeded")]
    assert {row["attempt_uid"] for row in world.rows} == {uid}
    assert {(row["incarnation"], row["source"], row["type"], row["cluster"]) for row in world.rows} == {
        (incarnation, "iris/controller", "Normal", "rig")
    }
    batch_of(TASK_EVENT, "p", 0, world.rows)


def test_a_failure_that_is_retried_and_one_that_is_not() -> None:
    world = Told()
    world.add_worker()
    world.submit(max_retries_failure=1)
    world.observe(world.running(), TaskState.FAILED, exit_code=3, error="exit code 3", failure_kind=1)
    world.observe(world.running(), TaskState.FAILED, exit_code=137, failure_kind=FailureKind.OUT_OF_MEMORY)
    assert world.of(f"{JOB}/0") == [
        (0, "Assigned"), (0, "Started"), (0, "Failed"), (0, "RetryScheduled"),
        (1, "Assigned"), (1, "Started"), (1, "OutOfMemory"), (1, "Terminated"),
    ]  # fmt: skip
    assert world.last("Failed")["message"] == "exit code 3" and world.last("Failed")["type"] == "Warning"
    assert "failures 2, 1 may be retried" in world.last("Terminated")["message"]


def test_who_preempted_whom_is_said_and_the_end_of_its_processes_too() -> None:
    world = Told()
    world.add_worker(cpu=1)
    world.submit("/u/low", spec=job_spec(band=PriorityBand.BATCH))
    world.submit("/u/high", spec=job_spec(band=PriorityBand.PRODUCTION))
    with world.batch() as o:
        task = o.task("/u/low", 0)
        assert task is not None
        kernel.assign(o, task, "w", "a" * 16, world.now_ms, PriorityBand.BATCH)
    with world.batch() as o:
        places = [(0, "w", "b" * 16)]
        victims = [("/u/low", 0, "a" * 16)]
        assert preempting.displace(o, "/u/high", places, victims, PriorityBand.PRODUCTION, world.now_ms)
    assert world.of("/u/low/0") == [(0, "Assigned"), (0, "Preempted"), (0, "RetryScheduled")]
    assert world.last("Preempted")["message"] == "Preempted by /u/high/0 (production over batch)"
    assert world.last("Assigned")["message"] == "to worker w, once 1 preempted attempt is gone"
    world.observe("a" * 16, TaskState.KILLED, exit_code=143)
    assert world.of("/u/low/0")[-1] == (0, "Stopped")
    assert "exit code 143" in world.last("Stopped")["message"]


def test_operators_timeouts_and_lost_workers() -> None:
    world = Told()
    world.add_worker()
    world.submit(tasks=4, max_task_failures=4, timeout_ms=5_000)
    uids = [world.running(index) for index in range(4)]
    with world.batch() as o:
        kick.kick(o, [("t", TaskId.parse(f"{JOB}/0"))], TaskState.FAILED, "ada", "wedged", world.now_ms)
        kick.kick(o, [("t", TaskId.parse(f"{JOB}/1"))], TaskState.PREEMPTED, "ada", "", world.now_ms)
    with world.batch() as o:
        assert kernel.time_out(o, uids[2], world.now_ms)
    with world.batch() as o:
        kernel.worker_lost(o, "w", "no message for 50 s", world.now_ms)
    assert world.of(f"{JOB}/0")[2:] == [(0, "OperatorFailed"), (0, "Terminated"), (0, "Stopped")]
    assert world.last("OperatorFailed")["message"] == "failed by ada: wedged"
    assert world.of(f"{JOB}/1")[2:] == [(0, "Preempted"), (0, "RetryScheduled"), (0, "Stopped")]
    assert world.of(f"{JOB}/2")[2:] == [(0, "TimedOut"), (0, "Terminated"), (0, "Stopped")]
    assert world.of(f"{JOB}/3")[2:] == [(0, "WorkerLost"), (0, "RetryScheduled")]
    assert "no message for 50 s" in world.last("WorkerLost")["message"]


def test_a_gang_says_which_mate_began_it() -> None:
    world = Told()
    for number in (1, 2):
        world.add_worker(f"w{number}", attributes={"pool": "a"})
    world.submit(tasks=2, group_by="pool")
    with world.batch() as o:
        assert kernel.assign_gang(o, JOB, [(0, "w1", "a" * 16), (1, "w2", "b" * 16)], world.now_ms)
    world.observe("a" * 16, TaskState.RUNNING, "w1")
    world.observe("a" * 16, TaskState.WORKER_FAILED, "w1", error="the machine broke")
    assert world.of(f"{JOB}/1")[1:] == [(0, "CoscheduledSiblingRequeued"), (0, "RetryScheduled")]
    assert "the machine broke" in world.last("CoscheduledSiblingRequeued")["message"]
    with world.batch() as o:
        assert kernel.assign_gang(o, JOB, [(0, "w1", "c" * 16), (1, "w2", "d" * 16)], world.now_ms)
    world.observe("c" * 16, TaskState.FAILED, "w1", exit_code=1)
    assert world.of(f"{JOB}/1")[-2:] == [(1, "CoscheduledSiblingTerminated"), (1, "Terminated")]


def test_a_cancelled_job_and_tasks_that_never_began() -> None:
    world = Told()
    world.add_worker()
    world.submit(tasks=2, scheduling_timeout_ms=1_000)
    world.running(0)
    with world.batch() as o:
        kernel.expire_scheduling(o, JOB, world.now_ms)
    assert world.of(f"{JOB}/1") == [(-1, "Unschedulable")] and world.last("Unschedulable")["attempt_uid"] is None
    assert world.of(f"{JOB}/0")[2:] == [(0, "JobFinalized")]
    world.submit("/u/two")
    uid = world.running(0, "/u/two")
    with world.batch() as o:
        kernel.cancel(o, "/u/two", "ada", "enough", world.now_ms)
    assert world.of("/u/two/0")[2:] == [(0, "Cancelled")] and "ada: enough" in world.last("Cancelled")["message"]
    assert {row["attempt_uid"] for row in world.rows if row["task_id"] == "/u/two/0"} == {uid}


def test_a_controller_that_starts_says_nothing_twice() -> None:
    world = Told()
    world.add_worker()
    world.submit(tasks=2)
    uid = world.running(0)
    world.teller = TaskEvents("rig", world.model.attempts.values())
    before = len(world.rows)
    world.observe(uid, TaskState.RUNNING, memory_peak_bytes=7)
    assert len(world.rows) == before
    world.observe(uid, TaskState.SUCCEEDED)
    assert [row["reason"] for row in world.rows[before:]] == ["Succeeded"]


def test_equal_rows_are_one_with_a_count() -> None:
    row = {"task_id": "t", "attempt_uid": "u", "type": "Normal", "reason": "r", "source": "s", "message": "m"}
    told = folded([{**row, "count": 1, "ts": at} for at in (1, 2, 3)] + [{**row, "message": "n", "count": 1, "ts": 4}])
    assert [(found["message"], found["count"], found["ts"]) for found in told] == [("m", 3, 1), ("n", 1, 4)]


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["go", "ok", "fail", "lost", "kick", "stop"])), max_size=30
)


@settings(max_examples=60)
@given(STEPS)
def test_every_attempt_has_one_beginning_and_one_end(steps: list[tuple[int, str]]) -> None:
    world = Told()
    world.add_worker()
    world.submit(tasks=3, max_retries_failure=2, max_task_failures=3)
    for index, what in steps:
        task = world.model.task(JOB, index)
        if task is None:
            break
        uid = task.attempt_uid
        if task.state is TaskState.PENDING and what == "go":
            world.running(index)
        elif task.state in ACTIVE and what in ("ok", "fail", "lost"):
            said = {"ok": TaskState.SUCCEEDED, "fail": TaskState.FAILED, "lost": TaskState.MISSING}
            world.observe(uid, said[what])
        elif task.state in ACTIVE and what == "kick":
            with world.batch() as o:
                kick.kick(o, [("t", TaskId.parse(f"{JOB}/{index}"))], TaskState.PREEMPTED, "ada", "", world.now_ms)
        elif what == "stop":
            for attempt in list(world.model.attempts.values()):
                if attempt.state not in ACTIVE:
                    world.observe(attempt.uid, TaskState.KILLED)
    beginnings = Counter(row["attempt_uid"] for row in world.rows if row["reason"] == "Assigned")
    ends = Counter(
        row["attempt_uid"]
        for row in world.rows
        if row["reason"] not in ("Assigned", "Started", "RetryScheduled", "Terminated", "Stopped")
    )
    assert set(beginnings.values()) <= {1} and set(ends.values()) <= {1} and set(ends) <= set(beginnings)
    alive = {a.uid for a in world.model.attempts.values() if a.state in ACTIVE}
    assert set(beginnings) - set(ends) == alive
    assert world.teller.followed == len(world.model.attempts)
    for _, row in zip(range(5), world.rows, strict=False):
        batch_of(TASK_EVENT, "p", 0, [row])


# Rows of iris.task_state ---------------------------------------------------------------------------------------------


def state_rows(world: Told) -> dict[str, dict[str, Any]]:
    model = world.model
    pending = [model.tasks[job_id][index] for job_id, waiting in model.pending.items() for index in waiting]
    rows = task_state.rows(model.jobs.values(), pending, model.attempts.values(), world.waits, world.now_ms)
    batch_of(TASK_STATE, "p", 0, rows)
    return {row["root_job_id"]: row for row in rows}


def test_an_idle_cluster_still_says_that_nothing_waits() -> None:
    assert state_rows(Told()) == {
        "": {"root_job_id": "", "ts": 1_000_000, "pending": 0, "assigned": 0, "building": 0, "running": 0}
    }


def test_children_count_for_their_root_and_ages_go_back_to_the_last_requeue() -> None:
    world = Told()
    world.add_worker()
    world.submit("/u/a", tasks=2, max_retries_failure=1)
    world.submit("/u/b")
    world.now_ms += 5_000
    uid = world.running(0, "/u/a")
    world.now_ms += 1_000
    world.observe(uid, TaskState.FAILED)
    world.assign(1, "/u/a")
    world.now_ms += 2_000
    rows = state_rows(world)
    assert (rows["/u/a"]["pending"], rows["/u/a"]["assigned"]) == (1, 1)
    assert rows["/u/a"]["oldest_pending_age_ms"] == 2_000, "since it came back to the queue"
    assert rows["/u/a"]["oldest_building_age_ms"] == 2_000
    assert rows["/u/b"]["oldest_pending_age_ms"] == world.now_ms - world.job("/u/b").submitted_at_ms
    assert rows[""]["pending"] == 2 and rows[""]["oldest_pending_age_ms"] == rows["/u/b"]["oldest_pending_age_ms"]
    assert rows["/u/a"]["incarnation"] == world.job("/u/a").submitted_at_ms
    with world.batch() as o:
        kernel.cancel(o, "/u/b", "ada", "", world.now_ms)
    assert "/u/b" not in state_rows(world)
