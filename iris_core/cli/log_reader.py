"""Reading the log store page by page: the last lines, the first lines, and what comes next.

An answer holds at most a few megabytes and a few seconds of searching, so more is asked for in pages, forward by
cursor and backward by `before`; a page that found nothing moves on all the same. What was left out, and why, is
carried along. Must never print.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from iris_core.cli.log_lines import Joiner, Line, TimeOrder, ordered
from iris_core.cli.log_parts import LineCount, WholeLines
from iris_core.wire.log_losses import merged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from iris_core.contracts import Client
    from iris_core.wire.gen.iris.v1.logs_pb2 import FetchLogsRequest, FetchLogsResponse, StoredLine

FETCH: Final = "LogService/FetchLogs"
DEFAULT_LINES: Final = 1000
PAGE_LINES: Final = 20_000
DISORDER_LINES: Final = 200
"""So many more lines than asked for are read at the cut, because ranks reach the store a little out of step."""
DISORDER_MS: Final = 10_000
"""How far apart in time lines may reach the store and still be put in order while reading forward."""
TIMEOUT_S: Final = 60.0
MOST_HELD: Final = 256 * 1024 * 1024
"""Characters of text that are held at once, about, when the last lines are asked for."""


@dataclass(slots=True)
class Account:
    """What a read found and left out. `reasons` say why lines that match may be missing."""

    shown: int = 0
    matched: int = 0
    scanned: int = 0
    exact: bool = True
    cursor: int = 0
    reasons: list[str] = field(default_factory=list)
    more: bool = False
    """There are lines that a larger number would show; what is lost or removed nothing shows."""
    unshipped_since_ms: int = 0
    """Since when lines are on the log store's disk alone, 0 = none are, or nothing is shipped."""
    notes: list[str] = field(default_factory=list)
    """How it was searched, where that is worth a word."""

    def take(self, answer: FetchLogsResponse, *, is_cut: bool) -> None:
        """What an answer says of the search; `is_cut` as in `lasting_reasons`."""
        self.scanned += answer.scanned
        self.reasons = merged(self.reasons, lasting_reasons(answer, is_cut=is_cut))
        self.unshipped_since_ms = answer.unshipped_since_ms
        self.notes.extend(note for note in answer.notes if note not in self.notes)

    def add_reason(self, reason: str) -> None:
        """Once each."""
        self.reasons = merged(self.reasons, filter(None, reason.split("; ")))


def lasting_reasons(answer: FetchLogsResponse, *, is_cut: bool) -> list[str]:
    """Why lines that match are missing for good. `is_cut`: the answer's first reason is why it is a page, and the next one goes on."""
    return answer.capped_reason.split("; ")[is_cut:] if answer.capped else []


