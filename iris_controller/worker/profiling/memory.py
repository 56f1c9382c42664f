"""What a process allocates: memray, attached to one process of the target for a while, and its capture made readable.

memray is brought into the running interpreter by gdb and imported there, so it must be in the target's own environment. That is
looked up beforehand, in files: where it is missing the answer says what to add and the target is not touched. Where a target has
several Python processes the largest is taken and the others are named.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iris_controller.worker.profiling import running, site, targets
from iris_controller.worker.profiling.failures import CannotProfile, exited, explain, too_late
from iris_core.wire.gen.iris.v1 import profiles_pb2

if TYPE_CHECKING:
    from iris_controller.worker.profiling.targets import Found, Process

SLACK_S: Final = 30.0
TRANSFORM_S: Final = 30.0
CAPTURE_BYTES: Final = 2**30
"""A capture of single allocations grows with them: at this size tracking ends early."""
_POLL_S: Final = 0.05

_TRANSFORM: Final = {
    profiles_pb2.PROFILE_FORMAT_HTML: "flamegraph",
    profiles_pb2.PROFILE_FORMAT_TABLE: "summary",
    profiles_pb2.PROFILE_FORMAT_STATS: "stats",
}
_WHOLE: Final = frozenset({profiles_pb2.PROFILE_FORMAT_STATS, profiles_pb2.PROFILE_FORMAT_RAW})
"""Formats that need every single allocation; for the others sums are enough, which stay small."""


async def take(found: Found, options: profiles_pb2.ProfileOptions, notes: list[str], limit: int) -> bytes:
    """The profile in the wanted format, at most `limit` bytes. Raises CannotProfile."""
    python = [one for one in (*found.chosen, *found.others) if found.children or one in found.chosen]
    target = found.chosen[0] if options.pid else max(python, key=lambda one: one.rss)
    if target.stopped:
        raise CannotProfile(
            f"{target} is stopped (state {target.state})",
            hint=f"let it go on first: kill -CONT {target.pid}",
            code="target_stopped",
        )
    _check_tools()
    where = await asyncio.to_thread(site.of, target.pid)
    if not targets.lives(target):
        raise exited(str(target))
    if not await asyncio.to_thread(where.has, "memray"):
        raise CannotProfile(
            f"memray is not installed in the environment of {target}" + (f", {where.prefix}" if where.prefix else ""),
            hint="add memray to the job's own dependencies and start it again (pip install memray, or uv add memray)",
            code="no_memray",
        )
    others = [one for one in python if one.pid != target.pid]
    if others:
        named = ", ".join(str(one.pid) for one in others[:10]) + (" and more" if len(others) > 10 else "")
        notes.append(f"of {len(python)} Python processes the largest, {target.pid}, was taken; --pid takes {named}")
    with running.scratch() as folder:
        capture = Path(folder) / "capture.bin"
        await _track(target, options, capture, notes)
        if options.format == profiles_pb2.PROFILE_FORMAT_RAW:
            result = capture
        else:
            result = await _transform(target, options, capture)
        size = result.stat().st_size
        if size > limit:
            raise running.TooLarge("memray", size, limit)
        return await asyncio.to_thread(result.read_bytes)


def _check_tools() -> None:
    host = os.uname().nodename
    if find_spec("memray") is None:
        raise CannotProfile(
            f"memray is not installed on {host}",
            hint=f"install it beside the worker: {sys.executable} -m pip install memray",
            code="no_profiler",
        )
    if shutil.which("gdb") is None and shutil.which("lldb") is None:
        raise CannotProfile(
            f"gdb is not installed on {host}, and memory profiles need it to get into a running process",
            hint="apt-get install gdb (or lldb) on that host",
            code="no_debugger",
        )


async def _track(target: Process, options: profiles_pb2.ProfileOptions, capture: Path, notes: list[str]) -> None:
    """Attaches, waits for the time to pass and for the capture to be whole. Raises CannotProfile."""
    seconds = options.duration_seconds
    argv = [sys.executable, "-m", "memray", "attach", "--output", str(capture), "--duration", str(seconds)]
    argv += ["--native"] if options.native else []
    argv += [] if options.format in _WHOLE else ["--aggregate"]
    attaching = asyncio.ensure_future(
        running.run([*argv, str(target.pid)], str(target), seconds + SLACK_S, running.SAID_BYTES)
    )
    try:
        ran = await asyncio.shield(attaching)
        if ran.code != 0:
            if not targets.lives(target):
                raise exited(str(target))
            raise explain("memray", str(target), ran.said + ran.out.decode("utf-8", "replace"))
        await _wait(target, capture, seconds, notes)
    except asyncio.CancelledError:
        # A debugger that is killed in the middle of a call leaves its target in it: it is let finish, then undone.
        with suppress(CannotProfile):
            if (await attaching).code == 0 and targets.lives(target):
                await _detach(target)
        raise


async def _wait(target: Process, capture: Path, seconds: int, notes: list[str]) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds + SLACK_S
    early = False
    while await asyncio.to_thread(_open_in, target.pid, capture):
        if loop.time() >= until:
            raise too_late("memray", str(target), seconds + SLACK_S)
        if not early and _size(capture) > CAPTURE_BYTES:
            early = True
            notes.append(f"tracking ended early: the capture had reached {CAPTURE_BYTES // 2**20} MiB")
            await _detach(target)
        await asyncio.sleep(_POLL_S)
    if not _size(capture):
        raise exited(str(target))
    if not targets.lives(target):
        notes.append(f"{target} ended before the time was over: the profile covers its last seconds")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _open_in(pid: int, capture: Path) -> bool:
    """Whether the target still writes the capture: it is whole once it is closed."""
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                try:
                    if os.readlink(entry.path) == str(capture):
                        return True
                except OSError:
                    continue
    except OSError:
        pass  # it is gone
    return False


async def _detach(target: Process) -> None:
    """Ends tracking now; where that fails it ends by itself when its time is over."""
    with suppress(CannotProfile):
        argv = [sys.executable, "-m", "memray", "detach", str(target.pid)]
        await running.run(argv, str(target), SLACK_S, running.SAID_BYTES)


async def _transform(target: Process, options: profiles_pb2.ProfileOptions, capture: Path) -> Path:
    shape = options.format
    result = capture.with_name("result")
    argv = [sys.executable, "-m", "memray", _TRANSFORM[shape]]
    if shape == profiles_pb2.PROFILE_FORMAT_HTML:
        argv += [*(["--leaks"] if options.leaks else []), "--force", "--output", str(result)]
    elif shape == profiles_pb2.PROFILE_FORMAT_STATS:
        argv += ["--json", "--force", "--output", str(result)]
    ran = await running.run([*argv, str(capture)], str(target), TRANSFORM_S, 16 * 2**20)
    if shape == profiles_pb2.PROFILE_FORMAT_TABLE and ran.code == 0:
        await asyncio.to_thread(result.write_bytes, ran.out)
    if ran.code != 0 or not result.exists():
        raise explain("memray", f"the capture of {target}", ran.said + ran.out.decode("utf-8", "replace"))
    return result
