"""A log as its reader sees it: numbered lines of which a few pages are here, the end followed, a filter and a find on the server.

The store numbers the lines (console §2.3b); a line that is not here is asked for when somebody looks, so scrolling never waits. The
last lines are shown first, from a view of their own, while the store numbers the whole log; then the one takes the place of the other at
the same line. A view that the store forgot is opened again at the same line. What arrives belongs to a view by its id, so a late
answer adds nothing. Following goes on from the number of the last line: no gap and no duplicate whatever breaks. Never touches a
widget, and never holds more than `Pages`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import IrisError, RpcFailed
from iris_core.live.backoff import Backoff
from iris_core.live.faults import fault_text
from iris_core.live.log_calls import end, is_gone
from iris_core.live.log_facts import Facts, facts_of
from iris_core.live.log_lines import PAGE, Pages
from iris_core.live.log_query import LogQuery, LogSource
from iris_core.live.log_reading import POLL_S, LogReading
from iris_core.live.pipeline import PipelineWatch
from iris_core.live.waiting import first_of
from iris_core.live.watch import Link, LinkState, link_after
from iris_core.model.text import one_line

if TYPE_CHECKING:
    from iris_core.contracts import AsyncClient
    from iris_core.live.clock import Clock
    from iris_core.live.log_calls import Opened

__all__ = ["LogQuery", "LogSource", "LogView"]

TAIL: Final = 2 * PAGE
"""Lines of the view that is shown before the whole log is numbered: more than any screen has, and what comes with its answer."""
SILENT_S: Final = 12.0
"""A store that follows says something every 5 s; after so long the lines count as stale."""
SLOW_S: Final = 5.0
"""One that has not answered the first question after so long is said to be silent."""
SILENT: Final = "the log store is silent"
GIVE_UP_S: Final = 30.0
BEHIND: Final = 8 * PAGE
"""So many lines behind the end the follow goes on from the end, and what lies between is read when it is looked at."""


class LogView(LogReading):
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
        super().__init__(client, sources, clock, query=query)
        self.loaded = False
        self.numbering: float | None = None
        """How much of the whole log is numbered, while that is under way."""
        self.pipeline = PipelineWatch(self._calls, self.sources, clock, self._changed)
        """How the way of the lines is."""
        self._backoff = backoff or Backoff()
        self._others: set[asyncio.Task[None]] = set()
        self._broken: Link | None = None
        self._detail = ""
        self._last_answer: float | None = None
        self._asked_at: float | None = None
        """When it was asked first."""
        self._wanted: tuple[LogQuery, int, asyncio.Future[None]] | None = None

    # --- what is shown -----------------------------------------------------------------------------------------------

    @property
    def state(self) -> LinkState:
        """How the connection to the log store stands."""
        age = None if self._last_answer is None else self._clock.monotonic() - self._last_answer
        if self._broken is not None:
            return LinkState(self._broken, age, self._detail)
        if age is None:
            waited = self._clock.monotonic() - self._asked_at if self._asked_at is not None else 0.0
            return LinkState(Link.STALE, waited, SILENT) if waited > SLOW_S else LinkState(Link.CONNECTING)
        if age > SILENT_S:
            return LinkState(Link.STALE, age, SILENT)
        return LinkState(Link.LIVE, age)

    # --- the view ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Show the end and follow it, for ever. Cancel the task to end it; when it runs again it goes on at the same line."""
        watcher = asyncio.ensure_future(self.pipeline.run())
        self._asked_at = self._clock.monotonic()
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

    async def _begin(self) -> None:
        """The view that is shown first, or again after it was lost."""
        if self.loaded and not self.following and (anchor := self._anchor()) is not None:
            opened = await self._calls.open(self.query, self.sources)
            facts = await self._searched(opened.view_id, facts_of(opened.state))
            await self._adopt(opened, facts, self.query, is_whole=True, anchor=anchor)
            return
        await self._load(self.query, 0)

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
        opened = await self._calls.open(query, self.sources, tail=tail, last_lines=0 if at_seq else TAIL)
        facts = facts_of(opened.state)
        if at_seq or tail:
            facts = await self._searched(opened.view_id, facts)
        is_whole = not tail or facts.lines < tail
        await self._adopt(opened, facts, query, is_whole=is_whole, anchor=(0, at_seq) if at_seq else None)

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
        self, opened: Opened, facts: Facts, query: LogQuery, *, is_whole: bool, anchor: tuple[int, int] | None
    ) -> None:
        """Show this view instead of the one before: at the line with the anchor's seq, which had the anchor's number, or at the end."""
        view_id, pages = opened.view_id, Pages()
        pages.put(opened.lines)
        at = max(facts.lines - 1, 0)
        if anchor is not None and facts.lines:
            known = next((found.number for found in opened.lines if found.line.seq == anchor[1]), None)
            if known is None:
                answer = await self._calls.read(view_id, 0, PAGE, at_seq=anchor[1])
                pages.put(answer.lines)
                facts, known = facts_of(answer.state), max(answer.at, 0)
            at = known
        # What stands beside it on the screen comes along, so that nothing flickers; as a rule in one answer.
        end = (at // PAGE + 2) * PAGE
        for page in (at // PAGE - 1, at // PAGE, at // PAGE + 1):
            while page >= 0 and pages.filled(page) < min(facts.lines - page * PAGE, PAGE):
                first = page * PAGE + pages.filled(page)
                answer = await self._calls.read(view_id, first, end - first)
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
        self.arrived.set()
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
                    # Who reads the end has the same lines at the end of all.
                    last_lines = TAIL if self.following else 0
                    opened = await self._calls.open(self.query, self.sources, last_lines=last_lines)
                    view_id = opened.view_id
                    facts = await self._searched(view_id, facts_of(opened.state))
                    if self._view_id == replaced:
                        await self._adopt(opened, facts, self.query, is_whole=True, anchor=self._anchor())
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

    async def _ask_why(self) -> None:
        """While there is no line, the reader wants to know why now."""
        if not self.count and self.query == LogQuery():
            await self.pipeline.ask()

    # --- how it stands -----------------------------------------------------------------------------------------------

    @property
    def why(self) -> str:
        """While there is no line at all: the likely cause, "" = not known."""
        return "" if self.count else self.pipeline.why

    def _heard(self) -> None:
        self._last_answer = self._clock.monotonic()
        self._broken = None
        self._backoff.reset()

    def _fail(self, error: IrisError) -> None:
        self._detail = fault_text(error)
        self._broken = link_after(error)
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
