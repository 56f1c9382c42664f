"""Watch: snapshot pages, then batched deltas, heartbeats, and a resync marker when a resume is impossible.

A subscription keeps only the ids that changed since its last message, so a slow reader costs memory by ids and never by
messages; the values are read when a message is built and are always the latest. A revision is `(boot_id, n)`, one per published
batch (DESIGN §4 "Watch"). Here are the last batches, the subscriptions, and the sources that several may share.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from iris_controller.commits import Committed
from iris_controller.loop import ControllerLoop
from iris_controller.rpc.errors import invalid, precondition
from iris_controller.watching.followed import PIECE, Followed
from iris_controller.watching.kinds import FOLLOWED
from iris_controller.watching.selection import PAGE_ROWS, Dirty, Key, Selection, compile_selector
from iris_controller.watching.source import Look, Source
from iris_controller.watching.subscription import Subscription
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2

if TYPE_CHECKING:
    from iris_controller.rpc.call import Call

KEPT_BATCHES = 2_048
KEPT_ROWS = 100_000
"""So many changed rows are kept for those who resume."""
SELECTORS = 16

SourceKey = tuple[int, frozenset[str]]


class WatchHub:
    """See the module; `watch` is the RPC handler. `looks` has the kinds that follow no batch."""

    def __init__(
        self,
        loop: ControllerLoop,
        boot_id: str,
        *,
        worker_age_ms: Callable[[str], int],
        finished_tasks: Callable[[str], Awaitable[list[controller_pb2.TaskStatus]]],
        measured: Callable[[controller_pb2.TaskStatus], None] = lambda status: None,
        looks: Mapping[int, Look] | None = None,
    ) -> None:
        self._loop = loop
        self._boot_id = boot_id
        self._followed = Followed(loop, worker_age_ms, finished_tasks, measured)
        self.looks: dict[int, Look] = dict(looks or {})
        """By kind; filled before anybody watches."""
        self._sources: dict[SourceKey, Source] = {}
        self._forgot = False
        """Whether any source was let go in this process."""
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
        for source in self._sources.values():
            source.close()

    def _publish(self, batch: Committed) -> None:
        self._kept.append(batch)
        self._kept_rows += _rows_of(batch)
        while len(self._kept) > KEPT_BATCHES or self._kept_rows > KEPT_ROWS:
            self._kept_rows -= _rows_of(self._kept.popleft())
        for subscription in self._subscriptions:
            subscription.note(batch)
        for source in self._sources.values():
            source.note(batch)

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

        Raises RpcError(INVALID_ARGUMENT) on a selector or filter it cannot serve, PERMISSION_DENIED outside a task's subtree and for
        a kind whose unary calls the caller may not make, FAILED_PRECONDITION for a kind that is not known here.
        """
        subscription = Subscription(self, [compile_selector(s, i) for i, s in enumerate(request.selectors)])
        for selection in subscription.selections:
            if call is not None:
                selection.narrow(call.identity)
            if selection.kind.number not in FOLLOWED | self.looks.keys():
                raise precondition(
                    selection.selector.id, f"{selection.kind.plural} cannot be watched here", code="needs_live_cluster"
                )
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
            for selection in subscription.selections:
                source = self._sources.get(_key(selection))
                if source is not None:
                    source.leave(selection)

    # Rows ---------------------------------------------------------------------------------------------------

    async def join(self, selection: Selection, wake: Callable[[], None]) -> None:
        """Makes sure that somebody looks at what this selector asks for. Raises RpcError."""
        if selection.kind.number in FOLLOWED:
            return
        key = _key(selection)
        source = self._sources.get(key)
        if source is None:
            look = self.looks[selection.kind.number]
            source = Source(
                selection.kind, look, selection.task_ids, lambda: self._loop.n, self._forget, again=self._forgot
            )
            self._sources[key] = source
        await source.join(selection, wake)

    def _forget(self, source: Source) -> None:
        if not source.watchers:
            self._forgot = True
            self._sources.pop((source.kind.number, source.task_ids), None)

    def resume(self, selection: Selection, revision: common_pb2.Revision) -> bool:
        """Notes everything that the selector missed since that revision; False when that is not known any more."""
        missed = self.since(revision)
        source = self._sources.get(_key(selection))
        if source is not None:
            known = source.since(revision.n) if revision.boot_id == self._boot_id else None
            selection.dirty.rows.update(dict.fromkeys(known or ()))
            return known is not None
        for batch in missed or ():
            selection.note(batch)
        return missed is not None

    async def all(self, selection: Selection) -> AsyncIterator[list[tuple[str, Any]]]:
        """Every row of a selector, its filter aside, with its id; in pieces, between which others get their turn."""
        source = self._sources.get(_key(selection))
        if source is None:
            async for piece in self._followed.all(selection):
                yield piece
            return
        rows = [(row_id, row) for row_id, row in source.rows.items() if selection.admits_row(row)]
        for start in range(0, len(rows), PIECE):
            yield rows[start : start + PIECE]

    def changed(self, selection: Selection, dirty: Dirty, rows: controller_pb2.WatchRows) -> None:
        """Adds the latest value of everything dirty to a message."""
        source = self._sources.get(_key(selection))
        if source is None:
            self._followed.changed(selection, dirty, rows)
            return
        now_ms = self.now_ms()
        for row_id in dirty.rows:
            row = source.rows.get(row_id)
            if row is None:
                selection.drop(row_id, rows)
            elif selection.admits_row(row):
                selection.put(row_id, row, now_ms, rows)

    async def snapshot(self, selection: Selection) -> AsyncIterator[controller_pb2.WatchResponse]:
        """All rows of a selector, in pages; removed ids are left out."""
        revision = self.revision()
        selection.dirty.rows.clear()
        # Filled where they are sent from: to copy thousands of rows takes as long as to make them.
        pages = [_page(selection)]
        field, total = selection.kind.field, 0
        async for piece in self.all(selection):
            now_ms = self.now_ms()
            total += len(piece)
            rows = pages[-1].snapshot.rows
            for row_id, row in piece:
                if len(getattr(rows, field)) >= PAGE_ROWS:
                    pages.append(_page(selection))
                    rows = pages[-1].snapshot.rows
                selection.put(row_id, row, now_ms, rows)
        for position, page in enumerate(pages):
            del page.snapshot.rows.removed[:]
            page.snapshot.last = position == len(pages) - 1
            page.snapshot.revision.CopyFrom(revision)
            page.snapshot.total_count = total
            yield page


def _page(selection: Selection) -> controller_pb2.WatchResponse:
    page = controller_pb2.WatchResponse()
    page.snapshot.rows.selector_id = selection.selector.id
    return page


def _key(selection: Selection) -> SourceKey:
    return selection.kind.number, selection.task_ids


def _rows_of(batch: Committed) -> int:
    changes = batch.changes
    return len(changes.tasks) + len(changes.attempts) + len(changes.jobs) + len(changes.workers)
