"""A line that a read found, wherever it lay."""

from __future__ import annotations

from typing import NamedTuple


class Line(NamedTuple):
    """Compares in the order in which the lines of several keys are shown."""

    epoch_ms: int
    key: str
    seq: int
    number: int
    source: str
    data: str
    raw: bytes
    level: int
    attempt_uid: str
    partial: bool
    gap: int
    part: int
    back: int
    unended: bool
