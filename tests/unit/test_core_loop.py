"""The loop when something of ours is at fault: one bad command, slice or row never takes the others with it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from iris_controller.loop import ControllerLoop
from iris_controller.rpc.errors import RpcError, exists
from iris_controller.state import kernel, submit
from iris_controller.state.changes import Changes
from iris_controller.state.model import Model
from iris_controller.state.overlay import Overlay, RequestAnswer
from iris_controller.store import encode
from iris_controller.store.writer import CommitFailed, Statement
from tests.unit.test_store_loop import job, rig, same, worker

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def _one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits together is one batch, however slow the machine is."""
    monkeypatch.setattr("iris_controller.loop.BATCH_SECONDS", 600.0)


def answer(o: Overlay, now: int) -> None:
    """Breaks the primary key of `request_ids` when it is committed twice."""
    o.answers.append(RequestAnswer("p", "r", "m", b""))


async def test_a_row_that_the_database_refuses_fails_its_own_command_only(tmp_path: Path) -> None:
    async with rig(tmp_path / "c.sqlite3") as r:
        await r.loop.submit("first", answer)
        results = await asyncio.wait_for(
            asyncio.gather(
                r.loop.submit("a", lambda o, now: submit.admit(o, job("/u/a"), now)),
                r.loop.submit("again", answer),
                r.loop.post("internal", answer),
                r.loop.submit("b", lambda o, now: submit.admit(o, job("/u/b"), now)),
                return_exceptions=True,
            ),
            60,
        )
        assert [isinstance(x, RpcError) and x.status for x in results] == [False, "INTERNAL", "INTERNAL", False]
        assert not r.loop.stats.store_error, "the disk is well"
        same(r.model, r.loaded())


async def test_a_batch_that_cannot_be_encoded_does_not_end_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = encode.statements

    def broken(o: Overlay, now_ms: int, forget: int | None = None) -> list[Statement]:
        if "/u/bad" in o.jobs:
            raise ZeroDivisionError
        return real(o, now_ms, forget)

    monkeypatch.setattr(encode, "statements", broken)
    async with rig(tmp_path / "c.sqlite3") as r:
        bad, good = await asyncio.wait_for(
            asyncio.gather(
                r.loop.submit("bad", lambda o, now: submit.admit(o, job("/u/bad"), now)),
                r.loop.submit("good", lambda o, now: submit.admit(o, job("/u/good"), now)),
                return_exceptions=True,
            ),
            60,
        )
        assert isinstance(bad, RpcError) and bad.status == "INTERNAL"
        assert isinstance(good, submit.Admitted)


async def test_a_slice_planned_beside_a_faulty_command_is_not_forgotten(tmp_path: Path) -> None:
    async with rig(tmp_path / "c.sqlite3") as r:
        await r.loop.submit("a", lambda o, now: submit.admit(o, job("/u/a"), now))
        await r.until_quiet()

        def broken(o: Overlay, now: int) -> None:
            raise ZeroDivisionError

        # The worker's arrival asks for a slice; the faulty command is planned with it and is the only command of that batch.
        arrived = r.loop.post("w", lambda o, now: o.workers.update({"w1": worker("w1")}))
        arrived.add_done_callback(lambda _: r.loop.post("fault", broken))
        async with asyncio.timeout(60):
            while not r.model.by_worker.get("w1"):
                await r.loop.next_commit(0.2)
        await r.until_quiet()
        same(r.model, r.loaded())


async def test_a_thousand_faulty_commands_are_answered_each(tmp_path: Path) -> None:
    def broken(o: Overlay, now: int) -> None:
        raise ZeroDivisionError

    async with rig(tmp_path / "c.sqlite3") as r:
        calls = [r.loop.submit(f"f{n}", broken) for n in range(1_000)]
        calls.append(r.loop.submit("a", lambda o, now: submit.admit(o, job("/u/a"), now)))  # type: ignore[arg-type]
        results = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 60)
        assert all(isinstance(x, RpcError) and x.status == "INTERNAL" for x in results[:-1])
        assert isinstance(results[-1], submit.Admitted)


async def test_a_command_that_breaks_the_roll_up_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = kernel.settle

    def settle(o: Overlay, now_ms: int) -> None:
        if any(t.job_id == "/u/bad" for t in o.tasks.values()):
            raise ZeroDivisionError
        real(o, now_ms)

    async with rig(tmp_path / "c.sqlite3") as r:
        for name in ("/u/bad", "/u/good"):
            await r.loop.submit(name, lambda o, now, name=name: submit.admit(o, job(name), now))  # type: ignore[misc]
        monkeypatch.setattr(kernel, "settle", settle)

        def touch(o: Overlay, name: str) -> None:
            task = o.task(name, 0)
            assert task is not None
            o.set_task(task, error="touched")

        bad, good = await asyncio.wait_for(
            asyncio.gather(
                r.loop.submit("bad", lambda o, now: touch(o, "/u/bad")),
                r.loop.submit("good", lambda o, now: touch(o, "/u/good")),
                return_exceptions=True,
            ),
            60,
        )
        assert isinstance(bad, RpcError) and bad.status == "INTERNAL"
        assert good is None
        assert r.model.tasks["/u/good"][0].error == "touched" and r.model.tasks["/u/bad"][0].error is None


class Ticks:
    """A scheduler that fails."""

    def __init__(self) -> None:
        self.asked = 0

    def wanted(self) -> bool:
        return True

    def slice(self, overlay: Overlay, now_ms: int) -> dict[str, str]:
        self.asked += 1
        raise ZeroDivisionError

    def dropped(self) -> None: ...

    def noticed(self, changes: Changes) -> None: ...


