"""What the rollout screen reads: the journal of the one that is shown, or the clusters and the rollouts that there are.

All of it is read from files in a thread, whoever drives. Nothing is read of what is not shown. Must never hold a lock that a driver wants.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from iris_core.contracts import IrisError
from iris_core.live.polled import Polled
from iris_core.procedures.journal import JournalBroken
from iris_tui.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from iris_core.cli.rollout_runs import Known, Unreadable
    from iris_core.procedures.rollout_scope import Candidate
    from iris_tui.rollouts import Rollouts
    from iris_tui.session import Session

EVERY_S: Final = 0.3
LANDING_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Landing:
    """What could be taken, what was begun, which journals cannot be read, and what kept the clusters from being read, "" if nothing did."""

    candidates: list[Candidate]
    known: list[Known]
    unreadable: list[Unreadable]
    fault: str


class RolloutReads:
    """Read what is `due`, ten times a second.

    Attributes:
        shown: The rollout that is shown, "" = the list of all.
        landing: The list.
        one: The rollout; None as long as nothing is written of one that was begun here just now.
    """

    def __init__(self, session: Session, rollouts: Rollouts) -> None:
        self.shown = ""
        self._session = session
        self._rollouts = rollouts
        self.landing: Polled[Landing] = Polled(self._read_landing, every_s=LANDING_S)
        self.one: Polled[Known | None] = self._of("")

    def show(self, procedure: str) -> None:
        """Read this one from now on, "" = the list; nothing is known of it yet. What is still being read of another is nobody's."""
        self.shown = procedure
        self.one = self._of(procedure)
        self.landing.want()

    def want(self) -> None:
        """Read again now."""
        (self.one if self.shown else self.landing).want()

    def due(self) -> Coroutine[Any, Any, None] | None:
        """What is to be read now, to be awaited."""
        polled: Polled[Any] = self.one if self.shown else self.landing
        now_s = time.monotonic()  # files change in this machine's own time
        return polled.read(now_s, self._session.clock.now_ms()) if polled.due(now_s) else None

    def _of(self, procedure: str) -> Polled[Known | None]:
        async def load() -> Known | None:
            return await self._read_one(procedure)

        return Polled(load, every_s=EVERY_S)

    async def _read_one(self, procedure: str) -> Known | None:
        def work() -> Known:
            from iris_core.cli import rollout_runs

            return rollout_runs.find(self._rollouts.folder(), procedure)

        try:
            return await in_thread(work, name="read a rollout")
        except JournalBroken:
            raise
        except IrisError as error:
            driving = self._rollouts.driving
            if driving is not None and driving.id == procedure and not driving.over:
                return None  # its first line is on its way
            raise IrisError(error.message) from error  # its hint is about words of the command line

    async def _read_landing(self) -> Landing:
        line = self._rollouts.command_line(self._session)

        def work() -> Landing:
            from iris_core.cli import rollout_runs

            folder = self._rollouts.folder()
            try:
                candidates, fault = rollout_runs.listed(line)
            finally:
                line.close()
            there = rollout_runs.listing(folder)
            return Landing(candidates, there.known, there.unreadable, fault)

        try:
            return await in_thread(work, name="read rollouts")
        except IrisError as error:
            raise IrisError(error.message) from error
