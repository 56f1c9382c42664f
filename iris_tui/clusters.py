"""Which cluster next: all that are known, with what they are called, whether they are open, and how fresh what is known of them is.

Files are read in a thread, and nothing is dialled: a cluster that is open already says how its connection stands, the others say that
they are not open. Going back to one finds it as it was left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from iris_core.contracts import IrisError
from iris_core.live.faults import fault_text
from iris_core.model.text import one_line
from iris_tui.themes import is_production
from iris_tui.threads import in_thread
from iris_tui.widgets.header import link_text

if TYPE_CHECKING:
    from textual.app import App

    from iris_core.config.console import ConsoleSettings
    from iris_tui.session import Session

    Base = App[Any]
else:
    Base = object


class Clusters(Base):
    """Mix into the app."""

    settings: ConsoleSettings
    session: Session
    sessions: dict[str, Session]
    _open_session: Callable[[str], Session] | None

    def say(self, text: str, *, severity: str = "information") -> None:
        """A toast."""
        raise NotImplementedError

    def enter(self, session: Session) -> None:
        """Show a session."""
        raise NotImplementedError

    def do_cluster(self, name: str) -> None:
        if not name:
            self.run_worker(self._choose_cluster(), name="list the clusters", group="cluster", exit_on_error=False)
        elif name in self.sessions:
            self.enter(self.sessions[name])
        else:
            self.run_worker(self._go_to(name), name=f"go to {one_line(name)}", group="cluster", exit_on_error=False)

    async def _go_to(self, name: str) -> None:
        open_session = self._open_session
        if open_session is None:
            self.say("this console shows one cluster only", severity="warning")
            return
        try:
            session = await in_thread(lambda: open_session(name), name="resolve")
        except IrisError as error:
            self.say(fault_text(error), severity="error")
            return
        self.enter(self.sessions.get(session.name, session))

    async def _choose_cluster(self) -> None:
        from iris_tui.gate import MenuScreen

        known = await in_thread(known_clusters, name="clusters")
        names = list(dict.fromkeys((*self.sessions, *known)))
        wide = min(max(len(name) for name in names), 30)
        entries = [
            (str(at) if at < 10 else "", name, f"{one_line(name):<{wide}}  {self._words(name)}".rstrip())
            for at, name in enumerate(names, 1)
        ]

        def chosen(name: str | None) -> None:
            if name:
                self.do_cluster(name)

        note = "" if known else "no cluster file is known; :cluster NAME and `iris --controller-url URL` open others"
        self.push_screen(MenuScreen("Which cluster?", entries, note), chosen)

    def _words(self, name: str) -> str:
        session = self.sessions.get(name)
        environment = session.environment if session is not None else self.settings.environment_of(name)
        words = ["PROD" if is_production(environment) else one_line(environment)]
        if session is not None:
            words += [link_text(session.link), "read-only" if session.read_only else ""]
            words.append("(this one)" if session is self.session else "")
        return "  ".join(word for word in words if word)


def known_clusters() -> list[str]:
    """The clusters that `--cluster` finds: the one that runs here, and those with a file."""
    from iris_core.config.cluster import named_clusters
    from iris_core.config.places import LOCAL
    from iris_core.connect.local import running_endpoint

    here = [LOCAL] if running_endpoint() is not None else []
    return [*here, *(cluster.name for cluster in named_clusters())]
