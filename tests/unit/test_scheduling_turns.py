"""Bands, budgets and turns, beside a scheduler that sorts everything anew for each task (control-plane §2.2–2.4)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_controller.scheduling.order import band_now, explain_pending, order_key, serving
from iris_controller.state import kernel
from iris_controller.state.budgets import Budget, budget_user, effective_band, task_value
from iris_controller.state.model import Model
from iris_controller.state.submit import NewJob, admit
from iris_core.model.bands import PriorityBand
from iris_core.model.states import TaskState
from tests.unit.kernel_world import Settled, World, check_invariants, job_spec

if TYPE_CHECKING:
    from iris_controller.state.records import Job

BATCH, INTERACTIVE, PRODUCTION, SYSTEM = (
    PriorityBand.BATCH,
    PriorityBand.INTERACTIVE,
    PriorityBand.PRODUCTION,
    PriorityBand.SYSTEM,
)
CORE = 5
"""What a task of one core without memory adds to its user's spend."""


def fleet(workers: int = 1, cpu: float = 100, limits: dict[str, int] | None = None) -> World:
    world = World()
    world.model.occupants = Settled()
    world.model.budget_defaults = Budget("", limit=0)
    for i in range(workers):
        world.add_worker(f"w{i}", cpu=cpu)
    for user, limit in (limits or {}).items():
        set_limit(world, user, limit)
    return world


def set_limit(world: World, user: str, limit: int) -> None:
    with world.batch() as o:
        o.put_budget(Budget(user, limit, PRODUCTION, world.now_ms))


def submit(world: World, job_id: str, tasks: int = 1, **values: Any) -> None:
    """Submits a job that its owner pays for."""
    with world.batch() as o:
        admit(o, NewJob(job_id, "", tasks, job_spec(**values)), world.now_ms)


def users(placed: list[tuple[str, int, str]]) -> str:
    """Whose tasks were placed, in order, by the letters of their names."""
    return "".join(job_id.split("/")[1] for job_id, _, _ in placed)


def test_users_take_turns_task_by_task() -> None:
    world = fleet(cpu=7)
    submit(world, "/a/first", 50)
    submit(world, "/b/second", 2)
    submit(world, "/c/third", 50)
    assert users(world.plan()) == "abcabca"


def test_who_spends_least_comes_first_in_each_round() -> None:
    world = fleet(cpu=100)
    submit(world, "/b/busy", 3)
    world.plan()
    submit(world, "/b/more", 2)
    submit(world, "/a/job", 2, cpu=4)
    submit(world, "/c/job", 2)
    # a and c spend nothing and came in that order; after one round c spends 5, a and b 20, and a was served longer ago.
    assert users(world.plan()) == "acbcab"


def test_a_place_that_gets_free_goes_to_who_spends_least() -> None:
    world = fleet(cpu=4)
    submit(world, "/a/job", 9)
    world.plan()
    submit(world, "/b/job", 9)
    world.plan()
    for job_id, expected in (("/a/job", "b"), ("/a/job", "b"), ("/b/job", "b"), ("/a/job", "a")):
        uid = next(a.uid for a in world.model.attempts.values() if a.job_id == job_id)
        world.observe(uid, TaskState.SUCCEEDED, "w0")
        assert users(world.plan()) == expected, (job_id, world.model.spent)


def test_in_batch_where_nobody_spends_places_still_go_round() -> None:
    world = fleet(cpu=2)
    for user in "abc":
        submit(world, f"/{user}/job", 9, band=BATCH)
    order = users(world.plan())
    for _ in range(6):
        uid = next(iter(world.model.attempts))
        world.observe(uid, TaskState.SUCCEEDED, "w0")
        order += users(world.plan())
    assert order == "abcabcab"
    assert world.model.spent == {}


def test_what_is_planned_counts_within_the_slice() -> None:
    world = fleet(cpu=10, limits={"a": 2 * CORE})
    submit(world, "/a/job", 20)
    submit(world, "/b/batch", 3, band=BATCH)
    placed = world.plan()
    # Three of a's go as INTERACTIVE: only then its spend is over the limit; then batch work of both takes turns.
    assert users(placed) == "aaa" + "bababa" + "a" or users(placed) == "aaa" + "ababab" + "a"
    bands = Counter(t.band for t in world.model.tasks["/a/job"] if t.state is TaskState.ASSIGNED)
    assert bands == {INTERACTIVE: 3, BATCH: 4}
    assert world.model.spent == {"a": 3 * CORE}


