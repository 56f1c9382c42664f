"""What a real worker measures of itself and of what it runs, and how that reaches the store."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from iris_controller.worker.readings import Measured, Reader, cpu_seconds, disk_bytes
from iris_core.model.namespaces import TASK, WORKER
from iris_core.wire.gen.iris.v1 import worker_pb2
from tests.integration.test_worker_attempts import running

if TYPE_CHECKING:
    from pathlib import Path

    from providers.fake.controller import FakeController

BUSY = """
import sys, time
held = bytearray(40_000_000)
held[::4096] = b"x" * len(held[::4096])
open("file", "wb").write(b"x" * 3_000_000)
print("ready", flush=True)
while True:
    sum(range(10_000))
"""


async def readings(controller: FakeController, table: str, wanted: Any) -> list[dict[str, Any]]:
    """The rows of a table, once there is one as wanted."""
    async with asyncio.timeout(60):
        while True:
            rows = controller.stats.rows.get(table, [])
            if any(wanted(row) for row in rows):
                return rows
            async with controller.stats.stored:
                await controller.stats.stored.wait()


@pytest.mark.asyncio
@pytest.mark.parametrize("options", [(), ("--no-cgroups",)])
async def test_a_running_attempt_is_measured_and_its_end_says_its_peak(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    async with running(tmp_path, "--attribute", "zone=z1", *options) as (controller, _):
        controller.stats_interval_ms = 200
        controller.drop()
        await controller.attached(2)
        uid = controller.run([sys.executable, "-c", BUSY], task_id="/u/j/3", attempt_id=2)
        rows = await readings(
            controller, TASK.name, lambda row: (row["cpu_millicores"] or 0) > 0 and (row["disk_mb"] or 0) >= 3
        )
        row = rows[-1]
        assert (row["task_id"], row["attempt_id"], row["worker_id"]) == ("/u/j/3", 2, "w1")
        assert (row["attempt_uid"], row["incarnation"]) == (uid, 7)
        assert row["memory_mb"] >= 40 and row["memory_peak_mb"] >= 40

        def said() -> list[worker_pb2.AttemptUsage]:
            return [use for beat in controller.heartbeats for use in beat.usage if use.attempt_uid == uid]

        await controller.until(lambda: any(use.cpu_millicores for use in said()))
        assert all(use.memory_peak_bytes >= use.memory_bytes > 0 for use in said()[-1:])
        machine = next(row for row in controller.stats.rows[WORKER.name] if row["status"] == "RUNNING")
        assert machine["running_task_count"] == 1 and machine["zone"] == "z1" and machine["device_type"] == "cpu"
        assert 0 <= machine["cpu_pct"] <= 100 and machine["mem_bytes"] < machine["mem_total_bytes"]
        assert machine["total_process_count"] > 1 and machine["address"].startswith("127.0.0.1:")
        assert machine["disk_used_bytes"] <= machine["disk_total_bytes"]
        controller.end(uid, grace_ms=1)
        end = await controller.ended(uid)
        rows = await readings(controller, TASK.name, lambda row: row.get("cpu_millicores", None) is None)
        assert rows[-1]["memory_peak_mb"] == -(-end.memory_peak_bytes // 1_000_000) >= 40


@pytest.mark.asyncio
async def test_a_short_task_does_not_get_its_workers_own_memory_as_its_peak(tmp_path: Path) -> None:
    # Whoever starts the worker may be larger than all of its tasks.
    parent = bytearray(400_000_000)
    parent[::4096] = b"x" * len(parent[::4096])
    async with running(tmp_path, "--no-cgroups") as (controller, _):
        del parent
        end = await controller.ended(controller.run(["true"]))
        assert end.memory_peak_bytes < 20_000_000
        big = "x = bytearray(300_000_000); x[::4096] = b'x' * len(x[::4096])"
        end = await controller.ended(controller.run([sys.executable, "-c", big]))
        assert 300_000_000 <= end.memory_peak_bytes < 500_000_000


@pytest.mark.asyncio
async def test_a_store_that_is_away_costs_no_attempt_anything_and_gets_the_newest_later(tmp_path: Path) -> None:
    async with running(tmp_path) as (controller, _):
        controller.stats.down = True
        controller.stats_interval_ms = 100
        controller.drop()
        await controller.attached(2)
        await controller.stats.until_pushes(2)
        end = await controller.ended(controller.run(["sh", "-c", "exit 3"]))
        assert end.exit_code == 3
        controller.stats.down = False
        await controller.stats.until_rows(WORKER.name, 2)
        times = [row["ts"] for row in controller.stats.rows[WORKER.name]]
        assert times == sorted(times) and not controller.stats.missing[WORKER.name]


def test_processor_time_and_disk_are_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"x" * 1_000_000)
    (tmp_path / "link").symlink_to("/usr")
    assert 1_000_000 <= (disk_bytes(tmp_path) or 0) < 1_100_000
    assert disk_bytes(tmp_path / "none") is None
    child = subprocess.Popen(
        [sys.executable, "-c", "print(sum(range(5_000_000)), flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        assert cpu_seconds(child.pid) > 0
        reader = Reader(tmp_path)
        one = Measured("u", (child.pid, 2**22 + 1), None, 5, 7, tmp_path)
        host, uses = reader.read([one])
        assert uses["u"].cpu_millicores == 0, "there was no reading before it"
        assert uses["u"].disk_bytes == disk_bytes(tmp_path) and (
            uses["u"].memory_bytes,
            uses["u"].memory_peak_bytes,
        ) == (5, 7)
        assert host.processes >= 2 and reader.read([])[1] == {}
    finally:
        child.communicate(b"\n")
    assert cpu_seconds(child.pid) == 0.0
