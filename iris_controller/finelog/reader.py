"""Reading: one query against the files as they are now, done in slices.

Lines are chosen by seq, the order in which they were stored. Forward, an answer holds the first `max_lines` that match behind the
cursor; with `tail` the last ones, read backwards from the end, so that the last hundred of a million lines cost one extent. A prefix
covers several keys: its lines are chosen in the same way and handed out in the order of (epoch_ms, key, seq), so ranks interleave by
time and the same page reads the same every time.

The cursor of an answer is a promise: every matching line at or below it was given, or (tail) is older than what was given. So whoever
goes on from it neither misses a line nor sees one twice, whatever the order inside an answer, and whether the answer was cut by lines,
bytes or time.

An answer that leaves something out says so and why. Must never run on an event loop.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from iris_controller.finelog.candidates import Candidate, Candidates, Piece
from iris_controller.finelog.index import PARTIAL_BIT
from iris_controller.finelog.line import Line
from iris_controller.finelog.parts import LineCount, PartsSeen
from iris_controller.finelog.segmented import Segmented
from iris_core.wire.gen.iris.v1 import logs_pb2
from iris_core.wire.log_losses import lost_in_between

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from iris_controller.finelog.query import Query
    from iris_controller.finelog.store import Store
    from iris_controller.finelog.windows import Window

MAX_ANSWER_BYTES = 8 << 20
MAX_SECONDS = 2.0
"""How long one answer is worked on."""
MORE_SECONDS = 0.05
"""How long a full answer goes on to find out whether, and how much, it leaves out."""
AT_ONCE = 64
"""From so many lines on a batch of a write-ahead file is searched at once."""
LINE_OVERHEAD = 96
"""Bytes of a line in an answer besides its text, about."""


def answering(
    store: Store,
    query: Query,
    seconds: float,
    *,
    max_bytes: int = MAX_ANSWER_BYTES,
    max_seconds: float = MAX_SECONDS,
    counts: bool = True,
) -> Generator[None, None, logs_pb2.FetchLogsResponse]:
    """One answer in slices of about so many seconds. Whoever lets go of it earlier holds no file of the store any more."""
    scan = Scan(store, query, max_bytes=max_bytes, max_seconds=max_seconds, counts=counts)
    try:
        while not scan.step(seconds):
            yield
        return scan.answer()
    finally:
        scan.release()


class Scan:
    """One read of a store. Call `step` until it returns True, then `answer`, once; `release` instead where nobody waits for it."""

    def __init__(
        self,
        store: Store,
        query: Query,
        *,
        max_bytes: int = MAX_ANSWER_BYTES,
        max_seconds: float = MAX_SECONDS,
        counts: bool = True,
    ) -> None:
        """`counts` False: nobody wants to know how many lines match beyond those that are given."""
        self._store = store
        self._query = query
        self._max_bytes = max_bytes
        self._max_seconds = max_seconds
        self._deadline = time.monotonic() + max_seconds
        # Before the files are looked at: then they hold every line up to it.
        self._last_seq = store.last_seq
        self._view = view = store.view()
        self._low = query.cursor + 1
        self._high = min(self._last_seq + 1, query.before or self._last_seq + 1)
        self._segmented = Segmented(store, view, query, self._low, self._high, max_bytes)
        self._in_bounds = query.bounds_test()
        self._test = query.content_test()
        self._counts = counts and self._in_bounds is None and self._test is None
        self._parts = PartsSeen(query)
        self._candidates = Candidates(store, view.files, query, self._low, self._high, self._parts)
        self._searched: logs_pb2.LogBatch | None = None
        self._hits: list[bool] = []
        self._lines: list[Line] = []
        self._bytes = 0
        self._count = LineCount()
        self._shown = 0
        self._counted = 0  # lines that were not looked at
        self._scanned = 0
        self._lost_lines = 0
        self._is_full = False
        self._left_out = ""
        # Forward: all up to it was looked at. Tail: all from it on.
        self._edge = self._start = self._high if query.tail else query.cursor
        self._goal = self._low if query.tail else self._high - 1  # then all was looked at, however late it is
        self._work: Generator[None, None, None] = self._backward() if query.tail else self._forward()

    def step(self, seconds: float) -> bool:
        """Works for about that long. True: the answer is ready."""
        until = time.monotonic() + seconds
        for _ in self._work:
            now = time.monotonic()
            if now >= self._deadline and self._edge not in (self._start, self._goal):
                self._left_out = self._left_out or self._why_unfinished()
                return True
            if now >= until:
                return False
        return True

    def release(self) -> None:
        """Holds nothing of the store any more. A second time is no error."""
        # It holds this object, and this object it: the collector may come upon them only hours later.
        self._work.close()
        self._view.release()

    def answer(self) -> logs_pb2.FetchLogsResponse:
        """What was found. Nothing is held of the store any more then."""
        self.release()
        query = self._query
        lines = self._lines
        if not query.scope.is_one:
            lines.sort()
        elif query.tail:
            lines.reverse()
        reasons = self._reasons()
        response = logs_pb2.FetchLogsResponse(
            cursor=max(query.cursor, self._high - 1) if query.tail else self._edge,
            shown=self._shown,
            matched=self._count.lines + self._counted,
            scanned=self._scanned,
            capped=bool(reasons),
            capped_reason="; ".join(reasons),
            last_seq=self._last_seq,
            from_seq=self._edge if query.tail and self._left_out else 0,
            notes=self._parts.notes,
        )
        attempts = {key: attempt_number(key) for key in {line.key for line in lines}}
        add = response.entries.add
        for line in lines:
            entry = add(
                seq=line.seq,
                key=line.key,
                epoch_ms=line.epoch_ms,
                source=line.source,
                data=line.data,
                level=line.level,
                attempt_uid=line.attempt_uid,
                attempt_id=attempts[line.key],
                number=line.number,
            )
            # Most lines have none of these, and each takes its time.
            if line.raw:
                entry.raw = line.raw
            if line.gap:
                entry.gap = line.gap
            if line.partial or line.part or line.back:
                entry.partial, entry.part, entry.back = line.partial, line.part, line.back
            if line.unended:
                entry.unended = True
        return response

    # Forward ------------------------------------------------------------------------------------------------------

    def _forward(self) -> Generator[None, None, None]:
        for window in self._segmented.oldest_first(self._wanted):
            if window is not None:
                for line in window.lines:
                    self._take(line)
                    if self._left_out:
                        self._edge = line.seq - 1
                        self._count_window(window, window.low, line.seq + 1)
                        return
                self._count_window(window, window.low, window.high)
                self._edge = max(self._edge, window.high - 1)
            yield
        for candidate in self._candidates.oldest_first():
            if candidate is None:
                self._edge = max(self._edge, min(self._candidates.edge, self._high - 1))
            else:
                extent = candidate.extent
                self._edge = max(self._edge, extent.first_seq - 1)
                for piece in self._candidates.read(candidate):
                    self._take_forward(piece)
                    if self._left_out:
                        return
                self._edge = max(self._edge, min(extent.last_seq, self._high - 1))
            yield
        self._edge = max(self._edge, self._high - 1)

    def _take_forward(self, piece: Piece) -> None:
        start, stop = self._range(piece)
        if piece.batch is None:
            self._scanned += max(0, stop - start)
            return
        for place in range(start, stop):
            if self._passes(piece.batch, place):
                self._take(_line(piece.batch, place, piece.first_seq + place))
                if self._left_out:
                    self._edge = piece.first_seq + place - 1
                    return

    # Backward -----------------------------------------------------------------------------------------------------

    def _backward(self) -> Generator[None, None, None]:
        candidates = self._candidates.newest_first()
        for candidate in candidates:
            if candidate is None:
                self._edge = min(self._edge, max(self._candidates.edge, self._low))
            else:
                extent = candidate.extent
                for piece in reversed(list(self._candidates.read(candidate))):
                    self._take_backward(piece)
                    if self._left_out:
                        if self._counts:
                            self._counted += self._ends(candidate, self._edge - 1)
                            yield from self._count_rest(candidates)
                        return
                self._edge = min(self._edge, max(extent.first_seq, self._low))
            yield
        for window in self._segmented.newest_first(self._wanted):
            if window is not None:
                for line in reversed(window.lines):
                    self._take(line)
                    if self._left_out:
                        self._edge = line.seq + 1
                        self._count_window(window, line.seq, window.high)
                        if self._counts:
                            yield from self._count_segments(line.seq)
                        return
                self._count_window(window, window.low, window.high)
                self._edge = min(self._edge, max(window.low, self._low))
            yield
        self._edge = self._low

    def _take_backward(self, piece: Piece) -> None:
        start, stop = self._range(piece)
        if piece.batch is None:
            self._scanned += max(0, stop - start)
            return
        for place in range(stop - 1, start - 1, -1):
            if self._passes(piece.batch, place):
                self._take(_line(piece.batch, place, piece.first_seq + place))
                if self._left_out:
                    self._edge = piece.first_seq + place + 1
                    return

    def _count_rest(self, older: Iterator[Candidate | None]) -> Iterator[None]:
        """Goes on without reading, for `matched`: where no line is tested, all of an extent match."""
        for candidate in older:
            if candidate is not None:
                self._counted += self._ends(candidate, candidate.extent.last_seq + 1)
            yield
        yield from self._count_segments(self._high)

    def _ends(self, candidate: Candidate, before: int) -> int:
        """How many lines end in an extent below seq `before`. It is read only where entries are not lines."""
        extent = candidate.extent
        first = max(extent.first_seq, self._low)
        if not extent.levels & PARTIAL_BIT:
            return before - first
        return sum(
            not piece.batch.entries[place].partial
            for piece in self._candidates.read(candidate)
            if piece.batch is not None
            for place in range(max(0, first - piece.first_seq), min(piece.lines, before - piece.first_seq))
        )

    def _count_segments(self, before: int) -> Iterator[None]:
        for lines in self._segmented.count(before):
            self._counted += lines
            yield

    # Segments -----------------------------------------------------------------------------------------------------

    def _wanted(self) -> int:
        """How many more matches are of use: what the answer can take, and one that shows that something is left out."""
        return max(0, self._query.max_lines - len(self._lines)) + 1

    def _count_window(self, window: Window, low: int, high: int) -> None:
        """Takes the lines from seq `low` to `high - 1` to the account."""
        self._scanned += window.looked_between(low, high)
        self._lost_lines += window.lost_between(low, high)
        if self._parts.is_wanted and window.has_parts_between(low, high):
            self._parts.saw_part()

    # One line -----------------------------------------------------------------------------------------------------

    def _range(self, piece: Piece) -> tuple[int, int]:
        """The places of the lines inside the bounds of seq."""
        return max(0, self._low - piece.first_seq), min(piece.lines, self._high - piece.first_seq)

    def _passes(self, batch: logs_pb2.LogBatch, place: int) -> bool:
        entry = batch.entries[place]
        is_in_bounds = self._in_bounds is None or self._in_bounds(entry)
        if is_in_bounds:
            self._scanned += 1
            if self._parts.is_wanted and entry.partial:
                self._parts.saw_part()
            if self._test is None or self._matches(batch, place):
                return True
        if entry.gap and self._query.holds_times(entry.epoch_ms, entry.epoch_ms):
            self._lost_lines += entry.gap
        return False

    def _matches(self, batch: logs_pb2.LogBatch, place: int) -> bool:
        if self._searched is not batch:
            self._searched = batch
            self._hits = []
            if len(batch.entries) >= AT_ONCE:
                # Heavy, and ten times quicker than line by line.
                from iris_controller.finelog.matching import matching_lines

                self._hits = matching_lines(self._query, batch.entries)
        if self._hits:
            return self._hits[place]
        assert self._test is not None
        return self._test(batch.entries[place])

    def _take(self, line: Line) -> None:
        self._count.take(line)
        if self._is_full:
            self._left_out = self._why_full()
            return
        size = len(line.data.encode()) + len(line.raw) + len(line.key) + LINE_OVERHEAD
        if self._lines and self._bytes + size > self._max_bytes:
            self._left_out = f"one answer holds at most {self._max_bytes:,} bytes"
            self._hurry()
            return
        self._lines.append(line)
        self._shown = self._count.lines
        self._bytes += size
        if len(self._lines) >= self._query.max_lines:
            self._is_full = True
            self._hurry()

    def _hurry(self) -> None:
        self._deadline = min(self._deadline, time.monotonic() + MORE_SECONDS)

    # The account ----------------------------------------------------------------------------------------------------

    def _why_full(self) -> str:
        return f"{self._query.max_lines:,} lines were asked for"

    def _why_unfinished(self) -> str:
        if self._is_full:
            return f"{self._why_full()}, and what follows was not searched"
        return f"the search stopped after {self._max_seconds:g} s"

    def _reasons(self) -> list[str]:
        """Why lines that match may be missing from the answer."""
        query = self._query
        reasons = [self._left_out] if self._left_out else []
        first, last = (self._edge, self._high - 1) if query.tail else (self._low, self._edge)
        reasons += missing(self._store, query, first, last, is_start=not query.tail or self._edge <= self._low)
        if self._lost_lines and query.filters_content:
            reasons.append(lost_in_between(self._lost_lines))
        return reasons + list(self._segmented.faults) + list(self._candidates.faults)


def missing(store: Store, query: Query, first_seq: int, last_seq: int, *, is_start: bool = True) -> list[str]:
    """What is not there any more of what `query` wants between those seqs; with `is_start` also of what was before."""
    ledger = store.ledger
    reasons: list[str] = []
    if is_start and (removed := ledger.removed_lines(query)):
        reasons.append(f"{removed:,} older lines were removed by retention, up to seq {ledger.removed_seq}")
    for loss in ledger.lost_between(first_seq, last_seq):
        if loss.why:
            reasons.append(f"lines that were stored after seq {loss.first_seq - 1} may be missing: {loss.why}")
        else:
            reasons.append(f"lines with seq {loss.first_seq} to {loss.last_seq} are lost to damage on disk")
    return reasons


def _line(batch: logs_pb2.LogBatch, place: int, seq: int) -> Line:
    entry = batch.entries[place]
    return Line(
        entry.epoch_ms,
        batch.key,
        seq,
        entry.number,
        entry.source,
        entry.data,
        entry.raw,
        entry.level,
        batch.attempt_uid,
        entry.partial,
        entry.gap,
        entry.part,
        entry.back,
        entry.unended,
    )


def attempt_number(key: str) -> int:
    """The attempt that a log key names behind its last colon; 0 if it names none."""
    number = key.rpartition(":")[2] if ":" in key else ""
    return int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 0
