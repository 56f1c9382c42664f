"""A titled pane that is always in one of five states and says which.

loading: nothing is here yet. empty: there is nothing, and what to do about it. partial: some is here, more is coming or was
left out. stale: what is here is old, and how old. error: nothing could be had, why, and how to try again. Data once shown is
never taken away by a failure: then the pane is stale, not in error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Final

from textual.containers import Vertical
from textual.geometry import Size
from textual.reactive import Reactive

from iris_core.live.wording import Tone
from iris_tui.drawing import Run, cut_runs, strip_of, width_of
from iris_tui.widgets.line import Line, Painted

if TYPE_CHECKING:
    from rich.style import Style
    from textual.app import ComposeResult
    from textual.strip import Strip
    from textual.widget import Widget


class State(Enum):
    """How complete and how true the content is."""

    LOADING = "loading"
    EMPTY = "empty"
    READY = "ready"
    PARTIAL = "partial"
    STALE = "stale"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Status:
    """The state and the words for it. `lines` fill the pane when it has no content: what is so, and what to do."""

    state: State
    note: str = ""
    lines: tuple[str, ...] = ()

    @property
    def hides_content(self) -> bool:
        """Whether words stand in place of the content."""
        return self.state in (State.LOADING, State.EMPTY, State.ERROR)


LEAST_NOTE: Final = 12
"""Cells that the state's own words keep in any case: `STALE 42s: …`."""


class PaneTitle(Line):
    """The title line of a pane. Where there is little room the state's own words are cut first: what is shown, under which filter, and how
    much of it stays to be read."""

    noted = False
    """Whether the right side begins with the state's own words."""

    def right_side(self, width: int) -> list[Run]:
        note, counts = self._right[:1], self._right[1:]
        over = width_of(self._left) + 1 + width_of(self._right) - width
        if not self.noted or over <= 0:
            return super().right_side(width)
        said = [Run(note[0].text.rstrip(), note[0].tone)]
        room = max(width_of(said) - over, width - width // 3 - width_of(counts) - 3, LEAST_NOTE)
        return cut_runs([*cut_runs(said, room), Run("  "), *counts], width)

    def over(self) -> Style:
        return self.paint.surface


class Message(Painted):
    """Words in the middle of an empty pane; the first line has the tone, the others are dim."""

    DEFAULT_CSS = """
    Message { height: 1fr; width: 1fr; display: none; }
    """

    virtual_size = Reactive(Size(0, 0), layout=False)

    def __init__(self) -> None:
        super().__init__()
        self._lines: tuple[str, ...] = ()
        self._tone = Tone.PLAIN

    def show(self, lines: tuple[str, ...], tone: Tone) -> None:
        """Change the words."""
        if (lines, tone) != (self._lines, self._tone):
            self._lines, self._tone = lines, tone
            self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        rows = list(self._rows(max(width - 4, 1)))
        at = y - max((self.size.height - len(rows)) // 3, 0)
        if 0 <= at < len(rows):
            first, text = rows[at]
            runs = [Run("  "), Run(text, self._tone if first else Tone.DIM)]
        else:
            runs = []
        return strip_of(runs, width, self.paint)

    def _rows(self, width: int) -> Iterator[tuple[bool, str]]:
        """The lines, broken at blanks where they are too long."""
        for number, line in enumerate(self._lines):
            row = ""
            for word in line.split(" "):
                if row and len(row) + 1 + len(word) > width:
                    yield number == 0, row
                    row = word
                else:
                    row = f"{row} {word}" if row else word
            yield number == 0, row


_TONES = {
    State.LOADING: Tone.DIM,
    State.EMPTY: Tone.PLAIN,
    State.READY: Tone.DIM,
    State.PARTIAL: Tone.WAIT,
    State.STALE: Tone.WARN,
    State.ERROR: Tone.BAD,
}


class Pane(Vertical):
    """Title, content, and the words that replace the content. `content` stays mounted: it keeps its place."""

    DEFAULT_CSS = """
    Pane { height: 1fr; }
    """
    ALLOW_MAXIMIZE: ClassVar[bool | None] = False

    # It does not scroll, and as for `Line` a new size needs no second layout.
    virtual_size = Reactive(Size(0, 0), layout=False)

    def __init__(self, *content: Widget, id: str | None = None) -> None:
        super().__init__(id=id)
        self._content = content
        self.title = PaneTitle()
        self.message = Message()
        self.status = Status(State.LOADING)

    def compose(self) -> ComposeResult:
        yield self.title
        yield from self._content
        yield self.message

    def update_title(self, left: Sequence[Run], right: Sequence[Run] = ()) -> None:
        """Title on the left; on the right counts, and the state's own words before them."""
        note = [Run(f"{self.status.note}  ", _TONES[self.status.state])] if self.status.note else []
        self.title.noted = bool(note)
        self.title.show([Run(" "), *left], [*note, *right, Run(" ")])

    def set_status(self, status: Status) -> None:
        """Change the state. Content appears and disappears only when it must."""
        if status == self.status and self.is_mounted:
            self._apply(status)
            return
        self.status = status
        self._apply(status)

    def _apply(self, status: Status) -> None:
        hidden = status.hides_content
        self.message.show(status.lines or (status.note,), _TONES[status.state])
        if self.message.display != hidden:
            self.message.display = hidden
        for widget in self._content:
            if widget.display == hidden:
                widget.display = not hidden
