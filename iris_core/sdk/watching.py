"""A watch on jobs that survives broken connections: what was missed meanwhile is told, nothing is told twice.

Fed with the messages of one `Watch` stream after the other. Must never open one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from iris_core.sdk.records import Gone, JobInfo, job_info
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

if TYPE_CHECKING:
    from iris_core.wire.gen.iris.v1.common_pb2 import Revision

SELECTOR = "jobs"


class JobWatch:
    """What is known so far, and what of a message is news."""

    def __init__(self, filter: str, job_ids: tuple[str, ...]) -> None:
        self._filter = filter
        self._job_ids = job_ids
        self._known: dict[str, JobInfo] = {}
        self._snapshot: set[str] | None = None
        self._applied: Revision | None = None

    def request(self) -> pb.WatchRequest:
        """For the next stream: it goes on where the last one ended."""
        self._snapshot = None
        request = pb.WatchRequest()
        request.selectors.add(
            id=SELECTOR, kind=pb.WATCH_KIND_JOBS, filter=self._filter, job_ids=self._job_ids, resume=self._applied
        )
        return request

    def take(self, message: pb.WatchResponse) -> Iterator[JobInfo | Gone]:
        """The news in a message."""
        event = message.WhichOneof("event")
        if event == "snapshot":
            yield from self._page(message.snapshot)
        elif event == "delta":
            for rows in message.delta.rows:
                yield from self._rows(rows)
            self._advance(message.delta.revision)
        elif event == "heartbeat":
            self._advance(message.heartbeat.revision)
        elif event == "resync":
            self._applied, self._snapshot = None, None

    def _page(self, page: pb.WatchSnapshotPage) -> Iterator[JobInfo | Gone]:
        if self._snapshot is None:
            self._snapshot = set()
        yield from self._rows(page.rows)
        if page.last:
            for job_id in self._known.keys() - self._snapshot:
                del self._known[job_id]
                yield Gone(job_id)
            self._snapshot, self._applied = None, page.revision

    def _rows(self, rows: pb.WatchRows) -> Iterator[JobInfo | Gone]:
        for row in rows.jobs:
            job = job_info(row)
            if self._snapshot is not None:
                self._snapshot.add(job.job_id)
            if self._known.get(job.job_id) != job:
                self._known[job.job_id] = job
                yield job
        for job_id in rows.removed:
            if self._snapshot is not None:
                self._snapshot.discard(job_id)
            if self._known.pop(job_id, None) is not None:
                yield Gone(job_id)

    def _advance(self, revision: Revision) -> None:
        if self._applied is not None:
            self._applied = revision
