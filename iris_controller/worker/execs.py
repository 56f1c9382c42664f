"""Commands run beside an attempt's own, in its environment, work directory and group (`task exec`).

The answer comes when the command itself ends: what it wrote is in its pipes by then. A child that it left in the background goes on
with the attempt, and its pipes are read on and dropped, because closing them would kill it at its next line. A command whose time is over,
or for whose answer nobody waits any more, is ended with everything in its session.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from typing import TYPE_CHECKING

from iris_controller.worker import procs
from iris_controller.worker.process import CannotStart, spawn
from iris_core.model.quantities import format_duration
from iris_core.wire.gen.iris.v1.controller_pb2 import ExecInContainerResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_controller.worker.attempt import Attempt
    from iris_controller.worker.process import Child

OUTPUT_BYTES = 4 * 1024 * 1024
_LINGER_S = 0.2
_GRACE_S = 1.0
_LOOKS = 20


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


class Execs:
    """The commands that run beside the attempts of one worker."""

    def __init__(self) -> None:
        self._under_way: Counter[str] = Counter()
        self._ending: set[asyncio.Task[None]] = set()

    def count(self, uid: str) -> int:
        """How many run beside that attempt; one that is being ended counts until it is gone."""
        return self._under_way[uid]

    async def run(self, attempt: Attempt, command: Sequence[str], timeout_ms: int) -> ExecInContainerResponse:
        """Runs `command`; `timeout_ms` 0 = none. A command that cannot start answers with the shell's code and the reason.

        To cancel this ends the command; it returns at once.
        """
        if not command:
            return ExecInContainerResponse(exit_code=127, error="the command is empty")
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
            return ExecInContainerResponse(exit_code=error.exit_code or 126, error=str(error))
        finally:
            os.close(out.write_end)
            os.close(err.write_end)
        self._under_way[attempt.uid] += 1
        child.exited.add_done_callback(lambda _: self._gone(attempt.uid))
        problem = ""
        try:
            await asyncio.wait({child.exited}, timeout=timeout_ms / 1000 if timeout_ms > 0 else None)
            if not child.exited.done():
                problem = f"ended after {format_duration(timeout_ms)}: the timeout of exec"
                await asyncio.shield(self._end(child))
            async with asyncio.timeout(_LINGER_S):
                await out.ended.wait()
                await err.ended.wait()
        except TimeoutError:
            pass  # a background child has them
        except asyncio.CancelledError:
            if not child.exited.done() and not problem:
                self._end(child)
            out.cut()
            err.cut()
            raise
        return ExecInContainerResponse(
            exit_code=child.exited.result().code,
            stdout=out.cut(),
            stderr=err.cut(),
            error=problem,
            truncated=out.truncated or err.truncated,
        )

    def _gone(self, uid: str) -> None:
        self._under_way[uid] -= 1
        self._under_way += Counter()  # drops what is at zero

    def _end(self, child: Child) -> asyncio.Task[None]:
        """Ends a command in a task of its own: whoever asked for it may be cancelled meanwhile."""
        ending = asyncio.create_task(_end(child), name=f"end exec {child.pid}")
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        return ending


async def _end(child: Child) -> None:
    """Ends the command and what shares its session: TERM, and KILL to what is left after the grace."""
    members = await _session(child, frozenset())
    for member in members:
        procs.send(member, signal.SIGTERM)
    for _ in range(_LOOKS):
        if not any(procs.same(*member) for member in members):
            break
        await asyncio.sleep(_GRACE_S / _LOOKS)
    while members := await _session(child, members):
        for member in members:
            procs.send(member, signal.SIGKILL)
        if child.exited.done():
            break
        await asyncio.wait({child.exited}, timeout=_GRACE_S)
    await asyncio.wait({child.exited})


async def _session(child: Child, known: frozenset[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """The living processes (pid, start) of the command's session.

    Its number means this session while its leader, or one that was `known` to be in it, is there.
    """
    found = [proc for proc in await asyncio.to_thread(procs.snapshot) if proc.session == child.pid]
    ids = {(proc.pid, proc.start) for proc in found}
    if (child.pid, child.start) not in ids and not ids & known:
        return frozenset()
    return frozenset((proc.pid, proc.start) for proc in found if not proc.dead)
