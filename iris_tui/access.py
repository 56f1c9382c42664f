"""Whether this console may change anything: `:readonly` and `:write`, and how long the latter lasts.

Read-only is asked of the server with every call, so that what is refused here is refused there too (DESIGN §5.18). A console that was
opened read-only returns to it by itself: whoever unlocked it at three in the morning does not have to think of locking it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from iris_core.model.errors import ModelError
from iris_core.model.text import one_line
from iris_tui.themes import is_production

if TYPE_CHECKING:
    from textual.app import App, ComposeResult

    from iris_core.config.console import ConsoleSettings
    from iris_tui.session import Session

    Base = App[Any]
else:
    Base = object


class Access(Base):
    """Mix into the app; call `check_write` now and then."""

    settings: ConsoleSettings
    session: Session
    sessions: dict[str, Session]

    def say(self, text: str, *, severity: str = "information") -> None:
        """A toast."""
        raise NotImplementedError

    def do_readonly(self) -> None:
        session = self.session
        if session.read_only:
            self.say(f"{one_line(session.title)} is read-only already")
            return
        session.set_read_only(True)
        self.say(f"{one_line(session.title)} is read-only now: nothing can be changed, and the server refuses it too")

    def do_write(self) -> None:
        session = self.session
        if session.offline or session.locked:
            raise ModelError(f"nothing can be changed: {session.locked or 'it is a checkpoint'}")
        if not session.read_only:
            self.say(f"{one_line(session.title)} can be changed already; :readonly takes that back")
            return
        if not is_production(session.environment):
            self._allow(session)
            return

        def decided(sure: bool | None) -> None:
            if sure:
                self._allow(session)

        self.push_screen(WriteScreen(session.name, session.environment, self._lasts(session)), decided)

    def _lasts(self, session: Session) -> int:
        """Minutes until it returns to read-only, 0 = it does not."""
        return self.settings.write_minutes if session.opened_read_only else 0

    def _allow(self, session: Session) -> None:
        minutes = self._lasts(session)
        session.set_read_only(False, for_s=minutes * 60 if minutes else None)
        lasts = f"for {minutes} minutes" if minutes else "until :readonly"
        self.say(f"{one_line(session.title)} can be changed {lasts}", severity="warning")

    def check_write(self) -> None:
        """Take back what has lasted long enough."""
        for session in self.sessions.values():
            if session.write_left_s is not None and session.write_left_s <= 0:
                session.set_read_only(True)
                self.say(f"{one_line(session.title)} is read-only again: its time was over; :write gives it anew")


class WriteScreen(ModalScreen[bool]):
    """Asks for a production cluster's name before anything can be changed there. Dismissed with True when it was typed."""

    DEFAULT_CSS = """
    WriteScreen { align: center middle; }
    WriteScreen #write { width: 66; max-width: 96%; height: auto; background: $surface; border: tall $error; padding: 0 1; }
    WriteScreen #write-title { text-style: bold; }
    WriteScreen #write-place { color: $error; text-style: bold; }
    WriteScreen Input { border: none; padding: 0; height: 1; background: $background; }
    WriteScreen Horizontal { height: auto; margin-top: 1; align-horizontal: right; }
    WriteScreen Button { margin-left: 2; min-width: 12; }
    WriteScreen Button:focus { text-style: bold reverse; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "refuse", show=False),
        Binding("down", "app.focus_next", show=False),
        Binding("up", "app.focus_previous", show=False),
    ]
    AUTO_FOCUS = "#write-cancel"

    def __init__(self, cluster: str, environment: str, minutes: int) -> None:
        super().__init__()
        self._cluster = cluster
        self._environment = environment
        self._minutes = minutes

    def compose(self) -> ComposeResult:
        lasts = f"For {self._minutes} minutes; then it is read-only again." if self._minutes else "Until :readonly."
        with Vertical(id="write"):
            yield Static("Allow changes?", id="write-title", markup=False)
            yield Static(f"PROD  on {one_line(self._cluster)}", id="write-place", markup=False)
            yield Static(f"{lasts} Every change still passes its gate.", markup=False)
            yield Static(f"Type the cluster's name, {one_line(self._cluster)}, to go ahead:", markup=False)
            yield Input(id="write-name", compact=True)
            with Horizontal():
                yield Button("Back (Esc)", id="write-cancel", compact=True)
                yield Button("Allow changes", id="write-confirm", variant="error", disabled=True, compact=True)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self.query_one("#write-confirm", Button).disabled = event.value != self._cluster

    @on(Input.Submitted)
    def _entered(self) -> None:
        """Enter in the box only goes on to the button."""
        confirm = self.query_one("#write-confirm", Button)
        if not confirm.disabled:
            confirm.focus()

    @on(Button.Pressed, "#write-confirm")
    def _confirmed(self) -> None:
        self.dismiss(True)

    @on(Button.Pressed, "#write-cancel")
    def action_refuse(self) -> None:
        """Nothing changes."""
        self.dismiss(False)
