"""Callers who come back together are written together, and nobody waits for those who do not come."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import pytest

from iris_controller.crowd import FEW, FORGOTTEN_SECONDS, Crowd
from iris_controller.loop import ControllerLoop
from iris_controller.rpc.errors import RpcError
from iris_controller.state.model import Model
from iris_controller.state.overlay import Overlay
from iris_controller.store.encode import UPSERT_META
from iris_controller.store.writer import Statement
from iris_controller.ticker import SchedulerTicker

FOR_EVER_S = 600.0
NAMES = itertools.count()


@pytest.fixture(autouse=True)
def _one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits together is one batch, however slow the machine is."""
    monkeypatch.setattr("iris_controller.loop.BATCH_SECONDS", 600.0)


class Patient(Crowd):
    """One that waits for ever once it has seen a crowd, and never forgets it."""

    def __init__(self) -> None:
        super().__init__(clock=lambda: 0.0)

    def patience_s(self) -> float:
        return FOR_EVER_S


class Commits:
    """A store that takes everything, and counts what each transaction brings."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.begun = asyncio.Event()

    async def commit(self, statements: Sequence[Statement]) -> None:
        self.sizes.append(sum(sql == UPSERT_META for sql, _ in statements))
        self.begun.set()
        await asyncio.sleep(0)


def posted(loop: ControllerLoop, count: int) -> list[asyncio.Future[None]]:
    """So many commands at once, each of which writes one row."""
    return [loop.post("change", partial(change, name=str(next(NAMES)))) for _ in range(count)]


def change(o: Overlay, now_ms: int, name: str) -> None:
    o.meta[name] = now_ms


async def sweeps() -> None:
    """Lets all run that can: nothing here takes more passes of the event loop than a few."""
    for _ in range(100):
        await asyncio.sleep(0)


@asynccontextmanager
async def running(crowd: Crowd) -> AsyncIterator[tuple[ControllerLoop, Commits]]:
    model, commits = Model(), Commits()
    loop = ControllerLoop(model, commits, SchedulerTicker(model), crowd=crowd)
    task = asyncio.create_task(loop.run())
    try:
        yield loop, commits
    finally:
        loop.close()
        await asyncio.wait_for(task, 30)


async def done(commands: Sequence[asyncio.Future[None]]) -> None:
    await asyncio.wait_for(asyncio.gather(*commands), 30)


@pytest.mark.asyncio
async def test_half_of_a_crowd_is_a_batch() -> None:
    async with running(Patient()) as (loop, commits):
        await done(posted(loop, 2 * FEW))
        back = posted(loop, FEW - 1)
        await sweeps()
        assert commits.sizes == [2 * FEW], "the first of them are not written alone"
        back += posted(loop, 1)
        await done(back)
        assert commits.sizes == [2 * FEW, FEW]


@pytest.mark.asyncio
async def test_those_who_come_while_a_batch_is_written_are_counted_too() -> None:
    async with running(Patient()) as (loop, commits):
        first = posted(loop, FEW)
        await asyncio.wait_for(commits.begun.wait(), 30)
        # Half of all of them: they wait for nobody.
        await done([*first, *posted(loop, FEW)])
        assert commits.sizes == [FEW, FEW]


@pytest.mark.asyncio
async def test_a_few_are_not_waited_for() -> None:
    async with running(Patient()) as (loop, commits):
        await done(posted(loop, FEW - 1))
        await done(posted(loop, 1))
        assert commits.sizes == [FEW - 1, 1]


@pytest.mark.asyncio
async def test_one_alone_is_written_though_the_crowd_does_not_come_back() -> None:
    async with running(Crowd()) as (loop, commits):
        await done(posted(loop, 2 * FEW))
        await done(posted(loop, 1))
        assert commits.sizes == [2 * FEW, 1]


@pytest.mark.asyncio
@pytest.mark.parametrize("end", ["close", "hold", "fence"])
async def test_nothing_is_waited_for_when_the_loop_is_to_stop(end: str) -> None:
    async with running(Patient()) as (loop, commits):
        await done(posted(loop, 2 * FEW))
        waiting = posted(loop, 1)
        await sweeps()
        if end == "close":
            loop.close()
        elif end == "hold":
            await asyncio.wait_for(loop.hold("a test"), 30)
        else:
            loop.fence("a test")
        await asyncio.wait(waiting, timeout=30)
        refused = [isinstance(command.exception(), RpcError) for command in waiting]
        assert refused == [end == "fence"]
        assert commits.sizes == ([2 * FEW] if end == "fence" else [2 * FEW, 1])
        loop.resume()


def test_a_crowd_is_forgotten_and_waits_for_half_a_commit_at_most() -> None:
    now = 5.0
    crowd = Crowd(most_s=0.003, clock=lambda: now)
    assert crowd.enough() == 0
    crowd.committed(10, 6, 0.004)
    assert crowd.enough() == 8
    assert crowd.patience_s() == 0.002
    crowd.committed(1, 0, 1.0)
    assert 4 <= crowd.enough() < 8, "one small batch does not mean that they are gone"
    assert crowd.patience_s() == 0.003
    crowd.committed(0, 0, 9.0)
    assert crowd.enough() >= 4, "a batch of the scheduler alone says nothing of them"
    now += FORGOTTEN_SECONDS
    assert crowd.enough() == 0
    for _ in range(10):
        crowd.committed(2, 0, 0.004)
    assert crowd.enough() == 0, "there are few"
