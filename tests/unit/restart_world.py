"""A cluster on the shipped fake host, with the real engine, journal, record and lock, and a controller that has a database.

The database is a schema and rows; a boot migrates it, consumes a rollback and is on probation as a real one. So a test sees what was
lost, what was restored and how often, whatever order things were done in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from iris_core.contracts import ConnectFailed, IrisError, RpcFailed
from iris_core.procedures import lock, record
from iris_core.procedures.approvals import Answer
from iris_core.procedures.engine import Engine
from iris_core.procedures.events import APPROVE, Outcome
from iris_core.procedures.journal import Journal
from iris_core.procedures.lock import Holder
from iris_core.procedures.record import Phase, RolloutRecord
from iris_core.procedures.restart import restart
from iris_core.procedures.rollback import rollback
from iris_core.procedures.source_tree import SourceTree
from iris_core.procedures.target import Lost, Saved, Target
from providers.fake.clock import FakeClock
from providers.fake.host import FakeHost
from providers.fake.objects import FakeStore
from tests.unit.procedures_world import DyingJournal, Person

if TYPE_CHECKING:
    from iris_core.procedures.events import Procedure

YES = Answer(APPROVE, typed="lab")
OLD, NEW = "r1", "r2"
BEFORE = RolloutRecord(Phase.COMMITTED, OLD, "r0", "gs://fake/root/controller-state/1", 5, {"later": 1})
FIRST, SECOND = ["0001"], ["0001", "0002"]


_COMMANDS = re.compile(
    r"cluster (?:controller|status|start|stop|restart)\b|runbook |rollout (?:status|resume|run|abort)\b"
    r"|(?<!controller )(?:break-lock|withdraw-rollback|restart --)"
)


def require_pasteable(outcome: Outcome, program: str) -> None:
    """Each command that an outcome names can be pasted into a shell as it stands."""
    for line in (outcome.next, *outcome.details):
        for found in _COMMANDS.finditer(line):
            assert line[: found.start()].endswith(f"{program} "), line


@dataclass
class Database:
    """What a controller has."""

    schema: list[str]
    rows: list[str] = field(default_factory=list)

    def copy(self) -> Database:
        return Database(list(self.schema), list(self.rows))


class World:
    """A cluster with a record, a host, and a controller that writes checkpoints."""

    def __init__(self, folder: Path, before: RolloutRecord | None = BEFORE, *, migrates: bool = False) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.store, self.host = FakeStore(), FakeHost(OLD)
        self.host.on_start = self.boot
        if before is not None:
            self.store.put(record.RECORD, before.to_json())
        self.schemas = {OLD: FIRST, NEW: SECOND if migrates else FIRST, "r0": FIRST}
        self.database = Database(list(FIRST), ["a", "b"])
        self.checkpoints: dict[str, Database] = {}
        self.damaged: set[str] = set()
        """Of `checkpoints`: their manifests are valid, and what they hold is not."""
        self.restored: list[str] = []
        self.refused: list[str] = []
        """Releases that refused to start: the database is newer than they are."""
        self.probation = False
        self.submits = 0
        """When the newest job was submitted."""
        self.refuse_build, self.refuse_save, self.refuse_stop, self.refuse_secrets = "", "", "", ""
        self.refuse_room = ""
        self.program = "iris-core --cluster=lab"
        self.hangs = False
        """It answers nothing."""
        self.answer_lost = False
        self.notes = True
        """A controller notes which checkpoint it ends with."""
        self.marks = True
        """A boot can write that a rollback is done."""

    # --- the controller ------------------------------------------------------------------------------------------------

    def boot(self, release: str) -> None:
        """As `checkpoint/choose.py` and `probation.py` have it."""
        standing = record.read(self.store)
        found = standing.record
        if found is not None and found.phase is Phase.ROLLBACK_REQUESTED and found.image == release:
            if found.rollback_checkpoint:
                self.database = self.checkpoints[found.rollback_checkpoint].copy()
                self.restored.append(found.rollback_checkpoint)
            if self.marks:
                record.write(self.store, record.rolled_back(standing, self.clock.now_ms()), standing)
        if not set(self.database.schema) <= set(self.schemas[release]):
            self.refused.append(release)
            self.host.running = False
            return
        self.database.schema = list(self.schemas[release])
        self.probation = found is not None and (found.phase, found.image) == (Phase.PENDING, release)

    def work(self, row: str) -> bool:
        """Somebody submits a job, which may take a name over; whether it is taken."""
        if not self.host.running or self.on_probation:
            return False
        self.submits += 1
        if row not in self.database.rows:
            self.database.rows.append(row)
        return True

    @property
    def on_probation(self) -> bool:
        found = self.record
        return self.probation and found is not None and found.phase is not Phase.COMMITTED

    def commit_itself(self) -> None:
        """What a controller does whose driver is gone."""
        standing = record.read(self.store)
        record.write(self.store, record.committed(standing, NEW, 77), standing)

    def save(self) -> str:
        """A checkpoint of now."""
        path = f"{self.store.url}/controller-state/{len(self.checkpoints) + 10}"
        self.checkpoints[path] = self.database.copy()
        return path

    def checkpoint(self, stop: bool, timeout_s: float) -> str:
        refused = self.refuse_stop if stop else self.refuse_save
        if refused:
            raise RpcFailed("UNAVAILABLE", refused)
        row = "right before the end" if stop else "while saving"
        if row not in self.database.rows:
            self.work(row)
        path = self.save()
        if stop:
            self.host.last_checkpoint = (self.host.boot_id, path) if self.notes else ("", "")
            self.host.running = False
            self.host.effects.append("ended")
        if stop and self.answer_lost:
            raise ConnectFailed("the connection broke")
        return path

    # --- what a restart asks -------------------------------------------------------------------------------------------

    def build(self, tree: SourceTree) -> str:
        if self.refuse_build:
            raise IrisError(self.refuse_build)
        return tree.id

    def running(self) -> dict[str, int]:
        if self.hangs:
            raise ConnectFailed("http://fake:10000 did not answer within 20 s")
        return {"running": 3}

    def room(self) -> None:
        if self.refuse_room:
            raise IrisError(self.refuse_room)

    def secrets(self) -> None:
        if self.refuse_secrets:
            raise IrisError(self.refuse_secrets)

    def newest_whole(self, passed_over: list[str]) -> Saved | None:
        for path in sorted(self.checkpoints, key=lambda path: -int(path.rpartition("/")[2])):
            if path not in self.damaged:
                return self.saved(path)
            passed_over.append(f"checkpoint {path.rpartition('/')[2]}: it is damaged")
        return None

    def saved(self, path: str) -> Saved:
        if path not in self.checkpoints:
            raise IrisError(f"Checkpoint not found: {path}")
        return Saved(path, self.clock.now_ms() - 90 * 60_000, self.checkpoints[path].schema[-1])

    def lost(self, path: str) -> Lost:
        rows = [row for row in self.database.rows if row not in self.checkpoints[path].rows]
        return Lost(len(rows), 0, tuple(rows[:3]), self.submits if rows else 0)

    def target(self, procedure: str = "p") -> Target:
        return Target(
            name="lab", host=self.host, store=self.store, holder=Holder(procedure, "ada", "desk", 1), now_ms=self.clock.now_ms,
            freeze=lambda: SourceTree(NEW, self.folder, "main", "c0ffee", "Mend it", ("a.py",)),
            build=self.build, schema=lambda release: self.schemas[release], running=self.running,
            checkpoint=self.checkpoint, restore_hint=lambda path: f"restore {path}", command="cluster controller restart",
            room=self.room, secrets=self.secrets, newest_whole=self.newest_whole, saved=self.saved, lost=self.lost,
            program=self.program,
        )  # fmt: skip

    async def run(
        self,
        answer: Answer = YES,
        *,
        procedure: str = "p",
        die_at: int = -1,
        after: bool = False,
        skip: bool = False,
        back: bool = False,
        person: Person | None = None,
    ) -> Outcome:
        """Runs or goes on with a restart, or with a rollback (`back`)."""
        path = self.folder / f"{procedure}.jsonl"
        dying = DyingJournal(Journal.open(path) if path.exists() else Journal.create(path), die_at=die_at, after=after)
        engine = Engine(dying, person or Person(answer), self.clock, account="ada")  # type: ignore[arg-type]
        target = self.target(procedure)
        made: Procedure = rollback(target) if back else restart(target, skip_checkpoint=skip)
        try:
            outcome = await engine.run("rollback" if back else "restart", {}, made)
            require_pasteable(outcome, self.program)
            return outcome
        finally:
            self.lines = len(dying.records)
            self.asked = [r for r in dying.records if r["type"] == "asked"]
            dying.close()

    # --- what a test looks at ------------------------------------------------------------------------------------------

    @property
    def record(self) -> RolloutRecord | None:
        return record.read(self.store).record

    @property
    def free(self) -> bool:
        return lock.read(self.store).holder is None

    def fail_record_write(self, number: int, words: str = "the store does not answer", *, on: bool = False) -> None:
        """The n-th write of the record from now on fails (from 1), and with `on` every later one."""
        count = 0

        def refuse(verb: str, name: str) -> None:
            nonlocal count
            count += (verb, name) == ("write", record.RECORD)
            if (verb, name) == ("write", record.RECORD) and (count == number or (on and count > number)):
                raise IrisError(words)

        self.store.before = refuse
