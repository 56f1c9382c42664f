"""Clusters on fake hosts, with the real engine, journal, record and lock: what a rollout does to them, and what can go wrong."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iris_core.contracts import IrisError
from iris_core.procedures import lock, record, rollout_watch
from iris_core.procedures.approvals import Answer
from iris_core.procedures.downtime import Downtime
from iris_core.procedures.engine import Engine
from iris_core.procedures.events import APPROVE, Gate, Outcome
from iris_core.procedures.journal import Journal
from iris_core.procedures.lock import Holder
from iris_core.procedures.record import Phase, RolloutRecord
from iris_core.procedures.restart import Target
from iris_core.procedures.rollback import rollback
from iris_core.procedures.rollout import Fleet, rollout
from iris_core.procedures.rollout_checks import Check
from iris_core.procedures.rollout_cluster import Site
from iris_core.procedures.rollout_scope import Candidate
from iris_core.procedures.source_tree import SourceTree
from providers.fake.clock import FakeClock
from providers.fake.host import FakeHost
from providers.fake.objects import FakeStore
from tests.unit.procedures_world import DyingJournal

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_core.procedures.approvals import Approver
    from iris_core.procedures.journal import Record

OLD, NEW = "1" * 40, "2" * 40
BEFORE = RolloutRecord(Phase.COMMITTED, OLD, "0" * 40, "gs://fake/root/controller-state/1", 5)
PROCEDURE = "rollout-1"
NOTHING = SourceTree("", Path(), "", "", "", ())


class RunningClock(FakeClock):
    """One on which waiting takes no time and time passes nevertheless."""

    def __init__(self) -> None:
        super().__init__()
        self.going = asyncio.Event()
        """Cleared, whoever waits goes on waiting."""
        self.going.set()

    async def sleep(self, seconds: float) -> None:
        await self.going.wait()
        self.advance(seconds)


class FakeCluster:
    """One cluster: its host, store, jobs, and how it is seen."""

    def __init__(self, name: str, clock: FakeClock) -> None:
        self.name = name
        self.clock = clock
        self.host, self.store = FakeHost(OLD), FakeStore()
        self.host.on_start = self.boot
        self.host.on_start = self.boot
        self.store.put(record.RECORD, BEFORE.to_json())
        self.jobs: Counter[str] = Counter()
        self.smoke_state = "succeeded"
        self.looks: Counter[str] = Counter()
        self.changes: dict[str, Any] = {}
        """What is seen differently once the new release runs."""
        self.refuse_sample, self.refuse_build, self.refuse_submit, self.refuse_check = "", "", "", ""
        self.saved = 0

    def boot(self, release: str) -> None:
        """A rollback that the record asks of this release is marked as done before it serves."""
        standing = record.read(self.store)
        found = standing.record
        if found is not None and (found.phase, found.image) == (Phase.ROLLBACK_REQUESTED, release):
            record.write(self.store, record.rolled_back(standing, self.clock.now_ms()), standing)

    # --- what a site does ------------------------------------------------------------------------------------------

    def sample(self) -> dict[str, Any]:
        self.looks["sample"] += 1
        if self.refuse_sample:
            raise IrisError(self.refuse_sample)
        now = self.clock.now_ms()
        seen: dict[str, Any] = {
            "at_ms": now, "reachable": True, "tree": self.host.release, "boot_id": self.host.boot_id, "version": "1", "ready": True,
            "problems": [], "workers_total": 2, "workers_healthy": 2, "jobs": {"running": 1}, "tasks": {"running": 3, "pending": 1},
            "failures": 0, "failures_since_ms": now - 3_600_000, "lag_ms": 1.5, "store": "serving", "store_lag_ms": 20,
        }  # fmt: skip
        return {**seen, **(self.changes if self.host.release == NEW else {})}

    def submit(self, name: str) -> str:
        if self.refuse_submit:
            raise IrisError(self.refuse_submit)
        self.jobs[f"/ada/{name}"] += 1
        return f"/ada/{name}"

    def smoke(self, job: str) -> dict[str, Any] | None:
        if job not in self.jobs:
            return None
        ended = self.smoke_state != "running"
        passed = self.smoke_state == "succeeded"
        return {"state": self.smoke_state, "ended": ended, "passed": passed, "lines": ["hello world"] if passed else []}

    def checkpoint(self, stop: bool, timeout_s: float) -> str:
        self.saved += 1
        path = f"{self.store.url}/controller-state/{10 + self.saved}"
        if stop:
            self.host.last_checkpoint = (self.host.boot_id, path)
            self.host.running = False
            self.host.effects.append("ended")
        return path

    def build(self, tree: SourceTree) -> str:
        if self.refuse_build:
            raise IrisError(self.refuse_build)
        return tree.id

    def check(self) -> str:
        if self.refuse_check:
            raise IrisError(self.refuse_check)
        return "there is room"

    def target(self, tree: SourceTree, procedure: str, account: str) -> Target:
        return Target(
            name=self.name, host=self.host, store=self.store, holder=Holder(procedure, account, "desk", self.clock.now_ms()),
            now_ms=self.clock.now_ms, freeze=lambda: tree, build=self.build, schema=lambda release: ["0001"],
            running=lambda: {"running": 3}, checkpoint=self.checkpoint, restore_hint=lambda path: f"restore {path}",
            command="cluster controller restart",
        )  # fmt: skip

    def site(self, procedure: str, account: str) -> Site:
        return Site(
            candidate=Candidate(self.name, "local", 3),
            target=lambda tree: self.target(tree, procedure, account),
            checks=(Check("room on its disk", "a release has to fit", self.check),),
            sample=self.sample,
            downtime=Downtime(lambda: self.host.running, every_s=0.001),
            submit=self.submit,
            smoke=self.smoke,
            job_id=lambda name: f"/ada/{name}",
            roll_back=lambda: rollback(self.target(NOTHING, procedure, account)),
        )

    # --- what a test looks at --------------------------------------------------------------------------------------

    @property
    def record(self) -> RolloutRecord:
        found = record.read(self.store).record
        assert found is not None
        return found

    @property
    def free(self) -> bool:
        return lock.read(self.store).holder is None

    @property
    def untouched(self) -> bool:
        return not self.host.effects and self.record == BEFORE and self.free and not self.jobs

    @property
    def shipped(self) -> bool:
        return (self.host.release, self.host.running, self.record.phase, self.record.image) == (
            NEW,
            True,
            Phase.COMMITTED,
            NEW,
        )


class Operator:
    """Approves as whoever types the right name; `refuses` are gates at which it stops, `choices` what it says elsewhere."""

    def __init__(self, *refuses: str, choices: dict[str, str] | None = None) -> None:
        self.refuses = refuses
        self.choices = choices or {}
        self.asked: list[Gate] = []

    async def ask(self, gate: Gate) -> Answer:
        self.asked.append(gate)
        if gate.id in self.refuses:
            return Answer("stop")
        return Answer(self.choices.get(gate.id, APPROVE), typed=gate.name)

    @property
    def ids(self) -> list[str]:
        return [gate.id for gate in self.asked]


class RolloutWorld:
    """Some clusters, and a rollout of a tree to them."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.folder = folder
        self.clock = RunningClock()
        self.clusters = {name: FakeCluster(name, self.clock) for name in names or ("h1", "h2")}
        self.tree = SourceTree(NEW, folder, "main", "c0ffee" * 6, "Mend it", ("a.py",), "origin/main", 1, 0)
        self.freezes = 0
        self.lines = 0
        self.named = True
        self.checks_command = ""
        self.older = False

    def __getitem__(self, name: str) -> FakeCluster:
        return self.clusters[name]

    @property
    def path(self) -> Path:
        return self.folder / f"{PROCEDURE}.jsonl"

    def freeze(self) -> SourceTree:
        self.freezes += 1
        return self.tree

    def fleet(self, account: str = "ada", procedure: str = PROCEDURE) -> Fleet:
        return Fleet(
            procedure=procedure,
            sites=tuple(cluster.site(procedure, account) for cluster in self.clusters.values()),
            named=self.named,
            freeze=self.freeze,
            clock=self.clock,
            checks_command=self.checks_command,
            older=self.older,
        )

    async def run(
        self, operator: Approver | None = None, *, account: str = "ada", die_at: int = -1, after: bool = False,
        engine: list[Engine] | None = None, procedure: str = PROCEDURE, watch: Callable[[Record], None] = lambda _: None,
    ) -> Outcome:  # fmt: skip
        path = self.folder / f"{procedure}.jsonl"
        dying = DyingJournal(Journal.open(path) if path.exists() else Journal.create(path), die_at=die_at, after=after)
        made = Engine(dying, operator or Operator(), self.clock, account=account, watch=watch)  # type: ignore[arg-type]
        if engine is not None:
            engine.append(made)
        try:
            return await made.run("rollout", {"clusters": list(self.clusters)}, rollout(self.fleet(account, procedure)))
        finally:
            self.lines = len(dying.records)
            dying.close()


WATCHED = int(rollout_watch.DURATION_S / rollout_watch.INTERVAL_S) + 1
"""Samples of one watch."""
