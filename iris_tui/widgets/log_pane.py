"""The log of a job, a task or an attempt: followed, paused, filtered on the server, searched here.

FOLLOW and PAUSED are words. Moving up pauses; what comes meanwhile is counted, never dropped; the last line resumes.
The pane draws a `LogView` (iris_core.live.logs), which fetches; it asks for older or newer lines before the reader gets
there. A filter that is wrong or could not be had leaves the old lines, and says which filter they are of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar, Literal

from textual.message import Message

from iris_core.contracts import IrisError
from iris_core.live.logs import LogFilter, LogView
from iris_core.live.watch import Link
from iris_core.live.wording import Tone
from iris_core.model.regex import compile_content_regex
from iris_core.model.resources import format_age
from iris_core.model.text import one_line
from iris_tui.drawing import Run, counted
from iris_tui.keymap import bindings
from iris_tui.widgets.line_view import LineView
from iris_tui.widgets.pane import Pane, State, Status
from iris_tui.widgets.prompt import Question

if TYPE_CHECKING:
    from iris_core.live.clock import Clock
    from iris_tui.widgets.prompt import Prompt

AHEAD = 200
"""Rows from the edge of what is loaded at which more is fetched."""
Times = Literal["off", "UTC", "local"]
_TIMES: tuple[Times, ...] = ("off", "UTC", "local")
_LEVELS = {1: Tone.DIM, 3: Tone.WARN, 4: Tone.BAD, 5: Tone.BAD}
"""Tones of log levels; INFO and unknown ones are plain."""


class LogLines(LineView):
    """The lines themselves."""

    SCOPES: ClassVar[tuple[str, ...]] = ("log",)
    BINDINGS = bindings("log")

    def __init__(self, view: LogView) -> None:
        super().__init__()
        self.view = view
        self.times: Times = "off"

    def count(self) -> int:
        return len(self.view.lines)

    def source(self, number: int) -> str:
        line = self.view.lines[number]
        if line.gap:
            return f"── {line.gap:,} lines are lost{': ' + line.text if line.text else ''} ──"
        return f"{line.text} …(+{line.more:,} characters)" if line.more else line.text

    def tone(self, number: int) -> Tone:
        line = self.view.lines[number]
        if line.gap:
            return Tone.WARN
        if line.source in ("iris", "setup"):
            return Tone.BUSY
        return _LEVELS.get(line.level, Tone.PLAIN)

    def prefix(self, number: int) -> Sequence[Run]:
        line = self.view.lines[number]
        runs: list[Run] = []
        if self.times != "off":
            zone = UTC if self.times == "UTC" else None
            moment = datetime.fromtimestamp(line.epoch_ms / 1000, zone)
            runs.append(Run(f"{moment:%H:%M:%S}.{line.epoch_ms % 1000:03d} ", Tone.DIM))
        origin = one_line(line.key.removeprefix(self.view.source.key).lstrip("/"))
        if origin and origin != line.key:
            runs.append(Run(f"{origin} ", Tone.DIM))
        return runs

    def resized(self) -> None:
        if self._pane.following:
            self.show_end()

    # Actions of the pane, asked for by key while the lines have the focus.

    @property
    def _pane(self) -> LogPane:
        return self.query_ancestor(LogPane)

    def do_follow(self) -> None:
        self._pane.follow()

    def do_bottom(self) -> None:
        self._pane.follow()

    def do_top(self) -> None:
        self._pane.go_to_start()

    def do_filter(self, text: str) -> None:
        self._pane.ask_filter(text)

    def do_find(self, text: str) -> None:
        self._pane.ask_find(text)

    def do_times(self) -> None:
        self.times = _TIMES[(_TIMES.index(self.times) + 1) % len(_TIMES)]
        self._starts_for = (-1, -1)
        self.changed()

    def do_full(self) -> None:
        self._pane.toggle_full()

    def do_close(self) -> None:
        self._pane.close_pane()


class LogPane(Pane):
    """Call `flush` ten times a second. Give it the screen's prompt."""

    class Closed(Message):
        """The pane is going away."""

    def __init__(self, view: LogView, clock: Clock, prompt: Prompt) -> None:
        self.lines = LogLines(view)
        super().__init__(self.lines)
        self.view = view
        self.following = True
        self._clock = clock
        self._prompt = prompt
        self._version = -1
        self._generation = -1
        self._wanted = ""
        """A filter that was asked for and is not answered yet."""
        self._fault = ""
        self._find_history: list[str] = []
        self._filter_history: list[str] = []

    def on_mount(self) -> None:
        self.call_after_refresh(self.lines.take_focus)
        self.run_worker(self.view.run(), name="log follow", group="logs", exit_on_error=False)
        self.flush()

    # --- state -------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Show what came, in one go."""
        view = self.view
        if view.version != self._version:
            self._version = view.version
            shifted = view.take_shift()
            if view.generation != self._generation:
                self._generation = view.generation
                self.lines.changed()
                self.lines.hit = -1
            else:
                self.lines.changed(shifted=0 if self.following else shifted)
            if self.following:
                self.lines.show_end()
        self.set_status(self._status())
        self._title()

    def _status(self) -> Status:
        view = self.view
        state = view.state
        if not view.loaded:
            if state.link in (Link.RECONNECTING, Link.DENIED):
                word = "Not allowed" if state.link is Link.DENIED else "No logs could be had"
                return Status(
                    State.ERROR, "", (f"{word}: {state.detail}", "It is tried again by itself; ^r tries now.")
                )
            return Status(State.LOADING, "", (f"Loading the log of {view.source.title} …",))
        if not view.lines:
            if view.filter.regex:
                return Status(
                    State.EMPTY,
                    "",
                    (f"No line matches {view.filter.regex}", "& changes the filter, an empty one shows all lines."),
                )
            return Status(State.EMPTY, "", ("No output yet.", view.why or "Lines appear here as they are written."))
        if not state.fresh:
            age = format_age(int((state.age_s or 0) * 1000))
            return Status(State.STALE, f"STALE {age}: {state.detail}")
        if view.counts.capped and view.counts.reason:
            return Status(State.PARTIAL, view.counts.reason)
        return Status(State.READY)

    def _title(self) -> None:
        view, lines = self.view, self.lines
        word = Run("FOLLOW", Tone.GOOD) if self.following else Run(f"PAUSED +{view.unseen:,}", Tone.WARN)
        left = [Run("Logs ", Tone.DIM), Run(one_line(view.source.title)), Run("  "), word]
        if view.filter.regex:
            left.append(Run(f"  & {one_line(view.filter.regex)}", Tone.WARN))
        if self._wanted:
            left.append(Run(f"  asking for & {one_line(self._wanted)} …", Tone.WAIT))
        if self._fault:
            left.append(Run(f"  {self._fault}; these lines are of the filter before", Tone.BAD))
        right: list[Run] = []
        if lines.needle:
            found = lines.hits()
            at = found.index(lines.hit) + 1 if lines.hit in found else 0
            right.append(Run(f"/{one_line(lines.needle)} {at}/{len(found)} in loaded lines  ", Tone.WARN))
        if lines.wrap:
            right.append(Run("wrap  ", Tone.DIM))
        if lines.times != "off":
            right.append(Run(f"{lines.times}  ", Tone.DIM))
        right.append(Run(self._counts(), Tone.DIM))
        self.update_title(left, right)

    def _counts(self) -> str:
        view = self.view
        if not view.lines:
            return ""
        total, exact = view.total()
        return f"{'' if exact else '≥'}{counted(total, 'line')}"

    # --- reading -----------------------------------------------------------------------------------------------------

    def on_line_view_scrolled(self, event: LineView.Scrolled) -> None:
        """The reader moved: pause or resume, and fetch before an edge is reached."""
        event.stop()
        lines, view = self.lines, self.view
        self._set_following(lines.at_bottom and view.at_end)
        row, rows = lines.scroll_offset.y, lines.virtual_size.height
        if row < AHEAD and not view.at_start:
            self._fetch(view.older(), "older")
        if row + lines.size.height > rows - AHEAD and not view.at_end:
            self._fetch(view.newer(), "newer")
        self._title()

    def _set_following(self, on: bool) -> None:
        if on != self.following:
            self.following = on
            self.view.keep_top(not on)

    def _fetch(self, work: object, name: str) -> None:
        async def guarded() -> None:
            try:
                await work  # type: ignore[misc]
            except IrisError as error:
                self._fault = f"{name} lines could not be had: {one_line(error.message)}"
            else:
                self._fault = ""
            self.flush()

        self.run_worker(guarded(), name=f"log {name}", group=f"logs-{name}", exclusive=False, exit_on_error=False)

    def follow(self) -> None:
        """Go to the end and stay there."""
        self._set_following(True)
        self._fetch(self.view.tail(), "the newest")
        self.lines.show_end()
        self.flush()

    def go_to_start(self) -> None:
        """Go to the first line that the store still holds."""
        self._set_following(False)

        async def head() -> None:
            await self.view.head()
            self.lines.changed()
            self.lines.show_row(0)

        self._fetch(head(), "the first")

    # --- filter and find ---------------------------------------------------------------------------------------------

    def ask_filter(self, text: str = "") -> None:
        """Ask for a pattern, or take the one that was given."""
        question = Question(
            "& regex",
            self._set_filter,
            check=lambda value: compile_content_regex(value) if value else None,
            cancel=self._stop_asking,
            history=self._filter_history,
        )
        if text:
            question.check and question.check(text)
            self._set_filter(text)
            return
        self._prompt.ask(question, self.view.filter.regex)

    def _set_filter(self, regex: str) -> None:
        self.lines.take_focus()
        if regex == self.view.filter.regex and not self._wanted:
            return
        self._wanted, self._fault = regex or "all lines", ""

        async def ask() -> None:
            try:
                await self.view.set_filter(LogFilter(regex, self.view.filter.min_level))
                self._set_following(True)
            except asyncio.CancelledError:
                return
            except IrisError as error:
                self._fault = f"& {one_line(regex)} failed: {one_line(error.message)}"
            self._wanted = ""
            self.flush()

        self.run_worker(ask(), name="log filter", group="logs-filter", exclusive=True, exit_on_error=False)

    def _stop_asking(self) -> None:
        self.lines.take_focus()

    def ask_find(self, text: str = "") -> None:
        """Ask for a text to find, or take the one that was given."""
        if text:
            self._find(text)
            return
        question = Question(
            "/ find", self._find, change=self.lines.find, cancel=self._stop_finding, history=self._find_history
        )
        self._prompt.ask(question, self.lines.needle)

    def _find(self, text: str) -> None:
        self.lines.take_focus()
        self.lines.find(text)

    def _stop_finding(self) -> None:
        self.lines.find("")
        self.lines.take_focus()

    # --- the pane itself ---------------------------------------------------------------------------------------------

    def toggle_full(self) -> None:
        """Show the logs alone, or below the table again."""
        self.screen.toggle_class("-logs-full")

    def close_pane(self) -> None:
        """Take the pane away; the follow ends with it."""
        if self.lines.needle:
            self.lines.find("")
            return
        self.post_message(self.Closed())
        self.remove()
