"""One job as it is now: itself, its tasks as rows, and its child jobs, through one Watch.

A job that ended long ago is in no stream; its page reads it once from the database and says nothing less. Rows of children and
of the job itself never mix with those of its tasks. No clock of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from iris_core.live.feed import Feed
from iris_core.live.rows import Changes, ChangeSet, Row, RowStore
from iris_core.live.watch import Selector
from iris_core.model.quoting import quote
from iris_core.model.states import TaskState

if TYPE_CHECKING:
    from iris_core.contracts import AsyncClient
    from iris_core.live.backoff import Backoff
    from iris_core.live.clock import Clock
    from iris_core.wire.gen.iris.v1.controller_pb2 import JobStatus, TaskStatus, WatchRows

_JOB, _TASKS, _CHILDREN = "job", "tasks", "children"
_WATCH_JOBS, _WATCH_TASKS = 1, 2  # WatchKind
_NEVER: Final = 1 << 62

_FIRST: Final = {
    TaskState.FAILED: 0,
    TaskState.WORKER_FAILED: 1,
    TaskState.UNSCHEDULABLE: 2,
    TaskState.PREEMPTED: 3,
    TaskState.COSCHED_FAILED: 4,
}
"""Ends that say why a job fares badly, the telling ones first: a gang mate ended because another rank did."""


def trouble(task: TaskStatus) -> tuple[Any, ...]:
    """Sort key: the rank that failed first on top, then those that failed before and were tried again, then by index."""
    place = _FIRST.get(task.state)  # type: ignore[call-overload]
    if place is not None:
        return (place, task.finished_at_ms or _NEVER, task.task_index)
    return (5 if task.failure_count else 6, -task.failure_count, task.task_index)


class JobFeed(Feed["TaskStatus"]):
    """`store` holds the tasks, `children` the child jobs, `job` the job itself, None while it is not known to run."""

    def __init__(self, client: AsyncClient, clock: Clock, job_id: str, *, backoff: Backoff | None = None) -> None:
        self.job: JobStatus | None = None
        self.left = False
        """Whether the stream no longer names the job: it ended long ago, or its name is free again."""
        self.children: RowStore[JobStatus] = RowStore(("job",))
        self._child_changes = ChangeSet()
        super().__init__(
            client,
            clock,
            [
                Selector(_JOB, _WATCH_JOBS, job_ids=(job_id,)),
                Selector(_TASKS, _WATCH_TASKS, job_ids=(job_id,)),
                Selector(_CHILDREN, _WATCH_JOBS, filter=f"parent={quote(job_id)}"),
            ],
            lambda _, rows: [Row(t.task_id, "task", t, t.job_id, t.task_index) for t in rows.tasks],
            kinds=("task",),
            backoff=backoff,
        )
        self._id = job_id

    def take_child_changes(self) -> ChangeSet:
        """What changed among the children since the last call."""
        changes, self._child_changes = self._child_changes, ChangeSet()
        return changes

    def apply(self, selector: str, rows: WatchRows) -> None:
        if selector == _JOB:
            for job in rows.jobs:
                if job.job_id == self._id:
                    self.job, self.left = job, False
            self.left = self.left or self._id in rows.removed
        elif selector == _CHILDREN:
            found = [Row(job.job_id, "job", job, "", -job.submitted_at_ms) for job in rows.jobs if self._below(job)]
            self._child_changes.merge(self.children.apply(Changes(found, list(rows.removed))))
        else:
            super().apply(selector, rows)

    def complete(self, selector: str, present: set[str], total: int) -> None:
        if selector == _TASKS:
            super().complete(selector, present, total)
            return
        self._complete.add(selector)
        if selector == _JOB:
            self.left = self._id not in present
        else:
            gone = [name for name in self.children.rows if name not in present]
            self._child_changes.merge(self.children.apply(Changes([], gone)))

    def _below(self, job: JobStatus) -> bool:
        return job.parent_job_id == self._id
