"""Workers in the order in which something on them changed, for searches that look again only where it did.

A reader keeps a position. One that lags behind what is kept begins anew, so the log is short and needs to know no reader. Must
never say what has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class ChangeLog:
    """See the module."""

    def __init__(self) -> None:
        self._start = 0
        """Position of the first entry that is kept."""
        self._entries: list[str] = []

    @property
    def now(self) -> int:
        """The position behind the latest entry."""
        return self._start + len(self._entries)

    def add(self, workers: Iterable[str]) -> None:
        self._entries.extend(workers)

    def since(self, position: int) -> dict[str, None] | None:
        """The workers that changed since, each once; None when that is not known any more, or nothing was read yet (-1)."""
        if position < self._start:
            return None
        return dict.fromkeys(self._entries[position - self._start :])

    def trim(self, most: int) -> None:
        """Forgets the older half once more than `most` entries are kept."""
        if len(self._entries) > most:
            gone = len(self._entries) // 2
            self._start += gone
            del self._entries[:gone]
