"""What a screen shows, as lines of text: one widget after the other, in reading order, so that nothing stands beside something else.

It asks each widget for the lines that it draws, so that a view exists once. What is longer than the screen says how much is left out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from textual.scroll_view import ScrollView

from iris_tui.widgets.chart import Chart
from iris_tui.widgets.header import Header
from iris_tui.widgets.keybar import KeyBar
from iris_tui.widgets.line import Line, Painted
from iris_tui.widgets.pane import Message
from iris_tui.widgets.virtual_table import TableHeader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iris_tui.screen import ConsoleScreen

CURSOR: Final = "▌"
_APART: Final = re.compile(r"(?<=\S) {4,}(?=\S)")
"""Between the two sides of a line."""


def lines_of(screen: ConsoleScreen) -> Iterator[str]:
    """The lines of a screen without its header and its key bar; those that are blank at the end of a widget, or above words in
    the middle of an empty one, are left out."""
    shown = [
        widget
        for widget in screen.walk_children()
        if isinstance(widget, Painted)
        and not isinstance(widget, (Header, KeyBar))
        and widget.region.area
        and widget.display
    ]
    for widget in sorted(shown, key=lambda one: (one.region.y, one.region.x)):
        yield from _lines(widget)


def _lines(widget: Painted) -> Iterator[str]:
    # A curve is nothing to be read; what it comes to is its first line.
    height = 1 if isinstance(widget, Chart) else widget.size.height
    texts = [widget.render_line(y).text.replace(CURSOR, " ").rstrip() for y in range(height)]
    if isinstance(widget, Line) and not isinstance(widget, TableHeader):
        texts = [_APART.sub("   ", text) for text in texts]
    while texts and not texts[-1]:
        del texts[-1]
    if isinstance(widget, Message):
        texts = texts[next((y for y, text in enumerate(texts) if text), 0) :]
    yield from texts
    if isinstance(widget, ScrollView):
        left = widget.virtual_size.height - widget.size.height
        if left > 0:
            yield f"… {left:,} more line{'s' * (left != 1)}; a filter shows fewer"
