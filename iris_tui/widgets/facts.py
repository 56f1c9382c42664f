"""A few lines of facts above a page: each has its own runs and is cut where the room ends. Everything is literal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from iris_tui.drawing import Run, cut_runs, strip_of
from iris_tui.widgets.line import Painted

if TYPE_CHECKING:
    from textual.strip import Strip


class Facts(Painted):
    """Call `show` as often as you like: nothing is drawn if the lines are the same."""

    DEFAULT_CSS = """
    Facts { height: auto; width: 1fr; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows: list[list[Run]] = []

    def show(self, rows: Sequence[Sequence[Run]]) -> None:
        """Replace the lines."""
        fresh = [list(row) for row in rows]
        if fresh == self._rows:
            return
        resized = len(fresh) != len(self._rows)
        self._rows = fresh
        if resized:
            self.styles.height = len(fresh)
        self.refresh()

    @property
    def text(self) -> str:
        """What is shown, for tests and plain output."""
        return "\n".join("".join(run.text for run in row) for row in self._rows)

    def render_line(self, y: int) -> Strip:
        row = self._rows[y] if y < len(self._rows) else []
        return strip_of(cut_runs([Run(" "), *row], self.size.width), self.size.width, self.paint)
