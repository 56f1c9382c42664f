"""How late the event loop is: a timer that says how far behind its time it was called, of the last minute.

Whatever blocks the loop shows here, whoever did it. Must never do anything else: four readings a second are what it may cost.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Final

from iris_core.wire.gen.iris.v1 import watch_rows_pb2

EVERY_S: Final = 0.25
KEPT: Final = 240
"""Readings: those of a minute."""


class LoopLag:
    """See the module."""

    def __init__(self) -> None:
        self._late: deque[float] = deque(maxlen=KEPT)

    async def run(self) -> None:
        """For ever."""
        while True:
            began = time.perf_counter()
            await asyncio.sleep(EVERY_S)
            self.take(max(0.0, time.perf_counter() - began - EVERY_S))

    def take(self, late_s: float) -> None:
        """A reading: so late was the loop, in seconds."""
        self._late.append(late_s)

    def read(self) -> watch_rows_pb2.LoopLag:
        """In milliseconds; a percentile is a reading that so many are not above."""
        late = sorted(self._late)
        if not late:
            return watch_rows_pb2.LoopLag()
        return watch_rows_pb2.LoopLag(
            p50_ms=_of(late, 50),
            p99_ms=_of(late, 99),
            max_ms=round(late[-1] * 1000, 3),
            samples=len(late),
            window_ms=int(len(late) * EVERY_S * 1000),
        )


def _of(late: list[float], percent: int) -> float:
    return round(late[(len(late) * percent - 1) // 100] * 1000, 3)
