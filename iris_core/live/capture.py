"""Captures as people type and read them: `/ada/train/0 cpu 10`, what there is to see in one, how two differ.

Pure but for the messages it makes. A kind is a word of the command line: threads, cpu, mem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from iris_core.analysis import allocations, flame_tree
from iris_core.live.wording import Tone
from iris_core.model.errors import ModelError, did_you_mean
from iris_core.model.ids import JobId, parse_target
from iris_core.model.resources import format_size
from iris_core.model.text import one_line

if TYPE_CHECKING:
    from iris_core.analysis.stacks import Stack
    from iris_core.wire.gen.iris.v1 import profiles_pb2 as pb

KINDS: Final = ("threads", "cpu", "mem")
SECONDS: Final = 10
MOST_SECONDS: Final = 600
SLACK_S: Final = 20.0
"""What a capture usually takes beyond its duration: attaching, reading symbols, the way back."""
CONTROLLER: Final = "/system/controller"
_BAR: Final = 24
_DIFFERENT: Final = 0.05
"""Percentage points below which a function counts as unchanged."""

Lines = list[tuple[str, Tone]]


@dataclass(frozen=True, slots=True)
class Capture:
    """What is to be captured: of whom, which kind, for how many seconds (0 for threads)."""

    target: str
    kind: str
    seconds: int

    @property
    def text(self) -> str:
        """As it is typed."""
        return f"{self.target} {self.kind}" + (f" {self.seconds}" if self.seconds else "")

    @property
    def expected_s(self) -> float:
        """How long it takes, about."""
        return self.seconds + SLACK_S / 4


def parse(text: str) -> Capture:
    """`TARGET [threads|cpu|mem [SECONDS]]`. Raises ModelError, with the position."""
    words = text.split()
    if not words:
        raise ModelError("name a task, an attempt, /system/worker/<id> or /system/controller", position=len(text))
    target, kind = words[0], words[1] if len(words) > 1 else "cpu"
    at = text.find(kind, text.find(target) + len(target)) if len(words) > 1 else len(text)
    if not target.startswith("/system/") and isinstance(parse_target(target), JobId):
        raise ModelError(
            f"{target} is a job", hint=f"name a task of it, such as {target}/0; hang looks at all", position=0
        )
    kind = "mem" if kind == "memory" else kind
    if kind not in KINDS:
        known = did_you_mean(kind, KINDS)
        raise ModelError(
            f"no kind of profile {one_line(kind)!r}", hint=known or f"one of {', '.join(KINDS)}", position=at
        )
    if kind == "threads":
        if len(words) > 2:
            raise ModelError("threads are looked at once, not for a while", position=text.rfind(words[2]))
        return Capture(target, kind, 0)
    seconds = words[2].removesuffix("s") if len(words) > 2 else str(SECONDS)
    if not seconds.isdecimal() or not 1 <= int(seconds) <= MOST_SECONDS or len(words) > 3:
        raise ModelError(f"seconds go from 1 to {MOST_SECONDS}", position=text.rfind(words[-1]))
    return Capture(target, kind, int(seconds))


def options(capture: Capture) -> pb.ProfileOptions:
    """What is asked of the worker: in the form that a terminal can show."""
    from iris_core.wire.gen.iris.v1 import profiles_pb2

    kinds = {
        "threads": (profiles_pb2.PROFILE_TYPE_THREADS, profiles_pb2.PROFILE_FORMAT_TEXT),
        "cpu": (profiles_pb2.PROFILE_TYPE_CPU, profiles_pb2.PROFILE_FORMAT_SPEEDSCOPE),
        "mem": (profiles_pb2.PROFILE_TYPE_MEMORY, profiles_pb2.PROFILE_FORMAT_STATS),
    }
    kind, shape = kinds[capture.kind]
    return profiles_pb2.ProfileOptions(type=kind, format=shape, duration_seconds=capture.seconds)


def allocation_lines(data: bytes, bar: str, blank: str) -> Lines:
    """Which lines allocated most, which most often, in which sizes. Raises ValueError: it is not memray's JSON."""
    found = allocations.parse(data)
    peak = f", {format_size(found.peak_bytes)} at the peak" if found.peak_bytes else ""
    lines: Lines = [
        (
            f"{format_size(found.total_bytes)} in {found.total_count:,} allocations{peak}; what was freed again counts, too.",
            Tone.PLAIN,
        ),
        ("", Tone.PLAIN),
        ("Most bytes", Tone.BUSY),
    ]
    for place, size in found.by_size:
        share = size / found.total_bytes if found.total_bytes else 0.0
        lines.append(
            (f"{format_size(size):>8} {100 * share:5.1f}%  {_bar(share, bar, blank)}  {one_line(place)}", Tone.PLAIN)
        )
    lines += [("", Tone.PLAIN), ("Most often", Tone.BUSY)]
    for place, count in found.by_count:
        share = count / found.total_count if found.total_count else 0.0
        lines.append((f"{count:>8,} {100 * share:5.1f}%  {_bar(share, bar, blank)}  {one_line(place)}", Tone.PLAIN))
    lines += [("", Tone.PLAIN), ("Sizes", Tone.BUSY)]
    most = max((count for *_, count in found.sizes), default=0) or 1
    for low, high, count in found.sizes:
        span = f"{format_size(low)} to {format_size(high)}"
        lines.append((f"{span:>20}  {_bar(count / most, bar, blank)}  {count:,}", Tone.PLAIN if count else Tone.DIM))
    return lines


def _bar(share: float, bar: str, blank: str) -> str:
    full = min(max(round(share * _BAR), 1 if share > 0 else 0), _BAR)
    return bar * full + blank * (_BAR - full)


def difference(old: Mapping[Stack, float], new: Mapping[Stack, float], names: Sequence[str], most: int = 60) -> Lines:
    """How the shares of functions differ between two captures, the largest difference first."""
    before, after = _shares(old), _shares(new)
    rows = [(after.get(label, 0.0) - before.get(label, 0.0), label) for label in before.keys() | after.keys()]
    rows = sorted((row for row in rows if abs(row[0]) >= _DIFFERENT), key=lambda row: (-abs(row[0]), row[1]))
    lines: Lines = [
        (f"Own time of functions, {names[0]} and then {names[1]}; shares of each capture's own total.", Tone.PLAIN),
        ("", Tone.PLAIN),
        (f"{'CHANGE':>8}  {'BEFORE':>7}  {'AFTER':>7}  FUNCTION", Tone.DIM),
    ]
    for change, label in rows[:most]:
        tone = Tone.BAD if change > 0 else Tone.GOOD
        shares = f"{before.get(label, 0.0):6.1f}%  {after.get(label, 0.0):6.1f}%"
        lines.append((f"{change:+7.1f}%  {shares}  {one_line(label)}", tone))
    if len(rows) > most:
        lines.append((f"… and {len(rows) - most:,} functions with smaller differences", Tone.DIM))
    if not rows:
        lines.append(("no function differs by a tenth of a percentage point", Tone.GOOD))
    return lines


def _shares(stacks: Mapping[Stack, float]) -> dict[str, float]:
    root = flame_tree.tree(stacks)
    return {one.label: 100 * one.own / root.weight for one in flame_tree.functions(root)} if root.weight else {}
