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
    assert row[1] == "failed" and row[4].endswith("MB") and float(row[4].removesuffix("MB")) >= 60, row
    assert row[5] == "-", "it holds nothing now"
