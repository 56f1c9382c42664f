"""A run that is told to end while a certain event of it is under way, on a host whose health is waited for until it was."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from iris_core.procedures.engine import Engine
from iris_core.procedures.journal import Journal
from providers.fake.host import FakeHost
from tests.unit.procedures_world import DyingJournal, Person

if TYPE_CHECKING:
    from iris_core.contracts import ControllerStatus
    from iris_core.live.clock import Clock
    from iris_core.procedures.approvals import Answer
    from iris_core.procedures.events import Outcome, Procedure
    from iris_core.procedures.journal import Record


class WaitingHost(FakeHost):
    """Says whether it is healthy only once a test lets it."""

    def __init__(self, release: str = "r1") -> None:
        super().__init__(release)
        self.lets = threading.Event()
        self.lets.set()

    def await_healthy(self, timeout_s: float = 120.0) -> ControllerStatus:
        assert self.lets.wait(60.0)
        return super().await_healthy(timeout_s)


class Ending:
    """Runs a procedure with the journal of a path, and goes on with it; `at` = the event at which the run is told to end."""

    def __init__(self, path: Path, host: WaitingHost, clock: Clock, make: Callable[[], Procedure]) -> None:
        self._path, self._host, self._clock, self._make = path, host, clock, make
        self.records: list[Record] = []

    async def run(self, answer: Answer, *, at: str = "", die_at: int = -1, after: bool = False) -> Outcome:
        opened = Journal.open(self._path) if self._path.exists() else Journal.create(self._path)
        dying = DyingJournal(opened, die_at=die_at, after=after)

        def watch(record: Record) -> None:
            if record.get("event") == at and record["type"] in ("gathering", "intent", "asked"):
                self._host.lets.clear() if record["type"] == "gathering" else None
                engine.cancel()
            elif record["type"] == "cancelled":
                self._host.lets.set()

        engine = Engine(dying, Person(answer), self._clock, account="ada", watch=watch)  # type: ignore[arg-type]
        try:
            return await engine.run("p", {}, self._make())
        finally:
            self._host.lets.set()
            self.records = dying.records
            dying.close()

    @property
    def told(self) -> bool:
        """Whether the end that was asked for is in the journal."""
        return any(record["type"] == "cancelled" for record in self.records)
