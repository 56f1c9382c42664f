"""How contact with a worker is lost and found again, step by step (DESIGN §4 "Workers attach", in place of control-plane §4.1, §4.2)."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_controller.liveness import FAILURES_TO_DIE, Liveness
from iris_core.model.states import TaskState, WorkerHealth
from iris_core.wire.gen.iris.v1 import common_pb2
from tests.unit.test_core_sessions import DEAD_AFTER, rig, saw

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize(
    ("silent", "attached", "failures", "health"),
    [
        (0, True, 0, WorkerHealth.HEALTHY),
        (10, True, 0, WorkerHealth.HEALTHY),
        (10.1, True, 0, WorkerHealth.DEGRADED),
        (15, True, 1, WorkerHealth.DEGRADED),
        (25, True, 3, WorkerHealth.DEGRADED),  # failures enough, and not yet silent for long enough
        (49.9, True, 7, WorkerHealth.DEGRADED),
        (50, True, 8, WorkerHealth.DEAD),
        (0, False, 0, WorkerHealth.DEGRADED),  # a closed stream is no contact
        (50, False, 8, WorkerHealth.DEAD),
    ],
)
async def test_silence_is_degraded_then_dead(
    silent: float, attached: bool, failures: int, health: WorkerHealth
) -> None:
    liveness = Liveness(1000.0, attached)
    assert liveness.failures(1000.0 + silent, 50) == failures
    assert liveness.health(1000.0 + silent, 50) is health


@given(st.floats(0, 1e6), st.floats(0.1, 1e4), st.booleans())
async def test_nobody_is_dead_before_the_time_and_after_it_everybody_is(
    silent: float, dead_after: float, attached: bool
) -> None:
    liveness = Liveness(0.0, attached)
    dead = liveness.health(silent, dead_after) is WorkerHealth.DEAD
    assert dead == (silent >= dead_after)
    assert not dead or liveness.failures(silent, dead_after) >= FAILURES_TO_DIE


async def test_a_worker_that_falls_silent_gets_nothing_then_is_given_up_and_each_step_is_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "iris.audit"):
        async with rig() as r:
            stream = await r.healthy()
            await r.launch("/u/a")
            await stream.until("desired")
            uid = stream.desired.attempts[0].attempt_uid
            stream.report(saw(uid, common_pb2.TASK_STATE_RUNNING, 1))
            await r.until(lambda: r.model.attempts[uid].state is TaskState.RUNNING)
            r.silence(DEAD_AFTER / 5 + 1)
            await r.until(lambda: r.model.workers["w1"].health is WorkerHealth.DEGRADED)
            await r.launch("/u/b")
            await r.settled()
            assert "/u/b" in r.model.pending, "no placements meanwhile"
            assert r.model.attempts[uid].state is TaskState.RUNNING, "and nothing is taken away"
            r.silence(DEAD_AFTER * 2)
            await r.until(lambda: r.model.workers["w1"].health is WorkerHealth.DEAD)
            task = r.model.task("/u/a", 0)
            assert task is not None and (task.state, task.preemption_count) == (TaskState.PENDING, 1)
            r.silence(DEAD_AFTER * 5)
            await r.settled()
    for event in ("reconcile_rpc_failed", "worker_failed"):
        assert caplog.text.count(f"event={event} entity=w1") == 1, event
    assert 'reason="no message for 3 s"' in caplog.text and "attempts=1" in caplog.text


async def test_a_stopping_worker_is_written_down_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "iris.audit"):
        async with rig() as r:
            stream = await r.healthy()
            for _ in range(3):
                stream.beat(stopping=True)
                await r.settled()
            await r.until(lambda: r.model.workers["w1"].stopping)
    assert caplog.text.count("event=worker_stopping entity=w1 trigger=worker") == 1


async def test_what_is_said_of_a_worker_that_nobody_knows_changes_nothing() -> None:
    """Events for unknown workers are dropped (control-plane §4.2)."""
    async with rig() as r:
        r.sessions.health.assess_all()
        assert r.sessions.health.age_ms("nobody") == 0 and not r.sessions.attached("nobody")
        stream = await r.healthy()
        await r.loop.submit("forget", lambda o, _: o.workers.update({"w1": None}))
        stream.beat()
        r.silence(DEAD_AFTER * 2)
        await r.settled()
        assert not r.model.workers
