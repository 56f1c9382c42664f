"""Logs: what one or several jobs, tasks, attempts or processes wrote, on the whole screen; merged by time where there are several.

What it is about is ids with blanks between them; `/system/controller` and `/system/worker/NAME` are the logs of the processes
themselves. The pane does the rest, and is the same below the Jobs table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from iris_core.live.log_query import MAX_SOURCES, PREFIX, LogQuery, LogSource, parse_log_query
from iris_core.live.log_view import LogView
from iris_core.live.watch import Link
from iris_core.model.errors import ModelError
from iris_core.model.text import counted, one_line
from iris_tui.screen import ConsoleScreen
from iris_tui.widgets.log_drawing import TIMES
from iris_tui.widgets.log_pane import LogPane
from screens.jobs_target import from_text, log_source

if TYPE_CHECKING:
    from textual.widget import Widget

    from iris_tui.session import Session

_SYSTEM = "/system/"
LAST_MS: Final = 1 << 53
"""No time that a log has is later."""


def sources_of(session: Session, subject: str) -> tuple[LogSource, ...]:
    """The logs that are meant, each once. Raises ModelError: one is no id, there is none, or there are too many."""
    names = list(dict.fromkeys(subject.split()))
    if not names:
        raise ModelError(
            "there is nothing to show the log of", hint="name a job, a task, an attempt or /system/controller"
        )
    if len(names) > MAX_SOURCES:
        raise ModelError(f"{len(names)} logs are too many for one view", hint=f"at most {MAX_SOURCES}")
    return tuple(_source(session, name) for name in names)


def _source(session: Session, name: str) -> LogSource:
    if name.startswith(_SYSTEM):
        key = name.rstrip("/")
        return LogSource(key, PREFIX, key, command=f"iris-core {session.selector} process logs -t {key} --follow")
    return log_source(session, from_text(name))


class LogsScreen(ConsoleScreen):
    """The subject is the ids."""

    def __init__(self, session: Session, subject: str = "") -> None:
        """Raises ModelError: the subject names no log, or too many."""
        super().__init__(session)
        self.subject = subject
        view = LogView(session.client, sources_of(session, subject), session.clock)
        self.pane = LogPane(view, session.clock, self.prompt)

    def check_argument(self, argument: str) -> None:
        sources_of(self.session, argument)

    def body(self) -> Iterable[Widget]:
        yield self.pane

    def title_text(self) -> str:
        sources = self.subject.split()
        return f"logs of {one_line(sources[0])}" if len(sources) == 1 else f"{counted(len(sources), 'log')} merged"

    def shows_content(self) -> bool:
        view = self.pane.view
        return self.pane.entered and (view.loaded or view.state.link not in (Link.CONNECTING, Link.LIVE))

    def flush(self) -> None:
        self.pane.flush()

    def reload(self) -> None:
        """Try again what failed."""
        self.pane.retry()

    def on_screen_suspend(self) -> None:
        if self not in self.app.screen_stack:
            self.pane.rest()

    def on_screen_resume(self) -> None:
        if self.pane.is_mounted:
            self.pane.rest(on=False)
            self.pane.lines.take_focus()

    def on_log_pane_closed(self, event: LogPane.Closed) -> None:
        event.stop()
        self.console.go_back()

    def view_state(self) -> dict[str, Any]:
        query, lines = self.pane.view.query, self.pane.lines
        return {
            "filter": query.words(),
            "since_ms": query.since_ms,
            "times": lines.times,
            "wrap": lines.wrap,
        }

    def restore(self, state: dict[str, Any]) -> None:
        lines, times = self.pane.lines, state.get("times")
        if times in TIMES:
            lines.times = times
        lines.wrap = state.get("wrap") is True
        saved = state.get("since_ms")
        since = saved if type(saved) is int and 0 <= saved < LAST_MS else 0
        try:
            query = parse_log_query(str(state.get("filter", "")), LogQuery(since_ms=since))
        except ModelError:
            return
        if query != self.pane.view.query:
            self.pane.show_query(query)
