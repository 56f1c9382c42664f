"""T11: the controller alone, durable: submit → assign → dispatch → done with eight attached workers that run nothing, beside Dask.

Dask's tasks do nothing either and its state is not durable.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from typing import TYPE_CHECKING

from benchmarks import clusters, yardsticks
from benchmarks.controller_process import Running, controller, request
from benchmarks.measure import Sample, Side, alternate

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.measure import Report

WORKERS = 8
JOBS = 40
PER_JOB = 100
TASKS = JOBS * PER_JOB
PAIRS = 5
DASK = """
import sys, time
from dask.distributed import Client, LocalCluster, wait

def nothing(number):
    return None

if __name__ == "__main__":
    tasks = int(sys.argv[1])
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        wait(client.map(nothing, range(200), pure=False))
        began = time.perf_counter()
        wait(client.map(nothing, range(tasks), pure=False))
        print("TOOK", time.perf_counter() - began)
"""


async def once(running: Running, label: str) -> Sample:
    """Wall time until all are done, and the controller's processor time."""
    cpu, began = running.cpu_s(), time.perf_counter()
    names = [f"/bench/{label}-{n}" for n in range(JOBS)]
    await asyncio.gather(*(running.launch(request(name, PER_JOB)) for name in names))
    await running.finished(names)
    return Sample(time.perf_counter() - began, running.cpu_s() - cpu)


async def some(times: int) -> list[Sample]:
    async with controller(WORKERS) as running:
        await once(running, "warm")
        return [await once(running, f"r{n}") for n in range(times)]


def ours() -> Sample:
    return asyncio.run(some(1))[0]


def theirs(python: Path) -> Sample:
    with clusters.home_folder() as home:
        (home / "tasks.py").write_text(DASK)
        done = subprocess.run(
            [python, "tasks.py", str(TASKS)],
            cwd=home,
            env=clusters.isolated(home),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    took = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("TOOK")]
    if not took:
        raise yardsticks.Unavailable(f"dask failed: {done.stderr.strip()[-200:]}")
    return Sample(float(took[0]))


def run(report: Report) -> None:
    what = f"{TASKS:,} tasks through the controller, {WORKERS} attached workers that run nothing"
    try:
        python, version = yardsticks.dask()
        mine, other = alternate(PAIRS, ours, lambda: theirs(python), warm_up=0)
        yardstick = Side(f"Dask {version}", other)
    except yardsticks.Unavailable as reason:
        (mine,) = alternate(PAIRS, ours, warm_up=0)
        yardstick = Side("Dask", missing=str(reason))
    side = Side("Iris", mine)
    report.compare("T11", what, side, yardstick, at_most=0.333)
    report.absolute("T11", "tasks per second", TASKS / side.wall_s, "tasks/s")
    assert side.cpu_s is not None
    report.absolute("T11", "tasks per second of the controller's processor time", TASKS / side.cpu_s, "tasks/s")
