"""The app's part in what is remembered of a cluster: taken when the console is left, given back when the cluster is shown again.

What a screen looks like is known by the screen alone (`view_state`, `restore`); here it is only carried. Nothing is remembered of a
checkpoint, nor where the session has no file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iris_tui import registry
from iris_tui.places import History, Place

if TYPE_CHECKING:
    from textual.app import App

    from iris_core.config.console import ConsoleSettings
    from iris_tui.navigation import Key
    from iris_tui.screen import ConsoleScreen
    from iris_tui.session import Session

    Base = App[Any]
else:
    Base = object


class Remembering(Base):
    """Mix into the app, before `Navigation`."""

    settings: ConsoleSettings
    session: Session
    sessions: dict[str, Session]
    history: History
    _screens: dict[Key, ConsoleScreen]

    def first_place(self, session: Session) -> Place:
        """Where a cluster was left; the list that everything starts from is below it."""
        start = Place(session.name, registry.FIRST)
        saved = session.saved
        spec = registry.SCREENS.get(saved.screen) if self.settings.restore else None
        if spec is None or (session.offline and not spec.offline) or bool(saved.subject) is spec.lists:
            return start
        if saved.subject:
            self.history.visit(start)
        return Place(session.name, spec.name, saved.subject)

    def saved_view(self, place: Place) -> dict[str, Any]:
        """How a screen looked when it was left, possibly long ago."""
        session = self.sessions[place.cluster]
        return session.saved.views.get(place.screen, {}) if self.settings.restore and not place.subject else {}

    def remember(self) -> None:
        """Note where each cluster is left and how its lists look. Writes nothing."""
        for (cluster, name, subject), screen in self._screens.items():
            if not subject and screen.is_mounted:
                view = screen.view_state()
                # The row under the cursor is another one tomorrow.
                view.pop("cursor", None)
                self.sessions[cluster].saved.views[name] = view
        for cluster, session in self.sessions.items():
            last = self.history.last_of(cluster)
            if last is not None:
                session.saved.screen, session.saved.subject = last.screen, last.subject

    def write_saved(self) -> None:
        """Write what is remembered. Blocks for a few small files."""
        for session in self.sessions.values():
            session.saved.write()
