"""Measures this worker and its attempts every so often: rows of `iris.worker` and `iris.task`, and what the next heartbeat says of them.

An attempt is measured while it runs and once more at its end, when its peak is known for good, so that even one that was over
between two readings has a row. Must never hold up an attempt: what cannot be measured now is left out.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, Final

from iris_controller.worker.config import now_ms
from iris_controller.worker.readings import Measured, Reader, Use
from iris_core.model.constraints import TPU_NAME, ZONE
from iris_core.model.namespaces import TASK, WORKER
from iris_core.wire.gen.iris.v1 import worker_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_controller.stats.client import StatsClient
    from iris_controller.worker.attempt import Attempt
    from iris_controller.worker.config import WorkerConfig
    from iris_controller.worker.readings import Host

EVERY_S: Final = 15.0
_FIRST_S: Final = 1.0
"""An attempt is measured for the first time after this, so that its CPU can be told at the next reading."""
_MB: Final = 1_000_000


class Measuring:
    """See the module. `interval_s` and `address`, the `host:port` of this worker's /health, may be set at any time."""

    def __init__(self, config: WorkerConfig, stats: StatsClient) -> None:
        self.interval_s = EVERY_S
        self._config = config
        self._stats = stats
        self.address = ""
        self._reader = Reader(config.cache_dir)
        self._news: dict[str, worker_pb2.AttemptUsage] = {}

    async def run(self, attempts: dict[str, Attempt]) -> None:
        """Measures for ever what is among `attempts` at the time."""
        loop = asyncio.get_running_loop()
        known: set[str] = set()
        measured_at = float("-inf")
        while True:
            running = [attempt for attempt in attempts.values() if attempt.running]
            if loop.time() - measured_at >= self.interval_s:
                measured_at = loop.time()
                await self._measure(running)
            elif fresh := [attempt for attempt in running if attempt.uid not in known]:
                # A beginning of its CPU, and what it holds; its row comes with the others.
                await self._note(fresh)
            known = {attempt.uid for attempt in running}
            await asyncio.sleep(min(_FIRST_S, self.interval_s))

    async def _measure(self, running: list[Attempt]) -> None:
        host, uses = await asyncio.to_thread(self._reader.read, await _measured(running))
        at = now_ms()
        self._stats.write(WORKER, self._worker_row(host, len(running), at))
        for attempt in running:
            use = uses.get(attempt.uid)
            # The row of an end is the last one.
            if use is not None and not attempt.done:
                self._stats.write(TASK, task_row(attempt, self._config.worker_id, use, at))
                self._say(attempt, use)

    async def _note(self, running: list[Attempt]) -> None:
        uses = await asyncio.to_thread(self._reader.begin, await _measured(running))
        for attempt in running:
            use = uses.get(attempt.uid)
            if use is not None and not attempt.done:
                self._say(attempt, use)

    def _say(self, attempt: Attempt, use: Use) -> None:
        self._news[attempt.uid] = worker_pb2.AttemptUsage(
            attempt_uid=attempt.uid,
            memory_bytes=use.memory_bytes,
            memory_peak_bytes=use.memory_peak_bytes,
            cpu_millicores=use.cpu_millicores,
        )

    def news(self) -> list[worker_pb2.AttemptUsage]:
        """What was measured since the last call."""
        news, self._news = self._news, {}
        return list(news.values())

    def ended(self, attempt: Attempt) -> None:
        """An attempt is over: its last row holds its peak."""
        self._news.pop(attempt.uid, None)
        peak = attempt.observation.memory_peak_bytes
        if attempt.observation.started_at_ms and peak:
            row = task_row(attempt, self._config.worker_id, None, attempt.observation.finished_at_ms)
            self._stats.write(TASK, row | {"memory_peak_mb": megabytes(peak)})

    def _worker_row(self, host: Host, running: int, at: int) -> dict[str, Any]:
        config, device = self._config, self._config.device
        zone, tpu = config.attributes.get(ZONE), config.attributes.get(TPU_NAME)
        return {
            "worker_id": config.worker_id,
            "ts": at,
            "status": "RUNNING" if running else "IDLE",
            "address": self.address,
            "cpu_pct": host.cpu_pct,
            "mem_bytes": host.mem_bytes,
            "mem_total_bytes": host.mem_total_bytes,
            "disk_used_bytes": host.disk_used_bytes,
            "disk_total_bytes": host.disk_total_bytes,
            "running_task_count": running,
            "total_process_count": host.processes,
            "net_recv_bytes": host.net_recv_bytes,
            "net_sent_bytes": host.net_sent_bytes,
            "device_type": device.kind if device is not None else "cpu",
            "device_variant": (device.variant or None) if device is not None else None,
            "cpu_count": os.cpu_count() or 1,
            "memory_bytes": config.memory,
            "tpu_name": str(tpu) if tpu is not None else None,
            "zone": str(zone) if zone is not None else None,
            "gpu_count": device.count if device is not None and device.kind == "gpu" else None,
        }


async def _measured(attempts: Sequence[Attempt]) -> list[Measured]:
    pids = await asyncio.gather(*(attempt.processes.pids() for attempt in attempts))
    return [_one(attempt, tuple(found)) for attempt, found in zip(attempts, pids, strict=True)]


def _one(attempt: Attempt, pids: tuple[int, ...]) -> Measured:
    group = attempt.processes.cgroup
    return Measured(
        attempt.uid,
        pids,
        group.cpu_us() if group is not None else None,
        group.memory_now() if group is not None else attempt.processes.polled_now,
        attempt.memory_peak,
        attempt.folders.root,
    )


def task_row(attempt: Attempt, worker_id: str, use: Use | None, at: int) -> dict[str, Any]:
    """A row of `iris.task`; `use` None = nothing but whose it is."""
    task_id, _, number = attempt.key.rpartition(":")
    row: dict[str, Any] = {
        "task_id": task_id,
        "attempt_id": int(number),
        "worker_id": worker_id,
        "ts": at,
        "attempt_uid": attempt.uid,
        "incarnation": attempt.incarnation,
    }
    if use is not None:
        row |= {
            "cpu_millicores": use.cpu_millicores,
            "memory_mb": megabytes(use.memory_bytes),
            "disk_mb": megabytes(use.disk_bytes) if use.disk_bytes is not None else None,
            "memory_peak_mb": megabytes(use.memory_peak_bytes) if use.memory_peak_bytes else None,
        }
    return row


def megabytes(size: int) -> int:
    """In units of a million bytes, rounded up: what is there is never shown as nothing."""
    return -(-size // _MB)
