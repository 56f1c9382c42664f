"""How many commands are worth waiting for before a batch is begun.

Callers who wait for their answers come back together, a moment after the batch that answered them. Were the first of them taken at
once, all the others would wait for a commit that it has for itself. So a batch is begun once half of those who were seen lately are
there: the other half comes while it is written, and from then on nobody waits for anybody. Fewer than a few are never waited for,
nobody for longer than half a commit, and after a while without a batch nobody at all. Must never decide what is done, only when.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_SECONDS: Final = 0.003
"""However long a commit takes."""
SHARE_OF_COMMIT: Final = 0.5
FORGOTTEN_SECONDS: Final = 0.1
FEW: Final = 8
"""Fewer are not waited for: the commits that it would save are not worth the while of those who are there."""


class Crowd:
    """What the latest batches say of who may come. `most_s` limits each wait; `clock` is monotonic seconds."""

    def __init__(self, most_s: float = MOST_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_s = most_s
        self._clock = clock
        self._seen = 0
        self._commit_s = 0.0
        self._until = 0.0

    def committed(self, commands: int, waiting: int, commit_s: float) -> None:
        """A batch of so many commands was written; so many more came meanwhile."""
        if commands:
            # One small batch among large ones does not mean that the others are gone.
            self._seen = max(commands + waiting, self._seen - self._seen // 8 - 1)
            self._commit_s = commit_s
            self._until = self._clock() + FORGOTTEN_SECONDS

    def enough(self) -> int:
        """With so many commands a batch is begun at once; 0 = whatever is there."""
        return self._seen // 2 if self._seen >= FEW and self._clock() < self._until else 0

    def patience_s(self) -> float:
        """How long a batch may be put off for more."""
        return min(self._most_s, self._commit_s * SHARE_OF_COMMIT)
