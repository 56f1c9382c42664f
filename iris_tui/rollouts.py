"""The rollouts that this console drives: they belong to the console and not to a screen, so that leaving the screen ends none of them.

A rollout runs in the console's own loop with the engine, the journal and the fleet of the command line (`iris_core.cli.rollout_runs`); a
gate waits for whoever is at the screen, for as long as it takes. Leaving it, or the console, stops it at the next safe point: its journal
has everything, and this or another console, or the command line, goes on there. Must never answer a gate by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iris_core.cli.diagnostics import Diagnostics
from iris_core.contracts import IrisError
from iris_core.live.faults import fault_text
from iris_core.model.errors import ModelError
from iris_core.model.text import one_line
from iris_core.procedures.events import Suspended
from iris_tui.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from iris_core.cli.rollout_runs import Run
    from iris_core.cli.session import Session as CommandLine
    from iris_core.live.clock import Clock
    from iris_core.procedures.approvals import Answer
    from iris_core.procedures.engine import Engine
    from iris_core.procedures.events import Gate, Outcome
    from iris_core.procedures.journal import Record
    from iris_tui.session import Session

    RequireWrite = Callable[[Sequence[str]], None]
    """Raises ModelError where this console may change nothing of one of these clusters; asked before anything is begun, in a thread."""

KEPT_NOTES: Final = 20


class Quiet(Diagnostics):
    """What a command would say on standard error, which is the console's own screen: the last lines of it are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def _write(self, text: str) -> None:
        self.notes = [*self.notes, text][-KEPT_NOTES:]

    def progress(self, text: str) -> None:
        """Nothing is drawn over the screen."""


@dataclass(slots=True)
class Asked:
    """A gate that waits for an answer here."""

    gate: Gate
    answer: asyncio.Future[Answer]


