"""T1: a regex with a literal over the whole store, without the help of the index, beside `zstdcat | rg` on the same lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import yardsticks
from benchmarks.log_corpus import Corpus, corpus
from benchmarks.measure import Sample, Side, alternate

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.measure import Report

PATTERN = r"timed out after 9[0-9]\.[0-9]+ s on host-1"
AT_MOST = 1.25
RUNS = 5


def run(report: Report) -> None:
    beside_ripgrep(report, "T1", "a regex with a literal", PATTERN, AT_MOST)


def beside_ripgrep(report: Report, figure: str, what: str, pattern: str, at_most: float) -> None:
    """One pattern on both sides, compared by processor time."""
    try:
        ripgrep, version = yardsticks.ripgrep()
        made = corpus()
    except yardsticks.Unavailable as reason:
        report.missing(figure, what, str(reason))
        return
    ours, theirs = _measured(made, pattern, ripgrep)
    report.compare(
        figure,
        f"{what}, {made.lines:,} lines, {made.bytes / 1e9:.2f} GB: `{pattern}`, Arrow's RE2 over Parquet",
        Side("finelog", ours),
        Side(f"zstdcat | rg {version}", theirs),
        at_most,
        by_cpu=True,
    )


def _measured(made: Corpus, pattern: str, ripgrep: Path) -> list[tuple[Sample, ...]]:
    _, found = made.search(pattern, is_indexed=False)
    if not found:
        raise RuntimeError(f"no line matches {pattern}")
    return alternate(
        RUNS, lambda: made.search(pattern, is_indexed=False)[0], lambda: made.pipe(pattern, ripgrep, found)
    )
