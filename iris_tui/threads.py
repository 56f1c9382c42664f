"""Blocking work off the loop, in threads that never hold up the end of the program.

The loop's own executor is waited for when the loop ends; a name lookup that hangs would then hold the terminal. These threads
are daemons, and whoever waits for one may simply stop waiting.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T], *, name: str = "console") -> T:
    """Run `work` in a daemon thread and return or raise what it does."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if result.done():
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(value)  # type: ignore[arg-type]

    def run() -> None:
        value: T | None = None
        failed: BaseException | None = None
        try:
            value = work()
        except BaseException as error:  # it is raised where the result is awaited
            failed = error
        try:
            loop.call_soon_threadsafe(settle, value, failed)
        except RuntimeError:
            return  # the loop has ended: nobody waits

    threading.Thread(target=run, name=name, daemon=True).start()
    return await result
