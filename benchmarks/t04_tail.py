"""T4: the last 100 lines of one log among a million, beside the server that operators know; and the same among 20 million of 500 logs.

The million is asked for where its lines lie after a while: the last in the file that grows, most in segments.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from benchmarks.existing_finelog import existing
from benchmarks.finelog_ingest import LINES, key, server
from benchmarks.finelog_large import LOGS, large
from benchmarks.measure import Sample, Side
from benchmarks.yardsticks import Unavailable
from iris_core.wire.gen.iris.v1 import common_pb2

if TYPE_CHECKING:
    from benchmarks.finelog_ingest import Server
    from benchmarks.measure import Report

RUNS = 21
TAIL = 100
WHOLE_LOG_MS = 100
RUNNING_TAIL_MS = 30


def run(report: Report) -> None:
    exact = {"source": key(3), "match_scope": common_pb2.MATCH_SCOPE_EXACT, "tail": True}
    prefix = {"source": "/bench/job", "match_scope": common_pb2.MATCH_SCOPE_PREFIX}
    with server() as finelog:
        finelog.ingest(LINES)
        finelog.settle()
        _beside_the_existing(report, finelog, exact)
        for what, fields in (
            ("last 100 lines of a job", {**prefix, "tail": True, "max_lines": 100}),
            ("last 1,000 lines of one log", {**exact, "max_lines": 1000}),
            ("a substring that is rare", {**prefix, "substring": "step 77777 "}),
            ("a regex that is rare", {**prefix, "regex": "step 7777[7] .*loss"}),
        ):
            report.absolute("T4", f"{what}, {LINES:,} lines in the store", _median(finelog, fields), "ms")
    with large() as (finelog, lines, running):
        where = f"{lines:,} lines of {LOGS} logs in the store"
        whole = {"source": running, "match_scope": common_pb2.MATCH_SCOPE_EXACT, "tail": True, "max_lines": 1000}
        report.absolute("T4", f"last 1,000 lines of a running task, {where}", _median(finelog, whole), "ms",
                        at_most=RUNNING_TAIL_MS)  # fmt: skip
        ended = {"source": "/bench/ended/0:0", "match_scope": common_pb2.MATCH_SCOPE_EXACT, "max_lines": 2000}
        report.absolute("T4", f"the whole log of one task that ended long ago, 2,000 lines, {where}",
                        _median(finelog, ended), "ms", at_most=WHOLE_LOG_MS)  # fmt: skip


def _beside_the_existing(report: Report, finelog: Server, exact: dict[str, object]) -> None:
    what = f"last {TAIL} lines of one log, {LINES:,} lines in the store"
    ours: list[Sample] = []
    theirs: list[Sample] = []
    try:
        with existing() as other:
            other.ingest(LINES)
            other.tail(key(3), TAIL)
            for _ in range(RUNS):
                ours.append(Sample(finelog.fetch(**exact, max_lines=TAIL)[1] / 1000))
                theirs.append(Sample(other.tail(key(3), TAIL) / 1000))
            name = other.name
    except Unavailable as reason:
        ours = [Sample(finelog.fetch(**exact, max_lines=TAIL)[1] / 1000) for _ in range(RUNS)]
        report.compare("T4", what, Side("ours", tuple(ours)), Side("existing finelog", missing=str(reason)))
        return
    report.compare("T4", what, Side("ours", tuple(ours)), Side(name, tuple(theirs)), at_most=1.0)


def _median(finelog: Server, fields: dict[str, object]) -> float:
    took = []
    for _ in range(RUNS):
        answer, ms = finelog.fetch(**fields)
        assert answer.shown
        took.append(ms)
    return median(took)
