"""A question of a rollout that takes another one's place: what was pressed before answers only what was seen then."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from textual.app import App, ComposeResult
from textual.widgets import Button, Input

from iris_core.procedures.events import Gate
from screens.rollout_gate import GatePanel

if TYPE_CHECKING:
    from textual.pilot import Pilot

pytestmark = pytest.mark.asyncio

FIRST = Gate(id="tree", title="Ship tree", tier=1, name="222222222222", choices=("approve", "skip", "stop"))
LATER = Gate(id="h1/restart", title="Restart h1", tier=3, name="h1", choices=("approve", "skip", "stop"))
PLAIN = Gate(id="h1/next", title="Go on", tier=1, name="h1", choices=("approve", "skip", "stop"))
BUTTONS = ("yes", "skip", "stop")


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        await pilot.pause(0.01)


class Asking(App[None]):
    """The panel alone, and what was answered."""

    AUTO_FOCUS = None

    def __init__(self) -> None:
        super().__init__()
        self.panel = GatePanel()
        self.answers: list[tuple[str, str]] = []
        self.left = 0

    def compose(self) -> ComposeResult:
        yield self.panel

    def on_gate_panel_answered(self, event: GatePanel.Answered) -> None:
        self.answers.append((event.gate.id, event.choice))

    def on_gate_panel_left(self) -> None:
        self.left += 1

    def button(self, name: str) -> Button:
        return self.panel.query_one(f"#rollout-{name}", Button)


@pytest.mark.parametrize("after", [LATER, PLAIN], ids=["with a name to type", "without one"])
@pytest.mark.parametrize("name", BUTTONS)
async def test_a_question_that_takes_anothers_place_has_no_button_under_the_next_key(name: str, after: Gate) -> None:
    app = Asking()
    async with app.run_test() as pilot:
        app.panel.show(FIRST)
        app.screen.set_focus(app.button(name))
        await until(pilot, lambda: app.focused is app.button(name))
        app.panel.show(after)
        assert app.focused is None
        await pilot.press("enter", "enter", "space")
        await until(pilot, lambda: app.left == 1)
        assert app.answers == []


@pytest.mark.parametrize("after", [LATER, PLAIN, None], ids=["with a name to type", "without one", "none"])
@pytest.mark.parametrize("name", BUTTONS)
async def test_a_press_never_answers_a_question_that_came_since(name: str, after: Gate | None) -> None:
    app = Asking()
    async with app.run_test() as pilot:
        app.panel.show(FIRST)
        app.button(name).press()
        app.button(name).press()  # the second one would stop the rollout
        app.panel.show(after)
        app.panel.show(LATER)
        await pilot.press("x")
        assert app.answers == []
        # It is as good as new: what is pressed at it counts.
        app.button("skip").press()
        await until(pilot, lambda: app.answers == [("h1/restart", "skip")])


async def test_what_is_being_typed_does_not_go_on_into_the_next_question() -> None:
    app = Asking()
    async with app.run_test() as pilot:
        app.panel.show(LATER)
        app.panel.take_focus()
        await pilot.press("h")
        app.panel.show(Gate(id="h2/restart", title="Restart h2", name="h1"))
        await pilot.press("1", "enter", "enter")
        assert app.panel.query_one("#rollout-name", Input).value == "" and app.answers == []
