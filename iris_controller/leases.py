"""The leases of endpoints: an endpoint that is not registered again in time is gone.

A lease runs by the monotonic clock from the commit of its registration, so that no clock step matters (DESIGN §5.16), and anew from
the start of a controller: while none ran, nobody could renew. The stored deadline is for those who read the database.
Must never look at the wall clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from iris_controller.deadlines import Deadlines

if TYPE_CHECKING:
    from iris_controller.commits import Committed
    from iris_controller.loop import ControllerLoop
    from iris_controller.state.endpoints import Endpoint
    from iris_controller.state.overlay import Overlay


class Leases:
    """Ends what is over. `expired` tells it in the meantime, also while the store takes no writes."""

    def __init__(self, loop: ControllerLoop, clock: Callable[[], float] = time.monotonic) -> None:
        self._loop = loop
        self._deadlines: Deadlines[str] = Deadlines(clock)
        for endpoint in loop.model.endpoints.by_id.values():
            self._arm(endpoint)
        loop.on_commit(self._committed)

    def use_clock(self, clock: Callable[[], float]) -> None:
        """Runs the leases that are armed from now on by another clock, in seconds."""
        self._deadlines.clock = clock

    def expired(self, endpoint: Endpoint) -> bool:
        return self._deadlines.passed(endpoint.endpoint_id)

    async def run(self) -> None:
        """Runs for ever."""
        await self._deadlines.run(self.fire)

    def fire(self) -> int:
        """Posts the end of every lease that is over. Returns how many."""
        fired = 0
        for endpoint_id in self._deadlines.due():
            endpoint = self._loop.model.endpoints.by_id.get(endpoint_id)
            if endpoint is not None:
                self._loop.post("endpoint lease", partial(_expire, endpoint))
                fired += 1
        return fired

    def _committed(self, batch: Committed) -> None:
        for endpoint_id, endpoint in batch.changes.endpoints.items():
            if endpoint is None:
                self._deadlines.disarm(endpoint_id)
            else:
                self._arm(endpoint)

    def _arm(self, endpoint: Endpoint) -> None:
        if endpoint.lease_ms:
            self._deadlines.arm(endpoint.endpoint_id, endpoint.lease_ms / 1000)
        else:
            self._deadlines.disarm(endpoint.endpoint_id)


def _expire(endpoint: Endpoint, o: Overlay, now_ms: int) -> None:
    """It may have been renewed while the command waited: a renewal is another registration."""
    if o.endpoint(endpoint.endpoint_id) == endpoint:
        o.endpoints[endpoint.endpoint_id] = None
        o.note("endpoint_expired", endpoint.name, "lease", endpoint_id=endpoint.endpoint_id, task=endpoint.task_id)
