"""For terminals that can show nothing but ASCII: every character that is drawn, replaced by one that they can show.

It works on finished lines, so that borders, scrollbars, arrows and names of other people's jobs are all covered, and no widget has to
know. A line keeps its width.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.segment import Segment
from textual.filter import LineFilter

if TYPE_CHECKING:
    from textual.color import Color

_LIKE: Final = {
    **dict.fromkeys("─━╌┄┈═▔▁–—", "-"),
    **dict.fromkeys("│┃║▏▎▍▌▋▊▉▕▐", "|"),
    **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╰╯╔╗╚╝", "+"),
    **dict.fromkeys("█▇▆▅▄▃▂■▀▙▛▜▟▚▞", "#"),
    **dict.fromkeys("▒", "="),
    **dict.fromkeys("░", "~"),
    **dict.fromkeys("…", "~"),
    **dict.fromkeys("•●◉◆⬤", "*"),
    **dict.fromkeys("·", "."),
    **dict.fromkeys("↑▲", "^"),
    **dict.fromkeys("↓▼▾", "v"),
    **dict.fromkeys("→▸▶", ">"),
    **dict.fromkeys("←◂◀", "<"),
    **dict.fromkeys("×✕✘", "x"),
    **dict.fromkeys("‘’", "'"),
    **dict.fromkeys("“”", '"'),
    "✔": "v",
    "\xa0": " ",
}


@lru_cache(4096)
def ascii_text(text: str) -> str:
    """The text in ASCII, as many cells wide; a character that nothing looks like is one `?` per cell."""
    return "".join(
        character if character < "\x7f" else _LIKE.get(character, "?" * cell_len(character)) for character in text
    )


class AsciiOnly(LineFilter):
    """Add it to the app's line filters."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            segment if segment.control or segment.text.isascii() else Segment(ascii_text(segment.text), segment.style)
            for segment in segments
        ]
