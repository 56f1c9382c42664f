"""A scroll view whose content grows and shrinks without the rest of the screen: only its scrollbar follows.

Textual lays the whole screen out anew whenever the size of a content changes, which for a log that grows is every flush, and draws most
of it. The place that such a widget takes does not depend on how much there is in it, so here the screen is laid out only when the
scrollbar comes or goes. Not for a widget whose own size follows its content (`height: auto`).
"""

from __future__ import annotations

from textual.geometry import Size
from textual.reactive import Reactive
from textual.scroll_view import ScrollView


class Scrolled(ScrollView):
    """See the module."""

    virtual_size = Reactive(Size(0, 0), layout=False)

    def watch_virtual_size(self, size: Size) -> None:
        """The scrollbar shows how much there is; whether there is one is for the layout to know."""
        if self.container_size:
            self._scroll_update(size)
