"""A restart that is told to end while any of its events is under way: what it says is how the cluster is left, and something runs there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from iris_core.procedures.events import Outcome, Status
from iris_core.procedures.record import Phase
from iris_core.procedures.restart import restart
from tests.unit.ending_world import Ending, WaitingHost
from tests.unit.procedures_world import Killed
from tests.unit.restart_world import NEW, OLD, YES, World

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.asyncio


def made(folder: Path, unhealthy: str) -> tuple[World, Ending]:
    folder.mkdir(parents=True)
    world = World(folder)
    host = WaitingHost(OLD)
    host.on_start, world.host = world.boot, host
    if unhealthy:
        host.unhealthy.add(unhealthy)
    return world, Ending(folder / "p.jsonl", host, world.clock, lambda: restart(world.target("p")))


def require_true(world: World, outcome: Outcome, where: object) -> None:
    """What the end says is how the cluster is left."""
    found = world.record
    assert found is not None and world.host.running and world.free, (where, outcome)
    assert "did not come up again" not in outcome.state, (where, outcome.state)
    assert {"a", "b"} <= set(world.database.rows), where
    if outcome.status is Status.DONE:
        assert (found.phase, found.image, world.host.release) == (Phase.COMMITTED, NEW, NEW), where
    elif f"runs {OLD} again" in outcome.state:
        assert (found.image, world.host.release) == (OLD, OLD), (where, found)
        assert found.phase in (Phase.ROLLED_BACK, Phase.COMMITTED), where
    else:
        assert outcome.status in (Status.CANCELLED, Status.STOPPED), (where, outcome)
        assert (found.phase, world.host.release) == (Phase.COMMITTED, OLD), (where, found)


@pytest.mark.parametrize("unhealthy", ["", NEW])
async def test_told_to_end_anywhere_it_says_how_the_cluster_is_left(memory: Path, unhealthy: str) -> None:
    world, run = made(memory / "whole", unhealthy)
    require_true(world, await run.run(YES), "whole")
    events = [str(r["event"]) for r in run.records if r["type"] in ("gathering", "intent", "asked")]
    assert "health" in events and "unlock" in events and ("back-health" in events) == bool(unhealthy)
    for at in events:
        world, run = made(memory / at, unhealthy)
        require_true(world, await run.run(YES, at=at), at)


async def test_killed_while_its_way_back_is_seen_through_it_goes_on_to_the_same_end(memory: Path) -> None:
    world, run = made(memory / "whole", NEW)
    outcome = await run.run(YES, at="back-health")
    require_true(world, outcome, "whole")
    assert f"runs {OLD} again" in outcome.state and "told to end while it could not be left" in " ".join(
        outcome.details
    )
    for number in range(2 * len(run.records)):
        world, run = made(memory / str(number), NEW)
        with pytest.raises(Killed):
            await run.run(YES, at="back-health", die_at=number // 2, after=number % 2 == 1)
        require_true(world, await run.run(YES, at="back-health"), number)
