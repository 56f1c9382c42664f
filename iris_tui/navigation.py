"""Going from screen to screen: by name, by history, to another cluster; each screen is found again as it was left.

A list is kept once it was shown; of the screens about one thing the last few are, and the others are made anew when the history
leads back to them. Pages and dialogs above a screen are closed when it is left. Nothing here knows what a screen shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from iris_core.model.errors import ModelError
from iris_core.model.text import one_line
from iris_tui import registry
from iris_tui.places import History, Place
from iris_tui.scope import ActionHost
from iris_tui.screen import ConsoleScreen
from iris_tui.typeahead import TypeAhead

if TYPE_CHECKING:
    from iris_tui.actions import Action
    from iris_tui.session import Session

MOST_KEPT: Final = 8
"""Screens about one thing that stay in memory."""

Key = tuple[str, str, str]


class Navigation(ActionHost, TypeAhead, inherit_bindings=False):
    """The part of the app that knows the sessions, their screens, and where the operator has been."""

    SCOPES: ClassVar[tuple[str, ...]] = ("app", "go")

    session: Session

    def __init__(self, session: Session, **options: Any) -> None:
        super().__init__(**options)
        self.session = session
        self.history = History()
        self.sessions: dict[str, Session] = {}
        self._screens: dict[Key, ConsoleScreen] = {}

    def say(self, text: str, *, severity: str = "information") -> None:
        """A toast, literal."""
        raise NotImplementedError

    def entered(self, session: Session) -> None:
        """Another session is shown now."""

    def first_place(self, session: Session) -> Place:
        """Where a cluster is shown that was not shown yet."""
        return Place(session.name, registry.FIRST)

    def saved_view(self, place: Place) -> dict[str, Any]:
        """How a screen looks that was not shown yet."""
        return {}

    # --- going -------------------------------------------------------------------------------------------------------

    def handler(self, action: Action) -> Callable[..., Any]:
        if action.scope == "go":
            return (
                (lambda argument="": self.go(action.name, argument))
                if action.arguments
                else lambda: self.go(action.name)
            )
        return super().handler(action)

    def go(self, name: str, argument: str = "") -> None:
        """Show a screen of this session; a list takes what follows as a filter, another screen as the id it is about.

        Raises:
            ModelError: the screen cannot be shown here, or the argument is wrong; then nothing changes.
        """
        spec = registry.SCREENS[name]
        self._check(self.session, name)
        place = Place(self.session.name, name, "" if spec.lists else argument)
        screen = self._screen_of(place)
        screen.check_argument(argument)
        self._leave()
        self._show(self.history.visit(place), screen)
        if spec.lists:
            screen.when_mounted(lambda: screen.accept(argument))

    def enter(self, session: Session) -> None:
        """Show a session: where it was left, or its first screen; its subscription starts with the first time."""
        if session.entrance is not None:
            self.push_screen(session.entrance())
            return
        if session.name not in self.sessions:
            self.sessions[session.name] = session
            self.run_worker(session.run(), name=f"session {session.name}", group="sessions", exit_on_error=False)
        last = self.history.last_of(session.name)
        place = Place(session.name, last.screen, last.subject, last.state) if last else self.first_place(session)
        try:
            screen = self._screen_of(place)
        except ModelError:
            # Where it was left is nowhere: a file of another release, or of nobody, says so.
            place = Place(session.name, registry.FIRST)
            screen = self._screen_of(place)
        self._leave()
        self._show(self.history.visit(place), screen)

    def open_checkpoint(self, place: str) -> None:
        """Show a checkpoint beside what is open, read-only; `place` is a path or URL. It says how far it is, and can be given up."""
        from iris_tui.offline import PREFIX, offline_session

        self.enter(self.sessions.get(f"{PREFIX}{place}") or offline_session(place))

    def _check(self, session: Session, name: str) -> None:
        if session.name not in self.sessions:
            raise ModelError(f"{one_line(session.title)} is not open yet")
        if session.offline and not registry.SCREENS[name].offline:
            raise ModelError(f"{registry.SCREENS[name].title} needs a live cluster, and this is a checkpoint")

    def _screen_of(self, place: Place) -> ConsoleScreen:
        screen = self._screens.pop(place.key, None)
        if screen is None:
            screen = registry.make(self.sessions[place.cluster], place.screen, place.subject)
            screen.look_like(place.state or self.saved_view(place))
        self._screens[place.key] = screen  # the newest is last
        return screen

    def _leave(self) -> None:
        here = self.history.here
        screen = self._screens.get(here.key) if here is not None else None
        if here is not None and screen is not None and screen.is_mounted:
            here.state = screen.view_state()

    def _show(self, place: Place, screen: ConsoleScreen) -> None:
        session = self.sessions[place.cluster]
        changed, self.session = session is not self.session or len(self.screen_stack) < 2, session
        while isinstance(self.screen, ConsoleScreen) and self.screen is not screen and self.screen.place == ("", ""):
            self.pop_screen()
        if not self.is_screen_installed(screen):
            self.install_screen(screen, name="\n".join(place.key))
        if isinstance(self.screen, ConsoleScreen):
            self.switch_screen(screen)
        else:
            self.push_screen(screen)
        if changed:
            self.entered(session)
        self._forget(place.key)

    def _forget(self, shown: Key) -> None:
        """Drop the screens about one thing that have not been shown for long."""
        about = [key for key in self._screens if key[2] and key != shown]
        for key in about[: max(len(about) - MOST_KEPT, 0)]:
            screen = self._screens[key]
            if screen in self.screen_stack:
                continue
            del self._screens[key]
            self.uninstall_screen(screen)
            if screen.is_attached:
                screen.remove()

    # --- history -----------------------------------------------------------------------------------------------------

    def go_back(self) -> None:
        """One step back in the history; nothing where there is none."""
        self._step(lambda: self.history.step(-1))

    def _step(self, move: Callable[[], Place | None]) -> None:
        self._leave()
        place = move()
        if place is None:
            return
        screen = self._screen_of(place)
        self._show(place, screen)
        screen.look_like(place.state)

    def do_past(self) -> None:
        self.go_back()

    def do_future(self) -> None:
        self._step(lambda: self.history.step(1))

    def do_last(self) -> None:
        self._step(self.history.swap)

    def do_goto(self) -> None:
        from iris_tui.gate import MenuScreen

        session = self.session
        entries = [
            (spec.letter, f"go.{spec.name}", spec.title)
            for spec in registry.SCREENS.values()
            if spec.letter and (spec.offline or not session.offline)
        ]
        note = f"{one_line(session.name)} is a checkpoint: the others need a live cluster" if session.offline else ""

        def chosen(action_id: str | None) -> None:
            if action_id:
                from iris_tui.actions import BY_ID

                self.perform_or_say(BY_ID[action_id])

        self.push_screen(MenuScreen("Go to", entries, note), chosen)
