"""The console's client of a checkpoint (`contracts.AsyncClient`): another process reads it and answers (`offline_child`).

Must stay light: of the controller it imports what starts a process and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Final, TypeVar

from iris_controller.children import Child
from iris_controller.offline_frames import Kind, frame, read_frame, to_error
from iris_core.contracts import ConnectFailed, IrisError, RpcFailed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from google.protobuf.message import Message

R = TypeVar("R", bound="Message")
END_S: Final = 3.0
"""How long it may take to end by itself."""
Told = tuple[str, int, int]
"""What it does, and while it unpacks: of the compressed file's bytes how many are done, and all; else 0."""


def spawn(place: str) -> subprocess.Popen[bytes]:
    """Starts the process, which begins to open the checkpoint at once; it ends when its input does. Raises OSError."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "iris_controller.offline_child", place],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


class OfflineAsyncClient:
    """Make it with `open_checkpoint`.

    `url` is where the checkpoint lies, `moment_ms` when it was taken, or (`taken` false) the last moment that it knows of; `cached` says
    that nothing had to be unpacked; `cluster` is whose it is, "" = not known; `notes` are what an operator should know.
    """

    def __init__(self, child: Child, said: bytes) -> None:
        facts = json.loads(said)
        self.url: str = facts["url"]
        self.moment_ms: int = facts["moment_ms"]
        self.taken: bool = facts["taken"]
        self.cached: bool = facts["cached"]
        self.cluster: str = facts["cluster"]
        self.notes: list[str] = facts["notes"]
        self.pid = child.pid
        self._child = child
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Queue[tuple[Kind, bytes]]] = {}
        self.ended = False
        """Whether the process is gone, or asked to go."""
        child.stdin.write(b"\n")
        self._reading = asyncio.create_task(self._read(), name="checkpoint")

    async def _read(self) -> None:
        try:
            while True:
                kind, number, payload = await read_frame(self._child.stdout)
                if number in self._waiting:
                    self._waiting[number].put_nowait((kind, payload))
        except (asyncio.IncompleteReadError, OSError):
            self.ended = True
            for queue in self._waiting.values():
                queue.put_nowait((Kind.STOP, b""))

    async def call(self, method_name: str, request: Message, response: type[R], *, timeout_s: float = 30.0) -> R:
        """Raises UsageFailed: only a controller can do that; RpcFailed: the answer is an error, or takes too long; ConnectFailed."""
        try:
            async with (
                asyncio.timeout(timeout_s),
                contextlib.aclosing(self._ask(Kind.CALL, method_name, request)) as answers,
            ):
                async for answer in answers:
                    return response.FromString(answer)
        except TimeoutError:
            raise RpcFailed("DEADLINE_EXCEEDED", f"{method_name} took longer than {timeout_s:g} s") from None
        raise ConnectFailed(f"{method_name} was not answered")

    async def stream(self, method_name: str, request: Message, response: type[R]) -> AsyncIterator[R]:
        """Answers as they come; closing the iterator ends the call. Raises as `call`."""
        async with contextlib.aclosing(self._ask(Kind.STREAM, method_name, request)) as answers:
            async for answer in answers:
                yield response.FromString(answer)

    async def _ask(self, kind: Kind, method_name: str, request: Message) -> AsyncGenerator[bytes, None]:
        if self.ended:
            raise ConnectFailed("the process that reads the checkpoint has ended", hint="open it anew")
        number = next(self._numbers)
        queue = self._waiting[number] = asyncio.Queue()
        over = False
        try:
            self._child.stdin.write(frame(kind, number, method_name.encode() + b"\0" + request.SerializeToString()))
            while True:
                found, payload = await queue.get()
                over = found is not Kind.ANSWER
                if found is Kind.ERROR:
                    raise to_error(payload)
                if found is Kind.STOP:
                    raise ConnectFailed("the process that reads the checkpoint has ended", hint="open it anew")
                if found is Kind.END:
                    return
                yield payload
        finally:
            del self._waiting[number]
            if not over and not self.ended:
                self._child.stdin.write(frame(Kind.STOP, number))

    async def close(self) -> None:
        """Ends the process. A second time is no error."""
        self.ended = True
        await end(self._child)
        await self._reading


async def end(child: Child) -> None:
    """By the end of its input, so that it clears away; if that takes too long, at once."""
    child.stdin.close()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(END_S):
            await child.wait()
    await child.end()


async def open_checkpoint(
    place: str, tell: Callable[[Told], None], popen: subprocess.Popen[bytes] | None = None
) -> OfflineAsyncClient:
    """Opens the checkpoint of a path or URL, in the process that was spawned for it, or a new one. `tell` hears how far it is; cancelled, it
    is given up and leaves nothing behind. Raises IrisError.
    """
    child = await _child(place, popen)
    try:
        while True:
            kind, _, payload = await read_frame(child.stdout)
            if kind is Kind.PROGRESS:
                phase, done, total = json.loads(payload)
                tell((phase, done, total))
            elif kind is Kind.ERROR:
                raise to_error(payload)
            elif kind is Kind.OPEN:
                return OfflineAsyncClient(child, payload)
    except (asyncio.IncompleteReadError, OSError):
        await end(child)
        raise IrisError("the process that reads the checkpoint has ended", hint="is there enough memory?") from None
    except BaseException:
        await end(child)
        raise


async def _child(place: str, popen: subprocess.Popen[bytes] | None) -> Child:
    try:
        if popen is None:
            popen = await asyncio.to_thread(spawn, place)
        return await Child.of(popen)
    except OSError as error:
        raise IrisError(f"no process can be started to read the checkpoint: {error.strerror}") from None
