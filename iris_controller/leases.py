"""The leases of endpoints: an endpoint that is not registered again in time is gone.

A lease runs by the monotonic clock from the commit of its registration, so that no clock step matters (DESIGN §5.16), and anew from
the start of a controller: while none ran, nobody could renew. The stored deadline is for those who read the database.
Must never look at the wall clock.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iris_controller.loop import Committed, ControllerLoop
    from iris_controller.state.endpoints import Endpoint
    from iris_controller.state.overlay import Overlay


class Leases:
    """Ends what is over. `expired` tells it in the meantime, also while the store takes no writes."""

    def __init__(self, loop: ControllerLoop, clock: Callable[[], float] = time.monotonic) -> None:
        self._loop = loop
        self._clock = clock
        self._ends: dict[str, float] = {}
        """Monotonic, by endpoint id."""
        self._heap: list[tuple[float, str]] = []
        self._wake = asyncio.Event()
        for endpoint in loop.model.endpoints.by_id.values():
            self._arm(endpoint)
        loop.on_commit(self._committed)

    def expired(self, endpoint: Endpoint) -> bool:
        ends = self._ends.get(endpoint.endpoint_id)
        return ends is not None and ends <= self._clock()

    async def run(self) -> None:
        """Runs for ever."""
        while True:
            self._wake.clear()
            self.fire()
            wait = self._heap[0][0] - self._clock() if self._heap else None
            try:
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def fire(self) -> int:
        """Posts the end of every lease that is over. Returns how many."""
        fired = 0
        while self._heap and self._heap[0][0] <= self._clock():
            ends, endpoint_id = heapq.heappop(self._heap)
            endpoint = self._loop.model.endpoints.by_id.get(endpoint_id)
            if endpoint is not None and self._ends.get(endpoint_id) == ends:
                self._loop.post("endpoint lease", partial(_expire, endpoint))
                fired += 1
        return fired

    def _committed(self, batch: Committed) -> None:
        for endpoint_id, endpoint in batch.changes.endpoints.items():
            if endpoint is None:
                self._ends.pop(endpoint_id, None)
            else:
                self._arm(endpoint)
        if len(self._heap) > 2 * len(self._ends) + 1_000:
            self._heap = [(ends, endpoint_id) for endpoint_id, ends in self._ends.items()]
            heapq.heapify(self._heap)

    def _arm(self, endpoint: Endpoint) -> None:
        if not endpoint.lease_ms:
            self._ends.pop(endpoint.endpoint_id, None)
            return
        ends = self._ends[endpoint.endpoint_id] = self._clock() + endpoint.lease_ms / 1000
        heapq.heappush(self._heap, (ends, endpoint.endpoint_id))
        self._wake.set()


def _expire(endpoint: Endpoint, o: Overlay, now_ms: int) -> None:
    """It may have been renewed while the command waited: a renewal is another registration."""
    if o.endpoint(endpoint.endpoint_id) == endpoint:
        o.endpoints[endpoint.endpoint_id] = None
        o.note("endpoint_expired", endpoint.name, "lease", endpoint_id=endpoint.endpoint_id, task=endpoint.task_id)
