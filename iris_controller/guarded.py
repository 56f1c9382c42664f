"""Background tasks with a name: one that ends unexpectedly is logged and shows in `/readyz` (DESIGN §4)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import Any

from iris_core.wire.gen.iris.v1 import watch_rows_pb2

log = logging.getLogger("iris.tasks")


class Guard:
    """Starts tasks that are meant to run for ever, and ends them together."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._ended: dict[str, str] = {}
        self._started: dict[str, int] = {}
        self._closing = False

    def spawn(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work, name=name)
        self._tasks[name] = task
        self._started[name] = int(time.time() * 1000)
        task.add_done_callback(lambda t: self._done(name, t))
        return task

    def _done(self, name: str, task: asyncio.Task[Any]) -> None:
        if self._closing or task.cancelled():
            return
        error = task.exception()
        self._ended[name] = f"background task {name} ended: {error or 'without an error'}"
        log.error("%s", self._ended[name], exc_info=error)

    def expect_endings(self) -> None:
        """From now on a task that ends is no problem: the process is shutting down."""
        self._closing = True

    async def end(self, name: str) -> None:
        """Ends one task on purpose."""
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def problems(self) -> list[str]:
        return list(self._ended.values())

    def condition(self) -> list[watch_rows_pb2.BackgroundTask]:
        """All of them by name, those that ended unexpectedly with the reason."""
        return [
            watch_rows_pb2.BackgroundTask(
                name=name, started_at_ms=self._started[name], ended=self._ended.get(name, "").partition(" ended: ")[2]
            )
            for name in sorted(self._tasks)
        ]

    async def close(self, timeout_s: float) -> list[str]:
        """Cancels all and waits; returns the names of those that did not end in time."""
        self._closing = True
        pending = [t for t in self._tasks.values() if not t.done()]
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending, timeout=timeout_s)
        hung = [t.get_name() for t in pending if not t.done()]
        if hung:
            log.warning("still running at shutdown: %s", ", ".join(hung))
        return hung
