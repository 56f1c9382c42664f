"""Lines that come again and again, at most one per interval: whoever knocks a million times must not fill the disk.

What was left out is counted and said with the next line. Of audit lines only those may be held back that say how things stand,
never those that say what somebody did.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Hashable


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


class Repeats:
    """Which of many like events is said: the first of its key, and one per `interval_s` from then on."""

    KEPT = 10_000
    """Keys; older ones that say nothing any more are forgotten beyond that."""

    def __init__(self, interval_s: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._said: dict[Hashable, tuple[float, int]] = {}
        """When last, and how many since."""

    def take(self, key: Hashable) -> int | None:
        """How many like it were left out since the last that was said; None = leave this one out, too."""
        now = self._clock()
        last, left_out = self._said.get(key, (float("-inf"), 0))
        if now - last < self._interval_s:
            self._said[key] = (last, left_out + 1)
            return None
        if len(self._said) >= self.KEPT:
            self._said = {k: said for k, said in self._said.items() if now - said[0] < self._interval_s or said[1]}
        self._said[key] = (now, 0)
        return left_out
