"""Where what tasks leave in $IRIS_OUTPUT_DIR is kept, how much of it and how long: `task_outputs` in a cluster file
(cli-auth-logs §4.6).

Must never reach a store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_core.config.document import Value

DAY_MS: Final = 24 * 3_600_000
KEYS: Final = frozenset({"destination", "ttl_days", "max_bytes", "max_entries", "finalization_timeout"})


@dataclass(frozen=True, slots=True)
class TaskOutputsConfig:
    """One archive per attempt; times in ms."""

    destination: str = ""
    """URL of an object store; "" = beside the controller's own state."""
    ttl_ms: int = 7 * DAY_MS
    max_bytes: int = 2 << 30
    """Of one attempt's files together, as they lie there."""
    max_entries: int = 10_000
    finalization_timeout_ms: int = 300_000
    """So long may packing and sending take; the task holds its place meanwhile."""


def parse_task_outputs(value: Value, object_url: Callable[[Value], str]) -> TaskOutputsConfig:
    """The section `task_outputs`. Raises UsageFailed, with file and line."""
    keys, plain = value.mapping(KEYS), TaskOutputsConfig()
    return TaskOutputsConfig(
        destination=object_url(keys["destination"]) if "destination" in keys else "",
        ttl_ms=keys["ttl_days"].whole(1, 3_660) * DAY_MS if "ttl_days" in keys else plain.ttl_ms,
        max_bytes=keys["max_bytes"].size(1, 1 << 50, "2GiB") if "max_bytes" in keys else plain.max_bytes,
        max_entries=keys["max_entries"].whole(1, 1_000_000) if "max_entries" in keys else plain.max_entries,
        finalization_timeout_ms=keys["finalization_timeout"].duration_ms(1_000, DAY_MS)
        if "finalization_timeout" in keys
        else plain.finalization_timeout_ms,
    )