class Driving:
    """One rollout that this console drives.

    Attributes:
        asked: The gate that waits, None if none does.
        leaving: It was told to stop at the next safe point.
        outcome: Its end, None before.
        fault: Why it stopped without an end, "" if it did not.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.asked: Asked | None = None
        self.leaving = False
        self.outcome: Outcome | None = None
        self.fault = ""
        self._engine: Engine = run.engine(self)
        self._task: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        """Of the rollout."""
        return self.run.id

    @property
    def over(self) -> bool:
        """Whether it no longer runs here."""
        return self._task is not None and self._task.done()

    def start(self, *, end: bool = False) -> None:
        """Run it; to `end` it is to put right what was begun."""
        if end:
            self._engine.cancel()
        self._task = asyncio.get_running_loop().create_task(self._drive(), name=f"rollout {self.id}")

    async def _drive(self) -> None:
        try:
            self.outcome = await self.run.drive(self._engine)
        except Suspended:
            pass  # it goes on where it was left
        except IrisError as error:
            self.fault = fault_text(error)
        except Exception as error:  # nobody waits for this task: what is not kept here is never heard of
            self.fault = one_line(f"{type(error).__name__}: {error}; this is a fault of the program")
        finally:
            await _close(self.run)

    async def ask(self, gate: Gate) -> Answer:
        """Implements Approver: whoever is at the screen answers."""
        self.asked = Asked(gate, asyncio.get_running_loop().create_future())
        try:
            return await self.asked.answer
        finally:
            self.asked = None

    def answer(self, answer: Answer) -> None:
        """The answer to the gate that waits. Raises Refused: it does not fit, and the gate waits on."""
        from iris_core.procedures.approvals import check

        if self.asked is None or self.asked.answer.done():
            return
        check(self.asked.gate, answer)
        self.asked.answer.set_result(answer)

    def leave(self) -> None:
        """Stop it at the next point at which nothing is half done."""
        self.leaving = True
        self._engine.suspend()

    def abort(self) -> None:
        """End it: what was begun is put right."""
        self._engine.cancel()

    async def finished(self) -> None:
        """Wait until it no longer runs here."""
        if self._task is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(self._task)


async def _close(run: Run) -> None:
    """Give up its connections, which may take a while, and then, at one stroke with the end of whoever calls this, its journal."""
    try:
        await in_thread(run.session.close, name="close a rollout")
    finally:
        run.journal.close()


def leaving(procedure: str, records: Sequence[Record], gate: str) -> Iterator[str]:
    """What becomes of a rollout whose console ends now: what goes on, what stops, who holds which lock, and how to go on with it.

    `gate` is the question that waits, "" if none does.
    """
    from iris_core.procedures import rollout_report

    at = rollout_report.under_way(records)
    locked = rollout_report.held_locks(records)
    rollout, cluster = one_line(procedure), one_line(at)
    if gate:
        yield f"{rollout} stops here: its question ({one_line(gate)}) stays open, and nothing goes on by itself."
    elif not at:
        yield f"{rollout} stops here, before anything was changed."
    elif rollout_report.standing(records, at).startswith(rollout_report.WATCHING):
        yield (
            f"{rollout} stops here: {cluster} runs the new release, and its jobs go on, but nobody watches it. "
            "The watch begins anew when the rollout is gone on with, and nothing shortens it."
        )
    else:
        yield (
            f"{rollout} stops at the next safe point: a controller of {cluster} that is being replaced is seen to its end first, "
            "and the console waits for that. Jobs go on."
        )
    if locked:
        yield f"{rollout} keeps the lock of {one_line(', '.join(locked))}: nobody else can change that until it is gone on with or ended."
    else:
        yield "It holds no lock."
    yield f"Go on with it: iris-core rollout resume {rollout}, or :rollout-resume here. End it: iris-core rollout abort {rollout}."


class Rollouts:
    """Those of one console. `watch_clock` is that of the watch, for tests; None = the machine's own."""

    def __init__(self, watch_clock: Clock | None = None) -> None:
        self.watch_clock = watch_clock
        self.driving: Driving | None = None
        self.journal_dir: str | None = None
        """None = where the command line keeps journals, too."""
        self.account = ""
        """Who drives, "" = whoever this process belongs to."""
        self.tree = Path()
        """Where the tree is that is shipped: the folder that the console was started in."""

    def folder(self) -> Path:
        """Where the journals are. Raises IrisError; may block."""
        from iris_core.procedures.journal import journal_dir

        return journal_dir(self.journal_dir)

    def command_line(self, session: Session) -> CommandLine:
        """A command line that selects what the console shows, and says nothing."""
        from iris_core.cli.session import Session as CommandLine

        made = CommandLine(clock=self.watch_clock)
        made.diagnostics = Quiet()
        option, _, value = "".join(shlex.split(session.selector)).partition("=")
        if option == "--config":
            made.config = value
        return made

    def require_idle(self) -> None:
        """Raises ModelError: this console drives one already."""
        if self.driving is not None and not self.driving.over:
            raise ModelError(f"this console drives {self.driving.id} already: leave it first")

    async def begin(self, session: Session, clusters: str, require_write: RequireWrite) -> Driving:
        """Begin one to the clusters, named with commas between them, and run it from here. Raises IrisError, ModelError."""

        def make(line: CommandLine) -> Run:
            from iris_core.cli import rollout_fleet, rollout_runs

            scope = rollout_fleet.scope(line, clusters)
            require_write(scope.names)
            return rollout_runs.begin(line, self.folder(), scope, rollout_fleet.Shipping(), self.tree, who=self.account)

        return await self._drive(session, make)

    async def go_on(
        self, session: Session, procedure: str | None, require_write: RequireWrite, *, end: bool = False
    ) -> Driving:
        """Go on with one, None = the only one that has not ended; to `end` it is to put right what was begun. Raises IrisError, ModelError."""

        def make(line: CommandLine) -> Run:
            from iris_core.cli import rollout_runs

            one = rollout_runs.chosen(self.folder(), procedure)
            if one.ended:
                raise IrisError(f"{one.id} has ended: {one.progress.state}")
            require_write(one.clusters)
            return rollout_runs.go_on(line, one, self.account)

        return await self._drive(session, make, end=end)

    async def _drive(self, session: Session, make: Callable[[CommandLine], Run], *, end: bool = False) -> Driving:
        line = self.command_line(session)

        def work() -> Run:
            try:
                return make(line)
            except BaseException:
                line.close()  # it may have begun to connect
                raise

        run = await in_thread(work, name="open a rollout")
        try:
            self.require_idle()
        except ModelError:
            await _close(run)
            raise
        self.driving = Driving(run)
        self.driving.start(end=end)
        return self.driving

    @property
    def note(self) -> str:
        """What the question before quitting says of it, "" if nothing runs."""
        driving = self.driving
        if driving is None or driving.over:
            return ""
        gate = driving.asked.gate.id if driving.asked is not None else ""
        return "\n".join(leaving(driving.id, driving.run.journal.records, gate))

    async def end(self) -> None:
        """Leave what runs at a safe point, and wait for that."""
        driving = self.driving
        if driving is not None and not driving.over:
            driving.leave()
            await driving.finished()


class RollingOut:
    """The part of the app that keeps its rollouts. Mix into an App."""

    watch_clock: Clock | None = None

    @cached_property
    def rollouts(self) -> Rollouts:
        """What this console rolls out."""
        return Rollouts(self.watch_clock)

    @property
    def rollout_note(self) -> str:
        """What the question before quitting says of a rollout, "" if none runs here."""
        return self.rollouts.note if "rollouts" in self.__dict__ else ""

    async def end_rollouts(self) -> None:
        """Before the console ends."""
        if "rollouts" in self.__dict__:
            await self.rollouts.end()
