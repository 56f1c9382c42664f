"""T10: 2,000 `true` processes in one job on one worker of this machine, beside HyperQueue's local cluster.

HyperQueue keeps no durable state here, and its client looks for the end once a second; so its time is taken from the files
its tasks wrote, up to the start of the last one, which favours it.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections import defaultdict
from typing import TYPE_CHECKING

import psutil

from benchmarks import clusters, yardsticks
from benchmarks.measure import Sample, Side, alternate
from benchmarks.t24_idle import family

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.measure import Report

TASKS = 2000
POLL_S = 0.1
"""HyperQueue's client asks once a second."""
BOUND = 2.86
"""At least 0.35 of its rate; half of it is wanted."""
HYPERQUEUE = """
import os, sys, time
from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig
with LocalCluster() as cluster:
    cluster.start_worker(WorkerConfig(cores=os.cpu_count()))
    client = cluster.client()
    job = Job()
    job.program(["true"], stdout="warm.out", stderr="warm.err")
    client.wait_for_jobs([client.submit(job)])
    job = Job()
    for number in range(int(sys.argv[1])):
        job.program(["true"], stdout=f"{number}.out", stderr=f"{number}.err")
    began = time.time()
    client.wait_for_jobs([client.submit(job)])
    print("TOOK", max(os.stat(f"{number}.err").st_mtime for number in range(int(sys.argv[1]))) - began)
"""


def spent(processes: dict[str, psutil.Process]) -> dict[str, float]:
    """Seconds of processor time so far by process; those of the tasks are apart."""
    times = {name: process.cpu_times() for name, process in processes.items()}
    found = {name: float(each.user + each.system) for name, each in times.items()}
    return {**found, "tasks": float(times["worker"].children_user + times["worker"].children_system)}


def ours(cpu_ms: dict[str, list[float]]) -> Sample:
    """Adds each process's milliseconds of processor time for one task to `cpu_ms`."""
    with clusters.ours(workers=1) as cluster:
        cluster.wait(cluster.submit("warm", ["true"]))
        processes = family(psutil.Process(cluster.process.pid))
        before = spent(processes)
        began = time.perf_counter()
        job = cluster.submit("many", ["true"], replicas=TASKS, cpu_millicores=1000)
        state = cluster.wait(job, poll_s=POLL_S)
        wall = time.perf_counter() - began
        assert state == "SUCCEEDED", state
        for name, seconds in spent(processes).items():
            cpu_ms[name].append((seconds - before[name]) * 1000 / TASKS)
        return Sample(wall)


def theirs(python: Path) -> Sample:
    with clusters.home_folder() as home:
        done = subprocess.run(
            [python, "-c", HYPERQUEUE, str(TASKS)],
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
            raise yardsticks.Unavailable(f"hyperqueue failed: {done.stderr.strip()[-200:]}")
        return Sample(float(took[0]))


def run(report: Report) -> None:
    what = f"{TASKS:,} tasks of `true`, one worker, {os.cpu_count()} at a time"
    cpu_ms: dict[str, list[float]] = defaultdict(list)
    try:
        python, version = yardsticks.hyperqueue()
        mine, other = alternate(3, lambda: ours(cpu_ms), lambda: theirs(python), warm_up=0)
        yardstick = Side(f"HyperQueue {version}", other)
    except yardsticks.Unavailable as reason:
        (mine,) = alternate(3, lambda: ours(cpu_ms), warm_up=0)
        yardstick = Side("HyperQueue", missing=str(reason))
    side = Side("Iris", mine)
    report.compare("T10", what, side, yardstick, at_most=BOUND)
    report.absolute("T10", "tasks per second", TASKS / side.wall_s, "tasks/s")
    for name in ("controller", "worker", "finelog", "tasks"):
        report.absolute("T10", f"processor time of one task, {name}", statistics.median(cpu_ms[name]), "ms")