@pytest.mark.parametrize("band", [SYSTEM, PRODUCTION])
def test_system_and_production_are_never_lowered(band: PriorityBand) -> None:
    world = fleet(limits={"a": 1})
    submit(world, "/a/job", 5, band=band)
    world.plan()
    assert {t.band for t in world.model.tasks["/a/job"]} == {band}


def test_the_band_of_a_running_task_stays_and_one_that_comes_back_recovers() -> None:
    world = fleet(cpu=3, limits={"a": CORE})
    submit(world, "/a/job", 3, max_retries_failure=3)
    world.plan()
    assert [t.band for t in world.model.tasks["/a/job"]] == [INTERACTIVE, INTERACTIVE, BATCH]
    set_limit(world, "a", 0)
    assert world.task(2, "/a/job").band is BATCH
    world.observe(world.task(2, "/a/job").attempt_uid, TaskState.FAILED, "w0")
    world.plan()
    assert world.task(2, "/a/job").band is INTERACTIVE


def test_a_reason_says_who_is_over_budget_and_no_longer_when_nobody_is() -> None:
    world = fleet(cpu=2, limits={"a": CORE})
    submit(world, "/a/job", 3)
    submit(world, "/b/job", 3)
    world.plan()
    submit(world, "/a/production", band=PRODUCTION)
    world.plan()
    busy = "waiting for capacity: 1 core free on none of 1 worker"
    assert world.model.reasons == dict.fromkeys(["/a/job", "/b/job", "/a/production"], busy)
    world.observe(world.task(0, "/b/job").attempt_uid, TaskState.SUCCEEDED, "w0")
    world.plan()
    assert world.task(0, "/a/production").state is TaskState.ASSIGNED
    over = " (as batch: a is over the budget of 5)"
    assert world.model.reasons == {"/a/job": busy + over, "/b/job": busy}
    set_limit(world, "a", 50)
    world.plan()
    assert world.model.reasons == dict.fromkeys(["/a/job", "/b/job"], busy)
    set_limit(world, "a", 1)
    world.plan()
    assert explain_pending(world.model, "/a/job") == busy + " (as batch: a is over the budget of 1)"


def test_a_user_that_goes_over_its_budget_falls_behind_and_comes_back() -> None:
    world = fleet(cpu=1, limits={"a": CORE})
    submit(world, "/a/job", 9)
    submit(world, "/b/blocker", cpu=1, band=PRODUCTION)
    world.plan()
    submit(world, "/b/job", 9)
    set_limit(world, "a", 4)
    submit(world, "/a/spends", band=PRODUCTION)
    for expected in ("/a/spends", "/b/job"):
        (uid,) = world.model.attempts
        job_id = world.model.attempts[uid].job_id
        world.add_worker("extra", cpu=1) if expected == "/b/job" else world.observe(uid, TaskState.SUCCEEDED, "w0")
        assert [j for j, _, _ in world.plan()] == [expected], job_id
    assert world.model.spent == {"a": CORE, "b": CORE}
    set_limit(world, "a", 0)
    world.add_worker("w2", cpu=1)
    assert [j for j, _, _ in world.plan()] == ["/a/job"]


def test_who_comes_in_the_middle_of_a_pass_gets_no_more_than_its_turns() -> None:
    world = fleet(cpu=40)
    submit(world, "/a/job", 30)
    plan = world.planner.plan(world.model, max_assignments=10)
    assert not plan.done
    with world.batch() as o:
        for job_id, index, worker_id, band in plan.assignments:
            kernel.assign(o, world.task(index, job_id), worker_id, world.uid(), world.now_ms, band)
    submit(world, "/b/job", 30)
    assert users(world.plan())[:10] == "bababababa"


def test_what_found_no_room_is_unplaced() -> None:
    world = fleet(cpu=2)
    submit(world, "/a/fits")
    submit(world, "/a/waits", 5)
    submit(world, "/a/never", cpu=64)
    assert list(world.planner.unplaced()) == []
    world.plan()
    assert dict(world.planner.unplaced()) == {"/a/waits": False, "/a/never": False}
    world = fleet(cpu=20)
    submit(world, "/a/setup", 20, has_setup=True)
    world.plan()
    assert dict(world.planner.unplaced()) == {"/a/setup": True}