class Store:
    """Takes everything, or nothing while `why` says so."""

    def __init__(self) -> None:
        self.why = ""

    async def commit(self, statements: Sequence[Statement]) -> None:
        await asyncio.sleep(0)
        if self.why:
            raise CommitFailed(self.why)


async def test_a_scheduler_that_fails_neither_ends_the_loop_nor_spins() -> None:
    ticks = Ticks()
    loop = ControllerLoop(Model(), Store(), ticks)
    running = asyncio.create_task(loop.run())
    for n in range(20):
        await asyncio.wait_for(loop.submit("a", lambda o, now, n=n: submit.admit(o, job(f"/u/j{n}"), now)), 60)  # type: ignore[misc]
    assert 1 <= ticks.asked <= 3
    loop.close()
    await asyncio.wait_for(running, 60)


async def test_a_refusal_caused_by_a_change_that_was_not_committed_is_no_answer() -> None:
    store = Store()
    loop = ControllerLoop(Model(), store, SilentTicks())
    store.why = "disk I/O error"

    def second(o: Overlay, now: int) -> None:
        if o.job("/u/a") is not None:
            raise exists("/u/a", "/u/a exists")

    calls = asyncio.gather(
        loop.submit("a", lambda o, now: submit.admit(o, job("/u/a"), now)),
        loop.submit("b", second),
        return_exceptions=True,
    )
    running = asyncio.create_task(loop.run())
    results = await asyncio.wait_for(calls, 60)
    assert [isinstance(x, RpcError) and x.status for x in results] == ["UNAVAILABLE", "UNAVAILABLE"]
    loop.close()
    await asyncio.wait_for(running, 60)


class SilentTicks(Ticks):
    def wanted(self) -> bool:
        return False


async def test_nobody_waits_for_ever_when_the_store_refuses_at_shutdown() -> None:
    store = Store()
    store.why = "database or disk is full"
    loop = ControllerLoop(Model(), store, SilentTicks())
    internal = loop.post("a", lambda o, now: submit.admit(o, job("/u/a"), now))
    external = asyncio.ensure_future(loop.submit("b", lambda o, now: submit.admit(o, job("/u/b"), now)))
    await asyncio.sleep(0)
    loop.close()
    await asyncio.wait_for(loop.run(), 60)
    for waiting in (internal, external):
        with pytest.raises(RpcError) as caught:
            await asyncio.wait_for(waiting, 60)
        assert caught.value.status == "UNAVAILABLE"


async def test_waiting_for_a_commit_is_not_woken_by_a_batch_that_changed_nothing() -> None:
    loop = ControllerLoop(Model(), Store(), SilentTicks())
    running = asyncio.create_task(loop.run())
    waiting = asyncio.create_task(loop.next_commit(30))
    await asyncio.sleep(0)
    for _ in range(3):
        await loop.submit("look", lambda o, now: None)
    assert not waiting.done()
    await loop.submit("a", lambda o, now: submit.admit(o, job("/u/a"), now))
    await asyncio.wait_for(waiting, 60)
    loop.close()
    await asyncio.wait_for(running, 60)


class OneSlice(Ticks):
    """Plans once, without a command beside it."""

    def wanted(self) -> bool:
        return not self.asked

    def slice(self, overlay: Overlay, now_ms: int) -> dict[str, str]:
        self.asked += 1
        submit.admit(overlay, job("/u/a"), now_ms)
        return {}


class SlowStore(Store):
    """Says when it has begun, and ends when it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go = asyncio.Event(), asyncio.Event()

    async def commit(self, statements: Sequence[Statement]) -> None:
        self.begun.set()
        await self.go.wait()


async def test_a_hold_waits_for_a_slice_that_is_being_written() -> None:
    store = SlowStore()
    loop = ControllerLoop(Model(), store, OneSlice())
    running = asyncio.create_task(loop.run())
    await asyncio.wait_for(store.begun.wait(), 60)
    holding = asyncio.create_task(loop.hold("a look"))
    await asyncio.sleep(0)
    assert not holding.done() and not loop.model.jobs
    store.go.set()
    await asyncio.wait_for(holding, 60)
    assert "/u/a" in loop.model.jobs
    loop.close()
    await asyncio.wait_for(running, 60)


async def test_a_nan_is_no_reason_to_call_the_disk_full(tmp_path: Path) -> None:
    async with rig(tmp_path / "c.sqlite3") as r:
        with pytest.raises(sqlite3.OperationalError):
            await r.real.commit([("INSERT INTO meta SELECT value, 1 FROM json_each(?)", ('["a", NaN',))])
        await r.real.commit([("INSERT INTO meta VALUES ('a', 1)", ())])


async def test_a_caller_who_leaves_ends_neither_its_command_nor_the_batch(tmp_path: Path) -> None:
    async with rig(tmp_path / "c.sqlite3") as r:
        left = asyncio.create_task(r.loop.submit("left", lambda o, now: submit.admit(o, job("/u/left"), now)))
        stays = asyncio.create_task(r.loop.submit("stays", lambda o, now: submit.admit(o, job("/u/stays"), now)))
        # Both are queued with the first pass of the event loop; what of them is planned by then does not matter.
        await asyncio.sleep(0)
        left.cancel()
        await asyncio.wait_for(stays, 30)
        with pytest.raises(asyncio.CancelledError):
            await left
        await r.until_quiet()
        assert set(r.model.jobs) == {"/u/left", "/u/stays"}
        same(r.model, r.loaded())
