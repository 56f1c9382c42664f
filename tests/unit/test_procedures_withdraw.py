"""A rollback that is asked for and whose checkpoint is lost: it is taken back, or done without one; nothing else, and no job is lost."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iris_core.contracts import IrisError
from iris_core.procedures import lock, record
from iris_core.procedures.approvals import Answer
from iris_core.procedures.engine import Engine
from iris_core.procedures.events import APPROVE, STOP, Outcome, Status
from iris_core.procedures.journal import Journal
from iris_core.procedures.lock import Holder
from iris_core.procedures.record import WITHDRAW, Phase, RolloutRecord
from iris_core.procedures.withdraw import withdraw
from tests.unit.ending_world import Ending, WaitingHost
from tests.unit.procedures_world import DyingJournal, Killed, Person
from tests.unit.restart_world import NEW, OLD, YES, World, require_pasteable

pytestmark = pytest.mark.asyncio
LOST = "gs://fake/root/controller-state/77"
REQUEST = RolloutRecord(Phase.ROLLBACK_REQUESTED, OLD, "", LOST, 5, {"later": 1}, replaces=NEW)


class Stuck(World):
    """The rollback to r1 is asked for, its checkpoint is lost, and no controller comes up; the database is that of r2."""

    def __init__(self, folder: Path, request: RolloutRecord = REQUEST, *, migrates: bool = False) -> None:
        super().__init__(folder, request, migrates=migrates)
        self.database.schema = list(self.schemas[NEW])
        self.host.running = False
        self.mark = ""
        self.host.on_offline = lambda words: json.dumps({"mark": self.mark})
        self.host.on_start = self.start

    def start(self, release: str) -> None:
        found = self.record
        if found is not None and found.phase is Phase.ROLLBACK_REQUESTED and found.rollback_checkpoint == LOST:
            self.host.running = False  # as a boot does that cannot have its checkpoint
            return
        self.boot(release)

    async def withdraw(
        self, answer: Answer = YES, *, to: str = "", keep: bool = False, procedure: str = "w", die_at: int = -1,
        after: bool = False,
    ) -> Outcome:  # fmt: skip
        path = self.folder / f"{procedure}.jsonl"
        dying = DyingJournal(Journal.open(path) if path.exists() else Journal.create(path), die_at=die_at, after=after)
        engine = Engine(dying, Person(answer), self.clock, account="ada")  # type: ignore[arg-type]
        made = withdraw(self.target(procedure), "/state", to=to, keep=keep)
        try:
            outcome = await engine.run("withdraw-rollback", {}, made)
            require_pasteable(outcome, self.program)
            return outcome
        finally:
            self.lines = len(dying.records)
            self.asked = [r for r in dying.records if r["type"] == "asked"]
            dying.close()


async def test_the_release_that_was_to_be_rolled_back_goes_on_and_no_job_is_lost(tmp_path: Path) -> None:
    world = Stuck(tmp_path, migrates=True)
    outcome = await world.withdraw()
    assert (outcome.status, outcome.exit_code) == (Status.DONE, 0)
    assert outcome.state == f"lab runs {NEW} at http://fake:10000, and kept its database"
    said = " ".join(world.asked[0]["effects"])
    assert f"asks for a rollback to {OLD} with {LOST}: Checkpoint not found: {LOST}" in said
    assert "what is lost is the way back to that checkpoint" in said and "no job is lost" in said
    found = world.record
    assert found is not None and (found.phase, found.image, found.previous_image) == (Phase.COMMITTED, NEW, OLD)
    assert (found.rollback_checkpoint, found.replaces, found.others) == ("", "", {"later": 1})
    assert world.host.release == NEW and world.host.running and world.free
    assert world.database.rows == ["a", "b"] and not world.restored and not world.probation and world.work("next")
    again = await world.withdraw(procedure="again")
    assert again.status is Status.FAILED and "no rollback of lab is asked for: the record says committed" in again.state


async def test_it_is_done_without_its_checkpoint_where_the_release_knows_the_database(tmp_path: Path) -> None:
    world = Stuck(tmp_path)
    assert (await world.withdraw(keep=True)).status is Status.DONE
    found = world.record
    assert found is not None and (found.phase, found.image, found.replaces) == (Phase.ROLLED_BACK, OLD, "")
    assert world.host.release == OLD and world.host.running and world.free
    assert world.database.rows == ["a", "b"] and not world.restored and not world.refused


async def test_the_way_from_the_dead_end_is_named_where_it_is_met_and_leads_out(tmp_path: Path) -> None:
    world = World(tmp_path, migrates=True)
    assert (await world.run(procedure="first")).status is Status.DONE
    assert world.work("later")
    boot = world.host.on_start

    def lost(release: str) -> None:
        found = world.record
        if found is not None and found.phase is Phase.ROLLBACK_REQUESTED:
            world.checkpoints.clear()
            world.host.running = False
            return
        boot(release)

    world.host.on_start = lost
    outcome = await world.run(back=True)
    assert outcome.status is Status.FAILED and WITHDRAW in outcome.next
    assert WITHDRAW in (await world.run(back=True, procedure="again")).next
    world.host.running = True
    assert WITHDRAW in (await world.run(procedure="forward")).next
    world.host.running = False
    stuck = Stuck(tmp_path, migrates=True)
    stuck.store, stuck.database = world.store, world.database
    assert (await stuck.withdraw()).status is Status.DONE
    assert stuck.host.release == NEW and "later" in stuck.database.rows


@pytest.mark.parametrize(
    ("what", "words", "hint"),
    [
        ("none", "no rollback of lab is asked for: there is no record", "status"),
        ("committed", "no rollback of lab is asked for: the record says committed of r2", "status"),
        ("locked", "bob on tower holds it", "break the lock"),
        ("unknown", "which release was to be rolled back to r1 is not known", "--to RELEASE"),
        ("schema", "r1 does not know the database of r2", WITHDRAW),
    ],
)
async def test_what_cannot_be_done_is_refused_before_anything_is_touched(
    tmp_path: Path, what: str, words: str, hint: str
) -> None:
    world = Stuck(tmp_path, migrates=what == "schema")
    if what == "none":
        world.store.delete(record.RECORD)
    elif what == "committed":
        world.store.put(record.RECORD, RolloutRecord(Phase.COMMITTED, NEW).to_json())
    elif what == "locked":
        lock.acquire(world.store, Holder("other", "bob", "tower", 1))
    elif what == "unknown":
        world.store.put(record.RECORD, replace(REQUEST, replaces="").to_json())
    before = world.record
    outcome = await world.withdraw(keep=what == "schema")
    assert outcome.status is Status.FAILED and words in outcome.state and hint in outcome.next
    assert not world.asked and not world.host.effects and world.record == before and world.free is (what != "locked")


async def test_one_that_an_older_version_asked_for_is_taken_back_to_a_release_that_is_named(tmp_path: Path) -> None:
    world = Stuck(tmp_path, replace(REQUEST, replaces=""), migrates=True)
    assert (await world.withdraw(to=NEW)).status is Status.DONE
    assert world.host.release == NEW and world.database.rows == ["a", "b"]
    (tmp_path / "runs").mkdir()
    runs = Stuck(tmp_path / "runs", replace(REQUEST, replaces=""))
    runs.host.release, runs.host.running = NEW, True  # it could not be stopped: that it runs says which it is
    assert (await runs.withdraw()).status is Status.DONE
    assert runs.host.effects == [f"stage {NEW}", "stop", "stop", f"start {NEW}"]


async def test_the_gate_says_when_the_rollback_can_be_done_or_has_been_done_before(tmp_path: Path) -> None:
    world = Stuck(tmp_path)
    saved = world.save()
    world.store.put(record.RECORD, replace(REQUEST, rollback_checkpoint=saved).to_json())
    world.mark = f"{saved} 5"
    assert (await world.withdraw(Answer(STOP))).status is Status.STOPPED
    said = " ".join(world.asked[0]["effects"])
    controller = f"{world.program} cluster controller"
    assert "that rollback can be done" in said
    undo = " ".join(world.asked[0]["undo"])
    assert f"to go on with that rollback instead: {controller} stop, then {controller} start" in undo
    assert "the checkpoint stands in the place of the database already" in said and "no job is lost" not in said
    world.host.on_offline = lambda words: "nothing of the kind"
    await world.withdraw(Answer(STOP), procedure="blind")
    assert "whether a boot has put the checkpoint there before cannot be said" in " ".join(world.asked[0]["effects"])


async def test_it_is_gone_on_with_however_the_cluster_is_named_then(memory: Path) -> None:
    """`--cluster=lab` and the path of its file are one cluster, and one approval."""
    request = replace(REQUEST, rollback_checkpoint="")

    def made(folder: Path) -> Stuck:
        folder.mkdir()
        return Stuck(folder, request, migrates=True)

    world = made(memory / "whole")
    assert (await world.withdraw()).status is Status.DONE and world.asked
    for number in range(2 * world.lines - 1):
        world = made(memory / str(number))
        with pytest.raises(Killed):
            await world.withdraw(die_at=number // 2, after=number % 2 == 1)
        world.program = "iris-core --config=/srv/clusters/lab.yaml"
        assert (await world.withdraw()).status is Status.DONE and world.free, number


@pytest.mark.parametrize("answer", [Answer(STOP), Answer(APPROVE, typed="lap"), Answer(APPROVE, token="0" * 12)])
async def test_without_an_approval_nothing_is_changed(tmp_path: Path, answer: Answer) -> None:
    world = Stuck(tmp_path)
    assert (await world.withdraw(answer)).status is Status.STOPPED
    assert world.record == REQUEST and not world.host.effects and world.free


@pytest.mark.parametrize("step", ["stage", "stop", "write", "start"])
async def test_what_fails_leaves_the_request_or_says_what_stands(tmp_path: Path, step: str) -> None:
    world = Stuck(tmp_path)
    if step == "write":
        world.fail_record_write(1)
    else:
        world.host.fault(step, "untouched")
    outcome = await world.withdraw()
    assert outcome.status is Status.FAILED and outcome.exit_code == 1 and world.free
    if step == "start":
        assert "the request was put right, and r2 did not come up" in outcome.state and outcome.next
        assert world.record is not None and world.record.phase is Phase.COMMITTED
    else:
        said = {"stage": "nothing was changed: ", "stop": "; the request stands", "write": "and the request stands: "}
        assert said[step] in outcome.state and world.record == REQUEST
    if step in ("stop", "write"):
        world.store.before = None
        assert outcome.next and (await world.withdraw(procedure="again")).status is Status.DONE


async def test_a_request_that_changed_while_the_question_stood_is_left_alone(tmp_path: Path) -> None:
    world = Stuck(tmp_path)
    changed = replace(REQUEST, updated_at_ms=6)
    asked = world.saved

    def saved(path: str) -> Any:
        world.store.put(record.RECORD, changed.to_json())  # right after it was read
        return asked(path)

    world.saved = saved  # type: ignore[method-assign]
    outcome = await world.withdraw()
    assert outcome.status is Status.FAILED and "was changed since it was looked at" in outcome.state
    assert world.record == changed and not world.host.effects and world.free


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("fault", ["", "start"])
async def test_a_driver_that_is_killed_anywhere_goes_on_to_the_same_end(memory: Path, keep: bool, fault: str) -> None:
    def made(name: str) -> Stuck:
        (memory / name).mkdir()
        world = Stuck(memory / name)
        if fault:
            refused = OLD if keep else NEW

            def start(release: str) -> None:
                if release == refused:
                    world.host.running = False
                    raise IrisError("the disk is full")

            world.host.on_start = start
        return world

    whole = made("whole")
    end = await whole.withdraw(keep=keep)
    for number in range(2 * whole.lines):
        world = made(str(number))
        with pytest.raises(Killed):
            await world.withdraw(keep=keep, die_at=number // 2, after=number % 2 == 1)
        outcome = await world.withdraw(keep=keep)
        assert (outcome.status, outcome.state, outcome.next) == (end.status, end.state, end.next), number
        assert (world.host.release, world.host.running, world.free) == (whole.host.release, whole.host.running, True)
        assert world.database == whole.database and not world.restored, number
        found, wanted = world.record, whole.record
        assert found is not None and wanted is not None
        assert replace(found, updated_at_ms=0) == replace(wanted, updated_at_ms=0), number


@pytest.mark.parametrize("keep", [False, True])
async def test_told_to_end_anywhere_it_says_how_the_cluster_is_left(memory: Path, keep: bool) -> None:
    def made(name: str) -> tuple[Stuck, Ending]:
        (memory / name).mkdir()
        world = Stuck(memory / name)
        host = WaitingHost(OLD)
        host.running, host.on_start, host.on_offline = False, world.start, world.host.on_offline
        world.host = host
        return world, Ending(
            memory / name / "p.jsonl", host, world.clock, lambda: withdraw(world.target("p"), "/state", keep=keep)
        )

    world, run = made("whole")
    await run.run(YES)
    events = [str(record["event"]) for record in run.records if record["type"] in ("gathering", "intent", "asked")]
    assert "back-health" in events
    for at in events:
        world, run = made(at)
        outcome = await run.run(YES, at=at)
        require_pasteable(outcome, world.program)
        assert world.free and run.told == (at != "unlock"), at
        if outcome.status is Status.DONE:
            release, phase = (OLD, Phase.ROLLED_BACK) if keep else (NEW, Phase.COMMITTED)
            assert world.host.running and world.host.release == release, at
            assert world.record is not None and world.record.phase is phase, at
        else:
            assert outcome.status is Status.CANCELLED and "did not come up" not in outcome.state, at
            assert world.record == REQUEST and not world.host.running, at
    world, run = made("through")
    assert (await run.run(YES, at="back-health")).status is Status.DONE
    for number in range(2 * len(run.records)):
        world, run = made(str(number))
        with pytest.raises(Killed):
            await run.run(YES, at="back-health", die_at=number // 2, after=number % 2 == 1)
        assert (await run.run(YES, at="back-health")).status is Status.DONE, number
        assert world.free and world.host.running and world.host.effects.count(f"start {world.host.release}") == 1
