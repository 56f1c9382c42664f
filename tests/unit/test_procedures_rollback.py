"""The rollback that an operator asks for: what its gate says is lost, what it refuses, and what is left when it fails."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from iris_core.contracts import IrisError
from iris_core.procedures import lock
from iris_core.procedures.approvals import Answer
from iris_core.procedures.events import APPROVE, STOP, Gate, Outcome, Status
from iris_core.procedures.lock import Holder
from iris_core.procedures.record import Phase, RolloutRecord
from iris_core.procedures.rollback import rollback
from iris_core.procedures.since import TURNS
from iris_core.procedures.source_tree import SourceTree
from iris_core.procedures.target import Lost, Target
from tests.unit.ending_world import Ending, WaitingHost
from tests.unit.procedures_world import Killed, Person
from tests.unit.restart_world import NEW, OLD, YES, World
from tests.unit.rollout_world import Operator, RolloutWorld

pytestmark = pytest.mark.asyncio


async def shipped(folder: Path, *, migrates: bool = True) -> World:
    """A world in which a deployment has just been committed, and went on."""
    world = World(folder, migrates=migrates)
    assert (await world.run(procedure="first")).status is Status.DONE
    assert world.work("later") and world.work("latest")
    return world


async def test_it_goes_back_to_the_checkpoint_and_its_gate_says_what_that_drops(tmp_path: Path) -> None:
    world = await shipped(tmp_path)
    outcome = await world.run(back=True)
    effects = " ".join(world.asked[0]["effects"])
    assert "jobs that are lost, submitted after it: 2" in effects and "later, latest" in effects
    assert max(world.checkpoints) in effects
    assert (outcome.status, outcome.exit_code) == (Status.DONE, 0) and f"runs {OLD} again" in outcome.state
    assert world.restored == [max(world.checkpoints)] and not world.refused
    assert world.database.rows == ["a", "b", "while saving", "right before the end"]
    found = world.record
    assert found is not None and (found.phase, found.image, found.previous_image) == (Phase.ROLLED_BACK, OLD, "")
    assert world.free and found.others == {"later": 1}
    # Once: what is done from here on is not dropped by a crash, nor by asking again.
    assert world.work("after")
    world.host.stop()
    world.host.start(OLD)
    again = await world.run(back=True, procedure="again")
    assert again.status is Status.FAILED and "it was rolled back already" in again.state
    assert "after" in world.database.rows and len(world.restored) == 1


@pytest.mark.parametrize("answer", [Answer(STOP), Answer(APPROVE, typed="lap"), Answer(APPROVE, token="0" * 12)])
async def test_without_an_approval_nothing_is_changed(tmp_path: Path, answer: Answer) -> None:
    world = await shipped(tmp_path)
    before = world.record
    assert (await world.run(answer, back=True)).status is Status.STOPPED
    assert world.record == before and world.host.running and world.free and not world.restored


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("none", "there is no deployment to roll back to"),
        ("gone", "Checkpoint not found"),
        ("newer", "has migration 0002, which r1 does not know"),
        ("no checkpoint", "there is no checkpoint to roll back to, and r1 does not know the database of r2"),
        ("down", "does not serve, so that it cannot say what would be lost"),
        ("another", "the record says committed of r2, and r1 runs"),
        ("locked", "bob on tower holds it"),
        ("asked", "a rollback to r1 is asked for already"),
    ],
)
async def test_what_cannot_be_done_is_refused_before_anything_is_touched(tmp_path: Path, what: str, words: str) -> None:
    world = await shipped(tmp_path)
    standing = world.record
    assert standing is not None
    path = standing.rollback_checkpoint
    made = standing
    if what == "none":
        made = RolloutRecord(Phase.COMMITTED, NEW)
    elif what == "gone":
        del world.checkpoints[path]
    elif what == "newer":
        world.checkpoints[path].schema = ["0001", "0002"]
    elif what == "no checkpoint":
        made = RolloutRecord(Phase.COMMITTED, NEW, OLD)
    elif what == "down":
        world.host.running = False
    elif what == "another":
        world.host.release = OLD
    elif what == "locked":
        lock.acquire(world.store, Holder("other", "bob", "tower", 1))
    else:
        made = RolloutRecord(Phase.ROLLBACK_REQUESTED, OLD, "", path)
    world.store.put("rollout-record.json", made.to_json())
    effects = list(world.host.effects)
    outcome = await world.run(back=True)
    assert outcome.status is Status.FAILED and words in outcome.state and outcome.exit_code == 1
    assert (outcome.next or what in ("gone", "another")) and not world.asked
    assert world.host.effects == effects and world.record == made and not world.restored
    assert world.free is (what != "locked")


async def test_a_release_that_cannot_be_started_again_stops_it_before_the_controller_is(tmp_path: Path) -> None:
    world = await shipped(tmp_path)
    before = world.record
    world.host.fault("stage", "untouched")
    outcome = await world.run(back=True)
    assert outcome.status is Status.FAILED and outcome.state.startswith("nothing was changed: stage: the host refused")
    assert world.record == before and world.host.release == NEW and world.host.running and world.free


async def test_without_a_checkpoint_the_database_is_kept_where_both_know_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert (await world.run(skip=True, procedure="first")).status is Status.DONE
    assert world.work("later")
    outcome = await world.run(back=True)
    assert outcome.status is Status.DONE and "its database is kept: no job is lost" in world.asked[0]["effects"]
    found = world.record
    assert found is not None and found.phase is Phase.ROLLED_BACK
    assert not world.restored and world.database.rows[-1] == "later" and world.host.release == OLD


async def test_one_that_cannot_be_asked_for_leaves_what_ran_before(tmp_path: Path) -> None:
    world = await shipped(tmp_path)
    before = world.record
    world.fail_record_write(1)
    outcome = await world.run(back=True)
    assert outcome.status is Status.FAILED and f"lab runs {NEW} again, nothing was changed" in outcome.state
    assert world.record == before and world.host.running and world.free and world.database.rows[-1] == "latest"


async def test_one_that_does_not_come_up_goes_on_with_a_start(tmp_path: Path) -> None:
    world = await shipped(tmp_path)

    def fails(release: str) -> None:
        raise IrisError("the disk is full")

    boot, world.host.on_start = world.host.on_start, fails
    outcome = await world.run(back=True)
    assert outcome.status is Status.FAILED and "is asked for, and it did not come up: the disk is full" in outcome.state
    assert f"{world.program} cluster controller stop, then {world.program} cluster controller start" in outcome.next
    assert world.free
    world.host.on_start = boot
    world.host.stop()
    world.host.start(OLD)
    found = world.record
    assert found is not None and found.phase is Phase.ROLLED_BACK and world.restored == [max(world.checkpoints)]


async def test_a_controller_that_was_not_stopped_is_never_gone_back_from(tmp_path: Path) -> None:
    world = await shipped(tmp_path)
    before = world.record
    world.host.fault("stop", "untouched")
    outcome = await world.run(back=True)
    assert outcome.status is Status.UNKNOWN and "the record was not changed" in outcome.state
    assert world.record == before and world.host.release == NEW and world.free and not world.restored


# --- while the question stands ---------------------------------------------------------------------------------------


class Meanwhile(Person):
    """Somebody else submits jobs while these questions stand, one list after the other."""

    def __init__(self, world: World, *jobs: list[str], answers: tuple[Answer, ...] = (YES,)) -> None:
        super().__init__(*answers)
        self._world, self._jobs = world, list(jobs)
        self.effects: list[str] = []

    async def ask(self, gate: Gate) -> Answer:
        self.effects.append(" ".join(gate.effects))
        for job in self._jobs.pop(0) if self._jobs else ():
            assert self._world.work(job)
        return await super().ask(gate)


async def test_jobs_that_came_while_the_question_stood_are_named_by_another_question(tmp_path: Path) -> None:
    world = await shipped(tmp_path)
    person = Meanwhile(world, ["x1", "x2"], ["x3"])
    outcome = await world.run(back=True, person=person)
    assert outcome.status is Status.DONE and person.asked == ["rollback", "rollback-2", "rollback-3"]
    assert "submitted after it: 2" in person.effects[0]
    assert "2 more jobs were submitted since the question" in person.effects[1]
    assert "submitted after it: 4" in person.effects[1] and "submitted after it: 5" in person.effects[2]
    tokens = {record["token"] for record in world.asked}
    assert len(tokens) == 3 and world.host.release == OLD and world.free


async def test_a_job_that_took_a_named_one_over_is_named_by_another_question(tmp_path: Path) -> None:
    """The counts and the names are what they were."""
    world = await shipped(tmp_path)
    person = Meanwhile(world, ["latest"])
    outcome = await world.run(back=True, person=person)
    assert outcome.status is Status.DONE and person.asked == ["rollback", "rollback-2"]
    assert "at least one more job was submitted since the question" in person.effects[1]
    assert world.host.release == OLD and world.free


async def test_jobs_that_nobody_agreed_to_lose_go_on(tmp_path: Path) -> None:
    world = await shipped(tmp_path)
    before, effects = world.record, len(world.host.effects)
    token = Answer(APPROVE, token="0" * 12)
    for answer in (Answer(STOP), token):
        procedure = f"p{len(answer.token)}"
        person = Meanwhile(world, [procedure], answers=(YES, answer))
        outcome = await world.run(back=True, person=person, procedure=procedure)
        assert (outcome.status, outcome.state) == (Status.STOPPED, "nothing was changed"), answer
        assert world.record == before and world.host.release == NEW and world.host.running and world.free
        assert procedure in world.database.rows and not world.restored
    assert world.host.effects[effects:] == [f"stage {OLD}"] * 2


async def test_where_ever_more_comes_it_is_refused_in_the_end_and_nothing_was_changed(tmp_path: Path) -> None:
    world = await shipped(tmp_path)
    before = world.record
    person = Meanwhile(world, *([f"x{number}"] for number in range(20)))
    outcome = await world.run(back=True, person=person)
    assert outcome.status is Status.FAILED and len(person.asked) == TURNS
    assert outcome.state.startswith(
        "nothing was changed: 1 more job was submitted since the question, and it was asked"
    )
    assert "--confirm lab" in outcome.next
    assert world.record == before and world.host.release == NEW and world.host.running and world.free


@pytest.mark.parametrize("agrees", [True, False])
async def test_a_rollback_out_of_a_rollout_asks_again_as_well(tmp_path: Path, agrees: bool) -> None:
    world, operator = RolloutWorld(tmp_path), Operator(choices={"h1/failed": "roll back"})
    operator.refuses = () if agrees else ("h1/rollback/rollback-2",)
    h1 = world["h1"]
    h1.changes = {"workers_healthy": 1}
    plain = h1.target

    def target(tree: SourceTree, procedure: str, account: str) -> Target:
        """One job more is lost once its first question stands."""
        return replace(plain(tree, procedure, account), lost=lambda path: Lost(3 + bool(operator.ids[3:]), 0))

    h1.target = target  # type: ignore[method-assign]
    outcome = await world.run(operator)
    assert operator.ids[3:] == ["h1/rollback/rollback", "h1/rollback/rollback-2"]
    assert "1 more job was submitted since the question" in operator.asked[-1].effects[0]
    assert h1.free and h1.host.running and world["h2"].untouched
    if agrees:
        assert (outcome.status, h1.host.release, h1.record.phase) == (Status.ROLLED_BACK, "1" * 40, Phase.ROLLED_BACK)
    else:
        assert h1.shipped and outcome.state.startswith("nothing was changed; its watch had failed")


async def test_a_controller_that_was_started_again_while_the_question_stood_is_left_alone(tmp_path: Path) -> None:
    world = await shipped(tmp_path)
    before = world.record

    class Crash(Person):
        async def ask(self, gate: Gate) -> Answer:
            world.host.stop()
            world.host.start(NEW)
            world.host.effects.clear()
            return await super().ask(gate)

    outcome = await world.run(back=True, person=Crash())
    assert outcome.status is Status.FAILED and outcome.next.startswith("look again: ")
    assert outcome.state == "nothing was changed: the controller of lab was started again since the question"
    assert not world.host.effects and world.record == before and world.free


def fresh(folder: Path) -> Path:
    folder.mkdir()
    return folder


def named(world: World) -> int:
    """How many jobs the last question that was approved said to be lost."""
    found = 0
    for record in world.asked:
        number = re.search(r"submitted after it: (\d+)", " ".join(record["effects"]))
        found = int(number[1]) if number else 0
    return found


async def test_what_came_while_its_driver_was_dead_is_never_dropped_unnamed(memory: Path) -> None:
    whole = await shipped(fresh(memory / "whole"))
    assert (await whole.run(back=True)).status is Status.DONE
    refused = 0
    for number in range(2 * whole.lines):
        world = await shipped(fresh(memory / str(number)))
        with pytest.raises(Killed):
            await world.run(back=True, die_at=number // 2, after=number % 2 == 1)
        came = world.host.release == NEW and world.work("came")
        rows = len(world.database.rows)
        outcome = await world.run(back=True)
        assert world.free and world.host.running, number
        if outcome.status is Status.DONE:
            assert world.host.release == OLD, number
            assert not came or rows - len(world.database.rows) <= named(world), number
        else:
            refused += 1
            assert "1 more job was submitted since the question" in outcome.state, number
            assert world.host.release == NEW and "came" in world.database.rows and not world.restored, number
            assert refused


# --- told to end -----------------------------------------------------------------------------------------------------


async def told(folder: Path) -> tuple[World, Ending]:
    world = await shipped(fresh(folder))
    host = WaitingHost(NEW)
    host.on_start, world.host = world.boot, host
    return world, Ending(world.folder / "p.jsonl", host, world.clock, lambda: rollback(world.target("p")))


def require_true(world: World, outcome: Outcome, where: object) -> None:
    """What the end says is how the cluster is left."""
    found = world.record
    assert found is not None and world.host.running and world.free, where
    assert "did not come up" not in outcome.state, where
    if f"runs {OLD} again" in outcome.state:
        assert (outcome.status, found.phase, world.host.release) == (Status.DONE, Phase.ROLLED_BACK, OLD), where
    else:
        assert outcome.status in (Status.CANCELLED, Status.STOPPED) and "nothing was changed" in outcome.state, where
        assert (found.phase, world.host.release) == (Phase.COMMITTED, NEW) and not world.restored, where
        assert {"later", "latest"} <= set(world.database.rows), where


@pytest.mark.parametrize("refused", [False, True])
async def test_told_to_end_anywhere_it_says_how_the_cluster_is_left(memory: Path, refused: bool) -> None:
    """Also when it is killed afterwards; and where the request could not be written, so that what ran before is started again."""
    world, run = await told(memory / "whole")
    if refused:
        world.fail_record_write(1)
    await run.run(YES)
    events = [str(r["event"]) for r in run.records if r["type"] in ("gathering", "intent", "asked")]
    assert ("health" if refused else "back-health") in events and "unlock" in events
    for at in events:
        world, run = await told(memory / at)
        if refused:
            world.fail_record_write(1)
        outcome = await run.run(YES, at=at)
        if refused and at in ("request", "start", "health", "unlock"):
            assert f"runs {NEW} again, nothing was changed" in outcome.state and world.host.release == NEW, at
            assert world.host.running and world.free, at
        else:
            require_true(world, outcome, at)
        assert run.told == (at != "unlock"), at
    if refused:
        return
    world, run = await told(memory / "through")
    outcome = await run.run(YES, at="back-health")
    assert outcome.status is Status.DONE and "told to end while it could not be left" in " ".join(outcome.details)
    for number in range(2 * len(run.records)):
        world, run = await told(memory / str(number))
        with pytest.raises(Killed):
            await run.run(YES, at="back-health", die_at=number // 2, after=number % 2 == 1)
        require_true(world, await run.run(YES, at="back-health"), number)
        assert world.host.effects.count(f"start {OLD}") == 1 and len(world.restored) == 1, number
