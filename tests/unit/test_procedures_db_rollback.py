"""The runbook for a wedged controller: what it shows, does and undoes, and a kill of its driver before and after every line of its journal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from iris_core.contracts import IrisError
from iris_core.procedures import lock, record
from iris_core.procedures.approvals import Answer
from iris_core.procedures.db_rollback import db_rollback, undo
from iris_core.procedures.engine import Engine
from iris_core.procedures.events import STOP, Gate, Outcome, Procedure, Status
from iris_core.procedures.journal import Journal
from iris_core.procedures.lock import Holder
from iris_core.procedures.record import Phase, RolloutRecord
from tests.unit.ending_world import Ending, WaitingHost
from tests.unit.procedures_world import DyingJournal, Killed, Person
from tests.unit.restart_world import OLD, Database, World, require_pasteable

pytestmark = pytest.mark.asyncio
YES = Answer("approve", typed="lab")


class Wedged(World):
    """A controller that hangs: an RPC fails the test. Its database is restored and put back by the program of its release."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.saved_at = self.save()
        self.database.rows += ["c", "d"]
        self.host.unhealthy.add(OLD)
        self.host.on_offline = self.offline
        self.mark = ""
        self.kept: dict[str, Database] = {}
        self.moves: list[str] = []
        self.heals = True
        self.refuse_restore = ""
        self.comes: list[list[str]] = []
        """Jobs that are submitted right after each count; one that seems to hang may still take them."""

    def boot(self, release: str) -> None:
        super().boot(release)
        good = self.heals and self.mark
        self.host.unhealthy = set() if good else {OLD}

    def offline(self, words: Sequence[str]) -> str:
        assert words[-2:] == ["--state-dir", "/state"]
        if "--show" in words:
            found = {"database_bytes": 5, "mark": self.mark, "kept": list(self.kept)}
            if words[1] == self.saved_at:
                found |= {"submitted": len(self.database.rows) - 2, "changed": 1, "jobs": self.database.rows[2:]}
                found["newest"] = self.submits
                for job in self.comes.pop(0) if self.comes else ():
                    self.work(job)
            return json.dumps(found)
        if self.host.running:
            raise IrisError("the state is held by a controller")
        if words[1] == "--undo":
            self.moves.append("put back")
            self.database, self.mark = self.kept.pop(f"db.aside.{words[2]}"), ""
            return ""
        if self.refuse_restore:
            raise IrisError(self.refuse_restore)
        assert words[1:3] == [self.saved_at, "--mark"]
        if self.mark != words[3]:
            self.moves.append("restored")
            self.kept[f"db.aside.{words[3]}"] = self.database
            self.database, self.mark = self.checkpoints[self.saved_at].copy(), words[3]
        return ""

    async def go(
        self, answer: Answer = YES, *, id_: str = "p", die_at: int = -1, after: bool = False, take_back: str = "",
        person: Person | None = None,
    ) -> Outcome:  # fmt: skip
        path = self.folder / f"{id_}.jsonl"
        dying = DyingJournal(Journal.open(path) if path.exists() else Journal.create(path), die_at=die_at, after=after)
        engine = Engine(dying, person or Person(answer), self.clock, account="ada")  # type: ignore[arg-type]
        target = self.target(id_)
        made = undo(target, "/state", take_back) if take_back else db_rollback(target, "/state", self.saved_at, id_)
        try:
            outcome = await engine.run("db-rollback", {}, made)
            require_pasteable(outcome, self.program)
            return outcome
        finally:
            self.lines = len(dying.records)
            self.asked = [r for r in dying.records if r["type"] == "asked"]
            dying.close()


@pytest.fixture
def world(tmp_path: Path) -> Wedged:
    return Wedged(tmp_path)


