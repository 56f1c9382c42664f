"""The subscription: it never gives up, resumes where it was, and says how old what it has is."""

from __future__ import annotations

import asyncio
import itertools
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from iris_core.contracts import RpcFailed
from iris_core.live.backoff import Backoff
from iris_core.live.watch import SILENT_AFTER_S, STALE_AFTER_S, Link, Selector, Watch
from iris_core.wire.gen.iris.v1 import common_pb2 as common
from iris_tui.session import Session
from providers.fake.client import FakeClient
from providers.fake.clock import FakeClock
from providers.fake.samples import job

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

pytestmark = pytest.mark.asyncio
JOBS = Selector("jobs", 1)


class Sink:
    """What a subscription told."""

    def __init__(self) -> None:
        self.rows: dict[str, Any] = {}
        self.removed: list[str] = []
        self.completed: list[tuple[str, set[str], int]] = []
        self.applied = 0

    def apply(self, selector: str, rows: Any) -> None:
        self.applied += 1
        for item in rows.jobs:
            self.rows[item.job_id] = item
        self.removed += rows.removed

    def complete(self, selector: str, present: set[str], total: int) -> None:
        self.completed.append((selector, present, total))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def passing(rig: Rig, condition: Callable[[], object]) -> None:
    """The same while time passes."""
    async with asyncio.timeout(60):
        while not condition():
            rig.clock.advance(0.1)
            await asyncio.sleep(0)


class Rig:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.client = FakeClient(now_ms=self.clock.now_ms())
        self.sink = Sink()
        self.watch = Watch(self.client, self.sink, self.clock, backoff=Backoff(rng=random.Random(1)))
        self.watch.select([JOBS])

    def put(self, name: str, state: str = "RUNNING") -> None:
        self.client.put(job(name, state, now_ms=self.clock.now_ms()))


@asynccontextmanager
async def running() -> AsyncIterator[Rig]:
    rig = Rig()
    rig.put("/a/one")
    task = asyncio.create_task(rig.watch.run())
    try:
        await until(lambda: rig.sink.completed and rig.watch.state.link is Link.LIVE)
        yield rig
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_before_anything_came_it_is_connecting() -> None:
    rig = Rig()
    assert rig.watch.state.link is Link.CONNECTING
    assert rig.watch.state.age_s is None


async def test_a_snapshot_then_deltas() -> None:
    async with running() as rig:
        assert rig.sink.completed == [("jobs", {"/a/one"}, 1)]
        rig.put("/a/two")
        await until(lambda: "/a/two" in rig.sink.rows)
        rig.client.drop("/a/one")
        await until(lambda: rig.sink.removed == ["/a/one"])
        assert rig.watch.state.link is Link.LIVE


async def test_silence_is_stale_and_a_heartbeat_ends_it() -> None:
    async with running() as rig:
        rig.clock.advance(STALE_AFTER_S + 1)
        assert rig.watch.state.link is Link.STALE
        assert rig.watch.state.age_s == STALE_AFTER_S + 1
        rig.client.heartbeat()
        await until(lambda: rig.watch.state.link is Link.LIVE)


async def test_a_broken_stream_is_resumed_without_a_snapshot_and_without_a_gap() -> None:
    async with running() as rig:
        rig.client.break_connection()
        await until(lambda: rig.watch.state.link is Link.RECONNECTING)
        assert "refused" in rig.watch.state.detail
        rig.put("/a/meanwhile")
        rig.client.restore()
        await passing(rig, lambda: rig.watch.state.link is Link.LIVE and "/a/meanwhile" in rig.sink.rows)
        assert rig.client.watch.snapshots == 1
        assert len(rig.sink.completed) == 1


async def test_a_restarted_controller_gives_a_new_snapshot_and_says_what_is_gone() -> None:
    async with running() as rig:
        rig.client.jobs.clear()
        rig.put("/a/after")
        rig.client.restart()
        await passing(rig, lambda: len(rig.sink.completed) == 2)
        assert rig.sink.completed[1] == ("jobs", {"/a/after"}, 1)


