"""Which cluster? Asked when the command line names none, none runs here, and several are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from iris_core.model.text import one_line
from iris_tui.keymap import ESCAPE


class ChooserApp(App[str], inherit_bindings=False):
    """Ends with the chosen name, or "" for none."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #question { text-style: bold; padding: 1 2 0 2; }
    #hint, #local { color: $text-muted; padding: 0 2; }
    OptionList { margin: 1 2; height: 1fr; border: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(f"{ESCAPE},q,ctrl+c,ctrl+q", "leave", show=False),
        Binding("j", "screen.cursor_down", show=False),
    ]

    def __init__(self, names: list[str], notes: Mapping[str, str] | None = None) -> None:
        """`notes`: a word on some of them, as PROD."""
        super().__init__()
        self._names = names
        self._notes = notes or {}

    def compose(self) -> ComposeResult:
        yield Static("Which cluster?", id="question", markup=False)
        yield Static("Enter opens it, q leaves. `iris --cluster=NAME` opens one directly.", id="hint", markup=False)
        yield Static(
            "No local cluster runs here; `iris-core cluster start --local` starts one, and `iris demo` one to look around in.",
            id="local",
            markup=False,
        )
        wide = max((len(name) for name in self._names), default=0) + 2
        lines = [f"{one_line(name):<{wide}}{one_line(self._notes.get(name, ''))}".rstrip() for name in self._names]
        yield OptionList(*(Option(Content(line)) for line in lines))

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        self.exit(self._names[event.option_index])

    def action_leave(self) -> None:
        self.exit("")
