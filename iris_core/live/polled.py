"""Something that is read again every so often: what it is, how old it is, and what went wrong last.

What was read once stays when it cannot be read again; then it only ages. Whoever shows it asks `due` and runs `read` where it
may take its time; two reads never run at once, so `due` comes first. No clock of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Generic, TypeVar

from iris_core.contracts import IrisError
from iris_core.model.text import one_line

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

    def want(self) -> None:
        """Read it with the next chance."""
        self._next_s = None

    def due(self, now_s: float) -> bool:
        """Whether it is to be read now; `now_s` is monotonic."""
        if self._loading or (self._next_s is not None and now_s < self._next_s):
            return False
        return not (self.loaded and not self._every_s and not self.fault and self._next_s is not None)

    def read(self, now_s: float, now_ms: int) -> Coroutine[Any, Any, None]:
        """Read it: from now on it counts as being read, and the result is to be awaited. A failure is kept in `fault`."""
        self._loading = True
        return self._read(now_s, now_ms)

    async def _read(self, now_s: float, now_ms: int) -> None:
        try:
            value = await self._load()
        except IrisError as error:
            self._faults += 1
            self.fault = one_line(error.message) + (f"; {one_line(error.hint)}" if error.hint else "")
            self._next_s = now_s + min(AGAIN_S * 2 ** (self._faults - 1), LATEST_S)
        else:
            self.value, self.fault, self._faults = value, "", 0
            self.version += 1
            self.read_at_ms = now_ms
            self._next_s = now_s + self._every_s
        finally:
            self._loading = False
