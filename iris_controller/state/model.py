"""The committed state in memory: every task of every non-terminal job, summaries of recent terminal ones, all workers.

Loaded at boot and changed only by `apply`, with a batch that has been committed. Ticks and Watch read only this. Must never be
changed by anything else, and never read the database by itself.
"""

from __future__ import annotations

import bisect
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from iris_controller.state.availability import Obtained, with_markers, zone_of
from iris_controller.state.budgets import DEFAULT_BUDGET, Budget, Tally, task_value
from iris_controller.state.changes import Changes
from iris_controller.state.endpoints import Endpoints
from iris_controller.state.occupants import Occupants
from iris_core.model.states import ACTIVE, DISPATCHED, JOB_TERMINAL, TaskState

if TYPE_CHECKING:
    from iris_controller.state.overlay import Overlay
    from iris_controller.state.records import Attempt, Job, Task, Worker
    from iris_controller.state.slices import ScalingGroup, Slice
    from iris_core.model.bands import PriorityBand
    from iris_core.model.resources import Resources

TERMINAL_KEPT = 5_000


@dataclass(slots=True)
class Usage:
    """What unfinished attempts hold on one worker: millicores, bytes, accelerator counts, tasks, tasks being set up."""

    cpu_millicores: int = 0
    memory_bytes: int = 0
    gpu: int = 0
    tpu: int = 0
    tasks: int = 0
    building: int = 0

    def add(self, resources: Resources, sign: int, building: bool) -> None:
        self.cpu_millicores += sign * resources.cpu_millicores
        self.memory_bytes += sign * resources.memory_bytes
        device = resources.device
        if device is not None:
            if device.kind == "gpu":
                self.gpu += sign * device.count
            else:
                self.tpu += sign * device.count
        self.tasks += sign
        if building:
            self.building += sign

    def copy(self) -> Usage:
        return Usage(self.cpu_millicores, self.memory_bytes, self.gpu, self.tpu, self.tasks, self.building)


