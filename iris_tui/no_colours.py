"""For terminals and people without colours: what a background tells (a selected entry, a scrollbar's handle) is told by reversing.

It works on finished lines, so that it covers widgets that are not ours. Our own lines say everything in words, bold, dim and reversed
already, and pass unchanged.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from rich.color import ColorType
from rich.segment import Segment
from rich.style import Style
from textual.filter import LineFilter

if TYPE_CHECKING:
    from textual.color import Color

_PLAIN: Final = Style(color="default", bgcolor="default")
_REVERSED: Final = Style(color="default", bgcolor="default", reverse=True)
_BLACK: Final = 0


@lru_cache(4096)
def without_colours(style: Style) -> Style:
    """The style with its attributes alone; reversed where it had a background that is neither the terminal's own nor black."""
    ground = style.bgcolor
    marked = ground is not None and ground.type is not ColorType.DEFAULT and ground.number != _BLACK
    return style + (_REVERSED if marked else _PLAIN)


class NoColours(LineFilter):
    """Add it to the app's line filters."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            segment if segment.style is None else Segment(segment.text, without_colours(segment.style), segment.control)
            for segment in segments
        ]
