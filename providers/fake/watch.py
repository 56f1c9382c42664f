"""What `Watch` shows of the cluster that exists only in memory: rows with revisions, and streams that resume as the real ones do.

Filters are the real controller's business: a selector gets all rows of its kind, or those of its jobs or tasks. Must never send
anything that no test caused.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import IrisError
from iris_core.live.watch_keys import KIND_FIELDS, ROW_IDS
from iris_core.wire.gen.iris.v1 import common_pb2 as common
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

if TYPE_CHECKING:
    from google.protobuf.message import Message

_FIELDS: Final = {
    field.message_type.full_name: field.name
    for field in pb.WatchRows.DESCRIPTOR.fields
    if field.message_type is not None and field.name in ROW_IDS
}
"""The field of `WatchRows` for each kind of row, by its message."""


@dataclass(slots=True)
class _Batch:
    """Fields of `WatchRows` with the ids that changed or went."""

    n: int
    changed: tuple[tuple[str, str], ...]


@dataclass(slots=True, eq=False)
class Stream:
    """One that is open, with what it has not sent yet; an error ends it."""

    selectors: list[pb.WatchSelector]
    queue: asyncio.Queue[pb.WatchResponse | IrisError] = field(default_factory=asyncio.Queue)


class FakeWatch:
    """`rows` are the latest values: by field of `WatchRows`, then by id."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {field: {} for field in ROW_IDS}
        self.page_rows = 2000
        """Rows on one page of a snapshot."""
        self.snapshots = 0
        """How many snapshots were sent: a resumed stream needs none."""
        self.streams: set[Stream] = set()
        """Those that are open."""
        self._boot = 1
        self._n = 0
        self._batches: list[_Batch] = []

    @property
    def revision(self) -> common.Revision:
        """Of the last batch."""
        return common.Revision(boot_id=f"{self._boot:016x}", n=self._n)

    def put(self, *items: Message) -> None:
        """The latest values of these, rows of any kind, as one batch."""
        changed: list[tuple[str, str]] = []
        for item in items:
            name = _FIELDS[item.DESCRIPTOR.full_name]
            row_id = ROW_IDS[name](item)
            self.rows[name][row_id] = item
            changed.append((name, row_id))
        self.publish(*changed)

    def publish(self, *changed: tuple[str, str]) -> None:
        """Tells every stream of these rows, each a field of `WatchRows` and an id, as they are now or that they are gone."""
        self._n += 1
        batch = _Batch(self._n, changed)
        self._batches.append(batch)
        for stream in self.streams:
            rows = [part for selector in stream.selectors if (part := self._rows(selector, [batch])) is not None]
            if rows:
                delta = pb.WatchDelta(rows=rows, revision=self.revision)
                stream.queue.put_nowait(pb.WatchResponse(delta=delta))

    def heartbeat(self, now_ms: int) -> pb.WatchResponse:
        """That nothing happened."""
        return pb.WatchResponse(heartbeat=pb.WatchHeartbeat(revision=self.revision, now_ms=now_ms))

    def beat(self, now_ms: int) -> None:
        """Tells every stream that nothing happened."""
        for stream in self.streams:
            stream.queue.put_nowait(self.heartbeat(now_ms))

    def restart(self) -> None:
        """Another boot id: no stream can resume."""
        self._boot += 1
        self._n = 0
        self._batches.clear()

    def end_streams(self, error: IrisError) -> None:
        """Each ends once it has sent what came before."""
        for stream in list(self.streams):
            stream.queue.put_nowait(error)

    def begin(self, selector: pb.WatchSelector) -> list[pb.WatchResponse]:
        """What a stream says first of a selector: what came since its revision, or a snapshot, with the reason for a resync."""
        resume = selector.resume
        if resume.boot_id == self.revision.boot_id and resume.n <= self._n:
            rows = self._rows(selector, [batch for batch in self._batches if batch.n > resume.n])
            delta = pb.WatchDelta(rows=[rows] if rows is not None else [], revision=self.revision)
            return [pb.WatchResponse(delta=delta)]
        messages: list[pb.WatchResponse] = []
        if resume.boot_id:
            resync = pb.WatchResync(selector_id=selector.id, reason="the controller was restarted")
            messages.append(pb.WatchResponse(resync=resync))
        self.snapshots += 1
        items = list(self._shown(selector).values())
        pages = [items[at : at + self.page_rows] for at in range(0, len(items), self.page_rows)] or [[]]
        for page in pages:
            rows = pb.WatchRows(selector_id=selector.id)
            getattr(rows, KIND_FIELDS[selector.kind]).extend(page)
            snapshot = pb.WatchSnapshotPage(
                rows=rows, last=page is pages[-1], revision=self.revision, total_count=len(items)
            )
            messages.append(pb.WatchResponse(snapshot=snapshot))
        return messages

    def _rows(self, selector: pb.WatchSelector, batches: list[_Batch]) -> pb.WatchRows | None:
        name = KIND_FIELDS[selector.kind]
        shown = self._shown(selector)
        rows = pb.WatchRows(selector_id=selector.id)
        for row_id in dict.fromkeys(row_id for batch in batches for kind, row_id in batch.changed if kind == name):
            if row_id in shown:
                getattr(rows, name).append(shown[row_id])
            elif row_id not in self.rows[name]:
                rows.removed.append(row_id)
        return rows if rows.removed or getattr(rows, name) else None

    def _shown(self, selector: pb.WatchSelector) -> dict[str, Any]:
        """The rows that a selector asks for."""
        rows = self.rows[KIND_FIELDS[selector.kind]]
        if selector.kind == pb.WATCH_KIND_TASKS and selector.job_ids:
            wanted = set(selector.job_ids)
            return {name: task for name, task in rows.items() if task.job_id in wanted}
        if selector.kind == pb.WATCH_KIND_ATTEMPTS:
            wanted = set(selector.task_ids)
            return {name: attempt for name, attempt in rows.items() if attempt.task_id in wanted}
        return rows
