"""The restart of a controller: every failure has its state and its words, and a killed driver's run goes on to the same end."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_core.contracts import ConnectFailed, IrisError, RpcFailed
from iris_core.procedures import lock, record
from iris_core.procedures.approvals import Answer
from iris_core.procedures.engine import Engine
from iris_core.procedures.events import APPROVE, STOP, Outcome, Status
from iris_core.procedures.journal import Journal
from iris_core.procedures.lock import Holder
from iris_core.procedures.record import Phase, RolloutRecord
from iris_core.procedures.restart import Target, restart
from iris_core.procedures.source_tree import SourceTree
from providers.fake.clock import FakeClock
from providers.fake.host import FakeHost
from providers.fake.objects import FakeStore
from tests.unit.procedures_world import DyingJournal, Killed, Person

pytestmark = pytest.mark.asyncio
YES = Answer(APPROVE, typed="lab")
OLD, NEW = "r1", "r2"
BEFORE = RolloutRecord(Phase.COMMITTED, OLD, "r0", "gs://fake/root/controller-state/1", 5, {"later": 1})


class World:
    """A cluster with a record, a host, and a controller that writes checkpoints."""

    def __init__(self, folder: Path, before: RolloutRecord | None = BEFORE) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.store, self.host = FakeStore(), FakeHost(OLD)
        if before is not None:
            self.store.put(record.RECORD, before.to_json())
        self.schemas = {OLD: ["0001"], NEW: ["0001"]}
        self.refuse_build, self.refuse_save, self.refuse_stop = "", "", ""
        self.answer_lost = False
        self.saved: list[str] = []

    def build(self, tree: SourceTree) -> str:
        if self.refuse_build:
            raise IrisError(self.refuse_build)
        return tree.id

    def checkpoint(self, stop: bool, timeout_s: float) -> str:
        refused = self.refuse_stop if stop else self.refuse_save
        if refused:
            raise RpcFailed("UNAVAILABLE", refused)
        self.saved.append(f"{self.store.url}/controller-state/{len(self.saved) + 10}")
        if stop:
            self.host.running = False
            self.host.effects.append("ended")
        if stop and self.answer_lost:
            raise ConnectFailed("the connection broke")
        return self.saved[-1]

    def target(self, procedure: str = "p") -> Target:
        return Target(
            name="lab", host=self.host, store=self.store, holder=Holder(procedure, "ada", "desk", 1), now_ms=self.clock.now_ms,
            freeze=lambda: SourceTree(NEW, self.folder, "main", "c0ffee", "Mend it", ("a.py",)),
            build=self.build, schema=lambda release: self.schemas[release], running=lambda: {"running": 3},
            checkpoint=self.checkpoint, restore_hint=lambda path: f"restore {path}", command="cluster controller restart",
        )  # fmt: skip

    async def run(
        self, answer: Answer = YES, *, procedure: str = "p", die_at: int = -1, after: bool = False, skip: bool = False
    ) -> Outcome:
        path = self.folder / f"{procedure}.jsonl"
        dying = DyingJournal(Journal.open(path) if path.exists() else Journal.create(path), die_at=die_at, after=after)
        engine = Engine(dying, Person(answer), self.clock, account="ada")  # type: ignore[arg-type]
        try:
            return await engine.run("restart", {}, restart(self.target(procedure), skip_checkpoint=skip))
        finally:
            self.lines = len(dying.records)
            dying.close()

    @property
    def record(self) -> RolloutRecord | None:
        return record.read(self.store).record

    @property
    def free(self) -> bool:
        return lock.read(self.store).holder is None


async def test_it_ships_what_was_approved_and_the_record_says_how_to_go_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    outcome = await world.run()
    assert (outcome.status, outcome.exit_code) == (Status.DONE, 0)
    assert world.host.effects == [f"stage {NEW}", "ended", "stop", f"start {NEW}"]
    found = world.record
    assert found is not None and found.others == {"later": 1}
    assert (found.phase, found.image, found.previous_image) == (Phase.COMMITTED, NEW, OLD)
    assert found.rollback_checkpoint == world.saved[-1], "the last one, which has all that was acknowledged"
    assert world.free


async def test_a_first_record_names_what_ran_and_without_checkpoints_there_is_none(tmp_path: Path) -> None:
    world = World(tmp_path, None)
    outcome = await world.run(skip=True)
    found = world.record
    assert outcome.status is Status.DONE and not world.saved and found is not None
    assert (found.image, found.previous_image, found.rollback_checkpoint) == (NEW, OLD, "")


async def test_whoever_stops_at_the_gate_or_does_not_type_the_name_changes_nothing(tmp_path: Path) -> None:
    for number, answer in enumerate((Answer(STOP), Answer(APPROVE, typed="lap"), Answer(APPROVE, token="0" * 12))):
        world = World(tmp_path)
        outcome = await world.run(answer, procedure=f"p{number}")
        assert outcome.status is Status.STOPPED and outcome.exit_code == 1
        assert not world.host.effects and world.record == BEFORE and not world.saved and world.free


@pytest.mark.parametrize("what", ["build", "stage", "save", "pending", "stop"])
async def test_a_failure_before_the_stop_restores_the_record_and_touches_no_controller(
    tmp_path: Path, what: str
) -> None:
    world = World(tmp_path)
    words = "the disk is full"
    if what == "build":
        world.refuse_build = words
    elif what == "stage":
        world.host.fault("stage", "untouched")
        words = "the host refused"
    elif what == "save":
        world.refuse_save = words
    elif what == "stop":
        world.refuse_stop = words
    else:

        def refuse(verb: str, name: str) -> None:
            if (verb, name) == ("write", record.RECORD):
                raise IrisError(words)

        world.store.before = refuse
    outcome = await world.run()
    assert outcome.status is Status.FAILED and outcome.exit_code == 1
    assert outcome.state.startswith("nothing was changed: ") and words in outcome.state
    assert world.host.running and world.host.boot == 1 and "ended" not in world.host.effects
    assert world.record == BEFORE and world.free


async def test_a_release_that_does_not_come_up_is_replaced_by_the_one_before(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.host.unhealthy.add(NEW)
    outcome = await world.run()
    assert (outcome.status, outcome.exit_code) == (Status.ROLLED_BACK, 1)
    assert f"runs {OLD} again, nothing was lost" in outcome.state and f"{NEW} is not healthy" in outcome.state
    assert (world.host.release, world.host.running, world.record, world.free) == (OLD, True, BEFORE, True)


async def test_after_a_migration_nothing_is_started_and_the_end_says_what_to_do(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.host.unhealthy.add(NEW)
    world.schemas[NEW] = ["0001", "0002"]
    outcome = await world.run()
    assert outcome.status is Status.FAILED and outcome.next == f"restore {world.saved[-1]}"
    assert "no controller of lab runs, and its database is that of r2" in outcome.state
    assert not world.host.running and world.record == BEFORE and world.free


async def test_with_neither_release_up_the_record_is_that_of_before_and_both_reasons_are_said(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.host.unhealthy.update((NEW, OLD))
    outcome = await world.run()
    assert outcome.status is Status.FAILED and "r1 did not come up again either" in outcome.state
    assert world.record == BEFORE and world.free


async def test_a_lost_answer_is_looked_for_and_the_first_checkpoint_stands_in(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.answer_lost = True
    outcome = await world.run()
    found = world.record
    assert outcome.status is Status.DONE and found is not None and found.rollback_checkpoint == world.saved[0]


async def test_a_record_that_was_not_committed_is_put_right_by_the_next_restart(tmp_path: Path) -> None:
    world = World(tmp_path)
    writes = 0

    def third_fails(verb: str, name: str) -> None:
        nonlocal writes
        writes += (verb, name) == ("write", record.RECORD)
        if (verb, name) == ("write", record.RECORD) and writes == 3:
            raise IrisError("the store does not answer")

    world.store.before = third_fails
    outcome = await world.run()
    assert outcome.status is Status.FAILED and "runs and is healthy, and the record is still pending" in outcome.state
    assert world.host.release == NEW and world.free
    outcome = await world.run(procedure="again")
    found = world.record
    assert outcome.status is Status.DONE and found is not None
    assert (found.phase, found.image, found.previous_image) == (Phase.COMMITTED, NEW, NEW)


async def test_who_holds_the_lock_is_told_and_nothing_is_done(tmp_path: Path) -> None:
    world = World(tmp_path)
    lock.acquire(world.store, Holder("other", "bob", "tower", 1))
    outcome = await world.run()
    assert outcome.status is Status.FAILED and "bob on tower holds it" in outcome.state
    assert not world.host.effects and world.record == BEFORE and not world.free


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.ROLLBACK_REQUESTED])
async def test_another_deployment_that_has_not_ended_is_never_written_over(tmp_path: Path, phase: Phase) -> None:
    standing = RolloutRecord(phase, "r9", OLD)
    world = World(tmp_path, standing)
    outcome = await world.run()
    assert outcome.status is Status.FAILED and f"the deployment of r9 is {phase}" in outcome.state
    assert not world.host.effects and world.record == standing


async def test_a_controller_that_does_not_run_is_not_replaced_by_a_fresh_start(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.host.running = False
    outcome = await world.run()
    assert outcome.status is Status.FAILED and outcome.next == "cluster controller start" and not world.host.effects


@pytest.mark.parametrize("unhealthy", [False, True])
async def test_killed_at_any_event_it_goes_on_to_the_same_end_and_does_nothing_twice(
    tmp_path: Path, unhealthy: bool
) -> None:
    def made(number: int) -> World:
        folder = tmp_path / str(number)
        folder.mkdir()
        world = World(folder)
        world.host.unhealthy.update({NEW} if unhealthy else ())
        return world

    whole = made(-1)
    end = await whole.run()
    for number in range(2 * whole.lines):
        world = made(number)
        with pytest.raises(Killed):
            await world.run(die_at=number // 2, after=number % 2 == 1)
        world.answer_lost = False
        outcome = await world.run()
        assert (outcome.status, outcome.state) == (end.status, end.state), number
        assert (world.host.release, world.host.running) == (whole.host.release, True), number
        assert world.host.effects.count("ended") == 1 and world.host.effects.count(f"start {NEW}") == 1, number
        found, wanted = world.record, whole.record
        assert found is not None and wanted is not None and world.free, number
        assert (found.phase, found.image, found.previous_image) == (wanted.phase, wanted.image, wanted.previous_image)
