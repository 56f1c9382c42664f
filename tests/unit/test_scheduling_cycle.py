"""What waits for the clock: caps of one cycle, unlimited unless configured, and reasons, once a second each (DESIGN §5.6, §5.7)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_controller import ticker as ticker_module
from iris_controller.loop import ControllerLoop
from iris_controller.scheduling.cycle import Caps
from iris_controller.scheduling.order import explain_pending
from iris_controller.scheduling.plan import Planner
from iris_controller.state.submit import NewJob, admit
from iris_controller.ticker import SchedulerTicker
from tests.unit.kernel_world import World, healthy_worker, job_spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_controller.state.overlay import Overlay
    from iris_controller.store.writer import Statement


def capped(**caps: int) -> World:
    world = World()
    world.planner = Planner(Caps(**caps))
    return world


def test_a_job_that_had_its_share_rests_until_the_next_cycle() -> None:
    world = capped(tasks_per_job=2)
    world.add_worker("w", cpu=100)
    world.submit("/u/a", 5)
    world.submit("/u/b", 1)
    assert Counter(job for job, _, _ in world.plan(cycle=1)) == {"/u/a": 2, "/u/b": 1}
    assert explain_pending(world.model, "/u/a").startswith("waiting for the next cycle: as many tasks of this job")
    assert list(world.planner.unplaced()) == []
    assert world.plan(cycle=1) == []
    assert len(world.plan(cycle=2)) == 2
    assert len(world.plan(cycle=3)) == 1
    assert not world.model.pending


def test_a_worker_that_had_its_share_rests_until_the_next_cycle() -> None:
    world = capped(tasks_per_worker=2)
    world.add_worker("w0", cpu=100)
    world.add_worker("w1", cpu=100)
    world.submit("/u/a", 5)
    assert sorted(w for _, _, w in world.plan(cycle=1)) == ["w0", "w0", "w1", "w1"]
    assert explain_pending(world.model, "/u/a").startswith("waiting for the next cycle: workers with room")
    assert list(world.planner.unplaced()) == [("/u/a", True)], "no reason to ask for more workers"
    assert world.plan(cycle=1) == []
    assert len(world.plan(cycle=2)) == 1


def test_a_gang_is_placed_whole_whatever_a_job_may_have() -> None:
    world = capped(tasks_per_job=1)
    for i in range(3):
        world.add_worker(f"w{i}", attributes={"pool": "x"})
    world.submit("/u/gang", 3, group_by="pool")
    planned = world.planner.plan(world.model, cycle=1)
    assert [len(gang.places) for gang in planned.gangs] == [3]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 2)), min_size=1, max_size=4),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(1, 5),
    st.lists(st.booleans(), min_size=3, max_size=3),
)
def test_no_cycle_exceeds_its_caps_and_nothing_that_may_be_placed_waits(
    jobs: list[tuple[int, int]], per_job: int, per_worker: int, size: int, drops: list[bool]
) -> None:
    world = capped(tasks_per_job=per_job, tasks_per_worker=per_worker)
    for i in range(2):
        world.add_worker(f"w{i}", cpu=8)
    for i, (tasks, cpu) in enumerate(jobs):
        world.submit(f"/u/j{i}", tasks, cpu=cpu)
    for cycle, drop in enumerate(drops, 1):
        if drop:
            world.planner.plan(world.model, max_assignments=size, cycle=cycle)
        placed = world.plan(max_assignments=size, cycle=cycle)
        by_job, by_worker = Counter(j for j, _, _ in placed), Counter(w for _, _, w in placed)
        assert not per_job or max(by_job.values(), default=0) <= per_job
        assert not per_worker or max(by_worker.values(), default=0) <= per_worker
        for job_id in world.model.pending:
            cpu = world.model.jobs[job_id].spec.resources.cpu_millicores
            room = [
                w
                for w, row in world.model.workers.items()
                if world.model.usage_of(w).cpu_millicores + cpu <= row.total.cpu_millicores
                and (not per_worker or by_worker[w] < per_worker)
            ]
            assert not room or by_job[job_id] == per_job > 0, f"{job_id} could go onto {room}"
            assert explain_pending(world.model, job_id) not in ("", "waiting for the scheduler")


class _Store:
    async def commit(self, statements: Sequence[Statement]) -> None:
        return None


@pytest.mark.asyncio
async def test_the_controller_goes_on_by_itself_in_the_next_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ticker_module, "CYCLE_SECONDS", 0.05)
    world = World()
    world.add_worker("w", cpu=100)
    ticker = SchedulerTicker(world.model, Caps(tasks_per_job=1))
    loop = ControllerLoop(world.model, _Store(), ticker)
    ticker.wake = loop.wake
    running = asyncio.ensure_future(loop.run())

    def submit(o: Any, now_ms: int) -> None:
        admit(o, NewJob("/u/job", "", 3, job_spec()), now_ms)

    await loop.submit("submit", submit)
    async with asyncio.timeout(60):
        while world.model.pending:
            await loop.next_commit(1)
    loop.close()
    await running


@pytest.mark.asyncio
async def test_a_job_is_told_another_reason_only_after_a_while_and_then_the_last_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ticker_module, "REASON_SECONDS", 0.3)
    world = World()
    told: list[tuple[float, float, str]] = []

    class Watched(SchedulerTicker):
        def slice(self, overlay: Overlay, now_ms: int) -> dict[str, str]:
            began = time.monotonic()
            said = super().slice(overlay, now_ms)
            told.extend((began, time.monotonic(), reason) for reason in said.values())
            return said

    ticker = Watched(world.model)
    loop = ControllerLoop(world.model, _Store(), ticker)
    ticker.wake = loop.wake
    running = asyncio.ensure_future(loop.run())

    def submit(o: Any, now_ms: int) -> None:
        admit(o, NewJob("/u/job", "", 1, job_spec(cpu=64)), now_ms)

    def join(o: Any, now_ms: int) -> None:
        worker = healthy_worker(f"w{len(world.model.workers)}")
        o.workers[worker.worker_id] = worker

    await loop.submit("submit", submit)
    for _ in range(4):
        await loop.submit("join", join)
    async with asyncio.timeout(60):
        while "4 workers" not in world.model.reasons.get("/u/job", ""):
            await loop.next_commit(0.05)
    assert all(later[1] - earlier[0] >= 0.3 for earlier, later in pairwise(told))
    loop.close()
    await running
