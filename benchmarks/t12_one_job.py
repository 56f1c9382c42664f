"""T12: one job that runs a real process, from the submission until its end is seen, beside the existing Iris.

Both are asked in the same way, over JSON on a kept connection, and polled every 2 ms.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks import clusters, yardsticks
from benchmarks.measure import Sample, Side, alternate

if TYPE_CHECKING:
    from benchmarks.clusters import Cluster
    from benchmarks.measure import Report

BOUND_MS = 150


def one_job(cluster: Cluster) -> Sample:
    began = time.perf_counter()
    state = cluster.wait(cluster.submit(f"one-{time.monotonic_ns()}", ["true"]))
    wall = time.perf_counter() - began
    assert state == "SUCCEEDED", state
    return Sample(wall)


def run(report: Report) -> None:
    what = "one job, submit to done"
    with clusters.ours() as mine:
        try:
            with clusters.existing() as other:
                ours, theirs = alternate(21, lambda: one_job(mine), lambda: one_job(other))
                yardstick = Side(other.name, theirs)
        except yardsticks.Unavailable as reason:
            (ours,) = alternate(21, lambda: one_job(mine))
            yardstick = Side("existing Iris", missing=str(reason))
    side = Side("Iris", ours)
    report.compare("T12", what, side, yardstick)
    report.absolute("T12", f"{what}, p50", side.wall_s * 1000, "ms", at_most=BOUND_MS)
