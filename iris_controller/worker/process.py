"""One process of an attempt, and the set of all of them.

A child is a session of its own, started by Popen and watched through a pidfd in the loop: no thread, no process in between and no
code of ours between fork and exec. The set is the control group where there is one, otherwise what the process table says; ending
an attempt means acting on the set until it is empty, never on the main process alone.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
import subprocess
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from iris_controller.worker import cgroups, procs
from iris_controller.worker.config import reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from iris_controller.worker.cgroups import Cgroup
    from iris_controller.worker.table import ProcessTable

NOT_FOUND = 127
NOT_EXECUTABLE = 126


class CannotStart(Exception):
    """The command can not be started: `exit_code` as a shell would give it, or None where the machine is at fault."""

    def __init__(self, message: str, exit_code: int | None) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: `code` is 128+N after signal N; `max_rss` in bytes, of it and the children it waited for, 0 = unknown."""

    code: int
    signalled: bool
    max_rss: int


class Child:
    """A started process. `exited` is done once it has ended and was reaped."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self.pid = popen.pid
        self.start = procs.start_of(popen.pid)
        self._popen = popen
        self._loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[Exit] = self._loop.create_future()
        # Between fork and exec a child is its parent to the kernel's count: what does not exceed that says nothing.
        self._ours = _own_peak_kib()
        self._pidfd = os.pidfd_open(popen.pid)
        self._loop.add_reader(self._pidfd, self._ended)

    def _ended(self) -> None:
        pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        if pid == 0:
            return
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        code = os.waitstatus_to_exitcode(status)
        self._popen.returncode = code
        if not self.exited.done():
            peak = usage.ru_maxrss if usage.ru_maxrss > self._ours else 0
            self.exited.set_result(Exit(code if code >= 0 else 128 - code, code < 0, peak * 1024))


def _own_peak_kib() -> int:
    """The most memory this program held since it is this program; what its own parent held does not pass on to a child."""
    try:
        with open("/proc/self/status", "rb") as file:
            for line in file:
                if line.startswith(b"VmHWM:"):
                    return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@cache
def _devnull() -> int:
    return os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)


def resolve(argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> str:
    """The file that `argv[0]` names, found as a shell in `cwd` would. Raises CannotStart: none, or not executable."""
    name = argv[0]
    if not name:
        raise CannotStart("the command is empty", NOT_FOUND)
    if "/" in name:
        candidates = [os.path.join(cwd, name)]
    else:
        folders = env.get("PATH", os.defpath).split(":")
        candidates = [
            f"{folder}/{name}" if folder[:1] == "/" else f"{cwd}/{folder or '.'}/{name}" for folder in folders
        ]
    seen = ""
    for path in candidates:
        try:
            if os.access(path, os.X_OK) and os.path.isfile(path):
                return path
            if os.path.isfile(path):
                seen = seen or path
            elif "/" in name and os.path.isdir(path):
                raise CannotStart(f"cannot run {_shown(name)}: it is a directory", NOT_EXECUTABLE)
        except ValueError:
            raise CannotStart(f"cannot run {_shown(name)}: it contains a NUL", NOT_FOUND) from None
    if seen:
        raise CannotStart(f"cannot run {_shown(name)}: permission denied (not executable)", NOT_EXECUTABLE)
    where = "" if "/" in name else " on the worker's PATH"
    raise CannotStart(f"command not found: {_shown(name)}{where}", NOT_FOUND)


def spawn(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, stdout: int, stderr: int, cgroup: Cgroup | None
) -> Child:
    """Starts `argv` in a session of its own, inside the group. Raises CannotStart."""
    path = resolve(argv, env, cwd)
    words = list(argv)
    if words[0].startswith("-"):
        words[0] = path
    try:
        popen = subprocess.Popen(
            words if cgroup is None else cgroups.entering(cgroup.procs_file, words),
            stdin=_devnull(),
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
    except OSError as error:
        if error.errno == errno.ENOENT and not os.path.isdir(cwd):
            raise CannotStart(f"cannot run {_shown(words[0])}: its work directory is gone", NOT_EXECUTABLE) from None
        raise _cannot(error, words[0]) from None
    except ValueError as error:
        # A NUL in an argument or variable, or a variable whose name has an equals sign.
        raise CannotStart(f"cannot run {_shown(words[0])}: {error}", NOT_FOUND) from None
    return Child(popen)


def _cannot(error: OSError, name: str) -> CannotStart:
    told = reason(error)
    match error.errno:
        case errno.ENOENT:
            return CannotStart(f"cannot run {_shown(name)}: its interpreter or library loader is not there", NOT_FOUND)
        case errno.EACCES | errno.ENOEXEC | errno.E2BIG | errno.ELOOP | errno.ENAMETOOLONG:
            return CannotStart(f"cannot run {_shown(name)}: {told}", NOT_EXECUTABLE)
    return CannotStart(f"cannot start a process: {told}", None)


def _shown(name: str) -> str:
    return repr(name if len(name) <= 200 else name[:200] + "…")


class ProcessSet:
    """Every living process of one attempt."""

    def __init__(self, uid: str, cgroup: Cgroup | None, table: ProcessTable) -> None:
        self.uid = uid
        self.cgroup = cgroup
        self._table = table
        self._known: frozenset[tuple[int, int]] = frozenset()
        self._main: tuple[int, int] = (0, 0)
        self.polled_now = 0
        self.polled_peak = 0

    @property
    def enforcement(self) -> str:
        """`cgroup` or `polled`."""
        return "cgroup" if self.cgroup is not None else "polled"

    def lead(self, child: Child) -> None:
        """`child` is the main process from now on."""
        self._main = (child.pid, child.start)
        self._known |= {self._main}

    @property
    def _wanted(self) -> procs.Wanted:
        return procs.Wanted(self.uid, *self._main, watched=True, known=self._known)

    async def pids(self) -> list[int]:
        """The ids of the living members."""
        if self.cgroup is not None:
            return self.cgroup.pids()
        return [proc.pid for proc in await self._members()]

    async def signal(self, number: signal.Signals) -> bool:
        """Signals every member. Returns whether there was any."""
        if self.cgroup is not None:
            found = bool(self.cgroup.pids())
            if found:
                self.cgroup.signal(number)
            return found
        members = await self._members()
        for proc in members:
            procs.send((proc.pid, proc.start), number)
        return bool(members)

    async def empty(self) -> bool:
        """No member is left."""
        return not await self.pids()

    async def _members(self) -> set[procs.Proc]:
        found = await self._table.members(self._wanted)
        self._known = frozenset((proc.pid, proc.start) for proc in found)
        self.polled_now = sum(proc.rss for proc in found)
        self.polled_peak = max(self.polled_peak, self.polled_now)
        return found
