"""T21: the console's table of jobs in a terminal: from a key to what it does on the screen, while rows change; pages, filters, and rest.

`iris` as an operator starts it, on the port of `live_rows`, and beside it a bare DataTable of the same rows, which change in neither for
pages and filters. `IRIS_BENCH_ROWS` is the number of rows.
"""

from __future__ import annotations

import os
import random
import re
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING

from benchmarks import clusters
from benchmarks.live_names import WORDS, name
from benchmarks.live_rows import Scripted
from benchmarks.measure import Sample, Side
from benchmarks.terminal import DOWN, ESCAPE, HOME, PAGE_DOWN, UP, Terminal
from iris_tui.glyphs import UNICODE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.measure import Report

ROWS = int(os.environ.get("IRIS_BENCH_ROWS", "100000"))
RATE = 10_000
KEYS = 240
PAGES = 20
FILTERS = 6
IDLE_S = 15
KEY_MS, RATIO, IDLE_PERCENT = 50, 1.0, 3.0
FIRST, LAST = 3, 37
"""The lines of the screen on which the console's table begins and ends."""
BARE_FIRST, BARE_LAST = 2, 39
"""And the DataTable; the scroll bar takes its last line only where it is too wide."""
TURNS = (5, 30)
"""The lines on which the cursor turns round, so that nothing scrolls."""
_NAME = re.compile(r"train-\d+[a-z]?")


@contextmanager
def console(scripted: Scripted) -> Iterator[Terminal]:
    """`iris` in an empty home, with all rows."""
    with tempfile.TemporaryDirectory(prefix="iris-bench-") as home:
        program: list[str | Path] = [clusters.BIN / "iris", f"--controller-url={scripted.url}"]
        with Terminal(program, clusters.isolated(Path(home))) as terminal:
            terminal.until(lambda t: f"{ROWS:,} jobs" in t.line(1) and name(ROWS - 1) in t.line(FIRST), "all jobs")
            yield terminal


@contextmanager
def bare() -> Iterator[Terminal]:
    """A DataTable with all rows."""
    with Terminal([sys.executable, "-m", "benchmarks.bare_textual", "table", str(ROWS)]) as terminal:
        terminal.until(lambda t: name(ROWS - 1) in t.line(BARE_FIRST), "the DataTable")
        yield terminal


def cursor(terminal: Terminal) -> int:
    """The line that the console's cursor is on, -1 = none."""
    for y in range(FIRST, LAST + 1):
        if terminal.cell(y, 0).data == UNICODE.cursor:
            return y
    return -1


def bare_cursor(terminal: Terminal) -> int:
    """The line that the DataTable's cursor is on: its colour is that of no other."""
    colours = [terminal.cell(y, 2).bg for y in range(BARE_FIRST, BARE_LAST)]
    return next((y for y, colour in enumerate(colours, BARE_FIRST) if colours.count(colour) == 1), -1)


def moves(terminal: Terminal, where: Callable[[Terminal], int], count: int) -> list[float]:
    """Milliseconds from each of so many keys until the cursor was on the next line."""
    dice = random.Random(21)
    took: list[float] = []
    terminal.catch_up()
    down = True
    for _ in range(count):
        at = where(terminal)
        down = at <= TURNS[0] or (down and at < TURNS[1])
        wanted = at + (1 if down else -1)
        sent = terminal.send(DOWN if down else UP)
        shown = terminal.until(lambda t: where(t) == wanted, f"the cursor on line {wanted}")  # noqa: B023
        took.append((shown - sent) * 1000)
        # At any moment between two flushes.
        terminal.follow(dice.uniform(0.02, 0.12))
    return took


def timed(terminal: Terminal, keys: bytes, holds: Callable[[Terminal], object], what: str) -> Sample:
    """One thing done, with the processor time of the program until it rests."""
    terminal.quiet()
    before, sent = terminal.own_cpu_s(), terminal.send(keys)
    shown = terminal.until(holds, what)
    terminal.quiet()
    return Sample(shown - sent, terminal.own_cpu_s() - before)


def shown(line: str) -> str:
    """Which job is on this line, "" = none. Its age may move on at any time, its name not."""
    found = _NAME.search(line)
    return found[0] if found else ""


