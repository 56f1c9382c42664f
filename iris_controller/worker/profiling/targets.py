"""Which processes of a target are looked into, and whether they can be: read from /proc, nothing is touched.

A target is a set of processes: those of an attempt, or one process of ours. The tools follow children by themselves, so what
they are pointed at is every Python process that no other Python process of the set started. A stopped one is refused, because a
profiler would wait for it or, worse, let it go on.
"""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iris_controller.worker import procs
from iris_controller.worker.profiling.failures import CannotProfile, not_python

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_PYTHON: Final = re.compile(r"(?:python|pypy)\d*(?:\.\d+)*t?d?(?: \(deleted\))?")
_COMMAND: Final = 80


@dataclass(frozen=True, slots=True)
class Process:
    """One living process of a target. `start` tells it from a later one with its number; `rss` in bytes."""

    pid: int
    start: int
    ppid: int
    state: str
    rss: int
    python: bool
    command: str

    @property
    def stopped(self) -> bool:
        """By a signal or a debugger."""
        return self.state in "Tt"

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command})" if self.command else f"process {self.pid}"


@dataclass(frozen=True, slots=True)
class Found:
    """The whole set, and the ones that a profiler is pointed at."""

    every: tuple[Process, ...]
    chosen: tuple[Process, ...]
    children: bool
    """Whether their children belong to the target."""

    @property
    def others(self) -> tuple[Process, ...]:
        """The Python processes that are not among the chosen."""
        return tuple(one for one in self.every if one.python and one not in self.chosen)


def find(name: str, pids: Iterable[int], pid: int = 0, *, children: bool = True) -> Found:
    """The processes of the target called `name`. `pid` picks one of them. Raises CannotProfile."""
    every = tuple(found for found in (_read(one) for one in sorted(set(pids))) if found is not None)
    if not every:
        raise CannotProfile(f"{name} has no running process", hint="it may just have ended", code="target_exited")
    if pid:
        chosen = tuple(one for one in every if one.pid == pid)
        if not chosen:
            known = ", ".join(str(one.pid) for one in every[:20])
            raise CannotProfile(
                f"process {pid} is not one of {name}", hint=f"its processes are {known}", code="no_process"
            )
        if not chosen[0].python:
            raise not_python(str(chosen[0]))
    else:
        chosen = roots(every)
        if not chosen:
            what = ", ".join(str(one) for one in every[:3]) + (f" and {len(every) - 3} more" if len(every) > 3 else "")
            raise CannotProfile(
                f"{name} has no Python process, only {what}",
                hint="only Python processes can be profiled",
                code="not_python",
            )
    for one in chosen:
        if one.stopped:
            raise CannotProfile(
                f"{one} of {name} is stopped (state {one.state})",
                hint=f"let it go on first: kill -CONT {one.pid}",
                code="target_stopped",
            )
    return Found(every, chosen, children)


def roots(every: Sequence[Process]) -> tuple[Process, ...]:
    """The Python processes that have no Python process of the set above them."""
    by_pid = {one.pid: one for one in every}

    def below_python(one: Process) -> bool:
        seen = {one.pid}
        above = by_pid.get(one.ppid)
        while above is not None and above.pid not in seen:
            if above.python:
                return True
            seen.add(above.pid)
            above = by_pid.get(above.ppid)
        return False

    return tuple(one for one in every if one.python and not below_python(one))


def release(before: Iterable[Process]) -> list[int]:
    """Lets those go on that were not stopped before a profiler was killed and are now. Returns their numbers."""
    freed = []
    for one in before:
        now = procs.read(one.pid)
        stopped_since = now is not None and now.start == one.start and now.state == "T" and not one.stopped
        if stopped_since and procs.send((one.pid, one.start), signal.SIGCONT):
            freed.append(one.pid)
    return freed


def lives(one: Process) -> bool:
    """Whether this very process is still there."""
    return procs.same(one.pid, one.start)


def _read(pid: int) -> Process | None:
    found = procs.read(pid)
    if found is None or found.dead:
        return None
    return Process(pid, found.start, found.ppid, found.state, found.rss, is_python(pid), command(pid))


def is_python(pid: int) -> bool:
    """Whether a Python interpreter runs in that process, by its executable or a library it has loaded."""
    try:
        if _PYTHON.fullmatch(os.path.basename(os.readlink(f"/proc/{pid}/exe"))):
            return True
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
            return any("/libpython" in line for line in file)
    except OSError:
        return False


def words(pid: int) -> list[str]:
    """The command line of a process, empty when it is gone."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [word.decode("utf-8", "replace") for word in raw.rstrip(b"\0").split(b"\0")] if raw else []


def command(pid: int) -> str:
    """The command line, short enough for a message."""
    text = " ".join(" ".join(words(pid)).split())
    return text if len(text) <= _COMMAND else text[: _COMMAND - 1] + "…"
