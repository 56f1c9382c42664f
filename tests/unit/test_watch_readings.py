"""What watched rows are put together from: the lag of the loop, and what the state alone says of scale groups and slices."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from iris_controller.loop_lag import KEPT, LoopLag
from iris_controller.rpc import autoscaler_view
from iris_controller.rpc.autoscaler_view import kept_groups
from iris_controller.state.model import Model
from iris_controller.state.slices import Lifecycle, ScalingGroup, Slice
from iris_controller.watching import pulse
from iris_controller.watching.capacity import Capacity
from iris_controller.watching.pulse import Asked, ControllerCondition
from iris_core.wire.gen.iris.v1 import common_pb2, pipeline_pb2, watch_rows_pb2


def test_lag_is_that_of_the_last_minute() -> None:
    lag = LoopLag()
    assert lag.read() == watch_rows_pb2.LoopLag()
    lag.take(9.0)
    for n in range(KEPT):
        lag.take(n / 1000)
    said = lag.read()
    assert (said.samples, said.window_ms, said.max_ms) == (KEPT, 60_000, KEPT - 1)
    assert (said.p50_ms, said.p99_ms) == (119.0, 237.0)
    one = LoopLag()
    one.take(0.004)
    assert (one.read().p50_ms, one.read().p99_ms, one.read().max_ms) == (4.0, 4.0, 4.0)


def test_a_state_without_an_autoscaler_tells_of_groups_that_grew_failed_or_have_a_slice() -> None:
    slices = [
        Slice("s1", "b", Lifecycle.READY, ("w",), 5),
        Slice("s2", "b", Lifecycle.FAILED, (), 6),
        Slice("s3", "b", Lifecycle.READY, (), 7, manual=True),
    ]
    groups = [ScalingGroup("a", consecutive_failures=3, backoff_until_ms=7, quota_reason="none left")]
    first, second = kept_groups(groups, slices)
    assert (first.name, first.consecutive_failures, first.backoff_until_ms, first.quota_reason) == (
        "a", 3, 7, "none left",
    )  # fmt: skip
    assert (second.name, dict(second.slice_state_counts)) == ("b", {"ready": 2, "failed": 1})
    assert (first.current_slices, second.current_slices) == (0, 1), (
        "as an autoscaler counts: its own, without those that go"
    )
    assert not first.availability and not second.availability


@pytest.mark.asyncio
async def test_an_idle_slice_says_since_when_and_the_same_as_long_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    model, idle, now = Model(), {"s": 0}, [100_000]
    model.slices["s"] = Slice("s", "g", Lifecycle.READY, (), 5)
    scaler = SimpleNamespace(sights=SimpleNamespace(infos={}), idle_ms=idle.__getitem__)
    monkeypatch.setattr(autoscaler_view, "is_busy", lambda row, model: False)
    capacity = Capacity(model, lambda: cast("Any", scaler), lambda: now[0])

    async def seen() -> tuple[int, int]:
        (row,) = await capacity.slices(frozenset())
        return row.idle_since_ms, row.idle_ms

    assert await seen() == (0, 0)
    idle["s"] = 40_000
    assert await seen() == (60_000, 0)
    now[0], idle["s"] = 105_000, 45_003
    assert await seen() == (60_000, 0), "a clock that is read a little later is no other idleness"
    now[0], idle["s"] = 200_000, 1_000
    assert await seen() == (199_000, 0)


@pytest.mark.asyncio
async def test_a_log_store_that_does_not_answer_holds_no_row_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "FIRST_WORD_S", 0.0)
    monkeypatch.setattr(pulse, "STORE_EVERY_S", 0.0)
    go = asyncio.Event()
    asked: list[int] = []

    async def store() -> pipeline_pb2.StoreHealth:
        asked.append(1)
        await go.wait()
        return pipeline_pb2.StoreHealth(state="serving")

    stats = SimpleNamespace(
        last_plan_ms=1.0, last_commit_ms=2.0, batches=3, commands=4, failed_commits=0, store_error=""
    )
    loop = SimpleNamespace(model=Model(), stats=stats, depth=5, in_hand=6, now_ms=lambda: 7)
    about = SimpleNamespace(
        cluster="c", started_at_ms=1, state_dir="/s", problems=lambda: ["slow"], rows=lambda: (8, 9)
    )
    late = {"w1": pipeline_pb2.ShipperHealth(lag_ms=50), "": pipeline_pb2.ShipperHealth(lag_ms=4)}
    known = Asked(
        own=common_pb2.ProcessInfo,
        lag=watch_rows_pb2.LoopLag,
        checkpoint=watch_rows_pb2.CheckpointCondition,
        store=store,
        shippers=lambda: late,
        watchers=lambda: 2,
    )
    condition = ControllerCondition(cast("Any", loop), cast("Any", about), known)
    for _ in range(3):
        (row,) = await condition.look(frozenset())
        assert row.store.state == "" and not row.ready and (row.queued_commands, row.writing_commands) == (5, 6)
        assert (row.shipping_lag_worker, row.shipping_lag_ms) == ("w1", 50)
    assert len(asked) == 1
    go.set()
    async with asyncio.timeout(60):
        while (await condition.look(frozenset()))[0].store.state != "serving":  # noqa: ASYNC110
            await asyncio.sleep(0)
    go.clear()
    await condition.look(frozenset())
    assert (await condition.look(frozenset()))[0].store.state == "serving", "what it said a moment ago"
    monkeypatch.setattr(pulse, "OLD_S", 0.0)
    assert (await condition.look(frozenset()))[0].store.state == "", (
        "what it said long ago is not told as if it were so"
    )
