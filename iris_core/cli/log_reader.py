"""Reading the log store page by page: the last lines, the first lines, and what comes next.

An answer holds at most a few megabytes and a few seconds of searching, so more is asked for in pages, forward by
cursor and backward by `before`; a page that found nothing moves on all the same. What was left out, and why, is
carried along. Must never print.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from iris_core.cli.log_lines import Joiner, Line, TimeOrder, ordered

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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


@dataclass(slots=True)
class Account:
    """What a read found and left out. `reasons` say why lines that match may be missing."""

    shown: int = 0
    matched: int = 0
    exact: bool = True
    cursor: int = 0
    reasons: list[str] = field(default_factory=list)

    def add_reason(self, reason: str) -> None:
        """Once each."""
        for part in reason.split("; "):
            if part and part not in self.reasons:
                self.reasons.append(part)


class LogReader:
    """Reads what `base` describes: its source, scope and filters. `several` = more than one key can match."""

    def __init__(self, client: Client, base: FetchLogsRequest, *, several: bool) -> None:
        self._client = client
        self._base = base
        self._several = several

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
        """One answer. Raises IrisError."""
        from iris_core.wire.gen.iris.v1.logs_pb2 import FetchLogsRequest, FetchLogsResponse

        request = FetchLogsRequest()
        request.CopyFrom(self._base)
        request.cursor = cursor
        request.before = before
        request.max_lines = max_lines
        request.tail = tail
        request.wait_ms = wait_ms
        request.producers.extend(producers)
        return self._client.call(FETCH, request, FetchLogsResponse, timeout_s=TIMEOUT_S)

    def last(self, count: int) -> tuple[list[Line], Account]:
        """The last `count` lines that match, by time, and the account. Raises IrisError."""
        account = Account()
        slack = DISORDER_LINES if self._several else 0
        entries: list[StoredLine] = []
        before = 0
        while True:
            wanted = count + slack - len(entries)
            answer = self.fetch(before=before, max_lines=min(wanted, PAGE_LINES), tail=True)
            if not before:
                account.cursor, account.matched = answer.cursor, answer.matched
            entries.extend(answer.entries)
            before = answer.from_seq
            if not before or len(entries) >= count + slack:
                break
        if before:
            account.exact = False
        elif answer.capped:
            account.add_reason(answer.capped_reason)
        lines = ordered(entries)
        account.matched = max(account.matched, len(lines))
        kept = lines[-count:] if count else []
        account.shown = len(kept)
        if before or len(kept) < len(lines):
            account.reasons.insert(0, f"the last {count:,} lines were asked for")
        return kept, account

    def first(self, count: int, account: Account) -> Iterator[Line]:
        """The first `count` lines that match, by time, as they are read; `account` is filled while that happens.
        Raises IrisError.
        """
        joiner, order = Joiner(), TimeOrder()
        read = 0
        while True:
            answer = self.fetch(cursor=account.cursor, max_lines=min(count - read, PAGE_LINES))
            account.cursor = answer.cursor
            account.matched = max(account.matched, read + answer.matched)
            read += len(answer.entries)
            for entry in sorted(answer.entries, key=lambda entry: entry.seq):
                line = joiner.push(entry)
                if line is not None:
                    order.push(line)
            is_over = answer.cursor >= answer.last_seq
            if read >= count or is_over:
                break
            for line in order.take_until(order.latest_ms - DISORDER_MS if self._several else order.latest_ms):
                account.shown += 1
                yield line
        for line in joiner.overdue():
            order.push(line)
        for line in order.take_all():
            account.shown += 1
            yield line
        if not is_over or answer.capped:
            account.exact = False
            account.add_reason(answer.capped_reason or f"the first {count:,} lines were asked for")
