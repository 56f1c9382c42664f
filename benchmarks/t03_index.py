"""T3: a text that stands in one line of all, and one that stands in none: with the index, beside the scan of T1 without it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.log_corpus import ABSENT, RARE, corpus
from benchmarks.measure import Side, alternate
from benchmarks.yardsticks import Unavailable
from iris_controller.finelog.catalog import LOG

if TYPE_CHECKING:
    from benchmarks.log_corpus import Corpus
    from benchmarks.measure import Report, Sample

AT_MOST = 0.1
RUNS = 5


def _search(made: Corpus, pattern: str, is_indexed: bool) -> Sample:
    return made.search(pattern, is_indexed=is_indexed)[0]


def run(report: Report) -> None:
    try:
        made = corpus()
    except Unavailable as reason:
        report.missing("T3", "a rare and an absent text", str(reason))
        return
    for what, pattern, wanted in (("rare", RARE, 1), ("absent", ABSENT, 0)):
        for is_indexed in (True, False):
            _, found = made.search(pattern, is_indexed=is_indexed)
            if found != wanted:
                raise RuntimeError(f"{found} lines match {pattern}, not {wanted}")
        ours, scan = alternate(RUNS, partial(_search, made, pattern, True), partial(_search, made, pattern, False))
        report.compare(
            "T3",
            f"{what} text, {made.lines:,} lines",
            Side("with the index", ours),
            Side("the scan", scan),
            AT_MOST,
            by_cpu=True,
        )
    folder = made.store.catalog.folder_of(LOG)
    segments = made.store.catalog.segments(LOG)
    index = sum((folder / segment.name).with_suffix(".fidx").stat().st_size for segment in segments)
    share = 100 * index / sum(segment.bytes for segment in segments)
    report.absolute("T3", f"the index beside {len(segments)} segments", share, "% of their bytes")
