"""Timing of whole processes and of callables, and the record of what came out. Knows nothing of Iris."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement: seconds on the clock, and seconds of processor time where a process was waited for."""

    wall_s: float
    cpu_s: float | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """Ours, or a yardstick: what it is (with its version) and what was measured; `missing` says why there is nothing."""

    name: str
    samples: tuple[Sample, ...] = ()
    missing: str = ""

    @property
    def wall_s(self) -> float:
        return median(sample.wall_s for sample in self.samples)

    @property
    def cpu_s(self) -> float | None:
        known = [sample.cpu_s for sample in self.samples if sample.cpu_s is not None]
        return median(known) if known else None

    def text(self) -> str:
        if self.missing:
            return f"not measured ({self.missing})"
        cpu = "" if self.cpu_s is None else f", {self.cpu_s * 1000:.0f} ms CPU"
        spread = f"{min(s.wall_s for s in self.samples) * 1000:.0f}–{max(s.wall_s for s in self.samples) * 1000:.0f}"
        return f"{self.wall_s * 1000:.1f} ms ({spread}{cpu}, n={len(self.samples)})"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the result: two sides and the bound, or a plain value with its bound."""

    figure: str
    what: str
    ours: str
    yardstick: str = "–"
    ratio: str = "–"
    bound: str = "–"
    verdict: str = "–"


@dataclass(slots=True)
class Report:
    """Everything one run printed, in order."""

    rows: list[Row] = field(default_factory=list)

    def compare(
        self,
        figure: str,
        what: str,
        ours: Side,
        yardstick: Side,
        at_most: float | None = None,
        *,
        by_cpu: bool = False,
    ) -> None:
        """`at_most`: the bound on ours ÷ yardstick, by wall time, or by processor time."""
        if ours.missing or yardstick.missing:
            ratio, verdict = "–", "–"
        else:
            value = ours.wall_s / yardstick.wall_s
            if by_cpu and ours.cpu_s is not None and yardstick.cpu_s:
                value = ours.cpu_s / yardstick.cpu_s
            ratio = f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"
            verdict = "–" if at_most is None else holds(value <= at_most)
        bound = "–" if at_most is None else f"≤ {at_most:g} ×{' of CPU' if by_cpu else ''}"
        self.add(Row(figure, what, ours.text(), f"{yardstick.name}: {yardstick.text()}", ratio, bound, verdict))

    def absolute(self, figure: str, what: str, value: float, unit: str, at_most: float | None = None) -> None:
        bound, verdict = ("–", "–") if at_most is None else (f"≤ {at_most:g} {unit}", holds(value <= at_most))
        self.add(Row(figure, what, f"{value:.1f} {unit}", bound=bound, verdict=verdict))

    def least(self, figure: str, what: str, value: float, unit: str, at_least: float) -> None:
        bound = f"≥ {at_least:g} {unit}"
        self.add(Row(figure, what, f"{value:.1f} {unit}", bound=bound, verdict=holds(value >= at_least)))

    def missing(self, figure: str, what: str, reason: str) -> None:
        self.add(Row(figure, what, f"not measured ({reason})"))

    def add(self, row: Row) -> None:
        self.rows.append(row)
        print(f"{row.figure:>4}  {row.what}: {row.ours}", flush=True)
        if row.yardstick != "–":
            print(f"      {row.yardstick}", flush=True)
        if row.ratio != "–" or row.bound != "–":
            print(f"      ratio {row.ratio}, bound {row.bound}: {row.verdict}", flush=True)

    def markdown(self) -> str:
        lines = ["| figure | what | ours | yardstick | ratio | bound | |", "|---|---|---|---|---|---|---|"]
        lines += [
            f"| {r.figure} | {r.what} | {r.ours} | {r.yardstick} | {r.ratio} | {r.bound} | {r.verdict} |"
            for r in self.rows
        ]
        return "\n".join(lines)


def holds(yes: bool) -> str:
    return "holds" if yes else "MISSED"


def process(argv: Sequence[str | Path], env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Sample:
    """Runs one program to its end, output thrown away. Raises RuntimeError: it failed."""
    began = time.perf_counter()
    child = subprocess.Popen(
        argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert child.stderr is not None
    complaint = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    child.stderr.close()
    if child.returncode:
        raise RuntimeError(f"{' '.join(map(str, argv))} ended with {child.returncode}: {complaint.decode()[-500:]}")
    return Sample(wall, usage.ru_utime + usage.ru_stime)


def sequence(*runs: Callable[[], Sample]) -> Callable[[], Sample]:
    """One measurement made of several in a row."""

    def all_of_them() -> Sample:
        samples = [run() for run in runs]
        return Sample(sum(s.wall_s for s in samples), sum(s.cpu_s or 0 for s in samples))

    return all_of_them


def alternate(pairs: int, *runs: Callable[[], Sample], warm_up: int = 1) -> list[tuple[Sample, ...]]:
    """Takes the runs in turn, `pairs` times, after `warm_up` rounds that do not count. One tuple of samples per run."""
    for _ in range(warm_up):
        for run in runs:
            run()
    rounds = [[run() for run in runs] for _ in range(pairs)]
    return [tuple(samples) for samples in zip(*rounds, strict=True)]


def machine() -> str:
    """Where the figures come from, in one line."""
    one, five, _ = os.getloadavg()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release()}, Python {sys.version.split()[0]}, "
        f"load {one:.2f} (5 min: {five:.2f})"
    )
