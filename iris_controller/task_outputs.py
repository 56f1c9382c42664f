"""Where the cluster keeps what its tasks left in `$IRIS_OUTPUT_DIR`, and the removal of what is older than its time (cli-auth-logs §4.6).

Workers write the archives, by day; here is only what they are told, and a look now and then at the oldest days. Must never touch an
object that does not lie under a day.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_controller.by_day import keep_removing, remove_expired
from iris_core.config.places import LOCAL
from iris_core.live.clock import SystemClock
from iris_core.wire.gen.iris.v1.worker_pb2 import TaskOutputsPolicy
from providers.objects import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_core.config.cluster import ClusterConfig
    from iris_core.live.clock import Clock

FOLDER: Final = "task-outputs"
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
        await keep_removing(self.remove_expired, "archives of task outputs", self._clock, FIRST_S)

    def remove_expired(self) -> int:
        """Blocking. How many archives went. Raises IrisError."""
        if not self._policy.destination:
            return 0
        return remove_expired(open_store(self._policy.destination), self._policy.ttl_ms, self._now_ms())
