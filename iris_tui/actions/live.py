"""What asks for something that only a running cluster has: logs, measurements, processes. On a checkpoint it is refused, with a reason.

What changes a cluster needs no place here: a checkpoint is read-only.
"""

from __future__ import annotations

from typing import Final

LIVE: Final = frozenset(
    {
        "target.logs",
        "target.profile",
        "target.hang",
        "capacity.machine_log",
        "workers.machine_log",
        "worker.process_log",
        "worker.machine_log",
        "worker.profile_worker",
    }
)
"""By the ids of the actions."""
