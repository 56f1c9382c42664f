"""T5: log lines acknowledged after their sync, per second of finelog's processor time, and what becomes of them afterwards.

Segments are written while lines come, so the first figure holds the Parquet write, the index of the texts and the check of what was
written as well. Merges come later, two for each line in its life; what one costs is measured on a copy of the store.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.finelog_ingest import LINE_BYTES, LINES, PER_PUSH, server
from benchmarks.measure import Row, holds
from iris_controller.finelog import compaction, segments, trigrams
from iris_controller.finelog.catalog import LOG, Catalog
from iris_controller.finelog.loglines import LAYOUT

if TYPE_CHECKING:
    from benchmarks.measure import Report

RUNS = 3
AT_LEAST = 150_000
ALL_AT_LEAST = 80_000
MEMORY_MB = 600
MERGES = 2
"""How often a line is merged in its life."""


def run(report: Report) -> None:
    with server() as finelog:
        before = finelog.settle()
        runs = [finelog.ingest(LINES, round_) for round_ in range(RUNS)]
        used = finelog.settle() - before
        memory_mb = max(*(one.memory_mb for one in runs), finelog.process.memory_info().rss / 1e6)
        merge_us, index_us, rows = _merge(finelog.folder)
    lines = RUNS * LINES
    stored_us = used / lines * 1e6
    # Of what the server did, the index is told apart: it was made for each line once.
    without_index = 1e6 / (stored_us - index_us * rows / lines)
    what = f"{LINES:,} lines of {LINE_BYTES} bytes, {PER_PUSH:,} per push, durable"
    report.add(
        Row(
            "T5",
            f"{what}, Parquet written",
            f"{without_index:,.0f} lines per core-second ({median(one.lines / one.wall_s for one in runs):,.0f} lines/s)",
            bound=f"≥ {AT_LEAST:,}",
            verdict=holds(without_index >= AT_LEAST),
        )
    )
    report.absolute("T5", "the index of the texts, for each line", index_us, "µs")
    report.absolute("T5", "a merge, with its index and its check, for each line", merge_us, "µs")
    everything = 1e6 / (stored_us + MERGES * merge_us)
    report.add(
        Row(
            "T5",
            f"all together, {MERGES} merges of each line included",
            f"{everything:,.0f} lines per core-second",
            bound=f"≥ {ALL_AT_LEAST:,}",
            verdict=holds(everything >= ALL_AT_LEAST),
        )
    )
    report.absolute("T5", "a push, median", median(one.push_p50_ms for one in runs), "ms")
    report.absolute("T5", "a push, 99th percentile", median(one.push_p99_ms for one in runs), "ms")
    report.absolute("T5", "memory, at most", memory_mb, "MB", at_most=MEMORY_MB)


def _merge(folder: Path) -> tuple[float, float, int]:
    """Microseconds of processor time that a merge, and its index alone, take for each row; and how many rows are in segments."""
    with tempfile.TemporaryDirectory(prefix="finelog-merge") as scratch:
        copy = Path(scratch) / "tables"
        shutil.copytree(folder / "tables", copy)
        catalog = Catalog(copy)
        inputs = catalog.segments(LOG)
        rows = sum(one.rows for one in inputs)
        began = time.process_time()
        merged = compaction.merge(catalog.folder_of(LOG), LAYOUT, inputs, lambda _: None, lambda *_: None)
        merge_s = time.process_time() - began
        opened = segments.SegmentFile.open(catalog.folder_of(LOG) / merged.name)
        batches = list(opened.batches(LAYOUT.indexed))
        began = time.process_time()
        for batch in batches:
            trigrams.bits_of(*map(batch.column, LAYOUT.indexed))
        index_s = time.process_time() - began
        opened.close()
    return merge_s / rows * 1e6, index_s / rows * 1e6, rows
