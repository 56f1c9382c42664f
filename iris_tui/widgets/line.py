"""One line of text with a left and a right side, drawn by the line API. Everything is literal: no markup, no links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.geometry import Size
from textual.reactive import Reactive
from textual.widget import Widget

from iris_tui.drawing import Run, cut_runs, strip_of, width_of
from iris_tui.themes import Paint, paint

if TYPE_CHECKING:
    from rich.style import Style
    from textual.events import Hide
    from textual.strip import Strip


class Painted(Widget):
    """A widget that knows the styles of the current theme."""

    _paint: Paint | None = None

    @property
    def paint(self) -> Paint:
        """The styles of the current theme."""
        theme = self.app.current_theme
        if self._paint is None or self._paint.generation != theme.name:
            self._paint = paint(theme)
        return self._paint

    @property
    def room(self) -> int:
        """Cells of a line that no scrollbar covers."""
        return self.scrollable_content_region.width

    def take_focus(self) -> None:
        """Have the focus at once: the next key may already be on its way. Nothing where the console is just being left."""
        if self.is_attached:
            self.screen.set_focus(self, scroll_visible=False)

    def on_hide(self, event: Hide) -> None:
        """Words take the place of the content of a pane (`Pane`); its keys go on working."""
        event.prevent_default()


class Line(Painted):
    """Set `show(left, right)`; the right side has precedence and the left one is cut."""

    DEFAULT_CSS = """
    Line { height: 1; width: 1fr; }
    """

    # A new size comes from a layout: with Textual's own, it asks for another one of the whole screen.
    virtual_size = Reactive(Size(0, 0), layout=False)

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._left: list[Run] = []
        self._right: list[Run] = []

    def show(self, left: Sequence[Run], right: Sequence[Run] = ()) -> None:
        """Change what is shown; nothing is redrawn if it is the same."""
        if self._left != list(left) or self._right != list(right):
            self._left, self._right = list(left), list(right)
            self.refresh()

    def over(self) -> Style | None:
        """A style laid over the whole line."""
        return None

    @property
    def text(self) -> str:
        """What is shown, for tests and for plain output."""
        return "".join(run.text for run in (*self._left, *self._right))

    def right_side(self, width: int) -> list[Run]:
        """What stands at the right of so many cells."""
        return cut_runs(self._right, width)

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        right = self.right_side(width)
        room = width - width_of(right)
        left = cut_runs(self._left, room - 1 if right else room)
        gap = Run(" " * max(room - width_of(left), 0))
        return strip_of([*left, gap, *right], width, self.paint, over=self.over())
