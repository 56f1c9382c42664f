"""What every screen of the console shares: header, prompt, key bar, and the two clocks.

One flusher, ten times a second, shows what came meanwhile in one repaint; when a flush took long the next ones come later, so
that keys never wait for drawing. Once a second ages and the header move on; below a dialog the header alone. A screen that is not shown
has no timer. No subscription calls a widget.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual.screen import ModalScreen, Screen

from iris_core.live.watch import Link
from iris_tui.actions.live import LIVE
from iris_tui.scope import ActionHost
from iris_tui.widgets.header import Header
from iris_tui.widgets.keybar import KeyBar
from iris_tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.timer import Timer
    from textual.widget import Widget

    from iris_core.live.watch import LinkState
    from iris_tui.app import IrisApp
    from iris_tui.session import Session

FLUSH_S: Final = 0.1
SLOW_FLUSH_S: Final = 0.05


class ConsoleScreen(ActionHost, Screen[None]):
    """A full screen. Subclasses give `body()`, `flush()`, `tick()` and `title_text()`, and what of them is kept when they are left."""

    DEFAULT_CSS = """
    ConsoleScreen { background: $background; }
    """
    AUTO_FOCUS: ClassVar[str | None] = None

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session
        self.place = ("", "")
        """Name in the registry and subject; ("", "") for a page that is no place of its own."""
        self.header = Header()
        self.prompt = Prompt()
        self.keybar = KeyBar()
        self._flusher: Timer | None = None
        self._later: list[Callable[[], None]] = []
        self._settling: list[Callable[[], None]] = []
        self._built = False
        """Whether there is something to flush to: it can be the topmost screen before its widgets are there."""
        self._not_before = 0.0
        self._ticked = 0.0

    @property
    def console(self) -> IrisApp:
        """The app, by its own type."""
        from iris_tui.app import IrisApp

        app = self.app
        assert isinstance(app, IrisApp)
        return app

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

    @property
    def link(self) -> LinkState:
        """How the connection that feeds this screen stands."""
        return self.session.link

    def idle_actions(self) -> frozenset[str]:
        """The actions, by id, that would do nothing or be refused here and now: the key bar leaves them out."""
        return LIVE if self.session.offline else frozenset()

    def check_argument(self, argument: str) -> None:
        """Raises ModelError if what followed the screen's word is wrong; asked before it is shown."""

    def accept(self, argument: str) -> None:
        """Take what followed the screen's word: a list takes it as a filter."""

    def view_state(self) -> dict[str, Any]:
        """How it looks now, as JSON can hold it: filter, sort, cursor; given back to `restore`."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Look as it did. What cannot be understood (any more) is left out, without a word."""

    def look_like(self, state: dict[str, Any]) -> None:
        """Restore a view state now, or as soon as there is something to restore it to."""
        if state:
            self.when_mounted(lambda: self.restore(state))

    def when_mounted(self, do: Callable[[], None]) -> None:
        """Do it now, or once the screen is built."""
        if self.is_mounted:
            do()
        else:
            self._later.append(do)

    def when_settled(self, do: Callable[[], None]) -> None:
        """Do it once this screen is live with its rows, or cannot be. It is forgotten when the screen is left before that."""
        self._settling.append(do)

    def on_mount(self) -> None:
        self._flusher = self.set_interval(FLUSH_S, self.flush_now)
        self.call_next(self._begin)

    def _begin(self) -> None:
        self._built = True
        for do in self._later:
            do()
        self._later.clear()
        self.flush_now()

    def on_screen_suspend(self) -> None:
        self._settling.clear()
        # Below a dialog it is still to be seen.
        if self._flusher is not None and not isinstance(self.app.screen, ModalScreen):
            self._flusher.pause()

    def on_screen_resume(self) -> None:
        if self._flusher is not None:
            self._flusher.resume()
        self._not_before = 0.0
        self.flush_now()

    @property
    def is_built(self) -> bool:
        """Whether its widgets are there."""
        return self._built

    def takes_keys(self) -> bool:
        """Whether keys are taken now: until then they wait, for a second at most (`typeahead`)."""
        return self._built and (self.prompt.is_open or self.shows_content())

    def shows_content(self) -> bool:
        """Whether what keys are about is shown, or known to be nothing."""
        return True

    def flush_now(self) -> None:
        """One turn of the flusher."""
        began = time.monotonic()
        if began < self._not_before or not self._built:
            return
        if not self.is_current:
            self._flush_below()
            return
        with self.app.batch_update():
            if began - self._ticked >= 1.0:
                self._ticked = began
                self.tick()
            self.flush()
            self.header.update_from(self.session, self.title_text(), self.link)
            if self.prompt.is_open:
                self.keybar.show_keys(self.prompt.keys())
            else:
                scopes = tuple(scope for host in self.hosts() for scope in host.SCOPES)
                self.keybar.update_from(scopes, self.console.keymap, self.idle_actions())
        took = time.monotonic() - began
        self._not_before = time.monotonic() + 4 * took if took > SLOW_FLUSH_S else 0.0
        if self._settling and (self.shows_content() if self.link.fresh else self.link.link is not Link.CONNECTING):
            settling, self._settling = self._settling, []
            for do in settling:
                do()

    def _flush_below(self) -> None:
        """One turn below a dialog: rows stand still while somebody decides about them, and whether they are true now is still said."""
        if isinstance(self.app.screen, ModalScreen) and self.console.console_screen is self:
            self.header.update_from(self.session, self.title_text(), self.link)

    def hosts(self) -> Iterator[ActionHost]:
        """Who answers actions now, from what has the focus outwards."""
        node = self.focused if self.focused is not None else self
        seen: set[str] = set()
        for ancestor in node.ancestors_with_self:
            if isinstance(ancestor, ActionHost) and ancestor.SCOPES and not seen.issuperset(ancestor.SCOPES):
                seen.update(ancestor.SCOPES)
                yield ancestor
