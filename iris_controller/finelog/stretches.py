"""Neighbouring lines of one key, in a segment or a write-ahead file, whose times are read only where the bounds do not tell.

What gives them and what asks for them share this and nothing else. Must never read by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Times = tuple["Sequence[int]", "Sequence[int]"]
"""Seqs, and when each was written."""


class Stretch(NamedTuple):
    """Lines of one key: their bounds, and where they lie in a piece that is read at once, from `start` on, ascending by seq."""

    earliest_ms: int
    latest_ms: int
    piece: tuple[str, int, int]
    start: int
    lines: int
    read: Callable[[], Times]
    """The whole piece; nothing where it cannot be read."""
