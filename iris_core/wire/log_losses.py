"""Why lines are missing, put together from several answers of the log store.

An answer names each reason in words, which are shown as they are, and counts the lines that were lost in its own stretch of the log.
Whoever reads a log in several answers says each reason once, and of that count the sum. Must never be given two answers about one stretch.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_IN_BETWEEN: Final = re.compile(r"([0-9,]+) lines? in between (?:were|was) lost before (?:they were|it was) stored")


def lost_in_between(lines: int) -> str:
    """The reason that so many lines which a filter might have passed never reached the log store."""
    if lines == 1:
        return "1 line in between was lost before it was stored"
    return f"{lines:,} lines in between were lost before they were stored"


def merged(known: Iterable[str], more: Iterable[str]) -> list[str]:
    """The reasons known so far and those of one more answer: each once and in its place, the lines lost in between added up."""
    reasons = list(known)
    for reason in more:
        lines = _in_between(reason)
        place = next((place for place, said in enumerate(reasons) if lines and _in_between(said)), None)
        if place is not None:
            reasons[place] = lost_in_between(_in_between(reasons[place]) + lines)
        elif reason not in reasons:
            reasons.append(reason)
    return reasons


def added(known: Iterable[str], now: Iterable[str]) -> list[str]:
    """What the reasons of an answer that goes on counting say beyond those that it had before."""
    before = list(known)
    lost = sum(map(_in_between, before))
    return [
        lost_in_between(_in_between(reason) - lost) if 0 < lost < _in_between(reason) else reason
        for reason in now
        if reason not in before
    ]


def _in_between(reason: str) -> int:
    """How many lines this says were lost in between, 0 for another reason."""
    found = _IN_BETWEEN.fullmatch(reason)
    return int(found[1].replace(",", "")) if found else 0
