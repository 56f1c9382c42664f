"""Long work of the autoscaler in pieces: others run in between, the outcome is that of one piece."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from iris_controller.autoscaling.demand import demand_in_steps, demand_of
from iris_controller.autoscaling.pieces import at_once, in_pieces
from iris_controller.state import kernel
from tests.unit.kernel_world import World

if TYPE_CHECKING:
    from collections.abc import Generator


def counting(upto: int, seen: list[str]) -> Generator[None, None, int]:
    for number in range(upto):
        seen.append(f"step {number}")
        yield
    return upto


def test_others_run_between_the_pieces() -> None:
    seen: list[str] = []

    async def main() -> int:
        working = asyncio.ensure_future(in_pieces(counting(3, seen), piece_s=0.0))
        while not working.done():
            await asyncio.sleep(0)
            seen.append("other")
        return await working

    assert asyncio.run(main()) == 3
    for number in range(2):
        assert "other" in seen[seen.index(f"step {number}") : seen.index(f"step {number + 1}")]


def test_short_work_is_one_piece() -> None:
    seen: list[str] = []

    async def main() -> int:
        others = asyncio.ensure_future(asyncio.sleep(0))
        found = await in_pieces(counting(3, seen), piece_s=3600.0)
        assert not others.done()
        await others
        return found

    assert asyncio.run(main()) == at_once(counting(3, [])) == 3


def test_an_error_is_that_of_the_work() -> None:
    def failing() -> Generator[None, None, int]:
        yield
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        asyncio.run(in_pieces(failing()))
    with pytest.raises(ValueError, match="no"):
        at_once(failing())


def test_what_changes_while_the_demand_is_found_does_no_harm() -> None:
    w = World()
    names = [f"/u/{number}" for number in range(4)]
    for name in names:
        w.submit(name, tasks=2)
    unplaced = {name: False for name in names}
    steps = demand_in_steps(w.model, unplaced.items())
    next(steps)
    unplaced.clear()
    with w.batch() as o:
        for name in ("/u/0", "/u/3"):
            kernel.cancel(o, name, "ann", "", w.now_ms)
    found = at_once(steps)
    assert [d.job_id for d in found] == ["/u/0", "/u/1", "/u/2"], "as it was, or as it is"
    assert [d.job_id for d in demand_of(w.model, [(name, False) for name in names])] == ["/u/1", "/u/2"]