async def test_it_tries_for_ever_with_growing_pauses_that_have_a_limit() -> None:
    async with running() as rig:
        rig.client.break_connection()
        times = []
        for tries in range(2, 14):
            await passing(rig, lambda tries=tries: len(rig.client.called("Watch")) >= tries)  # type: ignore[misc]
            times.append(rig.clock.monotonic())
        pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert pauses[0] < 5 < max(pauses) < 18
        rig.client.restore()
        await passing(rig, lambda: rig.watch.state.link is Link.LIVE)


async def test_asking_for_it_does_not_wait_for_the_pause() -> None:
    async with running() as rig:
        rig.client.break_connection()
        await until(lambda: rig.watch.state.link is Link.RECONNECTING)
        rig.client.restore()
        rig.watch.retry_now()
        await until(lambda: rig.watch.state.link is Link.LIVE)


async def test_a_refused_login_is_a_state_and_ends_when_the_token_is_renewed() -> None:
    async with running() as rig:
        rig.client.deny()
        await until(lambda: rig.watch.state.link is Link.DENIED)
        rig.client.restore()
        await passing(rig, lambda: rig.watch.state.link is Link.LIVE)


async def test_a_stream_that_is_dead_silent_is_opened_anew() -> None:
    async with running() as rig:
        rig.client.freeze()
        frozen = rig.clock.monotonic()
        await passing(rig, lambda: rig.watch.state.link is Link.RECONNECTING)
        assert rig.clock.monotonic() - frozen >= SILENT_AFTER_S
        rig.client.thaw()
        await passing(rig, lambda: rig.watch.state.link is Link.LIVE)
        assert rig.client.watch.snapshots == 1


async def test_another_selector_leaves_the_first_where_it_was() -> None:
    async with running() as rig:
        rig.watch.select([JOBS, Selector("tasks-0", 2, job_ids=("/a/one",))])
        await until(lambda: [name for name, _, _ in rig.sink.completed] == ["jobs", "tasks-0"])
        assert rig.client.watch.snapshots == 2
        assert rig.watch.state.link is Link.LIVE
        request = rig.client.called("Watch")[-1]
        assert [bool(selector.resume.boot_id) for selector in request.selectors] == [True, False]


async def test_a_pause_the_server_asks_for_is_kept() -> None:
    delays = [Backoff(rng=random.Random(seed)).next_s(at_least_s=7.0) for seed in range(5)]
    assert delays == [7.0] * 5
    error = RpcFailed("UNAVAILABLE", "starting", retry_after_ms=7000)
    assert error.retry_after_ms == 7000


async def test_pages_of_one_snapshot_are_one_snapshot() -> None:
    rig = Rig()
    rig.client.watch.page_rows = 2
    for number in range(5):
        rig.put(f"/a/j{number}")
    task = asyncio.create_task(rig.watch.run())
    await until(lambda: rig.sink.completed)
    assert rig.sink.completed == [("jobs", {f"/a/j{number}" for number in range(5)}, 5)]
    assert rig.sink.applied == 3
    task.cancel()


async def test_a_cluster_that_comes_back_elsewhere_is_found_there() -> None:
    first, second = FakeClient(), FakeClient()
    second.url = "http://fake.invalid:10001"
    second.restart()
    now = FakeClock().now_ms()
    first.put(job("/a/one", "RUNNING", now_ms=now))
    second.put(job("/a/one", "SUCCEEDED", now_ms=now))
    clients = [first, second]

    async def connect() -> FakeClient:
        return clients.pop(0)

    async def where() -> str:
        return second.url

    clock = FakeClock()
    session = Session("local", connect, clock, where=where, backoff=Backoff(rng=random.Random(1)))
    task = asyncio.create_task(session.run())
    await until(lambda: session.link.link is Link.LIVE)
    first.break_connection()
    async with asyncio.timeout(60):
        while session.client.url != second.url or session.link.link is not Link.LIVE:
            clock.advance(0.1)
            await asyncio.sleep(0)
    row = session.tree.store.get("/a/one")
    assert row is not None
    assert int(row.value.state) == common.JOB_STATE_SUCCEEDED  # type: ignore[union-attr]
    assert first.closed
    task.cancel()
