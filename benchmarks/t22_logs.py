"""T22: a log of ten million lines in a terminal: the first page, random jumps, and memory; lnav and toolong on the same lines in a file.

The console is `iris` on a cluster of its own, which has the lines in its log store and answers through the controller; the others read the
file. What they do differently is said with the figure. `BENCH_SCALE` shrinks the log.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING

from benchmarks import clusters, long_log, yardsticks
from benchmarks.long_log import LINES, moment, needle
from benchmarks.terminal import END, ENTER, ESCAPE, Terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.measure import Report

JUMPS, THEIR_JUMPS = 100, 30
FIRST_PAGE_MS = 200
JUMP_MS = 150
RSS_MB = 150
READING_S = 120
"""How long the others may take to read the file; what needs that is not measured beyond it."""
CTRL_G, CTRL_U = b"\x07", b"\x15"


def run(report: Report) -> None:
    print(f"      pushing {LINES:,} lines", flush=True)
    with long_log.cluster() as cluster:
        _ours(report, cluster.env)
    folder = Path(tempfile.mkdtemp(prefix="iris-bench-log-"))
    try:
        path = folder / "long.log"
        long_log.write(path)
        for name, measure in (("lnav", _lnav), ("toolong", _toolong)):
            try:
                measure(report, path)
            except (yardsticks.Unavailable, RuntimeError) as error:
                report.missing("T22", f"{name} on the same lines", str(error).splitlines()[0])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ours(report: Report, env: dict[str, str]) -> None:
    what = f"a log of {LINES:,} lines in the console"
    with Terminal([clusters.BIN / "iris", "--cluster=local"], env) as terminal:
        terminal.until(lambda t: long_log.JOB in t.text() and "LIVE" in t.line(0), "the job")
        terminal.quiet()
        terminal.send(f":logs {long_log.JOB}/0".encode())
        terminal.quiet()
        asked = terminal.send(ENTER)
        last = needle(LINES - 1)
        first = terminal.until(lambda t: last in t.text(), "the end of the log") - asked
        report.absolute("T22", f"{what}: first page", first * 1000, "ms", at_most=FIRST_PAGE_MS)

        def prepare(number: int) -> bytes:
            terminal.send(b"T")
            terminal.until(lambda t: "go to" in t.text(), "the prompt")
            terminal.send(moment(number, "Z").encode())
            terminal.until(lambda t: moment(number, "Z") in t.text(), "the time that was typed")
            return ENTER

        before = terminal.own_cpu_s()
        jumps = _jumps(terminal, prepare, count=JUMPS)
        spent = (terminal.own_cpu_s() - before) / JUMPS
        _report_jumps(report, f"{what}: random jump to a time", jumps, JUMP_MS)
        report.absolute("T22", f"{what}: CPU of the console for one, typing the time included", spent * 1000, "ms")
        report.absolute("T22", f"{what}: memory of the console", terminal.rss_mb(), "MB", at_most=RSS_MB)


def _jumps(
    terminal: Terminal,
    prepare: Callable[[int], bytes],
    leave: Callable[[], None] = lambda: None,
    count: int = THEIR_JUMPS,
) -> list[float]:
    """Milliseconds of each jump: from the key that `prepare` leaves to be pressed until the line is drawn."""
    chance = random.Random(22)
    took: list[float] = []
    terminal.quiet()
    for _ in range(count):
        number = chance.randrange(LINES - 1000)
        key = prepare(number)
        terminal.quiet(0.1)
        sent = terminal.send(key)
        shown = terminal.until(lambda t: needle(number) in t.text(), f"line {number:,}")  # noqa: B023
        took.append((shown - sent) * 1000)
        leave()
        terminal.quiet(0.1)
    return took


def _report_jumps(report: Report, what: str, took: list[float], at_most: float | None = None) -> None:
    cuts = quantiles(took, n=100, method="inclusive")
    report.absolute("T22", f"{what}, p50", cuts[49], "ms")
    report.absolute("T22", f"{what}, p99", cuts[98], "ms", at_most=at_most)


def _lnav(report: Report, path: Path) -> None:
    program, version = yardsticks.lnav()
    what = f"lnav {version} on a file of {LINES:,} lines"
    with tempfile.TemporaryDirectory(prefix="iris-bench-") as home:
        env = {**os.environ, "HOME": home, "XDG_CONFIG_HOME": home}
        with Terminal([program, "-N", path], env) as terminal:
            first = terminal.until(lambda t: " step " in t.text(), "a line") - terminal.began
            report.absolute("T22", f"{what}: from the shell to a first page", first * 1000, "ms")
            # A line that it has not read yet is none to go to.
            while needle(LINES - 100) not in terminal.text():
                _give_up_late(terminal, "lnav")
                terminal.send(f":goto {LINES - 100}".encode() + ENTER)
                terminal.follow(0.5)
            whole = time.perf_counter() - terminal.began
            report.absolute("T22", f"{what}: until it has read all, about", whole * 1000, "ms")

            _report_jumps(report, f"{what}: random jump to a line", _jumps(terminal, _all_but_last(terminal)), None)
            report.absolute("T22", f"{what}: memory", terminal.rss_mb(), "MB")


def _give_up_late(terminal: Terminal, name: str) -> None:
    """Raises Unavailable: it has been reading for too long."""
    if time.perf_counter() - terminal.began > READING_S:
        raise yardsticks.Unavailable(f"{name} has not read {LINES:,} lines within {READING_S} s")


def _all_but_last(terminal: Terminal) -> Callable[[int], bytes]:
    """lnav shows where it would go while the number is typed, so that its last digit counts."""

    def prepare(number: int) -> bytes:
        terminal.send(f":goto {number // 10}".encode())
        terminal.until(lambda t: f"goto {number // 10}" in t.text(), "what was typed")
        return str(number % 10).encode() + ENTER

    return prepare


def _toolong(report: Report, path: Path) -> None:
    program, version = yardsticks.toolong()
    what = f"toolong {version} on a file of {LINES:,} lines"
    with Terminal([program, path]) as terminal:
        first = terminal.until(lambda t: " step " in t.text(), "a line") - terminal.began
        report.absolute("T22", f"{what}: from the shell to a first page", first * 1000, "ms")

        def prepare(number: int) -> bytes:
            """Its lines are counted from 1, and it goes there as they are typed."""
            terminal.send(CTRL_G)
            terminal.until(lambda t: "▔▔▔▔" in t.text(), "the prompt")
            terminal.send(END + CTRL_U)
            terminal.until(lambda t: "Enter line" in t.text(), "the empty prompt")
            terminal.send(str((number + 1) // 10).encode())
            return str((number + 1) % 10).encode()

        def leave() -> None:
            terminal.send(ESCAPE)
            terminal.until(lambda t: "▔▔▔▔" not in t.text(), "the end of the prompt")

        # It goes to lines that it has scanned: as long as it has not, a number leads to the last one that it knows.
        while needle(LINES // 2) not in terminal.text():
            _give_up_late(terminal, "toolong")
            terminal.send(prepare(LINES // 2))
            terminal.follow(0.5)
            leave()
        whole = time.perf_counter() - terminal.began
        report.absolute("T22", f"{what}: until it has read half, about", whole * 1000, "ms")

        _report_jumps(report, f"{what}: random jump to a line", _jumps(terminal, prepare, leave))
        report.absolute("T22", f"{what}: memory", terminal.rss_mb(), "MB")
