"""A clock that stands still until it is told to go on."""

from __future__ import annotations

import asyncio


class FakeClock:
    """`iris_core.live.clock.Clock` whose time only `advance` moves."""

    def __init__(self, now_ms: int = 1_767_225_600_000) -> None:
        self._now_ms = now_ms
        self._passed = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now_ms(self) -> int:
        return self._now_ms + int(self._passed * 1000)

    def monotonic(self) -> float:
        return 1000.0 + self._passed

    async def sleep(self, seconds: float) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._passed + seconds, done))
        await done

    def advance(self, seconds: float) -> None:
        """Let time pass and wake whoever slept until then."""
        self._passed += seconds
        due = [done for at, done in self._sleepers if at <= self._passed]
        self._sleepers = [(at, done) for at, done in self._sleepers if at > self._passed and not done.done()]
        for done in due:
            if not done.done():
                done.set_result(None)

    @property
    def sleeping(self) -> int:
        """How many are asleep."""
        return sum(1 for _, done in self._sleepers if not done.done())
