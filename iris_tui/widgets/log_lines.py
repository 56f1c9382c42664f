"""The lines of a log on the screen: where the reader is, what is drawn, and how that moves.

The place is the number of the line at the top, and with wrapping which row of it: rows are counted of the lines on the screen alone,
so a view of ten million lines scrolls like one of ten. A line that is not here yet is a dim placeholder; scrolling never waits. The
pointer is the line that keys are about; it is there when the reader has moved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from rich.text import Text
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from iris_core.live.wording import Tone
from iris_tui.drawing import Run, strip_of, wrapped
from iris_tui.keymap import bindings
from iris_tui.scope import ActionHost
from iris_tui.widgets.line import Painted
from iris_tui.widgets.line_view import LEAST_ROOM
from iris_tui.widgets.log_drawing import Gutter, Times, drawn, shortened, time_text, tone_of
from iris_tui.widgets.scrolled import Scrolled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.style import Style
    from textual.events import Click, MouseScrollDown, MouseScrollUp
    from textual.scrollbar import ScrollDown, ScrollTo, ScrollUp

    from iris_core.live.clock import Clock
    from iris_core.live.log_lines import LogLine
    from iris_core.live.log_view import LogView
    from iris_core.model.regex import Compiled
    from iris_tui.actions import Action

SIDE_STEP = 20
"""Cells that one step to the side scrolls."""
WHEEL_ROWS = 3


class Row(NamedTuple):
    """A row of the screen: which line, and which row of that line."""

    number: int
    part: int


class LogLines(ActionHost, Scrolled, Painted, can_focus=True, inherit_bindings=False):
    """Draws a `LogView`. Call `renew` after it changed."""

    DEFAULT_CSS = """
    LogLines { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; scrollbar-gutter: stable; }
    """
    SCOPES: ClassVar[tuple[str, ...]] = ("log",)
    BINDINGS = bindings("log")

    class Moved(Message):
        """The reader moved, and so paused or went to the end."""

    def __init__(self, view: LogView, clock: Clock) -> None:
        super().__init__()
        self.view = view
        self.wrap = False
        self.times: Times = "off"
        self.left = 0
        self.top = 0
        self.part = 0
        self.pointer: int | None = None
        self.marks: set[int] = set()
        self.needle: Compiled | None = None
        """What is found and marked."""
        self.matched: Compiled | None = None
        """What the filter matched."""
        self.origins = Gutter(view.sources)
        self._clock = clock
        self._texts: dict[int, Text] = {}
        self._rows: list[Row] = []
        self._rows_for: tuple[object, ...] = ()
        self._height_seen = 0

    def handler(self, action: Action) -> Callable[..., Any]:
        """Moving is ours, everything else the pane does."""
        from iris_tui.widgets.log_commands import LogCommands

        own = getattr(self, f"do_{action.name}", None)
        pane: LogCommands = self.query_ancestor(LogCommands)
        found: Callable[..., Any] = own if own is not None else getattr(pane, f"do_{action.name}")
        return found

    # --- the place ---------------------------------------------------------------------------------------------------

    @property
    def height(self) -> int:
        """Rows of the screen."""
        return self.size.height

    def renew(self, *, shifted: int = 0) -> None:
        """The view changed; the numbers of all lines grew by `shifted`."""
        if shifted:
            self.top += shifted
            self.marks = {number + shifted for number in self.marks}
            if self.pointer is not None:
                self.pointer += shifted
        self._texts.clear()
        self._again()
        self.refresh()

    def _again(self) -> None:
        """Stay at the end, or where the reader is, as far as that goes."""
        self._rows_for = ()
        if self.view.following:
            self.show_end()
        else:
            self._place(self.top, self.part)
        self.want()

    def renumber(self) -> None:
        """Other lines stand under the same numbers now."""
        self.marks.clear()
        self.pointer = None if self.view.following else self.view.top
        self.origins = Gutter(self.view.sources)
        self.part = 0
        self._texts.clear()
        self._rows_for = ()
        if not self.view.following:
            self._place(self.view.top - self.height // 3, 0)

    def want(self) -> None:
        """Tell the view what is looked at."""
        rows = self.rows()
        first = rows[0].number if rows else 0
        self.view.want(first, rows[-1].number if rows else first)
        if self.pointer is not None:
            self.view.top = self.pointer

    def show_end(self) -> None:
        """Put the last line at the bottom."""
        self._place(*self._end())

    def show(self, number: int) -> None:
        """Bring a line onto the screen, and the pointer to it."""
        number = min(max(number, 0), max(self.view.count - 1, 0))
        self.pointer = number
        rows = self.rows()
        if not rows or not (rows[0].number <= number <= rows[-1].number) or rows[0] == Row(number, 1):
            self._place(number - self.height // 3, 0)
        elif rows[-1].number == number and rows[-1].part < self._height(number) - 1:
            self._place(*self._forward(Row(self.top, self.part), self._height(number) - 1 - rows[-1].part))
        self.refresh()

    @property
    def at_end(self) -> bool:
        """Whether the last line is on the screen, whole."""
        return Row(self.top, self.part) >= self._end()

    def _place(self, top: int, part: int) -> None:
        end = self._end()
        place = max(min(Row(top, part), end), Row(0, 0))
        if place != (self.top, self.part):
            self.top, self.part = place
            self.refresh()
        self.virtual_size = Size(max(self.room, 1), end.number + self.height)
        self.scroll_to(y=self.top, animate=False, force=True, immediate=True)

    def _on_scroll_to(self, event: ScrollTo) -> None:
        """The scrollbar was dragged."""
        event.stop()
        event.prevent_default()
        if event.y is not None:
            self._place(round(event.y), 0)
            self._moved(to_end=self.at_end)

    def _on_scroll_up(self, event: ScrollUp) -> None:
        event.stop()
        event.prevent_default()
        self.do_page_up()

    def _on_scroll_down(self, event: ScrollDown) -> None:
        event.stop()
        event.prevent_default()
        self.do_page_down()

    def _end(self) -> Row:
        """The row at the top of the screen when the last line is at its bottom."""
        last = self.view.count - 1
        if not self.wrap:
            return Row(max(last - self.height + 1, 0), 0)
        left, number = self.height, last
        while number >= 0:
            rows = self._height(number)
            if rows >= left:
                return Row(number, rows - left)
            left -= rows
            number -= 1
        return Row(0, 0)

    def _forward(self, row: Row, rows: int) -> Row:
        number, part = row
        while rows > 0 and number < self.view.count:
            left = self._height(number) - 1 - part
            if rows <= left:
                return Row(number, part + rows)
            rows -= left + 1
            number, part = number + 1, 0
        return Row(number, part)

    def _back(self, row: Row, rows: int) -> Row:
        number, part = row
        while rows > part and number > 0:
            rows -= part + 1
            number -= 1
            part = self._height(number) - 1
        return Row(number, max(part - rows, 0))

    def rows(self) -> list[Row]:
        """What stands on the screen."""
        if self.height != self._height_seen:
            # It is drawn with a new size before it is told of it: the end is at the bottom in the first picture, too.
            self._height_seen = self.height
            if self.view.following:
                self.top, self.part = self._end()
        key = (self.top, self.part, self.height, self.room, self.wrap, self.times, self.view.version)
        if key != self._rows_for:
            self._rows, self._rows_for = list(self._seen()), key
            keys = [line.key for row in self._rows if (line := self.view.line(row.number)) is not None]
            self.origins.look(keys)
        return self._rows

    def _seen(self) -> Iterator[Row]:
        number, part, left = self.top, self.part, self.height
        while left > 0 and number < self.view.count:
            rows = self._height(number)
            for place in range(part, rows):
                yield Row(number, place)
                left -= 1
                if not left:
                    return
            number, part = number + 1, 0

    def _height(self, number: int) -> int:
        if not self.wrap:
            return 1
        return len(self._chunks(number))

    # --- moving ------------------------------------------------------------------------------------------------------

    def _moved(self, *, to_end: bool = False) -> None:
        # At once: a flush in between would jump to the end.
        self.view.follow(to_end)
        self._rows_for = ()
        if to_end:
            self.pointer = None
            self.show_end()
        self.want()
        self.refresh()
        self.post_message(self.Moved())

    def step(self, rows: int) -> None:
        """The pointer goes up or down by lines, and the screen with it."""
        last = self.view.count - 1
        if self.pointer is None:
            if rows > 0:
                return
            self.pointer = last
        wanted = self.pointer + rows
        self.show(wanted)
        self._moved(to_end=wanted >= last and rows > 0)

    def scroll_rows(self, rows: int) -> None:
        """The screen goes up or down by rows; the pointer stays on it."""
        here = Row(self.top, self.part)
        self._place(*(self._forward(here, rows) if rows > 0 else self._back(here, -rows)))
        seen = self.rows()
        if seen and self.view.count:
            at = self.pointer if self.pointer is not None else seen[-1 if rows < 0 else 0].number
            self.pointer = min(max(at, seen[0].number), seen[-1].number)
        is_last = bool(seen) and rows > 0 and self.at_end
        self._moved(to_end=is_last)

    def do_up(self) -> None:
        self.step(-1)

    def do_down(self) -> None:
        self.step(1)

    def do_page_up(self) -> None:
        self.scroll_rows(-max(self.height - 1, 1))

    def do_page_down(self) -> None:
        self.scroll_rows(max(self.height - 1, 1))

    def do_left(self) -> None:
        self.left = max(self.left - SIDE_STEP, 0)
        self.refresh()

    def do_right(self) -> None:
        if not self.wrap:
            self.left += SIDE_STEP
            self.refresh()

    def do_wrap(self) -> None:
        self.wrap = not self.wrap
        self.left = self.part = 0
        self.renew()

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        event.stop()
        event.prevent_default()
        self.scroll_rows(-WHEEL_ROWS)

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        event.stop()
        event.prevent_default()
        self.scroll_rows(WHEEL_ROWS)

    def on_click(self, event: Click) -> None:
        """The line that was clicked is the one that keys are about."""
        rows = self.rows()
        if event.y < len(rows):
            self.show(rows[event.y].number)
            self._moved()

    def on_resize(self) -> None:
        self._again()

    # --- drawing -----------------------------------------------------------------------------------------------------

    def prefix(self, number: int, line: LogLine | None) -> list[Run]:
        """What stands before a line: the pointer or a mark, who wrote it, when."""
        glyphs = getattr(self.app, "glyphs", None)
        if number == self.pointer:
            sign = Run(glyphs.cursor if glyphs is not None else ">", Tone.WARN)
        elif number in self.marks:
            sign = Run(glyphs.mark if glyphs is not None else "*", Tone.WARN)
        else:
            sign = Run("~" if line is not None and line.breaks else " ", Tone.DIM)
        runs = [sign]
        if line is not None and not line.gone:
            runs += self.origins.runs(line.key)
            if self.times != "off":
                runs.append(Run(time_text(line.epoch_ms, self.times, self._clock.now_ms()), Tone.DIM))
        return shortened(runs, self.room)

    def _text(self, number: int) -> Text:
        found = self._texts.get(number)
        if found is None:
            look = self.paint
            hit = look.current_hit if number == self.pointer else look.hit
            marks = ((self.matched, look.mark), (self.needle, hit))
            found = self._texts[number] = drawn(self.view.line(number), marks)
        return found

    def _chunks(self, number: int) -> list[str]:
        """The rows of a wrapped line."""
        before = sum(cell_len(run.text) for run in self.prefix(number, self.view.line(number)))
        return wrapped(self._text(number).plain, max(self.room - before, LEAST_ROOM))

    def render_line(self, y: int) -> Strip:
        width, rows = self.room, self.rows()
        if y >= len(rows):
            return strip_of([], width, self.paint)
        number, part = rows[y]
        line = self.view.line(number)
        look = self.paint
        over = look.idle_cursor if number == self.pointer else None
        base = look.base + over if over is not None else look.base
        body = base + look.tones[tone_of(line)]
        before = self.prefix(number, line)
        taken = sum(cell_len(run.text) for run in before)
        if part:
            segments = [Segment(" " * taken, base)]
        else:
            segments = [Segment(run.text, base + look.tones[run.tone]) for run in before]
        text = self._text(number)
        if self.wrap:
            chunks = self._chunks(number)
            start = sum(len(chunk) for chunk in chunks[:part])
            text = text[start : start + len(chunks[part].rstrip())] if part < len(chunks) else Text()
        strip = Strip(list(self._segments(text, body)))
        if self.left and not self.wrap:
            strip = strip.crop(self.left)
        whole = Strip([*segments, *strip])
        if whole.cell_length > width:
            whole = Strip([*whole.crop(0, width - 1), Segment("›", base + look.tones[Tone.DIM])])
        return whole.adjust_cell_length(width, base)

    def _segments(self, text: Text, base: Style) -> Iterator[Segment]:
        """The text in pieces of one style; what a workload linked is text and no link."""
        for piece, style, _ in text.render(self.app.console):
            if piece:
                yield Segment(piece, base + (style.update_link(None) if style is not None else base))
