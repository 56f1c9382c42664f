"""The scheduler at full size: 10,000 workers and 100,000 pending tasks in 2,000 jobs of 20 users, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.measure import Report

FIGURES = (
    ("placed_s", "placing 10,000 tasks over all slices, durable", "s", 1),
    ("placed_cpu_s", "the same, CPU of loop and writer", "s of CPU", None),
    ("lag_p99_ms", "loop lag meanwhile, p99", "ms", 30),
    ("lag_max_ms", "loop lag meanwhile, longest", "ms", None),
    ("freed_ms", "tick after one worker freed one slot, durable, median", "ms", 5),
    ("freed_plan_ms", "the planning of that tick, median", "ms", None),
    ("idle_tick_ms", "tick that places nothing, median", "ms", 20),
    ("flap_tick_ms", "the same where a worker's health changed, median", "ms", 20),
    ("state_ms", "get-scheduler-state, median", "ms", 50),
    ("rss_mb", "memory of the process at the end", "MB", 1536),
)


def run(report: Report) -> None:
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.controller_fleet"],
        cwd=root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if done.returncode:
        raise RuntimeError(f"the fleet failed: {done.stderr.strip()[-500:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["placed"] == 10_000, found
    for name, what, unit, bound in FIGURES:
        report.absolute("fleet", what, found[name], unit, at_most=bound)
