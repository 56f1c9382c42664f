"""When a worker tells what it observes: an end at once, a beginning a moment later, with whatever followed meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from iris_controller.worker import agent
from iris_controller.worker.agent import Agent
from iris_core.wire.gen.iris.v1 import common_pb2, worker_pb2

pytestmark = pytest.mark.asyncio
RUNNING, SUCCEEDED = common_pb2.TASK_STATE_RUNNING, common_pb2.TASK_STATE_SUCCEEDED


def seen(state: common_pb2.TaskState, done: bool = False) -> Any:
    return SimpleNamespace(uid="a", done=done, observation=worker_pb2.Observation(attempt_uid="a", state=state))


async def test_a_short_task_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "GATHER_S", 600)
    woken = asyncio.Event()
    made = Agent(woken.set)
    made.changed(seen(RUNNING))
    await asyncio.sleep(0)
    assert not woken.is_set()
    made.changed(seen(SUCCEEDED, done=True))
    assert woken.is_set()
    assert [o.state for o in made.report().observations] == [SUCCEEDED]
    assert not made.report().observations


async def test_a_task_that_runs_on_is_told_a_moment_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "GATHER_S", 0.01)
    woken = asyncio.Event()
    made = Agent(woken.set)
    made.changed(seen(RUNNING))
    await asyncio.wait_for(woken.wait(), 60)
    assert [o.state for o in made.report().observations] == [RUNNING]


async def test_only_the_first_set_of_a_stream_is_confirmed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "APPLIED_S", 0.01)
    woken = asyncio.Event()
    made = Agent(woken.set)
    made.apply(worker_pb2.DesiredSet(generation=1))
    assert woken.is_set()
    woken.clear()
    made.apply(worker_pb2.DesiredSet(generation=2))
    assert not woken.is_set()
    await asyncio.wait_for(woken.wait(), 60)
    assert made.report().applied_generation == 2
