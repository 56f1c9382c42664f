"""What an operator reads about a task that failed, on a real cluster: events, peak memory, and the lines that say why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.integration.local_cluster import LocalCluster

BREAKS = """
import sys
held = bytearray(60_000_000)
held[::4096] = b"x" * len(held[::4096])
print("step 1")
print(" 50%|#####     | 5/10 [00:01<00:01,  5.0it/s]", file=sys.stderr)
{}["missing"]
"""


def measured_exactly(cluster: LocalCluster) -> bool:
    """Whether control groups keep the peaks; otherwise nobody may have looked before a short command was over."""
    worker = cluster.cli("query", "SELECT worker_id FROM workers LIMIT 1", "-f", "csv").out.split()[-1]
    started = cluster.cli("process", "logs", "-t", f"/system/worker/{worker}", "--substring", "event=worker_started")
    return "enforcement=cgroup" in started.out


def test_a_failed_task_tells_its_story(cluster: LocalCluster) -> None:
    task = "/t/story/0"
    assert "KeyError" in cluster.job("story", "python3", "-c", BREAKS, options=("--max-retries", "1")).out
    told = json.loads(cluster.until("task", "events", task, "-o", "json", has="Terminated").out)
    assert [(event["attempt"], event["action"]) for event in told] == [
        (0, "Assigned"), (0, "Started"), (0, "Failed"), (0, "RetryScheduled"),
        (1, "Assigned"), (1, "Started"), (1, "Failed"), (1, "Terminated"),
    ]  # fmt: skip
    assert {event["source"] for event in told} == {"iris/controller"} and len({event["uid"] for event in told}) == 2
    described = cluster.until("task", "describe", task, has="Root cause").out
    cause = described.partition("Root cause, by the last lines of attempt 1:\n")[2].splitlines()
    assert cause[0].strip() == "Traceback (most recent call last):" and cause[-1].strip() == "KeyError: 'missing'"
    assert "it/s" not in "".join(cause)
    row = cluster.cli("job", "describe", "/t/story").out.splitlines()[-1].split()
    assert row[1] == "failed"
    if measured_exactly(cluster):
        assert row[4].endswith("MB") and float(row[4].removesuffix("MB")) >= 60, row
    assert row[5] == "-", "it holds nothing now"


def test_two_jobs_of_one_name_never_mix(cluster: LocalCluster) -> None:
    task = "/t/twice/0"
    for word in ("first", "second"):
        script = f"import time\nprint({word!r}, flush=True)\ntime.sleep(600)"
        again = () if word == "first" else ("--existing-job", "recreate")
        options = ("--cpu", "0.1", "--max-retries", "0", *again)
        assert cluster.job("twice", "python3", "-c", script, options=options, wait=False).code == 0
        cluster.until("job", "logs", "/t/twice", has=word)
        assert cluster.cli("task", "profile", task, "threads").code == 0
        cluster.until("task", "events", task, has="Started")
        cluster.until("profile", "list", "--task", task, "-o", "json", has="on_demand")
    current = json.loads(cluster.cli("task", "events", task, "-o", "json").out)
    uids = {event["uid"] for event in current}
    assert len(uids) == 1 and {event["attempt"] for event in current} == {0}
    assert cluster.cli("job", "logs", "/t/twice").out.count("first") == 0
    both = cluster.cli("job", "logs", "/t/twice", "--all-incarnations").out
    assert both.count("first") == both.count("second") == 1
    kept = json.loads(cluster.cli("profile", "list", "--task", task, "-o", "json").out)
    assert {profile["attempt_uid"] for profile in kept} == uids
    every = json.loads(cluster.cli("profile", "list", "--task", task, "--all-incarnations", "-o", "json").out)
    assert len({profile["attempt_uid"] for profile in every}) == 2
    assert cluster.cli("job", "cancel", "/t/twice").code == 0
