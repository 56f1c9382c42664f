"""T2: a regex without a literal over the whole store, beside `zstdcat | rg` on the same lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.t01_literal import beside_ripgrep

if TYPE_CHECKING:
    from benchmarks.measure import Report

PATTERN = "[0-9a-f]{5}[a-f]{6}[0-9]"
AT_MOST = 1.3


def run(report: Report) -> None:
    beside_ripgrep(report, "T2", "a regex without a literal", PATTERN, AT_MOST)
