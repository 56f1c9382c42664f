"""What once stood in the way of somebody who had read the README and the help and nothing else: each fault's kind, held once."""

from __future__ import annotations

import pytest

from providers.fake.clock import FakeClock
from providers.fake.samples import sample, task
from tests.unit.test_console_app import Rig, console

pytestmark = pytest.mark.asyncio


def body(rig: Rig) -> str:
    """The screen without its head, the line about the row, and the keys."""
    return "\n".join(rig.lines()[2:-2])


async def test_a_name_is_not_cut_beside_a_column_that_has_nothing_to_say() -> None:
    client = sample(FakeClock())
    worker = "gke-tpu-v5e-us-east5-b-0012"
    client.put(task("/ada/train-llama", 0, "RUNNING", now_ms=client.now_ms, worker_id=worker))
    async with console(client) as rig:
        rig.app.run_command("tasks worker:gke")
        await rig.until(lambda: f" {worker} " in body(rig))
        await rig.pilot.resize_terminal(80, 24)
        await rig.until(lambda: "gke-" in body(rig) and worker not in body(rig))
        await rig.pilot.resize_terminal(120, 40)
        await rig.until(lambda: f" {worker} " in body(rig))
