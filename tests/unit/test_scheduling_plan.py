"""Who gets which worker, in which order, in how many slices (control-plane §2.3–2.6)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_controller.scheduling.order import NOT_PLANNED, explain_pending, serving
from iris_controller.scheduling.plan import Planner
from iris_controller.scheduling.snapshot import BUILDING_LIMIT, IDLE_GROUPS
from iris_controller.state import kernel
from iris_controller.state.desired import withheld
from iris_controller.state.model import Usage
from iris_controller.state.overlay import Overlay
from iris_controller.state.records import JobSpec, Worker
from iris_controller.ticker import apply_plan
from iris_core.model.bands import PriorityBand
from iris_core.model.constraints import Mode, parse_constraint
from iris_core.model.resources import Device
from iris_core.model.states import TaskState
from tests.unit.kernel_world import GB, World, check_invariants

S = TaskState
H100 = Device("gpu", "h100", 8)


def gpus(count: int, variant: str = "h100") -> Device:
    return Device("gpu", variant, count)


def fleet(workers: int = 2, **values: Any) -> World:
    world = World()
    for i in range(workers):
        world.add_worker(f"w{i}", **values)
    return world


def served(world: World) -> list[str]:
    """The jobs in the order in which their tasks were placed."""
    return list(dict.fromkeys(job_id for job_id, _, _ in world.plan()))


def test_an_empty_queue_or_fleet_plans_nothing() -> None:
    world = World()
    assert world.plan() == []
    world.submit()
    assert world.plan() == []


def test_tasks_are_placed_from_the_lowest_index() -> None:
    world = fleet(1, cpu=2)
    world.submit(tasks=4)
    assert [index for _, index, _ in world.plan()] == [0, 1]


def test_more_important_bands_first_whatever_their_numbers() -> None:
    world = fleet(1, cpu=100)
    for band in (PriorityBand.BATCH, PriorityBand.INTERACTIVE, PriorityBand.SYSTEM, PriorityBand.PRODUCTION):
        world.submit(f"/u/{band.label}", band=band)
    assert served(world) == ["/u/system", "/u/production", "/u/interactive", "/u/batch"]


def test_deeper_jobs_first_and_a_tree_before_newer_trees() -> None:
    world = fleet(1, cpu=100)
    for job_id in ("/u/old", "/u/new", "/u/new/child", "/u/old/child", "/u/old/child/deep"):
        world.now_ms += 1_000
        world.submit(job_id)
    expected = ["/u/old/child/deep", "/u/old/child", "/u/new/child", "/u/old", "/u/new"]
    assert [served.job_id for served in serving(world.model)] == expected
    assert served(world) == expected


def test_the_oldest_first_when_there_is_not_enough() -> None:
    world = fleet(1, cpu=2)
    for name in "abc":
        world.submit(f"/u/{name}")
    assert [job for job, _, _ in world.plan()] == ["/u/a", "/u/b"]


def test_a_job_that_does_not_fit_holds_up_nobody_else() -> None:
    world = fleet(1, cpu=4)
    world.submit("/u/huge", cpu=64, tasks=3)
    world.submit("/u/small", tasks=2)
    assert served(world) == ["/u/small"]


def test_capacity_is_never_given_twice() -> None:
    world = fleet(3, cpu=4, memory=8 * GB)
    world.submit("/u/a", tasks=50, cpu=1, memory=3 * GB)
    world.submit("/u/b", tasks=50, cpu=0.5)
    world.plan()
    for worker_id, worker in world.model.workers.items():
        usage = world.model.usage_of(worker_id)
        assert usage.cpu_millicores <= worker.total.cpu_millicores
        assert usage.memory_bytes <= worker.total.memory_bytes
    assert Counter(j for j, rows in world.model.tasks.items() for t in rows if t.state is S.ASSIGNED) == {
        "/u/a": 6,
        "/u/b": 12,
    }


@pytest.mark.parametrize("workers", [2, 3, 7])
def test_plain_work_spreads_evenly_over_equal_workers(workers: int) -> None:
    world = fleet(workers, cpu=100)
    world.submit(tasks=workers * 6)
    assert set(Counter(w for _, _, w in world.plan()).values()) == {6}


def test_one_job_after_the_other_spreads_too_whatever_each_asks_for() -> None:
    world = fleet(2, cpu=100)
    for i in range(10):
        world.submit(f"/u/j{i}", memory=i + 1)
        world.plan()
    assert [world.model.usage_of(w).tasks for w in ("w0", "w1")] == [5, 5]


def test_the_less_busy_of_two_gets_the_next_task() -> None:
    world = fleet(2, cpu=10)
    world.submit("/u/filler", tasks=6)
    for index in range(6):
        world.assign(index, "/u/filler", "w0")
    world.submit("/u/next", tasks=4)
    assert {w for _, _, w in world.plan()} == {"w1"}


def test_accelerator_work_fills_one_worker_before_the_next() -> None:
    world = fleet(3, cpu=100, device=H100)
    world.submit(tasks=12, device=gpus(1))
    assert Counter(w for _, _, w in world.plan()) == {"w0": 8, "w1": 4}


def test_work_without_accelerators_leaves_accelerators_alone_while_it_can() -> None:
    world = World()
    world.add_worker("gpu", cpu=100, device=H100)
    world.add_worker("plain", cpu=3)
    world.submit(tasks=5)
    assert Counter(w for _, _, w in world.plan()) == {"plain": 3, "gpu": 2}


@pytest.mark.parametrize(
    ("asked", "fits"),
    [
        (gpus(8), True),
        (gpus(9), False),
        (gpus(1, "H100"), True),
        (gpus(1, ""), True),
        (gpus(1, "a100"), False),
        (Device("tpu", "h100", 1), False),
        (Device("gpu", "h100", 0), True),
    ],
)
def test_accelerators_are_matched_by_kind_variant_and_count(asked: Device, fits: bool) -> None:
    world = fleet(1, device=H100)
    world.submit(device=asked)
    assert bool(world.plan()) is fits


def test_tpu_chips_are_counted_too() -> None:
    world = fleet(2, device=Device("tpu", "v5litepod-16", 4))
    world.submit(tasks=3, device=Device("tpu", "v5litepod-16", 4))
    assert len(world.plan()) == 2


def test_required_constraints_exclude_and_preferred_ones_rank() -> None:
    world = World()
    for name, region, spot in (("a", "eu", "true"), ("b", "us", "true"), ("c", "us", "false")):
        world.add_worker(name, cpu=2, attributes={"region": region, "preemptible": spot})
    wants = (parse_constraint("region=us"), parse_constraint("preemptible=false", mode=Mode.PREFERRED))
    world.submit(tasks=5, constraints=wants)
    assert [w for _, _, w in world.plan()] == ["c", "c", "b", "b"]


def test_at_most_eight_tasks_are_set_up_at_once_and_only_those_with_setup_count() -> None:
    world = fleet(1, cpu=100)
    world.submit("/u/plain", tasks=20)
    world.submit("/u/setup", tasks=20, has_setup=True)
    placed = Counter(job for job, _, _ in world.plan())
    assert placed == {"/u/plain": 20, "/u/setup": BUILDING_LIMIT}
    assert explain_pending(world.model, "/u/setup").startswith("waiting for a setup slot")
    world.observe(world.task(0, "/u/setup").attempt_uid, S.RUNNING, "w0")
    world.observe(world.task(1, "/u/setup").attempt_uid, S.BUILDING, "w0")
    assert [i for _, i, _ in world.plan()] == [BUILDING_LIMIT]
    check_invariants(world.model)


def test_when_the_slots_are_free_again_the_reason_is_what_stops_it_then() -> None:
    world = fleet(1, cpu=BUILDING_LIMIT + 1)
    world.submit("/u/setup", tasks=20, has_setup=True)
    world.plan()
    world.submit("/u/plain", tasks=1)
    world.plan()
    world.observe(world.task(0, "/u/setup").attempt_uid, S.RUNNING, "w0")
    assert world.plan() == []
    assert explain_pending(world.model, "/u/setup").startswith("waiting for capacity")


@pytest.mark.parametrize("spoil", [{"placeable": False}, {"excluded": True}])
def test_only_healthy_workers_that_can_stage_get_work(spoil: dict[str, bool]) -> None:
    world = fleet(2)
    world.change_worker("w0", **spoil)
    world.submit(tasks=20)
    assert {w for _, _, w in world.plan()} == {"w1"}
    world.change_worker("w0", placeable=True, excluded=False)
    assert {w for _, _, w in world.plan()} == {"w0"}


@pytest.mark.parametrize("how", ["ends", "new worker", "bigger worker", "worker back", "new attribute"])
def test_waiting_work_is_placed_when_something_changes_that_helps(how: str) -> None:
    world = fleet(1, cpu=1)
    wants = (parse_constraint("pool=x"),) if how == "new attribute" else ()
    world.submit("/u/first")
    (placed,) = world.plan()
    world.submit("/u/second", constraints=wants)
    assert world.plan() == [] and world.plan() == []
    if how == "ends":
        world.observe(world.task(0, placed[0]).attempt_uid, S.SUCCEEDED, "w0")
    elif how == "new worker":
        world.add_worker("w1")
    elif how == "bigger worker":
        world.change_worker("w0", total=world.model.workers["w0"].total + world.model.workers["w0"].total)
    elif how == "worker back":
        with world.batch() as o:
            kernel.worker_lost(o, "w0", "gone", world.now_ms)
            worker = o.worker("w0")
            assert worker is not None
            o.set_worker(worker, placeable=False)
        assert world.plan() == []
        world.change_worker("w0", placeable=True)
        assert world.plan()[0][0] == "/u/first"
        return
    else:
        world.observe(world.task(0, "/u/first").attempt_uid, S.SUCCEEDED, "w0")
        assert world.plan() == []
        world.change_worker("w0", attributes={"pool": "x"})
    assert [job for job, _, _ in world.plan()] == ["/u/second"]


def test_a_worker_that_the_model_forgot_gets_nothing() -> None:
    world = fleet(2, cpu=1)
    world.submit("/u/a")
    world.plan()
    with world.batch() as o:
        o.workers["w1"] = None
    world.submit("/u/b")
    assert world.plan() == []
    assert "1 worker" in explain_pending(world.model, "/u/b")


# Slices ---------------------------------------------------------------------------------------------------------


def test_a_slice_is_bounded_and_the_next_goes_on() -> None:
    world = fleet(4, cpu=100)
    world.submit(tasks=350)
    planner, sizes = world.planner, []
    while True:
        plan = planner.plan(world.model, max_assignments=100)
        sizes.append(len(plan.assignments))
        with world.batch() as o:
            for job_id, index, worker_id, band in plan.assignments:
                task = o.task(job_id, index)
                assert task is not None
                assert kernel.assign(o, task, worker_id, world.uid(), world.now_ms, band)
        if plan.done:
            break
    assert sizes == [100, 100, 100, 50]
    assert world.model.pending == {}


def test_a_slice_ends_soon_after_its_budget() -> None:
    world = fleet(2, cpu=10_000)
    world.submit(tasks=5_000)
    looks = iter([True, True, True])
    plan = world.planner.plan(world.model, budget=lambda: next(looks, False))
    assert not plan.done
    assert 0 < len(plan.assignments) < 200


def test_no_budget_at_all_places_nothing_and_loses_nothing() -> None:
    world = fleet(1)
    world.submit(tasks=2)
    plan = world.planner.plan(world.model, budget=lambda: False)
    assert (plan.assignments, plan.done) == ([], False)
    assert len(world.plan()) == 2


def test_a_slice_that_was_dropped_is_planned_again() -> None:
    world = fleet(2, cpu=3)
    world.submit("/u/a", tasks=4)
    world.submit("/u/b", tasks=4)
    dropped = world.planner.plan(world.model)
    again = world.planner.plan(world.model)
    assert sorted(again.assignments)[:4] == sorted(dropped.assignments)[:4] and len(again.assignments) == 6
    assert again.reasons == dropped.reasons == {"/u/b": "waiting for capacity: 1 core free on none of 2 workers"}
    assert len(world.plan()) == 6
    check_invariants(world.model)


def test_more_important_work_that_comes_between_two_slices_goes_first() -> None:
    world = fleet(1, cpu=1_000)
    world.submit("/u/bulk", tasks=500, band=PriorityBand.BATCH)
    plan = world.planner.plan(world.model, max_assignments=10)
    assert not plan.done
    world.submit("/u/urgent", band=PriorityBand.PRODUCTION)  # the slice above is dropped
    plan = world.planner.plan(world.model, max_assignments=10)
    assert plan.assignments[0] == ("/u/urgent", 0, "w0", PriorityBand.PRODUCTION)


def test_more_important_work_of_a_shape_that_was_just_woken_goes_first() -> None:
    world = fleet(1, cpu=2)
    world.submit("/u/first", cpu=2)
    world.plan()
    world.submit("/u/low", cpu=2, band=PriorityBand.BATCH)
    world.plan()
    world.observe(world.task(0, "/u/first").attempt_uid, S.SUCCEEDED, "w0")
    assert world.planner.plan(world.model, budget=lambda: False).assignments == []
    world.submit("/u/middle", cpu=1)
    world.submit("/u/high", cpu=2, band=PriorityBand.PRODUCTION)
    assert [job for job, _, _ in world.plan()] == ["/u/high"]


def test_a_long_queue_on_a_busy_fleet_does_not_make_the_search_grow() -> None:
    world = fleet(4, cpu=50)
    world.submit(tasks=2_000)
    for _ in range(15):
        placed = world.planner.plan(world.model, max_assignments=20)
        with world.batch() as o:
            for job_id, index, worker_id, band in placed.assignments:
                kernel.assign(o, world.task(index, job_id), worker_id, world.uid(), world.now_ms, band)
        with world.batch() as o:
            for attempt in list(world.model.attempts.values())[:10]:
                kernel.observe(o, attempt.worker_id, kernel.Observed(attempt.uid, S.SUCCEEDED), world.now_ms)
    (shape,) = world.planner._shapes.values()
    assert all(len(search.again) <= 4 for search in shape._tiers.values())


def test_a_task_that_comes_back_is_planned_again() -> None:
    world = fleet(1, cpu=1)
    world.submit(tasks=1, max_retries_failure=3)
    for _ in range(3):
        ((_, _, _),) = world.plan()
        world.observe(world.task().attempt_uid, S.FAILED, "w0")
    assert len(world.plan()) == 1


def test_a_job_of_the_same_name_is_new_to_the_planner() -> None:
    world = fleet(1, cpu=1)
    world.submit("/u/blocker")
    world.plan()
    world.submit("/u/again", cpu=64)
    world.plan()
    with world.batch() as o:
        kernel.cancel(o, "/u/again", "x", "", world.now_ms)
        kernel.cancel(o, "/u/blocker", "x", "", world.now_ms)
    world.observe(next(iter(world.model.attempts)), S.KILLED, "w0")
    world.submit("/u/again", cpu=1)
    assert world.plan() == [("/u/again", 0, "w0")]


def test_a_planner_given_another_model_starts_over() -> None:
    first, second = fleet(1), fleet(2)
    first.submit("/u/a")
    second.submit("/u/b", tasks=2)
    planner = Planner()
    assert [a[0] for a in planner.plan(first.model).assignments] == ["/u/a"]
    assert [a[0] for a in planner.plan(second.model).assignments] == ["/u/b", "/u/b"]


def test_what_nothing_waits_for_is_forgotten() -> None:
    world = fleet(1, cpu=1)
    for i in range(IDLE_GROUPS * 2):
        world.submit(f"/u/j{i}", constraints=(parse_constraint(f"k{i}=1"),))
    world.plan()
    for i in range(IDLE_GROUPS * 2):
        with world.batch() as o:
            kernel.cancel(o, f"/u/j{i}", "x", "", world.now_ms)
    world.plan()
    assert len(world.planner._fleet.groups) == IDLE_GROUPS
    assert not world.planner._shapes and not world.planner._buckets


# Properties -----------------------------------------------------------------------------------------------------

DEVICES = [None, None, gpus(2), gpus(4, "a100"), Device("tpu", "v4", 4)]
POOLS = ["x", "y"]
worker_rows = st.tuples(
    st.integers(0, 4), st.integers(0, 4), st.sampled_from(DEVICES), st.sampled_from(POOLS), st.booleans()
)
job_rows = st.tuples(
    st.integers(1, 4),
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from([None, None, gpus(1), gpus(3, ""), Device("tpu", "v4", 2)]),
    st.sampled_from([None, *POOLS]),
    st.sampled_from([PriorityBand.BATCH, PriorityBand.INTERACTIVE, PriorityBand.PRODUCTION]),
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(worker_rows, max_size=5),
    st.lists(job_rows, max_size=8),
    st.integers(1, 7),
    st.lists(st.tuples(st.sampled_from(["end", "worker", "job", "drop", "flap"]), st.integers(0, 10**6)), max_size=12),
)
def test_when_it_is_done_nothing_that_waits_fits_anywhere(
    workers: list[Any], jobs: list[Any], slice_size: int, events: list[tuple[str, int]]
) -> None:
    """Complete and never over capacity, after any history; and everything that waits says why."""
    world = World()

    def add_worker(row: Any) -> None:
        cpu, memory, device, pool, usable = row
        name = f"w{len(world.model.workers)}"
        world.add_worker(name, cpu=cpu, memory=memory, device=device, attributes={"pool": pool}, placeable=usable)

    def add_job(row: Any) -> None:
        tasks, cpu, memory, device, pool, band = row
        wants = (parse_constraint(f"pool={pool}"),) if pool else ()
        world.submit(
            f"/u/j{len(world.model.jobs)}", tasks, cpu=cpu, memory=memory, device=device, constraints=wants, band=band
        )

    for row in workers:
        add_worker(row)
    for row in jobs:
        add_job(row)
    world.plan(max_assignments=slice_size)
    check_complete(world)
    for event, seed in events:
        if event == "end" and world.model.attempts:
            uid = sorted(world.model.attempts)[seed % len(world.model.attempts)]
            world.observe(uid, S.SUCCEEDED, world.model.attempts[uid].worker_id)
        elif event == "worker" and workers:
            add_worker(workers[seed % len(workers)])
        elif event == "job" and jobs:
            add_job(jobs[seed % len(jobs)])
        elif event == "drop":
            world.planner.plan(world.model, max_assignments=1 + seed % 5)
        elif event == "flap" and world.model.workers:
            name = sorted(world.model.workers)[seed % len(world.model.workers)]
            world.change_worker(name, placeable=not world.model.workers[name].placeable)
        else:
            continue
        world.plan(max_assignments=slice_size)
        check_complete(world)


def fits(spec: JobSpec, worker: Worker, usage: Usage) -> bool:
    """Whether one more task goes onto the worker, said as plainly as possible."""
    total, asked = worker.total, spec.resources
    return (
        worker.placeable
        and all(c.matches(worker.attributes) for c in spec.constraints)
        and usage.cpu_millicores + asked.cpu_millicores <= total.cpu_millicores
        and usage.memory_bytes + asked.memory_bytes <= total.memory_bytes
        and (
            asked.device is None
            or (
                total.device is not None
                and total.device.is_like(asked.device)
                and usage.gpu + asked.gpu_count <= total.gpu_count
                and usage.tpu + asked.tpu_count <= total.tpu_count
            )
        )
    )


def check_complete(world: World) -> None:
    check_invariants(world.model)
    model = world.model
    for worker_id, worker in model.workers.items():
        # What waits for those it displaces has its room promised, and gets it when they are gone.
        usage = Usage()
        for attempt in model.attempts_on(worker_id):
            if not withheld(model, attempt):
                usage.add(attempt.resources, 1, False)
        assert usage.cpu_millicores <= worker.total.cpu_millicores
        assert usage.memory_bytes <= worker.total.memory_bytes
        assert usage.gpu <= worker.total.gpu_count and usage.tpu <= worker.total.tpu_count
    for job_id in model.pending:
        for worker_id, worker in model.workers.items():
            assert not fits(model.jobs[job_id].spec, worker, model.usage_of(worker_id)), (
                f"{job_id} waits although it fits on {worker_id}: {model.reasons.get(job_id)}"
            )
        assert explain_pending(model, job_id) not in ("", NOT_PLANNED)
    assert set(model.reasons) == set(model.pending)


@settings(max_examples=150, deadline=None)
@given(st.lists(worker_rows, min_size=1, max_size=4), st.lists(job_rows, min_size=2, max_size=8), st.integers(1, 9))
def test_no_task_is_placed_while_a_more_important_one_would_fit(
    workers: list[Any], jobs: list[Any], slice_size: int
) -> None:
    world = World()
    for i, (cpu, memory, device, pool, usable) in enumerate(workers):
        world.add_worker(f"w{i}", cpu=cpu, memory=memory, device=device, attributes={"pool": pool}, placeable=usable)
    for i, (tasks, cpu, memory, device, pool, band) in enumerate(jobs):
        wants = (parse_constraint(f"pool={pool}"),) if pool else ()
        world.submit(f"/u/j{i}", tasks, cpu=cpu, memory=memory, device=device, constraints=wants, band=band)
    model = world.model
    waiting = {served.job_id: len(model.pending[served.job_id]) for served in serving(model)}
    held = {worker_id: Usage() for worker_id in model.workers}
    for job_id, _, worker_id in world.plan(max_assignments=slice_size):
        for before in waiting:
            if before == job_id:
                break
            spec = model.jobs[before].spec
            assert not waiting[before] or not any(fits(spec, w, held[w.worker_id]) for w in model.workers.values()), (
                f"{job_id} was placed before {before}"
            )
        spec = model.jobs[job_id].spec
        assert fits(spec, model.workers[worker_id], held[worker_id])
        held[worker_id].add(spec.resources, 1, building=False)
        waiting[job_id] -= 1


def test_what_a_slice_assigned_is_one_audit_line_for_each_job() -> None:
    world = World()
    world.add_worker("w", cpu=16)
    world.submit("/u/few", tasks=2)
    world.submit("/u/many", tasks=10)
    o = Overlay(world.model)
    apply_plan(o, world.planner.plan(world.model), world.uid, world.now_ms)
    lines = {event.entity: event for event in o.audit if event.action == "assignment_queued"}
    assert sorted(lines) == ["/u/few", "/u/many"] and len(o.audit) == 2
    assert lines["/u/few"].trigger == "scheduler"
    assert lines["/u/few"].values == {"tasks": 2, "places": "0:0@w,1:0@w"}
    assert lines["/u/many"].values["tasks"] == 10
    assert lines["/u/many"].values["places"].endswith("7:0@w,+2")
    world.commit(o)
    assert world.plan() == [] and world.audit.count("assignment_queued /u/few") == 1
