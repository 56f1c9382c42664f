"""The lines of a log that say why it ended: a filter over text, with no knowledge of frameworks beyond their words.

What scrolls by while all is well (progress bars, access logs, lists of loaded modules) is dropped first; of the rest the lines that
speak of a fault are kept, and where none does, simply the last ones (cli-auth-logs §4.7). Must never reword a line.
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_LINES: Final = 20

_BAR: Final = re.compile(r"\d+%\|.{0,400}?\|")
_CLOCK_AND_RATE: Final = re.compile(
    r"\[(?:\d+:)?\d+:\d\d(?:<(?:(?:\d+:)?\d+:\d\d|\?))?(?:,\s*(?:[\d.]+|\?)\s?\w{0,12}/?\w{1,12})?[^\]]{0,200}\]"
)
"""`[00:05<01:10, 3.2it/s]` and `[00:05, 1.1s/it]`, as tqdm writes them; a bare `[12:30]` or `[12:30:05]` is a time of day."""
_ACCESS: Final = re.compile(
    r"""["'](?:GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS) \S{1,2000} HTTP/\d(?:\.\d)?["']\s+-?\s*\d{3}\b"""
    r"""|HTTP Request: (?:GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS) \S{1,2000} ["']HTTP/"""
)
_MODULES: Final = re.compile(r"^\s*Extension modules: ")
_FAULT: Final = re.compile(
    r"\bTraceback \(most recent call last\)"
    r"|\bFile \"[^\"]{1,1000}\", line \d+"
    r"|\bFatal Python error\b"
    r"|(?:Error|Exception)\b"
    r"|\bDEADLINE_EXCEEDED\b|\bRESOURCE_EXHAUSTED\b|\bOOMKilled\b|\bAborted\b|\bcore dumped\b|\bCUDA error\b"
    r"|\bNCCL\b.{0,1000}[Ee]rror"
    r"|(?i:\bout of memory\b|\bsegfault|\bsegmentation fault\b|\bcoscheduled sibling\b|\bgang mate\b"
    r"|\bdetected fatal errors\b)"
)


def highlights(lines: Sequence[str], most: int = MOST_LINES) -> list[str]:
    """At most `most` of the lines, the newest, oldest first; each is a line of the input, or what its last carriage return left."""
    kept = [line for line in map(_shown, lines) if not is_noise(line)]
    faults = [line for line in kept if is_fault(line)]
    alone = [line for line, _ in groupby(faults or kept)]
    return alone[-most:] if most > 0 else []


def is_noise(line: str) -> bool:
    """Whether the line says nothing about an end: blank, a progress bar, an HTTP access, a list of extension modules."""
    if not line.strip():
        return True
    if _BAR.search(line) or _ACCESS.search(line) or _MODULES.match(line):
        return True
    found = _CLOCK_AND_RATE.search(line)
    return found is not None and ("<" in found[0] or "," in found[0])


def is_fault(line: str) -> bool:
    """Whether the line speaks of a fault."""
    return _FAULT.search(line) is not None


def _shown(line: str) -> str:
    """What a terminal would leave of a line that carriage returns overwrote."""
    pieces = [piece for piece in line.rstrip("\r\n").split("\r") if piece.strip()]
    return pieces[-1] if pieces else ""
