"""Evictions through the planner: strictly lower bands, the least that helps, a gang never broken, and no going round in circles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_controller.scheduling.order import band_now
from iris_controller.scheduling.plans import Eviction
from iris_controller.state import kernel
from iris_controller.state.budgets import Budget, task_value
from iris_controller.state.desired import withheld
from iris_controller.state.records import Attempt
from iris_controller.state.submit import NewJob, admit
from iris_controller.ticker import apply_plan
from iris_core.model.bands import PriorityBand
from iris_core.model.constraints import parse_constraint
from iris_core.model.resources import Device
from iris_core.model.states import ACTIVE, TaskState
from tests.unit.kernel_world import GB, World, check_invariants, job_spec

S = TaskState
SYSTEM, PRODUCTION, INTERACTIVE, BATCH = (
    PriorityBand.SYSTEM,
    PriorityBand.PRODUCTION,
    PriorityBand.INTERACTIVE,
    PriorityBand.BATCH,
)
CHIPS = Device("tpu", "v5litepod-16", 4)
OTHER_CHIPS = Device("tpu", "v4-8", 4)
GPUS = Device("gpu", "h100", 8)


def world_of(workers: int = 1, **values: Any) -> World:
    world = World()
    world.model.budget_defaults = Budget("", limit=0)
    for index in range(workers):
        world.add_worker(f"w{index}", **{"cpu": 4, **values})
    return world


def begin(world: World) -> None:
    """Everything that is on a worker runs."""
    for attempt in list(world.model.attempts.values()):
        if attempt.state is S.ASSIGNED and not withheld(world.model, attempt):
            world.observe(attempt.uid, S.RUNNING, attempt.worker_id)


def confirm(world: World) -> None:
    """Every worker confirms what it was to stop."""
    for attempt in list(world.model.attempts.values()):
        if attempt.state not in ACTIVE:
            world.observe(attempt.uid, S.KILLED, attempt.worker_id)


def submit(world: World, job_id: str, tasks: int = 1, band: PriorityBand = INTERACTIVE, **values: Any) -> None:
    """A job of the user that its name begins with."""
    spec = job_spec(band=band, **{"cpu": 4, **values})
    with world.batch() as o:
        admit(o, NewJob(job_id, "", tasks, spec), world.now_ms)


def states(world: World, job_id: str) -> str:
    """One letter per task: R on a worker, P in the queue."""
    return "".join("R" if task.state in ACTIVE else task.state.name[0] for task in world.model.tasks[job_id])


@pytest.mark.parametrize("low", [INTERACTIVE, BATCH])
@pytest.mark.parametrize("high", [SYSTEM, PRODUCTION, INTERACTIVE, BATCH])
def test_only_strictly_lower_bands_go(low: PriorityBand, high: PriorityBand) -> None:
    world = world_of()
    submit(world, "/u/low", band=low)
    world.plan()
    begin(world)
    submit(world, "/v/high", band=high)
    world.plan()
    assert states(world, "/v/high") == ("R" if high.outranks(low) else "P")
    assert states(world, "/u/low") == ("P" if high.outranks(low) else "R")
    check_invariants(world.model)


def test_the_lowest_band_goes_first_then_what_is_worth_least_then_what_has_not_begun() -> None:
    world = world_of(5)
    for job_id, band, cpu, memory in (
        ("/u/batch-dear", BATCH, 4, 8 * GB),
        ("/u/interactive", INTERACTIVE, 4, 0),
        ("/u/batch-begun", BATCH, 4, 2 * GB),
        ("/u/batch-new", BATCH, 4, 2 * GB),
        ("/u/production", PRODUCTION, 4, 0),
    ):
        submit(world, job_id, band=band, cpu=cpu, memory=memory)
    world.plan()
    for job_id in ("/u/batch-dear", "/u/interactive", "/u/batch-begun"):
        task = world.task(0, job_id)
        world.observe(task.attempt_uid, S.RUNNING, task.worker_id)
    evicted = []
    for index in range(5):
        before = {j for j in world.model.tasks if j.startswith("/u/") and states(world, j) == "R"}
        submit(world, f"/v/p{index}", band=PRODUCTION)
        world.plan()
        after = {j for j in world.model.tasks if j.startswith("/u/") and states(world, j) == "R"}
        evicted += sorted(before - after)
    assert evicted == ["/u/batch-new", "/u/batch-begun", "/u/batch-dear", "/u/interactive"]
    assert states(world, "/v/p4") == "P"


def test_one_victim_at_most_and_only_one_whose_room_suffices() -> None:
    world = world_of(2)
    submit(world, "/u/small", 4, band=BATCH, cpu=1)
    submit(world, "/u/large", band=INTERACTIVE, cpu=3, constraints=())
    world.plan()
    submit(world, "/v/whole", band=PRODUCTION, cpu=4)
    world.plan()
    assert states(world, "/v/whole") == "P", "no single victim leaves four cores"
    assert "P" not in states(world, "/u/small") + states(world, "/u/large")
    submit(world, "/v/part", band=PRODUCTION, cpu=2)
    world.plan()
    assert states(world, "/v/part") == "R"
    check_invariants(world.model)


def test_a_victim_appears_when_something_else_ends() -> None:
    world = world_of()
    submit(world, "/u/a", band=BATCH, cpu=2)
    submit(world, "/u/b", band=BATCH, cpu=1)
    submit(world, "/v/high", band=PRODUCTION, cpu=4)
    with world.batch() as o:
        for job_id in ("/u/a", "/u/b"):
            task = o.task(job_id, 0)
            assert task is not None
            kernel.assign(o, task, "w0", world.uid(), world.now_ms, BATCH)
    world.plan()
    assert states(world, "/v/high") == "P"
    task = world.task(0, "/u/b")
    world.observe(task.attempt_uid, S.SUCCEEDED, "w0")
    world.plan()
    assert (states(world, "/v/high"), states(world, "/u/a")) == ("R", "P")


@pytest.mark.parametrize(
    ("mine", "theirs", "goes"),
    [
        (None, None, True),
        (None, CHIPS, False),
        (CHIPS, CHIPS, True),
        (CHIPS, None, True),
        (Device("tpu", "", 4), CHIPS, True),
    ],
)
def test_accelerators_of_the_same_kind_go_or_what_squats_on_their_host(
    mine: Device | None, theirs: Device | None, goes: bool
) -> None:
    world = world_of(device=CHIPS)
    submit(world, "/u/low", band=BATCH, device=theirs)
    world.plan()
    submit(world, "/v/high", band=PRODUCTION, device=mine)
    world.plan()
    assert states(world, "/v/high") == ("R" if goes else "P")


def test_other_accelerators_do_not_go() -> None:
    world = world_of(device=OTHER_CHIPS)
    submit(world, "/u/low", band=BATCH, device=OTHER_CHIPS)
    world.plan()
    submit(world, "/v/high", band=PRODUCTION, device=CHIPS)
    world.plan()
    assert states(world, "/u/low") == "R"


def test_only_workers_that_meet_the_constraints_lose_anything() -> None:
    world = World()
    world.add_worker("eu", cpu=4, attributes={"region": "eu"})
    world.add_worker("us", cpu=4, attributes={"region": "us"})
    submit(world, "/u/low", 2, band=BATCH)
    world.plan()
    submit(world, "/v/high", band=PRODUCTION, constraints=(parse_constraint("region=us"),))
    world.plan()
    assert world.task(0, "/v/high").worker_id == "us"
    assert sorted(states(world, "/u/low")) == ["P", "R"]


def test_many_of_a_job_evict_one_each_in_one_slice() -> None:
    world = world_of(20)
    submit(world, "/u/low", 20, band=BATCH)
    world.plan()
    submit(world, "/v/high", 12, band=PRODUCTION)
    plan = world.planner.plan(world.model)
    assert len(plan.evictions) == 12 and plan.size == 12
    world.plan()
    assert states(world, "/u/low").count("R") == 8
    check_invariants(world.model)


def test_a_slice_that_was_dropped_evicts_again() -> None:
    world = world_of(3)
    submit(world, "/u/low", 3, band=BATCH)
    world.plan()
    submit(world, "/v/high", 2, band=PRODUCTION)
    assert len(world.planner.plan(world.model).evictions) == 2
    assert len(world.planner.plan(world.model).evictions) == 2
    world.plan()
    assert (states(world, "/v/high"), states(world, "/u/low").count("R")) == ("RR", 1)


def test_what_is_ending_already_is_waited_for_and_nobody_goes() -> None:
    world = world_of(2)
    submit(world, "/u/ends", band=INTERACTIVE)
    submit(world, "/u/low", band=BATCH)
    world.plan()
    ends = world.task(0, "/u/ends")
    with world.batch() as o:
        kernel.cancel(o, "/u/ends", "ann", "", world.now_ms)
    submit(world, "/v/high", band=PRODUCTION)
    world.plan()
    high = world.task(0, "/v/high")
    assert (high.worker_id, states(world, "/u/low")) == (ends.worker_id, "R")
    assert withheld(world.model, world.model.attempts[high.attempt_uid])
    confirm(world)
    assert not withheld(world.model, world.model.attempts[high.attempt_uid])


def test_a_higher_band_that_comes_later_finds_no_room_but_a_victim() -> None:
    """The shape has been tried in vain by work that may evict nobody."""
    world = world_of()
    submit(world, "/u/low")
    submit(world, "/w/same")
    world.plan()
    assert states(world, "/w/same") == "P"
    submit(world, "/v/high", band=PRODUCTION)
    world.plan()
    assert states(world, "/v/high") == "R"


def test_a_preempted_task_does_not_come_back_at_the_expense_of_what_took_its_place() -> None:
    world = world_of()
    submit(world, "/u/low", band=BATCH)
    world.plan()
    begin(world)
    submit(world, "/v/high", band=PRODUCTION)
    for _ in range(5):
        world.plan()
        confirm(world)
        begin(world)
    assert (states(world, "/v/high"), states(world, "/u/low")) == ("R", "P")
    assert world.task(0, "/u/low").preemption_count == 1 and world.task(0, "/v/high").attempt_number == 0


def test_work_lowered_by_its_users_budget_is_spared_by_that_user_and_not_by_others() -> None:
    world = world_of(2)
    with world.batch() as o:
        o.put_budget(Budget("u", 1, PRODUCTION, world.now_ms))
    submit(world, "/u/first", 2)
    world.plan()
    bands = [task.band for task in world.model.tasks["/u/first"]]
    assert sorted(bands) == [INTERACTIVE, BATCH]
    running = next(t for t in world.model.tasks["/u/first"] if t.band is INTERACTIVE)
    world.observe(running.attempt_uid, S.SUCCEEDED, running.worker_id)
    submit(world, "/x/fill")
    world.plan()
    submit(world, "/u/second")
    before = world.task(bands.index(BATCH), "/u/first").attempt_uid
    world.plan()
    assert states(world, "/u/second") == "P"
    assert world.task(bands.index(BATCH), "/u/first").attempt_uid == before
    submit(world, "/v/other")
    world.plan()
    assert states(world, "/v/other") == "R"
    assert world.task(bands.index(BATCH), "/u/first").state is S.PENDING


def test_a_child_does_not_evict_the_job_that_submitted_it() -> None:
    world = world_of()
    submit(world, "/u/parent", band=BATCH)
    world.plan()
    submit(world, "/u/parent/child", band=PRODUCTION)
    world.plan()
    assert (states(world, "/u/parent"), states(world, "/u/parent/child")) == ("R", "P")
    submit(world, "/u/stranger", band=PRODUCTION)
    world.plan()
    assert states(world, "/u/stranger") == "R"


# --- gangs -----------------------------------------------------------------------------------------------------------


def slices(names: Iterable[str] = "x", workers: int = 4, **values: Any) -> World:
    world = World()
    world.model.budget_defaults = Budget("", limit=0)
    for name in names:
        for index in range(workers):
            attributes = {"tpu-name": name, "tpu-worker-id": index}
            world.add_worker(f"{name}-{index}", cpu=4, device=CHIPS, attributes=attributes, **values)
    return world


def gang(world: World, job_id: str, tasks: int = 4, band: PriorityBand = INTERACTIVE, **values: Any) -> None:
    submit(world, job_id, tasks, band, **{"group_by": "tpu-name", "device": CHIPS, **values})


def test_a_gang_evicts_a_gang_whole_and_starts_when_it_is_gone() -> None:
    world = slices()
    gang(world, "/u/low", band=BATCH)
    world.plan()
    begin(world)
    gang(world, "/v/high", band=PRODUCTION)
    world.plan()
    assert (states(world, "/v/high"), states(world, "/u/low")) == ("RRRR", "PPPP")
    assert [t.preemption_count for t in world.model.tasks["/u/low"]] == [1, 1, 1, 1]
    assert sum(withheld(world.model, a) for a in world.model.attempts.values()) == 4
    confirm(world)
    assert not any(withheld(world.model, a) for a in world.model.attempts.values())
    assert "largest group has 0 that fit" in world.model.reasons["/u/low"]
    check_invariants(world.model)


def test_a_task_that_is_alone_never_breaks_a_gang() -> None:
    world = slices()
    gang(world, "/u/low", band=BATCH)
    world.plan()
    submit(world, "/v/high", band=SYSTEM, device=CHIPS)
    world.plan()
    assert (states(world, "/v/high"), states(world, "/u/low")) == ("P", "RRRR")


def test_a_small_task_on_one_host_goes_alone_for_a_gang() -> None:
    """Field case C13."""
    world = slices(memory=16 * GB)
    submit(world, "/u/squat", band=BATCH, cpu=0.1, memory=15 * GB)
    world.plan()
    gang(world, "/v/prod", band=PRODUCTION, memory=15 * GB)
    world.plan()
    assert (states(world, "/v/prod"), states(world, "/u/squat")) == ("RRRR", "P")
    assert world.audit.count("task_preempted /u/squat/0") == 1


def test_what_does_not_help_stays() -> None:
    world = slices(names="xy")
    on_x, on_y = (parse_constraint("tpu-name=x"),), (parse_constraint("tpu-name=y"),)
    submit(world, "/u/bystander", 2, band=BATCH, cpu=0.1)
    gang(world, "/u/low", 3, band=BATCH, cpu=3.5, constraints=on_x)
    submit(world, "/u/one", band=BATCH, cpu=3.5, device=CHIPS, constraints=on_y)
    submit(world, "/u/keep", band=PRODUCTION, cpu=3.5, device=CHIPS, constraints=on_x)
    world.plan()
    gang(world, "/v/high", 4, band=PRODUCTION, cpu=3.5)
    world.plan()
    assert states(world, "/v/high") == "RRRR"
    assert {t.worker_id[0] for t in world.model.tasks["/v/high"]} == {"y"}
    assert (states(world, "/u/low"), states(world, "/u/one"), states(world, "/u/bystander")) == ("RRR", "P", "RR")


def test_the_gang_of_least_value_goes_and_an_equal_one_never() -> None:
    world = slices(names="xyz")
    gang(world, "/u/dear", band=BATCH, memory=4 * GB)
    gang(world, "/u/cheap", band=BATCH)
    gang(world, "/u/equal", band=PRODUCTION)
    world.plan()
    gang(world, "/v/high", band=PRODUCTION)
    world.plan()
    assert (states(world, "/u/cheap"), states(world, "/u/dear"), states(world, "/u/equal")) == ("PPPP", "RRRR", "RRRR")


def test_two_small_gangs_go_where_one_is_not_enough_and_all_of_a_large_one_for_a_part() -> None:
    world = slices()
    gang(world, "/u/one", 2, band=BATCH)
    gang(world, "/u/two", 2, band=BATCH)
    world.plan()
    gang(world, "/v/high", 4, band=PRODUCTION)
    world.plan()
    assert (states(world, "/v/high"), states(world, "/u/one"), states(world, "/u/two")) == ("RRRR", "PP", "PP")
    world = slices()
    gang(world, "/u/large", 4, band=BATCH)
    world.plan()
    gang(world, "/v/part", 2, band=PRODUCTION)
    world.plan()
    assert (states(world, "/v/part"), states(world, "/u/large")) == ("RR", "PPPP")
    check_invariants(world.model)


def test_a_gang_that_even_evictions_do_not_help_evicts_nobody() -> None:
    world = slices(names="xy")
    for name in "xy":
        submit(world, f"/u/{name}", band=PRODUCTION, device=CHIPS, constraints=(parse_constraint(f"tpu-name={name}"),))
    submit(world, "/u/low", 6, band=BATCH, device=CHIPS)
    world.plan()
    gang(world, "/v/high", 4, band=PRODUCTION)
    world.plan()
    assert (states(world, "/v/high"), states(world, "/u/low")) == ("PPPP", "RRRRRR")
    assert "largest group has 0 that fit" in world.model.reasons["/v/high"]


def test_the_loss_of_a_worker_while_the_victims_end_costs_the_gang_nothing() -> None:
    world = slices(names="xy")
    gang(world, "/u/low", band=BATCH)
    gang(world, "/u/other", band=PRODUCTION)
    world.plan()
    begin(world)
    gang(world, "/v/high", band=PRODUCTION)
    world.plan()
    lost = world.task(0, "/v/high").worker_id
    with world.batch() as o:
        kernel.worker_lost(o, lost, "gone", world.now_ms)
        worker = o.worker(lost)
        assert worker is not None
        o.set_worker(worker, placeable=False, attached=False)
    assert states(world, "/v/high") == "PPPP"
    assert [t.preemption_count for t in world.model.tasks["/v/high"]] == [0, 0, 0, 0]
    assert [t.preemption_count for t in world.model.tasks["/u/low"]] == [1, 1, 1, 1]
    check_invariants(world.model)


def test_a_group_that_lost_a_worker_is_not_evicted_from_what_was_found_before() -> None:
    world = slices(names="xy")
    gang(world, "/u/first", band=BATCH)
    gang(world, "/u/second", band=BATCH)
    world.plan()
    gang(world, "/v/one", band=PRODUCTION)
    gang(world, "/v/two", band=PRODUCTION)
    plan = world.planner.plan(world.model, max_assignments=4)
    with world.batch() as o:
        apply_plan(o, plan, world.uid, world.now_ms)
    left = next(j for j in ("/u/first", "/u/second") if states(world, j) == "RRRR")
    world.change_worker(world.task(1, left).worker_id, placeable=False)
    assert world.planner.plan(world.model).size == 0
    assert (states(world, left), states(world, "/v/two")) == ("RRRR", "PPPP")
    world.change_worker(world.task(1, left).worker_id, placeable=True)
    world.plan()
    assert (states(world, left), states(world, "/v/two")) == ("PPPP", "RRRR")


@pytest.mark.parametrize("together", [False, True])
def test_a_long_search_gives_way_and_goes_on_in_the_next_slice(together: bool) -> None:
    world = slices(names=[f"s{i}" for i in range(60)])
    if together:
        for index in range(60):
            gang(world, f"/u/g{index}", band=BATCH, memory=GB if index != 37 else 0)
    else:
        submit(world, "/u/large", 239, band=BATCH, memory=2 * GB)
        submit(world, "/u/small", 1, band=BATCH, memory=GB)
    world.plan()
    if together:
        gang(world, "/v/high", band=PRODUCTION)
    else:
        submit(world, "/v/high", band=PRODUCTION)
    sizes = []
    while "P" in states(world, "/v/high"):
        looks = iter([True, True])
        plan = world.planner.plan(world.model, budget=lambda looks=looks: next(looks, False))  # type: ignore[misc]
        sizes.append(plan.size)
        assert plan.size or not plan.done
        with world.batch() as o:
            apply_plan(o, plan, world.uid, world.now_ms)
    assert sum(sizes) == (4 if together else 1)
    if together:
        assert len(sizes) > 10 and states(world, "/u/g37") == "PPPP"
    else:
        assert states(world, "/u/small") == "P"


# --- properties ------------------------------------------------------------------------------------------------------

jobs = st.tuples(
    st.sampled_from([SYSTEM, PRODUCTION, INTERACTIVE, BATCH]),
    st.integers(1, 4),
    st.sampled_from([1, 2, 4]),
    st.booleans(),
    st.sampled_from("uv"),
)
histories = st.lists(
    st.one_of(
        st.tuples(st.just("job"), jobs),
        st.tuples(st.sampled_from(["end", "confirm", "begin", "lose", "drop"]), st.integers(0, 10**6)),
    ),
    min_size=1,
    max_size=20,
)


@settings(max_examples=80, deadline=None)
@given(histories, st.sampled_from([0, 15]))
def test_no_history_evicts_what_it_may_not_or_dispatches_more_than_a_worker_has(
    history: list[tuple[str, Any]], limit: int
) -> None:
    world = slices(names="xy", workers=3)
    world.model.budget_defaults = Budget("", limit=limit)
    for event, value in history:
        if event == "job":
            band, tasks, cpu, together, user = value
            job_id = f"/{user}/j{len(world.model.jobs)}"
            submit(world, job_id, tasks, band, cpu=cpu, group_by="tpu-name" if together else "")
        elif event == "begin":
            begin(world)
        elif event == "confirm":
            confirm(world)
        elif event == "end" and world.model.attempts:
            attempt = world.model.attempts[sorted(world.model.attempts)[value % len(world.model.attempts)]]
            if not withheld(world.model, attempt):
                world.observe(attempt.uid, S.SUCCEEDED, attempt.worker_id)
        elif event == "lose":
            with world.batch() as o:
                kernel.worker_lost(o, sorted(world.model.workers)[value % 6], "gone", world.now_ms)
        elif event == "drop":
            world.planner.plan(world.model)
        settle(world)
        check_invariants(world.model)


def settle(world: World) -> None:
    """Plans until nothing more fits, checking each slice against the rules."""
    for _ in range(100):
        plan = world.planner.plan(world.model)
        for eviction in plan.evictions:
            for job_id, index, uid in eviction.victims:
                task = world.task(index, job_id)
                assert task.attempt_uid == uid and task.state in ACTIVE
                assert eviction.band.outranks(task.band)
        if plan.evictions and not plan.assignments and not plan.gangs:
            check_cheapest(world, plan.evictions[0])
        with world.batch() as o:
            apply_plan(o, plan, world.uid, world.now_ms)
            placed = [a for a in o.attempts.values() if a.uid not in world.model.attempts]
            assert len(placed) == plan.size, "the kernel refused what was planned"
        world.take_reasons(plan.reasons)
        check_dispatched(world)
        if plan.done and not plan.size:
            break
    else:
        raise AssertionError("the planner does not come to rest")
    for job_id in world.model.pending:
        found = options(world, job_id, band_now(world.model, world.job(job_id)))
        # Where room is about to be free nobody has to go.
        waits_for_room = any(rank == 0 for rank, _, _ in found)
        assert not found or (waits_for_room and min(found)[0] == 0), f"{job_id} waits, and {min(found)} would help"
        assert not could_come_whole(world, job_id), f"the gang {job_id} waits, and evictions would help"
    assert all(world.model.reasons.get(job_id) for job_id in world.model.pending)


def options(world: World, job_id: str, band: PriorityBand) -> list[tuple[int, int, str]]:
    """Every way in which one task of a job that is no gang comes to a worker: rank and value of who goes, and the worker."""
    model, job = world.model, world.job(job_id)
    if job.spec.group_by:
        return []
    found = []
    wanted = job.spec.resources.cpu_millicores
    lower = any(band.outranks(model.tasks[a.job_id][a.task_index].band) for a in model.attempts.values() if is_on(a))
    for worker_id, worker in model.workers.items():
        here = list(model.attempts_on(worker_id))
        free = worker.total.cpu_millicores - sum(a.resources.cpu_millicores for a in here)
        if free >= wanted:
            found.append((-1, 0, worker_id))
        free += sum(a.resources.cpu_millicores for a in here if not is_on(a))
        if lower and free >= wanted:
            found.append((0, 0, worker_id))
        for attempt in here:
            if not is_on(attempt):
                continue
            victim, task = model.jobs[attempt.job_id], model.tasks[attempt.job_id][attempt.task_index]
            spared = victim.user_id == job.user_id and not job.spec.band.outranks(victim.spec.band)
            may_go = band.outranks(task.band) and not victim.spec.group_by and not spared
            if may_go and free + attempt.resources.cpu_millicores >= wanted:
                found.append((task.band.rank(), task_value(attempt.resources), worker_id))
    return found


def could_come_whole(world: World, job_id: str) -> bool:
    """Whether a gang would have room in some group if everything went that may, and will have none without."""
    model, job = world.model, world.job(job_id)
    band, wanted = band_now(model, job), job.spec.resources.cpu_millicores
    if not job.spec.group_by:
        return False

    def may_go(attempt: Attempt) -> bool:
        victim = model.jobs[attempt.job_id]
        if victim.user_id == job.user_id and not job.spec.band.outranks(victim.spec.band):
            return False
        mates = (
            model.tasks[attempt.job_id] if victim.spec.group_by else [model.tasks[attempt.job_id][attempt.task_index]]
        )
        return all(band.outranks(mate.band) for mate in mates if mate.state in ACTIVE)

    lower = any(band.outranks(model.tasks[a.job_id][a.task_index].band) for a in model.attempts.values() if is_on(a))

    def fits_if_only(stays: Callable[[Attempt], bool]) -> bool:
        room: Counter[object] = Counter()
        for worker_id, worker in model.workers.items():
            held = sum(a.resources.cpu_millicores for a in model.attempts_on(worker_id) if stays(a))
            room[worker.attributes["tpu-name"]] += worker.total.cpu_millicores - held >= wanted
        return max(room.values()) >= len(model.pending[job_id])

    if fits_if_only(lambda a: True):
        return True
    return not fits_if_only(is_on) and lower and fits_if_only(lambda a: is_on(a) and not may_go(a))


def is_on(attempt: Attempt) -> bool:
    return attempt.state in ACTIVE


def check_cheapest(world: World, eviction: Eviction) -> None:
    """What a slice evicts first is the least that helps."""
    found = options(world, eviction.job_id, eviction.band)
    if found:
        cheapest = min(found)
        gone = [world.model.attempts[uid] for _, _, uid in eviction.victims]
        cost = [(world.task(a.task_index, a.job_id).band.rank(), task_value(a.resources)) for a in gone] or [(0, 0)]
        assert cost == [cheapest[:2]], f"{eviction} instead of {cheapest}"


def check_dispatched(world: World) -> None:
    """What has ever been dispatched to a worker and is not confirmed gone is never more than it has."""
    for worker_id, worker in world.model.workers.items():
        here = [
            a for a in world.model.attempts_on(worker_id) if not any(uid in world.model.attempts for uid in a.displaces)
        ]
        assert sum(a.resources.cpu_millicores for a in here) <= worker.total.cpu_millicores
        assert sum(a.resources.tpu_count for a in here) <= worker.total.tpu_count
