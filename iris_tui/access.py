"""Whether this console may change anything of a cluster: `:readonly` and `:write`, and how long the latter lasts.

Each cluster has its own answer, and what is done to it from the screen of another one asks for that (`read_only_of`).
Read-only is asked of the server with every call, so that what is refused here is refused there too (DESIGN §5.18). A console that was
opened read-only returns to it by itself: whoever unlocked it at three in the morning does not have to think of locking it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from iris_core.model.errors import ModelError
from iris_core.model.text import one_line
from iris_tui.themes import is_production

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import App

    from iris_core.config.console import ConsoleSettings
    from iris_tui.session import Session

    Base = App[Any]
else:
    Base = object


READ_ONLY: Final = "read-only in this console"


def how_to_write(cluster: str) -> str:
    """What allows changes of a cluster, also of one that is not shown."""
    return f":cluster {one_line(cluster)}, then :write, allows changes of it"


class Access(Base):
    """Mix into the app; call `check_write` now and then."""

    settings: ConsoleSettings
    session: Session
    sessions: dict[str, Session]
    opens_read_only = False
    """Whether every cluster is opened read-only, whatever is settled for it."""

    def say(self, text: str, *, severity: str = "information") -> None:
        """A toast."""
        raise NotImplementedError

    def read_only_of(self, clusters: Sequence[str]) -> list[str]:
        """Those of them of which nothing may be changed from here, whichever is shown: as it is open, else as it would be opened."""
        return [
            name
            for name in clusters
            if (
                self.sessions[name].read_only
                if name in self.sessions
                else self.opens_read_only or self.settings.cluster(name).read_only
            )
        ]

    def do_readonly(self) -> None:
        session = self.session
        if session.read_only:
            self.say(f"{one_line(session.title)} is read-only already")
            return
        session.set_read_only(True)
        self.say(
            f"{one_line(session.title)} is read-only now: nothing of this cluster can be changed, and the server refuses it too"
        )

    def do_write(self) -> None:
        session = self.session
        if session.offline or session.locked:
            raise ModelError(f"nothing can be changed: {session.locked or 'it is a checkpoint'}")
        if not session.read_only:
            self.say(f"{one_line(session.title)} can be changed already; :readonly takes that back")
            return
        if not is_production(session.environment):
            self._allow(session)
            return
        from iris_tui.write_screen import WriteScreen

        def decided(sure: bool | None) -> None:
            if sure:
                self._allow(session)

        self.push_screen(WriteScreen(session.name, session.environment, self._lasts(session)), decided)

    def _lasts(self, session: Session) -> int:
        """Minutes until it returns to read-only, 0 = it does not."""
        return self.settings.write_minutes if session.opened_read_only else 0

    def _allow(self, session: Session) -> None:
        minutes = self._lasts(session)
        session.set_read_only(False, for_s=minutes * 60 if minutes else None)
        lasts = f"for {minutes} minutes" if minutes else "until :readonly"
        self.say(f"{one_line(session.title)} can be changed {lasts}", severity="warning")

    def check_write(self) -> None:
        """Take back what has lasted long enough."""
        for session in self.sessions.values():
            if session.write_left_s is not None and session.write_left_s <= 0:
                session.set_read_only(True)
                self.say(f"{one_line(session.title)} is read-only again: its time was over; :write gives it anew")
