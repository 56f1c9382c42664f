"""Random histories of submits, plans, reports, lies, losses, kicks, gangs and dropped batches; the invariants hold after each.

A history is plain numbers, interpreted against whatever the state is then, so every failure shrinks to a short one. I2–I4 of
targets §7b, for every attempt and task what must never happen over time, and that the committed batches alone, in memory or
through the database, give the same state again.
"""

from __future__ import annotations

import os
import random
import sqlite3
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iris_controller.scheduling.order import NOT_PLANNED, explain_pending
from iris_controller.state import kernel
from iris_controller.state.changes import Changes
from iris_controller.state.desired import desired_for, withheld
from iris_controller.state.kick import kick
from iris_controller.state.model import Model, Usage
from iris_controller.state.observed import FailureKind, Observed
from iris_controller.state.overlay import Overlay
from iris_controller.state.records import Attempt, Charge, ChildrenPolicy, Task
from iris_controller.state.retention import EndedTree, prune_jobs, prune_worker
from iris_controller.state.submit import NewJob, Refused, admit
from iris_controller.store import encode, rows
from iris_controller.store.database import migrate
from iris_controller.store.load import load_model
from iris_controller.ticker import apply_plan
from iris_core.model.bands import PriorityBand
from iris_core.model.constraints import parse_constraint
from iris_core.model.ids import TaskId, parse_target
from iris_core.model.states import ACTIVE, EXECUTING, JOB_TERMINAL, TERMINAL, JobState, TaskState, WorkerHealth
from iris_core.wire.gen.iris.v1 import controller_pb2
from tests.unit.kernel_world import World, check_invariants, healthy_worker, job_spec

pytestmark = pytest.mark.soak
EXAMPLES = 3_000 if os.environ.get("IRIS_SOAK") == "1" else 150

NAMES = ("/u/a", "/u/b", "/v/a", "/u/a/x", "/u/a/y", "/u/a/x/deep", "/u/b/x")
WORKERS = ("w0", "w1", "w2")
TRUTHS = (TaskState.BUILDING, TaskState.RUNNING, TaskState.RUNNING, TaskState.SUCCEEDED, TaskState.FAILED)
CHARGES = {
    TaskState.SUCCEEDED: {Charge.NONE},
    TaskState.KILLED: {Charge.NONE},
    TaskState.COSCHED_FAILED: {Charge.NONE},
    TaskState.FAILED: {Charge.FAILURE},
    TaskState.PREEMPTED: {Charge.NONE, Charge.PREEMPTION},
    TaskState.WORKER_FAILED: {Charge.NONE, Charge.PREEMPTION},
}
"""What each end of an attempt may cost."""
ENDS = (TaskState.SUCCEEDED, TaskState.FAILED, TaskState.WORKER_FAILED, TaskState.KILLED, TaskState.MISSING)


