"""Watch: snapshot pages, then batched deltas, heartbeats, and a resync marker when a resume is impossible.

A subscription keeps only the ids that changed since its last message, so a slow reader costs memory by ids and never by
messages; the values are read when a message is built and are always the latest. A revision is `(boot_id, n)`, one per published
batch (DESIGN §4 "Watch"). Must never read SQL except for the tasks of finished jobs.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from iris_controller.loop import Committed, ControllerLoop
from iris_controller.rpc.errors import invalid
from iris_controller.rpc.views import job_view, task_view, worker_view
from iris_controller.state.records import Attempt, Task
from iris_controller.watch_selection import PAGE_ROWS, Dirty, Key, Selection, compile_selector, split
from iris_core.live.filters import job_row, task_row, worker_row
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2

if TYPE_CHECKING:
    from iris_controller.rpc.dispatch import Call

INTERVAL_S = 0.1
HEARTBEAT_S = 2.0
KEPT_BATCHES = 2_048
KEPT_ROWS = 100_000
"""So many changed rows are kept for those who resume."""
TIMED_S = 5.0
"""How often a filter on ages is looked at again."""
SELECTORS = 16


class WatchHub:
    """Knows the last batches and the subscriptions; `watch` is the RPC handler."""

    def __init__(
        self,
        loop: ControllerLoop,
        boot_id: str,
        *,
        worker_age_ms: Callable[[str], int],
        finished_tasks: Callable[[str], Awaitable[list[controller_pb2.TaskStatus]]],
        measured: Callable[[controller_pb2.TaskStatus], None] = lambda status: None,
    ) -> None:
        self._loop = loop
        self.model = loop.model
        self._boot_id = boot_id
        self._worker_age_ms = worker_age_ms
        self._finished_tasks = finished_tasks
        self._measured = measured
        """Adds what was measured of a task to its row."""
        self._kept: deque[Committed] = deque()
        self._kept_rows = 0
        self._subscriptions: set[Subscription] = set()
        loop.on_commit(self._publish)

    @property
    def subscribers(self) -> int:
        return len(self._subscriptions)

    def now_ms(self) -> int:
        return self._loop.now_ms()

    def revision(self) -> common_pb2.Revision:
        return common_pb2.Revision(boot_id=self._boot_id, n=self._loop.n)

    def close(self) -> None:
        """Ends every stream; clients resume at the next controller."""
        for subscription in self._subscriptions:
            subscription.close()

    def _publish(self, batch: Committed) -> None:
        self._kept.append(batch)
        self._kept_rows += _rows_of(batch)
        while len(self._kept) > KEPT_BATCHES or self._kept_rows > KEPT_ROWS:
            self._kept_rows -= _rows_of(self._kept.popleft())
        for subscription in self._subscriptions:
            subscription.note(batch)

    def measured(self, keys: Iterable[Key]) -> None:
        """Tasks of which something else is known, while their state is as it was."""
        for subscription in self._subscriptions:
            subscription.note_tasks(keys)

    def since(self, revision: common_pb2.Revision) -> list[Committed] | None:
        """The batches after `revision`, or None when they are not all kept."""
        if revision.boot_id != self._boot_id or revision.n > self._loop.n:
            return None
        if revision.n == self._loop.n:
            return []
        if not self._kept or self._kept[0].n > revision.n + 1:
            return None
        return [b for b in self._kept if b.n > revision.n]

    async def watch(
        self, request: controller_pb2.WatchRequest, call: Call | None
    ) -> AsyncIterator[controller_pb2.WatchResponse]:
        """The stream of one client; `call` is None for a caller inside the controller.

        Raises RpcError(INVALID_ARGUMENT) on a selector or filter it cannot serve, PERMISSION_DENIED outside a task's subtree.
        """
        subscription = Subscription(self, [compile_selector(s, i) for i, s in enumerate(request.selectors)])
        if call is not None:
            for selection in subscription.selections:
                selection.narrow(call.identity)
        if not subscription.selections:
            raise invalid("selectors", "a watch needs at least one selector")
        if len(subscription.selections) > SELECTORS:
            raise invalid("selectors", f"a watch takes at most {SELECTORS} selectors")
        self._subscriptions.add(subscription)
        try:
            async for message in subscription.messages():
                yield message
        finally:
            self._subscriptions.discard(subscription)

    # Rows ---------------------------------------------------------------------------------------------------

    def job_rows(
        self, selection: Selection, ids: Iterable[str], rows: controller_pb2.WatchRows, *, again: bool = False
    ) -> None:
        for job_id in ids:
            job = self.model.jobs.get(job_id)
            if job is None:
                rows.removed.append(job_id)
                continue
            status = job_view(self.model, job)
            matches = selection.filter is None or selection.filter.matches(job_row(status, self._loop.now_ms()))
            send = selection.keep(job_id, matches, again=again)
            if send:
                rows.jobs.append(status)
            elif send is False:
                rows.removed.append(job_id)

    def task_rows(
        self, selection: Selection, tasks: Iterable[Task], rows: controller_pb2.WatchRows, *, again: bool = False
    ) -> None:
        for task in tasks:
            attempt: Attempt | None = self.model.attempts.get(task.attempt_uid)
            status = task_view(self.model, self.model.jobs.get(task.job_id), task, attempt)
            self._measured(status)
            matches = selection.filter is None or selection.filter.matches(task_row(status, self._loop.now_ms()))
            send = selection.keep(task.task_id, matches, again=again)
            if send:
                rows.tasks.append(status)
            elif send is False:
                rows.removed.append(task.task_id)

    async def anew(self, selection: Selection) -> AsyncIterator[controller_pb2.WatchRows]:
        """What time alone has changed for a selector, in parts."""
        if selection.selector.kind == controller_pb2.WATCH_KIND_JOBS:
            ids = [job_id for job_id in self.model.jobs if selection.admits(job_id)]
            for start in range(0, len(ids), 500):
                rows = controller_pb2.WatchRows(selector_id=selection.selector.id)
                self.job_rows(selection, ids[start : start + 500], rows, again=True)
                yield rows
        else:
            for job_id in sorted(selection.job_ids):
                tasks = list(self.model.tasks.get(job_id, ()))
                for start in range(0, len(tasks), 500):
                    rows = controller_pb2.WatchRows(selector_id=selection.selector.id)
                    self.task_rows(selection, tasks[start : start + 500], rows, again=True)
                    yield rows

    def worker_rows(self, selection: Selection, ids: Iterable[str], rows: controller_pb2.WatchRows) -> None:
        for worker_id in ids:
            worker = self.model.workers.get(worker_id)
            if worker is None:
                rows.removed.append(worker_id)
                continue
            status = worker_view(self.model, worker, self._worker_age_ms(worker_id))
            if selection.filter is None or selection.filter.matches(worker_row(status)):
                rows.workers.append(status)
            else:
                rows.removed.append(worker_id)

    async def snapshot(self, selection: Selection) -> AsyncIterator[controller_pb2.WatchResponse]:
        """All rows of a selector, in pages; removed ids are left out."""
        kind = selection.selector.kind
        revision = self.revision()
        pages: list[controller_pb2.WatchRows] = []
        page = controller_pb2.WatchRows(selector_id=selection.selector.id)

        def room() -> controller_pb2.WatchRows:
            nonlocal page
            if len(page.jobs) + len(page.tasks) + len(page.workers) >= PAGE_ROWS:
                pages.append(page)
                page = controller_pb2.WatchRows(selector_id=selection.selector.id)
            return page

        total = 0
        if kind == controller_pb2.WATCH_KIND_JOBS:
            ids = [job_id for job_id in self.model.jobs if selection.admits(job_id)]
            total = len(ids)
            for start in range(0, len(ids), 500):
                self.job_rows(selection, ids[start : start + 500], room())
                await asyncio.sleep(0)
        elif kind == controller_pb2.WATCH_KIND_TASKS:
            for job_id in sorted(selection.job_ids):
                live = self.model.tasks.get(job_id)
                if live is None:
                    for status in await self._finished_tasks(job_id):
                        total += 1
                        if selection.filter is None or selection.filter.matches(task_row(status, self._loop.now_ms())):
                            room().tasks.append(status)
                    continue
                tasks = list(live)
                total += len(tasks)
                for start in range(0, len(tasks), 500):
                    self.task_rows(selection, tasks[start : start + 500], room())
                    await asyncio.sleep(0)
        else:
            ids = list(self.model.workers)
            total = len(ids)
            for start in range(0, len(ids), 500):
                self.worker_rows(selection, ids[start : start + 500], room())
        pages.append(page)
        for position, rows in enumerate(pages):
            del rows.removed[:]
            yield controller_pb2.WatchResponse(
                snapshot=controller_pb2.WatchSnapshotPage(
                    rows=rows, last=position == len(pages) - 1, revision=revision, total_count=total
                )
            )


class Subscription:
    """One client's stream."""

    def __init__(self, hub: WatchHub, selections: list[Selection]) -> None:
        self.selections = selections
        self._hub = hub
        self._wake = asyncio.Event()
        self._closed = False
        self._timed_at = time.monotonic() + TIMED_S if any(s.shown is not None for s in selections) else math.inf
        self._reached = min(
            (s.selector.resume for s in selections if s.selector.resume.boot_id == hub.revision().boot_id),
            key=lambda revision: revision.n,
            default=hub.revision(),
        )
        """Up to here everything was sent, for every selector."""

    def close(self) -> None:
        self._closed = True
        self._wake.set()

    def note(self, batch: Committed) -> None:
        for selection in self.selections:
            selection.note(batch)
            if selection.dirty or selection.replaced:
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
                    heartbeat=controller_pb2.WatchHeartbeat(revision=self._hub.revision(), now_ms=self._hub.now_ms())
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
            if time.monotonic() >= self._timed_at:
                async for part in self._anew():
                    yield part

    async def _begin(self, selection: Selection) -> AsyncIterator[controller_pb2.WatchResponse]:
        resume = selection.selector.resume
        if resume.boot_id:
            missed = self._hub.since(resume)
            if missed is not None:
                for batch in missed:
                    selection.note(batch)
                self._wake.set()
                return
            reason = (
                "the controller was restarted"
                if resume.boot_id != self._hub.revision().boot_id
                else "the revision is too old"
            )
            async for message in self._afresh(selection, reason):
                yield message
            return
        async for page in self._hub.snapshot(selection):
            yield page

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
        for selection in self.selections:
            if selection.shown is None:
                continue
            async for rows in self._hub.anew(selection):
                for part in split(rows):
                    if part.jobs or part.tasks or part.removed:
                        yield controller_pb2.WatchResponse(
                            delta=controller_pb2.WatchDelta(rows=[part], revision=self._reached)
                        )
                await asyncio.sleep(0)
        self._timed_at = time.monotonic() + TIMED_S

    def _deltas(self) -> list[controller_pb2.WatchDelta]:
        """The latest value of everything dirty, in messages of at most PAGE_ROWS rows."""
        revision = self._hub.revision()
        parts: list[controller_pb2.WatchRows] = []
        for selection in self.selections:
            dirty, selection.dirty = selection.dirty, Dirty()
            if not dirty:
                continue
            rows = controller_pb2.WatchRows(selector_id=selection.selector.id)
            if selection.selector.kind == controller_pb2.WATCH_KIND_TASKS:
                self._task_delta(selection, dirty, rows)
            else:
                self._hub.job_rows(selection, dirty.jobs, rows)
                self._hub.worker_rows(selection, dirty.workers, rows)
            rows.removed.extend(dirty.removed)
            parts.extend(split(rows))
        # Only the last part brings the reader to this revision: a stream that breaks before it must resume from before.
        before, self._reached = self._reached, revision
        return [
            controller_pb2.WatchDelta(rows=[part], revision=revision if part is parts[-1] else before) for part in parts
        ]

    def _task_delta(self, selection: Selection, dirty: Dirty, rows: controller_pb2.WatchRows) -> None:
        tasks: dict[Key, Task] = {}
        for job_id in dirty.jobs:
            for task in self._hub.model.tasks.get(job_id, ()):
                tasks[(job_id, task.index)] = task
        for key, known in dirty.tasks.items():
            latest = self._hub.model.task(*key) or known
            if latest is not None:
                tasks[key] = latest
        self._hub.task_rows(selection, tasks.values(), rows)


def _rows_of(batch: Committed) -> int:
    changes = batch.changes
    return len(changes.tasks) + len(changes.attempts) + len(changes.jobs) + len(changes.workers)
