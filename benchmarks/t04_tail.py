"""T4: the last 100 lines of one log among a million, and of all logs of a job; beside it two searches of the whole million."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from benchmarks.finelog_ingest import LINES, key, server
from iris_core.wire.gen.iris.v1 import common_pb2

if TYPE_CHECKING:
    from benchmarks.measure import Report

RUNS = 21
TAIL_MS = 20


def run(report: Report) -> None:
    exact = {"source": key(3), "match_scope": common_pb2.MATCH_SCOPE_EXACT, "tail": True}
    prefix = {"source": "/bench/job", "match_scope": common_pb2.MATCH_SCOPE_PREFIX}
    with server() as finelog:
        finelog.ingest(LINES)
        for what, fields, bound in (
            ("last 100 lines of one log", {**exact, "max_lines": 100}, TAIL_MS),
            ("last 100 lines of a job", {**prefix, "tail": True, "max_lines": 100}, None),
            ("last 1,000 lines of one log", {**exact, "max_lines": 1000}, None),
            ("a substring that is rare", {**prefix, "substring": "step 77777 "}, None),
            ("a regex that is rare", {**prefix, "regex": "step 7777[7] .*loss"}, None),
        ):
            took = []
            for _ in range(RUNS):
                answer, ms = finelog.fetch(**fields)
                assert answer.shown
                took.append(ms)
            report.absolute("T4", f"{what}, {LINES:,} lines in the store", median(took), "ms", at_most=bound)
