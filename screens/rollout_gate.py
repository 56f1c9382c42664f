"""The question of a rollout, on its screen: what was found, what happens on a yes, what can be undone, the same as a command line.

It is part of the screen and no dialog, so that the evidence above it can be read while it stands, for as long as that takes. Going ahead
takes the name that is asked for and then the button; stopping, which cannot be taken back, takes two presses. Closing the screen
answers nothing. Must never offer what the gate does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Self

from rich.cells import cell_len
from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Button, Input, Static

from iris_core.model.text import one_line
from iris_core.procedures.events import STOP
from iris_tui.keymap import ESCAPE
from iris_tui.widgets.line_input import LineInput

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from iris_core.procedures.events import Gate

WORDS = {"approve": "Approve", "skip": "Skip it", "stop": "Stop the rollout", "roll back": "Roll back …"}

BUTTONS: Final = 63
"""Columns that all of them take side by side."""


class NameInput(LineInput):
    """The box for the name; Enter goes on at once, not by a message: the next key may already be on its way."""

    async def action_submit(self) -> None:
        self.query_ancestor(GatePanel).entered()


class GateButton(Button):
    """A press answers the question at which it was made, never one that has come since."""

    pressed_at: Gate | None = None

    def press(self) -> Self:
        self.pressed_at = self.query_ancestor(GatePanel).gate
        return super().press()


class GatePanel(VerticalScroll):
    """Shows one gate at a time; `show(None)` hides it."""

    DEFAULT_CSS = """
    GatePanel { height: auto; max-height: 60%; border-top: solid $warning; padding: 0 1; display: none; }
    GatePanel #rollout-asks { text-style: bold; }
    GatePanel #rollout-command { color: $text-muted; }
    GatePanel #rollout-typed { layout: horizontal; height: 1; }
    GatePanel #rollout-typed Static { width: auto; }
    GatePanel #rollout-typed.-stacked { layout: vertical; height: auto; }
    GatePanel #rollout-typed.-stacked Static { width: 1fr; }
    GatePanel Input { border: none; padding: 0; height: 1; width: 1fr; background: $surface; }
    GatePanel #rollout-buttons { height: 1; }
    GatePanel #rollout-buttons.-stacked { layout: vertical; height: auto; }
    GatePanel Button { margin-right: 2; min-width: 19; }
    GatePanel Button:focus { text-style: bold reverse; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(ESCAPE, "leave", show=False),
        Binding("right", "button(1)", show=False),
        Binding("left", "button(-1)", show=False),
        Binding("down", "app.focus_next", show=False),
        Binding("up", "app.focus_previous", show=False),
    ]

    class Answered(Message):
        """The operator chose."""

        def __init__(self, gate: Gate, choice: str, typed: str) -> None:
            super().__init__()
            self.gate, self.choice, self.typed = gate, choice, typed

    class Left(Message):
        """The operator went back to the lines."""

    def __init__(self) -> None:
        super().__init__(can_focus=False)
        self.gate: Gate | None = None
        self._sure = False
        self._key = ""
        self._wanted = ""

    def compose(self) -> ComposeResult:
        yield Static("", id="rollout-asks", markup=False)
        yield Static("", id="rollout-effects", markup=False)
        yield Static("", id="rollout-command", markup=False)
        with Horizontal(id="rollout-typed"):
            yield Static("", id="rollout-wanted", markup=False)
            yield NameInput(id="rollout-name", compact=True)
        with Horizontal(id="rollout-buttons"):
            yield GateButton("", id="rollout-yes", variant="error", compact=True)
            yield GateButton("", id="rollout-skip", compact=True)
            yield GateButton("", id="rollout-stop", compact=True)

    def show(self, gate: Gate | None, command: str = "", key: str = "") -> None:
        """Show a gate; the same one again changes nothing, least of all what has been typed. `key` goes to it from the lines."""
        if gate is self.gate:
            return
        had = self.screen.focused is not None and self in self.screen.focused.ancestors_with_self
        self.gate = gate
        self.display = gate is not None
        if had:
            # What is pressed next was meant for the question before: at this one it would fall on whichever button has the focus.
            self.screen.set_focus(None)
            self.post_message(self.Left())
        if gate is None:
            return
        self._sure = False
        self.query_one("#rollout-asks", Static).update(one_line(f"{gate.title}?"))
        self.border_title = Content(one_line(f"{gate.title}?"))  # stays in sight where the lines are scrolled away
        said = [f"• {one_line(line)}" for line in gate.effects] + [f"undo: {one_line(line)}" for line in gate.undo]
        self.query_one("#rollout-effects", Static).update("\n".join(said))
        self.query_one("#rollout-command", Static).update(f"same as: {one_line(command)}")
        self.query_one("#rollout-typed").display = gate.tier >= 3
        self._key = key
        self._ask()
        self.query_one("#rollout-name", NameInput).value = ""
        self.query_one("#rollout-yes", Button).label = WORDS[gate.approving[0]]
        self.query_one("#rollout-skip", Button).label = WORDS["skip"]
        self.query_one("#rollout-skip").display = "skip" in gate.choices
        self.query_one("#rollout-stop", Button).label = WORDS[STOP]
        self._open()
        self.scroll_home(animate=False)

    def take_focus(self) -> None:
        """To what is asked for first; never to a button that approves."""
        if self.gate is not None:
            # At once: what is typed next is meant for it.
            self.screen.set_focus(self.query_one("#rollout-name" if self.gate.tier >= 3 else "#rollout-stop"))
            self.call_after_refresh(self._bring)

    def _bring(self) -> None:
        """What is asked for into sight; the buttons with it where there is room for both."""
        self.query_one("#rollout-buttons").scroll_visible(animate=False, immediate=True)
        if self.gate is not None and self.gate.tier >= 3:
            self.query_one("#rollout-typed").scroll_visible(animate=False, immediate=True)

    def _ask(self) -> None:
        if self.gate is not None:
            self._want(f"{self._key}, then type {one_line(self.gate.name)} and Enter twice to approve: ")

    def _want(self, words: str) -> None:
        """Says what is to be typed, beside the box; above it where the box would not hold the name."""
        self._wanted = words
        self.query_one("#rollout-wanted", Static).update(words)
        self._fit()

    def _fit(self) -> None:
        name = one_line(self.gate.name) if self.gate is not None else ""
        width = self.content_size.width
        self.query_one("#rollout-typed").set_class(cell_len(self._wanted) + cell_len(name) + 1 > width, "-stacked")
        self.query_one("#rollout-buttons").set_class(width < BUTTONS, "-stacked")

    def on_resize(self) -> None:
        self._fit()
        focused = self.screen.focused
        if focused is not None and self in focused.ancestors:
            self.call_after_refresh(focused.scroll_visible, animate=False)

    def _open(self) -> None:
        gate = self.gate
        typed = self.query_one("#rollout-name", NameInput).value
        self.query_one("#rollout-yes", Button).disabled = gate is None or (gate.tier >= 3 and typed != gate.name)

    @on(Input.Changed)
    def _typed(self) -> None:
        self._ask()
        self._open()
        # What is typed is seen, also after the lines above it were read.
        self.query_one("#rollout-name", NameInput).scroll_visible(animate=False)

    def entered(self) -> None:
        """Enter in the box only goes on to the button; where that is shut, what is typed is said to be another word."""
        self._open()
        yes = self.query_one("#rollout-yes", Button)
        if not yes.disabled:
            self.screen.set_focus(yes)
        elif self.gate is not None:
            self._want(f"that is not {one_line(self.gate.name)}: type exactly this to approve: ")

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        gate, button = self.gate, event.button
        if gate is None or not isinstance(button, GateButton) or button.pressed_at is not gate:
            return
        if button.id == "rollout-yes":
            self._answer(gate.approving[0])
        elif button.id == "rollout-skip":
            self._answer("skip")
        elif self._sure:
            self._answer(STOP)
        else:
            self._sure = True
            button.label = "Stop: press again"

    def _answer(self, choice: str) -> None:
        gate = self.gate
        if gate is not None:
            self.post_message(self.Answered(gate, choice, self.query_one("#rollout-name", NameInput).value))

    def action_button(self, by: int) -> None:
        """To the next button, or the one before; a line of text moves its own cursor with these keys."""
        if by > 0:
            self.screen.focus_next(Button)
        else:
            self.screen.focus_previous(Button)

    def action_leave(self) -> None:
        """Back to the lines; the question stands."""
        self.post_message(self.Left())
