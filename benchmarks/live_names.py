"""What the rows are called that the console and a bare table are measured with. Imports nothing."""

from __future__ import annotations

from typing import Final

WORDS: Final = ("q", "z")
"""Each in the name of one job in ten, and in no other."""


def name(number: int) -> str:
    """`/ada/train-0000000`; the newest, which is on top, has the highest number."""
    return f"/ada/train-{number:07}{ {0: WORDS[0], 5: WORDS[1]}.get(number % 10, '') }"


def cells(number: int) -> tuple[str, ...]:
    """The same row for a table that only shows texts."""
    return (name(number), "running", "#### 1/2", "2h13m", "2h10m", str(number % 7), "-", "waits for nothing")
