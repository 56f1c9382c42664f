"""The order in which the lines of several keys stand in a view: by time, and the parts of a line together.

Ranks that ran side by side reach the store a little out of step, so a line is held until nothing earlier can be expected. A line's
place is its time, but never before an earlier line of its own key: a clock that is set back moves nothing. Must never hold more than
it says.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iris_core.wire.gen.iris.v1 import logs_pb2

DISORDER_MS = 60_000
"""How far out of step lines may reach the store and still be put in order when a view is opened."""
MAX_HELD = 50_000
"""Lines held at most; then the earliest go."""
MAX_OPEN = 10_000


class _Held(NamedTuple):
    place_ms: int
    key: str
    head_seq: int
    seq: int
    flags: int
    arrived: float


class TimeOrder:
    """Lines by (time, key, seq of their first part, seq)."""

    def __init__(self) -> None:
        self._heap: list[_Held] = []
        self._latest_of: dict[str, int] = {}
        self._open: dict[tuple[str, str, str], tuple[int, int]] = {}
        self._latest = 0

    def __len__(self) -> int:
        return len(self._heap)

    def lowest_seq(self) -> int:
        """The lowest seq among the held lines. There must be one."""
        return min(held.seq for held in list(self._heap))

    def push(self, line: logs_pb2.StoredLine, flags: int, arrived: float = 0.0) -> None:
        """Takes a line. Those of one key must come in the order of seq."""
        stream = (line.key, line.attempt_uid, line.source)
        head = self._open.pop(stream, None) if line.part or line.partial else None
        if head is None or not line.part:
            place = max(line.epoch_ms, self._latest_of.get(line.key, 0))
            self._latest_of[line.key] = place
            head = (place, line.seq)
        if line.partial and len(self._open) < MAX_OPEN:
            self._open[stream] = head
        self._latest = max(self._latest, head[0])
        heapq.heappush(self._heap, _Held(head[0], line.key, head[1], line.seq, flags, arrived))

    def settled(self) -> Iterator[tuple[int, int]]:
        """Seq and flags of those that nothing earlier is expected for, while older lines are read."""
        before = self._latest - DISORDER_MS
        while self._heap and (self._heap[0].place_ms <= before or len(self._heap) > MAX_HELD):
            yield self._pop()

    def arrived(self, before: float) -> Iterator[tuple[int, int]]:
        """Seq and flags of the earliest, as long as they came before that moment."""
        while self._heap and (self._heap[0].arrived <= before or len(self._heap) > MAX_HELD):
            yield self._pop()

    def rest(self) -> Iterator[tuple[int, int]]:
        """Seq and flags of all that are left."""
        while self._heap:
            yield self._pop()

    def _pop(self) -> tuple[int, int]:
        held = heapq.heappop(self._heap)
        return held.seq, held.flags
