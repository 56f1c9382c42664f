"""Runs one profiler as a child: what it says is caught in files, a watchdog kills it, and nothing it does waits on the loop.

A second watchdog, `timeout`, sits in front of it, so that a profiler whose worker dies does not hold its target for ever. Whoever
waits here may be cancelled at any moment: the profiler is then killed before the cancellation goes on.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import sysconfig
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iris_controller.worker.process import CannotStart, spawn
from iris_controller.worker.profiling.failures import CannotProfile, too_late

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from iris_controller.worker.process import Child

SAID_BYTES: Final = 64 * 1024
"""So much of what a tool prints for people is read."""
_OUTER_S: Final = 5.0
"""The outer watchdog leaves the inner one so much time."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A tool that ended by itself. `out` is its whole standard output, `said` the end of its standard error."""

    code: int
    out: bytes
    said: str


class TooLarge(CannotProfile):
    """The result is larger than is kept."""

    def __init__(self, tool: str, size: int, limit: int) -> None:
        super().__init__(
            f"the profile of {tool} has {size // 2**20} MiB, at most {limit // 2**20} are taken",
            hint="profile for a shorter time, or in another format",
            code="profile_too_large",
        )


def program(name: str, package: str) -> str:
    """The path of a tool that is installed beside this interpreter or on the PATH. Raises CannotProfile."""
    beside = Path(sysconfig.get_path("scripts")) / name
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which(name)
    if found is None:
        raise CannotProfile(
            f"{name} is not installed on {os.uname().nodename}",
            hint=f"install it beside the worker: {sys.executable} -m pip install {package}",
            code="no_profiler",
        )
    return found


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="iris-profile.", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


async def run(argv: Sequence[str], what: str, deadline_s: float, limit: int) -> Ran:
    """Runs a tool on `what` to its end. Raises CannotProfile: it cannot start, is too late, or prints more than `limit` bytes.

    Cancelled or too late, the tool and whatever it started are killed first.
    """
    tool = Path(argv[0]).name if argv[0] != sys.executable else argv[2]
    with scratch() as folder:
        out, err = folder / "out", folder / "err"
        child = _start(argv, tool, folder, out, err, deadline_s)
        try:
            await asyncio.wait({child.exited}, timeout=deadline_s)
            if not child.exited.done():
                raise too_late(tool, what, deadline_s)
        finally:
            if not child.exited.done():
                _kill(child)
                await asyncio.wait({child.exited}, timeout=_OUTER_S)
        size = out.stat().st_size
        if size > limit:
            raise TooLarge(tool, size, limit)
        code = child.exited.result().code
        if code == 128 + signal.SIGKILL:
            raise CannotProfile(
                f"{tool} was killed while it looked at {what}", hint="try again", code="profiler_killed"
            )
        return Ran(code, await asyncio.to_thread(out.read_bytes), _tail(err))


def _start(argv: Sequence[str], tool: str, folder: Path, out: Path, err: Path, deadline_s: float) -> Child:
    outer = shutil.which("timeout")
    words = [outer, "--signal=KILL", str(int(deadline_s + _OUTER_S)), *argv] if outer else list(argv)
    fds = [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600) for path in (out, err)]
    try:
        return spawn(words, env=_environment(folder), cwd=folder, stdout=fds[0], stderr=fds[1], cgroup=None)
    except CannotStart as error:
        raise CannotProfile(f"{tool} cannot be started: {error}", code="no_profiler") from None
    finally:
        for fd in fds:
            os.close(fd)


def _environment(folder: Path) -> dict[str, str]:
    """What a tool needs and no more: it must not take its settings, or any secret, from the worker's own environment."""
    kept = {
        name: os.environ[name] for name in ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH") if name in os.environ
    }
    return {**kept, "TMPDIR": str(folder), "RUST_BACKTRACE": "0", "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}


def _kill(child: Child) -> None:
    """Ends the tool with everything it started: they share its session's group."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # it has just ended


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - SAID_BYTES))
        return file.read().decode("utf-8", "replace")
