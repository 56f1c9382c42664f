"""Where the cluster keeps what its tasks left in `$IRIS_OUTPUT_DIR`, and the removal of what is older than its time (cli-auth-logs §4.6).

Workers write the archives, by day; here is only what they are told, and a look now and then at the oldest days. Must never touch an
object that does not lie under a day.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from iris_core.config.places import LOCAL
from iris_core.contracts import IrisError
from iris_core.live.clock import SystemClock
from iris_core.wire.gen.iris.v1.worker_pb2 import TaskOutputsPolicy
from providers.objects import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_core.config.cluster import ClusterConfig
    from iris_core.contracts import ObjectStore
    from iris_core.live.clock import Clock

log = logging.getLogger("iris.task-outputs")

FOLDER: Final = "task-outputs"
INTERVAL_S: Final = 3_600.0
FIRST_S: Final = 90.0


def policy(config: ClusterConfig, state_url: str) -> TaskOutputsPolicy:
    """What workers are told. `state_url` is the controller's object store: a folder of this machine is no place for other machines."""
    wanted = config.task_outputs
    shared = config.platform == LOCAL or not state_url.startswith("file:")
    default = f"{state_url.rstrip('/')}/{FOLDER}" if state_url and shared else ""
    return TaskOutputsPolicy(
        destination=wanted.destination or default,
        ttl_ms=wanted.ttl_ms,
        max_bytes=wanted.max_bytes,
        max_entries=wanted.max_entries,
        finalization_timeout_ms=wanted.finalization_timeout_ms,
    )


class Expiry:
    """Removes archives whose day is over for longer than the policy keeps them."""

    def __init__(self, told: TaskOutputsPolicy, now_ms: Callable[[], int], clock: Clock | None = None) -> None:
        self._policy = told
        self._now_ms = now_ms
        self._clock = clock or SystemClock()

    async def run(self) -> None:
        """For ever."""
        await self._clock.sleep(FIRST_S)
        while True:
            try:
                removed = await asyncio.to_thread(self.remove_expired)
                if removed:
                    log.info("removed the outputs of %d attempts that were older than they are kept", removed)
            except IrisError as error:
                log.warning("old task outputs were not removed, and will be later: %s", error.message)
            await self._clock.sleep(INTERVAL_S)

    def remove_expired(self) -> int:
        """Blocking. How many archives went. Raises IrisError."""
        if not self._policy.destination:
            return 0
        store = open_store(self._policy.destination)
        last = datetime.fromtimestamp((self._now_ms() - self._policy.ttl_ms) / 1000, UTC) - timedelta(days=1)
        expired = _expired(store, f"{last:%Y-%m-%d}")
        for name in expired:
            store.delete(name)
        return len(expired)


def _expired(store: ObjectStore, last_day: str) -> list[str]:
    """Names come in order, so the look ends with the first day that is not over."""
    found = []
    for info in store.list(""):
        day, _, rest = info.name.partition("/")
        if not rest or len(day) != 10 or not day.replace("-", "").isdecimal():
            continue
        if day > last_day:
            break
        found.append(info.name)
    return found
