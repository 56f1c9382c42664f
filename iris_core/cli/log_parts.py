"""The whole of a line that the store keeps in parts, when a search found one of them; and how many lines entries are.

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


class LineCount:
    """How many lines there are among entries, of which some are parts of one. Takes memory for each line with parts."""

    def __init__(self) -> None:
        self._whole = 0
        self._long: set[tuple[str, str, str, int]] = set()

    @property
    def lines(self) -> int:
        """So far."""
        return self._whole + len(self._long)

    def take(self, entries: Iterable[StoredLine]) -> None:
        """More entries, in any order."""
        for entry in entries:
            if entry.partial or entry.part:
                self._long.add(_line_of(entry))
            else:
                self._whole += 1


def _line_of(part: StoredLine) -> tuple[str, str, str, int]:
    """Which line it is a part of."""
    return part.key, part.attempt_uid, part.source, part.number - (part.back or part.part)


class WholeLines:
    """`fetch` answers one request as it is; a line with `without` (RE2, "" = none) in any of its parts is left out. Raises what `fetch` raises."""

    def __init__(self, fetch: Fetch, *, without: str = "") -> None:
        self._fetch = fetch
        self._without = without
        self._given: set[int] = set()
        self._order: deque[int] = deque()
        self._ahead: dict[tuple[str, str, str, int], tuple[int, int]] = {}
        self._unended: dict[tuple[str, str, str, int], StoredLine] = {}
        """The last part that was given of each line whose next one was not there yet."""
        self._begun: set[tuple[str, str, str, int]] = set()
        """Lines that go on in the answer at hand."""

    def complete(self, answer: FetchLogsResponse) -> None:
        """Puts all parts of each line into an answer, and takes from its counts what other answers count as well."""
        begun = self._unended.keys() & {_line_of(entry) for entry in answer.entries}
        self._go_on(answer)
        if not self._ahead and not any(entry.partial or entry.part for entry in answer.entries):
            return
        known = begun | {_line_of(entry) for entry in answer.entries if entry.seq in self._given}
        long = {_line_of(entry) for entry in answer.entries if entry.partial or entry.part}
        whole = self.of(answer.entries)
        # Those that are left out altogether, although some of their parts passed.
        known |= long - {_line_of(entry) for entry in whole}
        del answer.entries[:]
        answer.entries.extend(whole)
        answer.shown -= len(known)
        answer.matched = max(answer.shown, answer.matched - len(known | self._ahead.keys()))
        # Whoever reads on finds these again, up to their ends.
        for entry in whole:
            if entry.partial or entry.part:
                low, high = self._ahead.get(_line_of(entry), (entry.seq, entry.seq))
                self._ahead[_line_of(entry)] = min(low, entry.seq), max(high, entry.seq)
        first, last = answer.from_seq, answer.last_seq if answer.from_seq else answer.cursor
        self._ahead = {line: ends for line, ends in self._ahead.items() if ends[0] < first or ends[1] > last}

    def _go_on(self, answer: FetchLogsResponse) -> None:
        """Puts what has come since of lines that were begun into the answer: a filter need not let it through."""
        rest: list[StoredLine] = []
        for line, last in list(self._unended.items()):
            found = self._fetch(self._around(last, cursor=last.seq))
            following = [entry for entry in found.entries if entry.source == last.source and not entry.gap]
            if not following:
                continue
            del self._unended[line]
            if min(following, key=lambda entry: entry.seq).part == last.part + 1:
                rest += self._after(last, 0)
                self._begun.add(line)
        if rest:
            entries = {entry.seq: entry for entry in (*answer.entries, *rest)}
            del answer.entries[:]
            answer.entries.extend(entries[seq] for seq in sorted(entries))

    def of(self, entries: Iterable[StoredLine]) -> list[StoredLine]:
        """The entries, with all parts of each line of which one is among them."""
        found: list[StoredLine] = []
        for entry in entries:
            if entry.seq in self._given:
                continue
            if entry.gap or not (entry.partial or entry.part):
                found.append(entry)
                continue
            parts, line = self._parts(entry), _line_of(entry)
            # What was shown in part is shown whole.
            is_left_out = bool(self._without) and line not in self._begun and self._is_found(parts)
            self._begun.discard(line)
            if parts[-1].partial and not is_left_out and sum(len(part.data) for part in parts) < MAX_JOINED_BYTES:
                self._unended[line] = parts[-1]
            for part in parts:
                if part.seq not in self._given:
                    self._remember(part.seq)
                    if not is_left_out:
                        found.append(part)
        return found

    def _is_found(self, parts: list[StoredLine]) -> bool:
        """Whether what is to be left out stands in the line of these parts: the store gave those in which it does not."""
        line, cursor, end = _line_of(parts[0]), parts[0].seq - 1, parts[-1].seq
        while cursor < end:
            request = self._around(parts[0], cursor=cursor, before=end + 1)
            request.regex = self._without
            answer = self._fetch(request)
            if any(_line_of(entry) == line for entry in answer.entries):
                return True
            if answer.cursor <= cursor:
                break
            cursor = answer.cursor
        return False

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
        return [*reversed(before), entry, *self._after(entry, size)]

    def _after(self, entry: StoredLine, size: int) -> list[StoredLine]:
        """The parts behind that one, as far as they are there; `size` is what there is of the line before them."""
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
        return after

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
