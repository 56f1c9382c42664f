"""Child processes that are started beside the event loop.

The loop's own way to start one forks the whole process, and holds everything up while the kernel copies its page tables: 50 ms for a small
controller, hundreds for a large one. `Popen` shares them until the new program runs (vfork), and in a thread of its own it holds up nobody.
What is said between the two goes through the loop. Must never run code of ours between fork and exec.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from functools import partial
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LINE_BYTES = 1 << 20
"""The longest line that is read from one."""


class Child:
    """A process in a session of its own, with pipes for its input and output; what it says beside that is thrown away.

    Whoever starts one ends it with `end`, also where it has ended by itself.
    """

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        stdin: asyncio.StreamWriter,
        stdout: asyncio.StreamReader,
        output: asyncio.BaseTransport,
    ) -> None:
        self.pid = popen.pid
        self.stdin = stdin
        self.stdout = stdout
        self._output = output
        self._popen = popen
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._pidfd = os.pidfd_open(popen.pid)
        self._loop.add_reader(self._pidfd, self._reap)

    @classmethod
    async def start(cls, words: Sequence[str], env: Mapping[str, str] | None = None, cwd: str | None = None) -> Self:
        """Raises OSError: it cannot be started."""
        starting = asyncio.get_running_loop().run_in_executor(None, partial(_popen, words, env, cwd))
        try:
            popen = await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(_discard)
            raise
        return await cls.of(popen)

    @classmethod
    async def of(cls, popen: subprocess.Popen[bytes]) -> Self:
        """One that was started elsewhere, with pipes for its input and output."""
        try:
            return cls(popen, *await _streams(popen))
        except BaseException:
            _end_now(popen)
            raise

    @property
    def returncode(self) -> int | None:
        """None while it runs; below 0: ended by a signal."""
        return self._popen.returncode

    async def communicate(self, question: bytes) -> bytes:
        """Writes the question, closes the child's input, and returns what the child wrote until its end."""
        # A child that ended without reading has said what it had to say; uvloop calls that a RuntimeError.
        with contextlib.suppress(OSError, RuntimeError):
            self.stdin.write(question)
            await self.stdin.drain()
        self.stdin.close()
        answer = await self.stdout.read()
        await self.wait()
        self._output.close()
        return answer

    async def wait(self) -> int:
        """Waits for its end."""
        await self._ended.wait()
        assert self._popen.returncode is not None
        return self._popen.returncode

    def kill(self) -> None:
        self._popen.kill()

    async def end(self) -> None:
        """Kills it, if it still runs, and waits until it is gone."""
        self.stdin.close()
        if not self._ended.is_set():
            self.kill()
        await self.wait()
        # Not every loop closes a pipe at its end.
        self._output.close()

    def _reap(self) -> None:
        if self._popen.poll() is None:
            return
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self.stdin.close()
        self._ended.set()


def _popen(words: Sequence[str], env: Mapping[str, str] | None, cwd: str | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=env,
        cwd=cwd,
        start_new_session=True,
    )


async def _streams(
    popen: subprocess.Popen[bytes],
) -> tuple[asyncio.StreamWriter, asyncio.StreamReader, asyncio.BaseTransport]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(LINE_BYTES)
    output, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), popen.stdout)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, popen.stdin)
    return asyncio.StreamWriter(transport, protocol, None, loop), reader, output


def _discard(starting: asyncio.Future[subprocess.Popen[bytes]]) -> None:
    """Nobody wants it any more."""
    if not starting.cancelled() and starting.exception() is None:
        _end_now(starting.result())


def _end_now(popen: subprocess.Popen[bytes]) -> None:
    popen.kill()
    popen.wait()
    for pipe in (popen.stdin, popen.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
