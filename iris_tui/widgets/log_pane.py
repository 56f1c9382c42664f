"""The log of one or several jobs, tasks, attempts or processes: followed, paused, filtered and searched on the server.

FOLLOW and PAUSED are words. Moving up pauses; what comes meanwhile is counted, never dropped; the last line resumes. The pane draws
a `LogView` (iris_core.live.log_view), which fetches what is looked at. A filter that is wrong or could not be had leaves the old lines,
and says which filter they are of.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from textual.message import Message

from iris_core.contracts import IrisError
from iris_core.live.log_query import LogQuery
from iris_core.live.log_words import pipeline_strip
from iris_core.live.watch import Link
from iris_core.live.wording import Tone, when
from iris_core.model.regex import compile_content_regex
from iris_core.model.resources import format_age
from iris_core.model.text import counted, one_line
from iris_tui.drawing import Run
from iris_tui.widgets.line import Line
from iris_tui.widgets.log_commands import LogCommands
from iris_tui.widgets.log_lines import LogLines
from iris_tui.widgets.pane import State, Status

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from textual.worker import Worker

    from iris_core.live.clock import Clock
    from iris_core.live.log_view import LogView
    from iris_tui.widgets.prompt import Prompt

STRIP_ROWS = 12
"""The strip is left out where there is no room for it."""


class LogPane(LogCommands):
    """Call `flush` ten times a second. Give it the screen's prompt."""

    class Closed(Message):
        """The reader is done: whoever shows the pane takes it away."""

    def __init__(self, view: LogView, clock: Clock, prompt: Prompt) -> None:
        self.lines = LogLines(view, clock)
        self.strip = Line()
        super().__init__(self.lines, self.strip)
        self.view = view
        self.clock = clock
        self.prompt = prompt
        self._version = -1
        self._generation = -1
        self._second = -1
        self._follow: Worker[None] | None = None
        self._drawing: Worker[None]
        self.entered = False
        """Whether it has been given the focus: keys that were typed before belong to it, too."""

    def on_mount(self) -> None:
        self.call_after_refresh(self._enter)
        self.rest(on=False)
        self.flush()

    def _enter(self) -> None:
        self.lines.take_focus()
        self.entered = True

    def rest(self, *, on: bool = True) -> None:
        """While nobody sees it nothing is followed; afterwards it goes on at the same place."""
        if on and self._follow is not None:
            for worker in (self._follow, self._drawing):
                worker.cancel()
            self._follow = None
        elif not on and self._follow is None:
            self._follow = self.run_worker(self.view.run(), name="log follow", group="logs", exit_on_error=False)
            self._drawing = self.run_worker(self._draw_arrived(), name="log lines", group="logs", exit_on_error=False)

    async def _draw_arrived(self) -> None:
        """Show lines that were asked for as they come: a tenth of a second is long for whoever waits for a page."""
        while True:
            await self.view.arrived.wait()
            self.view.arrived.clear()
            self.flush()

    @property
    def _ended(self) -> bool:
        """Whether what keeps the lines up to date has ended, which it never should: nothing comes any more until it is begun again."""
        return self._follow is not None and self._follow.is_finished

    def retry(self) -> None:
        """Try again what failed, now."""
        if self._ended:
            self.rest()
            self.rest(on=False)
        self.view.retry_now()

    @property
    def following(self) -> bool:
        """Whether the end is followed."""
        return self.view.following

    # --- state -------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Show what came, in one go."""
        view, lines = self.view, self.lines
        second = self.clock.now_ms() // 1000
        if view.version != self._version or (lines.times == "relative" and second != self._second):
            self._version, self._second = view.version, second
            shifted = view.take_shift()
            if view.generation != self._generation:
                self._generation = view.generation
                lines.renumber()
                self.hit = None
                shifted = 0
            lines.renew(shifted=shifted)
        else:
            lines.want()
        self.set_status(self._status())
        self._title()
        self._strip()

    def _status(self) -> Status:
        view = self.view
        state = view.state
        if self._ended:
            words = "this log is not read any more; ^r reads it again"
            return Status(State.STALE, f"STALE: {words}") if view.loaded else Status(State.ERROR, "", (words,))
        if not view.loaded:
            if state.link in (Link.RECONNECTING, Link.DENIED, Link.REFUSED):
                word = "Not allowed" if state.link is Link.DENIED else "No logs could be had"
                return Status(
                    State.ERROR, "", (f"{word}: {state.detail}", "It is tried again by itself; ^r tries now.")
                )
            loading = f"Loading the log of {one_line(view.title)} …"
            if state.link is Link.STALE:
                age = format_age(int((state.age_s or 0) * 1000))
                more = (
                    f"No answer for {age}: {state.detail}. What is printed is kept meanwhile.",
                    *filter(None, (view.why,)),
                )
                return Status(State.LOADING, "", (loading, *more))
            searched = (f"{view.numbering:.0%} of it is searched.",) if view.numbering is not None else ()
            return Status(State.LOADING, "", (loading, *searched))
        if not view.count:
            return self._empty()
        if not state.fresh:
            age = format_age(int((state.age_s or 0) * 1000))
            return Status(State.STALE, f"STALE {age}: {state.detail}")
        if not view.facts.complete or not view.is_whole:
            share = view.facts.searched if view.is_whole else view.numbering or 0.0
            return Status(State.PARTIAL, f"searched {share:.0%}" if view.is_whole else "the last lines")
        if view.facts.capped:
            return Status(State.PARTIAL, view.facts.capped)
        return Status(State.READY)

    def _empty(self) -> Status:
        view = self.view
        if not view.facts.complete:
            return Status(
                State.LOADING, "", (f"Searching … {view.facts.searched:.0%}", "Hits appear as they are found.")
            )
        if view.query.filters:
            return Status(
                State.EMPTY,
                "",
                (
                    f"No line matches {one_line(view.query.words())}",
                    f"{counted(view.facts.scanned, 'line')} searched. & changes the filter, an empty one shows all lines.",
                ),
            )
        if view.query.since_ms:
            return Status(State.EMPTY, "", (f"No line since {when(view.query.since_ms)} UTC", "0 shows all lines."))
        return Status(State.EMPTY, "", ("No output yet.", view.why or "Lines appear here as they are written."))

    def _title(self) -> None:
        view, lines = self.view, self.lines
        word = Run("FOLLOW", Tone.GOOD) if view.following else Run(f"PAUSED +{view.unseen:,}", Tone.WARN)
        left = [Run("Logs ", Tone.DIM), *(lines.origins.legend() or [Run(f"{one_line(view.title)}  ")]), word]
        if view.query.since_ms:
            left.append(Run(f"  since {when(view.query.since_ms)} UTC", Tone.WARN))
        if view.query.filters:
            left.append(Run(f"  & {one_line(view.query.words())}", Tone.WARN))
        elif self.back is not None:
            left.append(Run(f"  around a hit of & {one_line(self.back[0].words())}, Esc returns", Tone.WARN))
        if self.wanted:
            left.append(Run(f"  asking for {one_line(self.wanted)} …", Tone.WAIT))
        if self.prompt.asks("& regex") and self.prompt.has_class("-wrong"):
            left.append(Run("  these lines are of the filter before", Tone.BAD))
        if self.fault:
            left.append(Run(f"  {self.fault}; these lines are of the filter before", Tone.BAD))
        right: list[Run] = []
        if lines.needle is not None:
            right.append(Run(f"/{one_line(self.sought)} {self._found()}  ", Tone.WARN))
        if self.saving:
            right.append(Run(f"{self.saving}  ", Tone.BUSY))
        if lines.wrap:
            right.append(Run("wrap  ", Tone.DIM))
        if lines.times != "off":
            right.append(Run(f"{lines.times}  ", Tone.DIM))
        right.append(Run(self._counts(), Tone.DIM))
        self.update_title(left, right)

    def _found(self) -> str:
        if self.seeking:
            return "…"
        if self.hit is None:
            return "0/0"
        return f"{self.hit.ordinal:,}/{'' if self.hit.complete else '≥'}{self.hit.total:,}"

    def _counts(self) -> str:
        view = self.view
        if not view.count:
            return ""
        exact = view.is_whole and view.facts.complete and not view.facts.capped
        at = "" if view.following or self.lines.pointer is None else f"{self.lines.pointer + 1:,}/"
        if view.query.filters and view.facts.hits != view.count:
            return f"{at}{counted(view.count, 'line')}, {counted(view.facts.hits, 'hit')}"
        return f"{at}{'' if exact else '≥'}{counted(view.count, 'line')}"

    def _strip(self) -> None:
        self.strip.display = self.size.height > STRIP_ROWS and not self.status.hides_content
        runs = [Run(" ")]
        for text, tone in pipeline_strip(self.view, self.clock.now_ms()):
            runs += [Run(" · ", Tone.DIM)] if len(runs) > 1 else []
            runs.append(Run(text, tone))
        self.strip.show(runs)

    # --- reading -----------------------------------------------------------------------------------------------------

    def on_log_lines_moved(self, event: LogLines.Moved) -> None:
        event.stop()
        self._title()

    def follow(self) -> None:
        """Go to the end and stay there."""
        self.view.follow(True)
        self.lines.pointer = None
        self.lines.show_end()
        self.flush()

    def go_to(self, number: int) -> None:
        """Go to a line and stay there."""
        self.view.follow(False)
        self.lines.show(number)
        self.lines.want()
        self.flush()

    def show_query(self, query: LogQuery, *, at_seq: int = 0, words: str = "", back: bool = False) -> None:
        """Show other lines; the old ones stay until those are there. `back`: Esc returns to these."""
        self.lines.take_focus()
        self.wanted, self.fault = words or (f"& {query.words()}" if query.filters else "all lines"), ""
        line = self.view.line(self.lines.pointer) if self.lines.pointer is not None else None
        here = (self.view.query, line.seq if line is not None else 0) if back else None

        async def ask() -> None:
            try:
                await self.view.show(query, at_seq=at_seq)
            except asyncio.CancelledError:
                return
            except IrisError as error:
                self.fault = f"{one_line(self.wanted)} failed: {one_line(error.message)}"
            else:
                self.back = here
                self.lines.matched = compile_content_regex(query.regex) if query.regex else None
            self.wanted = ""
            self.flush()

        self.work(ask(), "filter")

    def work(self, do: Coroutine[Any, Any, None], name: str) -> None:
        """Do something that takes time; of the same name the last one counts."""
        self.run_worker(do, name=f"log {name}", group=f"logs-{name}", exclusive=True, exit_on_error=False)

    # --- the pane itself ---------------------------------------------------------------------------------------------

    def do_full(self) -> None:
        """Show the logs alone, or below the table again."""
        self.screen.toggle_class("-logs-full")

    def do_close(self) -> None:
        """Leave what was opened last: the find, the lines around a hit, the pane."""
        if self.lines.needle is not None:
            self.stop_finding()
        elif self.back is not None:
            query, seq = self.back
            self.show_query(query, at_seq=seq)
        else:
            self.post_message(self.Closed())
