"""Restarting workers: whom the gate names, in which batches, what is left alone, when it ends, and a kill at every line of its journal."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from iris_core.procedures import lock, record
from iris_core.procedures.approvals import Answer
from iris_core.procedures.events import APPROVE, STOP, Status
from iris_core.procedures.lock import Holder
from iris_core.procedures.record import Phase, RolloutRecord
from iris_core.procedures.worker_moves import batches
from tests.unit.procedures_world import Killed, Person
from tests.unit.restart_world import OLD, YES
from tests.unit.worker_world import CODE, FakeWorker, Workers

pytestmark = pytest.mark.asyncio


def some(count: int) -> list[FakeWorker]:
    return [FakeWorker(f"w{n}") for n in range(count)]


@pytest.fixture
def world(tmp_path: Path) -> Workers:
    return Workers(
        tmp_path, FakeWorker("w0", ["/u/a/0:0", "/u/a/1:0"]), FakeWorker("w1"), FakeWorker("w2", ["/u/b/0:3"])
    )


async def test_the_gate_names_every_worker_and_what_ends_and_those_with_the_least_come_first(world: Workers) -> None:
    outcome = await world.go()
    assert (outcome.status, outcome.exit_code) == (Status.DONE, 0)
    assert outcome.state == f"3 workers of lab restarted onto release {CODE}"
    assert world.told == [["w1"], ["w2", "w0"]] and world.free
    asked = world.asked[0]
    effects = "\n".join(asked["effects"])
    assert "in batches of 1, 2" in effects and "w1 (release 0ld): nothing runs there" in effects
    assert "w2 (release 0ld): ends /u/b/0:3\nw0 (release 0ld): ends /u/a/0:0, /u/a/1:0" in effects
    assert "3 attempts of tasks end" in effects
    assert [grant[:3] for grant in asked["grants"]][2:] == [
        ["restart", "workers", "w1"],
        ["restart", "workers", "w2 w0"],
    ]
    assert asked["evidence"]["workers"][1] == {
        "worker_id": "w2", "boot_id": "w2-1", "release": "0ld", "attempts": {"uid/u/b/0:3": "/u/b/0:3"},
    }  # fmt: skip
    assert any("/u/a/0:0, /u/a/1:0" in line for line in outcome.details), "it says what ended"


async def test_batches_double_and_stay_within_their_bound() -> None:
    sizes = [len(part) for part in batches(range(100), 3, 20)]
    assert sizes == [3, 6, 12, 20, 20, 20, 19]
    assert batches([], 1, 64) == []


@pytest.mark.parametrize(
    ("wishes", "told", "left_out"),
    [
        ({"worker_ids": ("w2", "w1")}, ["w1", "w2"], ""),
        ({"idle_only": True}, ["w1"], "w0 runs /u/a/0:0, /u/a/1:0"),
        ({"skip_current": True}, ["w2", "w0"], f"w1 runs {CODE} already"),
    ],
)
async def test_a_choice_of_workers(world: Workers, wishes: dict[str, Any], told: list[str], left_out: str) -> None:
    if "skip_current" in wishes:
        world.all["w1"].release = CODE
    assert (await world.go(max_batch=1, **wishes)).status is Status.DONE
    assert [name for part in world.told for name in part] == told
    assert left_out in "\n".join(world.asked[0]["effects"])


async def test_one_that_does_not_run_now_is_left_out_aloud(world: Workers) -> None:
    world.all["w1"].back, world.all["w1"].told_at = "never", 0.0
    assert (await world.go(worker_ids=("w1",), id_="a")).state.endswith("w1: it does not run now")
    assert (await world.go(id_="b")).status is Status.DONE
    assert "left out: w1 does not run now" in world.asked[0]["effects"] and world.told == [["w2"], ["w0"]]


async def test_nothing_to_restart_asks_nothing(world: Workers) -> None:
    for worker in world.all.values():
        worker.release = CODE
    outcome = await world.go(skip_current=True)
    assert outcome.status is Status.DONE and "there is no worker of lab to restart" in outcome.state and not world.asked


@pytest.mark.parametrize("answer", [Answer(STOP), Answer(APPROVE, typed="lap")])
async def test_without_approval_nothing_changes(world: Workers, answer: Answer) -> None:
    assert (await world.go(answer)).status is Status.STOPPED
    assert not world.told and world.free


async def test_it_begins_in_no_doubtful_state(world: Workers) -> None:
    outcome = await world.go(worker_ids=("w1", "w9"), id_="a")
    assert outcome.status is Status.FAILED and "w9: no such worker lives" in outcome.state
    standing = record.read(world.store)
    pending = RolloutRecord(Phase.PENDING, OLD, "r0", "", 5)
    record.write(world.store, pending, standing)
    assert "is pending: its workers wait" in (await world.go(id_="b")).state
    record.write(world.store, RolloutRecord(Phase.COMMITTED, OLD, "r0", "", 5), record.read(world.store))
    lock.acquire(world.store, Holder("other", "bob", "tower", 1))
    assert "bob" in (await world.go(id_="c")).state
    lock.release(world.store, "other")
    world.host.running = False
    assert "no controller of lab runs" in (await world.go(id_="d")).state
    assert not world.told and not world.asked


async def test_what_has_got_other_work_since_is_left_and_asked_about_anew(world: Workers) -> None:
    world.moves_to = {"w2": "w0"}
    person = Person(YES)
    outcome = await world.go(max_batch=1, person=person)
    assert person.asked == ["worker-restart", "worker-restart-2"] and outcome.status is Status.DONE
    assert world.told == [["w1"], ["w2"], [], ["w0"]]
    assert "w0 (release 0ld): ends /u/a/0:0, /u/a/1:0, /u/b/0:3'" in "\n".join(world.asked[1]["effects"])
    assert [grant[0] for grant in world.asked[1]["grants"]] == ["restart"], "the lock was approved before"


async def test_what_is_left_and_not_approved_anew_stays(world: Workers) -> None:
    world.moves_to = {"w2": "w0"}
    outcome = await world.go(max_batch=1, person=Person(YES, Answer(STOP)))
    assert outcome.status is Status.FAILED and outcome.state == f"2 of 3 workers of lab restarted onto release {CODE}"
    assert "w0: it runs /u/b/0:3', which nobody approved to end" in outcome.details
    assert world.all["w0"].ended == 0 and world.free and "--skip-current-hash" in outcome.next


@pytest.mark.parametrize(
    ("back", "why"),
    [
        ("never", "it was not healthy within 120 s"),
        ("old", "it came back with release 0ld"),
        ("dies", "it came back, and did not stay healthy"),
    ],
)
async def test_more_failures_than_allowed_end_it(tmp_path: Path, back: str, why: str) -> None:
    world = Workers(tmp_path, *some(7))
    world.all["w1"].back = world.all["w4"].back = back
    outcome = await world.go(max_failures=1)
    assert outcome.status is Status.FAILED and outcome.exit_code == 1 and world.free
    assert outcome.state == f"5 of 7 workers of lab restarted onto release {CODE}"
    assert f"w1: {why}" in outcome.details and f"w4: {why}" in outcome.details
    other = Workers(tmp_path / "other", *some(7))
    other.folder.mkdir()
    other.all["w1"].back = back
    outcome = await other.go(max_failures=0)
    assert outcome.state == f"2 of 7 workers of lab restarted onto release {CODE}; 4 were not begun, because 1 failed"
    assert other.told == [["w0"], ["w1", "w2"]]


async def test_a_controller_that_does_not_answer_for_a_while_blames_no_worker(world: Workers) -> None:
    world.moves_to = {}
    person = Person(YES)

    async def ask(gate: Any) -> Answer:
        world.silent = 5
        return YES

    person.ask = ask  # type: ignore[method-assign]
    assert (await world.go(person=person)).status is Status.DONE


@pytest.mark.parametrize(("fault", "status"), [("lost", Status.DONE), ("silent", Status.FAILED)])
async def test_an_answer_that_was_lost_is_looked_for(world: Workers, fault: str, status: Status) -> None:
    world.faults.append(fault)
    world.away_s = 0.0
    outcome = await world.go()
    assert outcome.status is status and world.free
    assert [worker.ended for worker in world.all.values()] == ([1, 1, 1] if fault == "lost" else [0, 0, 0])


async def test_a_cancelled_run_ends_after_its_batch_and_says_what_it_leaves(world: Workers) -> None:
    restart = world.restart

    def restarted(wanted: Sequence[Mapping[str, Any]], within_s: float) -> dict[str, Any]:
        world.engine.cancel()
        return restart(wanted, within_s)

    world.restart = restarted  # type: ignore[method-assign]
    outcome = await world.go()
    assert outcome.status is Status.CANCELLED and world.told == [["w1"]] and world.free
    assert outcome.state == f"0 of 3 workers of lab restarted onto release {CODE}: cancelled"
    assert "told to end, and not seen to be well again: w1" in outcome.details


async def test_told_to_end_at_any_line_it_gives_the_lock_back_and_says_what_it_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    statuses = []
    for line in range(200):
        folder = tmp_path / str(line)
        folder.mkdir()
        world = Workers(folder, FakeWorker("w0", ["/u/a/0:0"]), *some(3)[1:])
        outcome = await world.go(cancel_at=line)
        assert world.free, line
        assert all(worker.ended <= 1 for worker in world.all.values()), line
        if outcome.status is Status.DONE:
            assert all(worker.ended for worker in world.all.values()), (line, outcome)
        statuses.append(outcome.status)
        if line > world.lines:
            break
    assert set(statuses) == {Status.CANCELLED, Status.DONE} and statuses[0] is Status.CANCELLED
    assert len(statuses) > 15


@pytest.mark.parametrize("after", [False, True])
async def test_a_driver_killed_at_any_line_goes_on_and_ends_no_worker_twice(
    tmp_path: Path, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    lines = 0
    for die_at in range(200):
        folder = tmp_path / str(die_at)
        folder.mkdir()
        world = Workers(folder, FakeWorker("w0", ["/u/a/0:0"]), *some(4)[1:])
        try:
            outcome = await world.go(die_at=die_at, after=after)
        except Killed:
            outcome = await world.go()
        else:
            lines = die_at
        assert outcome.status is Status.DONE, (die_at, outcome)
        assert [worker.ended for worker in world.all.values()] == [1, 1, 1, 1], die_at
        assert world.free, die_at
        if lines:
            break
    assert lines > 15
