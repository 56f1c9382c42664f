"""The box in which a statement is written: several lines, Enter behind a semicolon runs it, the place of a fault is selected.

It is a text area like any other; every key that is no text belongs to the screen. Must never send anything by itself.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import TextArea
from textual.widgets.text_area import Selection

if TYPE_CHECKING:
    from textual.events import Key, Paste

MOST_TYPED: Final = 100_000
"""Characters of a statement that a controller takes."""
_WORD: Final = re.compile(r"\w+|\S|$")


def place_of(text: str, offset: int) -> tuple[int, int]:
    """Line and column of a character, both from 0."""
    before = text[: max(offset, 0)]
    return before.count("\n"), len(before) - (before.rfind("\n") + 1)


class SqlEditor(TextArea):
    """See the module."""

    DEFAULT_CSS = """
    SqlEditor { border: none; padding: 0; height: 100%; background: $surface; }
    SqlEditor:focus { border: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", show=False)]

    class Left(Message):
        """Escape."""

    class Finished(Message):
        """Enter behind a semicolon."""

    def __init__(self) -> None:
        super().__init__(
            id="sql",
            theme="css",
            soft_wrap=True,
            tab_behavior="focus",
            highlight_cursor_line=False,
            placeholder="SELECT …   F9: statements to start from",
        )

    def action_leave(self) -> None:
        self.post_message(self.Left())

    async def _on_key(self, event: Key) -> None:
        at_end = self.cursor_location == self.document.end
        if event.key == "enter" and at_end and self.text.rstrip().endswith(";"):
            event.stop()
            event.prevent_default()
            self.post_message(self.Finished())
            return
        await super()._on_key(event)

    async def _on_paste(self, event: Paste) -> None:
        """As much as a statement may have; the rest is left out, and that is said."""
        first, last = sorted(self.selection)
        replaced = len(self.get_text_range(first, last))
        room = max(MOST_TYPED - (len(self.text) - replaced), 0)
        if len(event.text) <= room:
            return
        event.prevent_default()
        event.stop()
        self.replace(event.text[:room], first, last)
        words = f"{len(event.text):,} characters were pasted: the first {room:,} were taken"
        self.app.notify(words, severity="warning", markup=False)

    def put(self, text: str, blank: tuple[int, int] | None = None) -> None:
        """Replace the statement; `blank` is what of it is to be replaced next."""
        self.load_text(text[:MOST_TYPED])
        if blank is None:
            self.move_cursor(self.document.end)
        else:
            self.selection = Selection(place_of(text, blank[0]), place_of(text, blank[1]))

    def show_fault(self, offset: int) -> tuple[int, int]:
        """Select what stands at the place of a fault; returns its line and column, both from 1."""
        text = self.text
        found = _WORD.search(text, min(max(offset, 0), len(text)))
        start, end = (found.start(), found.end()) if found is not None else (len(text), len(text))
        self.selection = Selection(place_of(text, start), place_of(text, end))
        line, column = place_of(text, start)
        return line + 1, column + 1
