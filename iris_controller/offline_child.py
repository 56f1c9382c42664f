"""The process that reads a checkpoint for a console: it unpacks, loads, and answers, while the console draws.

A process of its own, because loading takes a second of the interpreter, which the console has better use for; and so that nothing that
is asked of a checkpoint, however expensive, holds up a key. It ends as soon as its input does, and leaves nothing behind.

python -P -m iris_controller.offline_child PLACE
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Final

from iris_controller.offline import opened
from iris_controller.offline_frames import Kind, frame, from_error, read_frame
from iris_core.contracts import IrisError

if TYPE_CHECKING:
    from iris_controller.checkpoint.opening import Progress
    from iris_controller.offline_state import OfflineState

GIVE_UP_S: Final = 2.0
"""How long a step that is under way when nobody waits any more may still take."""


class GivenUp(IrisError):
    """Nobody waits for it any more."""


class Serving:
    """One checkpoint, and the calls that are being answered."""

    def __init__(self, place: str, requests: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        self._place = place
        self._requests = requests
        self._answers = answers
        self._loop = asyncio.get_running_loop()
        self._given_up = threading.Event()
        self._calls: dict[int, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Until the other side has ended."""
        notes: list[str] = []
        opening = asyncio.ensure_future(asyncio.to_thread(opened, self._place, self._tell, notes.append))
        listening = asyncio.ensure_future(self._requests.read(1))
        await asyncio.wait([opening, listening], return_when=asyncio.FIRST_COMPLETED)
        if listening.done():
            self._given_up.set()
            await asyncio.wait([opening], timeout=GIVE_UP_S)
            if opening.done() and opening.exception() is None:
                found, state = opening.result()
                state.close()
                found.close()
            return
        try:
            found, state = await opening
        except IrisError as error:
            self._send(frame(Kind.ERROR, 0, from_error(error)))
            await self._answers.drain()
            return
        gc.freeze()
        gc.enable()
        said = {
            "url": found.label,
            "moment_ms": state.moment_ms,
            "taken": bool(found.epoch_ms),
            "cached": found.cached,
            "cluster": found.cluster,
            "notes": notes,
        }
        self._send(frame(Kind.OPEN, 0, json.dumps(said).encode()))
        try:
            # The first byte of the greeting, which says only that somebody listens.
            if await listening:
                await self._serve(state)
        finally:
            state.close()
            found.close()

    def _tell(self, progress: Progress) -> None:
        if self._given_up.is_set():
            raise GivenUp("given up")
        said = json.dumps([progress.phase, progress.done_bytes, progress.total_bytes]).encode()
        self._loop.call_soon_threadsafe(self._send, frame(Kind.PROGRESS, 0, said))

    def _send(self, data: bytes) -> None:
        self._answers.write(data)

    async def _serve(self, state: OfflineState) -> None:
        try:
            while True:
                kind, number, payload = await read_frame(self._requests)
                if kind is Kind.STOP:
                    if number in self._calls:
                        self._calls[number].cancel()
                    continue
                name, _, request = payload.partition(b"\0")
                task = asyncio.create_task(self._answer(state, number, name.decode(), request, kind is Kind.STREAM))
                self._calls[number] = task
                task.add_done_callback(partial(self._answered, number))
        except (asyncio.IncompleteReadError, OSError):
            pass  # the console has ended
        for task in list(self._calls.values()):
            task.cancel()
        await asyncio.gather(*self._calls.values(), return_exceptions=True)

    def _answered(self, number: int, _: asyncio.Task[None]) -> None:
        self._calls.pop(number, None)

    async def _answer(self, state: OfflineState, number: int, name: str, request: bytes, streams: bool) -> None:
        try:
            if streams:
                async with contextlib.aclosing(state.stream(name, request)) as answers:
                    async for answer in answers:
                        self._send(frame(Kind.ANSWER, number, answer))
                        await self._answers.drain()
            else:
                self._send(frame(Kind.ANSWER, number, await state.call(name, request)))
            self._send(frame(Kind.END, number))
        except IrisError as error:
            self._send(frame(Kind.ERROR, number, from_error(error)))
        await self._answers.drain()


async def _main(place: str, output: int) -> None:
    loop = asyncio.get_running_loop()
    requests = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(requests), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(output, "wb"))
    answers = asyncio.StreamWriter(transport, protocol, None, loop)
    with contextlib.suppress(OSError):
        await Serving(place, requests, answers).run()
    answers.close()


def main() -> int:
    os.umask(0o077)
    # What is loaded stays until the end: looking through it for what could go, again and again, is a fifth of the work.
    gc.disable()
    # Only frames go where the console reads.
    output = os.dup(1)
    os.dup2(2, 1)
    asyncio.run(_main(sys.argv[1], output))
    sys.stdout.flush()
    # Not by way of the interpreter's end, which would wait for a step that hangs in a store.
    os._exit(0)


if __name__ == "__main__":
    main()
