"""The rollback that an operator asks for: what its gate says is lost, what it refuses, and what is left when it fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_core.contracts import IrisError
from iris_core.procedures import lock
from iris_core.procedures.approvals import Answer
from iris_core.procedures.events import APPROVE, STOP, Status
from iris_core.procedures.lock import Holder
from iris_core.procedures.record import Phase, RolloutRecord
from tests.unit.restart_world import NEW, OLD, World

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
    assert "cluster controller stop, then start" in outcome.next and world.free
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
