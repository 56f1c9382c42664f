"""Log lines that strangers can cause, at most one per interval: whoever knocks a million times must not fill the disk.

What was left out is counted and said with the next line. Must never be used for audit lines.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable


class QuietLog:
    """`warning` writes at most once per `interval_s`; `clock` is monotonic seconds."""

    def __init__(
        self, log: logging.Logger, interval_s: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._interval_s = interval_s
        self._clock = clock
        self._next = float("-inf")
        self._left_out = 0

    def warning(self, text: str, *values: object) -> None:
        """Like `Logger.warning`."""
        now = self._clock()
        if now < self._next:
            self._left_out += 1
            return
        self._next = now + self._interval_s
        if self._left_out:
            text, values = f"{text} (%d more like it since the last such line)", (*values, self._left_out)
            self._left_out = 0
        self._log.warning(text, *values)
