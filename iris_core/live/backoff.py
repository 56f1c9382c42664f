"""How long to wait before the next try: doubling with jitter, for ever, so that a restarted controller is not stampeded."""

from __future__ import annotations

import random


class Backoff:
    """Delays of 0.5 s doubling to 15 s, each shortened by up to half at random. `reset()` after a success."""

    def __init__(self, *, first_s: float = 0.5, most_s: float = 15.0, rng: random.Random | None = None) -> None:
        self.first_s = first_s
        self.most_s = most_s
        self._rng = rng or random.Random()
        self._failures = 0

    def next_s(self, *, at_least_s: float = 0.0) -> float:
        """The next delay in seconds. `at_least_s` is what the server asked for."""
        ceiling = min(self.most_s, self.first_s * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return max(ceiling * self._rng.uniform(0.5, 1.0), at_least_s)

    def reset(self) -> None:
        """The next failure starts with the shortest delay again."""
        self._failures = 0
