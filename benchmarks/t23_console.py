"""T23: from the shell to the first paint and to the first useful row: `iris` in a terminal, on a cluster with one running job.

The first paint is what the program draws before anything else, with the place that it goes to; beside an empty Textual app. The console's own
first picture, from which on it answers keys, stands beside it without a bound. The first row is the name of the running job.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from benchmarks import clusters
from benchmarks.bare_textual import READY
from benchmarks.measure import Sample, Side, alternate, process
from benchmarks.terminal import Terminal

if TYPE_CHECKING:
    from benchmarks.clusters import Cluster
    from benchmarks.measure import Report

JOB = "first-useful-row"
ROUNDS = 9
PAINT_RATIO, DATA_RATIO = 1.3, 2.5


def run(report: Report) -> None:
    bare = [sys.executable, "-c", "import textual.app"]
    with clusters.ours() as cluster:
        job = cluster.submit(JOB, ["sleep", "600"])
        own: list[Sample] = []
        rows: list[Sample] = []

        def ours() -> Sample:
            first, second, third = until_row(cluster)
            own.append(second)
            rows.append(third)
            return first

        paints, empties, imports = alternate(
            ROUNDS, ours, lambda: until_empty(cluster), lambda: process(bare, cluster.env)
        )
        cluster.call("TerminateJob", {"jobId": job})
    empty = Side("an empty Textual app", empties)
    report.compare("T23", "console start to its first paint", Side("iris", paints), empty, at_most=PAINT_RATIO)
    report.compare("T23", "console start to the picture that answers keys", Side("iris", tuple(own[1:])), empty)
    yardstick = Side("python -c 'import textual.app'", imports)
    report.compare(
        "T23", "console start to first useful row", Side("iris", tuple(rows[1:])), yardstick, at_most=DATA_RATIO
    )


def until_row(cluster: Cluster) -> tuple[Sample, Sample, Sample]:
    """The first paint, the first picture of the console itself, and the first row."""
    with Terminal([clusters.BIN / "iris", "--cluster=local"], cluster.env) as terminal:

        def at(text: str) -> Sample:
            seen = terminal.until(lambda t: text in t.text(), text)
            return Sample(seen - terminal.began, terminal.cpu_s())

        return at("iris"), at("? Help"), at(JOB)


def until_empty(cluster: Cluster) -> Sample:
    with Terminal([sys.executable, "-m", "benchmarks.bare_textual", "empty"], cluster.env) as terminal:
        seen = terminal.until(lambda t: READY in t.line(0), "the word")
        return Sample(seen - terminal.began, terminal.cpu_s())