class LogReader:
    """Reads what `base` describes: its source, scope and filters. `several` = more than one key can match.

    `ask` puts each question, so that one that fails may be put again.
    """

    def __init__(
        self,
        client: Client,
        base: FetchLogsRequest,
        *,
        several: bool,
        ask: Callable[[Callable[[], FetchLogsResponse]], FetchLogsResponse] = lambda question: question(),
    ) -> None:
        self._client = client
        self._base = base
        self._several = several
        self._ask = ask
        filters = base.substring or base.regex or base.without
        self._whole = WholeLines(self._call, without=base.without) if filters else None

    def fetch(
        self,
        *,
        cursor: int = 0,
        before: int = 0,
        max_lines: int = PAGE_LINES,
        tail: bool = False,
        wait_ms: int = 0,
        producers: Sequence[str] = (),
    ) -> FetchLogsResponse:
        """One answer; of a line that is kept in parts all of it if one part matches, and only once. Raises IrisError."""
        from iris_core.wire.gen.iris.v1.logs_pb2 import FetchLogsRequest

        request = FetchLogsRequest()
        request.CopyFrom(self._base)
        request.cursor = cursor
        request.before = before
        request.max_lines = max_lines
        request.tail = tail
        request.wait_ms = wait_ms
        request.producers.extend(producers)
        answer = self._call(request)
        if self._whole is not None:
            self._whole.complete(answer)
        return answer

    def _call(self, request: FetchLogsRequest) -> FetchLogsResponse:
        from iris_core.wire.gen.iris.v1.logs_pb2 import FetchLogsResponse

        return self._ask(partial(self._client.call, FETCH, request, FetchLogsResponse, timeout_s=TIMEOUT_S))

    def last(self, count: int) -> tuple[list[Line], Account]:
        """The last `count` lines that match, by time, and the account. Raises IrisError."""
        account = Account()
        slack = DISORDER_LINES if self._several else 0
        entries: list[StoredLine] = []
        read = LineCount()
        before = held = 0
        while True:
            wanted = count + slack - read.lines
            answer = self.fetch(before=before, max_lines=min(wanted, PAGE_LINES), tail=True)
            account.take(answer, is_cut=bool(answer.from_seq))
            if not before:
                account.cursor, account.matched = answer.cursor, answer.matched
            entries.extend(answer.entries)
            read.take(answer.entries)
            held += sum(len(entry.data) for entry in answer.entries)
            before = answer.from_seq
            if not before or read.lines >= count + slack or held >= MOST_HELD:
                break
        account.exact = not before and not account.reasons
        if before:
            entries = self._completed(entries)
        lines = ordered(entries)
        ends = [place for place, line in enumerate(lines) if not line.goes_on]
        account.matched = max(account.matched, len(ends))
        account.shown = min(count, len(ends))
        kept = lines if len(ends) <= count else lines[ends[-count - 1] + 1 :]
        if before and account.shown < count:
            account.reasons.insert(0, f"together they have more than {MOST_HELD >> 20} MiB")
            account.more = True
        elif before or len(kept) < len(lines):
            account.more = True
            account.reasons.insert(0, f"the last {_asked(count)}")
        return kept, account

    def _completed(self, entries: list[StoredLine]) -> list[StoredLine]:
        """The entries, and what is missing of lines that the cut went through."""
        begun: set[tuple[str, str, str]] = set()
        found: list[StoredLine] = []
        whole = WholeLines(self._call)
        for entry in sorted(entries, key=lambda entry: entry.seq):
            stream = (entry.key, entry.attempt_uid, entry.source)
            found += whole.of([entry]) if entry.part and stream not in begun else [entry]
            begun.add(stream)
        return list({entry.seq: entry for entry in found}.values())

    def _rest(self, parts: list[StoredLine]) -> list[StoredLine]:
        """What follows these parts of lines, to the end of each."""
        whole = WholeLines(self._call)
        return [entry for part in parts for entry in whole.of([part]) if entry.seq > part.seq]

    def first(self, count: int, account: Account) -> Iterator[Line]:
        """The first `count` lines that match, by time, as they are read; `account` is filled while that happens.
        Raises IrisError.
        """
        joiner, order = Joiner(), TimeOrder()
        read = LineCount()
        while True:
            before = read.lines - len(joiner.last_parts())
            answer = self.fetch(cursor=account.cursor, max_lines=min(count - read.lines, PAGE_LINES))
            is_over = answer.cursor >= answer.last_seq
            account.take(answer, is_cut=not is_over)
            account.cursor = answer.cursor
            read.take(answer.entries)
            # A line that waits for its end is among those that this answer counts.
            account.matched = max(account.matched, before + answer.matched, read.lines)
            for entry in sorted(answer.entries, key=lambda entry: entry.seq):
                line = joiner.push(entry)
                if line is not None:
                    order.push(line)
            if read.lines >= count or is_over:
                break
            for line in order.take_until(order.latest_ms - DISORDER_MS if self._several else order.latest_ms):
                account.shown += not line.goes_on
                yield line
        if not is_over:
            for entry in self._rest(joiner.last_parts()):
                line = joiner.push(entry)
                if line is not None:
                    order.push(line)
        for line in joiner.overdue():
            order.push(line)
        for line in order.take_all():
            account.shown += not line.goes_on
            yield line
        account.exact = is_over and not account.reasons
        if not is_over:
            account.more = True
            unsearched = "" if account.matched > read.lines else ", and what follows was not searched"
            account.reasons.insert(0, f"the first {_asked(count)}{unsearched}")


def _asked(count: int) -> str:
    return "line was asked for" if count == 1 else f"{count:,} lines were asked for"
