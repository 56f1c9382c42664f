"""The order in which the lines of several keys stand in a view: by time, and the parts of a line together.

Ranks that ran side by side reach the store a little out of step, so a line is held until nothing earlier can be expected. A line's
place is its time, but never before an earlier line of its own key: a clock that is set back moves nothing. Must never hold more than
it says.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_controller.finelog.spans import Place
    from iris_core.wire.gen.iris.v1 import logs_pb2

DISORDER_MS = 60_000
"""How far out of step lines may reach the store and still be put in order when a view is opened."""
MAX_HELD = 50_000
"""Lines held at most; then the earliest go."""
MAX_OPEN = 10_000

_Held = tuple[int, str, int, int, int, float]
"""Place in time, key, seq of the line's first part, seq, flags, when it came."""


class TimeOrder:
    """Lines by (time, key, seq of their first part, seq). What goes out is seqs with flags."""

    def __init__(self) -> None:
        self._held: list[_Held] = []
        self._latest_of: dict[str, int] = {}
        self._open: dict[tuple[str, str, str], tuple[int, int]] = {}
        self._latest = 0

    def __len__(self) -> int:
        return len(self._held)

    def lowest_seq(self) -> int:
        """The lowest seq among the held lines. There must be one."""
        return min(held[3] for held in self._held.copy())

    def push(self, lines: Iterable[tuple[logs_pb2.StoredLine, int]], arrived: float = 0.0) -> None:
        """Takes lines with their flags. Those of one key must come in the order of seq."""
        add = self._held.append
        latest_of = self._latest_of
        for line, flags in lines:
            key, seq, place = line.key, line.seq, line.epoch_ms
            if line.part or line.partial:
                place, head = self._place_of_part(line)
            else:
                head = seq
                known = latest_of.get(key)
                if known is not None and known > place:
                    place = known
                else:
                    latest_of[key] = place
            add((place, key, head, seq, flags, arrived))
            self._latest = max(self._latest, place)

    def push_all(self, places: Iterable[Place]) -> None:
        """The same for lines without a flag, of which only what matters here is known."""
        add = self._held.append
        latest_of = self._latest_of
        latest = self._latest
        for line in places:
            seq, key, place, partial, part, _, _ = line
            if part or partial:
                place, head = self._place_of_part(line)
            else:
                head = seq
                known = latest_of.get(key)
                if known is not None and known > place:
                    place = known
                else:
                    latest_of[key] = place
            if place > latest:
                latest = place
            add((place, key, head, seq, 0, 0.0))
        self._latest = latest

    def _place_of_part(self, line: logs_pb2.StoredLine | Place) -> tuple[int, int]:
        """The place of its first part, and that one's seq."""
        stream = (line.key, line.attempt_uid, line.source)
        head = self._open.pop(stream, None) if line.part else None
        if head is None:
            place = max(line.epoch_ms, self._latest_of.get(line.key, line.epoch_ms))
            self._latest_of[line.key] = place
            head = (place, line.seq)
        if line.partial and len(self._open) < MAX_OPEN:
            self._open[stream] = head
        return head

    def settled(self) -> list[tuple[int, int]]:
        """Those that nothing earlier is expected for, while older lines are read."""
        self._held.sort()
        due = bisect_right(self._held, self._latest - DISORDER_MS, key=lambda held: held[0])
        return self._out(max(due, len(self._held) - MAX_HELD))

    def arrived(self, before: float) -> list[tuple[int, int]]:
        """The earliest, as long as they came before that moment."""
        self._held.sort()
        due = next((place for place, held in enumerate(self._held) if held[5] > before), len(self._held))
        return self._out(max(due, len(self._held) - MAX_HELD))

    def rest(self) -> list[tuple[int, int]]:
        """All that are left."""
        self._held.sort()
        return self._out(len(self._held))

    def _out(self, count: int) -> list[tuple[int, int]]:
        found = [(held[3], held[4]) for held in self._held[:count]]
        self._held = self._held[count:]
        return found
