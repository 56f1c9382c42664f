"""No procedure reaches a change without its gate: whatever is answered, whatever fails, and wherever it is killed.

Three things are held against each other: what the procedures did to hosts, stores and jobs, when they did it, and what the journal says was
approved. A change outside a mutation that was begun, or a mutation that no approving answer before it names, fails here.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_core.contracts import IrisError
from iris_core.procedures import journal as journals
from iris_core.procedures import lock, rollout_watch
from iris_core.procedures.approvals import Answer
from iris_core.procedures.break_lock import break_lock
from iris_core.procedures.db_rollback import db_rollback, undo
from iris_core.procedures.engine import Engine
from iris_core.procedures.events import Gate, Procedure
from iris_core.procedures.journal import Journal
from iris_core.procedures.lock import Holder
from iris_core.procedures.restart import restart
from iris_core.procedures.rollback import rollback
from iris_core.procedures.rollout import rollout
from iris_core.procedures.withdraw import withdraw
from providers.fake.host import FakeHost
from providers.fake.objects import FakeStore
from tests.unit.procedures_world import DyingJournal, Killed
from tests.unit.restart_world import World
from tests.unit.rollout_world import PROCEDURE, RolloutWorld
from tests.unit.test_procedures_db_rollback import Wedged
from tests.unit.test_procedures_withdraw import Stuck
from tests.unit.worker_world import FakeWorker, Workers

if TYPE_CHECKING:
    from iris_core.live.clock import Clock
    from iris_core.procedures.journal import Record

HOME = Path(__file__).resolve().parents[2]
HOST = {"start", "stop", "stage"}
STORE = {"write", "delete"}
PACKAGES = ("iris_core", "iris_controller", "providers", "iris_tui", "screens")
CASES = {
    "break_lock.break_lock": "break_lock",
    "db_rollback.db_rollback": "db_rollback",
    "db_rollback.undo": "undo",
    "restart.restart": "restart",
    "rollback.rollback": "rollback",
    "rollout.rollout": "rollout",
    "withdraw.withdraw": "withdraw",
    "worker_restart.worker_restart": "worker_restart",
}
"""Every procedure there is, and the case of the model that runs it."""
NO_PROCEDURES = {
    "nested.flat": "puts the parts of one together",
    "seen_through.seen_through": "holds an end off of one",
}


class Answers:
    """Answers each gate with the next of some numbers: which choice, and whether what is typed fits."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = list(numbers)

    async def ask(self, gate: Gate) -> Answer:
        number = self._numbers.pop(0) if self._numbers else 0
        choice = gate.choices[number % len(gate.choices)]
        return Answer(choice, typed="something else" if number > 90 else gate.name)


