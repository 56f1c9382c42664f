"""What watched rows are put together from: the lag of the loop, and what the state alone says of scale groups and slices."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from iris_controller.loop_lag import KEPT, LoopLag
from iris_controller.rpc import autoscaler_view
from iris_controller.state.model import Model
from iris_controller.state.slices import Lifecycle, ScalingGroup, Slice
from iris_controller.watching.capacity import Capacity, kept_groups
from iris_core.wire.gen.iris.v1 import watch_rows_pb2


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
    slices = [Slice("s1", "b", Lifecycle.READY, ("w",), 5), Slice("s2", "b", Lifecycle.FAILED, (), 6)]
    groups = [ScalingGroup("a", consecutive_failures=3, backoff_until_ms=7, quota_reason="none left")]
    first, second = kept_groups(groups, slices)
    assert (first.name, first.consecutive_failures, first.backoff_until_ms, first.quota_reason) == (
        "a", 3, 7, "none left",
    )  # fmt: skip
    assert (second.name, dict(second.slice_state_counts)) == ("b", {"ready": 1, "failed": 1})


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
