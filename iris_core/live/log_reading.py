"""The lines of a log view that are here, those that are looked at, and what is found among all of them.

A page that is looked at is asked for once, and the page before and after with it; what was passed by meanwhile is not waited for. What
arrives belongs to a view by its id, so a late answer adds nothing. A base of `LogView`, which opens views and follows them. Must never
hold more than `Pages`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from iris_core.contracts import IrisError
from iris_core.live.log_calls import LogCalls, is_gone
from iris_core.live.log_facts import Facts, Hit, facts_of
from iris_core.live.log_lines import PAGE, LogLine, Pages
from iris_core.live.log_query import LogQuery, LogSource
from iris_core.model.text import one_line

if TYPE_CHECKING:
    from iris_core.contracts import AsyncClient
    from iris_core.live.clock import Clock
    from iris_core.wire.gen.iris.v1 import logs_pb2

POLL_S: Final = 0.25
"""How often a search that goes on is asked how far it is."""
FETCH_AGAIN_S: Final = 1.0

T = TypeVar("T")


class LogReading:
    """See the module. `version` changes with everything that is shown, `generation` when other lines are shown under the same numbers."""

    def __init__(
        self,
        client: AsyncClient,
        sources: LogSource | tuple[LogSource, ...],
        clock: Clock,
        *,
        query: LogQuery | None = None,
    ) -> None:
        self.sources = sources if isinstance(sources, tuple) else (sources,)
        self.query = query or LogQuery()
        self.facts = Facts()
        self.pages = Pages()
        self.version = 0
        self.generation = 0
        self.following = True
        self.top = 0
        """The first line that is looked at."""
        self.fault = ""
        """Why lines that are looked at could not be read."""
        self._calls = LogCalls(client, clock, self._heard)
        self._clock = clock
        self._view_id = ""
        self._shifted = 0
        self._moved = 0
        self._seen = 0
        self._fetching: dict[int, asyncio.Task[None]] = {}
        self._not_before: dict[int, float] = {}
        self.arrived = asyncio.Event()
        """Set when lines are here that were asked for, so that whoever draws them need not wait for its next turn; theirs to clear."""
        self._numbered = asyncio.Event()
        self._wake = asyncio.Event()

    def _heard(self) -> None:
        """The store answered."""
        raise NotImplementedError

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

    async def whole(self) -> None:
        """Wait until the lines are numbered from the first one on, however often the connection breaks meanwhile."""
        await self._numbered.wait()

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
                self.arrived.set()
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

    def export(self) -> AsyncIterator[logs_pb2.ExportLogsResponse]:
        """The bytes of all lines that are shown, the filter included. Raises IrisError."""
        return self._calls.export(self.query, self.sources, self._view_id if self.is_whole else "")

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

    def _changed(self) -> None:
        self.version += 1