def test_the_whole_order_interleaves_users() -> None:
    world = fleet(0)
    submit(world, "/a/one", 2)
    submit(world, "/a/two", 5)
    submit(world, "/a/batch", band=BATCH)
    submit(world, "/b/one", 1)
    submit(world, "/b/two", 1)
    submit(world, "/c/top", band=PRODUCTION)
    assert [served.job_id for served in serving(world.model)] == [
        "/c/top",
        "/a/one",
        "/b/one",
        "/b/two",
        "/a/two",
        "/a/batch",
    ]


def test_one_users_spend_touches_nobody_elses_place() -> None:
    world = fleet(cpu=3)
    for n in range(40):
        submit(world, f"/u{n}/job", 5)
    world.plan()
    turns = world.planner._turns
    pushed = turns._serial
    world.observe(next(iter(world.model.attempts)), TaskState.SUCCEEDED, "w0")
    assert len(world.plan()) == 1
    assert sum(len(band.heap) for band in turns._bands.values()) < 100
    assert turns._serial - pushed < 100


# The reference --------------------------------------------------------------------------------------------------


@dataclass
class Reference:
    """Says for each task whose turn it is by sorting all that waits; keeps who took turns, and when."""

    model: Model
    turns: Counter[tuple[str, PriorityBand]] = field(default_factory=Counter)
    last: dict[tuple[str, PriorityBand], int] = field(default_factory=dict)
    serial: int = 0

    def begin(self, new_pass: bool) -> None:
        """A slice begins: the model is what counts."""
        self.waiting = {job_id: len(rows) for job_id, rows in self.model.pending.items()}
        self.held = {worker_id: self.model.usage_of(worker_id).copy() for worker_id in self.model.workers}
        self.spent = Counter(self.model.spent)
        if new_pass:
            self.turns.clear()
        here = {budget_user(self.model.jobs[job_id]) for job_id in self.waiting}
        self.last = {seat: serial for seat, serial in self.last.items() if seat[0] in here}
        for job_id in sorted(self.waiting, key=lambda j: self.model.jobs[j].priority_insertion):
            self.sit(self.model.jobs[job_id])

    def sit(self, job: Job) -> tuple[str, PriorityBand]:
        user = budget_user(job)
        seat = user, effective_band(job.spec.band, self.model.budget_of(user).limit, self.spent[user])
        if seat not in self.last:
            self.serial += 1
            self.last[seat] = self.serial
        return seat

    def fits(self, job: Job) -> bool:
        return any(
            usage.cpu_millicores + job.spec.resources.cpu_millicores <= worker.total.cpu_millicores
            for worker, usage in ((self.model.workers[w], usage) for w, usage in self.held.items())
        )

    def choose(self) -> tuple[str, PriorityBand] | None:
        """The next task's job and band; None when nothing fits."""
        found = []
        for job_id, count in self.waiting.items():
            job = self.model.jobs[job_id]
            if count and self.fits(job):
                user, band = seat = self.sit(job)
                key = (-band.rank(), self.turns[seat], self.spent[user], self.last[seat], order_key(job))
                found.append((key, job_id, band))
        return min(found)[1:] if found else None

    def take(self, job_id: str, worker_id: str) -> None:
        job = self.model.jobs[job_id]
        user, band = seat = self.sit(job)
        self.waiting[job_id] -= 1
        self.held[worker_id].add(job.spec.resources, 1, building=False)
        self.turns[seat] += 1
        self.serial += 1
        self.last[seat] = self.serial
        if band is not BATCH:
            self.spent[user] += task_value(job.spec.resources)
            for other in sorted((j for j in self.waiting), key=lambda j: self.model.jobs[j].priority_insertion):
                if budget_user(self.model.jobs[other]) == user:
                    self.sit(self.model.jobs[other])


