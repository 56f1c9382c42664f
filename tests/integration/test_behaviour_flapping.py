"""Workers that come and go all the time break nothing and flood nobody's log (targets R10)."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from iris_controller.commits import Committed
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2
from providers.fake.worker import run_on
from tests.integration.controller_rig import Rig, launch_request, rig
from tests.unit.kernel_world import check_invariants

pytestmark = pytest.mark.asyncio

WORKERS = 24
ROUNDS = 8
RUNNING = common_pb2.TASK_STATE_RUNNING


async def flap(r: Rig, number: int) -> None:
    """Attaches and leaves, under the same boot id or another one, sooner or later after its first set."""
    dice = random.Random(number)
    boot = ""
    for _ in range(ROUNDS):
        async with r.worker(f"w{number}", run_on, boot_id=boot) as worker:
            commits = dice.randrange(6)
            for _ in range(commits):
                await r.controller.loop.next_commit(0.05)
            boot = worker.boot_id if dice.random() < 0.7 else ""


@pytest.mark.timeout(120)
async def test_workers_that_come_and_go_break_nothing_and_flood_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken: list[AssertionError] = []
    began = time.monotonic()

    def look(_: Committed) -> None:
        try:
            check_invariants(r.controller.model)
        except AssertionError as error:
            broken.append(error)

    with caplog.at_level(logging.INFO, "iris.audit"):
        async with rig(tmp_path) as r:
            r.controller.loop.on_commit(look)
            request = launch_request("/u/a", max_retries_preemption=10_000)
            request.replicas = 40
            await r.call("LaunchJob", request, controller_pb2.LaunchJobResponse)
            await asyncio.gather(*(flap(r, number) for number in range(WORKERS)))
            assert not broken, broken[0]
            async with r.worker("steady", run_on, cpu_millicores=64_000):
                # What the others still hold is lost to them when they come back as other processes.
                for number in range(WORKERS):
                    async with r.worker(f"w{number}", run_on, cpu_millicores=1):
                        pass
                await r.until("/u/a", lambda j: any(c.state == RUNNING and c.count == 40 for c in j.task_counts))
            assert not broken, broken[0]
    lines = Counter[tuple[str, str]]()
    for line in caplog.text.splitlines():
        _, _, rest = line.partition("event=")
        words = rest.split()
        if len(words) > 1 and words[1].startswith("entity=w"):
            lines[(words[0], words[1])] += 1
    often = {key: n for key, n in lines.items() if key[0] != "worker_registered"}
    minutes = 1 + (time.monotonic() - began) // 60
    assert often and max(often.values()) <= minutes, "of a kind and a worker one line a minute"
