"""Pending work always has a reason, and it is the right one (control-plane §2.9, DESIGN §5.7)."""

from __future__ import annotations

from typing import Any

import pytest

from iris_controller.scheduling.order import NOT_PLANNED, explain_pending, explain_task
from iris_controller.state import kernel
from iris_controller.state.budgets import Budget
from iris_core.model.constraints import parse_constraint
from iris_core.model.resources import Device
from iris_core.model.states import TaskState
from tests.unit.kernel_world import GB, JOB, World

EU = {"region": "eu", "zone": "a"}
US = {"region": "us", "zone": "b"}


def reason(*workers: dict[str, Any], tasks: int = 1, wants: tuple[str, ...] = (), **asked: Any) -> str:
    world = World()
    world.model.budget_defaults = Budget("", limit=0)
    for i, values in enumerate(workers):
        world.add_worker(f"w{i}", **values)
    world.submit(tasks=tasks, constraints=tuple(parse_constraint(c) for c in wants), **asked)
    world.plan()
    return explain_pending(world.model, JOB)


GPU2 = Device("gpu", "h100", 2)


@pytest.mark.parametrize(
    ("text", "given"),
    [
        (reason(), "no workers attached"),
        (reason({"attached": False, "placeable": False}), "no workers attached"),
        (reason({"placeable": False}, {"placeable": False}), "no healthy worker (2 attached)"),
        (reason({"excluded": True}), "1 worker excluded after failing to stage, no other is healthy"),
        (
            reason({"attributes": US}, {"attributes": US}, wants=("region=eu",)),
            "no worker matches region=eu (2 workers)",
        ),
        (reason({"attributes": US}, wants=("region=us", "zone=q")), "no worker matches zone=q (1 worker)"),
        (
            reason({"attributes": US}, {"attributes": EU}, wants=("region=eu", "zone=b")),
            "no worker matches region=eu zone=b together (2 workers)",
        ),
        (reason({"cpu": 64}, {"cpu": 32}, cpu=512), "needs 512 cores, the largest of 2 workers has 64"),
        (reason({"cpu": 0.5}), "needs 1 core, the largest of 1 worker has 0.5"),
        (reason({"memory": 16 * GB}, memory=64 * GB), "needs 64GB of memory, the largest of 1 worker has 16GB"),
        (reason({}, device=GPU2), "needs 2 h100 GPUs, none of 1 worker has any"),
        (reason({"device": GPU2}, device=Device("gpu", "", 4)), "needs 4 GPUs, the most on one worker is 2"),
        (reason({"device": GPU2}, device=Device("tpu", "v4", 4)), "needs 4 v4 TPUs, none of 1 worker has any"),
        (
            reason({"cpu": 64, "memory": GB}, {"cpu": 2, "memory": 64 * GB}, cpu=32, memory=32 * GB),
            "no worker has 32 cores and 32GB together (2 workers)",
        ),
        (
            reason({"cpu": 2}, {"cpu": 2}, tasks=5, memory=2 * GB),
            "waiting for capacity: 1 core and 2GB free on none of 2 workers",
        ),
        (
            reason({"cpu": 90, "device": GPU2}, tasks=5, device=Device("gpu", "h100", 1)),
            "waiting for capacity: 1 core and 1 h100 GPU free on none of 1 worker",
        ),
        (
            reason({"cpu": 90}, tasks=9, has_setup=True),
            "waiting for a setup slot: workers with room already set up 8 tasks each",
        ),
    ],
    ids=lambda value: value[:40],
)
def test_the_reason_names_the_step_that_stopped_it(text: str, given: str) -> None:
    assert text == given


def test_before_it_was_looked_at_it_waits_for_the_scheduler() -> None:
    world = World()
    world.submit()
    assert explain_pending(world.model, JOB) == NOT_PLANNED
    assert explain_pending(world.model, "/u/unknown") == ""


def test_a_task_that_is_retried_says_which_attempt_is_next() -> None:
    world = World()
    world.add_worker(cpu=1)
    world.submit(tasks=2, max_retries_failure=3)
    world.observe(world.running(), TaskState.FAILED)
    world.change_worker(placeable=False)
    world.plan()
    assert explain_task(world.model, world.task(0)) == "retry as attempt 1: no healthy worker (1 attached)"
    assert explain_task(world.model, world.task(1)) == "no healthy worker (1 attached)"
    world.change_worker(placeable=True)
    world.plan()
    assert explain_task(world.model, world.task(0)) == ""


def test_work_that_runs_or_ended_has_none() -> None:
    world = World()
    world.submit(tasks=2)
    world.plan()
    assert world.model.reasons
    world.add_worker()
    world.plan()
    assert not world.model.reasons and explain_pending(world.model, JOB) == ""
    world.submit("/u/other", cpu=99)
    world.plan()
    with world.batch() as o:
        kernel.cancel(o, "/u/other", "x", "", world.now_ms)
    assert not world.model.reasons and explain_pending(world.model, "/u/other") == ""


def test_a_reason_is_said_once_and_again_only_when_it_changes() -> None:
    world = World()
    world.add_worker(cpu=2)
    world.submit("/u/filler", tasks=2)
    world.submit(tasks=3)
    world.plan()
    uids = [world.task(i, "/u/filler").attempt_uid for i in range(2)]
    world.observe(uids[0], TaskState.RUNNING)
    plan = world.planner.plan(world.model)
    assert (plan.assignments, plan.reasons) == ([], {})
    world.observe(uids[0], TaskState.SUCCEEDED)
    plan = world.planner.plan(world.model)
    assert len(plan.assignments) == 1 and not plan.reasons  # one more placed, the rest waits for the same
    world.change_worker(placeable=False)
    assert set(world.planner.plan(world.model).reasons) == {JOB}


def test_a_reason_that_was_not_taken_is_said_again() -> None:
    world = World()
    world.submit()
    first = world.planner.plan(world.model).reasons
    assert world.planner.plan(world.model).reasons == first == {JOB: "no workers attached"}
    world.take_reasons(first)
    assert world.planner.plan(world.model).reasons == {}


def test_a_job_that_joins_others_gets_their_reason_at_once() -> None:
    world = World()
    world.add_worker(cpu=1)
    for i in range(3):
        world.submit(f"/u/j{i}")
        world.plan()
    assert world.model.reasons == dict.fromkeys(
        ["/u/j1", "/u/j2"], "waiting for capacity: 1 core free on none of 1 worker"
    )


def test_a_task_that_comes_back_to_a_full_fleet_has_a_reason() -> None:
    world = World()
    world.add_worker(cpu=1)
    world.submit("/u/first", max_retries_preemption=5)
    world.plan()
    world.submit("/u/second")
    world.plan()
    with world.batch() as o:
        kernel.worker_lost(o, "w", "gone", world.now_ms)
        worker = o.worker("w")
        assert worker is not None
        o.set_worker(worker, placeable=False, attached=False)
    world.plan()
    assert world.model.reasons == dict.fromkeys(["/u/first", "/u/second"], "no workers attached")
