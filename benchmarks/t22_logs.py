"""T22: a log of ten million lines in the console: its first page, random jumps, and what the console takes for it.

The store is a finelog of its own; the console's screen is driven by `benchmarks.log_console` in a process of its own. `BENCH_SCALE` shrinks it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from benchmarks.finelog_ingest import server
from benchmarks.finelog_large import batch
from iris_core.wire.gen.iris.v1 import logs_pb2

if TYPE_CHECKING:
    from benchmarks.measure import Report

LINES = 10_000_000
KEY = "/bench/job/0:0"
PER_PUSH = 8_000
FIRST_PAGE_MS = 200
JUMP_MS = 150
RSS_MB = 150


def run(report: Report) -> None:
    lines = int(LINES * float(os.environ.get("BENCH_SCALE", "1"))) // PER_PUSH * PER_PUSH
    with server() as finelog:
        print(f"      pushing {lines:,} lines", flush=True)
        push = finelog.call("PushLogs")
        for first in range(0, lines, PER_PUSH):
            push(logs_pb2.PushLogsRequest(batches=[batch(KEY, "t0", first, PER_PUSH)]))
        finelog.settle()
        words = [sys.executable, "-m", "benchmarks.log_console", f"http://{finelog.address}", KEY, str(lines)]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no figures")
        found = json.loads(done.stdout)
    what = f"a log of {lines:,} lines in the console"
    report.absolute("T22", f"{what}: first page", found["first_ms"], "ms", at_most=FIRST_PAGE_MS)
    report.absolute("T22", f"{what}: until all lines are numbered", found["whole_ms"], "ms")
    report.absolute("T22", f"{what}: random jump, p50", found["jump_p50_ms"], "ms")
    report.absolute("T22", f"{what}: random jump, p99", found["jump_p99_ms"], "ms", at_most=JUMP_MS)
    report.absolute("T22", f"{what}: memory of the console", found["rss_mb"], "MB", at_most=RSS_MB)
