"""What a rollout looks at before it asks: whether the record is of what runs, and whose name an event has, whatever clusters are called."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from iris_core.procedures import journal as journals
from iris_core.procedures import record, rollout_report
from iris_core.procedures.events import Status
from iris_core.procedures.record import Phase, RolloutRecord
from iris_core.procedures.replay import JournalMismatch
from iris_core.procedures.rollout import is_older
from tests.unit.procedures_world import Killed
from tests.unit.rollout_world import NEW, OLD, Operator, RolloutWorld

pytestmark = pytest.mark.asyncio
OTHER = "9" * 40


@pytest.mark.parametrize(
    ("standing", "words", "hint"),
    [
        (
            RolloutRecord(Phase.COMMITTED, OTHER),
            f"the record says committed of {OTHER[:12]}, and {OLD[:12]} runs: it was replaced by hand",
            "iris-core cluster controller stop, then iris-core cluster controller start: runs that of the record; iris-core cluster controller restart: ships the tree",
        ),
        (RolloutRecord(Phase.ROLLED_BACK, OTHER), f"the record says rolled_back of {OTHER[:12]}", "puts the record right"),
        (RolloutRecord(Phase.PENDING, OLD), f"the deployment of {OLD[:12]} is pending", "commits itself"),
    ],
)  # fmt: skip
async def test_a_record_that_is_not_of_what_runs_ends_it_and_says_what_to_do(
    tmp_path: Path, standing: RolloutRecord, words: str, hint: str
) -> None:
    world, operator = RolloutWorld(tmp_path), Operator()
    world["h2"].store.put(record.RECORD, standing.to_json())
    outcome = await world.run(operator)
    assert outcome.status is Status.FAILED and not operator.asked and world["h1"].untouched
    assert f"nothing was changed: h2: the record is of the release that runs: {words}" in outcome.state
    assert hint in outcome.state and not world["h2"].host.effects and world["h2"].record == standing


@pytest.mark.parametrize("standing", [None, RolloutRecord(Phase.PENDING, OTHER)])
async def test_what_the_restart_puts_right_by_itself_keeps_nobody_out(
    tmp_path: Path, standing: RolloutRecord | None
) -> None:
    world = RolloutWorld(tmp_path)
    if standing is None:
        world["h1"].store.delete(record.RECORD)
    else:
        world["h1"].store.put(record.RECORD, standing.to_json())
    assert (await world.run()).status is Status.DONE
    assert world["h1"].shipped and world["h1"].record.previous_image == OLD


async def test_another_controller_at_its_address_is_not_taken_for_the_deployed_one(tmp_path: Path) -> None:
    world, operator = RolloutWorld(tmp_path), Operator()
    seen = world["h1"].sample
    world["h1"].sample = lambda: {**seen(), "boot_id": "by-hand", "tree": ""}  # type: ignore[method-assign]
    outcome = await world.run(operator)
    assert outcome.status is Status.FAILED and not operator.asked and world["h1"].untouched
    assert "what answers is of no release, started as by-hand, and not the one that is deployed" in outcome.state
    assert "end the one that was started by hand" in outcome.state


async def test_a_restart_says_at_its_gate_that_the_record_is_of_another_release(tmp_path: Path) -> None:
    from tests.unit.restart_world import NEW as SHIPPED
    from tests.unit.restart_world import OLD as RUNS
    from tests.unit.restart_world import World

    world = World(tmp_path, RolloutRecord(Phase.COMMITTED, "r7"))
    assert (await world.run()).status is Status.DONE
    effects = " ".join(world.asked[0]["effects"])
    assert "the record says that r7 is committed, which is not what runs; it is put right" in effects
    assert world.record is not None
    assert (world.record.image, world.record.previous_image) == (SHIPPED, RUNS)


WORDS = ("tree", "preflight", "needs", "begin", "watch", "rollback", "verdict", "scope", "next", "record")


async def test_no_name_of_a_cluster_makes_two_ids_one(tmp_path: Path) -> None:
    world = RolloutWorld(tmp_path, *WORDS)
    for name in ("watch", "rollback"):
        world[name].changes = {}
    outcome = await world.run()
    assert outcome.status is Status.DONE, outcome
    records = journals.read(world.path)
    assert {rollout_report.standing(records, name) for name in WORDS} == {"passed"}
    text = rollout_report.markdown("rollout-1", records)
    for name in WORDS:
        assert world[name].shipped and f"| {name} | pass | the lock is free |" in text
    asked = [line["event"] for line in records if line["type"] == "asked"]
    assert len(asked) == len(set(asked)) == 2 * len(WORDS)
    titles: dict[str, str] = {}
    for line in records:
        if "title" in line and line["type"] in ("step", "gathering", "intent"):
            assert titles.setdefault(line["event"], line["title"]) == line["title"], "one id is one thing"


def aged(path: Path) -> None:
    """Makes a journal one of the version that had other ids, and no digests."""
    raw = re.sub(rb',"chain":"[0-9a-f]{16}"', b"", path.read_bytes()).replace(b'"format":2,', b"")
    path.write_bytes(re.sub(rb'"event":"(\w+)/needs"', rb'"event":"preflight/\1"', raw))


async def test_a_journal_of_an_older_version_is_read_and_gone_on_with(tmp_path: Path) -> None:
    world = RolloutWorld(tmp_path)
    with pytest.raises(Killed):
        await world.run(die_at=30)
    assert not is_older(journals.read(world.path))
    aged(world.path)
    records = journals.read(world.path)
    assert is_older(records) and json.dumps(records).count("preflight/") >= 4
    assert "| h1 | pass | the lock is free |" in rollout_report.markdown("rollout-1", records)
    with pytest.raises(JournalMismatch, match="the journal has preflight/h1 where the procedure has h1/needs"):
        await world.run()
    world.older = True
    assert (await world.run()).state == f"h1, h2 run {NEW[:12]}"
    assert world["h1"].shipped and world["h2"].shipped
