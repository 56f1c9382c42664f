"""Where every thread of every Python process of a target is right now: `py-spy dump`.

Each process is asked by itself, because py-spy gives up on a whole family when one member of it is no Python process (its issue
846): a child that cannot be read becomes a note, never the end of the dump.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from iris_controller.worker.profiling import running, targets
from iris_controller.worker.profiling.failures import CannotProfile, exited, explain

if TYPE_CHECKING:
    from iris_controller.worker.profiling.targets import Found, Process
    from iris_core.wire.gen.iris.v1 import profiles_pb2

DEADLINE_S: Final = 30.0
AT_ONCE: Final = 4
MOST: Final = 64
"""Processes that are asked; more are named."""
DUMP_BYTES: Final = 8 * 2**20


async def take(found: Found, options: profiles_pb2.ProfileOptions, notes: list[str]) -> bytes:
    """The dump as text. Raises CannotProfile when no process could be read."""
    tool = running.program("py-spy", "py-spy")
    asked = (*found.chosen, *found.others) if found.children and not options.pid else found.chosen
    if len(asked) > MOST:
        notes.append(f"{len(asked) - MOST} of {len(asked)} Python processes are left out; choose one with --pid")
        asked = asked[:MOST]
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(process: Process) -> bytes | CannotProfile:
        async with gate:
            try:
                return await _dump(tool, process, options)
            except CannotProfile as error:
                return error

    # A group, so that nothing of it runs on when the caller is cancelled.
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(process), name=f"dump {process.pid}") for process in asked]
    results = [task.result() for task in tasks]
    dumps = [result for result in results if isinstance(result, bytes)]
    failures = [result for result in results if isinstance(result, CannotProfile)]
    if not dumps:
        raise failures[0]
    notes.extend(failure.message for failure in failures)
    return b"\n".join(dumps)


async def _dump(tool: str, process: Process, options: profiles_pb2.ProfileOptions) -> bytes:
    if process.stopped:
        raise CannotProfile(f"{process} is stopped (state {process.state}): it is left out", code="target_stopped")
    argv = [tool, "dump", "--pid", str(process.pid)]
    argv += ["--locals"] if options.locals else []
    argv += ["--native"] if options.native else []
    ran = await running.run(argv, str(process), DEADLINE_S, DUMP_BYTES)
    if ran.code != 0 and b"Thread " not in ran.out:
        if not targets.lives(process):
            raise exited(str(process))
        raise explain("py-spy", str(process), ran.said)
    return ran.out
