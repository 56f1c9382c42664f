"""Workers of a deployed controller on fakes: each has a boot, a release and attempts, and a test decides how it comes back.

Time goes on by itself while somebody sleeps, and a worker that was told to end is back after `away_s` of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iris_core.contracts import ConnectFailed
from iris_core.procedures.approvals import Answer
from iris_core.procedures.engine import Engine
from iris_core.procedures.events import Outcome, Procedure
from iris_core.procedures.journal import Journal, Record
from iris_core.procedures.worker_moves import Fleet, Wishes
from iris_core.procedures.worker_restart import worker_restart
from providers.fake.clock import FakeClock
from tests.unit.procedures_world import DyingJournal, Person
from tests.unit.restart_world import YES, World

CODE = "c0de"
"""The release that the controller runs, as its workers name it."""


class TickingClock(FakeClock):
    """One that goes on while somebody sleeps."""

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)


@dataclass
class FakeWorker:
    """`back`: how it comes back: "well", "never", "old" (with its old release), "dies" (and is started again a second later)."""

    name: str
    attempts: list[str] = field(default_factory=list)
    release: str = "0ld"
    boot: int = 1
    back: str = "well"
    told_at: float = -1.0
    ended: int = 0

    @property
    def boot_id(self) -> str:
        return f"{self.name}-{self.boot}"


class Workers(World):
    """A cluster whose controller runs, with workers."""

    def __init__(self, folder: Path, *workers: FakeWorker) -> None:
        super().__init__(folder)
        self.clock: TickingClock = TickingClock()
        self.all = {worker.name: worker for worker in workers}
        self.away_s = 3.0
        self.told: list[list[str]] = []
        self.faults: deque[str] = deque()
        """Of the next restarts: "lost" = it takes effect, and its answer is lost; "silent" = nobody answers."""
        self.moves_to: dict[str, str] = {}
        """Where the tasks of a worker that ends are placed anew."""
        self.silent = 0
        """So many looks at the workers find no controller."""

    def fleet(self) -> Fleet:
        return Fleet(lambda: {"release": CODE}, self.workers, self.placed, self.here, self.restart)

    def _tend(self, worker: FakeWorker) -> bool:
        """Whether it is up now."""
        if worker.told_at < 0:
            return True
        passed = self.clock.monotonic() - worker.told_at
        if worker.back == "never" or passed < self.away_s:
            return False
        worker.boot, worker.told_at = worker.boot + 1, -1.0
        if worker.back == "dies":
            worker.back, worker.told_at = "dies again", self.clock.monotonic()
            worker.release = CODE
            return True
        worker.release = worker.release if worker.back == "old" else CODE
        return True

    def workers(self) -> list[dict[str, Any]]:
        if self.silent:
            self.silent -= 1
            raise ConnectFailed("nobody answers")
        return [
            {"worker_id": w.name, "healthy": self._tend(w), "boot_id": w.boot_id, "release": w.release}
            for w in self.all.values()
        ]

    def placed(self) -> dict[str, dict[str, str]]:
        return {w.name: {f"uid{key}": key for key in w.attempts} for w in self.all.values()}

    def here(self) -> list[dict[str, Any]]:
        placed = self.placed()
        return [
            {"worker_id": w.name, "boot_id": w.boot_id if up else "", "attempts": placed[w.name] if up else {}}
            for w in self.all.values()
            for up in (self._tend(w),)
        ]

    def restart(self, wanted: Sequence[Mapping[str, Any]], within_s: float) -> dict[str, Any]:
        fault = self.faults.popleft() if self.faults else ""
        if fault == "silent":
            raise ConnectFailed("the connection broke")
        said: dict[str, Any] = {"told": [], "left": {}, "failed": {}, "ended": []}
        for item in wanted:
            worker = self.all[item["worker_id"]]
            said["told"].append(worker.name)
            if not self._tend(worker) or worker.boot_id != item["boot_id"]:
                continue
            assert {f"uid{key}" for key in worker.attempts} <= set(item["attempts"]), "it ends what nobody named"
            said["ended"] += worker.attempts
            if worker.name in self.moves_to:
                self.all[self.moves_to[worker.name]].attempts += [f"{key}'" for key in worker.attempts]
            worker.attempts, worker.told_at, worker.ended = [], self.clock.monotonic(), worker.ended + 1
        self.told.append(list(said["told"]))
        if fault == "lost":
            raise ConnectFailed("the connection broke")
        return said

    def procedure(self, procedure: str = "p", **wishes: Any) -> Procedure:
        return worker_restart(self.target(procedure), self.fleet(), Wishes(**wishes), self.clock)

    async def go(
        self,
        answer: Answer = YES,
        *,
        id_: str = "p",
        die_at: int = -1,
        after: bool = False,
        cancel_at: int = -1,
        person: Person | None = None,
        **wishes: Any,
    ) -> Outcome:
        path = self.folder / f"{id_}.jsonl"
        dying = DyingJournal(Journal.open(path) if path.exists() else Journal.create(path), die_at=die_at, after=after)

        def watch(record: Record) -> None:
            if len(dying.records) == cancel_at + 1:
                self.engine.cancel()

        self.engine = Engine(dying, person or Person(answer), self.clock, account="ada", watch=watch)  # type: ignore[arg-type]
        try:
            return await self.engine.run("worker-restart", {}, self.procedure(id_, **wishes))
        finally:
            self.lines = len(dying.records)
            self.asked = [r for r in dying.records if r["type"] == "asked"]
            dying.close()
