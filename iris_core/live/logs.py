"""A window on a log: pages by line, following the end, a server-side filter, in bounded memory.

The window is always one contiguous run of the matching lines; it grows at either end and is cut at the far one, so that a
log of any size and a console left open for days stay within `MAX_LINES`. Lines are told apart by the store's sequence
number: an answer that overlaps what is there adds nothing twice, and following goes on from the server's cursor, so that
nothing is left out. Line texts are kept as far as they can be shown (`SHOWN_BYTES`); how much more there is, is kept as a
number. Control characters are left alone here and made harmless where a line is drawn.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from iris_core.contracts import Denied, IrisError, RpcFailed
from iris_core.live.backoff import Backoff
from iris_core.live.log_window import SHOWN_BYTES, LogLine, Window
from iris_core.live.pipeline import likely_cause
from iris_core.live.waiting import first_of
from iris_core.live.watch import Link, LinkState
from iris_core.model.text import one_line

if TYPE_CHECKING:
    from iris_core.contracts import AsyncClient
    from iris_core.live.clock import Clock
    from iris_core.wire.gen.iris.v1.logs_pb2 import FetchLogsResponse

__all__ = ["SHOWN_BYTES", "LogCounts", "LogFilter", "LogLine", "LogSource", "LogView"]

PAGE: Final = 1000
"""Lines asked for at once."""
MAX_LINES: Final = 20_000
"""Most lines kept."""
WAIT_MS: Final = 10_000
"""How long one question for new lines may wait at the server."""
MAX_CATCH_UP: Final = 5
"""After this many full answers in a row the window jumps to the end instead of chasing it."""


@dataclass(frozen=True, slots=True)
class LogSource:
    """Whose lines: the store's key and how it is matched.

    Attributes:
        key: `/user/job/0:1` exactly, or a prefix of keys.
        scope: `MatchScope`'s number.
        title: What a person calls it.
        min_incarnation: Older runs of a job of the same name are left out.
        command: The command line that shows the same.
    """

    key: str
    scope: int
    title: str
    min_incarnation: int = 0
    command: str = ""


@dataclass(frozen=True, slots=True)
class LogFilter:
    """What the server filters by."""

    regex: str = ""
    min_level: int = 0


@dataclass(slots=True)
class LogCounts:
    """`matched` lines match in the store (at least so many if `capped`), `scanned` were looked at."""

    matched: int = 0
    scanned: int = 0
    capped: bool = False
    reason: str = ""


class LogView:
    """The window and its fetches. One task runs `run()`; `older`, `newer`, `head` and `tail` may be awaited beside it.

    `lines` is what can be shown. `generation` changes when the window was replaced, `version` with every change.
    """

    def __init__(
        self,
        client: AsyncClient,
        source: LogSource,
        clock: Clock,
        *,
        page: int = PAGE,
        max_lines: int = MAX_LINES,
        backoff: Backoff | None = None,
    ) -> None:
        self.source = source
        self.filter = LogFilter()
        self.counts = LogCounts()
        self.generation = 0
        self.version = 0
        self._shifted = 0
        self.unseen = 0
        """Matching lines that came while the window did not reach the end."""
        self.loaded = False
        self.why = ""
        """While there is no line at all: the likely cause, "" = not known."""
        self._client = client
        self._clock = clock
        self._page = page
        self._max_lines = max_lines
        self._backoff = backoff or Backoff()
        self._window = Window()
        self._cursor = 0
        self._fetching: set[str] = set()
        self._broken: Link | None = None
        self._detail = ""
        self._last_answer: float | None = None
        self._keep_top = False
        self._wake = asyncio.Event()
        self._wanted: tuple[LogFilter, asyncio.Future[None]] | None = None

    # --- what is shown -----------------------------------------------------------------------------------------------

    @property
    def lines(self) -> list[LogLine]:
        """The lines of the window, oldest first."""
        return self._window.lines

    @property
    def at_start(self) -> bool:
        """Whether no older line matches."""
        return self._window.at_start

    @property
    def at_end(self) -> bool:
        """Whether the window reaches the end of the log."""
        return self._window.at_end

    @property
    def state(self) -> LinkState:
        """How the connection to the log store stands."""
        age = None if self._last_answer is None else self._clock.monotonic() - self._last_answer
        if self._broken is not None:
            return LinkState(self._broken, age, self._detail)
        if age is None:
            return LinkState(Link.CONNECTING)
        if age > WAIT_MS / 1000 + 5:
            return LinkState(Link.STALE, age, "the log store is silent")
        return LinkState(Link.LIVE, age)

    def total(self) -> tuple[int, bool]:
        """How many lines match in all, and whether that is exact."""
        if self.at_start and self.at_end:
            return len(self.lines), True
        return max(self.counts.matched, len(self.lines)), not self.counts.capped

    def take_shift(self) -> int:
        """How many lines were put on top since the last call (negative: let go of there): a reader's place moves by that."""
        shifted, self._shifted = self._shifted, 0
        return shifted

    def keep_top(self, on: bool) -> None:
        """Whether a reader is looking at old lines: then new ones never push those out, and the window stops short of the end instead."""
        self._keep_top = on
        if not on and self._window.at_end:
            self.unseen = 0

    # --- fetching ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Load the end and follow it, for ever. Cancel the task to end it."""
        full = 0
        while True:
            self._wake.clear()
            try:
                if self._wanted is not None or not self.loaded or full >= MAX_CATCH_UP:
                    await self._reload()
                    await self._ask_why()
                    full = 0
                    continue
                answer = await self._poll()
                if answer is None:
                    continue
                full = full + 1 if answer.capped and not self._keep_top else 0
                self._take_new(answer)
                await self._ask_why()
            except IrisError as error:
                self._fail(error)
                asked = error.retry_after_ms / 1000 if isinstance(error, RpcFailed) else 0.0
                await first_of(self._clock.sleep(self._backoff.next_s(at_least_s=asked)), self._wake.wait())

    async def _poll(self) -> FetchLogsResponse | None:
        """Wait for new lines. None if the window was replaced or is to be."""
        generation, cursor = self.generation, self._cursor
        poll = asyncio.ensure_future(self._fetch(self.filter, cursor=cursor, wait_ms=WAIT_MS))
        await first_of(poll, self._wake.wait())
        if poll.cancelled() or not poll.done():
            return None
        answer = poll.result()
        return answer if generation == self.generation and cursor == self._cursor else None

    async def _reload(self) -> None:
        """Load the end, under the filter that was asked for last. Its asker learns how it went."""
        wanted = self._wanted
        if wanted is None:
            await self._load_tail(self.filter)
            return
        load = asyncio.ensure_future(self._load_tail(wanted[0]))
        await first_of(load, self._wake.wait())
        if wanted is not self._wanted:
            return
        self._wanted = None
        if wanted[1].cancelled():
            return
        if not load.done() or load.cancelled():
            wanted[1].set_exception(IrisError("interrupted"))
        elif (error := load.exception()) is not None:
            wanted[1].set_exception(error)
        else:
            wanted[1].set_result(None)

    async def set_filter(self, wanted: LogFilter) -> None:
        """Show only what matches. The old lines stay until the answer is there.

        Raises IrisError if it could not be had (then nothing changed), and asyncio.CancelledError if another filter was
        asked for meanwhile. Needs `run()` to be running.
        """
        if self._wanted is not None:
            self._wanted[1].cancel()
        asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wanted = (wanted, asked)
        self._wake.set()
        await asked

    def retry_now(self) -> None:
        """Do not wait for the next try."""
        self._wake.set()

    async def tail(self) -> None:
        """Make the window reach the end. Raises IrisError."""
        if not self.at_end:
            await self._load_tail(self.filter)
        self.unseen = 0

    async def head(self) -> None:
        """Make the window begin with the first line that the store still holds. Raises IrisError."""
        if self.at_start:
            return
        generation = self.generation
        answer = await self._fetch(self.filter, cursor=0)
        if generation != self.generation:
            return
        at_end = answer.cursor >= max(answer.last_seq, self._cursor)
        self._replace(Window.of(answer.entries, 0, answer.cursor, at_end=at_end))
        if at_end:
            self._cursor = answer.cursor

    async def older(self) -> bool:
        """Add a page above. Returns whether anything was added. Raises IrisError."""
        if self.at_start or not self._window.pages or "older" in self._fetching:
            return False
        self._fetching.add("older")
        try:
            generation = self.generation
            before = self._window.pages[0].lo
            answer = await self._fetch(self.filter, tail=True, before=before)
            if generation != self.generation or self._window.pages[0].lo != before:
                return False
            added = self._window.prepend(answer.entries, answer.from_seq, before)
            self._window.trim_bottom(self._max_lines)
            self._changed(added)
            return added > 0
        finally:
            self._fetching.discard("older")

    async def newer(self) -> bool:
        """Add a page below when the window does not reach the end. Returns whether anything was added. Raises IrisError."""
        if self.at_end or not self._window.pages or "newer" in self._fetching:
            return False
        self._fetching.add("newer")
        try:
            generation = self.generation
            after = self._window.pages[-1].hi
            answer = await self._fetch(self.filter, cursor=after)
            if generation != self.generation or self._window.pages[-1].hi != after:
                return False
            added = self._window.append(answer.entries, after, answer.cursor, self._page)
            if answer.cursor >= max(answer.last_seq, self._cursor):
                self._window.at_end = True
                self._cursor = answer.cursor
                self.unseen = 0
            self._changed(-self._window.trim_top(self._max_lines))
            return added > 0
        finally:
            self._fetching.discard("newer")

    # --- answers -----------------------------------------------------------------------------------------------------

    async def _fetch(
        self, wanted: LogFilter, *, cursor: int = 0, before: int = 0, tail: bool = False, wait_ms: int = 0
    ) -> FetchLogsResponse:
        from iris_core.wire.gen.iris.v1 import logs_pb2

        request = logs_pb2.FetchLogsRequest(
            source=self.source.key,
            match_scope=self.source.scope,  # type: ignore[arg-type]
            cursor=cursor,
            before=before,
            regex=wanted.regex,
            min_level=wanted.min_level,  # type: ignore[arg-type]
            max_lines=self._page,
            tail=tail,
            min_incarnation=self.source.min_incarnation,
            wait_ms=wait_ms,
        )
        answer = await self._client.call(
            "LogService/FetchLogs", request, logs_pb2.FetchLogsResponse, timeout_s=wait_ms / 1000 + 15
        )
        self._last_answer = self._clock.monotonic()
        self._broken = None
        self._backoff.reset()
        return answer

    async def _ask_why(self) -> None:
        """Ask the pipeline why there is no line. One that does not say is no fault."""
        from iris_core.wire.gen.iris.v1 import pipeline_pb2

        why = ""
        if not self.lines and self.filter == LogFilter() and not self.source.key.startswith("/system/"):
            try:
                found = await self._client.call(
                    "ControllerService/GetPipelineHealth",
                    pipeline_pb2.GetPipelineHealthRequest(target=self.source.key),
                    pipeline_pb2.GetPipelineHealthResponse,
                    timeout_s=10.0,
                )
                why = one_line(likely_cause(found))
            except IrisError:
                pass
        if why != self.why:
            self.why = why
            self.version += 1

    async def _load_tail(self, wanted: LogFilter) -> None:
        answer = await self._fetch(wanted, tail=True)
        self.filter = wanted
        self.counts = LogCounts(answer.matched, answer.scanned, answer.capped, one_line(answer.capped_reason))
        self._cursor = answer.cursor
        self.loaded = True
        self.unseen = 0
        self._replace(Window.of(answer.entries, answer.from_seq, answer.cursor, at_end=True))

    def _take_new(self, answer: FetchLogsResponse) -> None:
        after = self._cursor
        self._cursor = max(self._cursor, answer.cursor)
        if not answer.entries:
            if self.at_end and self._window.pages:
                self._window.pages[-1].hi = self._cursor
            return
        self.counts.matched += len(answer.entries)
        self.counts.scanned += answer.scanned
        if self.at_end and self._keep_top and len(self.lines) + len(answer.entries) > self._max_lines:
            self._window.at_end = False
        if not self.at_end:
            self.unseen += len(answer.entries)
            self._changed(0)
            return
        added = self._window.append(answer.entries, after, answer.cursor, self._page)
        if self._keep_top:
            self.unseen += added
        self._changed(-self._window.trim_top(self._max_lines))

    def _replace(self, window: Window) -> None:
        self._window = window
        self._shifted = 0
        self.generation += 1
        self._changed(0)

    def _changed(self, shifted: int) -> None:
        self._shifted += shifted
        self.version += 1

    def _fail(self, error: IrisError) -> None:
        self._detail = one_line(error.message)
        self._broken = Link.DENIED if isinstance(error, Denied) else Link.RECONNECTING
        self.version += 1
