"""A checkpoint as if a controller served it: one more implementation of each of the client's protocols (`contracts`).

The checkpoint is unpacked into this user's cache, or a private temporary folder, and the controller's own services answer from it in
this process, so that every command and screen reads and shows as it does against a controller. `OfflineClient` answers in the caller's
thread, `AsyncOfflineClient` in a thread of its own, so that the caller's event loop is never held up. Must never write to where the
checkpoint lies.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from iris_controller.checkpoint.opening import Phase, Progress, Unpacked, unpacked
from iris_core.contracts import ConnectFailed, RpcFailed, UsageFailed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
    from types import TracebackType

    from google.protobuf.message import Message

    from iris_controller.checkpoint.cache import Cache
    from iris_controller.offline_state import OfflineState

R = TypeVar("R", bound="Message")
T = TypeVar("T")
CLOSED: Final = "the checkpoint was closed"


class OfflineClient:
    """One checkpoint, opened (`contracts.Client`). `url` is where it lies."""

    def __init__(self, place: str, note: Callable[[str], None] = lambda _: None) -> None:
        """Unpacks and loads it. Raises UsageFailed, BadCheckpoint, IrisError; nothing is left behind then."""
        self._unpacked, self._state = _opened(place, note=note)
        self.url = self._unpacked.label
        self._runner = asyncio.Runner()
        if self._unpacked.epoch_ms:
            note(f"read from the checkpoint of {moment(self._state.moment_ms)}; its workers are taken as healthy")

    def call(self, method_name: str, request: Message, response: type[R], *, timeout_s: float = 30.0) -> R:
        """Raises UsageFailed: only a controller can do that; RpcFailed: the answer is an error."""
        return self._runner.run(self._state.call(method_name, request, response))

    def stream(self, method_name: str, request: Message, response: type[R]) -> Iterator[R]:
        self._state.check(method_name)
        raise UsageFailed("a checkpoint does not change: there is nothing to watch", hint="ask a running controller")

    def close(self) -> None:
        """Lets go of what was unpacked. A second time is no error."""
        self._runner.close()
        self._state.close()
        self._unpacked.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncOfflineClient:
    """The same for an event loop (`contracts.AsyncClient`): made in any thread, used from one loop.

    `url` is where it lies; `moment_ms` when it was taken, or the last moment that it knows of; `taken` says whether it is the first.
    """

    def __init__(self, opened: Unpacked, state: OfflineState) -> None:
        self.url = opened.label
        self.moment_ms = state.moment_ms
        self.taken = bool(opened.epoch_ms)
        self.cached = opened.cached
        self._opened = opened
        self._state = state
        self._loop = asyncio.new_event_loop()
        self._closing = False
        self._ended = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        """Who is to be told when it has ended."""
        threading.Thread(target=self._run, name="checkpoint", daemon=True).start()

    def _run(self) -> None:
        try:
            asyncio.set_event_loop(self._loop)
            self._loop.run_forever()
            self._loop.run_until_complete(_end_all())
            self._loop.close()
            self._state.close()
            self._opened.close()
        finally:
            self._ended = True
            for loop, ended in self._waiting:
                with suppress(RuntimeError):  # closed: nobody waits
                    loop.call_soon_threadsafe(ended.set)

    async def call(self, method_name: str, request: Message, response: type[R], *, timeout_s: float = 30.0) -> R:
        """Raises UsageFailed: only a controller can do that; RpcFailed: the answer is an error, or takes too long."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._there(self._state.call(method_name, request, response))
        except TimeoutError:
            raise RpcFailed("DEADLINE_EXCEEDED", f"{method_name} took longer than {timeout_s:g} s") from None

    async def stream(self, method_name: str, request: Message, response: type[R]) -> AsyncIterator[R]:
        """Answers as they come; closing the iterator ends the call. Raises as `call`."""
        answers = self._state.stream(method_name, request, response)
        try:
            while (answer := await self._there(_next(answers))) is not None:
                yield answer
        finally:
            if not self._closing:  # what is open then is closed with it
                self._loop.call_soon_threadsafe(lambda: asyncio.ensure_future(_end(answers)))

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs it on the other loop; given up here, it is given up there. By hand, since either loop may be closed before the other."""
        if self._closing:
            work.close()
            raise ConnectFailed(CLOSED)
        here = asyncio.get_running_loop()
        result: asyncio.Future[T] = here.create_future()
        started: list[asyncio.Task[T]] = []

        def start() -> None:
            started.append(self._loop.create_task(work))
            started[0].add_done_callback(tell)

        def tell(task: asyncio.Task[T]) -> None:
            error = ConnectFailed(CLOSED) if task.cancelled() else task.exception()
            with suppress(RuntimeError):  # closed: nobody waits
                here.call_soon_threadsafe(settle, task, error)

        def settle(task: asyncio.Task[T], error: BaseException | None) -> None:
            if not result.done() and error is not None:
                result.set_exception(error)
            elif not result.done():
                result.set_result(task.result())

        def give_up() -> None:
            started[0].cancel()

        self._loop.call_soon_threadsafe(start)
        try:
            return await result
        except asyncio.CancelledError:
            with suppress(RuntimeError):  # closed, and the work ended with it
                self._loop.call_soon_threadsafe(give_up)
            raise

    async def close(self) -> None:
        """Lets go of what was unpacked, once what is being answered has ended. A second time is no error."""
        if not self._closing:
            self._closing = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        ended = asyncio.Event()
        self._waiting.append((asyncio.get_running_loop(), ended))
        if not self._ended:
            await ended.wait()


async def _next(answers: AsyncGenerator[R, None]) -> R | None:
    return await anext(answers, None)


async def _end(answers: AsyncGenerator[R, None]) -> None:
    # One that is still being asked was cancelled, and ends by that.
    with suppress(RuntimeError):
        await answers.aclose()


async def _end_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


def moment(epoch_ms: int) -> str:
    """`2026-11-29 03:00:00 UTC`."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(epoch_ms / 1000))


def _opened(
    place: str,
    tell: Callable[[Progress], None] = lambda _: None,
    note: Callable[[str], None] = lambda _: None,
    cache: Cache | None = None,
) -> tuple[Unpacked, OfflineState]:
    # What answers takes half a second to import, and unpacking leaves the interpreter alone meanwhile.
    loading = threading.Thread(target=_state_type, name="import", daemon=True)
    loading.start()
    found = unpacked(place, tell, note, cache)
    try:
        loading.join()
        tell(Progress(Phase.LOADING))
        return found, _state_type()(found)
    except BaseException:
        found.close()
        raise


def _state_type() -> type[OfflineState]:
    from iris_controller.offline_state import OfflineState

    return OfflineState


def open_checkpoint(place: str, note: Callable[[str], None]) -> OfflineClient:
    """The client of a checkpoint's path or URL. Raises IrisError."""
    return OfflineClient(place, note)


def open_for_console(
    place: str,
    tell: Callable[[Progress], None],
    note: Callable[[str], None] = lambda _: None,
    cache: Cache | None = None,
) -> AsyncOfflineClient:
    """The console's client of it. Blocks until it is loaded: call it in a thread. `tell` hears how far it is, and ends it by raising.

    Raises IrisError, and what `tell` raises; nothing is left behind then.
    """
    return AsyncOfflineClient(*_opened(place, tell, note, cache))
