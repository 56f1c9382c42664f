"""How long the controller remembers what is over (control-plane §2.1): keys of `controller` in a cluster file.

Must never decide what is over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_core.config.document import Value

RETENTION_KEYS: Final = frozenset({"prune_interval", "job_retention", "worker_retention"})
_DAY_MS: Final = 24 * 3_600_000
_MOST_MS: Final = 10 * 366 * _DAY_MS


@dataclass(frozen=True, slots=True)
class Retention:
    """Times in ms."""

    prune_interval_ms: int = 3_600_000
    """Between two looks at what may go."""
    job_ms: int = 7 * _DAY_MS
    """A job and everything below it go so long after the last of them ended; 0 = never."""
    worker_ms: int = _DAY_MS
    """A worker that was given up goes so long after its last message, or after the controller started; 0 = never."""


def parse_retention(keys: Mapping[str, Value]) -> Retention:
    """The keys of `controller`, others too. Raises UsageFailed, with file and line."""
    plain = Retention()
    return Retention(
        keys["prune_interval"].duration_ms(100, _DAY_MS) if "prune_interval" in keys else plain.prune_interval_ms,
        keys["job_retention"].duration_ms(0, _MOST_MS) if "job_retention" in keys else plain.job_ms,
        keys["worker_retention"].duration_ms(0, _MOST_MS) if "worker_retention" in keys else plain.worker_ms,
    )
