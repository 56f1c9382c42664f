"""Which request ids may have been answered, so that a new one, as nearly all are, need not be looked for in the database.

A filter with false alarms and without misses (Bloom's): what it does not hold was never answered within the time that answers are kept.
Two of them, an older and a younger one, so that what is forgotten in the database is forgotten here in the end. Must never be the only
witness that something was answered: whatever it holds is looked up.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

KEPT_S: Final = 25 * 3_600
"""How long an id is held at least; answers are kept for 24 hours."""
_BITS: Final = 24
"""Two MiB a filter, touched only as ids come; of a million ids a day one new id in seventy is looked up."""
_MASK: Final = (1 << _BITS) - 1


class AnsweredIds:
    """See the module. `stored` are the (principal, request id) that the database holds at boot."""

    def __init__(self, stored: Iterable[tuple[str, str]] = (), clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._older = _Filter()
        self._younger = _Filter()
        self._turned = clock()
        for key in stored:
            self.add(key)

    def add(self, key: tuple[str, str]) -> None:
        """The id may be answered from now on."""
        if self._clock() - self._turned > KEPT_S:
            self._older, self._younger = self._younger, _Filter()
            self._turned = self._clock()
        self._younger.add(hash(key))

    def __contains__(self, key: tuple[str, str]) -> bool:
        value = hash(key)
        return value in self._younger or value in self._older


class _Filter:
    def __init__(self) -> None:
        self._bits = bytearray(1 << (_BITS - 3))

    def add(self, value: int) -> None:
        for bit in (value & _MASK, value >> _BITS & _MASK):
            self._bits[bit >> 3] |= 1 << (bit & 7)

    def __contains__(self, value: int) -> bool:
        first, second, bits = value & _MASK, value >> _BITS & _MASK, self._bits
        return bool(bits[first >> 3] >> (first & 7) & 1 and bits[second >> 3] >> (second & 7) & 1)
