"""Gangs through the planner: whole or not at all, on workers that share a value, in the order of the slice, with an exact reason."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_controller.scheduling.gangs import GroupFit, GroupSummary, gang_reason
from iris_controller.state import kernel
from iris_core.model.constraints import Mode, parse_constraint
from iris_core.model.resources import Device, Resources
from iris_core.model.states import TaskState
from tests.unit.kernel_world import JOB, World, check_invariants

S = TaskState
CHIPS = Device("tpu", "v5litepod-16", 4)


def slices(world: World | None = None, names: str = "xy", workers: int = 4, **values: Any) -> World:
    """A world with slices of as many workers each; worker i of slice x is `x-i`."""
    world = world or World()
    for name in names:
        for index in range(workers):
            attributes = {"tpu-name": name, "tpu-worker-id": index, **values.get("attributes", {})}
            world.add_worker(f"{name}-{index}", **{"cpu": 4, **values, "attributes": attributes})
    return world


def gang(world: World, job_id: str = JOB, tasks: int = 4, **values: Any) -> None:
    world.submit(job_id, tasks, **{"cpu": 4, "group_by": "tpu-name", **values})


def places(world: World, job_id: str = JOB) -> list[str]:
    return [task.worker_id for task in world.model.tasks[job_id]]


def test_a_gang_is_placed_whole_in_the_order_of_the_slice() -> None:
    world = World()
    for index in (10, 2, 1, 0):
        world.add_worker(f"w{index}", cpu=4, attributes={"tpu-name": "x", "tpu-worker-id": index})
    gang(world)
    world.plan()
    assert places(world) == ["w0", "w1", "w2", "w10"]
    assert [world.task(i).band.label for i in range(4)] == ["interactive"] * 4
    check_invariants(world.model)


def test_workers_without_a_number_come_last_by_name() -> None:
    world = World()
    for name, number in (("b", None), ("a", None), ("d", "north"), ("c", 7)):
        attributes: dict[str, str | int | float] = {"tpu-name": "x"}
        if number is not None:
            attributes["tpu-worker-id"] = number
        world.add_worker(name, cpu=4, attributes=attributes)
    gang(world)
    world.plan()
    assert places(world) == ["c", "d", "a", "b"]


def test_no_worker_gets_two_members() -> None:
    world = slices(names="x", workers=2, cpu=64)
    gang(world, tasks=3, cpu=1)
    assert world.plan() == []
    assert world.model.reasons[JOB] == (
        "needs 3 workers sharing tpu-name, no group here could hold it: the largest of 1 group has 2"
    )


def test_a_gang_never_spreads_over_two_groups() -> None:
    world = slices(workers=3)
    gang(world)
    assert world.plan() == []
    assert not world.model.attempts
    assert "the largest of 2 groups has 3" in world.model.reasons[JOB]


def test_the_reason_is_exact_and_follows_what_happens() -> None:
    world = slices()
    for worker_id in ("x-0", "x-1", "y-0", "y-1", "y-2"):
        world.submit(f"/u/{worker_id}", cpu=3, constraints=(parse_constraint(f"tpu-name={worker_id[0]}"),))
    world.plan()
    gang(world)
    assert world.plan() == []
    assert world.model.reasons[JOB] == (
        "needs 4 workers sharing tpu-name, largest group has 2 that fit (tpu-name=x: 2 fit of 4; tpu-name=y: 1 fits of 4)"
    )
    job = next(job for job in world.model.tasks if job.startswith("/u/x"))
    uid, worker_id = world.task(0, job).attempt_uid, world.task(0, job).worker_id
    world.observe(uid, S.SUCCEEDED, worker_id)
    assert world.plan() == []
    assert "largest group has 3 that fit (tpu-name=x: 3 fit of 4;" in world.model.reasons[JOB]
    world.change_worker("x-0", placeable=False)
    world.plan()
    assert "no group here could" not in world.model.reasons[JOB] and "of 3" in world.model.reasons[JOB]


def test_groups_that_are_too_small_when_idle_are_said_to_be() -> None:
    world = slices()
    gang(world, cpu=8)
    world.plan()
    assert world.model.reasons[JOB] == (
        "needs 4 workers sharing tpu-name, no group here could hold it: at most 0 of one are large enough "
        "(tpu-name=x: 0 large enough of 4; tpu-name=y: 0 large enough of 4)"
    )


def test_workers_without_the_attribute_and_constraints_nobody_meets() -> None:
    world = World()
    world.add_worker()
    gang(world)
    world.plan()
    assert (
        world.model.reasons[JOB]
        == "needs 4 workers sharing tpu-name, no worker that meets its constraints has tpu-name"
    )
    gang(world, "/u/eu", constraints=(parse_constraint("region=eu"),))
    world.plan()
    assert world.model.reasons["/u/eu"].startswith("no worker matches region=eu")


def test_a_gang_of_one_and_groups_with_one_are_told_of_as_one() -> None:
    assert gang_reason("rack", 1, GroupSummary(0, 0, 0, ())) == (
        "needs 1 worker with rack, no worker that meets its constraints has rack"
    )
    assert "at most 1 of one is large enough (rack=a: 1 large enough of 2)" in gang_reason(
        "rack", 2, GroupSummary(1, 2, 1, (GroupFit("a", 2, 1, 0),))
    )


def test_many_groups_are_counted_and_the_fullest_named() -> None:
    fullest = tuple(GroupFit(f"s{i}", 4, 4, 3 - i // 2) for i in range(3))
    assert gang_reason("tpu-name", 4, GroupSummary(6, 4, 4, fullest)) == (
        "needs 4 workers sharing tpu-name, largest group has 3 that fit "
        "(tpu-name=s0: 3 fit of 4; tpu-name=s1: 3 fit of 4; tpu-name=s2: 2 fit of 4; and 3 more)"
    )


def test_it_waits_until_the_last_worker_is_free_and_then_starts_at_once() -> None:
    world = slices(names="x")
    world.submit("/u/solo", cpu=4)
    world.plan()
    gang(world)
    assert world.plan() == []
    task = world.task(0, "/u/solo")
    with world.batch() as o:
        kernel.cancel(o, "/u/solo", "ann", "", world.now_ms)
    assert world.plan() == [], "the process may still be there"
    world.observe(task.attempt_uid, S.KILLED, task.worker_id)
    assert len(world.plan()) == 4


@pytest.mark.parametrize("workers", [4, 6])
def test_the_group_that_meets_more_preferences_wins_then_the_tightest(workers: int) -> None:
    world = slices(names="a", workers=workers)
    slices(world, names="b", attributes={"region": "eu"})
    wish = parse_constraint("region=eu")
    gang(world, "/u/wish", constraints=(replace(wish, mode=Mode.PREFERRED),))
    world.plan()
    assert places(world, "/u/wish") == [f"b-{i}" for i in range(4)]
    world = slices(names="a", workers=6)
    slices(world, names="b", workers=5)
    gang(world, "/u/tight")
    world.plan()
    assert places(world, "/u/tight") == [f"b-{i}" for i in range(4)]


def test_gangs_of_several_sizes_and_kinds_wait_side_by_side() -> None:
    world = slices(names="xyz", device=CHIPS)
    gang(world, "/u/one", device=CHIPS)
    gang(world, "/u/two", tasks=2, device=CHIPS)
    gang(world, "/v/two", tasks=2, device=CHIPS)
    gang(world, "/u/three", device=CHIPS)
    world.plan()
    by_slice = {job: {w[0] for w in places(world, job)} for job in ("/u/one", "/u/two", "/v/two", "/u/three")}
    assert all(len(names) == 1 for names in by_slice.values()), by_slice
    assert by_slice["/u/two"] == by_slice["/v/two"], "the second fills the slice that the first began"
    assert not world.model.pending
    check_invariants(world.model)


def test_a_bounced_gang_comes_back_whole_without_what_has_succeeded() -> None:
    world = slices()
    gang(world, max_retries_failure=1)
    world.plan()
    first = places(world)[0][0]
    tasks = [world.task(i) for i in range(4)]
    world.observe(tasks[0].attempt_uid, S.SUCCEEDED, tasks[0].worker_id)
    with world.batch() as o:
        kernel.worker_lost(o, tasks[2].worker_id, "gone", world.now_ms)
        worker = o.worker(tasks[2].worker_id)
        assert worker is not None
        o.set_worker(worker, placeable=False, attached=False)
    assert [world.task(i).state for i in range(4)] == [S.SUCCEEDED, S.PENDING, S.PENDING, S.PENDING]
    placed = world.plan()
    assert [index for _, index, _ in placed] == [1, 2, 3]
    assert {worker_id[0] for _, _, worker_id in placed} == ({"x", "y"} - {first})
    check_invariants(world.model)


def test_a_slice_that_was_dropped_is_planned_again() -> None:
    world = slices()
    gang(world)
    plan = world.planner.plan(world.model)
    assert [g.value for g in plan.gangs] in (["x"], ["y"])
    again = world.planner.plan(world.model)
    assert sorted(again.gangs[0].places) == sorted(plan.gangs[0].places)
    assert len(world.plan()) == 4


def test_a_name_that_was_a_plain_job_can_become_a_gang() -> None:
    world = slices(names="x")
    world.submit(JOB, 2, cpu=64)
    world.plan()
    with world.batch() as o:
        kernel.cancel(o, JOB, "ann", "", world.now_ms)
    gang(world)
    assert len(world.plan()) == 4


def test_unplaced_names_a_waiting_gang() -> None:
    world = slices(workers=2)
    gang(world)
    world.plan()
    assert list(world.planner.unplaced()) == [(JOB, False)]


def test_a_failed_worker_of_the_group_is_not_used_and_a_moved_one_changes_its_group() -> None:
    world = slices(names="x")
    gang(world)
    world.change_worker("x-3", attributes={"tpu-name": "y", "tpu-worker-id": 0})
    assert world.plan() == []
    world.change_worker("x-3", attributes={"tpu-name": "x", "tpu-worker-id": 3})
    assert len(world.plan()) == 4


events = st.lists(
    st.tuples(st.sampled_from(["gang", "solo", "end", "move", "close", "open", "resize"]), st.integers(0, 10**6)),
    min_size=1,
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(events)
def test_a_gang_waits_only_where_no_group_takes_it(history: list[tuple[str, int]]) -> None:
    world = slices(names="xyz", workers=3, cpu=2)
    for event, seed in history:
        if event == "gang":
            job_id = f"/u/g{len(world.model.jobs)}"
            gang(world, job_id, tasks=1 + seed % 4, cpu=(0.5, 1, 2)[seed % 3])
        elif event == "solo":
            world.submit(f"/u/s{len(world.model.jobs)}", 1 + seed % 3, cpu=(0.5, 1, 2)[seed % 3])
        elif event == "end" and world.model.attempts:
            attempt = world.model.attempts[sorted(world.model.attempts)[seed % len(world.model.attempts)]]
            world.observe(attempt.uid, (S.SUCCEEDED, S.FAILED)[seed % 2], attempt.worker_id)
        elif event in ("move", "close", "open", "resize"):
            worker_id = sorted(world.model.workers)[seed % 9]
            row = world.model.workers[worker_id]
            if event == "move":
                world.change_worker(worker_id, attributes={"tpu-name": "xyz"[seed % 3], "tpu-worker-id": seed % 5})
            elif event == "resize":
                world.change_worker(worker_id, total=Resources((1_000, 2_000)[seed % 2], row.total.memory_bytes, 0))
            else:
                world.change_worker(worker_id, placeable=event == "open")
        for _, index, worker_id in world.plan():
            assert index >= 0 and world.model.workers[worker_id].placeable
        check_invariants(world.model)
        check_gangs(world)


def check_gangs(world: World) -> None:
    model = world.model
    for job_id, tasks in model.tasks.items():
        spec = model.jobs[job_id].spec
        if not spec.group_by:
            continue
        on = [task.worker_id for task in tasks if task.state in (S.ASSIGNED, S.RUNNING, S.BUILDING)]
        waiting = [task for task in tasks if task.state is S.PENDING]
        assert not (on and waiting)
        if waiting:
            room: dict[object, int] = {}
            for worker in model.workers.values():
                free = worker.total.cpu_millicores - model.usage_of(worker.worker_id).cpu_millicores
                if worker.placeable and free >= spec.resources.cpu_millicores:
                    room[worker.attributes["tpu-name"]] = room.get(worker.attributes["tpu-name"], 0) + 1
            assert max(room.values(), default=0) < len(waiting), f"{job_id} waits though {room}"
            told = re.search(r"largest group has (\d+) that", model.reasons[job_id])
            # What was placed after the gang had been tried may have taken some of it.
            assert told is None or max(room.values(), default=0) <= int(told[1]) < len(waiting)
            assert told is not None or "no group here could" in model.reasons[job_id] or not room
