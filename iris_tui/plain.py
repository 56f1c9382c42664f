"""The console as lines: for screen readers, dumb terminals and pipes.

It is the same console, which is never drawn: its screens, commands, filters, plans and results. What a screen shows is printed when it
was asked for, a widget after the other, without colours, cursor movement or another screen; a gate asks its questions one by one.
Without a terminal there is nobody to ask: the first view is printed, and that is all. Must never say what the console does not.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Final, TextIO

from textual.screen import ModalScreen

from iris_core.model.errors import ModelError
from iris_core.model.text import one_line
from iris_tui.app import IrisApp
from iris_tui.commands import parse_command
from iris_tui.glyphs import ASCII
from iris_tui.list_screen import ListScreen
from iris_tui.plain_gate import ask_at_gate
from iris_tui.plain_lines import lines_of
from iris_tui.registry import FIRST
from iris_tui.threads import in_thread
from iris_tui.widgets.header import link_text
from iris_tui.widgets.pane import Pane, State

if TYPE_CHECKING:
    from iris_tui.gate import Decision, GateScreen
    from iris_tui.session import Session

SIZE: Final = (200, 400)
"""Columns and lines of a view; what is longer says so."""
LOOK_S: Final = 0.05
PATIENCE_S: Final = 30.0
"""A view that is not whole by then is printed as it is, and says so."""
QUIT: Final = ("q", "quit", "q!", "exit")
HELP: Final = """\
Enter prints the view again. The commands are those of the console, without its colon:
  jobs [FILTER], tasks [FILTER], scheduler, capacity, workers, users, endpoints, overview, controller, …
  job ID, task ID, logs ID, explain ID, describe ID      one of them
  filter FILTER, unfilter, sort COLUMN                   of the list
  cancel ID…, preempt ID…, fail ID…                      each asks before it changes anything
  back, help, quit
All of them: iris --keys"""


class Lines:
    """Standard input and output, a line at a time. Other streams are for tests."""

    def __init__(self, source: TextIO, sink: TextIO) -> None:
        self._source = source
        self._sink = sink

    def say(self, text: str = "") -> None:
        """One line, at once. Raises BrokenPipeError: nobody reads any more."""
        self._sink.write(text.rstrip() + "\n")
        self._sink.flush()

    async def ask(self, question: str) -> str | None:
        """The next line, None at the end of the input."""
        self._sink.write(question)
        self._sink.flush()
        line = await in_thread(self._source.readline, name="input")
        if not line:
            self.say()
            return None
        return line.strip()


class PlainApp(IrisApp):
    """The console; `asks` = there is somebody to ask for commands."""

    def __init__(self, session: Session, lines: Lines, *, asks: bool, **options: Any) -> None:
        super().__init__(session, glyphs=ASCII, **options)
        self.animation_level = "none"
        self.lines = lines
        self._asks = asks
        self.unread = False
        """Nobody reads what is printed any more."""

    def on_mount(self) -> None:
        self.run_worker(self._converse(), name="plain", group="plain")

    def say(self, text: str, *, severity: str = "information") -> None:
        word = {"error": "error: ", "warning": "warning: "}.get(severity, "")
        self._tell(f"{word}{text}")

    def do_quit(self) -> None:
        # `back` where nothing is behind; `quit` itself ends the conversation before it comes here.
        self.say("there is nothing to go back to from here; previous shows the screen before, quit leaves")

    async def pass_gate(self, gate: GateScreen) -> Decision | None:
        return await ask_at_gate(gate.plan, self.lines.say, self.lines.ask)

    def _tell(self, *texts: str) -> None:
        try:
            for text in texts:
                self.lines.say(text)
        except BrokenPipeError:
            self.unread = True

    async def _converse(self) -> None:
        try:
            whole = await self._print_view()
            while self._asks and not self.unread:
                line = await self.lines.ask("> ")
                if line is None or line.lstrip(":") in QUIT:
                    break
                await self._do(line.lstrip(":"))
        except BrokenPipeError:
            self.unread = True
        if self.unread:
            self.exit(return_code=141)
        else:
            self.exit(return_code=0 if whole or self._asks else 1)

    async def _do(self, line: str) -> None:
        if line == "help":
            self._tell(*HELP.splitlines())
            return
        try:
            action = parse_command(line)[0] if line else None
            if action is not None and action.scope == "target" and self.host_of("target") is None:
                # What is named by its id needs no list of such things to stand in.
                self.go(FIRST)
                await self._there()
            self.run_command(line)
        except ModelError as error:
            self._tell(f"error: {error}")
            return
        await asyncio.sleep(0)
        while self._is_changing() and not isinstance(self.screen, ModalScreen):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
        if action is None or not action.mutates or isinstance(self.screen, ModalScreen):
            await self._print_view()

    async def _print_view(self) -> bool:
        """Print what the screen shows, once it is there; returns whether it is whole and true."""
        await self._there()
        if isinstance(self.screen, ModalScreen):
            self.workers.cancel_group(self, "change")
            self.pop_screen()
            self._tell("that asks with a form, which there is not here: run the command line that does the same")
            return False
        screen = self.console_screen
        if screen is None:
            return False
        self._tell(
            f"{one_line(self.session.title)}  {screen.title_text()}  {link_text(screen.link)}", *lines_of(screen)
        )
        states = {pane.status.state for pane in screen.query(Pane) if pane.region.area}
        return not states & {State.LOADING, State.ERROR, State.STALE}

    def _is_changing(self) -> bool:
        return any(worker.group == "change" and not worker.is_finished for worker in self.workers)

    async def _there(self) -> None:
        until = time.monotonic() + PATIENCE_S
        looks = 0
        while looks < 2 and time.monotonic() < until:  # once more: what a command opens is not mounted at once
            await asyncio.sleep(LOOK_S)
            self._show_news()
            looks += self._is_there()

    def _show_news(self) -> None:
        screen = self.console_screen
        if screen is None or not screen.is_mounted:
            return
        if isinstance(screen, ListScreen) and screen.store.dirty:
            # Nobody's eye is on a row that would move.
            screen.soon()
        else:
            screen.flush_now()

    def _is_there(self) -> bool:
        if isinstance(self.screen, ModalScreen):
            return True
        screen = self.console_screen
        if screen is None or not screen.is_mounted or not screen.is_current or self.session.entrance is not None:
            return False
        panes = screen.query(Pane)
        shown = [pane for pane in panes if pane.region.area]
        if panes and not shown:
            return False  # it is not laid out yet
        if isinstance(screen, ListScreen):
            ordered = screen.is_ordered
        else:
            store = getattr(screen, "store", None)
            ordered = store is None or not store.dirty
        return ordered and all(pane.status.state is not State.LOADING for pane in shown)


def run_plain(session: Session, **options: Any) -> int:
    """Hold the conversation on standard input and output; returns the exit code."""
    # Textual takes the names `sys.stdout` and `sys.stderr` while it runs.
    source, sink = sys.stdin, sys.stdout
    asks = all(stream is not None and stream.isatty() for stream in (source, sink))
    reconfigure = getattr(sink, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")
    app = PlainApp(session, Lines(source, sink), asks=asks, **options)
    try:
        asyncio.run(app.run_async(headless=True, size=SIZE, mouse=False))
    except KeyboardInterrupt:
        return 130
    if app.unread:
        # What is left in the buffer has nowhere to go, and the interpreter would say so at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sink.fileno())
    return app.return_code or 0
