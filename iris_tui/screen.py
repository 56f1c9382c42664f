"""What every screen of the console shares: header, prompt, key bar, and the two clocks.

One flusher, ten times a second, shows what came meanwhile in one repaint; when a flush took long the next ones come later, so
that keys never wait for drawing. Once a second ages and the header move on. No subscription calls a widget.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar, Final

from textual.screen import Screen

from iris_tui.actions import in_scope
from iris_tui.scope import ActionHost
from iris_tui.widgets.header import Header
from iris_tui.widgets.keybar import KeyBar
from iris_tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.widget import Widget

    from iris_tui.session import Session

FLUSH_S: Final = 0.1
SLOW_FLUSH_S: Final = 0.05


class ConsoleScreen(ActionHost, Screen[None]):
    """A full screen. Subclasses give `body()`, `flush()`, `tick()` and `title_text()`."""

    DEFAULT_CSS = """
    ConsoleScreen { background: $background; }
    """
    AUTO_FOCUS: ClassVar[str | None] = None

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session
        self.header = Header()
        self.prompt = Prompt()
        self.keybar = KeyBar()
        self._not_before = 0.0
        self._ticked = 0.0

    def compose(self) -> ComposeResult:
        yield self.header
        yield from self.body()
        yield self.keybar
        yield self.prompt

    def body(self) -> Iterable[Widget]:
        """What stands between header and key bar."""
        raise NotImplementedError

    def flush(self) -> None:
        """Show what came since the last time."""

    def tick(self) -> None:
        """A second passed."""

    def title_text(self) -> str:
        """What the header calls this screen."""
        return ""

    def on_mount(self) -> None:
        self.set_interval(FLUSH_S, self.flush_now)
        self.flush_now()

    def on_screen_resume(self) -> None:
        self._not_before = 0.0
        self.flush_now()

    def flush_now(self) -> None:
        """One turn of the flusher."""
        began = time.monotonic()
        if began < self._not_before or not self.is_current:
            return
        with self.app.batch_update():
            if began - self._ticked >= 1.0:
                self._ticked = began
                self.tick()
            self.flush()
            self.header.update_from(self.session, self.title_text())
            if self.prompt.is_open:
                self.keybar.show_keys((("Enter", "Take it"), ("Esc", "Leave it as it was"), ("↑", "Earlier ones")))
            else:
                self.keybar.update_from([in_scope(host.SCOPE) for host in self.hosts()])
        took = time.monotonic() - began
        self._not_before = time.monotonic() + 4 * took if took > SLOW_FLUSH_S else 0.0

    def hosts(self) -> Iterator[ActionHost]:
        """Who answers actions now, from what has the focus outwards."""
        node = self.focused if self.focused is not None else self
        seen: set[str] = set()
        for ancestor in node.ancestors_with_self:
            if isinstance(ancestor, ActionHost) and ancestor.SCOPE and ancestor.SCOPE not in seen:
                seen.add(ancestor.SCOPE)
                yield ancestor
