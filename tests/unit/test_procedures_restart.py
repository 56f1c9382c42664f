"""The restart of a controller: every failure has its state and its words, and a killed driver's run goes on to the same end."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from iris_core.contracts import ConnectFailed, ControllerStatus, IrisError, RpcFailed
from iris_core.procedures import lock, moves, record
from iris_core.procedures.approvals import Answer
from iris_core.procedures.events import APPROVE, STOP, Status
from iris_core.procedures.lock import Holder
from iris_core.procedures.record import Phase, RolloutRecord
from tests.unit.procedures_world import Person
from tests.unit.restart_world import BEFORE, NEW, OLD, World

if TYPE_CHECKING:
    from iris_core.procedures.events import Gate
    from iris_core.procedures.source_tree import SourceTree

pytestmark = pytest.mark.asyncio


class Ending:
    """What comes of each request that a controller ends: `answer` gets its number, from 1, and what the controller itself answers with."""

    def __init__(self, world: World, answer: Callable[[int, Callable[[], str]], str]) -> None:
        self.asked = 0
        self._world, self._own, self._answer = world, world.checkpoint, answer
        world.checkpoint = self._checkpoint  # type: ignore[method-assign]

    def undo(self) -> None:
        """From now on it answers by itself."""
        self._world.checkpoint = self._own  # type: ignore[method-assign]

    def _checkpoint(self, stop: bool, timeout_s: float) -> str:
        if not stop:
            return self._own(stop, timeout_s)
        self.asked += 1
        return self._answer(self.asked, lambda: self._own(stop, timeout_s))


async def test_it_ships_what_was_approved_and_the_record_says_how_to_go_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    outcome = await world.run()
    assert (outcome.status, outcome.exit_code) == (Status.DONE, 0)
    assert world.host.effects == [f"stage {NEW}", "ended", "stop", f"start {NEW}"]
    found = world.record
    assert found is not None and found.others == {"later": 1}
    assert (found.phase, found.image, found.previous_image) == (Phase.COMMITTED, NEW, OLD)
    assert found.rollback_checkpoint == max(world.checkpoints), "the last one, which has all that was acknowledged"
    assert world.free


async def test_a_first_record_names_what_ran_and_without_checkpoints_there_is_none(tmp_path: Path) -> None:
    world = World(tmp_path, None)
    outcome = await world.run(skip=True)
    found = world.record
    assert outcome.status is Status.DONE and not world.checkpoints and found is not None
    assert (found.image, found.previous_image, found.rollback_checkpoint) == (NEW, OLD, "")


async def test_whoever_stops_at_the_gate_or_does_not_type_the_name_changes_nothing(tmp_path: Path) -> None:
    for number, answer in enumerate((Answer(STOP), Answer(APPROVE, typed="lap"), Answer(APPROVE, token="0" * 12))):
        world = World(tmp_path)
        outcome = await world.run(answer, procedure=f"p{number}")
        assert outcome.status is Status.STOPPED and outcome.exit_code == 1
        assert not world.host.effects and world.record == BEFORE and not world.checkpoints and world.free


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


@pytest.mark.parametrize("migrates", [False, True])
async def test_a_release_that_does_not_come_up_is_replaced_by_the_one_before_and_nothing_is_lost(
    tmp_path: Path, migrates: bool
) -> None:
    world = World(tmp_path, migrates=migrates)
    world.host.unhealthy.add(NEW)
    outcome = await world.run()
    assert (outcome.status, outcome.exit_code) == (Status.ROLLED_BACK, 1)
    assert f"runs {OLD} again, nothing was lost" in outcome.state and f"{NEW} is not healthy" in outcome.state
    assert (world.host.release, world.host.running, world.free) == (OLD, True, True)
    found = world.record
    assert found is not None and found.others == {"later": 1}
    assert (found.phase, found.image, found.previous_image, found.rollback_checkpoint) == (
        Phase.ROLLED_BACK,
        OLD,
        "",
        "",
    )
    assert world.restored == [max(world.checkpoints)] and not world.refused
    assert world.database.rows == ["a", "b", "while saving", "right before the end"]
    assert world.database.schema == ["0001"]
    # A later crash rewinds nothing, and there is nothing more to go back to.
    assert world.work("after")
    world.host.stop()
    world.host.start(OLD)
    assert "after" in world.database.rows and len(world.restored) == 1
    again = await world.run(back=True, procedure="again")
    assert again.exit_code == 1 and "there is no deployment to roll back to" in again.state
    assert (world.host.running, world.free) == (True, True)


async def test_on_probation_nothing_is_taken_and_the_driver_ends_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    taken: list[bool] = []
    boot = world.boot

    def booted(release: str) -> None:
        boot(release)
        taken.append(world.work("too early"))

    world.host.on_start = booted
    assert (await world.run()).status is Status.DONE
    assert taken == [False] and world.work("now")


async def test_a_release_that_committed_itself_is_not_gone_back_from(tmp_path: Path) -> None:
    world = World(tmp_path, migrates=True)
    world.host.unhealthy.add(NEW)  # as the driver sees it
    boot = world.boot

    def booted(release: str) -> None:
        boot(release)
        world.commit_itself()
        world.work("on the new one")

    world.host.on_start = booted
    outcome = await world.run()
    assert outcome.status is Status.FAILED and outcome.exit_code == 1
    assert f"lab runs {NEW}, which has committed itself and was not seen to be healthy" in outcome.state
    assert "restart --rollback" in outcome.next
    found = world.record
    assert found is not None and (found.phase, found.updated_at_ms) == (Phase.COMMITTED, 77)
    assert (world.host.release, world.host.running, world.free) == (NEW, True, True)
    assert not world.restored and "on the new one" in world.database.rows


async def test_a_commit_that_the_controller_made_first_is_a_commit(tmp_path: Path) -> None:
    world = World(tmp_path)
    writes = 0

    def faster(verb: str, name: str) -> None:
        nonlocal writes
        writes += (verb, name) == ("write", record.RECORD)
        if (verb, name) == ("write", record.RECORD) and writes == 3:
            world.store.before = None
            world.commit_itself()

    world.store.before = faster
    outcome = await world.run()
    found = world.record
    assert outcome.status is Status.DONE and found is not None and found.updated_at_ms == 77 and world.free


async def test_a_rollback_that_cannot_be_asked_for_starts_nothing_on_a_migrated_database(tmp_path: Path) -> None:
    world = World(tmp_path, migrates=True)
    world.host.unhealthy.add(NEW)
    world.fail_record_write(3)
    outcome = await world.run()
    assert outcome.status is Status.FAILED and "could not be asked for: the store does not answer" in outcome.state
    assert outcome.next == f"once that is mended: {world.program} cluster controller restart --rollback"
    assert not world.host.running and not world.refused and not world.restored and world.free
    found = world.record
    assert found is not None and (found.phase, found.image) == (Phase.PENDING, NEW)
    # What it says to do works, and loses nothing.
    outcome = await world.run(back=True, procedure="mended")
    assert outcome.status is Status.DONE and world.host.release == OLD
    assert any("never left its probation" in line for line in world.asked[-1]["effects"])
    assert world.database.rows[-1] == "right before the end" and world.restored == [max(world.checkpoints)]


async def test_a_failed_stop_of_the_new_release_leaves_a_rollback_that_a_start_goes_on_with(tmp_path: Path) -> None:
    world = World(tmp_path, migrates=True)
    world.host.unhealthy.add(NEW)
    world.host.fault("stop", "", "untouched")
    outcome = await world.run()
    assert (
        outcome.status is Status.FAILED
        and f"the rollback to {OLD} is asked for, and {NEW} was not stopped" in outcome.state
    )
    controller = f"{world.program} cluster controller"
    assert (
        outcome.next.startswith(f"{controller} stop, then {controller} start: ") and world.free and world.on_probation
    )
    world.host.stop()
    world.host.start(OLD)
    found = world.record
    assert found is not None and found.phase is Phase.ROLLED_BACK and world.database.schema == ["0001"]


async def test_a_start_whose_answer_was_lost_is_gone_back_from_as_one_that_ran(tmp_path: Path) -> None:
    world = World(tmp_path, migrates=True)
    world.host.fault("start", "after")
    outcome = await world.run()
    assert outcome.status is Status.ROLLED_BACK and "the connection broke" in outcome.state
    assert world.restored == [max(world.checkpoints)] and not world.refused and world.host.release == OLD


@pytest.mark.parametrize("fault", ["start", "name"])
async def test_where_nothing_new_ever_ran_the_database_is_not_touched(tmp_path: Path, fault: str) -> None:
    world = World(tmp_path, migrates=True)
    if fault == "name":
        world.fail_record_write(2)
    else:
        fail = world.target().host.start

        def start(release: str) -> None:
            if release == NEW:
                world.host.fault("start", "untouched")
            fail(release)

        world.host.start = start  # type: ignore[method-assign]
    outcome = await world.run()
    found = world.record
    assert (
        found is not None
        and world.free
        and world.database.rows[-1] == "right before the end"
        and world.host.release == OLD
    )
    if fault == "name":
        assert outcome.status is Status.ROLLED_BACK and found == BEFORE and not world.restored
    else:  # whether it began is not known: the checkpoint is the safe way
        assert outcome.status is Status.ROLLED_BACK and found.phase is Phase.ROLLED_BACK


@pytest.mark.parametrize("damaged", [1, 4, 5])
async def test_without_a_checkpoint_of_its_own_it_goes_back_to_one_that_is_whole(tmp_path: Path, damaged: int) -> None:
    world = World(tmp_path, migrates=True)
    saved = [world.save() for _ in range(5)]
    world.damaged.update(saved[5 - damaged :])
    world.host.unhealthy.add(NEW)
    outcome = await world.run(skip=True)
    undo = world.asked[0]["undo"]
    assert undo[0] == "checkpoint 14: it is damaged", "what is passed over is said"
    assert (f"and {damaged - 3} more that cannot be used" in undo) == (damaged > 3)
    if damaged < 5:
        assert outcome.status is Status.ROLLED_BACK and world.restored == [saved[4 - damaged]]
        assert any(line == f"the newest checkpoint that is whole is 1h30m old: {saved[4 - damaged]}" for line in undo)
    else:
        assert outcome.status is Status.FAILED and not world.restored and not world.host.running
        assert "there is no checkpoint to go back with" in undo and "there is no checkpoint" in outcome.next


@pytest.mark.parametrize("migrates", [False, True])
@pytest.mark.parametrize("periodic", [False, True])
async def test_without_a_checkpoint_of_its_own_it_goes_back_as_its_gate_said(
    tmp_path: Path, migrates: bool, periodic: bool
) -> None:
    world = World(tmp_path, migrates=migrates)
    if periodic:
        world.save()
        assert world.work("later")
    world.host.unhealthy.add(NEW)
    outcome = await world.run(skip=True)
    undo = " ".join(world.asked[0]["undo"])
    assert ("the newest checkpoint is 1h30m old" in undo) == periodic
    assert ("there is no checkpoint to go back with" in undo) == (not periodic)
    found = world.record
    assert found is not None and world.free
    if not migrates:  # the database is kept: nothing is lost
        assert outcome.status is Status.ROLLED_BACK and "nothing was lost" in outcome.state
        assert world.host.release == OLD and not world.restored and ("later" in world.database.rows) == periodic
        assert (found.phase, found.rollback_checkpoint) == (Phase.ROLLED_BACK, "")
    elif periodic:
        assert outcome.status is Status.ROLLED_BACK and "what came after its checkpoint is lost" in outcome.state
        assert world.host.release == OLD and world.restored == list(world.checkpoints)
        assert world.database.rows == ["a", "b"]
    else:
        assert (
            outcome.status is Status.FAILED
            and "no controller of lab runs, and its database is that of r2" in outcome.state
        )
        assert "there is no checkpoint to go back with: mend" in outcome.next
        assert not world.host.running and not world.refused
        assert (found.phase, found.image) == (Phase.PENDING, NEW)


async def test_with_neither_release_up_both_reasons_are_said_and_the_rollback_is_done(tmp_path: Path) -> None:
    world = World(tmp_path, migrates=True)
    world.host.unhealthy.update((NEW, OLD))
    outcome = await world.run()
    assert outcome.status is Status.FAILED and "r1 did not come up again either: r1 is not healthy" in outcome.state
    found = world.record
    assert found is not None and found.phase is Phase.ROLLED_BACK and world.free


async def test_a_rollback_that_is_not_marked_as_done_is_no_success(tmp_path: Path) -> None:
    world = World(tmp_path, migrates=True)
    world.host.unhealthy.add(NEW)
    world.marks = False
    outcome = await world.run()
    assert (
        outcome.status is Status.FAILED and "r1 serves, and the record says rollback_requested of r1" in outcome.state
    )


async def test_a_lost_answer_is_looked_for_and_the_last_checkpoint_is_named(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.answer_lost = True
    outcome = await world.run()
    found = world.record
    assert outcome.status is Status.DONE and found is not None
    assert len(world.checkpoints) == 2 and found.rollback_checkpoint == max(world.checkpoints)


@pytest.mark.parametrize("of", ["nobody", "an earlier boot"])
async def test_a_newer_checkpoint_than_the_first_is_not_taken_for_the_one_that_the_controller_ended_with(
    tmp_path: Path, of: str
) -> None:
    """It took one from time to time, took in more, and was gone: nobody heard what it ended with."""
    world = World(tmp_path, migrates=True)
    world.host.unhealthy.add(NEW)

    def cut_off(asked: int, own: Callable[[], str]) -> str:
        periodic = world.save()
        assert world.work("after the periodic one")
        world.host.running = False
        if of == "an earlier boot":
            world.host.last_checkpoint = ("boot-0", periodic)
        raise ConnectFailed("the connection broke")

    ending = Ending(world, cut_off)
    outcome = await world.run()
    assert outcome.status is Status.ROLLED_BACK and "nothing was lost" in outcome.state
    assert "which checkpoint it ended with is not known" in outcome.state and "restart again" in outcome.next
    assert f"start {NEW}" not in world.host.effects and not world.restored
    assert (world.host.release, world.host.running, world.free) == (OLD, True, True)
    assert world.record == BEFORE and "after the periodic one" in world.database.rows
    # What it says to do works.
    world.host.unhealthy.clear()
    ending.undo()
    assert (
        await world.run(procedure="again")
    ).status is Status.DONE and "after the periodic one" in world.database.rows


async def test_a_controller_that_notes_no_last_checkpoint_is_started_again_and_nothing_new_runs(tmp_path: Path) -> None:
    """An older release notes none."""
    world = World(tmp_path, migrates=True)
    world.answer_lost, world.notes = True, False
    outcome = await world.run()
    assert outcome.status is Status.ROLLED_BACK and "is not known" in outcome.state
    assert world.host.release == OLD and world.host.running and "right before the end" in world.database.rows
    assert not world.restored and world.record == BEFORE and f"start {NEW}" not in world.host.effects


async def test_going_back_by_hand_to_a_checkpoint_that_was_not_the_last_says_that_nobody_knows_what_that_drops(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, migrates=True)
    saved = world.save()
    assert world.work("later")
    world.store.put(record.RECORD, RolloutRecord(Phase.PENDING, NEW, OLD, saved, 5).to_json())
    world.host.release, world.host.running = NEW, False
    outcome = await world.run(back=True)
    assert any("what was done after it is lost" in line for line in world.asked[-1]["effects"])
    assert outcome.status is Status.DONE and world.host.release == OLD and world.restored == [saved]


async def test_a_stop_that_may_have_happened_is_never_called_untouched(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.host.fault("stop", "untouched")  # the controller was told to end by then, and does
    outcome = await world.run()
    assert outcome.status is Status.ROLLED_BACK and world.host.running and world.record == BEFORE and world.free
    world = World(tmp_path)
    world.host.fault("stop", "untouched")
    outcome = await world.run(procedure="runs", skip=True)
    assert outcome.status is Status.UNKNOWN and "the record is pending and the lock is kept" in outcome.state
    assert "break-lock" in outcome.next and world.host.running and not world.free


@pytest.mark.parametrize("cut", [1, 2])
async def test_a_stop_of_which_nobody_knows_whether_it_was_heard_is_asked_for_again_and_never_called_untouched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    """The connection breaks while the controller may be saving: it still runs when that is looked at, and may end afterwards."""
    monkeypatch.setattr(moves, "LOST_ANSWER_S", 0.0)
    world = World(tmp_path)

    def cut_off(asked: int, own: Callable[[], str]) -> str:
        if asked <= cut:
            raise ConnectFailed("the connection broke")
        return own()

    ending = Ending(world, cut_off)
    outcome = await world.run()
    assert ending.asked == 2
    if cut == 1:
        assert outcome.status is Status.DONE and world.host.release == NEW and world.free
        return
    assert outcome.status is Status.UNKNOWN and "nothing was changed" not in outcome.state
    assert "the record is pending and the lock is kept" in outcome.state and "break-lock" in outcome.next
    assert world.host.release == OLD and world.host.running and not world.free
    assert world.record is not None and (world.record.phase, world.record.image) == (Phase.PENDING, NEW)


async def test_a_stop_of_one_that_ends_at_the_word_of_another_caller_finds_its_last_checkpoint(tmp_path: Path) -> None:
    world = World(tmp_path)

    def ends_already(asked: int, own: Callable[[], str]) -> str:
        own()
        raise RpcFailed("UNAVAILABLE", "this controller ends after its last checkpoint", code="ending")

    Ending(world, ends_already)
    outcome = await world.run()
    assert outcome.status is Status.DONE and world.record is not None
    assert world.record.rollback_checkpoint == max(world.checkpoints)


async def test_of_one_that_ends_at_the_word_of_another_caller_and_is_slow_nothing_is_said_to_be_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves, "ENDING_S", 0.05)
    world = World(tmp_path)

    def ends_already(asked: int, own: Callable[[], str]) -> str:
        raise RpcFailed("UNAVAILABLE", "this controller ends after its last checkpoint", code="ending")

    Ending(world, ends_already)
    outcome = await world.run()
    assert outcome.status is Status.UNKNOWN and "nothing was changed" not in outcome.state and not world.free


@pytest.mark.parametrize("gone", [False, True])
async def test_a_new_try_that_the_controller_in_its_place_answered_finds_its_last_checkpoint(
    tmp_path: Path, gone: bool
) -> None:
    """It was killed while it was asked and started again; that one is asked by the client's own new try, and is ending when it is looked at."""
    world = World(tmp_path)

    def retried(asked: int, own: Callable[[], str]) -> str:
        if asked == 1:
            world.host.running = False
            world.host.start(OLD)
            path = own()
            world.host.last_checkpoint = (f"boot-{world.host.boot}", path)
            world.host.running = True
            return path
        world.host.running = False
        if gone:
            raise ConnectFailed("connection refused")
        raise RpcFailed("UNAVAILABLE", "this controller ends after its last checkpoint", code="ending")

    ending = Ending(world, retried)
    outcome = await world.run()
    assert outcome.status is Status.DONE and world.record is not None
    assert world.record.rollback_checkpoint == max(world.checkpoints) and ending.asked == 2


