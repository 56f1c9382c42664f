"""The parts of a page in one line: number, name, and a word on what is in it. The shown one stands in brackets, not in a colour alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.message import Message

from iris_core.live.wording import Tone
from iris_tui.drawing import Run
from iris_tui.widgets.line import Line

if TYPE_CHECKING:
    from rich.style import Style
    from textual import events


class TabBar(Line):
    """Set `show_tabs`. A click is a `Chosen` message."""

    class Chosen(Message):
        """A part was clicked."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    def __init__(self) -> None:
        super().__init__()
        self._ends: list[int] = []

    def over(self) -> Style:
        return self.paint.surface

    def show_tabs(self, names: Sequence[tuple[str, Tone]], shown: int) -> None:
        """Names with the tone of what is in them, and which one is shown."""
        runs: list[Run] = []
        self._ends = []
        at = 0
        for number, (name, tone) in enumerate(names):
            here = number == shown
            text = f"[{number + 1} {name}]" if here else f" {number + 1} {name} "
            bad = tone in (Tone.BAD, Tone.WARN)
            runs.append(Run(text, tone if bad else Tone.BUSY if here else Tone.DIM))
            at += cell_len(text)
            self._ends.append(at)
        self.show(runs)

    def on_click(self, event: events.Click) -> None:
        number = next((number for number, end in enumerate(self._ends) if event.x < end), -1)
        if number >= 0:
            self.post_message(self.Chosen(number))