class Model:
    """See the module. All collections are read-only to the outside."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.terminal: OrderedDict[str, None] = OrderedDict()
        self.children: dict[str, set[str]] = {}
        self.active: dict[str, int] = {}
        """Unfinished tasks per owner of their job."""
        self.tasks: dict[str, list[Task]] = {}
        self.attempts: dict[str, Attempt] = {}
        self.workers: dict[str, Worker] = {}
        self.by_worker: dict[str, dict[str, None]] = {}
        """Unfinished attempts per worker, in order of creation."""
        self.held: dict[str, int] = {}
        """Unfinished attempts per job; also of jobs that have ended."""
        self.occupants = Occupants()
        """Active attempts by worker and stamped band."""
        self.usage: dict[str, Usage] = {}
        self.pending: dict[str, list[int]] = {}
        """Pending task indices per job, descending, so that the next one is at the end."""
        self.reasons: dict[str, str] = {}
        """Why a job's pending tasks wait, by job id; kept by the scheduler."""
        self.coming: dict[str, str] = {}
        """What is being made for a job's pending tasks, by job id; kept by the autoscaler."""
        self.sealed_elsewhere: set[tuple[str, int]] = set()
        """Jobs (id and submit time) whose secrets cannot be opened here: they wait until their key is back."""
        self.unplanned_workers: set[str] = set()
        """Workers whose row or usage changed since the planner last looked; it empties this, and `unplanned_jobs`."""
        self.unplanned_jobs: set[str] = set()
        """Jobs whose pending tasks changed."""
        self.endpoints = Endpoints()
        self.slices: dict[str, Slice] = {}
        self.scaling_groups: dict[str, ScalingGroup] = {}
        """What the autoscaler remembers of scale groups that ever failed or grew."""
        self.obtained = Obtained()
        self.budgets: dict[str, Budget] = {}
        """Of users that have a row."""
        self.budget_defaults = DEFAULT_BUDGET
        """Of the others; set once, at boot."""
        self.tally = Tally()
        self.spent = self.tally.spent
        self.unplanned_users = self.tally.users
        """Users whose spend or budget changed since the planner last looked; it empties this, too."""
        self.last_submitted_ms = 0
        self.next_insertion = 0

    # Reading ------------------------------------------------------------------------------------------------

    def task(self, job_id: str, index: int) -> Task | None:
        """The task, or None when its job is terminal, unknown, or has no such index."""
        tasks = self.tasks.get(job_id)
        return tasks[index] if tasks is not None and 0 <= index < len(tasks) else None

    def attempts_on(self, worker_id: str) -> Iterator[Attempt]:
        """Unfinished attempts bound to the worker, oldest first."""
        return (self.attempts[uid] for uid in self.by_worker.get(worker_id, ()))

    def usage_of(self, worker_id: str) -> Usage:
        return self.usage.get(worker_id) or Usage()

    def budget_of(self, user_id: str) -> Budget:
        """The user's budget, or the defaults."""
        budget = self.budgets.get(user_id)
        if budget is None:
            plain = self.budget_defaults
            budget = Budget(user_id, plain.limit, plain.max_band)
        return budget

    def subtree(self, job_id: str) -> Iterator[str]:
        """The job and all its descendants, parents first."""
        stack = [job_id]
        while stack:
            current = stack.pop()
            yield current
            stack.extend(sorted(self.children.get(current, ()), reverse=True))

    # Loading and applying -----------------------------------------------------------------------------------

    def load(
        self,
        jobs: Iterable[Job],
        tasks: Iterable[Task],
        attempts: Iterable[Attempt],
        workers: Iterable[Worker],
        budgets: Iterable[Budget] = (),
        slices: Iterable[Slice] = (),
        scaling_groups: Iterable[ScalingGroup] = (),
    ) -> None:
        """Fills an empty model. `jobs` oldest first; `tasks` by job and index; `attempts` only unfinished or current ones."""
        for job in jobs:
            self._put_job(job)
            self.last_submitted_ms = max(self.last_submitted_ms, job.submitted_at_ms)
            self.next_insertion = max(self.next_insertion, job.priority_insertion + job.num_tasks)
        for task in tasks:
            self.tasks.setdefault(task.job_id, []).append(task)
            self.tally.change(self.jobs[task.job_id], [(None, task)])
        for job_id, rows in self.tasks.items():
            waiting = [t.index for t in rows if t.state is TaskState.PENDING]
            if waiting:
                self.pending[job_id] = waiting[::-1]
        for attempt in sorted(attempts, key=lambda a: (a.created_at_ms, a.uid)):
            self._put_attempt(attempt)
        self.unplanned_workers.update(self.usage)
        for worker in workers:
            self.workers[worker.worker_id] = worker
            self.obtained.change(None, worker)
        for worker in list(self.workers.values()):
            marked = with_markers(worker, self.obtained.of(zone_of(worker)))
            if marked is not worker.attributes:
                self.workers[worker.worker_id] = replace(worker, attributes=marked)
        self.budgets.update((budget.user_id, budget) for budget in budgets)
        self.slices.update((row.slice_id, row) for row in slices)
        self.scaling_groups.update((row.name, row) for row in scaling_groups)

    def apply(self, overlay: Overlay) -> Changes:
        """Makes a committed batch the state, and says what changed."""
        changes = Changes()
        for job_id in overlay.deleted_jobs:
            self._drop_job(job_id, changes)
        for job_id, rows in overlay.new_tasks.items():
            self.tasks[job_id] = list(rows)
            self.pending[job_id] = [t.index for t in reversed(rows) if t.state is TaskState.PENDING]
            self.unplanned_jobs.add(job_id)
            changes.new_jobs.add(job_id)
        # Before their attempts: whether one is being set up is the job's to say, also when it came with the same batch.
        for job in overlay.jobs.values():
            self._put_job(job)
            changes.jobs.add(job.job_id)
            if job.state in JOB_TERMINAL:
                changes.finished[job.job_id] = job.num_tasks
            if job.job_id in overlay.new_jobs and job.parent_job_id in self.jobs:
                changes.jobs.add(job.parent_job_id)
        self._put_tasks(overlay.tasks)
        changes.tasks.update(overlay.tasks)
        changes.jobs.update(job_id for job_id, _ in overlay.tasks)
        self._put_attempts(overlay.attempts)
        changes.attempts.update(overlay.attempts)
        touched = {attempt.worker_id for attempt in overlay.attempts.values()}
        self.unplanned_workers |= touched
        changes.workers |= touched
        changes.dispatch |= touched
        for worker_id, worker in overlay.workers.items():
            self.obtained.change(self.workers.get(worker_id), worker)
            if worker is None:
                self.workers.pop(worker_id, None)
                if not self.by_worker.get(worker_id):
                    self.by_worker.pop(worker_id, None)
                    self.usage.pop(worker_id, None)
            else:
                self.workers[worker_id] = worker
            self.unplanned_workers.add(worker_id)
            changes.workers.add(worker_id)
        for slice_id, row in overlay.slices.items():
            if row is None:
                self.slices.pop(slice_id, None)
            else:
                self.slices[slice_id] = row
            changes.slices.add(slice_id)
        self.scaling_groups.update(overlay.scaling_groups)
        changes.scaling_groups.update(overlay.scaling_groups)
        for user_id, budget in overlay.budgets.items():
            self.budgets[user_id] = budget
            self.unplanned_users.add(user_id)
            changes.budgets.add(user_id)
        for endpoint_id, endpoint in overlay.endpoints.items():
            if endpoint is None:
                self.endpoints.drop(endpoint_id)
            else:
                self.endpoints.put(endpoint)
            changes.endpoints[endpoint_id] = endpoint
        for job_id, line in overlay.coming.items():
            if line and job_id in self.pending:
                self.coming[job_id] = line
            else:
                self.coming.pop(job_id, None)
            changes.coming.add(job_id)
        self.last_submitted_ms = max(self.last_submitted_ms, overlay.last_submitted_ms)
        self.next_insertion = max(self.next_insertion, overlay.next_insertion)
        self._trim(changes)
        return changes

    def _put_job(self, job: Job) -> None:
        before = self.jobs.get(job.job_id)
        self._count_active(job.user_id, job.unfinished - (before.unfinished if before is not None else 0))
        self.jobs[job.job_id] = job
        if job.parent_job_id is not None:
            self.children.setdefault(job.parent_job_id, set()).add(job.job_id)
        if job.state in JOB_TERMINAL:
            self.tasks.pop(job.job_id, None)
            self.tally.forget(job)
            if self.pending.pop(job.job_id, None) is not None:
                self.unplanned_jobs.add(job.job_id)
            self.reasons.pop(job.job_id, None)
            self.coming.pop(job.job_id, None)
            self.terminal[job.job_id] = None
        else:
            self.terminal.pop(job.job_id, None)

    def _put_tasks(self, tasks: Mapping[tuple[str, int], Task]) -> None:
        changed: dict[str, list[tuple[Task | None, Task]]] = {}
        for (job_id, index), task in tasks.items():
            rows = self.tasks.get(job_id)
            if rows is None:
                continue
            old = rows[index]
            rows[index] = task
            of_job = changed.get(job_id)
            if of_job is None:
                of_job = changed[job_id] = []
            of_job.append((old, task))
            waits = task.state is TaskState.PENDING
            if (old.state is TaskState.PENDING) is not waits:
                waiting = self.pending.get(job_id)
                if not waits and waiting is not None and len(waiting) > 1 and waiting[-1] == index:
                    # Placed in the order in which they wait.
                    waiting.pop()
                    self.unplanned_jobs.add(job_id)
                else:
                    self._queue(job_id, index, waits)
        for job_id, of_job in changed.items():
            self.tally.change(self.jobs[job_id], of_job)

    def _queue(self, job_id: str, index: int, waits: bool) -> None:
        """A task joins those that wait for a worker, or leaves them."""
        self.unplanned_jobs.add(job_id)
        waiting = self.pending.setdefault(job_id, [])
        position = bisect.bisect_left(waiting, -index, key=lambda i: -i)
        present = position < len(waiting) and waiting[position] == index
        if waits and not present:
            waiting.insert(position, index)
        elif not waits and present:
            del waiting[position]
        if not waiting:
            del self.pending[job_id]
            self.reasons.pop(job_id, None)
            self.coming.pop(job_id, None)

    def _put_attempts(self, attempts: Mapping[str, Attempt]) -> None:
        """A tick brings thousands that have just been placed, few of them of different jobs: of those nothing is looked up twice."""
        costs: dict[str, tuple[list[Task] | None, int, bool]] = {}
        known, usages, by_worker = self.attempts, self.usage, self.by_worker
        held: dict[str, int] = {}
        occupying: list[tuple[str, str, PriorityBand, int]] = []
        for uid, attempt in attempts.items():
            job_id = attempt.job_id
            if attempt.state is not TaskState.ASSIGNED or uid in known:
                self._put_attempt(attempt)
                continue
            if job_id not in costs:
                costs[job_id] = self.tasks.get(job_id), task_value(attempt.resources), self._is_setting_up(attempt)
            tasks, value, is_setting_up = costs[job_id]
            if tasks is None or attempt.task_index >= len(tasks):
                self._put_attempt(attempt)
                continue
            worker_id = attempt.worker_id
            occupying.append((uid, worker_id, tasks[attempt.task_index].band, value))
            held[job_id] = held.get(job_id, 0) + 1
            known[uid] = attempt
            usage = usages.get(worker_id)
            if usage is None:
                usage = usages[worker_id] = Usage()
            usage.add(attempt.resources, 1, is_setting_up)
            here = by_worker.get(worker_id)
            if here is None:
                here = by_worker[worker_id] = {}
            here[uid] = None
        self.occupants.put_all(occupying)
        for job_id, count in held.items():
            self._hold(job_id, count)

    def _put_attempt(self, attempt: Attempt) -> None:
        uid, worker_id = attempt.uid, attempt.worker_id
        old = self.attempts.get(uid)
        active = attempt.state in ACTIVE
        task = self.task(attempt.job_id, attempt.task_index) if active else None
        usage = self.usage.get(worker_id)
        if usage is None:
            usage = self.usage[worker_id] = Usage()
        if old is not None and active and task is not None and old.state in ACTIVE:
            # By far the most: it goes on, where it is and with what it holds.
            self.attempts[uid] = attempt
            usage.building += self._is_setting_up(attempt) - self._is_setting_up(old)
            return
        if task is not None:
            self.occupants.put(uid, worker_id, task.band, task_value(attempt.resources))
        elif attempt.finished_at_ms is None:
            self.occupants.end(uid, worker_id)
        else:
            self.occupants.drop(uid, worker_id)
        if old is not None and old.finished_at_ms is None:
            usage.add(old.resources, -1, self._is_setting_up(old))
            self._hold(old.job_id, -1)
        if attempt.finished_at_ms is None:
            self._hold(attempt.job_id, 1)
            self.attempts[uid] = attempt
            self.by_worker.setdefault(worker_id, {})[uid] = None
            usage.add(attempt.resources, 1, self._is_setting_up(attempt))
        else:
            self.attempts.pop(uid, None)
            self.by_worker.get(worker_id, {}).pop(uid, None)

    def _is_setting_up(self, attempt: Attempt) -> bool:
        """Whether the attempt takes one of its worker's building slots: only tasks with setup steps do (DESIGN §5.6)."""
        if attempt.state not in DISPATCHED:
            return False
        job = self.jobs.get(attempt.job_id)
        return job is not None and job.spec.has_setup

    def _hold(self, job_id: str, change: int) -> None:
        count = self.held.get(job_id, 0) + change
        if count:
            self.held[job_id] = count
        else:
            del self.held[job_id]

    def _count_active(self, user_id: str, change: int) -> None:
        if change:
            self.active[user_id] = self.active.get(user_id, 0) + change
            if not self.active[user_id]:
                del self.active[user_id]

    def _drop_job(self, job_id: str, changes: Changes) -> None:
        job = self.jobs.get(job_id)
        if job is None:
            return
        self._count_active(job.user_id, -job.unfinished)
        self.tally.forget(job)
        self.unplanned_jobs.add(job_id)
        held = [a.uid for a in self.attempts.values() if a.job_id == job_id] if job_id in self.held else []
        for uid in held:
            attempt = self.attempts.pop(uid)
            self.by_worker.get(attempt.worker_id, {}).pop(uid, None)
            self.occupants.drop(uid, attempt.worker_id)
            self.usage[attempt.worker_id].add(attempt.resources, -1, self._is_setting_up(attempt))
            self.unplanned_workers.add(attempt.worker_id)
            self._hold(job_id, -1)
            changes.dispatch.add(attempt.worker_id)
            changes.workers.add(attempt.worker_id)
        del self.jobs[job_id]
        if job.parent_job_id is not None:
            self.children.get(job.parent_job_id, set()).discard(job_id)
        self.children.pop(job_id, None)
        self.tasks.pop(job_id, None)
        self.pending.pop(job_id, None)
        self.reasons.pop(job_id, None)
        self.coming.pop(job_id, None)
        self.terminal.pop(job_id, None)
        changes.removed_jobs.add(job_id)
        changes.deleted_jobs.add(job_id)
        changes.finished[job_id] = job.num_tasks

    def _trim(self, changes: Changes) -> None:
        """Forgets the oldest terminal jobs beyond the limit; one with a child here, or an attempt still on a worker, stays."""
        excess = len(self.terminal) - TERMINAL_KEPT
        if excess <= 0:
            return
        for job_id in list(islice(self.terminal, excess + 100)):
            if excess <= 0:
                return
            if self.children.get(job_id) or job_id in self.held:
                continue
            job = self.jobs.pop(job_id)
            del self.terminal[job_id]
            if job.parent_job_id is not None:
                self.children.get(job.parent_job_id, set()).discard(job_id)
            self.children.pop(job_id, None)
            changes.removed_jobs.add(job_id)
            excess -= 1