class Watched:
    """Hosts, stores and jobs that may be changed only while a mutation is under way."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.faults: list[str] = []
        self.changes = 0

    def changed(self, what: str) -> None:
        self.changes += 1
        last = next((r["type"] for r in reversed(self.records) if r["type"] not in ("progress",)), "nothing")
        if last != "intent":
            self.faults.append(f"{what} was changed after {last}")

    def host(self, host: FakeHost) -> None:
        begin = host._begin

        def watched(call: str) -> str:
            if call in HOST:
                self.changed(f"host: {call}")
            return begin(call)

        host._begin = watched  # type: ignore[method-assign]

    def store(self, store: FakeStore, fails: Callable[[], bool]) -> None:
        def before(verb: str, name: str) -> None:
            # A controller that boots writes its own end into the record: that is the start under way.
            if verb in STORE:
                self.changed(f"store: {verb} {name}")
            if fails():
                raise IrisError("the store does not answer")

        store.before = before

    def wrap(self, what: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*words: Any) -> Any:
            self.changed(what)
            return call(*words)

        return watched


def approved(records: Sequence[Record]) -> list[str]:
    """What the journal has that no approving answer before it names; and what it has twice."""
    asked: dict[str, list[list[str]]] = {}
    allowed: dict[str, set[str]] = {}
    faults, used = [], set()
    for record in records:
        gate = str(record.get("event", ""))
        if record["type"] == "asked":
            asked[gate] = record["grants"]
            allowed.setdefault(gate, set())
        elif record["type"] in ("answered", "answered_again"):
            yes = record["choice"] in ("approve", "roll back")
            allowed[gate] = {" ".join(grant[:3]) for grant in asked[gate]} if yes else set()
        elif record["type"] == "intent":
            if not any(record["grant"] in grants for grants in allowed.values()):
                faults.append(f"{gate}: nobody approved {record['grant']}")
            if (gate, record["grant"]) in used and not _looked(records, record):
                faults.append(f"{gate} was begun twice")
            used.add((gate, record["grant"]))
    return faults


def _looked(records: Sequence[Record], second: Record) -> bool:
    """Whether a look had shown that the first time had no effect."""
    return any(r["type"] == "not_done" and r.get("event") == second["event"] for r in records)


class Case:
    """One procedure on a world of its own, watched."""

    def __init__(self, folder: Path, name: str, die_at: int, fault: int) -> None:
        self.folder, self.watched, self._count, self._fault = folder, Watched(), 0, fault
        self.path = folder / "p.jsonl"
        self.die_at = die_at
        self.name = name
        self.clock: Clock
        self.make: Callable[[], Procedure]
        getattr(self, f"_{name}")()

    def fails(self) -> bool:
        self._count += 1
        return self._count == self._fault

    def _single(self, world: World | None = None) -> World:
        world = world or World(self.folder)
        self.watched.host(world.host)
        world.checkpoint = self.watched.wrap("checkpoint", world.checkpoint)  # type: ignore[method-assign]
        self.watched.store(world.store, self.fails)
        self.clock = world.clock
        return world

    def _restart(self) -> None:
        world = self._single()
        self.make = lambda: restart(world.target("p"))

    def _rollback(self) -> None:
        world = self._single()
        world.store.before = None
        path = world.save()
        found = world.record
        assert found is not None
        world.store.put("rollout-record.json", found.__class__(found.phase, "r1", "r0", path, 5).to_json())
        world.schemas["r0"] = world.schemas["r1"]
        self.watched.store(world.store, self.fails)
        self.make = lambda: rollback(world.target("p"))

    def _break_lock(self) -> None:
        world = self._single()
        world.store.before = None
        lock.acquire(world.store, Holder("dead", "bob", "tower", 1))
        self.watched.store(world.store, self.fails)
        self.make = lambda: break_lock("lab", world.store, world.clock.now_ms, "cluster controller break-lock")

    def _wedged(self) -> Wedged:
        world = Wedged(self.folder)
        world.heals = bool(self._fault % 3)
        self._single(world)
        offline = world.offline

        def watched(words: Sequence[str]) -> str:
            if "--show" not in words:
                self.watched.changed("host: offline")
            return offline(words)

        world.host.on_offline = watched
        return world

    def _db_rollback(self) -> None:
        world = self._wedged()
        self.make = lambda: db_rollback(world.target("p"), "/state", world.saved_at, "p")

    def _undo(self) -> None:
        world = self._wedged()
        world.mark, world.kept = "before", {"db.aside.before": world.database.copy()}
        self.make = lambda: undo(world.target("q"), "/state", "before")

    def _withdraw(self) -> None:
        world = Stuck(self.folder)
        world.host.running = bool(self._fault % 2)
        self._single(world)
        keep = self._fault % 3 == 0
        self.make = lambda: withdraw(world.target("p"), "/state", keep=keep)

    def _worker_restart(self) -> None:
        few = [FakeWorker("w0", ["/u/a/0:0"]), FakeWorker("w1", ["/u/b/0:0"]), FakeWorker("w2"), FakeWorker("w3")]
        world = Workers(self.folder, *few)
        few[self._fault % 4].back = ("well", "never", "old", "dies")[self._fault // 4 % 4]
        world.moves_to = {"w0": "w1"} if self._fault % 5 else {}
        if self._fault % 7 == 0:
            world.faults.extend(["lost", "silent"])
        self._single(world)
        world.restart = self.watched.wrap("workers", world.restart)  # type: ignore[method-assign]
        self.make = lambda: world.procedure("p", max_failures=1)

    def _rollout(self) -> None:
        world = RolloutWorld(self.folder)
        world["h1"].changes = {"workers_healthy": 1} if self._fault % 2 else {}
        for cluster in world.clusters.values():
            self.watched.host(cluster.host)
            self.watched.store(cluster.store, self.fails)
            cluster.checkpoint = self.watched.wrap("checkpoint", cluster.checkpoint)  # type: ignore[method-assign]
            cluster.submit = self.watched.wrap("submit", cluster.submit)  # type: ignore[method-assign]
        self.clock = world.clock
        self.make = lambda: rollout(world.fleet(procedure=PROCEDURE))

    async def run(self, answers: Sequence[int]) -> None:
        for die_at in (self.die_at, -1):
            journal = Journal.open(self.path) if self.path.exists() else Journal.create(self.path)
            dying = DyingJournal(journal, die_at=die_at, after=bool(die_at % 2))
            self.watched.records = dying.records
            engine = Engine(dying, Answers(answers), self.clock, account="ada")  # type: ignore[arg-type]
            try:
                await engine.run(self.name, {}, self.make())
                return
            except Killed:
                continue
            finally:
                dying.close()


def procedures() -> set[str]:
    """Every public function that gives a procedure, as module and name, wherever it is."""
    found = set()
    for path in (path for package in PACKAGES for path in (HOME / package).rglob("*.py")):
        text = path.read_text()
        for node in ast.parse(text).body if "Procedure" in text else ():
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.returns is None:
                continue
            if "Procedure" in ast.unparse(node.returns) and not node.name.startswith("_"):
                found.add(f"{path.stem}.{node.name}")
    return found


def test_every_procedure_is_in_the_model() -> None:
    assert procedures() - NO_PROCEDURES.keys() == set(CASES), "write its case, and name it in CASES"


@pytest.mark.asyncio
@pytest.mark.parametrize("name", sorted(CASES.values()))
@given(
    answers=st.lists(st.one_of(st.just(0), st.integers(0, 99)), max_size=6),
    die_at=st.one_of(st.just(-1), st.integers(0, 60)),
    fault=st.integers(0, 40),
)
@settings(max_examples=25, deadline=None)
async def test_nothing_is_changed_without_the_gate_that_names_it(
    tmp_path_factory: pytest.TempPathFactory, name: str, answers: list[int], die_at: int, fault: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: None)
        patched.setattr(rollout_watch, "INTERVAL_S", 150.0)
        case = Case(tmp_path_factory.mktemp("gates"), name, die_at, fault)
        await case.run(answers)
    records = journals.read(case.path)
    assert case.watched.faults == []
    assert approved(records) == []
    if not any(record["type"] == "intent" for record in records):
        assert case.watched.changes == 0


@pytest.mark.asyncio
@pytest.mark.parametrize("name", sorted(CASES.values()))
async def test_the_check_itself_sees_a_change_that_nobody_approved(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(rollout_watch, "INTERVAL_S", 150.0)
    case = Case(tmp_path, name, -1, 0)
    await case.run([0])
    records = journals.read(case.path)
    assert case.watched.changes and approved(records) == []
    assert approved([record for record in records if record["type"] != "answered"])
    case.watched.changed("host: stop")
    assert case.watched.faults == ["host: stop was changed after ended"]


CHANGES = {"start", "stop", "stage", "break_", "acquire", "release", "roll_back"}
ANYWHERE = {
    "restart_workers",
    "end_leftovers",
    "create_key",
    "replace_key",
    "manager.create",
    "manager.add",
    "manager.allow",
}
GATED = {
    "iris_core/cli/deployment.py": "hands it on to where the controller runs; whoever calls that is listed",
    "iris_core/cli/init_keys.py": "makes a key and takes none away: test_cli_init_keys and test_gcp_secrets fail it at every step",
    "iris_core/cli/controller_lifecycle.py": "stop asks for the name first; start takes nothing away",
    "iris_core/cli/cluster_stop.py": "asks for the name first",
}
"""Where the command line changes a host without a procedure."""


def test_command_line_and_console_change_hosts_records_and_locks_through_procedures_alone() -> None:
    found: dict[str, set[str]] = {}
    for folder in ("iris_core/cli", "iris_tui", "screens"):
        for path in (HOME / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and ANYWHERE & {
                    ast.unparse(node.func),
                    ast.unparse(node.func).rpartition(".")[2],
                }:
                    found.setdefault(str(path.relative_to(HOME)), set()).add(ast.unparse(node.func))
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
                    owner = ast.unparse(node.func.value)
                    if owner.endswith("host") or owner in ("lock", "record"):
                        found.setdefault(str(path.relative_to(HOME)), set()).add(f"{owner}.{node.func.attr}")
    assert set(found) <= set(GATED), {path: calls for path, calls in found.items() if path not in GATED}
    for name in GATED:
        assert name in found, "the list names what is there no more"
