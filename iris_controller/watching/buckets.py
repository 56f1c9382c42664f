"""Rows of what waits and what runs, in the numbers of GetSchedulerState: both are made from the queue and the sums of the model.

Must never look at every task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_controller.rpc.backends import BACKEND_ID
from iris_controller.scheduling.order import explain_pending
from iris_controller.scheduling.waiting import queue
from iris_controller.state.budgets import budget_user
from iris_controller.watching.source import apart
from iris_core.wire.convert import band_to_wire, constraint_to_wire, resources_to_wire
from iris_core.wire.gen.iris.v1 import watch_rows_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_controller.scheduling.waiting import Waiting
    from iris_controller.state.model import Model
    from iris_controller.state.records import Job
    from iris_core.model.bands import PriorityBand

Bucket = tuple[str, "PriorityBand", str]
"""Job, band, worker."""


class PendingBuckets:
    """Looks at what waits. `since` says since when the oldest task of a job does."""

    def __init__(self, model: Model, since: Callable[[str], int]) -> None:
        self._model = model
        self._since = since

    async def look(self, task_ids: frozenset[str]) -> list[watch_rows_pb2.PendingBucketRow]:
        model = self._model
        found = [
            (bucket, explain_pending(model, bucket.job.job_id), self._since(bucket.job.job_id))
            for bucket in queue(model)
        ]
        return await apart(len(found), pending_rows, found)


def pending_rows(found: Iterable[tuple[Waiting, str, int]]) -> list[watch_rows_pb2.PendingBucketRow]:
    """One for each bucket with its reason and since when it waits, in the order given."""
    return [
        watch_rows_pb2.PendingBucketRow(
            bucket_id=bucket.job.job_id,
            job_id=bucket.job.job_id,
            band=band_to_wire(bucket.band),
            requested_band=band_to_wire(bucket.job.spec.band),
            user_id=bucket.user_id,
            backend_id=BACKEND_ID,
            count=bucket.count,
            position=bucket.position,
            pending_since_ms=since,
            reason=reason,
            resources=resources_to_wire(bucket.job.spec.resources),
            gang=bool(bucket.job.spec.group_by),
            constraints=[constraint_to_wire(c) for c in bucket.job.spec.constraints],
        )
        for bucket, reason, since in found
    ]


class RunningBuckets:
    """Looks at what runs; a bucket of which nothing changed keeps its row."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._rows: dict[Bucket, watch_rows_pb2.RunningBucketRow] = {}

    async def look(self, task_ids: frozenset[str]) -> list[watch_rows_pb2.RunningBucketRow]:
        model = self._model
        running = [(model.jobs[job_id], dict(buckets)) for job_id, buckets in model.tally.running.items()]
        self._rows = await apart(sum(len(buckets) for _, buckets in running), running_rows, running, self._rows)
        return list(self._rows.values())


def running_rows(
    running: Iterable[tuple[Job, dict[tuple[PriorityBand, str], int]]],
    before: dict[Bucket, watch_rows_pb2.RunningBucketRow],
) -> dict[Bucket, watch_rows_pb2.RunningBucketRow]:
    """By job, band and worker, in this order; taken from `before` where it says the same."""
    rows: dict[Bucket, watch_rows_pb2.RunningBucketRow] = {}
    for job, buckets in sorted(running, key=lambda known: known[0].job_id):
        user_id = budget_user(job)
        for (band, worker_id), count in sorted(buckets.items()):
            key = job.job_id, band, worker_id
            row = before.get(key)
            if row is None or row.count != count or row.user_id != user_id:
                row = watch_rows_pb2.RunningBucketRow(
                    bucket_id=f"{job.job_id} {band.label} {worker_id}",
                    job_id=job.job_id,
                    band=band_to_wire(band),
                    user_id=user_id,
                    worker_id=worker_id,
                    backend_id=BACKEND_ID,
                    count=count,
                )
            rows[key] = row
    return rows
