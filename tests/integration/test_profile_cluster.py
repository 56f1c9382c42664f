"""Profiles of real tasks on a real cluster, with the command line: the hot function, the allocating line, the rank that waits elsewhere."""

from __future__ import annotations

import json
import shutil
import sys
import time
from typing import TYPE_CHECKING

import pytest

from iris_core.analysis import speedscope

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import RequireService
    from tests.integration.local_cluster import Done, LocalCluster

BUSY = """
import subprocess, sys
subprocess.Popen(["sleep", "600"])
kept = []
def allocating_function():
    kept.append(bytearray(100_000))  # so little that also where new memory is slow it is no hot function
def very_hot_function():
    x = 0
    for i in range(400_000):
        x += i * i
while True:
    very_hot_function()
    allocating_function()
    if len(kept) > 10:
        kept.clear()
"""
RANKS = """
import os, threading
def everybody_waits_here():
    threading.Event().wait(600)
def one_waits_elsewhere():
    threading.Event().wait(600)
if os.environ["IRIS_TASK_INDEX"] == "5":
    one_waits_elsewhere()
everybody_waits_here()
"""


def run(cluster: LocalCluster, *words: str) -> Done:
    done = cluster.run("--cluster=local", *words)
    assert done.code == 0, done.err
    return done


def launch(cluster: LocalCluster, name: str, code: str, *options: str) -> str:
    """A job of Python tasks that all run the code already; its id."""
    job = run(
        cluster,
        "job",
        "run",
        "--no-wait",
        "--job-name",
        name,
        "--memory",
        "128MB",
        *options,
        "--",
        sys.executable,
        "-c",
        code,
    )
    return job.out.strip()


def until(true: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Waits for what nobody can signal us about: the state inside of a task."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.1)


def dump(cluster: LocalCluster, task: str) -> str:
    return cluster.run("--cluster=local", "task", "profile", "threads", task).out


@pytest.fixture
def busy(cluster: LocalCluster) -> str:
    """A task in its hot loop."""
    task = launch(cluster, "profiled", BUSY) + "/0"
    until(lambda: "very_hot_function" in dump(cluster, task))
    return task


def test_a_running_task_is_looked_into(cluster: LocalCluster, busy: str, require_service: RequireService) -> None:
    name = f"profile-cpu-{busy.strip('/').replace('/', '-')}.speedscope.json"
    run(cluster, "task", "profile", "cpu", busy, "-d", "1")
    stacks = speedscope.parse((cluster.empty / name).read_bytes())
    assert any(frame.name == "very_hot_function" for stack in stacks for frame in stack)
    run(cluster, "process", "profile", "cpu", "-t", busy, "-d", "1", "--format", "flamegraph", "-o", "hot.svg")
    assert "very_hot_function" in (cluster.empty / "hot.svg").read_text()

    until(lambda: f"entity={busy} " in run(cluster, "process", "logs", "--substring", "event=profile_taken").out)

    # The loop of the workers may have looked at it, too.
    words = ("profile", "list", "-t", busy, "--type", "cpu", "--trigger", "on_demand", "-o", "json")
    kept: list[dict[str, object]] = []

    def both() -> bool:
        kept[:] = json.loads(run(cluster, *words).out)
        return len(kept) == 2

    until(both)
    assert [(one["source"], one["format"], one["trigger"]) for one in kept] == [
        (busy, "flamegraph", "on_demand"),
        (busy, "speedscope", "on_demand"),
    ]
    assert "very_hot_function" in run(cluster, "profile", "get", str(kept[1]["profile_id"]), "-o", "-").out
    summary = run(cluster, "job", "profile-summary", busy.rpartition("/")[0], "--svg", "job.svg")
    assert "very_hot_function" in summary.out.split("HOTTEST FUNCTION")[1].splitlines()[1]
    assert "very_hot_function" in (cluster.empty / "job.svg").read_text()
    assert "left out: the format flamegraph holds no stacks" in summary.err

    require_service(shutil.which("gdb"), "gdb is not installed")
    run(cluster, "task", "profile", "mem", busy, "-d", "1", "-o", "mem.html")
    assert "allocating_function" in (cluster.empty / "mem.html").read_text()
    for path in ("hot.svg", "mem.html", "job.svg", name):
        (cluster.empty / path).unlink()
    run(cluster, "job", "cancel", busy.rpartition("/")[0])


def test_the_one_rank_of_eight_that_waits_elsewhere_is_shown_first(cluster: LocalCluster) -> None:
    job = launch(cluster, "hung", RANKS, "--replicas", "8")

    def groups() -> list[list[str]]:
        done = cluster.run("--cluster=local", "job", "hang", job, "-o", "json")
        found = json.loads(done.out)["groups"] if done.code == 0 else []
        return [[rank["task_id"] for rank in group["ranks"]] for group in found]

    until(lambda: [len(group) for group in groups()] == [1, 7])
    text = run(cluster, "job", "hang", job).out
    assert "8 of 8 running tasks are known to stand at 2 places." in text
    first, second = text.index(f"1 task, {job}/5:"), text.index(f"7 tasks, {job}/0-4,6-7:")
    assert first < text.index("one_waits_elsewhere (") < second < text.index("everybody_waits_here (")
    run(cluster, "job", "cancel", job)
