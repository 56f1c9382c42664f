"""T15 and T16: what a tick costs when nothing has changed: 5,000 running tasks, and 5,000 workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.controller_world import World, timed
from benchmarks.measure import Side, alternate
from iris_core.model.states import TaskState

if TYPE_CHECKING:
    from benchmarks.measure import Report

TASKS = 5_000


def run(report: Report) -> None:
    for figure, workers, bound in (("T15", 79, 50), ("T16", 5_000, 250)):
        world = World(workers, TASKS // workers + 1)
        world.submit(TASKS)
        world.submit(50, "region=nowhere")
        assert world.tick() == TASKS
        world.observe_all(TaskState.RUNNING)
        world.tick()

        def repeat(world: World = world) -> None:
            """A tick, and every worker saying again what it said before."""
            world.tick()
            world.observe_all(TaskState.RUNNING)

        (samples,) = alternate(5, lambda repeat=repeat: timed(repeat))  # type: ignore[misc]
        what = f"a tick and {TASKS:,} repeated reports without a change, {workers:,} workers, 50 tasks waiting"
        report.absolute(figure, what, Side("Iris", samples).wall_s * 1000, "ms", at_most=bound)
        world.close()
