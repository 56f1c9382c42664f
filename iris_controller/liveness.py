"""When a worker is healthy, degraded or dead (DESIGN §4 "Workers attach").

Pure arithmetic over monotonic seconds: no message for `dead_after`/5, or a closed stream, is DEGRADED; each further
`dead_after`/10 counts a failure; at three or more, and `dead_after` since its last message, it is DEAD. Time counts from the
controller's boot at the earliest. Must never use the wall clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from iris_core.model.states import WorkerHealth

FAILURES_TO_DIE = 3


@dataclass(slots=True)
class Liveness:
    """One worker's contact. `last_message` in monotonic seconds."""

    last_message: float
    attached: bool = False

    def heard(self, now: float) -> None:
        self.last_message = now

    def forgive(self, seconds: float, now: float) -> None:
        """Leaves out a time in which nobody listened."""
        self.last_message = min(now, self.last_message + seconds)

    def failures(self, now: float, dead_after_s: float) -> int:
        """Missed tenths beyond the grace of a fifth."""
        silent = now - self.last_message - dead_after_s / 5
        return max(0, int(silent / (dead_after_s / 10)))

    def health(self, now: float, dead_after_s: float) -> WorkerHealth:
        silent = now - self.last_message
        if silent >= dead_after_s and self.failures(now, dead_after_s) >= FAILURES_TO_DIE:
            return WorkerHealth.DEAD
        if not self.attached or silent > dead_after_s / 5:
            return WorkerHealth.DEGRADED
        return WorkerHealth.HEALTHY
