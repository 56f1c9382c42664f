"""How the rows of each kind that follows no batch come about, put together: a new kind gets its line here.

Must never hold what a kind needs beyond handing it on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from iris_controller.watching.buckets import PendingBuckets, RunningBuckets
from iris_controller.watching.capacity import Capacity
from iris_controller.watching.people import EndpointRows, Users
from iris_controller.watching.pulse import ControllerCondition, Fleet
from iris_controller.watching.source import Look
from iris_core.model.ids import TaskId
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from iris_core.wire.gen.iris.v1 import watch_rows_pb2

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_controller.autoscaling.runner import Autoscaler
    from iris_controller.commits import Committed
    from iris_controller.loop import ControllerLoop
    from iris_controller.places import Places
    from iris_controller.rpc.backends import BackendService
    from iris_controller.rpc.cluster import About
    from iris_controller.watching.pulse import Asked

    Attempts = Callable[[frozenset[str]], Awaitable[list[pb.AttemptStatus]]]


@dataclass(frozen=True, slots=True)
class Known:
    """What looks need.

    scaler            the autoscaler, None while there is none
    since             since when the oldest waiting task of a job waits
    ends              the attempts that ended in the last hour
    attempts          all attempts of tasks
    max_active_tasks  of one user
    """

    loop: ControllerLoop
    about: About
    asked: Asked
    backends: BackendService
    places: Places
    scaler: Callable[[], Autoscaler | None]
    since: Callable[[str], int]
    ends: Callable[[], watch_rows_pb2.HourOfEnds]
    attempts: Attempts
    admins: frozenset[str]
    max_active_tasks: int


def looks(known: Known) -> dict[int, Look]:
    """By kind."""
    model = known.loop.model
    capacity = Capacity(model, known.scaler, known.loop.now_ms)

    async def backends(task_ids: frozenset[str]) -> list[watch_rows_pb2.BackendRow]:
        status, provider = await known.backends.backend(), await known.backends.provider()
        return [watch_rows_pb2.BackendRow(backend_id=status.backend_id, status=status, provider=provider)]

    return {
        pb.WATCH_KIND_ATTEMPTS: Look(known.attempts, touched=_attempts_changed),
        pb.WATCH_KIND_PENDING_BUCKETS: Look(PendingBuckets(model, known.since).look),
        pb.WATCH_KIND_RUNNING_BUCKETS: Look(RunningBuckets(model).look),
        pb.WATCH_KIND_SCALE_GROUPS: Look(capacity.groups, idle_s=2.0),
        pb.WATCH_KIND_SLICES: Look(capacity.slices, idle_s=2.0),
        pb.WATCH_KIND_AUTOSCALER_ACTIONS: Look(capacity.actions, idle_s=2.0),
        pb.WATCH_KIND_USERS: Look(Users(model, known.admins, known.max_active_tasks).look),
        pb.WATCH_KIND_ENDPOINTS: Look(
            EndpointRows(model, known.places).look, touched=lambda batch, _: bool(batch.changes.endpoints)
        ),
        pb.WATCH_KIND_BACKENDS: Look(backends),
        pb.WATCH_KIND_CONTROLLER: Look(ControllerCondition(known.loop, known.about, known.asked).look, idle_s=0.0),
        pb.WATCH_KIND_FLEET: Look(
            Fleet(model, known.since, known.ends, known.backends.backend, known.scaler).look, idle_s=2.0
        ),
    }


@lru_cache(maxsize=64)
def _keys(task_ids: frozenset[str]) -> frozenset[tuple[str, int]]:
    parsed = (TaskId.parse(text) for text in task_ids)
    return frozenset((str(task.job), task.index) for task in parsed)


def _attempts_changed(batch: Committed, task_ids: frozenset[str]) -> bool:
    keys, changes = _keys(task_ids), batch.changes
    return (
        any(key in changes.tasks for key in keys)
        or any((attempt.job_id, attempt.task_index) in keys for attempt in changes.attempts.values())
        or any(job_id in changes.deleted_jobs for job_id, _ in keys)
    )
