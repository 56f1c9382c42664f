"""The driver of a restart or a rollback killed before and after every line of its journal: it goes on to the same end, and does nothing twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iris_core.contracts import IrisError
from iris_core.procedures import record
from iris_core.procedures.record import Phase, RolloutRecord
from tests.unit.procedures_world import Killed
from tests.unit.restart_world import NEW, OLD, World

pytestmark = pytest.mark.asyncio
CASES: dict[str, dict[str, Any]] = {
    "committed": {},
    "rolled back": {"unhealthy": NEW, "migrates": True},
    "rolled back, database kept": {"unhealthy": NEW, "skip": True},
    "rolled back, as the gate said": {"unhealthy": NEW, "migrates": True, "skip": True, "periodic": True},
    "a person decides": {"unhealthy": NEW, "migrates": True, "skip": True},
    "nothing touched": {"refuse_stop": "the disk is full"},
    "the old one again": {"refused": "last"},
    "the rollback is not taken": {"unhealthy": NEW, "migrates": True, "refused": "request"},
    "by hand": {"migrates": True, "back": True},
    "by hand, from probation": {"migrates": True, "back": True, "pending": True},
    "by hand, not taken": {"migrates": True, "back": True, "refused": "request"},
}


def made(folder: Path, case: dict[str, Any]) -> World:
    folder.mkdir()
    world = World(folder, migrates=bool(case.get("migrates")))
    world.host.unhealthy.update({case["unhealthy"]} if "unhealthy" in case else ())
    world.refuse_stop = str(case.get("refuse_stop", ""))
    if case.get("periodic"):
        world.save()
    if case.get("back"):
        saved = world.save()
        world.work("dropped")
        phase = Phase.PENDING if case.get("pending") else Phase.COMMITTED
        world.store.put(
            record.RECORD, RolloutRecord(phase, NEW, OLD, saved, 5, whole=bool(case.get("pending"))).to_json()
        )
        world.host.release, world.database.schema = NEW, list(world.schemas[NEW])
        world.host.running = not case.get("pending")
    if "refused" in case:
        world.store.before = refusing(world, str(case["refused"]))
    return world


def refusing(world: World, what: str) -> Any:
    """The store refuses one kind of write of the record, whenever it is tried."""

    def refuse(verb: str, name: str) -> None:
        if (verb, name) != ("write", record.RECORD):
            return
        last, new = "ended" in world.host.effects, f"start {NEW}" in world.host.effects
        asked = new or not world.host.running
        if (what == "last" and last and not world.host.running) or (what == "request" and asked and not last != new):
            raise IrisError("the store does not answer")

    return refuse


@pytest.mark.parametrize("name", list(CASES))
async def test_it_goes_on_to_the_same_end(memory: Path, name: str) -> None:
    case = CASES[name]
    how: dict[str, Any] = {"skip": bool(case.get("skip")), "back": bool(case.get("back"))}
    whole = made(memory / "whole", case)
    end = await whole.run(**how)
    wanted = whole.record
    assert wanted is not None and whole.lines > 8
    for number in range(2 * whole.lines):
        world = made(memory / str(number), case)
        with pytest.raises(Killed):
            await world.run(**how, die_at=number // 2, after=number % 2 == 1)
        outcome = await world.run(**how)
        assert (outcome.status, outcome.state, outcome.next) == (end.status, end.state, end.next), number
        assert (world.host.release, world.host.running) == (whole.host.release, whole.host.running), number
        for effect in ("ended", f"start {NEW}", f"start {OLD}"):
            assert world.host.effects.count(effect) == whole.host.effects.count(effect), (number, effect)
        assert world.database == whole.database and len(world.restored) == len(whole.restored), number
        assert not world.refused and world.free, number
        found = world.record
        assert found is not None
        # Only the checkpoint's own name may differ: one that was begun may have been taken twice.
        assert replace(found, rollback_checkpoint="", updated_at_ms=0) == replace(
            wanted, rollback_checkpoint="", updated_at_ms=0
        ), number
        assert bool(found.rollback_checkpoint) == bool(wanted.rollback_checkpoint), number
        if name == "committed":
            last = world.checkpoints[found.rollback_checkpoint].rows
            assert last == world.database.rows, f"{number}: it is the one that the controller ended with"
