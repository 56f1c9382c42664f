"""GetSchedulerState: what waits, in which order and why, what runs where, and who spends how much (control-plane §2.8).

All of it is one snapshot: taken between two batches, from sums that the model keeps, in a few milliseconds; what takes longer is done in
a thread. Must never look at every task.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from iris_controller.rpc.backends import BACKEND_ID
from iris_controller.rpc.budgets import budget_view
from iris_controller.rpc.errors import invalid
from iris_controller.scheduling.order import explain_pending
from iris_controller.scheduling.waiting import queue
from iris_controller.state.budgets import budget_user
from iris_core.wire.convert import band_to_wire, constraint_to_wire, resources_to_wire
from iris_core.wire.gen.iris.v1 import controller_pb2
from iris_core.wire.raw import delimited, tag

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_controller.loop import ControllerLoop
    from iris_controller.rpc.call import Call
    from iris_controller.rpc.dispatch import Router
    from iris_controller.scheduling.waiting import Waiting
    from iris_controller.state.records import Job
    from iris_core.model.bands import PriorityBand
    from iris_core.wire.gen.iris.v1 import common_pb2

QUEUE_DEFAULT, QUEUE_MOST = 200, 10_000
RUNNING_DEFAULT, RUNNING_MOST = 50_000, 200_000

_BUCKET = tag(controller_pb2.GetSchedulerStateResponse, "running_buckets")
_WORKER = tag(controller_pb2.RunningBucket, "worker_id")

Running = tuple["Job", dict[tuple["PriorityBand", str], int]]


class SchedulerStateService:
    """See the module."""

    def __init__(self, loop: ControllerLoop, revision: Callable[[], common_pb2.Revision]) -> None:
        self._model = loop.model
        self._revision = revision

    def register(self, router: Router) -> None:
        router.add("ControllerService/GetSchedulerState", self.get_scheduler_state)

    async def get_scheduler_state(self, request: controller_pb2.GetSchedulerStateRequest, call: Call) -> bytes:
        most = _limit("max_queue", request.max_queue, QUEUE_DEFAULT, QUEUE_MOST)
        most_running = _limit("max_running_buckets", request.max_running_buckets, RUNNING_DEFAULT, RUNNING_MOST)
        model = self._model
        waiting = queue(model)
        reasons = [explain_pending(model, bucket.job.job_id) for bucket in waiting[:most]]
        running = [(model.jobs[job_id], dict(buckets)) for job_id, buckets in model.tally.running.items()]
        users = sorted(model.budgets.keys() | model.spent.keys())
        response = controller_pb2.GetSchedulerStateResponse(
            revision=self._revision(),
            total_running=model.tally.running_total,
            user_budgets=[budget_view(model, model.budget_of(user)) for user in users],
        )
        return await asyncio.to_thread(_fill, response, waiting, reasons, running, most_running)


def _limit(field: str, asked: int, default: int, most: int) -> int:
    if asked < 0:
        raise invalid(field, f"{field} {asked} is negative")
    return min(asked or default, most)


def _fill(
    response: controller_pb2.GetSchedulerStateResponse,
    waiting: Sequence[Waiting],
    reasons: Sequence[str],
    running: Sequence[Running],
    most_running: int,
) -> bytes:
    # There may be thousands of buckets; set one by one, their fields cost half of what they cost as arguments.
    for bucket in waiting:
        response.total_pending += bucket.count
        pending = response.pending_buckets.add()
        pending.band = band_to_wire(bucket.band)
        pending.user_id = bucket.user_id
        pending.job_id = bucket.job.job_id
        pending.backend_id = BACKEND_ID
        pending.count = bucket.count
    for bucket, reason in zip(waiting, reasons, strict=False):
        spec = bucket.job.spec
        response.pending_queue.add(
            position=bucket.position,
            job_id=bucket.job.job_id,
            count=bucket.count,
            band=band_to_wire(bucket.band),
            requested_band=band_to_wire(spec.band),
            user_id=bucket.user_id,
            resources=resources_to_wire(spec.resources),
            constraints=[constraint_to_wire(c) for c in spec.constraints],
            reason=reason,
        )
    response.queue_capped = len(waiting) > len(reasons)
    response.running_capped = sum(len(buckets) for _, buckets in running) > most_running
    return response.SerializeToString() + b"".join(_running_buckets(running, most_running))


def _running_buckets(running: Sequence[Running], most: int) -> list[bytes]:
    """The field `running_buckets`, encoded: those of one job differ in their worker alone."""
    found: list[bytes] = []
    for job, buckets in sorted(running, key=lambda known: known[0].job_id):
        alike: dict[tuple[PriorityBand, int], bytes] = {}
        for (band, worker_id), count in sorted(buckets.items())[: most - len(found)]:
            rest = alike.get((band, count))
            if rest is None:
                rest = alike[(band, count)] = controller_pb2.RunningBucket(
                    band=band_to_wire(band),
                    user_id=budget_user(job),
                    job_id=job.job_id,
                    backend_id=BACKEND_ID,
                    count=count,
                ).SerializeToString()
            found.append(delimited(_BUCKET, delimited(_WORKER, worker_id.encode()) + rest))
    return found
