"""A log as its reader sees it: numbered lines of which a few pages are here, the end followed, a filter and a find on the server.

The store numbers the lines (console §2.3b); a line that is not here is asked for when somebody looks, so scrolling never waits. The
last lines are shown first, from a view of their own, while the store numbers the whole log; then the one takes the place of the other at
the same line. A view that the store forgot is opened again at the same line. What arrives belongs to a view by its id, so a late
answer adds nothing. Following goes on from the number of the last line: no gap and no duplicate whatever breaks. Never touches a
widget, and never holds more than `Pages`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from iris_core.contracts import Denied, IrisError, RpcFailed
from iris_core.live.backoff import Backoff
from iris_core.live.log_calls import LogCalls, end, is_gone
from iris_core.live.log_facts import Facts, Hit, facts_of
from iris_core.live.log_lines import PAGE, LogLine, Pages
from iris_core.live.log_query import LogQuery, LogSource
from iris_core.live.pipeline import PipelineWatch
from iris_core.live.waiting import first_of
from iris_core.live.watch import Link, LinkState
from iris_core.model.text import one_line

if TYPE_CHECKING:
    from iris_core.contracts import AsyncClient
    from iris_core.live.clock import Clock
    from iris_core.wire.gen.iris.v1 import logs_pb2

__all__ = ["Hit", "LogQuery", "LogSource", "LogView"]

TAIL: Final = 1024
"""Lines of the view that is shown before the whole log is numbered."""
POLL_S: Final = 0.25
"""How often a search that goes on is asked how far it is."""
SILENT_S: Final = 12.0
"""A store that follows says something every 5 s; after so long the lines count as stale."""
GIVE_UP_S: Final = 30.0
BEHIND: Final = 8 * PAGE
"""So many lines behind the end the follow goes on from the end, and what lies between is read when it is looked at."""
FETCH_AGAIN_S: Final = 1.0

T = TypeVar("T")


class LogView:
    """Several sources stand merged by time. One task runs `run()`; everything else may be called beside it on the same loop.

    `version` changes with everything that is shown, `generation` when other lines are shown under the same numbers.
    """

    def __init__(
        self,
        client: AsyncClient,
        sources: LogSource | tuple[LogSource, ...],
        clock: Clock,
        *,
        query: LogQuery | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self.sources = sources if isinstance(sources, tuple) else (sources,)
        self.query = query or LogQuery()
        self.facts = Facts()
        self.pages = Pages()
        self.version = 0
        self.generation = 0
        self.loaded = False
        self.following = True
        self.numbering: float | None = None
        """How much of the whole log is numbered, while that is under way."""
        self.top = 0
        """The first line that is looked at."""
        self.fault = ""
        """Why lines that are looked at could not be read."""
        self._calls = LogCalls(client, clock, self._heard)
        self.pipeline = PipelineWatch(self._calls, self.sources, clock, self._changed)
        """How the way of the lines is."""
        self._clock = clock
        self._backoff = backoff or Backoff()
        self._view_id = ""
        self._shifted = 0
        self._moved = 0
        self._seen = 0
        self._fetching: dict[int, asyncio.Task[None]] = {}
        self._not_before: dict[int, float] = {}
        self._others: set[asyncio.Task[None]] = set()
        self._numbered = asyncio.Event()
        self._broken: Link | None = None
        self._detail = ""
        self._last_answer: float | None = None
        self._wake = asyncio.Event()
        self._wanted: tuple[LogQuery, int, asyncio.Future[None]] | None = None

    # --- what is shown -----------------------------------------------------------------------------------------------

    @property
    def title(self) -> str:
        """What a person calls it."""
        return " + ".join(source.title for source in self.sources)

    @property
    def is_whole(self) -> bool:
        """Whether number 0 is the first line; until then the numbers are those of the last lines alone."""
        return self._numbered.is_set()

    @property
    def count(self) -> int:
        """How many lines there are."""
        return self.facts.lines

    @property
    def unseen(self) -> int:
        """Lines that came since the reader paused."""
        return 0 if self.following else max(self.count - self._seen, 0)

    def line(self, number: int) -> LogLine | None:
        """A line; None while it is not here."""
        return self.pages.line(number)

    def take_shift(self) -> int:
        """By how much the numbers of all lines grew since the last call."""
        shifted, self._shifted = self._shifted, 0
        return shifted

    @property
    def state(self) -> LinkState:
        """How the connection to the log store stands."""
        age = None if self._last_answer is None else self._clock.monotonic() - self._last_answer
        if self._broken is not None:
            return LinkState(self._broken, age, self._detail)
        if age is None:
            return LinkState(Link.CONNECTING)
        if age > SILENT_S:
            return LinkState(Link.STALE, age, "the log store is silent")
        return LinkState(Link.LIVE, age)

    def follow(self, on: bool) -> None:
        """Whether the reader stays at the end. Off: what comes is counted, not shown."""
        if on != self.following:
            self.following = on
            self._seen = self.count
            self.version += 1

    def want(self, first: int, last: int) -> None:
        """These lines are looked at: what is not here is asked for, and the page before and after."""
        self.top = first
        if not self._view_id or not self.count:
            return
        low, high = max(first, 0) // PAGE, min(max(last, first), self.count - 1) // PAGE
        pages = [*range(low, high + 1), low - 1, high + 1]
        for page, task in list(self._fetching.items()):
            if page not in pages:
                task.cancel()
        now = self._clock.monotonic()
        for page in reversed(pages):
            self.pages.touch(page)
        for page in pages:
            room = min(self.count - page * PAGE, PAGE)
            if page < 0 or self.pages.filled(page) >= room or page in self._fetching:
                continue
            if now >= self._not_before.get(page, 0.0):
                self._fetching[page] = asyncio.ensure_future(self._fetch(self._view_id, page))

    # --- the view ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Show the end and follow it, for ever. Cancel the task to end it; when it runs again it goes on at the same line."""
        watcher = asyncio.ensure_future(self.pipeline.run())
        try:
            while True:
                self._wake.clear()
                try:
                    if self._wanted is not None:
                        await self._change()
                    elif not self._view_id:
                        await self._begin()
                    else:
                        await self._go_on(self._view_id)
                except IrisError as error:
                    if is_gone(error):
                        # What is shown stays until the same lines are there again.
                        self._view_id = ""
                        self._note(error)
                        await first_of(self._clock.sleep(POLL_S), self._wake.wait())
                        continue
                    self._fail(error)
                    asked = error.retry_after_ms / 1000 if isinstance(error, RpcFailed) else 0.0
                    await first_of(self._clock.sleep(self._backoff.next_s(at_least_s=asked)), self._wake.wait())
        finally:
            for task in (watcher, *self._fetching.values(), *self._others):
                task.cancel()
            self._fetching = {}
            self._close(self._view_id)
            self._view_id = ""

    async def show(self, query: LogQuery, *, at_seq: int = 0) -> None:
        """Show other lines: of another filter or time, at the line with this seq, or at the end. The old ones stay until those are there.

        Raises IrisError if they could not be had (then nothing changed), and asyncio.CancelledError if others were asked for
        meanwhile. Needs `run()` to be running.
        """
        if self._wanted is not None:
            self._wanted[2].cancel()
        asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wanted = (query, at_seq, asked)
        self._wake.set()
        await asked

    def retry_now(self) -> None:
        """Do not wait for the next try."""
        self._not_before.clear()
        self._wake.set()

    async def whole(self) -> None:
        """Wait until the lines are numbered from the first one on, however often the connection breaks meanwhile."""
        await self._numbered.wait()

    async def _begin(self) -> None:
        """The view that is shown first, or again after it was lost."""
        if self.loaded and not self.following and (anchor := self._anchor()) is not None:
            view_id, state = await self._calls.open(self.query, self.sources)
            facts = facts_of(state)
            facts = await self._searched(view_id, facts)
            await self._adopt(view_id, facts, self.query, is_whole=True, anchor=anchor)
            return
        tail = 0 if self.query.filters else TAIL
        view_id, state = await self._calls.open(self.query, self.sources, tail=tail)
        facts = facts_of(state)
        if tail:
            facts = await self._searched(view_id, facts)
        is_whole = not tail or facts.lines < tail
        await self._adopt(view_id, facts, self.query, is_whole=is_whole, anchor=None)

    async def _change(self) -> None:
        """What `show` asked for. Its asker learns how it went."""
        assert self._wanted is not None
        query, at_seq, asked = wanted = self._wanted
        load = asyncio.ensure_future(self._load(query, at_seq))
        try:
            while not load.done() and wanted is self._wanted:
                self._wake.clear()
                woken = asyncio.ensure_future(self._wake.wait())
                await asyncio.wait((load, woken), return_when=asyncio.FIRST_COMPLETED)
                woken.cancel()
        finally:
            load.cancel()
        if wanted is not self._wanted:
            return
        self._wanted = None
        if asked.cancelled():
            return
        if (error := load.exception()) is not None:
            asked.set_exception(error)
        else:
            asked.set_result(None)

    async def _load(self, query: LogQuery, at_seq: int) -> None:
        tail = 0 if query.filters or at_seq else TAIL
        view_id, state = await self._calls.open(query, self.sources, tail=tail)
        facts = facts_of(state)
        if at_seq or tail:
            facts = await self._searched(view_id, facts)
        is_whole = not tail or facts.lines < tail
        await self._adopt(view_id, facts, query, is_whole=is_whole, anchor=(0, at_seq) if at_seq else None)

    async def _searched(self, view_id: str, facts: Facts) -> Facts:
        """Waits until all that is stored was searched."""
        while not facts.complete:
            self.numbering = facts.searched
            self.version += 1
            await self._clock.sleep(POLL_S)
            facts = facts_of((await self._calls.read(view_id, 0, 1)).state)
        self.numbering = None
        return facts

    async def _adopt(
        self, view_id: str, facts: Facts, query: LogQuery, *, is_whole: bool, anchor: tuple[int, int] | None
    ) -> None:
        """Show this view instead of the one before: at the line with the anchor's seq, which had the anchor's number, or at the end."""
        pages = Pages()
        at = max(facts.lines - 1, 0)
        if anchor is not None and facts.lines:
            answer = await self._calls.read(view_id, 0, PAGE, at_seq=anchor[1])
            pages.put(answer.lines)
            facts, at = facts_of(answer.state), max(answer.at, 0)
        # What stands beside it on the screen comes along, so that nothing flickers.
        for page in (at // PAGE - 1, at // PAGE, at // PAGE + 1):
            while page >= 0 and pages.filled(page) < min(facts.lines - page * PAGE, PAGE):
                answer = await self._calls.read(view_id, page * PAGE + pages.filled(page), PAGE - pages.filled(page))
                pages.put(answer.lines)
                if not answer.lines:
                    break
        old, self._view_id = self._view_id, view_id
        self._close(old)
        for task in self._fetching.values():
            task.cancel()
        self._fetching = {}
        self._not_before = {}
        is_same = query == self.query and self.loaded
        self.pages, self.facts, self.query = pages, facts, query
        self.loaded, self.fault, self.numbering = True, "", None
        if is_same and anchor is not None:
            self._shifted += at - anchor[0]
            self._moved += at - anchor[0]
            self.top += at - anchor[0]
            self._seen += at - anchor[0]
        else:
            self.generation += 1
            self.top, self._shifted, self._seen = at, 0, facts.lines
            self.following = anchor is None
        self.version += 1
        if is_whole:
            self._numbered.set()
        else:
            self._numbered.clear()
            self._aside(self._number_all(view_id))

    async def _number_all(self, replaced: str) -> None:
        """Behind what is shown: number the whole log, then show that."""
        view_id = ""
        backoff = Backoff()
        try:
            while self._view_id == replaced:
                try:
                    view_id, state = await self._calls.open(self.query, self.sources)
                    facts = await self._searched(view_id, facts_of(state))
                    if self._view_id == replaced:
                        await self._adopt(view_id, facts, self.query, is_whole=True, anchor=self._anchor())
                        self._wake.set()
                        view_id = ""
                except IrisError as error:
                    self.fault = f"older lines cannot be had: {one_line(error.message)}"
                    self.version += 1
                    await self._clock.sleep(backoff.next_s())
        finally:
            self.numbering = None
            self._close(view_id)

    def _anchor(self) -> tuple[int, int] | None:
        """Number and seq of a line by which the place is found again: what is looked at, else the last one that is here."""
        line = None if self.following else self.line(self.top)
        if line is not None:
            return self.top, line.seq
        last = self.pages.last()
        return (last[0], last[1].seq) if last is not None else None

    async def _go_on(self, view_id: str) -> None:
        """Take what comes, until something else is to be done."""
        await self._ask_why()
        while not self.facts.complete and not self._wake.is_set():
            await first_of(self._clock.sleep(POLL_S), self._wake.wait())
            answer = await self._calls.read(view_id, self.count // PAGE * PAGE, PAGE)
            self._take(view_id, answer.lines, answer.state)
        if self._wake.is_set():
            return
        last = max(self.count - 1, 0) // PAGE
        if self.following and self.pages.filled(last) < self.count - last * PAGE:
            answer = await self._calls.read(view_id, last * PAGE, PAGE)
            self._take(view_id, answer.lines, answer.state)
        at = self.count
        stream = self._calls.tail(view_id, at)
        try:
            async for answer in self._until_woken(stream):
                self._heard()
                if view_id != self._view_id:
                    return
                self._take(view_id, answer.lines, answer.state)
                at += len(answer.lines)
                await self._ask_why()
                if self.count - at > BEHIND:
                    return
        finally:
            await end(stream)
        # The store said all that it will say of this view.
        await first_of(self._clock.sleep(1.0), self._wake.wait())

    async def _until_woken(self, stream: AsyncIterator[Any]) -> AsyncIterator[Any]:
        while not self._wake.is_set():
            following = asyncio.ensure_future(anext(stream, None))
            try:
                await first_of(following, self._wake.wait(), self._clock.sleep(GIVE_UP_S))
            finally:
                # Looked at also where nobody waits any more.
                is_there = following.done() and not following.cancelled() and following.exception() is None
            if following.done() and not following.cancelled() and not is_there:
                following.result()
            answer = following.result() if is_there else None
            if answer is None:
                return
            yield answer

    def _take(self, view_id: str, lines: Any, state: logs_pb2.LogViewState) -> None:
        if view_id != self._view_id:
            return
        self.pages.put(lines)
        facts = facts_of(state)
        if facts.lines < self.facts.lines:
            facts.lines = self.facts.lines
        self.facts = facts
        self.version += 1

    async def _fetch(self, view_id: str, page: int) -> None:
        """The lines of a page that are not here."""
        try:
            while view_id == self._view_id:
                filled = self.pages.filled(page)
                room = min(self.count - page * PAGE, PAGE) - filled
                if room <= 0:
                    return
                answer = await self._calls.read(view_id, page * PAGE + filled, room)
                if not answer.lines:
                    return
                self._take(view_id, answer.lines, answer.state)
                self.fault = ""
        except IrisError as error:
            if is_gone(error):
                self._lose(view_id)
                return
            self._not_before[page] = self._clock.monotonic() + FETCH_AGAIN_S
            self.fault = f"lines could not be read: {one_line(error.message)}"
            self.version += 1
        finally:
            if self._fetching.get(page) is asyncio.current_task():
                del self._fetching[page]

    # --- finding -----------------------------------------------------------------------------------------------------

    async def find(self, start: int, *, regex: str = "", min_level: int = 0, backward: bool = False) -> Hit | None:
        """The next line that matches, or states that level at least, from `start` on; beyond the end it begins at the other one.

        All of the log is searched: that may have to wait until it is numbered. Raises IrisError.
        """
        moved = self._moved

        async def look(view_id: str, start: int) -> logs_pb2.FindNextResponse:
            return await self._calls.find(view_id, start, regex, min_level, backward=backward)

        await self.whole()
        found = await self._of_view(lambda view_id: look(view_id, start + self._moved - moved))
        if found.found:
            return Hit(found.number, found.ordinal, found.total, found.complete)
        if not found.total:
            return None
        found = await self._of_view(lambda view_id: look(view_id, max(self.count - 1, 0) if backward else 0))
        return Hit(found.number, found.ordinal, found.total, found.complete, wrapped=True) if found.found else None

    async def number_at(self, *, seq: int = 0, ms: int = 0) -> int | None:
        """The first line with at least that seq, or at that time; the last one if all are before it, None if there is none.

        Raises IrisError.
        """
        await self.whole()
        answer = await self._of_view(lambda view_id: self._calls.read(view_id, 0, PAGE, at_seq=seq, at_ms=ms))
        self._take(self._view_id, answer.lines, answer.state)
        return answer.at if answer.at >= 0 else None

    async def entry(self, number: int) -> list[logs_pb2.ViewLine]:
        """The stored parts of the line with that number, those there are in the view. Raises IrisError."""
        moved, shown = self._moved, self.line(number)
        first = number - (shown.part if shown is not None else 0)
        return await self._of_view(lambda view_id: self._calls.entry(view_id, first + self._moved - moved))

    async def _of_view(self, ask: Callable[[str], Coroutine[Any, Any, T]]) -> T:
        """An answer about the view; if the store lost it, about the one that takes its place."""
        while True:
            view_id = self._view_id
            try:
                if view_id:
                    return await ask(view_id)
            except IrisError as error:
                if not is_gone(error):
                    raise
                self._lose(view_id)
            await self._clock.sleep(POLL_S)

    def _lose(self, view_id: str) -> None:
        """The store has forgotten it; what is shown stays until the same lines are there again."""
        if view_id == self._view_id:
            self._view_id = ""
            self._wake.set()

    def export(self) -> AsyncIterator[logs_pb2.ExportLogsResponse]:
        """The bytes of all lines that are shown, the filter included. Raises IrisError."""
        return self._calls.export(self.query, self.sources)

    async def _ask_why(self) -> None:
        """While there is no line, the reader wants to know why now."""
        if not self.count and self.query == LogQuery():
            await self.pipeline.ask()

    # --- how it stands -----------------------------------------------------------------------------------------------

    @property
    def why(self) -> str:
        """While there is no line at all: the likely cause, "" = not known."""
        return "" if self.count else self.pipeline.why

    def _changed(self) -> None:
        self.version += 1

    def _heard(self) -> None:
        self._last_answer = self._clock.monotonic()
        self._broken = None
        self._backoff.reset()

    def _fail(self, error: IrisError) -> None:
        self._detail = one_line(error.message)
        self._broken = Link.DENIED if isinstance(error, Denied) else Link.RECONNECTING
        self.version += 1

    def _note(self, error: IrisError) -> None:
        self._detail = one_line(error.message)
        self.version += 1

    def _close(self, view_id: str) -> None:
        """The store need not keep it; it would forget it by itself."""
        if view_id:
            self._aside(self._calls.close(view_id))

    def _aside(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._others.add(task)
        task.add_done_callback(self._others.discard)
