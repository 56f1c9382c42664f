"""Background tasks: which there are, and what is known of one that ended although it should not have."""

from __future__ import annotations

import asyncio

import pytest

from iris_controller.guarded import Guard


@pytest.mark.asyncio
async def test_a_task_that_ends_unexpectedly_is_told_with_its_reason_and_one_that_is_ended_is_not() -> None:
    guard = Guard()

    async def fails() -> None:
        raise OSError("the disk is gone")

    for name in ("timers", "leases"):
        guard.spawn(name, asyncio.Event().wait())
    failed = guard.spawn("checkpoints", fails())
    await asyncio.wait([failed])
    await guard.end("leases")
    found = guard.condition()
    assert [(task.name, task.ended) for task in found] == [("checkpoints", "the disk is gone"), ("timers", "")]
    assert all(task.started_at_ms > 0 for task in found)
    assert guard.problems() == ["background task checkpoints ended: the disk is gone"]
    assert await guard.close(5.0) == []
