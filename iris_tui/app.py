"""The console's shell: sessions, the first screen, actions that work everywhere, and an orderly end.

Thin on purpose: screens are found by name, actions in their table, what is live in a session. It never ends because a
connection broke, never waits for a dead side when it ends, and never prints a variable's value when it crashes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import IrisError
from iris_core.model.errors import ModelError
from iris_core.model.text import one_line
from iris_tui import registry
from iris_tui.access import Access
from iris_tui.actions import ACTIONS, SCOPES, Action, in_scope
from iris_tui.actions.live import LIVE
from iris_tui.clusters import Clusters
from iris_tui.endings import SIGNALS
from iris_tui.handing_over import HandingOver
from iris_tui.keymap import bindings
from iris_tui.navigation import Navigation
from iris_tui.operations import Operating
from iris_tui.remembering import Remembering
from iris_tui.rollouts import RollingOut
from iris_tui.scope import ActionHost
from iris_tui.screen import ConsoleScreen
from iris_tui.settled import Settled
from iris_tui.toasts import Toasts
from iris_tui.vigil import Vigil
from iris_tui.widgets.prompt import Question

if TYPE_CHECKING:
    from pathlib import Path

    from textual.driver import Driver
    from textual.worker import Worker

    from iris_core.config.console import ConsoleSettings
    from iris_core.live.clock import Clock
    from iris_tui.gate import Decision, GateScreen
    from iris_tui.glyphs import Glyphs
    from iris_tui.session import Session

QUIT_NOTE: Final = "Jobs go on without it."


class IrisApp(
    Settled,
    Toasts,
    Remembering,
    Access,
    Vigil,
    Navigation,
    Clusters,
    HandingOver,
    Operating,
    RollingOut,
    inherit_bindings=False,
):
    """`open_session(name)` connects to another cluster by name; it may raise IrisError and runs in a thread."""

    TITLE = "iris"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS = bindings("app", "go")
    CSS = """
    Toast { max-width: 100%; }
    """

    def __init__(
        self,
        session: Session,
        *,
        open_session: Callable[[str], Session] | None = None,
        quit_note: str = QUIT_NOTE,
        title: str = "",
        crash_dir: Path | None = None,
        glyphs: Glyphs | None = None,
        settings: ConsoleSettings | None = None,
        watch_clock: Clock | None = None,
    ) -> None:
        super().__init__(session)
        self.watch_clock = watch_clock
        self.settle(settings, glyphs)
        self.begin_vigil()
        self.ended_by = ""
        """Name of the signal that ended the console."""
        self.crash_file = ""
        self._open_session = open_session
        self._quit_note = quit_note
        self._title_note = title
        self._crash_dir = crash_dir
        self._toasts: dict[str, float] = {}
        self._gates = 0
        self.preparing = ""
        """What is being asked before a change: the change by its name, "" if none is. Its gate comes up by itself."""
        self.settled_theme()

    # --- start and end -----------------------------------------------------------------------------------------------

    def get_driver_class(self) -> type[Driver]:
        from textual.constants import DRIVER

        if DRIVER:
            return super().get_driver_class()
        from iris_tui.terminal import TerminalDriver

        return TerminalDriver

    def passes_at_once(self, key: str) -> bool:
        screen = self.screen
        built = isinstance(screen, ConsoleScreen) and screen.is_built
        return built and (key == "escape" or any(key in self.keymap.keys(action) for action in in_scope("app")))

    def is_bound(self, key: str) -> bool:
        return any(key in self.keymap.keys(action) for action in ACTIONS)

    def on_load(self) -> None:
        # Before the terminal is changed, so that no signal can leave it so.
        if not self.is_headless:
            loop = asyncio.get_running_loop()
            for number in SIGNALS:
                loop.add_signal_handler(number, self._signalled, number)

    def on_mount(self) -> None:
        self.enter(self.session)
        if self._title_note:
            self.say(self._title_note)
        self.report_settings()
        self.keep_vigil()

    def each_beat(self) -> None:
        self.check_write()

    def entered(self, session: Session) -> None:
        """A production cluster has its colours."""
        self.settled_theme()

    def _signalled(self, number: signal.Signals) -> None:
        self.ended_by = signal.Signals(number).name
        self.exit(128 + number, return_code=128 + number)

    def _fatal_error(self) -> None:
        """A bug: leave the trace in a file, without the values of variables, and end with one line."""
        self.crash_file = self._write_crash(self._exception)
        self._close_messages_no_wait()

    def _write_crash(self, error: BaseException | None) -> str:
        if self._crash_dir is None or error is None:
            return ""
        path = self._crash_dir / f"console-crash-{int(time.time())}.txt"
        try:
            self._crash_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(self.crash_text(error))
        except OSError:
            return ""
        return str(path)

    def exit(self, *args: Any, **options: Any) -> None:
        # While the screens still are what the operator sees.
        self.remember()
        super().exit(*args, **options)

    async def on_unmount(self) -> None:
        from iris_tui.threads import in_thread

        await self.end_rollouts()
        await in_thread(self.write_saved, name="save")
        for session in self.sessions.values():
            with contextlib.suppress(IrisError):
                await session.client.close()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Background work that failed is said, never fatal: the screen goes on with what it has."""
        if event.worker.error is not None:
            path = self._write_crash(event.worker.error)
            where = f"; details in {path}" if path else ""
            self.say(f"{event.worker.name} failed: {one_line(str(event.worker.error))}{where}", severity="error")

    # --- actions -----------------------------------------------------------------------------------------------------

    def refusal(self, action: Action) -> str:
        """Why this action may not be done now, "" if it may."""
        if self.session.offline and action.id in LIVE:
            return f"{action.title}: that needs a live cluster, and this is a checkpoint"
        if not action.mutates:
            return ""
        if self.session.read_only:
            return f"{action.title}: this console is read-only"
        if busy := self.change_in_the_way():
            return f"{action.title}: {busy}"
        screen = self.console_screen
        state = screen.link if screen is not None else self.session.link
        if not state.fresh:
            tries = self.keymap.first("app.refresh")
            return f"{action.title}: what is shown is not live ({state.link.value}); {tries} tries the connection"
        return ""

    def change_in_the_way(self) -> str:
        """Why no change may begin now, "" if one may: there is one decision at a time, also where the controller is slow to plan."""
        if self._gates:
            return "another change waits at the gate"
        return f"another change is being prepared ({self.preparing})" if self.preparing else ""

    async def pass_gate(self, gate: GateScreen) -> Decision | None:
        """Show a gate and wait for the decision. Only from a worker."""
        self._gates += 1
        try:
            return await self.push_screen_wait(gate)
        finally:
            self._gates -= 1

    @property
    def console_screen(self) -> ConsoleScreen | None:
        """The topmost screen that is not a dialog."""
        return next((screen for screen in reversed(self.screen_stack) if isinstance(screen, ConsoleScreen)), None)

    def host_of(self, scope: str) -> ActionHost | None:
        """Who answers a scope's actions: what has the focus, what is on the screen, a screen below, the app itself."""
        found = self._find_host(scope)
        return found[1] if found is not None else None

    def _find_host(self, scope: str) -> tuple[ConsoleScreen | None, ActionHost] | None:
        if scope in self.SCOPES:
            return None, self
        for screen in reversed(self.screen_stack):
            if not isinstance(screen, ConsoleScreen):
                continue
            hosts = [*screen.hosts(), *(node for node in screen.walk_children() if isinstance(node, ActionHost))]
            host = next((host for host in hosts if scope in host.SCOPES), None)
            if host is not None:
                return screen, host
        return None

    def perform_anywhere(self, action: Action, argument: str) -> None:
        """Do an action wherever it is answered, going back to that screen. Raises ModelError if nothing answers it."""
        found = self._find_host(action.scope)
        if found is None and argument and action.name in registry.SCREENS:
            # What works on a row here is a screen by itself, too.
            self.go(action.name, argument)
            return
        here = self.console_screen
        if (
            found is None
            and argument
            and here is not None
            and (host := registry.by_name(action.scope, here)) is not None
        ):
            host.perform(action, argument)
            return
        if found is None and action.anywhere:
            if refused := self.refusal(action):
                raise ModelError(refused)
            self.go(action.scope if action.scope in registry.SCREENS else registry.FIRST)
            screen = self.console_screen
            assert screen is not None
            do = partial(self._perform, screen, action, argument)
            # A change is refused where what is shown is not live, and a screen that was opened just now still connects.
            when = screen.when_settled if action.mutates else screen.when_mounted
            when(do)
            return
        if found is None:
            named = (
                f"name one: :{action.command} {action.arguments.strip('[]')}"
                if action.scope in registry.BY_NAME
                else ""
            )
            raise ModelError(
                f"{action.command or action.title}: there are no {SCOPES[action.scope].lower()} here", hint=named
            )
        screen, host = found
        if screen is not None:
            while self.screen is not screen and len(self.screen_stack) > 1:
                self.pop_screen()
        host.perform(action, argument)

    def _perform(self, host: ActionHost, action: Action, argument: str) -> None:
        """Do an action of a screen that was not shown before; what is wrong becomes a toast."""
        try:
            host.perform(action, argument)
        except ModelError as error:
            self.say(str(error), severity="warning")

    def do_anywhere(self, action: Action) -> None:
        """The same, as a menu asks for it: what is wrong becomes a toast."""
        try:
            self.perform_anywhere(action, "")
        except ModelError as error:
            self.say(str(error), severity="warning")

    def show_row(self, name: str) -> None:
        """Go to a job, task or attempt in the tree."""
        self.go(registry.FIRST)
        screen = self.console_screen
        show = getattr(screen, "show_row", None)
        if screen is not None and show is not None:
            screen.when_mounted(lambda: show(name))

    def run_command(self, text: str) -> None:
        """Do what was typed after `:`. Raises ModelError with the place of the fault."""
        from iris_tui.commands import parse_command

        if text.strip():
            self.perform_anywhere(*parse_command(text))

    def do_command(self) -> None:
        self.ask_command()

    def ask_command(self, text: str = "") -> None:
        """Show the command line, with this in it; nothing while something else is shown above the screen."""
        from iris_tui.commands import CommandSuggester

        screen = self.console_screen
        if screen is None or screen is not self.screen:
            return
        before = screen.focused

        def leave() -> None:
            if before is not None and before.is_attached:
                screen.set_focus(before, scroll_visible=False)

        def submit(text: str) -> None:
            leave()
            self.run_command(text)

        screen.prompt.ask(
            Question(
                ":",
                submit,
                cancel=leave,
                suggester=CommandSuggester(),
                history=self.session.saved.history("command"),
                goes_on=True,
            ),
            text,
        )

    def do_palette(self) -> None:
        from textual.command import CommandPalette

        from iris_tui.commands import ActionProvider, RowProvider

        if not isinstance(self.screen, CommandPalette):
            self.push_screen(CommandPalette(providers=[ActionProvider, RowProvider], placeholder="Action, job or task"))

    def do_help(self) -> None:
        from iris_tui.help import help_lines
        from iris_tui.pages import TextPage

        screen = self.console_screen
        if screen is None or screen is not self.screen:
            return
        active = [scope for host in screen.hosts() for scope in host.SCOPES]

        async def load() -> list[tuple[str, object]]:
            fields, words = getattr(screen, "FIELDS", None), getattr(screen, "WORDS", ())
            return list(
                help_lines(active, read_only=self.session.read_only, keymap=self.keymap, fields=fields, words=words)
            )

        self.push_screen(TextPage(self.session, "Help", load, dated=False))  # type: ignore[arg-type]

    def do_refresh(self) -> None:
        self.session.watch.retry_now()
        screen = self.console_screen
        reload = getattr(screen, "reload", None)
        if reload is not None:
            reload()

    def do_suspend(self) -> None:
        self.action_suspend_process()

    def do_quit(self) -> None:
        from iris_tui.gate import QuitScreen

        if isinstance(self.screen, QuitScreen):
            self.screen.dismiss(True)
            return
        rollout = self.rollout_note
        self.push_screen(
            QuitScreen("\n".join(filter(None, (rollout, self._quit_note))), stay=bool(rollout)),
            lambda sure: self.exit(0) if sure else None,
        )

    def do_quit_now(self) -> None:
        if self.rollout_note:
            self.do_quit()  # what is left half way is said first, however short the command is
        else:
            self.exit(0)

    def do_back(self) -> None:
        screen = self.screen
        close = getattr(screen, "close_page", None)
        if close is not None:
            close()
        elif isinstance(screen, ConsoleScreen) and screen.place[1]:
            self.go_back()
        else:
            self.do_quit()