@pytest.mark.parametrize("end", ["done", "untouched", "never ran", "back"])
async def test_a_lock_that_cannot_be_given_back_is_said_with_what_frees_it(tmp_path: Path, end: str) -> None:
    world = World(tmp_path)
    if end == "back":
        assert (await world.run(procedure="first")).status is Status.DONE
    elif end == "untouched":
        world.refuse_save = "it cannot be saved"
    elif end == "never ran":
        world.host.fault("start", "untouched")
    written = 0

    def refuse(verb: str, name: str) -> None:
        nonlocal written
        written += (verb, name) == ("write", lock.LOCK)
        if (verb, name) == ("write", lock.LOCK) and written > 1:
            raise IrisError("no space left on device")

    world.store.before = refuse
    outcome = await world.run(back=end == "back")
    assert not world.free
    (said,) = [line for line in outcome.details if "lock" in line]
    assert said.startswith("the lock was not given back: no space left on device; once that is mended: iris-core ")
    assert said.endswith(" cluster controller break-lock, then try again")
    # Whoever comes next is told the same way out.
    world.store.before = lambda verb, name: None
    again = await world.run(procedure="next")
    assert again.status is Status.FAILED and f"{world.program} cluster controller break-lock" in again.next


async def test_a_record_that_was_not_committed_is_committed_by_its_controller(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.fail_record_write(3)
    outcome = await world.run()
    assert outcome.status is Status.FAILED and "runs and is healthy, and the record is still pending" in outcome.state
    assert "commits itself" in outcome.next and world.host.release == NEW and world.free and world.on_probation
    outcome = await world.run(procedure="early")
    assert outcome.status is Status.FAILED and "commits itself within two minutes" in outcome.state
    world.commit_itself()
    outcome = await world.run(procedure="again")
    found = world.record
    assert outcome.status is Status.DONE and found is not None
    assert (found.phase, found.image, found.previous_image) == (Phase.COMMITTED, NEW, NEW)


async def test_a_secret_that_cannot_be_had_is_said_before_anything_is_read_or_written(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.refuse_secrets = "auth.signing_key: the environment has no IRIS_SIGNING_KEY"
    outcome = await world.run()
    assert outcome.status is Status.FAILED and "IRIS_SIGNING_KEY" in outcome.state
    assert not [call for call in world.store.calls if call[0] == "write" and call[1] != record.RECORD]
    assert not world.host.effects and not world.host.calls and world.record == BEFORE and not world.checkpoints


async def test_who_holds_the_lock_is_told_and_nothing_is_done(tmp_path: Path) -> None:
    world = World(tmp_path)
    lock.acquire(world.store, Holder("other", "bob", "tower", 1))
    outcome = await world.run()
    assert outcome.status is Status.FAILED and "bob on tower holds it" in outcome.state
    assert not world.host.effects and world.record == BEFORE and not world.free


async def test_a_rollback_that_has_not_ended_is_never_written_over(tmp_path: Path) -> None:
    standing = RolloutRecord(Phase.ROLLBACK_REQUESTED, "r9", "")
    world = World(tmp_path, standing)
    outcome = await world.run()
    assert outcome.status is Status.FAILED and "the deployment of r9 is rollback_requested" in outcome.state
    controller = f"{world.program} cluster controller"
    assert outcome.next == (
        f"{controller} stop, then {controller} start: that goes on with it; "
        f"without its checkpoint: {controller} withdraw-rollback"
    )
    assert not world.host.effects and world.record == standing


async def test_a_deployment_that_never_ran_and_whose_driver_is_gone_is_put_right(tmp_path: Path) -> None:
    world = World(tmp_path, RolloutRecord(Phase.PENDING, "r9", OLD, "gs://fake/root/controller-state/1"))
    outcome = await world.run()
    found = world.record
    assert outcome.status is Status.DONE and found is not None
    assert (found.phase, found.image, found.previous_image) == (Phase.COMMITTED, NEW, OLD)
    assert any("the deployment of r9 is pending; it is put right" in line for line in world.asked[0]["effects"])
    world = World(tmp_path, RolloutRecord(Phase.PENDING, "r9", OLD, "gs://fake/root/controller-state/1"))
    world.refuse_stop = "the disk is full"
    outcome = await world.run(procedure="refused")
    found = world.record
    assert outcome.state.startswith("nothing was changed") and found is not None
    assert (found.phase, found.image) == (Phase.COMMITTED, OLD), "and so is one whose restart fails"


async def test_a_controller_that_does_not_run_is_not_replaced_by_a_fresh_start(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.host.running = False
    outcome = await world.run()
    assert (
        outcome.status is Status.FAILED and outcome.next.endswith("cluster controller start") and not world.host.effects
    )


@pytest.mark.parametrize("url", ["", "http://fake:10000"])
async def test_a_controller_that_hangs_is_left_alone_and_the_way_out_is_named(tmp_path: Path, url: str) -> None:
    world = World(tmp_path)
    boot = "boot-1" if url else ""
    hung = ControllerStatus(True, url, 7, "it is ending, its keeper is gone", OLD, boot)
    world.host.status = lambda: hung  # type: ignore[method-assign]
    world.hangs = True
    outcome = await world.run()
    assert outcome.status is Status.FAILED and not world.host.effects and world.record == BEFORE and world.free
    said = "http://fake:10000 did not answer" if url else "does not serve: it is ending, its keeper is gone"
    assert said in outcome.state
    assert "cluster controller stop, which kills it" in outcome.next and "runbook db-rollback" in outcome.next


@pytest.mark.parametrize("back", [False, True])
async def test_a_host_that_cannot_be_reached_leaves_record_lock_and_controller_as_they_are(
    tmp_path: Path, back: bool
) -> None:
    world = World(tmp_path)
    world.host.fault("status", *["untouched"] * 9)
    outcome = await world.run(back=back)
    assert outcome.status is Status.FAILED and "the host refused the connection" in outcome.state
    assert not world.host.effects and world.record == BEFORE and world.free and not world.checkpoints
    # It breaks off once the record is pending: the controller that goes on must not find a rollback at its next boot.
    world = World(tmp_path)

    def cut_off(asked: int, own: Callable[[], str]) -> str:
        raise RpcFailed("UNAVAILABLE", "ssh ended with exit code 255")

    Ending(world, cut_off)
    outcome = await world.run(procedure=f"later-{back}")
    assert outcome.state == "nothing was changed: ssh ended with exit code 255"
    assert world.record == BEFORE and world.host.running and world.host.boot == 1 and world.free


class Absent(Person):
    """Answers once something else has happened."""

    def __init__(self, meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self._meanwhile: Callable[[], Awaitable[object]] | None = meanwhile

    async def ask(self, gate: Gate) -> Answer:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return await super().ask(gate)


@pytest.mark.parametrize("back", [False, True])
async def test_a_cluster_that_somebody_else_changed_while_the_gate_stood_open_is_left_alone(
    tmp_path: Path, back: bool
) -> None:
    world = World(tmp_path)
    if back:
        await world.run(procedure="deployed")

    async def other() -> None:
        assert (await world.run(procedure="other", back=back)).status is Status.DONE

    outcome = await world.run(procedure="late", back=back, person=Absent(other))
    after = world.record
    assert outcome.status is Status.FAILED and "lab was changed since it was looked at" in outcome.state
    assert outcome.next == "look again and plan anew" and outcome.state.startswith("nothing was changed")
    assert after is not None and after.image == world.host.release == (OLD if back else NEW)
    assert after.phase is (Phase.ROLLED_BACK if back else Phase.COMMITTED), "the record says what runs"
    assert world.free and world.host.boot == (3 if back else 2)


async def test_a_pending_record_of_somebody_who_broke_the_lock_is_not_written_over(tmp_path: Path) -> None:
    world = World(tmp_path)
    theirs = RolloutRecord(Phase.PENDING, "r9", OLD, "gs://fake/root/controller-state/1")

    def build(tree: SourceTree) -> str:
        standing = record.read(world.store)
        lock.break_(world.store, lock.read(world.store).generation)
        lock.acquire(world.store, Holder("other", "bob", "tower", 1))
        record.write(world.store, theirs, standing)
        return tree.id

    world.build = build  # type: ignore[method-assign]
    outcome = await world.run()
    assert outcome.status is Status.FAILED and "the record says pending of r9 now" in outcome.state
    assert world.record == theirs and world.host.boot == 1 and world.host.running
    holder = lock.read(world.store).holder
    assert holder is not None and holder.procedure == "other"


@pytest.mark.parametrize("again", [True, False])
async def test_what_a_controller_takes_in_that_was_killed_after_its_last_checkpoint_and_started_again_is_never_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """Its answer was heard, it died before its end, and its keeper started it again: that checkpoint is not the last one any more."""
    monkeypatch.setattr(moves, "ENDING_S", 0.05)
    world = World(tmp_path, migrates=True)
    world.host.unhealthy.add(NEW)

    def killed(asked: int, own: Callable[[], str]) -> str:
        path = own()
        if asked == 1 or not again:
            world.host.start(OLD)
            assert world.work(f"acknowledged after {asked}")
        return path

    Ending(world, killed)
    outcome = await world.run()
    assert outcome.status is Status.ROLLED_BACK and "nothing was lost" in outcome.state
    assert "acknowledged after 1" in world.database.rows and world.free
    assert (world.host.release, world.host.running) == (OLD, True)


def starting(world: World, looks: float) -> None:
    """A controller is there that does not serve yet, for so many looks."""
    status, left = world.host.status, looks

    def look() -> ControllerStatus:
        nonlocal left
        found, left = status(), left - 1
        return replace(found, url="", boot_id="", detail="it is starting") if found.running and left >= 0 else found

    world.host.status = look  # type: ignore[method-assign]


async def test_a_controller_whose_answer_is_lost_with_it_and_that_is_killed_twice_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that its keeper started is starting when it is looked at; it answers, and is killed before its end."""
    monkeypatch.setattr(moves, "LOOK_S", 0.0)
    monkeypatch.setattr(moves, "LOST_ANSWER_S", 0.0)
    world = World(tmp_path, migrates=True)
    world.host.unhealthy.add(NEW)

    def killed(asked: int, own: Callable[[], str]) -> str:
        if asked == 1:
            world.host.running = False
            world.host.start(OLD)
            starting(world, 3)
            raise ConnectFailed("the connection broke")
        path = own()
        if asked == 2:
            world.host.start(OLD)
            assert world.work("acknowledged by the third")
        return path

    ending = Ending(world, killed)
    outcome = await world.run()
    assert outcome.status is Status.ROLLED_BACK and "nothing was lost" in outcome.state and ending.asked == 3
    assert "acknowledged by the third" in world.database.rows and world.free
    assert (world.host.release, world.host.running) == (OLD, True)


@pytest.mark.parametrize("fault", [ConnectFailed("the connection broke"), RuntimeError("a fault of ours")])
async def test_of_one_that_was_told_to_end_and_then_does_not_serve_nothing_is_said_to_be_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    monkeypatch.setattr(moves, "ENDING_S", 0.0)
    monkeypatch.setattr(moves, "LOST_ANSWER_S", 0.0)
    world = World(tmp_path)

    def cut_off(asked: int, own: Callable[[], str]) -> str:
        starting(world, math.inf)
        raise fault

    ending = Ending(world, cut_off)
    outcome = await world.run()
    assert outcome.status is Status.UNKNOWN and "not known" in outcome.state and ending.asked == 1
    assert "nothing was changed" not in outcome.state and "break-lock" in outcome.next and not world.free


async def test_of_one_in_its_place_that_is_asked_and_not_heard_nothing_is_said_to_be_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves, "LOST_ANSWER_S", 0.0)
    world = World(tmp_path)

    def killed(asked: int, own: Callable[[], str]) -> str:
        if asked == 2:
            raise ConnectFailed("the connection broke")
        path = own()
        world.host.start(OLD)
        return path

    Ending(world, killed)
    outcome = await world.run()
    assert outcome.status is Status.UNKNOWN and "told to end is not known" in outcome.state
    assert "nothing was changed" not in outcome.state and not world.free


async def test_a_record_that_cannot_be_written_back_is_said_with_what_a_plain_start_would_run(tmp_path: Path) -> None:
    """The store takes nothing any more from the last checkpoint on: the controller goes on, and nothing was lost."""
    world = World(tmp_path)

    def full(asked: int, own: Callable[[], str]) -> str:
        world.store.fail("write", reason="no space left on device")
        raise RpcFailed("INTERNAL", "the checkpoint cannot be written: no space left on device")

    Ending(world, full)
    outcome = await world.run()
    assert outcome.status is Status.FAILED and "nothing was changed" not in outcome.state
    assert "no controller was touched" in outcome.state and f"the record still says that {NEW}" in outcome.state
    assert "break-lock" in outcome.next and f"a plain start would run {NEW}" in outcome.next
    assert world.host.running and world.host.release == OLD and not world.free


async def test_of_a_store_that_is_gone_before_the_record_was_written_it_is_not_said_what_the_record_says(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    take = world.checkpoint

    def gone(stop: bool, timeout_s: float) -> str:
        path = take(stop, timeout_s)
        world.store.fail(reason="it is down")
        return path

    world.checkpoint = gone  # type: ignore[method-assign]
    outcome = await world.run()
    assert outcome.status is Status.FAILED
    assert f"whether the record says that {NEW} is being shipped is not known" in outcome.state
    assert "still says" not in outcome.state


async def test_where_nothing_runs_and_the_record_cannot_be_written_it_is_said_how_something_runs_again(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    take = world.checkpoint

    def last(stop: bool, timeout_s: float) -> str:
        path = take(stop, timeout_s)
        if stop:
            world.store.fail("write", reason="no space left on device")
            world.host.fault("start", "untouched", "untouched", "untouched")
        return path

    world.checkpoint = last  # type: ignore[method-assign]
    outcome = await world.run()
    assert outcome.status is Status.FAILED and not world.host.running
    assert f"{OLD} did not come up again either" in outcome.state
    assert f"break-lock; then look at the log, then: {world.program} cluster controller stop, then " in outcome.next
    assert "restart again" not in outcome.next and f"a plain start would run {NEW}" in outcome.next
