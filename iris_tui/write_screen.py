"""The question before anything can be changed on a production cluster from a console that is read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from iris_core.model.text import one_line
from iris_tui.keymap import ESCAPE
from iris_tui.widgets.line_input import LineInput

if TYPE_CHECKING:
    from textual.app import ComposeResult


class WriteScreen(ModalScreen[bool]):
    """Asks for a production cluster's name before anything can be changed there. Dismissed with True when it was typed."""

    DEFAULT_CSS = """
    WriteScreen { align: center middle; }
    WriteScreen #write { width: 66; max-width: 96%; height: auto; max-height: 100%; overflow-y: auto; background: $surface; border: tall $error; padding: 0 1; }
    WriteScreen #write-title { text-style: bold; }
    WriteScreen #write-place { color: $error; text-style: bold; }
    WriteScreen Input { border: none; padding: 0; height: 1; background: $background; }
    WriteScreen Horizontal { height: auto; margin-top: 1; align-horizontal: right; }
    WriteScreen Button { margin-left: 2; min-width: 12; }
    WriteScreen Button:focus { text-style: bold reverse; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(ESCAPE, "refuse", show=False),
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
            yield LineInput(id="write-name", compact=True)
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
