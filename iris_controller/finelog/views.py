"""A view: the lines of a log under one filter, numbered once and for all, found and read in slices.

Opening searches what is stored and remembers which line has which number, not the lines: those are read when they are asked for. New
lines get numbers behind the last one, so whatever arrives, is compacted or removed meanwhile, a number means the same line; one that
retention took is said to be gone. Every method is a generator that gives way every few hundredths of a second, so that many readers
take turns on few threads.

Must never hold more than `MAX_LINES` numbers or `MAX_NUMBER_BYTES` of them, and never a line beyond an answer.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from iris_controller.finelog.moments import Moments
from iris_controller.finelog.numbers import BREAKS, CONTEXT, Numbers
from iris_controller.finelog.order import TimeOrder
from iris_controller.finelog.parts import LineCount
from iris_controller.finelog.reader import MAX_SECONDS, answering
from iris_controller.finelog.spans import is_whole, places, spans
from iris_controller.finelog.surroundings import Surroundings
from iris_core.wire.gen.iris.v1 import logs_pb2
from iris_core.wire.log_losses import merged

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from iris_controller.finelog.query import Query
    from iris_controller.finelog.store import Store

MAX_LINES = 20_000_000
MAX_NUMBER_BYTES = 64 << 20
"""What the numbers of one view take at most; those of a log by itself take a tenth of that for `MAX_LINES`."""
MAX_CONTEXT = 1_000
MAX_CONTEXT_HITS = 20_000
"""Hits whose surroundings are read; each costs reading about a thousand lines unless they lie close."""
PAGE_LINES = 20_000
STEP_S = 0.02
NEAR_SEQS = 4_096
"""Lines that lie no further apart are read together."""

Answer = logs_pb2.FetchLogsResponse
_seq = attrgetter("seq")


class View:
    """One view. `query` has the scope, the bounds and the filter; `limit` hits at most; `context` None = the hits alone.

    The generators below must not run side by side, except `read` and `find`, which may run beside any.
    """

    def __init__(self, store: Store, query: Query, *, limit: int = 0, context: int | None = None) -> None:
        self._most = most = MAX_CONTEXT_HITS if context is not None else MAX_LINES
        self.query = query
        self.context = context
        self.numbers = Numbers()
        self.hits = 0
        self._count = LineCount()
        self.scanned = 0
        self.scanned_to = query.cursor
        self.is_complete = False
        self.full_reason = ""
        """Why no more lines will come, "" = they may."""
        self._store = store
        self._limit = min(limit, most) if limit else most
        what = "hits with their context" if context is not None else "lines"
        self._limit_word = (
            f"{limit:,} lines were asked for" if 0 < limit <= most else f"a view holds at most {most:,} {what}"
        )
        self._is_tail = query.tail
        self._reasons: dict[str, None] = {}
        self._notes: dict[str, None] = {}
        self._order = None if query.scope.is_one else TimeOrder()
        self._around = Surroundings(query, context, self.read_store) if context is not None else None

    @property
    def is_full(self) -> bool:
        """Whether no line will be added any more."""
        return bool(self.full_reason)

    @property
    def held(self) -> int:
        """Lines that wait for their place."""
        return len(self._order) if self._order is not None else 0

    @property
    def first_seq(self) -> int:
        """No line of the view has a lower seq."""
        return self.numbers.lowest_seq() or self.scanned_to + 1

    @property
    def numbered_to(self) -> int:
        """Every line of the view up to this seq has its number."""
        if self._order is None or not self._order:
            return self.scanned_to
        return min(self.scanned_to, self._order.lowest_seq() - 1)

    @property
    def _unfiltered(self) -> Query:
        """For reading lines that have a number, whatever they say."""
        return replace(self.query.ignoring_content, min_level=0, since_ms=0, until_ms=0)

    @property
    def memory_bytes(self) -> int:
        """What it takes, about."""
        return 4_096 + self.numbers.memory_bytes + self.held * 300

    def state(self) -> logs_pb2.LogViewState:
        """How it stands."""
        reasons = [*([self.full_reason] if self.is_full else []), *self._reasons]
        return logs_pb2.LogViewState(
            lines=len(self.numbers),
            hits=self.hits,
            scanned=self.scanned,
            scanned_to=self.scanned_to,
            last_seq=self._store.last_seq,
            complete=self.is_complete,
            capped=bool(reasons),
            capped_reason="; ".join(reasons),
            full=self.is_full,
            held=self.held,
            notes=list(self._notes),
            memory_bytes=self.memory_bytes,
        )

    # Searching ----------------------------------------------------------------------------------------------------

    def build(self) -> Generator[None]:
        """Searches what is stored now."""
        end = self._end()
        if self._is_tail:
            yield from self._last(end)
        else:
            if self.context is None and self._limit >= self._most and is_whole(self.query):
                yield from self._by_index(end)
                if self.scanned_to < end and self._order is not None and not self.is_full:
                    yield from self._by_place(end, self._order)
            yield from self._forward(end)
        if self._order is not None:
            self._number(self._order.rest())
        self.is_complete = True

    def extend(self, now: float) -> Generator[None]:
        """Searches what was stored since. Lines of several keys are held for the moment: `settle` numbers them."""
        yield from self._forward(self._end(), arrived=now)

    def settle(self, before: float) -> None:
        """Numbers the held lines that came before that moment."""
        if self._order is not None:
            self._number(self._order.arrived(before))

    def _by_index(self, end: int) -> Generator[None]:
        """Numbers the lines of a log by itself without looking at them. Of any other nothing is done."""
        work = spans(self._store, self.query, self.scanned_to + 1, end + 1)
        began = time.monotonic()
        while not self.is_full:
            try:
                seqs = next(work)
            except StopIteration as over:
                if over.value is None:
                    return
                self._reasons.update(dict.fromkeys(over.value))
                self.scanned_to = end
                break
            if seqs:
                self._number_seqs(seqs)
            if time.monotonic() - began >= STEP_S:
                yield
                began = time.monotonic()
        self.scanned_to = max(self.scanned_to, end)
        self.hits = self.scanned = len(self.numbers)

    def _by_place(self, end: int, order: TimeOrder) -> Generator[None]:
        """Numbers the lines of several logs by their keys and times, without looking at their texts."""
        work = places(self._store, self.query, self.scanned_to + 1, end + 1)
        while not self.is_full:
            try:
                piece = next(work)
            except StopIteration as over:
                self._reasons.update(dict.fromkeys(over.value))
                self.scanned_to = end
                return
            order.push_all(piece)
            self.hits += sum(not place.partial for place in piece)
            self.scanned += len(piece)
            if piece:
                self.scanned_to = piece[-1].seq
            self._number(order.settled())
            yield

    def _number_seqs(self, seqs: Sequence[int]) -> None:
        room = self._room()
        self.numbers.extend_seqs(seqs[:room])
        if len(seqs) > room:
            self._say_full()

    def _room(self) -> int:
        """How many more lines get a number."""
        return MAX_LINES - len(self.numbers) if self.numbers.memory_bytes < MAX_NUMBER_BYTES else 0

    def _say_full(self) -> None:
        if not self.full_reason:
            count = len(self.numbers)
            what = f"{MAX_LINES:,} lines" if count >= MAX_LINES else f"{MAX_NUMBER_BYTES >> 20} MiB of numbers"
            self.full_reason = f"a view holds at most {what}, and this one is full with {count:,} lines"

    def _end(self) -> int:
        last = self._store.last_seq
        return min(last, self.query.before - 1) if self.query.before else last

    def _forward(self, end: int, arrived: float = 0.0) -> Generator[None]:
        while self.scanned_to < end and not self.is_full:
            left = self._limit - self.hits
            answer = yield from self.read_store(
                replace(
                    self.query,
                    cursor=self.scanned_to,
                    before=end + 1,
                    tail=False,
                    max_lines=max(1, min(PAGE_LINES, left)),
                )
            )
            if left <= 0 and answer.entries and not self._count.holds(answer.entries[0]):
                self.full_reason = self._limit_word
                return
            if answer.cursor <= self.scanned_to:
                return
            yield from self._take(answer.entries, answer.cursor, arrived)
            self.scanned_to = answer.cursor
            self._note(answer, cut=self.scanned_to < end)
            if self._order is not None and not arrived:
                self._number(self._order.settled())

    def _last(self, end: int) -> Generator[None]:
        """Finds where the last lines begin, then goes forward from there: nothing is kept meanwhile."""
        count, before, start = LineCount(), end + 1, self.query.cursor
        while before > start + 1:
            left = self._limit - count.lines
            answer = yield from self.read_store(
                replace(self.query, before=before, tail=True, max_lines=max(1, min(PAGE_LINES, left)))
            )
            if left <= 0 and answer.entries and not count.holds(answer.entries[-1]):
                start = before - 1
                self._reasons[self._limit_word] = None
                break
            for line in sorted(answer.entries, key=_seq, reverse=True):
                count.take(line)
            before = answer.from_seq
        self.scanned_to = start
        yield from self._forward(end)
        # What comes later is added behind them.
        self._limit = self._most

    def _take(self, hits: Iterable[logs_pb2.StoredLine], upto: int, arrived: float) -> Generator[None]:
        lines = list(hits)
        if self._order is not None:
            lines.sort(key=_seq)
        before = self._count.lines
        for line in lines:
            self._count.take(line)
        self.hits += self._count.lines - before
        if self._around is not None:
            flagged = yield from self._around.of(lines, upto)
        else:
            flagged = [(line, 0) for line in lines]
        if self._order is None:
            self._number([(line.seq, flags) for line, flags in flagged])
        else:
            self._order.push(flagged, arrived)

    def _number(self, lines: list[tuple[int, int]]) -> None:
        room = self._room()
        self.numbers.extend(lines[:room])
        if len(lines) > room:
            self._say_full()

    def _note(self, answer: Answer, *, cut: bool) -> None:
        self.scanned += answer.scanned
        self._notes.update(dict.fromkeys(answer.notes))
        # A page that was cut, which its first reason says, goes on with the next one.
        reasons = answer.capped_reason.split("; ")[cut:] if answer.capped else []
        self._reasons = dict.fromkeys(merged(self._reasons, reasons))

    # Reading ------------------------------------------------------------------------------------------------------

    def read(self, first: int, count: int, max_bytes: int) -> Generator[None, None, list[logs_pb2.ViewLine]]:
        """Up to `count` lines from number `first` on; fewer at the end of the view and if they are large, at least one if there is one."""
        page = self.numbers.page(first, count)
        lines, is_cut = yield from self._lines([seq for seq, _ in page], max_bytes)
        if is_cut and page and page[0][0] not in lines:
            lines, _ = yield from self._lines([page[0][0]], max_bytes)
            page = page[:1]
            is_cut = False
        found: list[logs_pb2.ViewLine] = []
        for number, (seq, flags) in enumerate(page, first):
            line = lines.get(seq)
            if line is None and is_cut:
                break
            made = logs_pb2.ViewLine(
                number=number, is_context=bool(flags & CONTEXT), breaks=bool(flags & BREAKS), gone=line is None
            )
            made.line.CopyFrom(line if line is not None else logs_pb2.StoredLine(seq=seq))
            found.append(made)
        return found

    def at_seq(self, seq: int) -> Generator[None, None, int | None]:
        """The number of the line with that seq, else of the first one after it, else of the last; None if none is numbered."""
        yield from ()
        number = self.numbers.number_of(seq)
        return self.numbers.at_or_after(seq) if number is None else number

    def at_time(self, ms: int) -> Generator[None, None, int | None]:
        """The number of the first line at or after that time, else of the last; None if none is numbered. Lines must stand in its order."""
        low, high = 0, len(self.numbers)
        last = high - 1
        moments = Moments(self._store, self._unfiltered, self.first_seq, self.scanned_to + 1)
        try:
            while low < high:
                middle = (low + high) // 2
                ((seq, _),) = self.numbers.page(middle, 1)
                if (yield from moments.is_before(seq, ms)):
                    low = middle + 1
                else:
                    high = middle
        finally:
            moments.release()
        return None if last < 0 else min(low, last)

    def _lines(
        self, seqs: list[int], max_bytes: int
    ) -> Generator[None, None, tuple[dict[int, logs_pb2.StoredLine], bool]]:
        """The lines with those seqs, as far as they are there; and whether some were not read because of their size."""
        query = self.query if self.context is None else self._unfiltered
        wanted = sorted(seqs)
        found: dict[int, logs_pb2.StoredLine] = {}
        at = 0
        while at < len(wanted):
            end = at + 1
            while end < len(wanted) and wanted[end] - wanted[end - 1] <= NEAR_SEQS:
                end += 1
            cursor = wanted[at] - 1
            while cursor < wanted[end - 1]:
                answer = yield from self.read_store(
                    replace(query, cursor=cursor, before=wanted[end - 1] + 1, tail=False, max_lines=PAGE_LINES),
                    max_bytes,
                )
                if answer.cursor <= cursor:
                    break
                cursor = answer.cursor
                for line in answer.entries:
                    place = bisect_left(wanted, line.seq, at, end)
                    if place < end and wanted[place] == line.seq:
                        found[line.seq] = line
                        max_bytes -= line.ByteSize()
                if max_bytes <= 0:
                    return found, True
            at = end
        return found, False

    # Reading the store --------------------------------------------------------------------------------------------

    def read_store(
        self, query: Query, max_bytes: int = 8 << 20, max_seconds: float = MAX_SECONDS
    ) -> Generator[None, None, Answer]:
        """One answer of the store."""
        return answering(self._store, query, STEP_S, max_bytes=max(max_bytes, 1), max_seconds=max_seconds, counts=False)
