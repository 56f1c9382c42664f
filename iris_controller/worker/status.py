"""What the worker and its attempts use right now, for `process status` and the heartbeat."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psutil

from iris_controller.worker.config import hostname
from iris_core.wire.gen.iris.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from iris_controller.worker.attempt import Attempt


class Meter:
    """CPU since the last reading, per attempt: its uid, since its key may be that of another one later."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}

    def millicores(self, uid: str, cpu_seconds: float, since: float) -> int:
        """`cpu_seconds` used so far by what started at `since` (epoch s); the first reading is the average since then."""
        now = time.time()
        used, at = self._last.get(uid, (0.0, since))
        self._last[uid] = (cpu_seconds, now)
        return max(0, int((cpu_seconds - used) * 1000 / max(now - at, 0.001)))

    def forget_others(self, uids: Collection[str]) -> None:
        """Drops every reading but those of `uids`."""
        self._last = {uid: value for uid, value in self._last.items() if uid in uids}


def host_usage() -> tuple[int, int]:
    """Memory in use on this host in bytes, and CPU in millicores since the last call."""
    used = psutil.virtual_memory().used
    return int(used), int(psutil.cpu_percent(None) * 10 * (psutil.cpu_count() or 1))


def of_processes(target: str, uid: str, pids: Iterable[int], meter: Meter) -> common_pb2.ProcessInfo:
    """The sum over the processes that are there; the oldest one is the one named."""
    info = common_pb2.ProcessInfo(
        target=target,
        hostname=hostname(),
        memory_total_bytes=int(psutil.virtual_memory().total),
        cpu_count=psutil.cpu_count() or 1,
    )
    cpu = 0.0
    oldest = time.time()
    count = 0
    for pid in pids:
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                memory, times, created = process.memory_info(), process.cpu_times(), process.create_time()
                info.threads += process.num_threads()
                info.open_fds += process.num_fds()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        count += 1
        info.memory_rss_bytes += memory.rss
        info.memory_vms_bytes += memory.vms
        cpu += times.user + times.system + times.children_user + times.children_system
        if created <= oldest:
            oldest, info.pid = created, pid
    info.uptime_ms = int((time.time() - oldest) * 1000)
    info.cpu_millicores = meter.millicores(uid, cpu, oldest)
    info.details["processes"] = str(count)
    return info


async def of_attempt(attempt: Attempt, meter: Meter) -> common_pb2.ProcessInfo:
    """All processes of an attempt."""
    info = of_processes(attempt.key, attempt.uid, await attempt.processes.pids(), meter)
    if attempt.observation.pid:
        info.pid = attempt.observation.pid
    info.details["enforcement"] = attempt.processes.enforcement
    info.details["attempt_uid"] = attempt.uid
    if attempt.memory_limit:
        info.details["memory_limit_bytes"] = str(attempt.memory_limit)
    info.details["memory_peak_bytes"] = str(attempt.memory_peak)
    return info
