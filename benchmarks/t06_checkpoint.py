"""T6 and T7: a checkpoint of a large database that is being written to, and restoring it, beside `sqlite3` and `zstd`.

Ours is the whole checkpoint, durable and with its manifest in the store, while 200 transactions a second are committed. The yardstick syncs
nothing and has the database to itself: `.backup` begins anew at every commit of somebody else, and would never end beside that load. `IRIS_BENCH_CHECKPOINT_MB`
makes the database smaller.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.checkpoint_world import MEGABYTES, RATE, Load, build, held
from benchmarks.measure import Side, alternate, process, sequence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.measure import Report, Sample

PAIRS = 3
BASELINE_S = 8.0


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def run(report: Report) -> None:
    folder = Path(tempfile.mkdtemp(prefix="iris-bench-checkpoint-"))
    try:
        _run(report, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(report: Report, folder: Path) -> None:
    sqlite, zstd = shutil.which("sqlite3"), shutil.which("zstd")
    if sqlite is None or zstd is None:
        report.missing("T6", "checkpoint and restore", "the programs sqlite3 and zstd are not installed")
        return
    database, store, copy = folder / "s" / "controller.sqlite3", folder / "store", folder / "copy"
    tasks = build(database)
    what = f"{MEGABYTES} MB of state, {tasks:,} tasks"
    latencies: list[float] = []

    load = Load(database)
    time.sleep(BASELINE_S)
    alone = load.stop()

    def ours() -> Sample:
        shutil.rmtree(store, ignore_errors=True)
        load = Load(database)
        try:
            words = [sys.executable, "-m", "benchmarks.checkpoint_world", "write", str(database), str(store)]
            return process(words)
        finally:
            latencies.extend(load.stop())

    def theirs() -> Sample:
        for path in (copy, copy.with_suffix(".zst")):
            path.unlink(missing_ok=True)
        return sequence(
            lambda: process([sqlite, str(database), f".backup {copy}"]),
            lambda: process([zstd, "-q", "-3", str(copy), "-o", str(copy.with_suffix(".zst"))]),
        )()

    mine, other = alternate(PAIRS, ours, theirs, warm_up=0)
    report.compare(
        "T6",
        f"a checkpoint of {what}, {RATE} commits a second meanwhile",
        Side("Iris", mine),
        Side("sqlite3 .backup, zstd -3, nobody writing", other),
        0.6,
    )
    usual = percentile(alone, 0.99)
    share = percentile(latencies, 0.99) / usual
    report.absolute("T6", f"p99 of a commit during a checkpoint ÷ without one ({usual:.1f} ms)", share, "×", 2)
    report.absolute("T6", "longest commit during a checkpoint", max(latencies), "ms", 50)
    report.absolute("T6", "longest commit without one", max(alone), "ms")
    shutil.rmtree(store, ignore_errors=True)
    found = held(database, store)
    report.absolute("T6", "longest that the event loop was held up during a checkpoint", found["during"], "ms", 50)
    report.absolute("T6", "the same without one", found["without"], "ms")

    def restored() -> Sample:
        (folder / "restored").unlink(missing_ok=True)
        return process(
            [sys.executable, "-m", "benchmarks.checkpoint_world", "restore", str(store), str(folder / "restored")]
        )

    def unpacked() -> Sample:
        (folder / "unpacked").unlink(missing_ok=True)
        return sequence(
            lambda: process([zstd, "-q", "-d", str(copy.with_suffix(".zst")), "-o", str(folder / "unpacked")]),
            lambda: process([sqlite, str(folder / "unpacked"), "PRAGMA quick_check"]),
        )()

    mine, other = alternate(PAIRS, restored, unpacked)
    report.compare("T7", f"restoring and checking {what}", Side("Iris", mine), Side("zstd -d, quick_check", other), 1.5)
