"""T9: `job list` of 50 jobs on a local controller, beside `kubectl --help` and one `import grpc` in a row."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from benchmarks import clusters, yardsticks
from benchmarks.measure import Side, alternate, process, sequence

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.measure import Report


def run(report: Report) -> None:
    with clusters.ours() as cluster:
        for job in [cluster.submit(f"list-{number}", ["true"]) for number in range(50)]:
            cluster.wait(job)
        mine: list[str | Path] = [clusters.BIN / "iris-core", "--cluster=local", "job", "list"]
        grpc = [sys.executable, "-c", "import grpc"]
        try:
            kubectl, version = yardsticks.kubectl()
        except yardsticks.Unavailable as reason:
            (ours,) = alternate(11, lambda: process(mine, cluster.env))
            other = Side("kubectl --help + import grpc", missing=str(reason))
        else:
            both = sequence(lambda: process([kubectl, "--help"], cluster.env), lambda: process(grpc, cluster.env))
            ours, theirs = alternate(11, lambda: process(mine, cluster.env), both)
            other = Side(f"kubectl {version} --help + import grpc", theirs)
        report.compare("T9", "`iris-core job list`, 50 jobs", Side("iris-core", ours), other, at_most=1.5)
