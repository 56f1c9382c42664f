"""One batch's changes on top of the model: read through, copy on write, dropped whole when the commit fails.

Every command of a batch plans in order against the same overlay. Must never touch the model it stands on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from iris_controller.state.budgets import Budget
from iris_controller.state.records import Attempt, Job, Task, Worker, changed
from iris_core.model.states import ACTIVE, TaskState

if TYPE_CHECKING:
    from iris_controller.state.endpoints import Endpoint
    from iris_controller.state.model import Model
    from iris_controller.state.slices import ScalingGroup, Slice


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One line of the audit log: `event=<action> entity=<id> trigger=<who or what> k=v…`, written once committed."""

    action: str
    entity: str
    trigger: str
    values: dict[str, Any] = field(default_factory=dict)
    often: bool = False
    """It may come again and again without anybody's doing: of one action and entity a line a minute is enough."""


@dataclass(frozen=True, slots=True)
class RequestAnswer:
    """The first answer to a request id, kept 24 h so that a repeat gets the same one."""

    principal: str
    request_id: str
    method: str
    response: bytes
    digest: bytes = b""
    """Of the request, `Call.request_digest`; empty = unknown."""


class Overlay:
    """See the module. The dictionaries hold only what this batch changed."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.jobs: dict[str, Job] = {}
        self.new_jobs: set[str] = set()
        self.new_children: dict[str, dict[str, None]] = {}
        self.deleted_jobs: dict[str, None] = {}
        self.pruned_tasks: list[tuple[str, int]] = []
        """Tasks of ended jobs, those with an index below the number; only the database keeps them."""
        self.new_tasks: dict[str, list[Task]] = {}
        self.files: dict[str, dict[str, bytes]] = {}
        """Work directory files of new jobs, by job id and name; only the database keeps them."""
        self.tasks: dict[tuple[str, int], Task] = {}
        self.attempts: dict[str, Attempt] = {}
        self.workers: dict[str, Worker | None] = {}
        self.budgets: dict[str, Budget] = {}
        self.slices: dict[str, Slice | None] = {}
        self.scaling_groups: dict[str, ScalingGroup] = {}
        self.endpoints: dict[str, Endpoint | None] = {}
        """By id; None = gone."""
        self.audit: list[AuditEvent] = []
        self.answers: list[RequestAnswer] = []
        self.meta: dict[str, int] = {}
        """Rows of `meta`; only the database keeps them."""
        self.coming: dict[str, str] = {}
        """See `Model.coming`; "" = nothing any more. The database does not keep them."""
        self.touched_jobs: dict[str, list[int]] = {}
        """Jobs whose tasks changed and must be rolled up before the commit: the change of each of `Job.counts`, then of
        `failure_count` and `preemption_count`, not yet folded into the job."""
        self.requeued_jobs: dict[str, None] = {}
        """Jobs with a task that went back to PENDING in this batch (children policy, control-plane §1.5)."""
        self._active: dict[str, int] = {}
        self.last_submitted_ms = model.last_submitted_ms
        self.next_insertion = model.next_insertion

    # Reading ------------------------------------------------------------------------------------------------

    def job(self, job_id: str) -> Job | None:
        found = self.jobs.get(job_id)
        if found is not None:
            return found
        return None if job_id in self.deleted_jobs else self.model.jobs.get(job_id)

    def task(self, job_id: str, index: int) -> Task | None:
        """None when the job is terminal in the model, unknown, or has no such index."""
        changed = self.tasks.get((job_id, index))
        if changed is not None:
            return changed
        fresh = self.new_tasks.get(job_id)
        if fresh is not None:
            return fresh[index] if 0 <= index < len(fresh) else None
        return None if job_id in self.deleted_jobs else self.model.task(job_id, index)

    def tasks_of(self, job_id: str) -> Iterator[Task]:
        """The tasks of a non-terminal job as of now, by index."""
        base: Sequence[Task] | None = self.new_tasks.get(job_id)
        if base is None:
            base = () if job_id in self.deleted_jobs else self.model.tasks.get(job_id, ())
        for task in base:
            yield self.tasks.get((job_id, task.index), task)

    def attempt(self, uid: str) -> Attempt | None:
        """An unfinished attempt, or one that this batch finished."""
        found = self.attempts.get(uid) or self.model.attempts.get(uid)
        return None if found is not None and found.job_id in self.deleted_jobs and uid not in self.attempts else found

    def attempts_on(self, worker_id: str) -> Iterator[Attempt]:
        """Attempts on the worker that are unfinished as of now, oldest first."""
        for uid in list(self.model.by_worker.get(worker_id, ())):
            attempt = self.attempt(uid)
            if attempt is not None and attempt.finished_at_ms is None:
                yield attempt
        for attempt in list(self.attempts.values()):
            if (
                attempt.worker_id == worker_id
                and attempt.finished_at_ms is None
                and attempt.uid not in self.model.attempts
            ):
                yield attempt

    def worker(self, worker_id: str) -> Worker | None:
        if worker_id in self.workers:
            return self.workers[worker_id]
        return self.model.workers.get(worker_id)

    def slice(self, slice_id: str) -> Slice | None:
        if slice_id in self.slices:
            return self.slices[slice_id]
        return self.model.slices.get(slice_id)

    def scaling_group(self, name: str) -> ScalingGroup | None:
        return self.scaling_groups.get(name) or self.model.scaling_groups.get(name)

    def budget_of(self, user_id: str) -> Budget:
        """The user's budget, or the defaults."""
        return self.budgets.get(user_id) or self.model.budget_of(user_id)

    def children_of(self, job_id: str) -> list[str]:
        """Direct children, sorted."""
        known = {c for c in self.model.children.get(job_id, ()) if c not in self.deleted_jobs}
        known.update(self.new_children.get(job_id, ()))
        return sorted(known)

    def subtree(self, job_id: str) -> Iterator[str]:
        """The job and all its descendants, parents first."""
        stack = [job_id]
        while stack:
            current = stack.pop()
            yield current
            stack.extend(reversed(self.children_of(current)))

    def active_tasks(self, user_id: str) -> int:
        """How many unfinished tasks the user's jobs have; settle first."""
        return self.model.active.get(user_id, 0) + self._active.get(user_id, 0)

    @property
    def dirty(self) -> bool:
        """Whether there is anything to write."""
        return self.changes_state or bool(self.meta)

    @property
    def changes_state(self) -> bool:
        """Whether there is anything to write that a later checkpoint would not hold otherwise."""
        return bool(
            self.jobs
            or self.deleted_jobs
            or self.pruned_tasks
            or self.new_tasks
            or self.tasks
            or self.attempts
            or self.workers
            or self.budgets
            or self.slices
            or self.scaling_groups
            or self.endpoints
            or self.answers
        )

    # Writing ------------------------------------------------------------------------------------------------

    def add_job(self, job: Job, tasks: list[Task]) -> None:
        """A new job with its tasks; `job.counts` must already count them."""
        self.jobs[job.job_id] = job
        self.new_jobs.add(job.job_id)
        self.new_tasks[job.job_id] = tasks
        if job.parent_job_id is not None:
            self.new_children.setdefault(job.parent_job_id, {})[job.job_id] = None
        self._active[job.user_id] = self._active.get(job.user_id, 0) + job.unfinished
        self.last_submitted_ms = max(self.last_submitted_ms, job.submitted_at_ms)
        self.next_insertion = max(self.next_insertion, job.priority_insertion + job.num_tasks)

    def delete_job(self, job_id: str) -> None:
        """Removes a finished job and its finished descendants so that the name can be used again.

        One that is held neither here nor in the model is still removed from the database.
        """
        for current in list(self.subtree(job_id)):
            self.deleted_jobs[current] = None
            if current not in self.jobs and current not in self.model.jobs:
                continue
            gone = self.jobs.pop(current, None)
            if gone is not None and gone.parent_job_id is not None:
                self.new_children.get(gone.parent_job_id, {}).pop(current, None)
            self.new_jobs.discard(current)
            self.new_tasks.pop(current, None)
            self.files.pop(current, None)
            self.touched_jobs.pop(current, None)
            self.requeued_jobs.pop(current, None)
            for key in [k for k in self.tasks if k[0] == current]:
                del self.tasks[key]
            for uid in [a.uid for a in self.attempts.values() if a.job_id == current]:
                del self.attempts[uid]

    def prune_tasks(self, job_id: str, below: int) -> None:
        """Removes the stored tasks of an ended job whose index is below that; the job itself stays."""
        self.pruned_tasks.append((job_id, below))

    def set_job(self, job: Job, **values: Any) -> Job:
        new = changed(job, values)
        self.jobs[job.job_id] = new
        self._active[job.user_id] = self._active.get(job.user_id, 0) + new.unfinished - job.unfinished
        return new

    def set_task(self, task: Task, **values: Any) -> Task:
        """Changes a task; its job's counts follow in `fold`, and the job is rolled up before the commit."""
        return self.put_task(task, changed(task, values))

    def put_task(self, task: Task, new: Task) -> Task:
        """Puts `new` in the place of `task`, as `set_task` does."""
        job_id, before, after = new.job_id, task.state, new.state
        self.tasks[(job_id, new.index)] = new
        if self.endpoints or self.model.endpoints.by_id:
            self._leave_endpoints(task, new)
        delta = self.touched_jobs.get(job_id)
        if delta is None:
            delta = self.touched_jobs[job_id] = [0] * 15
        if after is not before:
            delta[before] -= 1
            delta[after] += 1
            if after is TaskState.PENDING:
                self.requeued_jobs[job_id] = None
        delta[13] += new.failure_count - task.failure_count
        delta[14] += new.preemption_count - task.preemption_count
        return new

    def endpoint(self, endpoint_id: str) -> Endpoint | None:
        if endpoint_id in self.endpoints:
            return self.endpoints[endpoint_id]
        return self.model.endpoints.by_id.get(endpoint_id)

    def endpoints_of(self, job_id: str, index: int) -> list[Endpoint]:
        """Of one task, as of now."""
        known = {e.endpoint_id: e for e in self.model.endpoints.of_task(job_id, index)}
        for endpoint_id, endpoint in self.endpoints.items():
            if endpoint is None or (endpoint.job_id, endpoint.task_index) != (job_id, index):
                known.pop(endpoint_id, None)
            else:
                known[endpoint_id] = endpoint
        return list(known.values())

    def _leave_endpoints(self, task: Task, new: Task) -> None:
        """An endpoint goes with its attempt (control-plane §1.4)."""
        if new.state in ACTIVE and new.attempt_uid == task.attempt_uid:
            return
        for endpoint in self.endpoints_of(task.job_id, task.index):
            self.endpoints[endpoint.endpoint_id] = None

    def fold(self, job_id: str) -> Job | None:
        """The job with the counts of its tasks as of now."""
        job = self.job(job_id)
        delta = self.touched_jobs.get(job_id)
        if job is None or delta is None or not any(delta):
            return job
        self.touched_jobs[job_id] = [0] * 15
        return self.set_job(
            job,
            counts=tuple(a + b for a, b in zip(job.counts, delta, strict=False)),
            failure_count=job.failure_count + delta[13],
            preemption_count=job.preemption_count + delta[14],
        )

    def set_attempt(self, attempt: Attempt, **values: Any) -> Attempt:
        new = changed(attempt, values)
        self.attempts[attempt.uid] = new
        return new

    def add_attempt(self, attempt: Attempt) -> None:
        self.attempts[attempt.uid] = attempt

    def set_worker(self, worker: Worker, **values: Any) -> Worker:
        new = replace(worker, **values)
        self.workers[worker.worker_id] = new
        return new

    def put_budget(self, budget: Budget) -> Budget:
        """Sets a user's budget. Its `updated_at_ms` is moved on where the clock did not, so that it names this version."""
        before = self.budget_of(budget.user_id)
        new = replace(budget, updated_at_ms=max(budget.updated_at_ms, before.updated_at_ms + 1))
        self.budgets[budget.user_id] = new
        return new

    def note(self, action: str, entity: str, trigger: str, **values: Any) -> None:
        """Writes an audit line once this batch is committed."""
        self.audit.append(AuditEvent(action, entity, trigger, values))

    def note_often(self, action: str, entity: str, trigger: str, **values: Any) -> None:
        """Like `note`, for what tells how things stand and may change back and forth all day."""
        self.audit.append(AuditEvent(action, entity, trigger, values, often=True))
