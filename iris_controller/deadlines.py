"""Named deadlines on the monotonic clock, the next one first.

What is disarmed or armed anew leaves its old entry in the heap until it comes up, or until such entries are most of it. Must never
know the wall clock, nor what a name means.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

SPARE = 1_000
"""So many entries of disarmed names are kept in any case."""


class Deadlines(Generic[K]):
    """See the module. Seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._ends: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._count = 0
        self._wake = asyncio.Event()

    def __contains__(self, name: Any) -> bool:
        return name in self._ends

    @property
    def held(self) -> int:
        """Entries held, of disarmed names too."""
        return len(self._heap)

    def arm(self, name: K, seconds: float) -> None:
        """Sets the name's deadline so far from now, in the place of the one it has."""
        ends = self._ends[name] = self.clock() + seconds
        self._count += 1
        heapq.heappush(self._heap, (ends, self._count, name))
        self._wake.set()
        self._compact()

    def disarm(self, name: K) -> None:
        if self._ends.pop(name, None) is not None:
            self._compact()

    def _compact(self) -> None:
        if len(self._heap) > 2 * len(self._ends) + SPARE:
            self._heap = [entry for entry in self._heap if self._ends.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)

    def passed(self, name: K) -> bool:
        """Whether the name has a deadline that has passed."""
        ends = self._ends.get(name)
        return ends is not None and ends <= self.clock()

    def due(self) -> Iterator[K]:
        """Takes the names whose deadline has passed, the earliest first. They stay armed: who acts on one disarms it."""
        while self._heap and self._heap[0][0] <= self.clock():
            ends, _, name = heapq.heappop(self._heap)
            if self._ends.get(name) == ends:
                yield name

    async def run(self, fire: Callable[[], object]) -> None:
        """Calls `fire`, which takes what is due, whenever something may be. Runs for ever."""
        while True:
            self._wake.clear()
            fire()
            wait = self._heap[0][0] - self.clock() if self._heap else None
            try:
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            except TimeoutError:
                pass
