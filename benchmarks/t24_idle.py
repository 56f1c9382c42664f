"""T24: what a cluster with nothing to do costs: processor time and resident memory of the controller and of finelog."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import psutil

from benchmarks import clusters, yardsticks

if TYPE_CHECKING:
    from benchmarks.measure import Report

SETTLE_S = 10
WATCHED_S = 40
CONTROLLER_MB, FINELOG_MB, CORE_PERCENT = 120, 160, 2


def watch(processes: dict[str, psutil.Process]) -> dict[str, tuple[float, float]]:
    """For each: percent of one core, and resident megabytes at the end."""
    time.sleep(SETTLE_S)
    before = {name: sum(p.cpu_times()[:2]) for name, p in processes.items()}
    began = time.monotonic()
    time.sleep(WATCHED_S)
    passed = time.monotonic() - began
    return {
        name: (100 * (sum(p.cpu_times()[:2]) - before[name]) / passed, p.memory_info().rss / 1e6)
        for name, p in processes.items()
    }


def role(process: psutil.Process) -> str | None:
    words = " ".join(process.cmdline()[:6])
    for name, marks in {
        "finelog": ("finelog",),
        "worker supervisor": ("supervise",),
        "worker": ("iris-worker", "worker.main"),
        "controller": ("iris-controller", "iris_controller.main", "controller serve"),
    }.items():
        if any(mark in words for mark in marks):
            return name
    return None


def family(process: psutil.Process) -> dict[str, psutil.Process]:
    found: dict[str, psutil.Process] = {}
    for child in [process, *process.children(recursive=True)]:
        name = role(child) or "client process"
        same = sum(re.fullmatch(rf"{name}( \d+)?", known) is not None for known in found)
        found[f"{name} {same + 1}" if same else name] = child
    return found


def run(report: Report) -> None:
    with clusters.ours() as cluster:
        cluster.wait(cluster.submit("warm", ["true"]))
        for name, (percent, megabytes) in watch(family(psutil.Process(cluster.process.pid))).items():
            memory = {"controller": CONTROLLER_MB, "finelog": FINELOG_MB}.get(name)
            report.absolute("T24", f"idle {name}, processor", percent, "% of a core", CORE_PERCENT if memory else None)
            report.absolute("T24", f"idle {name}, memory", megabytes, "MB", memory)
    try:
        with clusters.existing() as other:
            other.wait(other.submit("warm", ["true"]))
            for percent, megabytes in watch({"": psutil.Process(other.process.pid)}).values():
                report.absolute("T24", f"idle {other.name}, processor (all in one process)", percent, "% of a core")
                report.absolute("T24", f"idle {other.name}, memory", megabytes, "MB")
    except yardsticks.Unavailable as reason:
        report.missing("T24", "idle existing Iris", str(reason))
