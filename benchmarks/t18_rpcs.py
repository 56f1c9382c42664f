"""T18: ListJobs(50), LaunchJob and ListTasks(1,000), beside the existing Iris, asked in the same way: JSON over a kept connection."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

from benchmarks import clusters, yardsticks
from benchmarks.measure import Sample, Side, alternate

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.clusters import Cluster
    from benchmarks.measure import Report

PAIRS = 21
JOBS = 50
TASKS = 1_000


class Calls:
    """The three calls on one cluster, each as a measurement."""

    def __init__(self, cluster: Cluster, list_jobs: dict[str, Any], list_tasks: dict[str, Any]) -> None:
        self._cluster = cluster
        self._numbers = itertools.count()
        # It occupies the workers, so that nothing ends while others are measured.
        self._wide = cluster.submit("wide", ["sleep", "3600"], replicas=TASKS, cpu_millicores=1000)
        for _ in range(JOBS):
            self.launch_job()
        self._list_jobs = list_jobs
        self._list_tasks = {"jobId": self._wide, **list_tasks}

    def launch_job(self) -> Sample:
        return timed(lambda: self._cluster.submit(f"job-{next(self._numbers)}", ["true"], cpu_millicores=1000))

    def list_jobs(self) -> Sample:
        return timed(lambda: self._listed("ListJobs", self._list_jobs, "jobs", JOBS))

    def list_tasks(self) -> Sample:
        return timed(lambda: self._listed("ListTasks", self._list_tasks, "tasks", TASKS))

    def _listed(self, method: str, body: dict[str, Any], field: str, count: int) -> None:
        found = len(self._cluster.call(method, body)[field])
        assert found == count, f"{self._cluster.name} {method}: {found} of {count}"


def timed(action: Callable[[], object]) -> Sample:
    began = time.perf_counter()
    action()
    return Sample(time.perf_counter() - began)


def run(report: Report) -> None:
    with clusters.ours() as mine:
        ours = Calls(mine, {"pageSize": JOBS}, {"pageSize": TASKS})
        try:
            with clusters.existing() as other:
                compare(report, ours, Calls(other, {"query": {"limit": JOBS}}, {}), other.name)
        except yardsticks.Unavailable as reason:
            compare(report, ours, None, str(reason))


def compare(report: Report, ours: Calls, theirs: Calls | None, name: str) -> None:
    for what, call, bound in (
        ("ListJobs(50)", "list_jobs", 1.0),
        ("LaunchJob", "launch_job", 0.3),
        ("ListTasks(1,000)", "list_tasks", 0.4),
    ):
        if theirs is None:
            (mine,) = alternate(PAIRS, getattr(ours, call))
            yardstick = Side("existing Iris", missing=name)
        else:
            mine, other = alternate(PAIRS, getattr(ours, call), getattr(theirs, call))
            yardstick = Side(name, other)
        report.compare("T18", f"{what}, p50", Side("Iris", mine), yardstick, at_most=bound)
