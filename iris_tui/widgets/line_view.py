"""Lines of text to read: scroll, wrap, find. The lines belong to somebody else; only those on the screen are drawn.

Colours that a workload printed are kept, every other control sequence is not (iris_core.model.text). Nothing is markup. Wrapping
is a matter of drawing, at words and under where the line begins: a line stays one line for counting and finding. Find looks through the lines that are here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from rich.ansi import AnsiDecoder
from rich.cells import cell_len
from rich.segment import Segment
from rich.text import Text
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from iris_core.live.wording import Tone
from iris_core.model.text import strip_to_sgr
from iris_tui.drawing import Run, strip_of, wrapped
from iris_tui.keymap import bindings
from iris_tui.scope import ActionHost
from iris_tui.widgets.line import Painted

if TYPE_CHECKING:
    from rich.style import Style

    from iris_tui.handing_over import HandingOver

SIDE_STEP = 20
"""Cells that one step to the side scrolls."""
LEAST_ROOM = 8
"""Cells that a wrapped line gets at least."""


def safe_text(text: str) -> Text:
    """A text with its colours and nothing else that could steer a terminal; links are dropped."""
    clean = strip_to_sgr(text)
    if "\x1b" not in clean:
        return Text(clean)
    return AnsiDecoder().decode_line(clean)


def _hang(text: str, room: int) -> int:
    """How far the rows of a wrapped line stand in after the first: as the line does, where that leaves enough room."""
    return min(len(text) - len(text.lstrip(" ")), room // 3)


class LineView(ActionHost, ScrollView, Painted, can_focus=True, inherit_bindings=False):
    """Subclasses give the lines: `count()`, `plain(n)`, `prefix(n)` and `tone(n)`. Call `changed()` after they changed."""

    DEFAULT_CSS = """
    LineView { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; scrollbar-gutter: stable; }
    """
    SCOPES: ClassVar[tuple[str, ...]] = ("text",)

    class Scrolled(Message):
        """The reader moved."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.wrap = False
        self.left = 0
        self.needle = ""
        self.hit = -1
        """Line of the current hit, -1 = none."""
        self._starts: list[int] = [0]
        """With wrap: the first screen row of each line, and the end."""
        self._starts_for: tuple[int, int] = (-1, -1)

    # --- the lines ---------------------------------------------------------------------------------------------------

    def count(self) -> int:
        """How many lines there are."""
        raise NotImplementedError

    def source(self, number: int) -> str:
        """The text of a line, as it was written."""
        raise NotImplementedError

    def prefix(self, number: int) -> Sequence[Run]:
        """What stands before the line."""
        return ()

    def tone(self, number: int) -> Tone:
        """The tone of the line where it has no colours of its own."""
        return Tone.PLAIN

    def changed(self, *, shifted: int = 0) -> None:
        """The lines changed; `shifted` of them were put on top (negative: let go of there)."""
        top = self.top_line() + shifted
        if self.hit >= 0:
            self.hit = max(self.hit + shifted, -1)
        if shifted:
            self._starts_for = (-1, -1)
        self._measure()
        if shifted:
            self.scroll_to(y=max(self._row_of(top), 0), animate=False, force=True)
        self.refresh()

    def _measure(self) -> None:
        count, width = self.count(), max(self.room, 1)
        if self.wrap:
            key = (width, 0)
            if self._starts_for != key or len(self._starts) > count + 1:
                self._starts, self._starts_for = [0], key
            for number in range(len(self._starts) - 1, count):
                self._starts.append(self._starts[-1] + self._height(number, width))
            rows = self._starts[count]
        else:
            rows = count
        self.virtual_size = Size(width, rows)

    def _height(self, number: int, width: int) -> int:
        before = sum(cell_len(run.text) for run in self.prefix(number))
        room = max(width - before, LEAST_ROOM)
        text = self.source(number)
        if not (text.isascii() and text.isprintable()):
            text = safe_text(text).plain
        return len(wrapped(text, room, _hang(text, room))) if len(text) > room or not text.isascii() else 1

    def _line_at(self, row: int) -> tuple[int, int]:
        """Line and part of it that a screen row shows."""
        if not self.wrap:
            return row, 0
        line = bisect_right(self._starts, row) - 1
        return line, row - self._starts[min(line, len(self._starts) - 1)]

    def _row_of(self, line: int) -> int:
        if not self.wrap:
            return line
        return self._starts[min(max(line, 0), len(self._starts) - 1)]

    # --- moving ------------------------------------------------------------------------------------------------------

    def top_line(self) -> int:
        """The first line on the screen."""
        return self._line_at(self.scroll_offset.y)[0]

    @property
    def at_bottom(self) -> bool:
        """Whether the last line is on the screen."""
        return self.scroll_offset.y + self.size.height >= self.virtual_size.height

    def show_row(self, row: int) -> None:
        """Put a screen row at the top, as far as that goes, without the reader having asked."""
        most = max(self.virtual_size.height - self.size.height, 0)
        self.scroll_to(y=min(max(row, 0), most), animate=False, force=True)

    def show_end(self) -> None:
        """Show the last line, without the reader having asked."""
        self.show_row(self.virtual_size.height)

    def _move(self, row: int) -> None:
        """The reader moved."""
        self.show_row(row)
        self.post_message(self.Scrolled())

    def do_up(self) -> None:
        self._move(self.scroll_offset.y - 1)

    def do_down(self) -> None:
        self._move(self.scroll_offset.y + 1)

    def do_page_up(self) -> None:
        self._move(self.scroll_offset.y - max(self.size.height - 1, 1))

    def do_page_down(self) -> None:
        self._move(self.scroll_offset.y + max(self.size.height - 1, 1))

    def do_top(self) -> None:
        self._move(0)

    def do_bottom(self) -> None:
        self._move(self.virtual_size.height)

    def do_left(self) -> None:
        self.left = max(self.left - SIDE_STEP, 0)
        self.refresh()

    def do_right(self) -> None:
        if not self.wrap:
            self.left += SIDE_STEP
            self.refresh()

    def do_wrap(self) -> None:
        top = self.top_line()
        self.wrap = not self.wrap
        self.left = 0
        self._starts_for = (-1, -1)
        self._measure()
        self.show_row(self._row_of(top))
        self.refresh()

    def on_mouse_scroll_up(self) -> None:
        self._move(self.scroll_offset.y - 3)

    def on_mouse_scroll_down(self) -> None:
        self._move(self.scroll_offset.y + 3)

    def on_resize(self) -> None:
        self._measure()
        self.refresh()
        self.resized()

    def resized(self) -> None:
        """The room changed: a subclass may want another place in the text."""

    # --- find --------------------------------------------------------------------------------------------------------

    def find(self, needle: str) -> None:
        """Highlight a text (case does not matter) and go to the first hit at or below the top."""
        self.needle = needle.lower()
        self.hit = -1
        self.refresh()
        if needle:
            self._seek(self.top_line(), 1)

    def do_next(self) -> None:
        self._seek(self.hit + 1 if self.hit >= 0 else self.top_line(), 1)

    def do_previous(self) -> None:
        self._seek(self.hit - 1 if self.hit >= 0 else self.top_line(), -1)

    def hits(self) -> list[int]:
        """The lines that have the text."""
        if not self.needle:
            return []
        found = []
        for number in range(self.count()):
            text = self.source(number)
            if "\x1b" in text or "\x9b" in text:
                text = safe_text(text).plain
            if self.needle in text.lower():
                found.append(number)
        return found

    def _seek(self, start: int, step: int) -> None:
        found = self.hits()
        if not found:
            self.hit = -1
            self.refresh()
            return
        if step > 0:
            self.hit = next((n for n in found if n >= start), found[0])
        else:
            self.hit = next((n for n in reversed(found) if n <= start), found[-1])
        row = self._row_of(self.hit)
        top = self.scroll_offset.y
        if not top <= row < top + self.size.height:
            self._move(row - self.size.height // 3)
        else:
            self.post_message(self.Scrolled())
        self.refresh()

    # --- drawing -----------------------------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        width = self.room
        row = y + self.scroll_offset.y
        if row >= self.virtual_size.height:
            return strip_of([], width, self.paint)
        number, part = self._line_at(row)
        if number >= self.count():
            return strip_of([], width, self.paint)
        look = self.paint
        base = look.base + look.tones[self.tone(number)]
        before = [] if part else [Segment(run.text, look.base + look.tones[run.tone]) for run in self.prefix(number)]
        indent = sum(cell_len(run.text) for run in self.prefix(number)) if part else 0
        text = self._decorated(number)
        room = max(width - sum(segment.cell_length for segment in before) - indent, LEAST_ROOM)
        if self.wrap:
            hang = _hang(text.plain, room)
            chunks = wrapped(text.plain, room, hang)
            start = sum(len(chunk) for chunk in chunks[:part])
            text = text[start : start + len(chunks[part].rstrip())] if part < len(chunks) else Text()
            indent += hang if part else 0
        segments = [*before, *([Segment(" " * indent, look.base)] if indent else [])]
        body = Strip(list(self._segments(text, base)))
        if self.left and not self.wrap:
            body = body.crop(self.left)
        line = Strip([*segments, *body])
        if line.cell_length > width:
            line = line.crop(0, width - 1)
            line = Strip([*line, Segment("›", look.base + look.tones[Tone.DIM])])
        return line.adjust_cell_length(width, look.base)

    def _decorated(self, number: int) -> Text:
        """The line with its hits marked."""
        text = safe_text(self.source(number))
        if self.needle:
            style = self.paint.current_hit if number == self.hit else self.paint.hit
            plain, start = text.plain.lower(), 0
            while (at := plain.find(self.needle, start)) >= 0:
                text.stylize(style, at, at + len(self.needle))
                start = at + len(self.needle)
        return text

    def _segments(self, text: Text, base: Style) -> list[Segment]:
        """The text in pieces of one style; what a workload linked is text and no link."""
        return [
            Segment(piece, base + (style.update_link(None) if style is not None else base))
            for piece, style, _ in text.render(self.app.console)
            if piece
        ]


class TextView(LineView):
    """Lines that are given once: a description, a spec, help."""

    BINDINGS = bindings("text")

    def __init__(self, *, id: str | None = None, title: str = "page") -> None:
        """`title` names it where it is copied or saved."""
        super().__init__(id=id)
        self.title = title
        self._lines: list[tuple[str, Tone]] = []

    def show(self, lines: Sequence[tuple[str, Tone]]) -> None:
        """Replace the lines."""
        self._lines = list(lines)
        self._starts_for = (-1, -1)
        self.changed()

    @property
    def text(self) -> str:
        """All lines, for tests."""
        return "\n".join(line for line, _ in self._lines)

    # Handing the text over is the app's business.

    @property
    def _app(self) -> HandingOver:
        return cast("HandingOver", self.app)

    @property
    def plain(self) -> str:
        """All lines without anything that could steer a terminal."""
        return "\n".join(safe_text(line).plain for line, _ in self._lines)

    def do_copy(self) -> None:
        self._app.copy_text(self.plain, "the page")

    def do_save(self, name: str) -> None:
        self._app.save_text(self.plain, self.title, name)

    def do_pager(self) -> None:
        self._app.open_text(self.plain, self.title, editor=False)

    def do_editor(self) -> None:
        self._app.open_text(self.plain, self.title, editor=True)

    def count(self) -> int:
        return len(self._lines)

    def source(self, number: int) -> str:
        return self._lines[number][0]

    def tone(self, number: int) -> Tone:
        return self._lines[number][1]
