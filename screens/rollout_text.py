"""The lines of a rollout: its end stays in sight while they grow and the room changes, until the reader goes elsewhere in them.

Whether the end is followed is what the reader last did and never what a picture happens to show: lines that are wrapped anew lie elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_tui.tabbed import PartText

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_core.live.wording import Tone


class FollowingText(PartText):
    """`close` is what Escape does where nothing is searched."""

    def __init__(self, title: str, close: Callable[[], None]) -> None:
        super().__init__(title)
        self.following = False
        """Whether the end is kept in sight."""
        self._grows = False
        self._top = (0, 0)
        """The line that the reader put at the top, and which row of it."""
        self._close = close

    def begin(self, *, at_end: bool) -> None:
        """Other lines come now: those that grow `at_end` show their end, others their beginning."""
        self.following = self._grows = at_end
        self._top = (0, 0)
        self.show_row(0)

    def show(self, lines: Sequence[tuple[str, Tone]]) -> None:
        super().show(lines)
        if self.following:
            self.show_end()

    def resized(self) -> None:
        if self.following:
            self.show_end()
        else:
            line, part = self._top
            self.show_row(min(self._row_of(line) + part, max(self._row_of(line + 1) - 1, 0)))

    def do_wrap(self) -> None:
        super().do_wrap()
        if self.following:
            self.show_end()

    def do_close(self) -> None:
        if self.needle:
            self.find("")
        else:
            self._close()

    # --- what the reader does ------------------------------------------------------------------------------------------

    def _move(self, row: int) -> None:
        super()._move(row)
        self._look()

    def _look(self) -> None:
        row = int(self.scroll_target_y)
        self.following = self._grows and row + self.size.height >= self.virtual_size.height
        self._top = self._line_at(row)

    def _scrolls(self) -> None:
        """The bar is moved, where it goes is known when that is handled: until then nothing may take the reader to the end."""
        self.following = False
        self.call_next(self._look)

    def on_mouse_scroll_up(self) -> None:
        self.call_next(self._look)

    def on_mouse_scroll_down(self) -> None:
        self.call_next(self._look)

    def on_scroll_to(self) -> None:
        self._scrolls()

    def on_scroll_up(self) -> None:
        self._scrolls()

    def on_scroll_down(self) -> None:
        self._scrolls()
