"""So many a minute: a bucket that holds one minute's worth and refills evenly. 0 = unlimited."""

from __future__ import annotations


class Rate:
    """One limit. Times are monotonic seconds, given by the caller."""

    def __init__(self, per_minute: int, now: float) -> None:
        self.per_minute = per_minute
        self._left = float(per_minute)
        self._at = now

    def left(self, now: float) -> int | None:
        """How many are allowed now; None = any number."""
        if not self.per_minute:
            return None
        passed = max(0.0, now - self._at)
        self._left = min(float(self.per_minute), self._left + passed * self.per_minute / 60)
        self._at = max(self._at, now)
        # What adds up to one in tenths must be one.
        return int(self._left + 1e-9)

    def take(self, count: int) -> None:
        """Uses up so many, which `left` has allowed."""
        self._left -= count if self.per_minute else 0
