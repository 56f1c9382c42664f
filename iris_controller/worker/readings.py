"""One reading of this host and of what attempts use, taken in a thread: plain numbers from /proc, the groups and the disk.

CPU is what was used between two readings, so the first of anything is zero. Where a number cannot be had it is None, never a guess.
Must never run on the loop, and never take longer over the disk than a twentieth of the time.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
DISK_EVERY_S = 60.0
DISK_SHARE = 20
"""A folder that takes long to walk is walked again after so many times as long."""


class Host(NamedTuple):
    """This machine. Sizes in bytes, network counters since it was started."""

    cpu_pct: float
    mem_bytes: int
    mem_total_bytes: int
    disk_used_bytes: int | None
    disk_total_bytes: int | None
    processes: int
    net_recv_bytes: int | None
    net_sent_bytes: int | None


@dataclass(frozen=True, slots=True)
class Use:
    """What an attempt uses. Sizes in bytes; `disk_bytes` of its folder."""

    cpu_millicores: int
    memory_bytes: int
    memory_peak_bytes: int
    disk_bytes: int | None


@dataclass(frozen=True, slots=True)
class Measured:
    """What is to be measured: an attempt's processes, and what is known of its memory already.

    `cpu_us` is the processor time its group counted, None where no group counts it.
    """

    uid: str
    pids: tuple[int, ...]
    cpu_us: int | None
    memory_bytes: int
    memory_peak_bytes: int
    folder: Path


class Reader:
    """Keeps what a reading needs of the one before it."""

    def __init__(self, cache_dir: Path) -> None:
        self._cache_dir = cache_dir
        self._host_cpu: tuple[float, float] | None = None
        self._cpu: dict[str, tuple[float, float]] = {}
        """Of each attempt: processor seconds so far, and when that was."""
        self._disk: dict[str, tuple[int | None, float]] = {}
        """Of each attempt: bytes, and when to look again."""

    def read(self, attempts: Iterable[Measured]) -> tuple[Host, dict[str, Use]]:
        """Blocks."""
        wanted = list(attempts)
        uses = {one.uid: self._use(one) for one in wanted}
        self._cpu = {uid: known for uid, known in self._cpu.items() if uid in uses}
        self._disk = {uid: known for uid, known in self._disk.items() if uid in uses}
        return self._host(), uses

    def begin(self, attempts: Iterable[Measured]) -> dict[str, Use]:
        """What attempts hold that have just begun, so that the next reading can say what they used. Blocks."""
        return {one.uid: self._use(one, disk=False) for one in attempts}

    def _host(self) -> Host:
        times = psutil.cpu_times()
        total = float(sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0))
        busy = total - float(times.idle) - float(getattr(times, "iowait", 0.0))
        before, self._host_cpu = self._host_cpu, (busy, total)
        spent = total - before[1] if before is not None else 0.0
        percent = 100.0 * (busy - before[0]) / spent if before is not None and spent > 0 else 0.0
        memory = psutil.virtual_memory()
        used: int | None
        size: int | None
        try:
            disk = os.statvfs(self._cache_dir)
            used, size = (disk.f_blocks - disk.f_bfree) * disk.f_frsize, disk.f_blocks * disk.f_frsize
        except OSError:
            used, size = None, None
        net: Any = psutil.net_io_counters()  # None where there is no network
        return Host(
            cpu_pct=min(max(round(percent, 2), 0.0), 100.0),
            mem_bytes=int(memory.used),
            mem_total_bytes=int(memory.total),
            disk_used_bytes=used,
            disk_total_bytes=size,
            processes=sum(name.isdigit() for name in os.listdir("/proc")),
            net_recv_bytes=int(net.bytes_recv) if net is not None else None,
            net_sent_bytes=int(net.bytes_sent) if net is not None else None,
        )

    def _use(self, one: Measured, *, disk: bool = True) -> Use:
        seconds = one.cpu_us / 1e6 if one.cpu_us is not None else sum(map(cpu_seconds, one.pids))
        now = time.monotonic()
        before, at = self._cpu.get(one.uid, (seconds, now))
        self._cpu[one.uid] = (seconds, now)
        # The time of a process that nobody waited for goes with it: then the sum falls.
        millicores = int(max(0.0, seconds - before) * 1000 / (now - at)) if now > at else 0
        size = self._disk_of(one.uid, one.folder) if disk else None
        return Use(millicores, one.memory_bytes, one.memory_peak_bytes, size)

    def _disk_of(self, uid: str, folder: Path) -> int | None:
        size, again = self._disk.get(uid, (None, 0.0))
        now = time.monotonic()
        if now < again:
            return size
        size = disk_bytes(folder)
        took = time.monotonic() - now
        self._disk[uid] = (size, now + max(DISK_EVERY_S, DISK_SHARE * took))
        return size


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and of the children it has waited for; 0 for one that is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            text = file.read(1024)
        return sum(map(int, text[text.rfind(b")") + 2 :].split()[11:15])) / _TICKS
    except (OSError, ValueError):
        return 0.0


def disk_bytes(folder: Path) -> int | None:
    """What the files below a folder take on disk; links are not followed, other file systems not entered. None = it is not there."""
    total = 0
    try:
        device = os.lstat(folder).st_dev
    except OSError:
        return None
    todo = [str(folder)]
    while todo:
        try:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    total += found.st_blocks * 512
                    if entry.is_dir(follow_symlinks=False) and found.st_dev == device:
                        todo.append(entry.path)
        except OSError:
            continue  # it went meanwhile, or is not ours to read
    return total
