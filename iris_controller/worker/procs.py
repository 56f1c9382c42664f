"""The process table, read from /proc, and who belongs to an attempt where no control group says it.

A process id alone never identifies anything: the kernel hands the number out again within seconds on a busy host. Everything
here therefore pairs the id with the start time, and membership comes from a marker in the environment, from descent, or from
the session of a leader that is still the recorded one. Must never signal a process whose start time it has not just compared.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

MARKER = "IRIS_ATTEMPT_UID"


class Proc(NamedTuple):
    """One process: `start` is in clock ticks since boot, `rss` in bytes."""

    pid: int
    ppid: int
    session: int
    start: int
    state: str
    rss: int

    @property
    def dead(self) -> bool:
        """It has ended and only waits to be reaped."""
        return self.state in "ZXx"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an attempt is recognised by. `pid` and `start` are of its main process, 0 while unknown."""

    uid: str
    pid: int = 0
    start: int = 0
    watched: bool = False
    """The main process was watched until now: its session's number can not have come to mean another one yet."""
    known: frozenset[tuple[int, int]] = frozenset()
    """Members (pid, start) seen earlier: they stay members when they drop their environment and their parent dies."""


@cache
def machine_boot() -> str:
    """The kernel's id of this boot: records of another boot name no living process."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


_PAGE = os.sysconf("SC_PAGE_SIZE")


def read(pid: int) -> Proc | None:
    """The process with this id, or None."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            text = file.read(1024)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    fields = text[text.rfind(b")") + 2 :].split()
    try:
        state = fields[0].decode("ascii")
        return Proc(pid, int(fields[1]), int(fields[3]), int(fields[19]), state, int(fields[21]) * _PAGE)
    except (IndexError, ValueError):
        return None


def start_of(pid: int) -> int:
    """The start time of a process that is there, 0 otherwise."""
    found = read(pid)
    return found.start if found else 0


def same(pid: int, start: int) -> bool:
    """Whether this very process lives."""
    found = read(pid)
    return found is not None and found.start == start and not found.dead


def snapshot() -> list[Proc]:
    """Every process of this host."""
    found = (read(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [proc for proc in found if proc is not None]


def members(table: list[Proc], wanted: Iterable[Wanted]) -> dict[str, set[Proc]]:
    """The living processes of each attempt: marked, in the main process's session, seen before, or descended from one.

    The calling process is never among them.
    """
    by_uid = {want.uid: want for want in wanted}
    result: dict[str, set[Proc]] = {uid: set() for uid in by_uid}
    if not by_uid:
        return result
    by_pid = {proc.pid: proc for proc in table}
    children: dict[int, list[Proc]] = {}
    for proc in table:
        children.setdefault(proc.ppid, []).append(proc)
    roots: dict[str, list[Proc]] = {uid: [] for uid in by_uid}
    leaders: dict[int, str] = {}
    for want in by_uid.values():
        leader = by_pid.get(want.pid)
        if leader is not None and want.start and leader.start == want.start:
            leaders[want.pid] = want.uid
            roots[want.uid].append(leader)
        elif leader is None and want.start and want.watched:
            leaders[want.pid] = want.uid
        for pid, start in want.known:
            seen = by_pid.get(pid)
            if seen is not None and seen.start == start:
                roots[want.uid].append(seen)
    for proc in table:
        uid = leaders.get(proc.session) or _marked(proc.pid)
        if uid in by_uid:
            roots[uid].append(proc)
    me = os.getpid()
    for uid, todo in roots.items():
        seen_pids: set[int] = set()
        while todo:
            proc = todo.pop()
            if proc.pid in seen_pids or proc.pid == me:
                continue
            seen_pids.add(proc.pid)
            todo.extend(children.get(proc.pid, ()))
            if not proc.dead:
                result[uid].add(proc)
    return result


_MARK = MARKER.encode() + b"="


def _marked(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            text = b"\0" + (file.read() or b"")
    except OSError:
        return ""
    at = text.find(b"\0" + _MARK)
    if at < 0:
        return ""
    begin = at + 1 + len(_MARK)
    end = text.find(b"\0", begin)
    return text[begin : end if end >= 0 else len(text)].decode("ascii", "replace")


def send(proc: tuple[int, int], number: signal.Signals) -> bool:
    """Signals the process (pid, start) if it is still that one. Returns whether it was."""
    pid, start = proc
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # The handle is taken first: from here on the number can not come to mean another process.
        if start_of(pid) != start:
            return False
        signal.pidfd_send_signal(handle, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(handle)
    return True
