"""Finding in a view: the numbers of all lines in which a text or pattern stands, gathered once and used for every "next".

The store is searched under the bounds of the view by the same scan as everything, and what it finds is kept if it is in the view.
Must never go beyond the lines that have their numbers.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from dataclasses import replace
from typing import TYPE_CHECKING

from iris_controller.finelog.views import PAGE_LINES

if TYPE_CHECKING:
    from collections.abc import Generator

    from iris_controller.finelog.views import View
    from iris_core.model.regex import Compiled

ANSWER_S = 0.25
"""How long one answer of the store is searched for. Whoever runs a search and stops it loses the answer that is being made: much less
than they give it, so that one that is stopped again and again gets on."""


class Find:
    """All hits of one pattern in one view; with `min_level` only lines that state that level or a higher one."""

    def __init__(self, view: View, regex: Compiled | None, substring: str, min_level: int = 0) -> None:
        self._view = view
        base = view.query
        if view.context is not None:
            base = replace(base.ignoring_content, min_level=0, since_ms=0, until_ms=0)
        self._query = replace(base, regex=regex, substring=substring, tail=False, max_lines=PAGE_LINES)
        if min_level > 0:
            self._query = replace(self._query, min_level=max(min_level, base.min_level), states_level=True)
        self._hits = array("I")
        self._searched_to = -1
        """Not begun: where the view begins is known when it is complete."""

    @property
    def total(self) -> int:
        """Hits so far."""
        return len(self._hits)

    @property
    def is_complete(self) -> bool:
        """Whether every line that is numbered now was searched."""
        return self._view.is_complete and self._searched_to >= self._view.numbered_to

    @property
    def memory_bytes(self) -> int:
        """What it takes."""
        return len(self._hits) * self._hits.itemsize

    def advance(self) -> Generator[None]:
        """Searches what has a number and was not searched yet, an answer's worth of it at a time: whoever runs it may stop it."""
        numbers = self._view.numbers
        if self._searched_to < 0 and self._view.is_complete:
            self._searched_to = self._view.first_seq - 1
        while self._view.is_complete and self._searched_to < (end := self._view.numbered_to):
            query = replace(self._query, cursor=self._searched_to, before=end + 1)
            answer = yield from self._view.read_store(query, max_seconds=ANSWER_S)
            for line in answer.entries:
                number = numbers.number_of(line.seq)
                if number is not None:
                    insort(self._hits, number)
            if answer.cursor <= self._searched_to:
                return
            self._searched_to = answer.cursor

    def next(self, start: int, *, backward: bool) -> tuple[int, int] | None:
        """Number and ordinal (from 1) of the hit at or behind line `start`, or at or before it; None if there is none."""
        place = bisect_right(self._hits, start) - 1 if backward else bisect_left(self._hits, start)
        if not 0 <= place < len(self._hits):
            return None
        return self._hits[place], place + 1
