"""How soon after one slice of a group another one may be replaced.

A slice that becomes ready ends the pause of its group. One that breaks as the one before did would be bought again at once, and so on:
so the pauses between replacements double as those of failures do (`backoff`), and only time ends them. Must never look at a clock.
"""

from __future__ import annotations

from typing import Final

from iris_controller.autoscaling import backoff

FORGOTTEN_S: Final = 2 * backoff.LONGEST_PAUSE_MS / 1000
"""After so long without one the pauses begin anew."""


class Replacements:
    """Of all groups; times are monotonic seconds."""

    def __init__(self) -> None:
        self._latest: dict[str, tuple[float, int]] = {}
        """When a slice of each group was replaced last, and how many one after the other."""

    def may(self, name: str, now: float) -> bool:
        """Whether the pause of the group is over."""
        at, in_a_row = self._latest.get(name, (now, 0))
        return not in_a_row or now - at >= backoff.pause_ms(in_a_row) / 1000

    def note(self, name: str, now: float) -> None:
        """A slice of the group is replaced now."""
        at, in_a_row = self._latest.get(name, (now, 0))
        self._latest[name] = now, (in_a_row if now - at < FORGOTTEN_S else 0) + 1
