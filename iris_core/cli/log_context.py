"""Reading a log with what stands around each hit, from a view of the log store.

The view finds hits and their surroundings once and numbers the lines; here they are read page by page, and asked for again while a
log is followed. A view that the store forgot is opened anew behind what was read. Must never print.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from iris_core.cli.log_lines import Joiner
from iris_core.client.logs import Logs
from iris_core.contracts import RpcFailed
from iris_core.wire.log_losses import added

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from iris_core.cli.log_lines import Line
    from iris_core.cli.log_reader import Account
    from iris_core.cli.silence import Silence
    from iris_core.contracts import Client
    from iris_core.wire.gen.iris.v1.logs_pb2 import FetchLogsRequest, FetchLogsResponse, LogViewState, ReadLinesResponse

PAGE_LINES: Final = 2_000
POLL_S: Final = 0.1


class ContextReader:
    """Reads what `base` describes with `context` lines around each hit, `hits` of them at most (0 = as many as a view holds)."""

    def __init__(
        self,
        client: Client,
        base: FetchLogsRequest,
        *,
        context: int,
        hits: int,
        tail: bool,
        silence: Silence,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        from iris_core.wire.gen.iris.v1.logs_pb2 import FetchLogsRequest

        self._logs = Logs(client)
        self._base = FetchLogsRequest()
        self._base.CopyFrom(base)
        self._base.max_lines, self._base.tail = hits, tail
        self._context = context
        self._sleep = sleep
        self._silence = silence
        self._view_id = ""
        self._at = 0
        self._scanned_to = 0
        self._told: list[str] = []
        """Why lines are missing, as far as that was said of this view."""
        self._last_of: dict[str, int] = {}
        self.marks: dict[int, tuple[bool, bool]] = {}
        """By seq, of lines that were read and not shown yet: whether each is context, and whether lines before it are left out."""

    def lines(self, account: Account) -> Iterator[Line]:
        """All that is stored now; `account` is filled. Raises IrisError."""
        joiner = Joiner()
        while True:
            answer = self._page()
            for entry in answer.lines:
                line = joiner.push(entry.line)
                if line is not None:
                    yield self.marked(line)
            if self._at >= answer.state.lines:
                if answer.state.complete:
                    break
                self._sleep(POLL_S)
        for line in joiner.overdue():
            yield self.marked(line)
        self._account(account, answer.state)

    def fetch(
        self,
        *,
        cursor: int = 0,
        max_lines: int = PAGE_LINES,
        wait_ms: int = 0,
        producers: Sequence[str] = (),
    ) -> FetchLogsResponse:
        """What is new, as FetchLogs would answer, for whoever follows. Raises IrisError."""
        from iris_core.wire.gen.iris.v1.logs_pb2 import FetchLogsRequest, FetchLogsResponse

        # The wait and the marks are those of the plain log; the lines come from the view.
        request = FetchLogsRequest()
        request.CopyFrom(self._base)
        request.cursor, request.max_lines, request.tail, request.wait_ms = cursor, 1, False, wait_ms
        request.producers.extend(producers)
        probe = self._silence.ask(lambda: self._logs.fetch(request))
        answer = self._fresh(max_lines)
        if answer.state.full and not answer.state.held and not answer.lines:
            # Whoever follows has no end: the lines behind it are those of the next view.
            self.close()
            self._base.max_lines = 0
            answer = self._fresh(max_lines)
        why = added(self._told, _reasons(answer.state))
        self._told = _reasons(answer.state)
        # Lines that are held were not given: nobody has read so far as long as there are some.
        cursor = (
            min(answer.state.scanned_to, max(probe.last_seq, 1) - 1) if answer.state.held else answer.state.scanned_to
        )
        is_cut = cursor < probe.last_seq
        return FetchLogsResponse(
            entries=[line.line for line in answer.lines],
            cursor=cursor,
            last_seq=probe.last_seq,
            marks=probe.marks,
            shown=len(answer.lines),
            capped=bool(why),
            capped_reason="; ".join(["this is a page of a view", *why] if is_cut else why),
        )

    def marked(self, line: Line) -> Line:
        """The line, with what is known of its place."""
        line.is_context, line.breaks = self.marks.pop(line.seq, (False, False))
        return line

    def _fresh(self, count: int) -> ReadLinesResponse:
        """The next page that has a line which the views before did not have; without one only at the end of the view."""
        while True:
            answer = self._page(count)
            if answer.lines or self._at >= answer.state.lines:
                return answer

    def _page(self, count: int = PAGE_LINES) -> ReadLinesResponse:
        for _ in range(3):
            try:
                answer = self._silence.ask(lambda: self._read(count))
                break
            except RpcFailed as error:
                if error.code != "view_gone":
                    raise
                gone = error
                self._view_id = ""
        else:
            raise gone
        self._at += len(answer.lines)
        if not answer.state.held:
            self._scanned_to = max(self._scanned_to, answer.state.scanned_to)
        fresh = [line for line in answer.lines if not line.gone and line.line.seq > self._last_of.get(line.line.key, 0)]
        for line in fresh:
            self._last_of[line.line.key] = line.line.seq
            if line.is_context or line.breaks:
                self.marks[line.line.seq] = (line.is_context, line.breaks)
        if len(fresh) < len(answer.lines):
            del answer.lines[:]
            answer.lines.extend(fresh)
        return answer

    def _read(self, count: int) -> ReadLinesResponse:
        if not self._view_id:
            self._open()
        return self._logs.read_lines(self._view_id, self._at, count)

    def _open(self) -> None:
        if self._scanned_to:
            # A view that was lost: what was searched is not searched again.
            self._base.cursor, self._base.tail = self._scanned_to, False
        self._view_id = self._logs.open_view(self._base, context=self._context).view_id
        self._at = 0
        self._told = []

    def close(self) -> None:
        """The store need not keep the view. Raises nothing."""
        if self._view_id:
            self._logs.close_view(self._view_id)
            self._view_id = ""

    def _account(self, account: Account, state: LogViewState) -> None:
        account.shown = account.matched = state.hits
        account.scanned, account.cursor = state.scanned, state.scanned_to
        account.notes.extend(state.notes)
        account.unshipped_since_ms = state.unshipped_since_ms
        if state.capped:
            account.exact = False
            account.more = 0 < self._base.max_lines <= state.hits and (state.full or self._base.tail)
            account.add_reason(state.capped_reason)
        self._told = _reasons(state)


def _reasons(state: LogViewState) -> list[str]:
    """Why lines that match are missing for good: that a view is full is none, the next one goes on."""
    return state.capped_reason.split("; ")[state.full :] if state.capped else []