def run(world: World, reference: Reference, size: int, drop: bool) -> list[tuple[str, int, str]]:
    """One pass in slices of a size, each task checked against the reference."""
    new_pass, placed = True, []
    while True:
        if drop:
            world.planner.plan(world.model, max_assignments=size + 1)
        reference.begin(new_pass)
        plan = world.planner.plan(world.model, max_assignments=size)
        for job_id, index, worker_id, band in plan.assignments:
            assert reference.choose() == (job_id, band)
            reference.take(job_id, worker_id)
            placed.append((job_id, index, worker_id))
        with world.batch() as o:
            for job_id, index, worker_id, band in plan.assignments:
                assert kernel.assign(o, world.task(index, job_id), worker_id, world.uid(), world.now_ms, band)
        world.take_reasons(plan.reasons)
        new_pass = plan.done
        if plan.done:
            assert reference.choose() is None
            return placed


job_rows = st.tuples(
    st.sampled_from("abc"),
    st.integers(1, 5),
    st.sampled_from([0, 0.5, 1, 2, 3]),
    st.sampled_from([INTERACTIVE, INTERACTIVE, BATCH, PRODUCTION]),
    st.booleans(),
)
events = st.lists(
    st.tuples(st.sampled_from(["job", "end", "end", "limit", "worker", "cancel"]), st.integers(0, 10**6)), max_size=10
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=3),
    st.lists(job_rows, min_size=1, max_size=7),
    st.tuples(*[st.sampled_from([0, 4, 10, 1_000])] * 3),
    st.integers(1, 7),
    st.booleans(),
    events,
)
def test_every_task_is_the_one_that_a_scheduler_which_sorts_everything_would_choose(
    workers: list[int],
    jobs: list[Any],
    limits: tuple[int, ...],
    size: int,
    drop: bool,
    history: list[tuple[str, int]],
) -> None:
    world = fleet(0, limits=dict(zip("abc", limits, strict=True)))
    for i, cpu in enumerate(workers):
        world.add_worker(f"w{i}", cpu=cpu)

    def add(row: Any) -> None:
        user, tasks, cpu, band, child = row
        name = f"/{user}/j{len(world.model.jobs)}"
        parents = [j for j in world.model.pending if budget_user(world.model.jobs[j]) == user]
        world.now_ms += 1
        submit(
            world, f"{parents[0]}/j{len(world.model.jobs)}" if child and parents else name, tasks, cpu=cpu, band=band
        )

    for row in jobs:
        add(row)
    reference = Reference(world.model)
    run(world, reference, size, drop)
    for event, seed in history:
        if event == "job":
            add(jobs[seed % len(jobs)])
        elif event == "end" and world.model.attempts:
            uid = sorted(world.model.attempts)[seed % len(world.model.attempts)]
            world.observe(uid, TaskState.SUCCEEDED, world.model.attempts[uid].worker_id)
        elif event == "limit":
            set_limit(world, "abc"[seed % 3], (0, 3, 12)[seed % 9 // 3])
        elif event == "worker":
            world.add_worker(f"x{len(world.model.workers)}", cpu=1 + seed % 4)
        elif event == "cancel" and world.model.pending:
            with world.batch() as o:
                kernel.cancel(o, sorted(world.model.pending)[seed % len(world.model.pending)], "x", "", world.now_ms)
        run(world, reference, size, drop)
        check_invariants(world.model)
        for job_id in world.model.pending:
            over = band_now(world.model, world.model.jobs[job_id]) is not world.model.jobs[job_id].spec.band.resolve(
                None
            )
            assert ("over the budget" in explain_pending(world.model, job_id)) is over


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=3),
    st.lists(job_rows, min_size=1, max_size=7),
    st.tuples(*[st.sampled_from([0, 4, 10])] * 3),
    st.integers(1, 5),
)
def test_slices_of_any_size_place_the_same(
    workers: list[int], jobs: list[Any], limits: tuple[int, ...], size: int
) -> None:
    results = []
    for slice_size in (size, 1_000):
        world = fleet(0, limits=dict(zip("abc", limits, strict=True)))
        for i, cpu in enumerate(workers):
            world.add_worker(f"w{i}", cpu=cpu)
        for i, (user, tasks, cpu, band, _) in enumerate(jobs):
            submit(world, f"/{user}/j{i}", tasks, cpu=cpu, band=band)
        results.append(world.plan(max_assignments=slice_size))
    assert results[0] == results[1]
