"""The clock of everything that is shown live, passed in so that a test decides what time it is.

Wall time is only for showing ages of what the cluster stamped; leases, staleness and backoff use the monotonic reading.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """What time it is, and waiting."""

    def now_ms(self) -> int:
        """Wall time in epoch ms."""
        ...

    def monotonic(self) -> float:
        """Seconds that never jump."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ClockAt(SystemClock):
    """A wall that stands still at `moment_ms` once that is known: what time it is in a checkpoint."""

    moment_ms = 0

    def now_ms(self) -> int:
        return self.moment_ms or super().now_ms()