@dataclass
class Ledger:
    """What has been seen, kept apart from the model so that it can contradict it."""

    attempts: dict[str, Attempt] = field(default_factory=dict)
    tasks: dict[tuple[str, int, int], Task] = field(default_factory=dict)
    jobs: dict[tuple[str, int], JobState] = field(default_factory=dict)

    def take(self, world: World, changes: Changes) -> None:
        for uid, attempt in changes.attempts.items():
            self._take_attempt(uid, attempt)
        for (job_id, index), task in changes.tasks.items():
            if job_id in world.model.jobs:
                self._take_task((job_id, task.submitted_at_ms, index), task)
        for job_id in changes.jobs:
            job = world.model.jobs.get(job_id)
            if job is None:
                continue
            before = self.jobs.get((job_id, job.submitted_at_ms))
            if before in JOB_TERMINAL and before is not job.state:
                assert (before, job.state) == (JobState.WORKER_FAILED, JobState.KILLED)
            if job.state in JOB_TERMINAL:
                assert job.finished_at_ms is not None and job.finished_at_ms >= job.submitted_at_ms
            self.jobs[(job_id, job.submitted_at_ms)] = job.state

    def _take_attempt(self, uid: str, attempt: Attempt) -> None:
        before = self.attempts.get(uid)
        self.attempts[uid] = attempt
        if attempt.finished_at_ms is not None:
            assert attempt.state in TERMINAL
            assert attempt.created_at_ms <= (attempt.started_at_ms or attempt.created_at_ms) <= attempt.finished_at_ms
        assert attempt.charge is Charge.NONE or attempt.state in TERMINAL
        if attempt.charge is Charge.PREEMPTION:
            assert attempt.executed or attempt.terminal_reason == "preempted", "one that had not begun was charged"
        if attempt.state in TERMINAL:
            assert attempt.charge in CHARGES[attempt.state], f"{attempt.state.name} was charged {attempt.charge.name}"
        if before is None:
            return
        assert before.finished_at_ms is None, "a finished attempt was changed"
        assert (before.number, before.worker_id, before.job_id) == (attempt.number, attempt.worker_id, attempt.job_id)
        if before.state in TERMINAL:
            assert (before.state, before.charge, before.error) == (attempt.state, attempt.charge, attempt.error)
        elif before.state in EXECUTING:
            assert attempt.state is not TaskState.ASSIGNED

    def _take_task(self, key: tuple[str, int, int], task: Task) -> None:
        before = self.tasks.get(key)
        self.tasks[key] = task
        if before is not None:
            assert before.state not in TERMINAL or before.state is task.state, "a task left its end"
            assert task.attempt_number - before.attempt_number in (0, 1)
        charges = [
            a.charge
            for a in self.attempts.values()
            if (a.job_id, a.task_index) == (task.job_id, task.index) and a.created_at_ms >= task.submitted_at_ms
        ]
        assert task.failure_count == charges.count(Charge.FAILURE)
        assert task.preemption_count == charges.count(Charge.PREEMPTION)


