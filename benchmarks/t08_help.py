"""T8: how long `iris-core --help` takes beside `kubectl --help`, a compiled program."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from benchmarks import clusters, yardsticks
from benchmarks.measure import Side, alternate, process

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.measure import Report


def run(report: Report) -> None:
    with clusters.home_folder() as home:
        env = clusters.isolated(home)
        mine: list[str | Path] = [clusters.BIN / "iris-core", "--help"]
        bare = [sys.executable, "-I", "-c", "pass"]
        try:
            kubectl, version = yardsticks.kubectl()
        except yardsticks.Unavailable as reason:
            ours, python = alternate(15, lambda: process(mine, env), lambda: process(bare, env))
            other = Side("kubectl --help", missing=str(reason))
        else:
            ours, theirs, python = alternate(
                15, lambda: process(mine, env), lambda: process([kubectl, "--help"], env), lambda: process(bare, env)
            )
            other = Side(f"kubectl {version} --help", theirs)
        report.compare("T8", "`iris-core --help`", Side("iris-core", ours), other, at_most=1.5)
        report.compare("T8", "`iris-core --help`", Side("iris-core", ours), Side("python -I -c pass", python))
