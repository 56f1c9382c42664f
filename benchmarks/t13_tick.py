"""T13: one tick that places 5,000 pending tasks with constraints on 1,000 workers, beside the same done with nothing but SQLite.

And what R16 asks of one job of 100,000 tasks: no slice of planning holds the loop for long, and a pending task costs little memory.
"""

from __future__ import annotations

import time
import tracemalloc
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.controller_world import FULL_TABLE, REGIONS, World, timed
from benchmarks.measure import Sample, Side, alternate
from benchmarks.plain_floor import Floor
from iris_core.model.states import TaskState

if TYPE_CHECKING:
    from benchmarks.measure import Report

PENDING = 5_000
WORKERS = 1_000
PER_WORKER = 5
JOBS = 50
MANY = 100_000


def run(report: Report) -> None:
    ours, floor = World(WORKERS, PER_WORKER, FULL_TABLE), Floor(WORKERS, PER_WORKER, REGIONS, FULL_TABLE)

    parts: list[dict[str, float]] = []

    def tick() -> Sample:
        for number in range(JOBS):
            ours.submit(PENDING // JOBS, f"region=r{number % REGIONS}", f"region!=x{number % 2}")
        placed: list[int] = []
        ours.cpu_s.clear()
        sample = timed(lambda: placed.append(ours.tick()))
        assert placed == [PENDING]
        parts.append(dict(ours.cpu_s))
        ours.observe_all(TaskState.SUCCEEDED)
        return sample

    def plain() -> Sample:
        floor.add_pending(PENDING)
        placed: list[int] = []
        sample = timed(lambda: placed.append(floor.tick()))
        assert placed == [PENDING]
        return sample

    mine, theirs = alternate(5, tick, plain)
    report.compare(
        "T13",
        f"a full durable tick, {PENDING:,} pending tasks with constraints onto {WORKERS:,} workers",
        Side("Iris", mine),
        Side("the same in plain SQLite with integer keys", theirs),
        at_most=5,
    )
    for part in parts[0]:
        each = median(spent[part] for spent in parts[1:]) * 1000
        report.absolute("T13", f"of its CPU, {part}", each, "ms")
    ours.close()
    floor.close()
    _slices(report)


def _slices(report: Report) -> None:
    world = World(1_000, 200)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    world.submit(MANY)
    memory = (tracemalloc.get_traced_memory()[0] - before) / MANY
    tracemalloc.stop()
    report.absolute("R16", f"memory of a pending task, one job of {MANY:,}", memory, "bytes", at_most=1_024)
    plans: list[float] = []
    slices: list[float] = []
    while world.model.pending:
        began, began_cpu = time.perf_counter(), time.process_time()
        plan = world.planner.plan(world.model)
        plans.append((time.process_time() - began_cpu) * 1000)
        world.batch(lambda o, plan=plan: world.assign(o, plan))  # type: ignore[misc]
        slices.append((time.perf_counter() - began) * 1000)
    # Processor time: a slice that waited for the processor was held up by somebody else.
    what = f"{len(plans)} planning slices of 1,000 assignments"
    report.absolute("R16", f"{what}, longest", max(plans), "ms of CPU", at_most=20)
    report.absolute("R16", f"{what}, median", median(plans), "ms of CPU")
    report.absolute("R16", f"{what}, median with the durable commit", median(slices), "ms")
    world.close()
