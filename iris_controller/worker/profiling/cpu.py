"""Where the time goes: `py-spy record` over every root process of a target, its children included.

Several roots are sampled side by side and become one result. The result is what py-spy wrote, but for raw stacks, which have a line
each here, whatever command lines they name, and for a flame graph of several roots, which is drawn here from their stacks.
"""

from __future__ import annotations

import asyncio
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iris_controller.worker.profiling import running, targets
from iris_controller.worker.profiling.failures import CannotProfile, exited, explain
from iris_core.analysis import flame, speedscope, stacks
from iris_core.wire.gen.iris.v1 import profiles_pb2

if TYPE_CHECKING:
    from iris_controller.worker.profiling.targets import Found, Process

SLACK_S: Final = 30.0
"""Beyond the duration: loading the symbols of a large program takes its time."""
MOST: Final = 16
"""Root processes that are sampled at once; more are named."""

_PY_SPY: Final = {
    profiles_pb2.PROFILE_FORMAT_SPEEDSCOPE: "speedscope",
    profiles_pb2.PROFILE_FORMAT_FLAMEGRAPH: "flamegraph",
    profiles_pb2.PROFILE_FORMAT_RAW: "raw",
}
_SAMPLES: Final = re.compile(r"Samples: (\d+) Errors: (\d+)")


def native_by_default() -> bool:
    """On arm64 the unwinder crashes now and then, and takes the profile with it."""
    return platform.machine() in {"x86_64", "AMD64"}


async def take(found: Found, options: profiles_pb2.ProfileOptions, notes: list[str], limit: int) -> bytes:
    """The profile in the wanted format, at most `limit` bytes. Raises CannotProfile."""
    tool = running.program("py-spy", "py-spy")
    chosen = found.chosen
    if len(chosen) > MOST:
        notes.append(f"{len(chosen) - MOST} of {len(chosen)} Python processes are left out; choose one with --pid")
        chosen = chosen[:MOST]
    shape = options.format
    drawn_here = shape == profiles_pb2.PROFILE_FORMAT_FLAMEGRAPH and len(chosen) > 1
    asked = "raw" if drawn_here else _PY_SPY[shape]

    async def one(process: Process) -> bytes | CannotProfile:
        try:
            return await _record(tool, process, options, asked, found.children, notes, limit)
        except CannotProfile as error:
            return error

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(process), name=f"record {process.pid}") for process in chosen]
    results = [task.result() for task in tasks]
    profiles = [result for result in results if isinstance(result, bytes)]
    failures = [result for result in results if isinstance(result, CannotProfile)]
    if not profiles:
        raise failures[0]
    notes.extend(failure.message for failure in failures)
    if len(profiles) == 1 and not drawn_here:
        return profiles[0]
    if shape == profiles_pb2.PROFILE_FORMAT_SPEEDSCOPE:
        return await asyncio.to_thread(speedscope.join, profiles)
    folded = b"".join(profiles)
    if not drawn_here:
        return folded
    merged = await asyncio.to_thread(stacks.from_folded, folded.decode("utf-8", "replace"))
    return (await asyncio.to_thread(flame.svg, merged, "samples")).encode()


async def _record(
    tool: str,
    process: Process,
    options: profiles_pb2.ProfileOptions,
    shape: str,
    children: bool,
    notes: list[str],
    limit: int,
) -> bytes:
    with running.scratch() as folder:
        result = Path(folder) / "profile"
        argv = [
            tool, "record", "--pid", str(process.pid), "--duration", str(options.duration_seconds),
            "--rate", str(options.rate_hz), "--format", shape, "--output", str(result),
        ]  # fmt: skip
        argv += ["--subprocesses"] if children else []
        argv += ["--native"] if options.native else []
        ran = await running.run(argv, str(process), options.duration_seconds + SLACK_S, running.SAID_BYTES)
        if ran.code != 0 or not result.exists():
            if not targets.lives(process):
                raise exited(str(process))
            raise explain("py-spy", str(process), ran.said)
        size = result.stat().st_size
        if size > limit:
            raise running.TooLarge("py-spy", size, limit)
        _note(process, ran.said + ran.out.decode("utf-8", "replace"), notes)
        data = await asyncio.to_thread(result.read_bytes)
        return await asyncio.to_thread(_with_a_line_each, data) if shape == "raw" else data


def _with_a_line_each(data: bytes) -> bytes:
    return stacks.on_one_line(data.decode("utf-8", "replace")).encode()


def _note(process: Process, said: str, notes: list[str]) -> None:
    """What a reader of the profile has to know."""
    if "process exited" in said:
        notes.append(f"{process} ended before the time was over: the profile covers its last seconds")
    counted = _SAMPLES.search(said)
    if counted is None:
        return
    samples, errors = int(counted[1]), int(counted[2])
    if samples == 0 and errors == 0:
        notes.append(f"{process} used no CPU meanwhile: the profile is empty (see profile threads)")
    if errors:
        notes.append(f"{process}: {errors} of {samples + errors} samples could not be read")
