"""The page about the log store: every promise names tests, and each of them is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from iris_controller.finelog import batches, context, order, parts, reader, view_service, views
from iris_controller.worker import lines as worker_lines
from iris_core.cli import log_lines

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "finelog.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py::\w+)`", PAGE)))


@cache
def names_in(path: str) -> frozenset[str]:
    """The test functions at the top of a file."""
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)))


@pytest.mark.parametrize("named", NAMED)
def test_every_test_that_is_named_is_there(named: str) -> None:
    path, _, test = named.partition("::")
    assert (ROOT / path).exists(), path
    assert test in names_in(path)


def test_every_promise_names_a_test() -> None:
    rows = [line for line in PAGE.partition("## Guarantees")[2].splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 30
    for row in rows:
        assert re.search(r"`tests/[\w/]+\.py::\w+`", row), row


def test_the_limits_are_those_of_the_code() -> None:
    said = PAGE.partition("## Limits")[2].partition("## Guarantees")[0]
    for text in (
        f"{batches.MAX_PUSH_BYTES >> 20} MiB, a line or part of it {batches.MAX_LINE_BYTES >> 10} KiB",
        f"{reader.MAX_ANSWER_BYTES >> 20} MiB, 1,000,000 lines, {reader.MAX_SECONDS:g} s",
        f"{parts.SEAM:,} characters",
        f"{views.MAX_LINES:,} lines, {views.MAX_CONTEXT_HITS:,} hits with context, {views.MAX_CONTEXT:,} lines of context",
        f"{view_service.MAX_VIEWS}, {view_service.MAX_VIEW_BYTES >> 20} MiB of numbers together,"
        f" {view_service.IDLE_S / 60:g} minutes unused",
        f"{order.DISORDER_MS // 1000} s or {order.MAX_HELD:,} lines; while following {view_service.HOLD_S:g} s",
        f"{context.LOOK_LINES} lines on either side of a hit, up to {context.NEAR_LINES} lines of other streams",
        f"{log_lines.MAX_JOINED_BYTES >> 20} MiB",
    ):
        assert text in said, text
    assert parts.SEAM == worker_lines.SEAM_CHARACTERS
