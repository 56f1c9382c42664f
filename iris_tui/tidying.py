"""When the interpreter looks for garbage: while nobody presses a key.

Python looks through every object it has when it thinks it is time: a tenth of a second with a hundred thousand rows, and a key that comes
then waits for it. Here the whole look is taken in turns of the operator's rest, at most once a minute, and what survived it is not
looked at again until the next one. Where next to nothing was made since, there is next to nothing to find, and it is left out: it was
a third of what a console takes in which nothing changes. Must never keep it from happening for good: what refers to itself is only
freed by it.
"""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

REST_S: Final = 2.0
"""So long must no key have come."""
EVERY_S: Final = 60.0
LATEST_S: Final = 900.0
"""So long after the last one it is taken whatever was made."""
WORTH_IT: Final = 300
"""Small looks since then that make another one worth it: some hundred thousand objects at most were made and are still there."""
UNTIL_BY_ITSELF: Final = 500
"""After so many small looks without a rest the interpreter takes a whole one by itself: some millions of objects later."""


def small_looks() -> int:
    """How often the interpreter has looked through what was made last: each time some hundred objects were."""
    return int(gc.get_stats()[0]["collections"])


class Tidying:
    """Call `begin` once, and `beat` several times a second."""

    def __init__(
        self, now_s: Callable[[], float] = time.monotonic, small_looks: Callable[[], int] = small_looks
    ) -> None:
        self._now_s = now_s
        self._small_looks = small_looks
        self._not_before = 0.0
        self._not_after = 0.0
        self._seen = 0
        """Small looks until the last whole one."""

    def begin(self) -> None:
        """From now on whole looks are taken here."""
        self._not_before = self._now_s() + REST_S
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, UNTIL_BY_ITSELF)

    def beat(self, key_at_s: float) -> bool:
        """Takes a look if it is time; returns whether it did. `key_at_s` is when the last key came, by the same clock."""
        now_s = self._now_s()
        if now_s < self._not_before or now_s - key_at_s < REST_S:
            return False
        self._not_before = now_s + EVERY_S
        if now_s < self._not_after and self._small_looks() - self._seen < WORTH_IT:
            return False
        self._not_after = now_s + LATEST_S
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._seen = self._small_looks()
        return True