class Simulation:
    def __init__(self) -> None:
        self.world = World()
        self.ledger = Ledger()
        self.planned = False
        self.batches: list[Overlay] = []
        self.world.before_commit = self.note

    def note(self, overlay: Overlay) -> None:
        self.batches.append(overlay)

    def run(self, batches: list[tuple[bool, list[tuple[int, int, int]]]]) -> None:
        for committed, ops in batches:
            self.world.now_ms += 1_000
            overlay = Overlay(self.world.model)
            self.planned = False
            reasons: dict[str, str] = {}
            for op, a, b in ops:
                reasons.update(self._op(overlay, op, a, b) or {})
            kernel.settle(overlay, self.world.now_ms)
            assert not overlay.touched_jobs and not overlay.requeued_jobs
            if not committed:
                check_invariants(self.world.model)
                continue
            changes = self.world.commit(overlay)
            self.world.take_reasons(reasons)
            check_invariants(self.world.model)
            self._check_gangs()
            self.ledger.take(self.world, changes)
            self._check_desired(changes)
        self._finish()

    def _op(self, o: Overlay, op: int, a: int, b: int) -> dict[str, str] | None:
        kinds = (
            self._submit, self._submit, self._tick, self._tick, self._observe, self._observe, self._observe, self._lie,
            self._lie, self._cancel, self._complete, self._expire, self._time_out, self._lose, self._hello, self._return,
            self._kick, self._place, self._place, self._place, self._prune,
        )  # fmt: skip
        return kinds[op % len(kinds)](o, a, b)

    def _submit(self, o: Overlay, a: int, b: int) -> None:
        has_setup, group_by = b % 2 == 0, "pool" if (a // 3) % 3 == 0 else ""
        request = controller_pb2.LaunchJobRequest()
        if has_setup:
            request.environment.setup_scripts.append("true")
        if group_by:
            request.coscheduling.group_by = group_by
        spec = job_spec(
            request=request.SerializeToString(deterministic=True),
            group_by=group_by,
            cpu=(0.5, 1, 2, 64)[b % 4],
            band=list(PriorityBand)[a % 5],
            constraints=(parse_constraint("pool=x"),) if b % 3 == 0 else (),
            has_setup=has_setup,
            max_retries_failure=a % 3,
            max_retries_preemption=b % 3,
            max_task_failures=(a + b) % 2,
            timeout_ms=5_000 if a % 4 == 0 else 0,
            scheduling_timeout_ms=5_000 if b % 4 == 0 else 0,
            children_policy=ChildrenPolicy((a + b) % 3),
        )
        new = NewJob(NAMES[a % len(NAMES)], "someone", b % 4, spec, (a // 7) % 4)
        try:
            admit(o, new, self.world.now_ms, force=b % 5 == 0, max_active_tasks=12)
        except Refused:
            pass

    def _tick(self, o: Overlay, a: int, b: int) -> dict[str, str]:
        looks = iter([True] * (a % 9))
        budget = (lambda: next(looks, False)) if a % 2 else (lambda: True)
        plan = self.world.planner.plan(self.world.model, max_assignments=1 + b % 6, budget=budget)
        apply_plan(o, plan, self.world.uid, self.world.now_ms)
        return plan.reasons

    def _place(self, o: Overlay, a: int, b: int) -> None:
        """Places a gang, whole, or with a member or a worker that does not do."""
        waiting = [(n, [t.index for t in o.tasks_of(n) if t.state is TaskState.PENDING]) for n in NAMES]
        gangs = [(n, pending) for n, pending in waiting if pending and (job := o.job(n)) and job.spec.group_by]
        if not gangs:
            return
        name, pending = gangs[a % len(gangs)]
        if b % 7 == 0:
            pending.pop()
        pools: dict[object, list[str]] = {}
        for worker_id in WORKERS:
            worker = o.worker(worker_id)
            if worker is not None and (worker.placeable or b % 5 == 0):
                pools.setdefault(worker.attributes["pool"], []).append(worker_id)
        workers = list(pools.values())[a % len(pools)] if pools else []
        if workers:
            places = [(i, workers[(b + i) % len(workers)], self.world.uid()) for i in pending]
            placed = kernel.assign_gang(o, name, places, self.world.now_ms)
            assert len(placed) in (0, len(places))

    def _kick(self, o: Overlay, a: int, b: int) -> None:
        name = NAMES[a % len(NAMES)]
        texts = [(name, f"{name}/{b % 4}", f"{name}/{b % 4}:{a % 3}")[(a // 7) % 3], f"{NAMES[b % len(NAMES)]}/0"]
        end: Any = (TaskState.PREEMPTED, TaskState.FAILED)[(b // 3) % 2]
        targets = [(text, parse_target(text)) for text in texts]
        asked = kick(o, targets, end, "ann", "why", self.world.now_ms, dry_run=True)
        tasks = {k.task_id: TaskId.parse(k.task_id) for k in asked if k.task_id}
        before = {text: o.task(str(task.job), task.index) for text, task in tasks.items()}
        done = kick(o, targets, end, "ann", "why", self.world.now_ms)
        assert done == asked, "the preview was wrong"
        for result in done:
            task = before.get(result.task_id)
            assert not result.accepted or (task is not None and task.state in ACTIVE and not result.detail)
            assert result.accepted or result.detail

    def _check_gangs(self) -> None:
        for job_id, tasks in self.world.model.tasks.items():
            if self.world.model.jobs[job_id].spec.group_by:
                states = {"on a worker" if task.state in ACTIVE else task.state.name for task in tasks}
                assert not {"on a worker", "PENDING"} <= states, f"the gang {job_id} is in pieces: {states}"
                assert states <= {"on a worker", "PENDING", "SUCCEEDED"}, f"the gang {job_id} should be over: {states}"

    def _pick(self, o: Overlay, a: int) -> Attempt | None:
        uids = sorted({*self.world.model.attempts, *o.attempts})
        return o.attempt(uids[a % len(uids)]) if uids else None

    def _observe(self, o: Overlay, a: int, b: int) -> None:
        attempt = self._pick(o, a)
        if attempt is None:
            return
        state = TRUTHS[b % len(TRUTHS)] if attempt.state in ACTIVE else TaskState.KILLED
        kind = FailureKind.STAGING if b % 11 == 0 else FailureKind.COMMAND
        kernel.observe(o, attempt.worker_id, Observed(attempt.uid, state, b % 5, "", kind), self.world.now_ms)

    def _lie(self, o: Overlay, a: int, b: int) -> None:
        known = sorted({*self.ledger.attempts, *self.world.model.attempts, "0" * 16})
        lie = Observed(
            attempt_uid=known[a % len(known)],
            state=b % 15 - 1,
            exit_code=(None, 0, 1)[a % 3],
            error="x" * (b % 3) * 3_000,
            failure_kind=a % 8,
            started_at_ms=(0, 1, 10**15)[b % 3],
            finished_at_ms=(0, 1, 10**15)[a % 3],
            memory_peak_bytes=a,
        )
        kernel.observe(o, WORKERS[(a + b) % 3], lie, self.world.now_ms)

    def _cancel(self, o: Overlay, a: int, b: int) -> None:
        kernel.cancel(o, NAMES[a % len(NAMES)], "someone", "why" * (b % 2), self.world.now_ms)

    def _complete(self, o: Overlay, a: int, b: int) -> None:
        if b % 3 == 0:
            kernel.complete(o, NAMES[a % len(NAMES)], "someone", self.world.now_ms)

    def _expire(self, o: Overlay, a: int, b: int) -> None:
        job = o.job(NAMES[a % len(NAMES)])
        if job is not None and job.scheduling_deadline_ms is not None:
            kernel.expire_scheduling(o, job.job_id, self.world.now_ms)

    def _time_out(self, o: Overlay, a: int, b: int) -> None:
        attempt = self._pick(o, a)
        if attempt is not None:
            kernel.time_out(o, attempt.uid, self.world.now_ms)

    def _lose(self, o: Overlay, a: int, b: int) -> None:
        worker = o.worker(WORKERS[a % 3])
        if worker is not None:
            kernel.worker_lost(o, worker.worker_id, "gone", self.world.now_ms)
            now = o.worker(worker.worker_id)
            assert now is not None
            o.set_worker(now, placeable=False, attached=False)

    def _hello(self, o: Overlay, a: int, b: int) -> None:
        """A worker comes, for the first time or under another boot id with some of its attempts."""
        name = WORKERS[a % 3]
        held = {attempt.uid for i, attempt in enumerate(o.attempts_on(name)) if (b >> i) & 1}
        o.workers[name] = healthy_worker(name, cpu=(1, 2, 4)[b % 3], attributes={"pool": "xy"[a % 2]})
        kernel.attempts_missing(o, name, held, self.world.now_ms)

    def _return(self, o: Overlay, a: int, b: int) -> None:
        worker = o.worker(WORKERS[a % 3])
        if worker is not None:
            o.set_worker(worker, placeable=b % 4 != 0, attached=True)

    def _prune(self, o: Overlay, a: int, b: int) -> None:
        """A finished tree goes, or a worker that is lost for good; what is not over stays."""
        job = o.job(NAMES[a % 3])
        if job is not None:
            over = prune_jobs(o, [EndedTree(job.job_id, job.submitted_at_ms - (b % 5 == 0), job.num_tasks)])
            assert bool(over) == (o.job(job.job_id) is None)
            assert not over or job.state in JOB_TERMINAL
        worker = o.worker(WORKERS[b % 3])
        if worker is not None and not worker.attached:
            o.set_worker(worker, health=WorkerHealth.DEAD)
            empty = not any(True for _ in o.attempts_on(worker.worker_id))
            assert prune_worker(o, worker.worker_id) == empty

    def _check_desired(self, changes: Changes) -> None:
        for worker_id in changes.dispatch:
            wanted = {d.uid: d for d in desired_for(self.world.model, worker_id)}
            attempts = {a.uid: a for a in self.world.model.attempts_on(worker_id)}
            held_back = {uid for uid, attempt in attempts.items() if withheld(self.world.model, attempt)}
            assert wanted.keys() == attempts.keys() - held_back
            for uid, desired in wanted.items():
                assert (desired.want == "stop") == (attempts[uid].state in TERMINAL)
                assert (desired.want == "stop") == (desired.stop_reason != 0)

    def _finish(self) -> None:
        """Everything waiting is placed or says why; everything running ends; then nothing is held and every job is over or waits."""
        world = self.world
        for _ in range(100):
            world.plan()
            for job_id in world.model.pending:
                assert explain_pending(world.model, job_id) not in ("", NOT_PLANNED)
            if not world.model.attempts:
                break
            with world.batch() as o:
                for attempt in list(world.model.attempts.values()):
                    assert kernel.observe(
                        o, attempt.worker_id, Observed(attempt.uid, TaskState.SUCCEEDED), world.now_ms
                    )
            check_invariants(world.model)
            self._check_gangs()
            self.ledger.take(world, world.changes)
        assert not world.model.attempts
        for job_id, job in world.model.jobs.items():
            assert job.state in JOB_TERMINAL or world.model.pending[job_id]


ops = st.tuples(st.integers(0, 20), st.integers(0, 10**4), st.integers(0, 10**4))
histories = st.lists(st.tuples(st.sampled_from([True, True, True, False]), st.lists(ops, max_size=6)), max_size=25)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories)
def test_no_history_breaks_an_invariant(batches: list[tuple[bool, list[tuple[int, int, int]]]]) -> None:
    Simulation().run([(True, [(14, i, 255) for i in range(3)]), *batches])


SEEDS = 2_000 if os.environ.get("IRIS_SOAK") == "1" else 60


WEIGHTS = {0: 6, 2: 8, 4: 12, 7: 2, 9: 1, 10: 1, 11: 1, 12: 1, 13: 1, 14: 1, 15: 4, 16: 8, 17: 8, 20: 1}
"""How often each kind of operation comes in a long history: mostly work, seldom ends."""


def long_history(seed: int) -> list[tuple[bool, list[tuple[int, int, int]]]]:
    """Longer than what hypothesis likes to try, and busier; a failure is reproduced by its seed."""
    dice = random.Random(seed)
    kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
    return [
        (
            dice.random() < 0.8,
            [
                (op, dice.randrange(10_000), dice.randrange(10_000))
                for op in dice.choices(kinds, weights, k=dice.randrange(7))
            ],
        )
        for _ in range(40)
    ]


def test_long_histories_break_no_invariant_and_reach_every_kind_of_end() -> None:
    wanted = {(state, charge) for state, charges in CHARGES.items() for charge in charges} | {
        "cosched_failed", "cosched_requeued", "operator_failed", "preempted", "timeout", "worker_lost",
    }  # fmt: skip
    reached: set[object] = set()
    for seed in range(8 * SEEDS):
        if seed >= SEEDS and wanted <= reached:
            break
        stored = Stored()
        try:
            stored.run([(True, [(14, i, 255) for i in range(3)]), *long_history(seed)])
            assert persisted(replay(stored.batches)) == persisted(stored.world.model)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        finally:
            stored.database.close()
        reached.update((attempt.state, attempt.charge) for attempt in stored.ledger.attempts.values())
        reached.update(attempt.terminal_reason for attempt in stored.ledger.attempts.values())
    assert wanted <= reached, wanted - reached


def freeze(world: World) -> Any:
    model = world.model
    return (
        dict(model.jobs),
        {job_id: list(rows) for job_id, rows in model.tasks.items()},
        dict(model.attempts),
        {job_id: list(waiting) for job_id, waiting in model.pending.items()},
        {worker_id: usage.copy() for worker_id, usage in model.usage.items()},
        dict(model.workers),
    )


def persisted(model: Model) -> Any:
    """What a restart must bring back: rows whole, without what only a running controller knows of its workers."""
    return (
        dict(model.jobs),
        set(model.terminal),
        {job_id: list(rows) for job_id, rows in model.tasks.items() if rows},
        dict(model.attempts),
        {worker_id: set(uids) for worker_id, uids in model.by_worker.items() if uids},
        {job_id: list(waiting) for job_id, waiting in model.pending.items() if waiting},
        {worker_id: usage.copy() for worker_id, usage in model.usage.items() if usage != Usage()},
        dict(model.active),
        dict(model.held),
        dict(model.spent),
        {job_id: dict(buckets) for job_id, buckets in model.tally.running.items()},
        dict(model.budgets),
        {job_id: set(children) for job_id, children in model.children.items() if children},
        {
            worker_id: replace(
                worker, attached=False, placeable=False, health=WorkerHealth.DEGRADED, health_reason="",
                staging_streak=0, excluded_reason="",
            )
            for worker_id, worker in model.workers.items()
        },
    )  # fmt: skip


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories)
def test_the_committed_batches_give_the_same_state_again(
    batches: list[tuple[bool, list[tuple[int, int, int]]]],
) -> None:
    simulation = Simulation()
    simulation.run([(True, [(14, i, 255) for i in range(3)]), *batches])
    replayed = replay(simulation.batches)
    assert persisted(replayed) == persisted(simulation.world.model)
    assert (replayed.last_submitted_ms, replayed.next_insertion) == (
        simulation.world.model.last_submitted_ms,
        simulation.world.model.next_insertion,
    )


def replay(batches: list[Overlay]) -> Model:
    model = Model()
    for overlay in batches:
        model.apply(overlay)
    check_invariants(model)
    return model


class Stored(Simulation):
    """As every batch is committed it is written to a database, too, and what that holds is compared with the state."""

    def __init__(self) -> None:
        super().__init__()
        self.database = sqlite3.connect(":memory:", isolation_level=None)
        self.database.execute("PRAGMA foreign_keys=ON")
        migrate(self.database, 0)

    def note(self, overlay: Overlay) -> None:
        super().note(overlay)
        self.database.execute("BEGIN")
        for sql, values in encode.statements(overlay, self.world.now_ms):
            self.database.execute(sql, values)
        self.database.execute("COMMIT")

    def compare(self) -> None:
        model = self.world.model
        assert persisted(load_model(self.database)) == persisted(model)
        committed = {
            row[0]: row[1:]
            for row in self.database.execute(
                "SELECT worker_id, committed_cpu_millicores, committed_mem_bytes, committed_gpu, committed_tpu FROM workers"
            )
        }
        for worker_id in model.workers:
            usage = model.usage_of(worker_id)
            assert committed[worker_id] == (usage.cpu_millicores, usage.memory_bytes, usage.gpu, usage.tpu)
        wrong = self.database.execute(
            "SELECT t.task_id FROM tasks t LEFT JOIN task_attempts a ON a.task_id = t.task_id GROUP BY t.task_id"
            " HAVING t.failure_count != count(*) FILTER (WHERE a.charge = 1)"
            " OR t.preemption_count != count(*) FILTER (WHERE a.charge = 2)"
            " UNION SELECT j.job_id FROM jobs j LEFT JOIN tasks t ON t.job_id = j.job_id GROUP BY j.job_id"
            " HAVING j.failure_count != coalesce(sum(t.failure_count), 0)"
            " OR j.preemption_count != coalesce(sum(t.preemption_count), 0)"
        ).fetchall()
        assert wrong == [], "counters are not those of the attempts' charges"

    def _check_gangs(self) -> None:
        super()._check_gangs()
        self.compare()


@settings(max_examples=EXAMPLES // 3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories, st.sampled_from(((1,), (3, 2), rows.CHUNKS)))
def test_the_database_holds_the_state_after_every_batch(
    batches: list[tuple[bool, list[tuple[int, int, int]]]], chunks: tuple[int, ...]
) -> None:
    stored = Stored()
    try:
        with mock.patch.object(rows, "CHUNKS", chunks):
            stored.run([(True, [(14, i, 255) for i in range(3)]), *batches])
    finally:
        stored.database.close()


@settings(max_examples=EXAMPLES, deadline=None)
@given(histories, st.lists(ops, max_size=8))
def test_a_batch_that_is_not_committed_leaves_no_trace(
    batches: list[tuple[bool, list[tuple[int, int, int]]]], last: list[tuple[int, int, int]]
) -> None:
    simulation = Simulation()
    simulation.run([(True, [(14, i, 255) for i in range(3)]), *batches[:8]])
    before = freeze(simulation.world)
    overlay = Overlay(simulation.world.model)
    for op, a, b in last:
        simulation._op(overlay, op, a, b)
    kernel.settle(overlay, simulation.world.now_ms)
    assert freeze(simulation.world) == before


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(ENDS), st.integers(0, 2)),
        min_size=1,
        max_size=6,
        unique_by=lambda x: x[0],
    ),
    st.randoms(use_true_random=False),
    st.integers(0, 2),
    st.integers(0, 1),
)
def test_the_order_of_reports_in_a_batch_does_not_matter(
    said: list[tuple[int, TaskState, int]], random: Any, retries: int, tolerated: int
) -> None:
    def run(order: list[tuple[int, TaskState, int]]) -> Any:
        world = World()
        world.add_worker(cpu=100)
        for job_id in ("/u/a", "/u/a/x"):
            world.submit(
                job_id, 3, max_retries_failure=retries, max_retries_preemption=retries % 2, max_task_failures=tolerated
            )
        uids = [world.running(i % 3, ("/u/a", "/u/a/x")[i // 3]) for i in range(6)]
        with world.batch() as o:
            for which, state, code in order:
                kernel.observe(o, "w", Observed(uids[which], state, code, f"error {which}"), world.now_ms)
        check_invariants(world.model)
        return freeze(world)

    shuffled = list(said)
    random.shuffle(shuffled)
    assert run(said) == run(shuffled)
