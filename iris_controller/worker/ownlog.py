"""The worker's own log: to stderr, and as lines of `/system/worker/<id>` through the same spool as everything else.

A record is one line whatever it contains, so that nothing a task or a peer says can pose as a line of ours. Records can come from
any thread and from inside the spool itself, therefore they are only queued here and stored on the loop's next turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from iris_controller import logs
from iris_controller.worker.config import now_ms
from iris_controller.worker.lines import own_line
from iris_core.model.levels import LogLevel

if TYPE_CHECKING:
    from iris_controller.worker.batches import Line
    from iris_controller.worker.spool import Producer, Spool

_QUEUED = 10_000
_LEVELS = {
    logging.DEBUG: LogLevel.DEBUG,
    logging.INFO: LogLevel.INFO,
    logging.WARNING: LogLevel.WARNING,
    logging.ERROR: LogLevel.ERROR,
    logging.CRITICAL: LogLevel.CRITICAL,
}


class SpoolHandler(logging.Handler):
    """Queues records until `ship` names the spool, then stores them there."""

    def __init__(self) -> None:
        super().__init__()
        self._queue: deque[tuple[int, Line]] = deque(maxlen=_QUEUED)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._spool: Spool | None = None
        self._producer: Producer | None = None
        self._scheduled = False

    def ship(self, spool: Spool, producer: Producer) -> None:
        """From now on records are stored; on the loop's thread."""
        self._loop, self._spool, self._producer = asyncio.get_running_loop(), spool, producer
        self.store()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._queue.append(
                (now_ms(), own_line("iris", self.format(record), _LEVELS.get(record.levelno, LogLevel.INFO)))
            )
            if self._loop is not None and not self._scheduled:
                self._scheduled = True
                self._loop.call_soon_threadsafe(self.store)
        except Exception:
            self.handleError(record)

    def store(self) -> None:
        """Stores what is queued."""
        self._scheduled = False
        while self._queue and self._spool is not None and self._producer is not None:
            at, line = self._queue.popleft()
            self._spool.append(self._producer, [line], at)


def install() -> SpoolHandler:
    """Sets up logging for this process."""
    logging.raiseExceptions = False  # a closed stderr must not break the worker
    handler = SpoolHandler()
    logs.configure(shipping=handler)
    return handler
