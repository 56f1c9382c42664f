"""The whole of a line that the store keeps in parts, when a search found one of them.

A filter passes the parts that match; what is shown is the line. The other parts are read by their key and attempt, around the one that
was found, and each line is given once however many of its parts match. Must never read further than the line goes.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from iris_core.cli.log_lines import MAX_JOINED_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_core.wire.gen.iris.v1.logs_pb2 import FetchLogsRequest, FetchLogsResponse, StoredLine

    Fetch = Callable[[FetchLogsRequest], FetchLogsResponse]

PAGE_PARTS: Final = 2_500
"""As many as travel over gRPC: megabytes of text are slow as JSON."""
REMEMBERED: Final = 100_000


class WholeLines:
    """`fetch` answers one request as it is. Raises what `fetch` raises."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._given: set[int] = set()
        self._order: deque[int] = deque()

    def of(self, entries: Iterable[StoredLine]) -> list[StoredLine]:
        """The entries, with all parts of each line of which one is among them."""
        found: list[StoredLine] = []
        for entry in entries:
            if entry.seq in self._given:
                continue
            if entry.gap or not (entry.partial or entry.part):
                found.append(entry)
                continue
            for part in self._parts(entry):
                if part.seq not in self._given:
                    self._remember(part.seq)
                    found.append(part)
        return found

    def _parts(self, entry: StoredLine) -> list[StoredLine]:
        """All parts of its line, in their order."""
        before: list[StoredLine] = []
        size, number, place = len(entry.data), entry.part, entry.seq
        while number and place and size < MAX_JOINED_BYTES:
            answer = self._fetch(self._around(entry, before=place, tail=True))
            for part in sorted(answer.entries, key=lambda line: -line.seq):
                if number and part.source == entry.source and part.part == number - 1 and part.partial:
                    before.append(part)
                    size += len(part.data)
                    number = part.part
            place = answer.from_seq
        after: list[StoredLine] = []
        goes_on, number, cursor = entry.partial, entry.part, entry.seq
        while goes_on and size < MAX_JOINED_BYTES:
            answer = self._fetch(self._around(entry, cursor=cursor))
            for part in sorted(answer.entries, key=lambda line: line.seq):
                if goes_on and part.source == entry.source and part.part == number + 1:
                    after.append(part)
                    size += len(part.data)
                    goes_on, number = part.partial, part.part
            if answer.cursor >= answer.last_seq or answer.cursor <= cursor:
                break
            cursor = answer.cursor
        return [*reversed(before), entry, *after]

    def _around(self, entry: StoredLine, *, cursor: int = 0, before: int = 0, tail: bool = False) -> FetchLogsRequest:
        from iris_core.wire.gen.iris.v1.common_pb2 import MATCH_SCOPE_EXACT
        from iris_core.wire.gen.iris.v1.logs_pb2 import FetchLogsRequest

        return FetchLogsRequest(
            source=entry.key,
            match_scope=MATCH_SCOPE_EXACT,
            attempt_uid=entry.attempt_uid,
            cursor=cursor,
            before=before,
            tail=tail,
            max_lines=PAGE_PARTS,
        )

    def _remember(self, seq: int) -> None:
        self._given.add(seq)
        self._order.append(seq)
        if len(self._order) > REMEMBERED:
            self._given.discard(self._order.popleft())
