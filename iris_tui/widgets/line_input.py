"""A line of text to type into, in the prompt, the forms and the gate: a paste of any size leaves it a line that can be worked with.

A terminal hands over a whole clipboard at once. One line of it is taken, and no more than a line has room for; what was left out is said,
because nobody sees the end of a long line. Must never take a part of a paste silently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.geometry import Size
from textual.reactive import Reactive
from textual.widgets import Input

if TYPE_CHECKING:
    from textual.events import Paste

MOST_TYPED: Final = 4096
"""Characters that a line has room for, unless it has a `max_length` of its own."""


class LineInput(Input):
    """See the module. `pasted` = something was pasted into it."""

    pasted = False

    # How long the text is moves nothing else on the screen: with Textual's own, every character lays out all of it anew.
    virtual_size = Reactive(Size(0, 0), layout=False)

    def on_paste(self, event: Paste) -> None:
        event.stop()
        event.prevent_default()
        self.pasted = True
        line = next(iter(event.text.splitlines()), "")
        start, end = sorted(self.selection)
        room = max((self.max_length or MOST_TYPED) - (len(self.value) - (end - start)), 0)
        self.replace(line[:room], start, end)
        if len(line) > room or len(line) != len(event.text.rstrip("\r\n")):
            taken = f"the first {min(room, len(line)):,} characters of its first line were taken"
            self.app.notify(f"{len(event.text):,} characters were pasted: {taken}", severity="warning", markup=False)
