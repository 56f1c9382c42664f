"""The calls to the provider that are under way: each in a task of its own, each with a time limit.

A call that hangs holds up nothing but itself (targets R19): neither the evaluation, nor another slice, nor another group. Must never
decide anything: it carries out, and tells what came of it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from iris_core.contracts import MachinesFailed
from iris_core.model.quantities import format_duration

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from iris_core.live.clock import Clock

T = TypeVar("T")

CREATE_S: Final = 600.0
DELETE_S: Final = 60.0
LIST_S: Final = 60.0


async def within(clock: Clock, seconds: float, what: str, work: Coroutine[Any, Any, T]) -> T:
    """The result of a call to the provider. Raises MachinesFailed, also for a time that ran out and for any other fault."""
    task = asyncio.ensure_future(work)
    timer = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise MachinesFailed(f"{what} did not answer within {format_duration(int(seconds * 1000))}")
        return task.result()
    except (MachinesFailed, asyncio.CancelledError):
        raise
    except Exception as error:
        raise MachinesFailed(f"{what} failed: {type(error).__name__}: {error}") from error
    finally:
        for other in (task, timer):
            if not other.done():
                other.cancel()


class Hands:
    """Tasks by name; a name that is busy is not started twice."""

    def __init__(self, done: Callable[[str, BaseException | None], None]) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._done = done

    def busy(self, name: str) -> bool:
        return name in self._tasks

    def start(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Begins a piece of work unless it is under way."""
        if name in self._tasks:
            return

        async def run() -> None:
            await work()

        task = asyncio.create_task(run(), name=f"autoscaler {name}")
        self._tasks[name] = task
        task.add_done_callback(lambda t: self._ended(name, t))

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        self._tasks.pop(name, None)
        if not task.cancelled():
            self._done(name, task.exception())

    async def close(self) -> None:
        """Ends all that is under way."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=5.0)