def page(terminal: Terminal, last: int) -> Sample:
    """A page down, until its last line is another."""
    before = shown(terminal.line(last))
    return timed(terminal, PAGE_DOWN, lambda t: shown(t.line(last)) not in ("", before), "the next page")


def found(first: str, last: str, word: str) -> bool:
    """Whether these are rows that the filter finds."""
    return shown(first).endswith(word) and shown(last).endswith(word)


def filtered(terminal: Terminal, word: str) -> Sample:
    """The console's filter, a word of one letter, from the key to the rows that it leaves; it is taken away again."""
    terminal.send(b"/")
    terminal.until(lambda t: "/ filter" in t.text(), "the prompt")
    sample = timed(
        terminal, word.encode(), lambda t: found(t.line(FIRST), t.line(LAST - 1), word), f"the rows with {word}"
    )
    terminal.send(ESCAPE)
    terminal.until(lambda t: name(ROWS - 1) in t.line(FIRST) and "/ filter" not in t.text(), "all rows again")
    return sample


def bare_filtered(terminal: Terminal, word: str) -> Sample:
    """The same with `clear()` and `add_rows()`; the first of them from all rows, the others from the tenth with the other letter."""
    return timed(
        terminal,
        word.encode(),
        lambda t: found(t.line(BARE_FIRST), t.line(BARE_LAST - 1), word),
        f"the rows with {word}",
    )


def percentile(values: list[float], percent: int) -> float:
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def used(terminal: Terminal, seconds: float) -> float:
    """Processor time of the program in per cent of a core, over so many seconds."""
    terminal.catch_up()
    before, began = terminal.own_cpu_s(), time.perf_counter()
    terminal.follow(seconds)
    return (terminal.own_cpu_s() - before) / (time.perf_counter() - began) * 100


def run(report: Report) -> None:
    with Scripted(ROWS) as scripted, console(scripted) as ours:
        _alone(report, scripted, ours)
        print(f"      filling a DataTable with {ROWS:,} rows", flush=True)
        with bare() as theirs:
            _beside(report, ours, theirs)


def _alone(report: Report, scripted: Scripted, ours: Terminal) -> None:
    what = f"the console with {ROWS:,} jobs"
    ours.quiet(0.5)
    report.absolute("T21", f"{what}, nothing changes: CPU", used(ours, IDLE_S), "% of a core", at_most=IDLE_PERCENT)
    report.absolute("T21", f"{what}: memory", ours.rss_mb(), "MB")
    still = moves(ours, cursor, KEYS // 3)
    report.absolute("T21", f"{what}, nothing changes: key to paint, p99", percentile(still, 99), "ms", at_most=KEY_MS)
    scripted.rate(RATE)
    used(ours, 3)
    report.absolute("T21", f"{what}, {RATE:,} changes a second: CPU", used(ours, 8), "% of a core")
    busy = moves(ours, cursor, KEYS)
    report.absolute("T21", f"{what}, {RATE:,} changes a second: key to paint, p50", percentile(busy, 50), "ms")
    report.absolute("T21", "the same, p95", percentile(busy, 95), "ms")
    report.absolute("T21", "the same, p99", percentile(busy, 99), "ms", at_most=KEY_MS)
    scripted.rate(0)


def _beside(report: Report, ours: Terminal, theirs: Terminal) -> None:
    still = moves(theirs, bare_cursor, KEYS // 3)
    report.absolute("T21", f"a bare DataTable with {ROWS:,} rows: key to paint, p99", percentile(still, 99), "ms")
    ours.send(HOME)
    pages = [(page(ours, LAST - 1), page(theirs, BARE_LAST - 1)) for _ in range(PAGES)]
    mine, bares = zip(*pages, strict=True)
    yardstick = f"DataTable, {ROWS:,} rows"
    report.compare("T21", "page down", Side("iris", mine), Side(yardstick, bares), at_most=RATIO)
    ours.send(HOME)
    words = [WORDS[number % 2] for number in range(FILTERS)]
    filters = [(filtered(ours, word), bare_filtered(theirs, word)) for word in words]
    mine, bares = zip(*filters, strict=True)
    what = f"a filter that leaves one row in ten of {ROWS:,}"
    report.compare("T21", what, Side("iris", mine), Side(f"{yardstick}, clear and add_rows", bares), at_most=RATIO)
