"""T5: log lines acknowledged after their sync, per second of finelog's processor time."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from benchmarks.finelog_ingest import LINE_BYTES, LINES, PER_PUSH, server
from benchmarks.measure import Row, holds

if TYPE_CHECKING:
    from benchmarks.measure import Report

RUNS = 3
AT_LEAST = 150_000
MEMORY_MB = 600


def run(report: Report) -> None:
    with server() as finelog:
        runs = [finelog.ingest(LINES, round_) for round_ in range(RUNS)]
    rate = median(one.lines_per_core_second for one in runs)
    what = f"{LINES:,} lines of {LINE_BYTES} bytes, {PER_PUSH:,} per push, durable"
    report.add(
        Row(
            "T5",
            what,
            f"{rate:,.0f} lines per core-second ({median(one.lines / one.wall_s for one in runs):,.0f} lines/s)",
            bound=f"≥ {AT_LEAST:,}",
            verdict=holds(rate >= AT_LEAST),
        )
    )
    report.absolute("T5", "a push, median", median(one.push_p50_ms for one in runs), "ms")
    report.absolute("T5", "a push, 99th percentile", median(one.push_p99_ms for one in runs), "ms")
    report.absolute("T5", "memory at the end", runs[-1].memory_mb, "MB", at_most=MEMORY_MB)
