"""What the state keeps of the machines: slices and scale groups, and what the end of a slice means for work and workers.

A slice ends in two steps. `give_up` writes the decision: nothing more is placed on its workers and what runs there is asked to
end. `forget` writes that it is gone: what its workers never confirmed is lost, and their rows go. Between the two the provider
deletes the machines. Must never decide that a slice ends, and never talk to a provider.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from iris_controller.state.availability import mark
from iris_controller.state.ending import live_attempt, preempt_task
from iris_controller.state.kernel import worker_lost
from iris_controller.state.observed import cut
from iris_core.model.states import ACTIVE, EXECUTING, WorkerHealth

if TYPE_CHECKING:
    from iris_controller.state.overlay import Overlay
    from iris_controller.state.records import Attempt, Job, Task


class Lifecycle(StrEnum):
    """Where a slice stands (control-plane §3.1); one that is only asked for has no row."""

    BOOTING = "booting"
    """The provider makes it."""
    INITIALIZING = "initializing"
    """Its machines run; not every worker has attached yet."""
    READY = "ready"
    DRAINING = "draining"
    """It is given up and its machines are to go."""
    FAILED = "failed"
    """It never became ready, or broke; its machines are to go."""


GOING = frozenset({Lifecycle.DRAINING, Lifecycle.FAILED})
"""Nothing is placed there any more."""


@dataclass(frozen=True, slots=True)
class Slice:
    """One slice that the provider knows or knew."""

    slice_id: str
    scale_group: str
    lifecycle: Lifecycle
    worker_ids: tuple[str, ...]
    created_at_ms: int
    error_message: str = ""
    manual: bool = False
    """Made by an operator: the autoscaler neither counts nor ends it."""
    updated_at_ms: int = 0
    """Names this version of the row."""


@dataclass(frozen=True, slots=True)
class ScalingGroup:
    """What the autoscaler remembers of a scale group. Times in epoch ms, 0 = never."""

    name: str
    consecutive_failures: int = 0
    backoff_until_ms: int = 0
    last_scale_up_ms: int = 0
    last_scale_down_ms: int = 0
    quota_exceeded_until_ms: int = 0
    quota_reason: str = ""
    """The provider's own words while a quota is used up."""
    quota_blocks: int = 0
    """How often in a row a quota was found used up."""
    failure_reason: str = ""
    """Of the last failure since the last success."""
    updated_at_ms: int = 0


def change_slice(o: Overlay, row: Slice, now_ms: int, **values: Any) -> Slice:
    """Puts a changed row; its version moves on even where the clock did not."""
    new = replace(row, **values, updated_at_ms=max(now_ms, row.updated_at_ms + 1))
    o.slices[row.slice_id] = new
    return new


def scaled_down(row: ScalingGroup, now_ms: int) -> ScalingGroup:
    """A slice of the group was given up for being idle."""
    return replace(row, last_scale_down_ms=now_ms, updated_at_ms=now_ms)


def is_going(o: Overlay, slice_id: str) -> bool:
    """Whether nothing may be placed on workers of that slice; False for one that the state does not know."""
    row = o.slice(slice_id) if slice_id else None
    return row is not None and row.lifecycle in GOING


def idle(o: Overlay, row: Slice) -> bool:
    """Whether no unfinished attempt is on its workers."""
    return not any(True for worker_id in row.worker_ids for _ in o.attempts_on(worker_id))


def is_spent(o: Overlay, row: Slice) -> bool:
    """Whether nothing is on its workers, and one of them gets no work any more because it failed to stage."""
    known = (o.worker(worker_id) for worker_id in row.worker_ids)
    return idle(o, row) and any(worker is not None and worker.excluded for worker in known)


def give_up(o: Overlay, row: Slice, lifecycle: Lifecycle, trigger: str, reason: str, now_ms: int) -> Slice:
    """Ends a slice: its workers get nothing more, and the attempts on those that still answer are asked to stop.

    An attempt that had begun is charged as preempted, one that was only assigned costs nothing. Of a gang one member is ended, the
    first of those that had begun, and the others follow by the gang's own rule: it is charged once if any had begun, in
    whatever order its members are on the workers. Idempotent.
    """
    reason = cut(reason)
    new = change_slice(o, row, now_ms, lifecycle=lifecycle, error_message=reason)
    error = f"slice {row.slice_id} is torn down: {reason}"
    ended: list[_Held] = []
    gangs: dict[str, _Held] = {}
    for worker_id in row.worker_ids:
        worker = o.worker(worker_id)
        if worker is None:
            continue
        if worker.placeable:
            o.set_worker(worker, placeable=False)
        if worker.health is WorkerHealth.DEAD:
            continue
        for attempt in o.attempts_on(worker_id):
            held = _held(o, attempt)
            if held is None:
                continue
            if not held.job.spec.group_by:
                ended.append(held)
                continue
            known = gangs.get(held.job.job_id)
            if known is None or held.rank < known.rank:
                gangs[held.job.job_id] = held
    for held in [*ended, *gangs.values()]:
        preempt_task(
            o, held.job, held.task, now_ms,
            trigger=trigger, reason="slice_torn_down", error=error, told=error, charged=held.begun,
        )  # fmt: skip
    return new


@dataclass(frozen=True, slots=True)
class _Held:
    """A task that is at work on a worker, with its job."""

    job: Job
    task: Task
    begun: bool

    @property
    def rank(self) -> tuple[bool, int]:
        """Sorts the members of a gang: the first one is ended and charged for all."""
        return not self.begun, self.task.index


def _held(o: Overlay, attempt: Attempt) -> _Held | None:
    task = o.task(attempt.job_id, attempt.task_index)
    job = o.job(attempt.job_id)
    if task is None or job is None or task.state not in ACTIVE or live_attempt(o, task) is not attempt:
        return None
    return _Held(job, task, attempt.state in EXECUTING)


def forget(o: Overlay, row: Slice, trigger: str, reason: str, now_ms: int) -> None:
    """The machines are gone: resolves what they still held as lost, and removes the rows of the slice and its workers."""
    for worker_id in row.worker_ids:
        worker = o.worker(worker_id)
        if worker is None:
            continue
        if any(True for _ in o.attempts_on(worker_id)):
            worker_lost(o, worker_id, f"its slice {row.slice_id} is gone: {cut(reason)}", now_ms)
        o.workers[worker_id] = None
        mark(o, worker_id, worker)
        o.note("worker_pruned", worker_id, trigger, slice=row.slice_id, reason=reason)
    o.slices[row.slice_id] = None
    o.note("slice_pruned", row.slice_id, trigger, group=row.scale_group, reason=reason)
