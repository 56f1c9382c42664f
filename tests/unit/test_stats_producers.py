"""The controller's producers over a world without I/O: a burst is told whole and in order, while the loop goes on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from iris_controller.http.metrics import Metrics
from iris_controller.state import kernel
from iris_controller.stats import client as client_module
from iris_controller.stats import producers
from iris_controller.stats.client import StatsClient
from iris_controller.stats.producers import Producers
from iris_controller.stats.spool import RowSpool
from iris_core.model.namespaces import TASK_EVENT, TASK_STATE
from iris_core.model.states import TaskState
from providers.fake.stats import FakeStats
from tests.unit.autoscaler_world import WorldQueue
from tests.unit.kernel_world import JOB, World

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "GATHER_S", 0.0)
    monkeypatch.setattr(producers, "GATHER_S", 0.0)
    monkeypatch.setattr(producers, "SLICE_ROWS", 50)
    monkeypatch.setattr(producers, "BACKLOG_ROWS", 100)
    monkeypatch.setattr(producers, "REST", 0.1)


def made(queue: WorldQueue, stats: StatsClient) -> Producers:
    return Producers(queue, stats, "rig", "boot", {}, Metrics(), {})  # type: ignore[arg-type]


async def test_a_burst_is_told_whole_and_in_the_order_of_each_task(tmp_path: Path) -> None:
    world, store = World(), FakeStats()
    queue = WorldQueue(world)
    stats = StatsClient(store.push, "boot", spool=RowSpool(tmp_path), kept=(TASK_EVENT,))
    teller = made(queue, stats)
    stats.start()
    telling = asyncio.create_task(teller.tell_events())
    world.add_worker(cpu=1_000)
    world.submit(tasks=400)
    queue.tell()
    for state in (TaskState.RUNNING, TaskState.SUCCEEDED):
        if state is TaskState.RUNNING:
            with world.batch() as o:
                places = [(JOB, index, "w", world.job().spec.band) for index in range(400)]
                kernel.assign_all(o, places, world.uid, world.now_ms)
            queue.tell()
        for attempt in list(world.model.attempts.values()):
            world.observe(attempt.uid, state)
            queue.tell()
    rows: list[dict[str, Any]] = await store.until_rows(TASK_EVENT.name, 1_200)
    of_task: dict[str, list[str]] = {}
    for row in rows:
        of_task.setdefault(row["task_id"], []).append(row["reason"])
    assert len(of_task) == 400 and set(map(tuple, of_task.values())) == {("Assigned", "Started", "Succeeded")}
    telling.cancel()
    await stats.close(5.0)
    assert not store.missing[TASK_EVENT.name] and stats.lost_rows == 0


async def test_what_is_not_told_at_the_end_is_told_at_once_and_states_come_with_the_clusters_row(
    tmp_path: Path,
) -> None:
    world, store = World(), FakeStats()
    queue = WorldQueue(world)
    stats = StatsClient(store.push, "boot", spool=RowSpool(tmp_path), kept=(TASK_EVENT,))
    teller = made(queue, stats)
    world.add_worker()
    world.submit(tasks=2)
    world.running(0)
    queue.tell()
    await asyncio.to_thread(teller.tell_rest)
    stats.start()
    telling = asyncio.create_task(teller.tell_states())
    rows = await store.until_rows(TASK_STATE.name, 2)
    telling.cancel()
    assert {row["root_job_id"]: (row["pending"], row["running"]) for row in rows} == {"": (1, 1), JOB: (1, 1)}
    assert [row["reason"] for row in await store.until_rows(TASK_EVENT.name, 2)] == ["Assigned", "Started"]
    await stats.close(5.0)
