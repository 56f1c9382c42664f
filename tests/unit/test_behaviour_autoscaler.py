"""What the autoscaler lets operators see of its decisions (control-plane §3.1)."""

from __future__ import annotations

import logging

import pytest

from iris_controller.autoscaling.actions import KEPT, ActionLog
from iris_core.model.states import TaskState
from providers.fake.machines import Outcome, quota
from tests.unit.autoscaler_world import AutoscalerWorld, group

pytestmark = pytest.mark.asyncio


async def test_every_decision_is_an_audit_line_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    w = AutoscalerWorld(group(max_slices=1), delay_ms=30_000)
    w.machines.script("cpu", [quota("Quota 'CPUS' exceeded"), Outcome()])
    with caplog.at_level(logging.INFO, "iris.audit"):
        w.world.submit(cpu=3)
        await w.look(2)
        await w.pass_time(330)
        slice_id = w.machines.created[-1].slice_id
        assert w.lifecycles() == {slice_id: "ready"}
        task = w.world.task()
        w.world.observe(task.attempt_uid, TaskState.SUCCEEDED, task.worker_id)
        w.queue.tell()
        await w.pass_time(90)
        assert not w.lifecycles()
    lines = [line for line in caplog.text.splitlines() if "event=autoscaler" in line]
    for action, entity, status in (
        ("quota_exceeded", "cpu", ""),
        ("scale_up", slice_id, ""),
        ("slice_ready", slice_id, "completed"),
        ("scale_down", slice_id, "pending"),
        ("scale_down", slice_id, "completed"),
    ):
        found = [
            line for line in lines if f"action={action} " in line and entity in line and f"status={status}" in line
        ]
        assert found, (action, entity, lines)
        assert all("group=cpu" in line and "reason=" in line for line in found)
    assert any("Quota 'CPUS' exceeded" in line for line in lines), "the provider's own words"


async def test_a_hundred_decisions_are_kept() -> None:
    log = ActionLog(lambda: 7)
    for number in range(KEPT + 20):
        log.say("scale_up", f"s{number}", "cpu", "pending", "demand")
    kept = log.all()
    assert KEPT == len(kept) == 100
    assert (kept[0].entity, kept[-1].entity, kept[-1].at_ms) == ("s20", "s119", 7)


async def test_a_restart_begins_the_idle_time_anew() -> None:
    """Who starts does not know since when a slice is idle (control-plane §3.6)."""
    w = AutoscalerWorld(group(max_slices=1), delay_ms=60_000)
    w.world.submit(cpu=3)
    await w.look(3)
    await w.pass_time(20)
    task = w.world.task()
    w.world.observe(task.attempt_uid, TaskState.SUCCEEDED, task.worker_id)
    w.queue.tell()
    await w.pass_time(40)
    assert w.count("ready") == 1
    again = AutoscalerWorld(group(max_slices=1), delay_ms=60_000, world=w.world, machines=w.machines, clock=w.clock)
    await again.look(2)
    await again.pass_time(40)
    assert again.count("ready") == 1, "idle for longer than the delay in all, and not since the start"
    await again.pass_time(40)
    assert not again.lifecycles()
