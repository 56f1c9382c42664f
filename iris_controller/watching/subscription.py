"""One client's Watch stream: a snapshot or what was missed, then deltas and heartbeats, until either side ends it.

A revision is told only once everything up to it was sent, for every selector: a stream that breaks anywhere resumes without a gap.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING

from iris_controller.commits import Committed
from iris_controller.watching.selection import Dirty, Key, Selection, split
from iris_core.live.watch_keys import count
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2

if TYPE_CHECKING:
    from iris_controller.watching.hub import WatchHub

INTERVAL_S = 0.1
HEARTBEAT_S = 2.0
TIMED_S = 5.0
"""How often a filter on ages is looked at again."""
TIMED_SHARE = 20.0
"""At least so many times as long as looking took."""


class Subscription:
    """See the module."""

    def __init__(self, hub: WatchHub, selections: list[Selection]) -> None:
        self.selections = selections
        self._hub = hub
        self._wake = asyncio.Event()
        self._closed = False
        self._timed_at = time.monotonic() + TIMED_S if any(s.timed for s in selections) else math.inf
        self._reached = min(
            (s.selector.resume for s in selections if s.selector.resume.boot_id == hub.revision().boot_id),
            key=lambda revision: revision.n,
            default=hub.revision(),
        )
        """Up to here everything was sent, for every selector."""

    def wake(self) -> None:
        self._wake.set()

    def close(self) -> None:
        self._closed = True
        self._wake.set()

    def note(self, batch: Committed) -> None:
        for selection in self.selections:
            selection.note(batch)
            if selection.dirty or selection.replaced or selection.owed:
                self._wake.set()

    def note_tasks(self, keys: Iterable[Key]) -> None:
        for selection in self.selections:
            if selection.note_tasks(keys):
                self._wake.set()

    async def messages(self) -> AsyncIterator[controller_pb2.WatchResponse]:
        for selection in self.selections:
            async for message in self._begin(selection):
                yield message
        last = 0.0
        # At once: a stream that resumed with nothing missed must show that it lives, or its reader calls it stale.
        beat = time.monotonic()
        while True:
            try:
                async with asyncio.timeout(max(0.0, min(beat, self._timed_at) - time.monotonic())):
                    await self._wake.wait()
            except TimeoutError:
                if time.monotonic() >= self._timed_at:
                    async for part in self._anew():
                        yield part
                    continue
                beat = time.monotonic() + HEARTBEAT_S * random.uniform(0.8, 1.0)
                yield controller_pb2.WatchResponse(
                    heartbeat=controller_pb2.WatchHeartbeat(revision=self._told(), now_ms=self._hub.now_ms())
                )
                continue
            if self._closed:
                return
            pause = last + INTERVAL_S - time.monotonic()
            if pause > 0:
                await asyncio.sleep(pause)
            self._wake.clear()
            last = time.monotonic()
            for selection in self.selections:
                if selection.replaced:
                    selection.replaced, selection.dirty = False, Dirty()
                    async for message in self._afresh(selection, "a job was replaced by another of its name"):
                        yield message
            for delta in self._deltas():
                yield controller_pb2.WatchResponse(delta=delta)
            if any(selection.owed or selection.measured for selection in self.selections):
                self._wake.set()
            if time.monotonic() >= self._timed_at:
                async for part in self._anew():
                    yield part

    def _told(self) -> common_pb2.Revision:
        """Up to where everything was sent, when nothing is dirty."""
        return self._reached if any(s.owed for s in self.selections) else self._hub.revision()

    async def _begin(self, selection: Selection) -> AsyncIterator[controller_pb2.WatchResponse]:
        await self._hub.join(selection, self.wake)
        resume = selection.selector.resume
        if not resume.boot_id:
            async for page in self._hub.snapshot(selection):
                yield page
            return
        if selection.shown is not None:
            reason = "what the filter left out is not remembered"
        elif self._hub.resume(selection, resume):
            self._wake.set()
            return
        elif resume.boot_id != self._hub.revision().boot_id:
            reason = "the controller was restarted"
        else:
            reason = "the revision is too old"
        async for message in self._afresh(selection, reason):
            yield message

    async def _afresh(self, selection: Selection, reason: str) -> AsyncIterator[controller_pb2.WatchResponse]:
        yield controller_pb2.WatchResponse(
            resync=controller_pb2.WatchResync(selector_id=selection.selector.id, reason=reason)
        )
        if selection.shown is not None:
            selection.shown.clear()
        async for page in self._hub.snapshot(selection):
            yield page

    async def _anew(self) -> AsyncIterator[controller_pb2.WatchResponse]:
        """Filters on ages once more. Says no revision that was not reached: a part is not all that changed since."""
        began = time.monotonic()
        for selection in self.selections:
            if not selection.timed:
                continue
            async for piece in self._hub.all(selection):
                rows, now_ms = selection.room(), self._hub.now_ms()
                for row_id, row in piece:
                    selection.put(row_id, row, now_ms, rows, again=True)
                for part in split(rows):
                    if count(part) or part.removed:
                        yield controller_pb2.WatchResponse(
                            delta=controller_pb2.WatchDelta(rows=[part], revision=self._reached)
                        )
        now = time.monotonic()
        self._timed_at = now + max(TIMED_S, TIMED_SHARE * (now - began))

    def _deltas(self) -> list[controller_pb2.WatchDelta]:
        """The latest value of everything dirty, in messages of at most PAGE_ROWS rows."""
        revision = self._hub.revision()
        parts: list[controller_pb2.WatchRows] = []
        for selection in self.selections:
            dirty, selection.dirty = selection.dirty, Dirty()
            if not (dirty or selection.owed or selection.measured):
                continue
            rows = selection.room()
            self._hub.changed(selection, dirty, rows)
            parts.extend(split(rows))
        # Only the last part brings the reader to this revision: a stream that breaks before it must resume from before.
        before = self._reached
        if not any(selection.owed for selection in self.selections):
            self._reached = revision
        return [
            controller_pb2.WatchDelta(rows=[part], revision=self._reached if part is parts[-1] else before)
            for part in parts
        ]
