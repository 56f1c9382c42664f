"""T14: 5,000 transitions of 79 workers folded, committed and applied as one batch, beside the bare write of as many rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.controller_world import FULL_TABLE, REGIONS, World, timed
from benchmarks.measure import Sample, Side, alternate
from benchmarks.plain_floor import Floor
from iris_core.model.states import TaskState

if TYPE_CHECKING:
    from benchmarks.measure import Report

TRANSITIONS = 5_000
WORKERS = 79


def run(report: Report) -> None:
    ours, floor = World(WORKERS, 64, FULL_TABLE), Floor(WORKERS, 64, REGIONS, FULL_TABLE)
    rows = [(number + 1, number + 1, number % WORKERS) for number in range(TRANSITIONS)]

    def fold() -> Sample:
        for _ in range(10):
            ours.submit(TRANSITIONS // 10)
        assert ours.tick() == TRANSITIONS
        sample = timed(lambda: ours.observe_all(TaskState.RUNNING))
        ours.observe_all(TaskState.SUCCEEDED)
        return sample

    mine, theirs = alternate(5, fold, lambda: timed(lambda: floor.write(rows)))
    side = Side("Iris", mine)
    what = f"{TRANSITIONS:,} transitions of {WORKERS} workers, durable"
    report.compare("T14", what, side, Side("writing as many rows in plain SQLite", theirs), at_most=10)
    report.absolute("T14", what, side.wall_s * 1000, "ms", at_most=200)
    ours.close()
    floor.close()
