"""Something that is read again every so often: what it is, how old it is, and what went wrong last.

What was read once stays when it cannot be read again; then it only ages. Whoever shows it asks `due` and runs `read` where it
may take its time; two reads never run at once, so `due` comes first. No clock of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Generic, TypeVar

from iris_core.contracts import IrisError
from iris_core.live.faults import fault_text

T = TypeVar("T")

EVERY_S: Final = 10.0
AGAIN_S: Final = 3.0
"""After a failure it is tried again so much later, and each time twice as late, up to a minute."""
LATEST_S: Final = 60.0


class Polled(Generic[T]):
    """`load` reads it and may raise IrisError; `every_s` 0 = once is enough."""

    def __init__(self, load: Callable[[], Awaitable[T]], *, every_s: float = EVERY_S) -> None:
        self.value: T | None = None
        self.fault = ""
        """Why it could not be read the last time, "" = it could."""
        self.version = 0
        """Changes with every value that was read."""
        self.read_at_ms = 0
        self._load = load
        self._every_s = every_s
        self._loading = False
        self._wanted = False
        """Whether it was wanted anew while it was being read: what comes of that may be of before."""
        self._began_s = 0.0
        self._next_s: float | None = None
        self._faults = 0

    @property
    def loaded(self) -> bool:
        """Whether it was read at least once."""
        return self.version > 0

    @property
    def loading(self) -> bool:
        """Whether it is being read."""
        return self._loading

    def waited_s(self, now_s: float) -> float:
        """How long the read that is under way has had no answer, 0 = there is none; `now_s` is monotonic."""
        return max(now_s - self._began_s, 0.0) if self._loading else 0.0

    def want(self) -> None:
        """Read it with the next chance, and where it is being read, once more after that."""
        self._next_s = None
        self._wanted = self._loading

    def due(self, now_s: float) -> bool:
        """Whether it is to be read now; `now_s` is monotonic."""
        if self._loading or (self._next_s is not None and now_s < self._next_s):
            return False
        return not (self.loaded and not self._every_s and not self.fault and self._next_s is not None)

    def read(self, now_s: float, now_ms: int) -> Coroutine[Any, Any, None]:
        """Read it: from now on it counts as being read, and the result is to be awaited. A failure is kept in `fault`."""
        self._loading = True
        self._began_s = now_s
        return self._read(now_s, now_ms)

    async def _read(self, now_s: float, now_ms: int) -> None:
        try:
            value = await self._load()
        except IrisError as error:
            self._faults += 1
            self.fault = fault_text(error)
            self._next_s = now_s + min(AGAIN_S * 2 ** (self._faults - 1), LATEST_S)
        else:
            self.value, self.fault, self._faults = value, "", 0
            self.version += 1
            self.read_at_ms = now_ms
            self._next_s = now_s + self._every_s
        finally:
            self._loading = False
            if self._wanted:
                self._wanted = False
                self._next_s = None