async def test_it_is_gone_on_with_however_the_cluster_is_named_then(memory: Path) -> None:
    """`--cluster=lab` and the path of its file are one cluster, and one approval."""

    def made(folder: Path) -> Wedged:
        folder.mkdir()
        world = Wedged(folder)
        world.host.unhealthy.clear()
        return world

    world = made(memory / "whole")
    assert (await world.go()).status is Status.DONE
    assert any("restart --rollback" in line for line in world.asked[0]["effects"])
    for number in range(2 * world.lines - 1):
        world = made(memory / str(number))
        with pytest.raises(Killed):
            await world.go(die_at=number // 2, after=number % 2 == 1)
        world.program = "iris-core --config=/srv/clusters/lab.yaml"
        assert (await world.go()).status is Status.DONE and world.free, number


async def test_it_says_what_is_lost_and_leaves_the_controller_on_the_checkpoint(world: Wedged) -> None:
    outcome = await world.go()
    assert (outcome.status, outcome.next) == (
        Status.DONE, "to take it back: iris-core --cluster=lab runbook db-rollback --undo p",
    )  # fmt: skip
    assert f"lab runs {OLD} at" in outcome.state and world.saved_at in outcome.state
    effects = "\n".join(world.asked[0]["effects"])
    assert "jobs that are lost, submitted after it: 2" in effects and "among them c, d" in effects
    assert "gentler way" not in effects
    assert (world.database.rows, world.moves, world.free) == (["a", "b"], ["restored"], True)
    assert world.kept["db.aside.p"].rows == ["a", "b", "c", "d"]
    assert world.host.calls["await_healthy"] == 2 and world.record is not None and world.record.image == OLD


async def test_a_later_undo_brings_the_database_of_before_back(world: Wedged) -> None:
    await world.go()
    world.host.on_start = lambda _: world.host.unhealthy.clear()
    outcome = await world.go(id_="q", take_back="p")
    assert outcome.status is Status.DONE and "on the database of before p" in outcome.state
    assert (world.database.rows, world.moves, world.free) == (["a", "b", "c", "d"], ["restored", "put back"], True)
    outcome = await world.go(id_="r", take_back="p")
    assert outcome.status is Status.FAILED and "no database in /state that p moved aside" in outcome.state


async def test_a_checkpoint_that_does_not_heal_it_is_taken_back_by_itself(world: Wedged) -> None:
    world.heals = False
    outcome = await world.go()
    assert outcome.status is Status.FAILED and outcome.exit_code == 1
    assert outcome.state.startswith("the database of before is in its place, and nothing was lost:")
    assert (world.database.rows, world.moves, world.host.running, world.free) == (
        ["a", "b", "c", "d"], ["restored", "put back"], True, True,
    )  # fmt: skip


async def test_a_checkpoint_that_cannot_be_restored_leaves_the_database_and_starts_it_again(world: Wedged) -> None:
    world.refuse_restore = "checkpoint 1 cannot be used: controller.sqlite3.zst is damaged"
    outcome = await world.go()
    assert outcome.status is Status.FAILED and "is damaged" in outcome.state
    assert (world.database.rows, world.moves, world.host.running, world.free) == (["a", "b", "c", "d"], [], True, True)


@pytest.mark.parametrize("answer", [Answer(STOP), Answer("approve", typed="lap"), Answer("approve")])
async def test_nothing_happens_without_the_name(world: Wedged, answer: Answer) -> None:
    outcome = await world.go(answer)
    assert (outcome.status, outcome.state) == (Status.STOPPED, "nothing was changed")
    assert world.host.effects == [] and world.moves == []


async def test_what_is_wrong_beforehand_ends_it_with_nothing_touched(world: Wedged) -> None:
    world.checkpoints[world.saved_at].schema.append("0009_later")
    outcome = await world.go(id_="a")
    assert "has migration 0009_later, which r1 does not know" in outcome.state
    lock.acquire(world.store, Holder("other", "bob", "desk", 1))
    outcome = await world.go(id_="b")
    assert "bob on desk holds it" in outcome.state
    lock.release(world.store, "other")
    standing = record.read(world.store)
    record.write(world.store, RolloutRecord(Phase.ROLLBACK_REQUESTED, "r0"), standing)
    outcome = await world.go(id_="c")
    assert "asks for a rollback to r0" in outcome.state and world.host.effects == []


async def test_when_the_host_does_not_say_what_became_of_the_end_a_person_has_to_look(world: Wedged) -> None:
    world.host.fault("stop", "after")
    outcome = await world.go()
    assert outcome.status is Status.UNKNOWN and "the database was not touched" in outcome.state and world.free
    assert world.moves == []


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("heals", [True, False])
async def test_a_driver_that_is_killed_anywhere_goes_on_to_the_same_end(
    tmp_path: Path, after: bool, heals: bool
) -> None:
    whole = Wedged(tmp_path / "whole")
    whole.folder.mkdir()
    whole.heals = heals
    expected = await whole.go()
    for line in range(whole.lines):
        world = Wedged(tmp_path / f"{line}")
        world.folder.mkdir()
        world.heals = heals
        with pytest.raises(Killed):
            await world.go(die_at=line, after=after)
        outcome = await world.go()
        assert (outcome.status, outcome.state) == (expected.status, expected.state), line
        assert (world.database.rows, world.moves) == (whole.database.rows, whole.moves), line
        assert world.free and world.host.running


async def test_jobs_that_came_while_the_question_stood_are_named_by_another_question(world: Wedged) -> None:
    world.comes = [["e", "f"], ["g"]]
    effects: list[str] = []

    class Reading(Person):
        async def ask(self, gate: Gate) -> Answer:
            effects.append(" ".join(gate.effects))
            return await super().ask(gate)

    person = Reading(YES, YES, YES, Answer(STOP))
    outcome = await world.go(person=person)
    assert outcome.status is Status.DONE and person.asked == ["db-rollback", "db-rollback-2", "db-rollback-3"]
    assert "2 more jobs were submitted since the question" in effects[1] and "submitted after it: 4" in effects[1]
    assert "submitted after it: 5" in effects[2] and world.database.rows == ["a", "b"]


async def test_a_job_that_took_a_named_one_over_is_named_by_another_question(world: Wedged) -> None:
    """The counts and the names are what they were."""
    world.comes = [["d"]]
    person = Person(YES, Answer(STOP))
    assert (await world.go(person=person)).status is Status.STOPPED
    assert person.asked == ["db-rollback", "db-rollback-2"] and world.host.effects == []


async def test_jobs_that_nobody_agreed_to_lose_go_on(world: Wedged) -> None:
    world.comes = [["e"]]
    outcome = await world.go(person=Person(YES, Answer(STOP)))
    assert (outcome.status, outcome.state) == (Status.STOPPED, "nothing was changed")
    assert (world.host.effects, world.moves, world.free, world.database.rows[-1]) == ([], [], True, "e")


async def test_a_job_that_came_right_before_the_end_is_not_dropped(world: Wedged) -> None:
    world.comes = [[], ["e"]]
    outcome = await world.go()
    assert outcome.status is Status.FAILED and outcome.state == (
        "the database of before is in its place, and nothing was lost: 1 more job was submitted since the question"
    )
    assert outcome.next == f"it is as it was; look again: {world.program} runbook db-rollback {world.saved_at}"
    assert (world.moves, world.host.running, world.free, world.database.rows[-1]) == ([], True, True, "e")
    assert world.host.effects.count(f"start {OLD}") == 1


@pytest.mark.parametrize("heals", [True, False])
@pytest.mark.parametrize("taking_back", [False, True])
async def test_told_to_end_anywhere_it_says_how_the_cluster_is_left(
    tmp_path: Path, taking_back: bool, heals: bool
) -> None:
    async def made(name: str) -> tuple[Wedged, Ending]:
        world = Wedged(tmp_path / name)
        world.folder.mkdir()
        if taking_back:
            assert (await world.go(id_="before")).status is Status.DONE
        world.heals = heals
        host = WaitingHost(OLD)
        host.on_start, host.on_offline, host.unhealthy = world.boot, world.offline, set(world.host.unhealthy)
        world.host = host
        if taking_back and heals:
            host.on_start = lambda _: host.unhealthy.clear()

        def make() -> Procedure:
            target = world.target("p")
            return (
                undo(target, "/state", "before") if taking_back else db_rollback(target, "/state", world.saved_at, "p")
            )

        return world, Ending(world.folder / "ended.jsonl", host, world.clock, make)

    world, run = await made("whole")
    await run.run(YES)
    events = [str(record["event"]) for record in run.records if record["type"] in ("gathering", "intent", "asked")]
    assert ("back-health" if taking_back else "health") in events
    for at in events:
        world, run = await made(at)
        outcome = await run.run(YES, at=at)
        require_pasteable(outcome, world.program)
        assert world.free and world.host.running and run.told == (at != "unlock"), at
        restored, before = ["a", "b"], ["a", "b", "c", "d"]
        if outcome.status is Status.DONE:
            assert world.database.rows == (before if taking_back else restored) and heals, at
        elif "nothing was changed" in outcome.state:
            assert world.database.rows == (restored if taking_back else before), at
        else:
            assert "the database of before" in outcome.state and "is in its place" in outcome.state, at
            assert world.database.rows == before and outcome.status is Status.FAILED, at
        assert "cancelled" not in outcome.state or outcome.status is Status.CANCELLED or not taking_back, at
