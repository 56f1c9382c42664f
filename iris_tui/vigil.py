"""How the console itself fares: its watchdog, its `:debug` page, and what a crash report holds.

All of it is meant to be pasted into a bug report: names of functions and ids of actions, never an argument or a value, and everything
redacted. After a sleep of the machine every connection is tried at once, because the old ones are dead without knowing it.
"""

from __future__ import annotations

import time
import traceback
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from textual import events

from iris_core.live.wording import Tone
from iris_core.model.resources import format_age
from iris_core.model.text import one_line
from iris_tui.tidying import Tidying
from iris_tui.watchdog import Watchdog

if TYPE_CHECKING:
    from textual.app import App

    from iris_core.live.watch import LinkState
    from iris_tui.actions import Action
    from iris_tui.navigation import Key
    from iris_tui.screen import ConsoleScreen
    from iris_tui.session import Session

    Base = App[Any]
else:
    Base = object

Lines = list[tuple[str, Tone]]

MOST_ACTIONS: Final = 20
SHOWN_LATE: Final = 10


class Vigil(Base):
    """Mix into the app."""

    session: Session
    sessions: dict[str, Session]
    _screens: dict[Key, ConsoleScreen]

    def begin_vigil(self) -> None:
        """Before the app runs."""
        self.watchdog = Watchdog(slept=self.woke, each=self._beat)
        self.tidying = Tidying()
        self._key_at_s = 0.0
        self.last_actions: deque[str] = deque(maxlen=MOST_ACTIONS)
        """Ids of the actions that were asked for last, the newest at the end."""
        self._began = time.monotonic()

    def keep_vigil(self) -> None:
        """Once the app runs on a terminal."""
        if not self.is_headless:
            self.tidying.begin()
            self.run_worker(self.watchdog.run(), name="watchdog", group="watchdog", exit_on_error=False)

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key):
            self._key_at_s = time.monotonic()
        await super().on_event(event)

    def _beat(self) -> None:
        self.each_beat()
        self.tidying.beat(self._key_at_s)

    def each_beat(self) -> None:
        """Ten times a second."""

    def noted(self, action: Action) -> None:
        """An action was asked for."""
        if not action.moves:
            self.last_actions.append(action.id)

    def woke(self) -> None:
        """The machine slept: whatever was connected is to be tried now."""
        for session in self.sessions.values():
            session.watch.retry_now()
        for screen in self._screens.values():
            reload = getattr(screen, "reload", None)
            if reload is not None and screen.is_mounted:
                reload()

    # --- the debug page ----------------------------------------------------------------------------------------------

    def do_debug(self) -> None:
        from iris_tui.pages import TextPage

        async def load() -> Lines:
            from iris_core.cli.debug_facts import all_facts
            from iris_tui.threads import in_thread

            facts = await in_thread(all_facts, name="debug")
            lines = self.own_facts()
            for title, pairs in facts:
                lines += [("", Tone.PLAIN), (title, Tone.BUSY), *_pairs(pairs)]
            return lines

        page = TextPage(self.session, "Debug", load, command=f"iris-core {self.session.selector} debug info")
        self.push_screen(page)

    def own_facts(self) -> Lines:
        """Connections, what is loaded, and how late the loop was."""
        lines: Lines = [("Clusters", Tone.BUSY)]
        for session in self.sessions.values():
            access = "read-only" if session.read_only else "can be changed"
            lines += _pairs(
                [(session.title, f"{_link(session.link)}; {access}; {session.client.url or 'not connected yet'}")]
            )
        lines += [("", Tone.PLAIN), ("Screens", Tone.BUSY)]
        for (cluster, name, subject), screen in self._screens.items():
            store = getattr(screen, "store", None)
            rows = f"{len(store.rows):,} rows; " if store is not None else ""
            lines += _pairs([(f"{name} {subject}".strip(), f"{rows}{_link(screen.link)}; {cluster}")])
        lateness = self.watchdog.lateness
        lines += [
            ("", Tone.PLAIN),
            ("Loop", Tone.BUSY),
            *_pairs(
                [
                    ("open for", format_age(int((time.monotonic() - self._began) * 1000))),
                    ("late", f"{lateness.late:,} of {lateness.beats:,} beats, at worst {lateness.worst_ms:,} ms"),
                    ("slept", f"{lateness.sleeps:,} times"),
                ]
            ),
        ]
        for late in list(lateness.ring)[-SHOWN_LATE:]:
            moment = datetime.fromtimestamp(late.at_ms / 1000, UTC)
            lines += _pairs([(f"{moment:%H:%M:%S}", f"{late.late_ms:,} ms late: {late.ran}")])
        return [*lines, ("", Tone.PLAIN), ("Last actions", Tone.BUSY), (f"  {' '.join(self.last_actions)}", Tone.PLAIN)]

    # --- a crash -----------------------------------------------------------------------------------------------------

    def crash_text(self, error: BaseException) -> str:
        """What the report of a crash holds: the stack, without the values of variables, below where it happened."""
        from iris_core.cli.debug_facts import terminal, versions
        from iris_core.model.redact import redact_text

        shown = getattr(self.screen, "place", ("", ""))[0] if self.screen_stack else ""
        head = [
            f"# {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}",
            *(f"# {name}: {value}" for name, value in (*versions(), *terminal())),
            f"# screen: {shown or 'none'}",
            f"# last actions: {' '.join(self.last_actions) or 'none'}",
        ]
        return redact_text("\n".join((*head, "", "".join(traceback.format_exception(error)))))


def _pairs(pairs: list[tuple[str, str]]) -> Lines:
    from iris_core.model.redact import redact_text

    return [(f"  {one_line(name):<14} {one_line(redact_text(value))}", Tone.PLAIN) for name, value in pairs]


def _link(link: LinkState) -> str:
    age = "" if link.age_s is None else f", last message {format_age(int(link.age_s * 1000))} ago"
    return f"{link.link.value}{age}{f' ({link.detail})' if link.detail and not link.current else ''}"
