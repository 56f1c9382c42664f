"""Commands run beside an attempt's own, in its environment, work directory and group (`task exec`).

The answer comes when the command itself ends: what it wrote is in its pipes by then. A child that it left in the background goes on
with the attempt, and its pipes are read on and dropped, because closing them would kill it at its next line.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

from iris_controller.worker import procs
from iris_controller.worker.process import CannotStart, spawn
from iris_core.model.quantities import format_duration
from iris_core.wire.gen.iris.v1 import controller_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_controller.worker.attempt import Attempt
    from iris_controller.worker.process import Child

OUTPUT_BYTES = 4 * 1024 * 1024
_LINGER_S = 0.2
_GRACE_S = 1.0


class _Catch:
    """Reads one pipe to its end; keeps the first `OUTPUT_BYTES` and nothing any more after `cut`."""

    def __init__(self) -> None:
        self._fd, self.write_end = os.pipe()
        os.set_blocking(self._fd, False)
        self._kept = bytearray()
        self._keep = True
        self.truncated = False
        self.ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._read)

    def cut(self) -> bytes:
        """What arrived so far; the rest is dropped."""
        while self._keep and not self.ended.is_set() and self._read():
            pass
        self._keep = False
        return bytes(self._kept)

    def _read(self) -> bool:
        try:
            chunk = os.read(self._fd, 64 * 1024)
        except BlockingIOError:
            return False
        if not chunk:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self.ended.set()
            return False
        if self._keep:
            room = OUTPUT_BYTES - len(self._kept)
            self._kept += chunk[:room]
            self.truncated |= len(chunk) > room
        return not self.truncated


async def run(attempt: Attempt, command: Sequence[str], timeout_ms: int) -> controller_pb2.ExecInContainerResponse:
    """Runs `command`; `timeout_ms` 0 = none. A command that cannot start answers with the shell's code and the reason."""
    if not command:
        return controller_pb2.ExecInContainerResponse(exit_code=127, error="the command is empty")
    out, err = _Catch(), _Catch()
    try:
        child = spawn(
            list(command),
            env=attempt.env,
            cwd=attempt.folders.workdir,
            stdout=out.write_end,
            stderr=err.write_end,
            cgroup=attempt.processes.cgroup,
        )
    except CannotStart as error:
        return controller_pb2.ExecInContainerResponse(exit_code=error.exit_code or 126, error=str(error))
    finally:
        os.close(out.write_end)
        os.close(err.write_end)
    problem = ""
    await asyncio.wait({child.exited}, timeout=timeout_ms / 1000 if timeout_ms > 0 else None)
    if not child.exited.done():
        problem = f"ended after {format_duration(timeout_ms)}: the timeout of exec"
        await _end(child)
    ended = await child.exited
    try:
        async with asyncio.timeout(_LINGER_S):
            await out.ended.wait()
            await err.ended.wait()
    except TimeoutError:
        pass  # a background child has them
    return controller_pb2.ExecInContainerResponse(
        exit_code=ended.code,
        stdout=out.cut(),
        stderr=err.cut(),
        error=problem,
        truncated=out.truncated or err.truncated,
    )


async def _end(child: Child) -> None:
    """Ends the command and what shares its session."""
    for number, patience in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, None)):
        table = await asyncio.to_thread(procs.snapshot)
        for proc in table:
            if proc.session == child.pid and not child.exited.done():
                procs.send((proc.pid, proc.start), number)
        await asyncio.wait({child.exited}, timeout=patience)
        if child.exited.done():
            return
