"""T25: one explanation of a job on a full fleet of 10,000 workers with 100,000 pending tasks, and how long it holds the loop."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from benchmarks.controller_world import World, timed
from benchmarks.measure import Side, alternate
from iris_controller.scheduling.explain import ClusterView, explain

if TYPE_CHECKING:
    from benchmarks.measure import Report

WORKERS = 10_000
PER_WORKER = 4
JOBS = 2_000
PER_JOB = 50


def run(report: Report) -> None:
    world = World(WORKERS, PER_WORKER)
    world.submit(WORKERS * PER_WORKER)
    world.tick()
    for number in range(JOBS):
        world.submit(PER_JOB, f"region=r{number % 5}", "name!=x")
    # As at the end of a controller's boot.
    gc.collect()
    gc.freeze()
    model = world.model
    waiting = [model.jobs[job_id] for job_id in model.pending]
    job = waiting[len(waiting) // 2]
    views = [ClusterView.of(model)]

    def take() -> None:
        views[0] = ClusterView.of(model)

    def answer() -> None:
        found = explain(views[0], job, PER_JOB)
        assert found.funnel.fits == 0 and found.place.queue == JOBS * PER_JOB

    taken, explained = alternate(11, lambda: timed(take), lambda: timed(answer))
    size = f"{WORKERS:,} workers, {JOBS * PER_JOB:,} pending tasks in {JOBS:,} jobs"
    report.absolute("T25", f"one explanation, {size}", Side("Iris", explained).wall_s * 1000, "ms", at_most=200)
    report.absolute("T25", f"what of it holds the loop, {size}", Side("Iris", taken).wall_s * 1000, "ms", at_most=10)
    gc.unfreeze()
    world.close()
