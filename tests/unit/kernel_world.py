"""A small controller without I/O for the tests of the kernel and the scheduler: a model, its clock, and batches applied to it."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from iris_controller.scheduling.plan import Planner
from iris_controller.scheduling.plans import Plan
from iris_controller.state import kernel, submit
from iris_controller.state.budgets import budget_user, task_value
from iris_controller.state.changes import Changes
from iris_controller.state.model import Model
from iris_controller.state.observed import Observed
from iris_controller.state.occupants import Occupants
from iris_controller.state.overlay import Overlay
from iris_controller.state.records import Attempt, ChildrenPolicy, Job, JobSpec, Task, Worker
from iris_controller.ticker import apply_plan
from iris_core.model.bands import PriorityBand
from iris_core.model.resources import Device, Resources
from iris_core.model.states import ACTIVE, NON_TERMINAL, TaskState, WorkerHealth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GB = 1_000_000_000
JOB = "/u/job"


def job_spec(cpu: float = 1, memory: int = 0, device: Device | None = None, **values: Any) -> JobSpec:
    """What a job asks for; `cpu` in cores."""
    return replace(
        JobSpec(
            resources=Resources(int(cpu * 1000), memory, 0, device),
            constraints=(),
            band=PriorityBand.INHERIT,
            max_retries_failure=0,
            max_retries_preemption=100,
            max_task_failures=0,
            timeout_ms=0,
            scheduling_timeout_ms=0,
            children_policy=ChildrenPolicy.UNSPECIFIED,
            has_setup=False,
            bundle_id="",
            request=b"",
        ),
        **values,
    )


def healthy_worker(
    worker_id: str, cpu: float = 4, memory: int = 16 * GB, device: Device | None = None, **values: Any
) -> Worker:
    """A worker that takes placements."""
    return replace(
        Worker(worker_id, attached=True, health=WorkerHealth.HEALTHY, placeable=True),
        total=Resources(int(cpu * 1000), memory, 0, device),
        **values,
    )


class Settled(Occupants):
    """Lets nobody evict: for the rules of who is served when something gets free."""

    def any_below(self, rank: int) -> bool:
        return False


class World:
    """Time stands still unless a test moves it; attempt uids count up."""

    def __init__(self) -> None:
        self.model = Model()
        self.planner = Planner()
        self.now_ms = 1_000_000
        self.audit: list[str] = []
        self.changes = Changes()
        self.before_commit: Callable[[Overlay], None] = lambda o: None
        """Told of every batch, planned and settled, just before it becomes the state."""
        self._uids = 0

    @contextmanager
    def batch(self) -> Iterator[Overlay]:
        """What happens inside is one batch: settled and applied at the end."""
        o = Overlay(self.model)
        yield o
        self.commit(o)

    def commit(self, o: Overlay) -> Changes:
        """Settles a batch and makes it the state."""
        kernel.settle(o, self.now_ms)
        self.audit += [f"{event.action} {event.entity}" for event in o.audit]
        self.before_commit(o)
        self.changes = self.model.apply(o)
        return self.changes

    def uid(self) -> str:
        self._uids += 1
        return f"{self._uids:016x}"

    def add_worker(self, worker_id: str = "w", **values: Any) -> Worker:
        worker = healthy_worker(worker_id, **values)
        with self.batch() as o:
            o.workers[worker_id] = worker
        return worker

    def change_worker(self, worker_id: str = "w", **values: Any) -> None:
        with self.batch() as o:
            o.set_worker(self.model.workers[worker_id], **values)

    def submit(
        self, job_id: str = JOB, tasks: int = 1, spec: JobSpec | None = None, policy: int = 0, **values: Any
    ) -> submit.Admission:
        new = submit.NewJob(job_id, "someone", tasks, spec if spec is not None else job_spec(**values), policy)
        with self.batch() as o:
            return submit.admit(o, new, self.now_ms)

    def assign(self, index: int = 0, job_id: str = JOB, worker_id: str = "w") -> str:
        with self.batch() as o:
            task = o.task(job_id, index)
            assert task is not None
            attempt = kernel.assign(o, task, worker_id, self.uid(), self.now_ms)
            assert attempt is not None
            return attempt.uid

    def observe(self, uid: str, state: int, worker_id: str = "w", **values: Any) -> bool:
        with self.batch() as o:
            return kernel.observe(o, worker_id, Observed(uid, int(state), **values), self.now_ms)

    def running(self, index: int = 0, job_id: str = JOB, worker_id: str = "w") -> str:
        uid = self.assign(index, job_id, worker_id)
        assert self.observe(uid, TaskState.RUNNING, worker_id)
        return uid

    def plan(self, **limits: Any) -> list[tuple[str, int, str]]:
        """Plans and applies slices until nothing more fits."""
        placed: list[tuple[str, int, str]] = []
        while True:
            plan = self.planner.plan(self.model, **limits)
            with self.batch() as o:
                apply_plan(o, plan, self.uid, self.now_ms)
                new = {(a.job_id, a.task_index, a.worker_id) for a in o.attempts.values() if a.state in ACTIVE}
                placed += [place for place in places_of(plan) if place in new]
            self.take_reasons(plan.reasons)
            # As in the loop: what was evicted waits now, which asks for another slice.
            if plan.done and not plan.evictions:
                return placed

    def take_reasons(self, reasons: dict[str, str]) -> None:
        for job_id, reason in reasons.items():
            if job_id in self.model.pending:
                self.model.reasons[job_id] = reason

    def job(self, job_id: str = JOB) -> Job:
        return self.model.jobs[job_id]

    def task(self, index: int = 0, job_id: str = JOB) -> Task:
        task = self.model.task(job_id, index)
        assert task is not None, f"{job_id} is terminal or has no task {index}"
        return task

    def last_task(self, index: int = 0, job_id: str = JOB) -> Task:
        """The task as the last batch left it, also when that ended its job."""
        return self.changes.tasks[(job_id, index)]

    def last_attempt(self, uid: str) -> Attempt:
        """The attempt as the last batch left it, also when that finished it."""
        return self.changes.attempts.get(uid) or self.model.attempts[uid]


def places_of(plan: Plan) -> list[tuple[str, int, str]]:
    """All that a slice places, as (job id, task index, worker id)."""
    together = [(gang.job_id, gang.places) for gang in plan.gangs]
    together += [(eviction.job_id, eviction.places) for eviction in plan.evictions]
    return [
        *(assignment[:3] for assignment in plan.assignments),
        *((job_id, *place) for job_id, places in together for place in places),
    ]


def check_invariants(model: Model) -> None:
    """I2–I4 over the whole model (targets §7b), and that every index agrees with the rows."""
    live: dict[tuple[str, int], list[str]] = {}
    for uid, attempt in model.attempts.items():
        assert uid == attempt.uid and attempt.finished_at_ms is None
        if attempt.state in ACTIVE:
            live.setdefault((attempt.job_id, attempt.task_index), []).append(uid)
    assert all(len(uids) == 1 for uids in live.values()), f"two live attempts of one task: {live}"
    for job_id, job in model.jobs.items():
        check_job(model, job)
        assert (job_id in model.terminal) == (job_id not in model.tasks)
        for task in model.tasks.get(job_id, ()):
            uids = live.pop((job_id, task.index), [])
            assert uids == ([task.attempt_uid] if task.state in ACTIVE else []), f"{task} has {uids}"
    assert not live, f"live attempts without a task: {live}"
    check_usage(model)
    check_room(model)
    check_tally(model)
    pending = {
        job_id: [task.index for task in reversed(rows) if task.state is TaskState.PENDING]
        for job_id, rows in model.tasks.items()
    }
    assert model.pending == {job_id: waiting for job_id, waiting in pending.items() if waiting}
    active: dict[str, int] = {}
    for job in model.jobs.values():
        unfinished = sum(task.state in NON_TERMINAL for task in model.tasks.get(job.job_id, ()))
        if unfinished:
            active[job.user_id] = active.get(job.user_id, 0) + unfinished
    assert model.active == active
    assert set(model.reasons) <= set(model.pending)


def check_job(model: Model, job: Job) -> None:
    """Counts are those of the tasks; counters are within their limits."""
    assert sum(job.counts) == job.num_tasks, f"{job.job_id} counts {job.counts}"
    assert min(job.counts) >= 0
    rows = model.tasks.get(job.job_id)
    if rows is None:
        assert not any(job.counts[state] for state in NON_TERMINAL), f"{job.job_id} ended with {job.counts}"
        return
    counts = [0] * 13
    for task in rows:
        counts[task.state] += 1
        assert task.failure_count <= job.spec.max_retries_failure + 1
        assert task.preemption_count <= job.spec.max_retries_preemption + 1
    assert list(job.counts) == counts
    assert job.failure_count == sum(task.failure_count for task in rows)
    assert job.preemption_count == sum(task.preemption_count for task in rows)


def check_tally(model: Model) -> None:
    """What users spend, and what runs where, is what a recount over all tasks says."""
    spent: dict[str, int] = {}
    running: dict[str, dict[tuple[PriorityBand, str], int]] = {}
    for job_id, tasks in model.tasks.items():
        job = model.jobs[job_id]
        for task in tasks:
            if task.state in ACTIVE and task.band is not PriorityBand.BATCH:
                spent[budget_user(job)] = spent.get(budget_user(job), 0) + task_value(job.spec.resources)
            if task.state is TaskState.RUNNING:
                buckets = running.setdefault(job_id, {})
                buckets[(task.band, task.worker_id)] = buckets.get((task.band, task.worker_id), 0) + 1
    assert model.spent == {user: value for user, value in spent.items() if value}
    assert model.tally.running == running
    assert model.tally.running_total == sum(sum(buckets.values()) for buckets in running.values())


def check_room(model: Model) -> None:
    """The index of who could be evicted, and of what is ending, agrees with the attempts."""
    for worker_id in model.workers:
        below = {uid: rank for rank, uid in model.occupants.below(worker_id, 99)}
        here = list(model.attempts_on(worker_id))
        assert below == {a.uid: model.tasks[a.job_id][a.task_index].band.rank() for a in here if a.state in ACTIVE}, (
            f"{worker_id}: {below}"
        )
        ending = model.occupants.ending.get(worker_id, {})
        assert set(ending) == {a.uid for a in here if a.state not in ACTIVE}


def check_usage(model: Model) -> None:
    """What is held on a worker is the sum over its unfinished attempts."""
    held: dict[str, list[int]] = {}
    for attempt in model.attempts.values():
        sums = held.setdefault(attempt.worker_id, [0] * 6)
        asked = attempt.resources
        setting_up = attempt.state in (TaskState.ASSIGNED, TaskState.BUILDING) and (
            model.jobs[attempt.job_id].spec.has_setup
        )
        for position, amount in enumerate(
            (asked.cpu_millicores, asked.memory_bytes, asked.gpu_count, asked.tpu_count, 1, int(setting_up))
        ):
            sums[position] += amount
        assert attempt.uid in model.by_worker[attempt.worker_id]
    for worker_id, usage in model.usage.items():
        have = [usage.cpu_millicores, usage.memory_bytes, usage.gpu, usage.tpu, usage.tasks, usage.building]
        assert have == held.get(worker_id, [0] * 6), f"{worker_id}: {have} instead of {held.get(worker_id)}"
    assert sum(len(uids) for uids in model.by_worker.values()) == len(model.attempts)
    holding: dict[str, int] = {}
    for attempt in model.attempts.values():
        holding[attempt.job_id] = holding.get(attempt.job_id, 0) + 1
    assert model.held == holding
