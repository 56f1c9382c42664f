"""ExplainJob and ExplainTask: why work waits, whether it would run, where it is or how it ended (DESIGN §5.7).

What the model says is taken in one go between two batches, with its revision, and counted in a thread: the loop is held for a few
milliseconds however large the fleet. Must never change anything: a job that is only asked about goes into an overlay that is thrown away.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from iris_controller.autoscaling.coming import coming
from iris_controller.autoscaling.demand import demand_for, probed
from iris_controller.autoscaling.verdict import job_feasibility, verdicts
from iris_controller.rpc.auth import within
from iris_controller.rpc.errors import clean, denied, not_found, precondition
from iris_controller.rpc.explain_view import fill
from iris_controller.rpc.roles import ACCESS
from iris_controller.rpc.what_if import thought
from iris_controller.scheduling.explain import ClusterView, Verdict, explain
from iris_controller.scheduling.order import explain_pending
from iris_controller.state import submit
from iris_controller.state.desired import withheld
from iris_controller.state.observed import WORKER_LOST_SPEC
from iris_controller.store.reads import one_job, one_task, similar_jobs
from iris_core.model.ids import JobId, TaskId
from iris_core.model.quantities import format_duration
from iris_core.model.states import JOB_TERMINAL, TERMINAL, TaskState, job_label, label, task_label
from iris_core.model.text import counted_are
from iris_core.wire.gen.iris.v1 import controller_pb2, explain_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from iris_controller.autoscaling.coming import Coming
    from iris_controller.autoscaling.demand import Demand
    from iris_controller.autoscaling.groups import GroupState
    from iris_controller.dry_run import Unasked
    from iris_controller.loop import ControllerLoop
    from iris_controller.rpc.auth import Identity
    from iris_controller.rpc.call import Call
    from iris_controller.rpc.dispatch import Router
    from iris_controller.rpc.submitting import SubmitService
    from iris_controller.scheduling.explain import Explanation
    from iris_controller.state.records import Attempt, Job
    from iris_controller.store.reads import Readers
    from iris_core.wire.gen.iris.v1 import common_pb2

AT_ONCE: Final = 2
"""So many are counted at a time; more wait."""
MAX_WHY: Final = 300
"""Bytes of an attempt's error."""
HISTORY: Final = 5
"""So many earlier attempts of a task are told of, the latest."""


class ExplainService:
    """See the module. `states` are the scale groups as the autoscaler sees them now, none without one; `unasked` where only a state is
    looked at."""

    def __init__(
        self,
        loop: ControllerLoop,
        readers: Readers,
        submits: SubmitService,
        states: Callable[[], Sequence[GroupState]],
        revision: Callable[[], common_pb2.Revision],
        unasked: Unasked | None = None,
    ) -> None:
        self._unasked = unasked
        self._model = loop.model
        self._now_ms = loop.now_ms
        self._readers = readers
        self._submits = submits
        self._states = states
        self._revision = revision
        self._slots = asyncio.Semaphore(AT_ONCE)

    def register(self, router: Router) -> None:
        router.add("ControllerService/ExplainJob", self.explain_job)
        router.add("ControllerService/ExplainTask", self.explain_task)

    async def explain_job(
        self, request: controller_pb2.ExplainJobRequest, call: Call
    ) -> controller_pb2.ExplainJobResponse:
        what_if = request.what_if if request.HasField("what_if") else None
        if request.WhichOneof("subject") == "launch":
            found = await self._launch(request.launch, what_if, call)
        else:
            job_id = str(JobId.parse(request.job_id))
            call.identity.require_scope(job_id)
            found = await self._job(job_id, what_if, call.identity)
        return controller_pb2.ExplainJobResponse(explanation=found)

    async def explain_task(
        self, request: controller_pb2.ExplainTaskRequest, call: Call
    ) -> controller_pb2.ExplainTaskResponse:
        task = TaskId.parse(request.task_id)
        call.identity.require_scope(str(task))
        what_if = request.what_if if request.HasField("what_if") else None
        found = await self._task(task, what_if, call.identity)
        return controller_pb2.ExplainTaskResponse(explanation=found)

    # A job that is not there ----------------------------------------------------------------------------------

    async def _launch(
        self, launch: controller_pb2.LaunchJobRequest, what_if: explain_pb2.WhatIf | None, call: Call
    ) -> explain_pb2.Explanation:
        if call.identity.role not in ACCESS["ControllerService/LaunchJob"].roles:
            raise denied(f"{call.identity.role} may not submit, so there is nothing to try", code="role")
        rehearsed = self._submits.rehearse(launch, call)
        job = rehearsed.job
        answer = explain_pb2.Explanation(subject=job.job_id, tasks=job.num_tasks, warnings=rehearsed.warnings)
        if isinstance(rehearsed.outcome, submit.KeptExisting):
            return await self._job(job.job_id, what_if, call.identity, "it exists and would be kept")
        if job.state in JOB_TERMINAL:
            answer.state = job_label(job.state)
            answer.verdict = explain_pb2.EXPLAIN_VERDICT_ENDED
            answer.cause = f"would end at once as {job_label(job.state)}: {job.error}"
            answer.revision.CopyFrom(self._revision())
            return answer
        if isinstance(rehearsed.outcome, submit.MustWait):
            answer.notes.append(f"it would first wait until the tasks of the present {job.job_id} are gone")
        answer.pending = job.num_tasks
        return await self._count(answer, job, job.num_tasks, what_if, call.identity)

    # One that is ----------------------------------------------------------------------------------------------

    async def _job(
        self, job_id: str, what_if: explain_pb2.WhatIf | None, identity: Identity, note: str = ""
    ) -> explain_pb2.Explanation:
        job = self._model.jobs.get(job_id)
        if job is None:
            return await self._forgotten_job(job_id, what_if)
        pending = len(self._model.pending.get(job_id, ()))
        answer = explain_pb2.Explanation(
            subject=job_id, state=job_label(job.state), tasks=job.num_tasks, pending=pending
        )
        if note:
            answer.notes.append(note)
        if pending or what_if is not None:
            answer.scheduler_reason = explain_pending(self._model, job_id)
            return await self._count(answer, job, pending or job.num_tasks, what_if, identity)
        answer.revision.CopyFrom(self._revision())
        if job.state in JOB_TERMINAL:
            answer.verdict = explain_pb2.EXPLAIN_VERDICT_ENDED
            answer.cause = _ended(job_label(job.state), job.error or "")
            return answer
        states = Counter(label(task.state) for task in self._model.tasks.get(job_id, ()))
        answer.verdict = explain_pb2.EXPLAIN_VERDICT_PLACED
        answer.cause = "no task waits: " + ", ".join(f"{n} {state}" for state, n in states.most_common())
        return answer

    async def _forgotten_job(self, job_id: str, what_if: explain_pb2.WhatIf | None) -> explain_pb2.Explanation:
        """One that ended so long ago that only the database knows it."""
        revision = self._revision()
        found = await self._readers.run(lambda c: one_job(c, job_id))
        if found is None:
            near = await self._readers.run(lambda c: similar_jobs(c, job_id))
            hint = f"did you mean {', '.join(near)}?" if near else ""
            raise not_found(job_id, f"there is no job {job_id}", hint=hint)
        status, _ = found
        _nothing_to_try(job_id, what_if)
        return explain_pb2.Explanation(
            subject=job_id,
            verdict=explain_pb2.EXPLAIN_VERDICT_ENDED,
            state=job_label(status.state),
            cause=_ended(job_label(status.state), status.error),
            tasks=status.num_tasks,
            resources=status.resources,
            revision=revision,
        )

    async def _task(
        self, task_id: TaskId, what_if: explain_pb2.WhatIf | None, identity: Identity
    ) -> explain_pb2.Explanation:
        name, job_id = str(task_id), str(task_id.job)
        revision = self._revision()
        found = await self._readers.run(lambda c: one_task(c, name))
        if found is None:
            known = await self._readers.run(lambda c: one_job(c, job_id))
            raise not_found(name, f"job {job_id} has no task {task_id.index}" if known else f"there is no job {job_id}")
        status, attempts, _ = found
        job = self._model.jobs.get(job_id)
        task = self._model.task(job_id, task_id.index)
        # Where the model knows better than what was read a moment ago, it wins.
        state = int(task.state) if task is not None else status.state
        answer = explain_pb2.Explanation(subject=name, state=task_label(state), tasks=1, revision=revision)
        number = task.attempt_number if task is not None else status.current_attempt_id
        present = None if state == TaskState.PENDING else number
        answer.notes.extend(_history(status, attempts, job, present))
        if job is not None and (state == TaskState.PENDING or what_if is not None):
            answer.pending = int(state == TaskState.PENDING)
            answer.scheduler_reason = explain_pending(self._model, job_id)
            waiting = len(self._model.pending.get(job_id, ()))
            return await self._count(answer, job, waiting or job.num_tasks, what_if, identity)
        if state in TERMINAL or job is None:
            _nothing_to_try(name, what_if)
            answer.verdict = explain_pb2.EXPLAIN_VERDICT_ENDED
            where = f" on {status.worker_id}" if status.worker_id else ""
            code = f" (exit {status.exit_code})" if status.HasField("exit_code") else ""
            answer.cause = _ended(task_label(state) + where + code, status.error)
            return answer
        answer.verdict = explain_pb2.EXPLAIN_VERDICT_PLACED
        worker_id = task.worker_id if task is not None else status.worker_id
        answer.cause = f"{task_label(state)} on {worker_id} as attempt {number}"
        requested = job.spec.band.resolve(None)
        if task is not None and task.band is not requested:
            answer.cause += f", placed as {task.band.label} (submitted as {requested.label})"
        attempt = self._model.attempts.get(task.attempt_uid) if task is not None else None
        if attempt is not None and withheld(self._model, attempt):
            answer.cause += f", held back until {self._leaving(attempt, identity)} left {worker_id}"
        return answer

    def _leaving(self, attempt: Attempt, identity: Identity) -> str:
        """Who was evicted for an attempt and is still on its worker."""
        names = [self._model.attempts[uid].task_id for uid in attempt.displaces if uid in self._model.attempts]
        if len(names) > 1 or not _may_see(identity, names[0]):
            return f"{len(names)} evicted task{' has' if len(names) == 1 else 's have'}"
        return f"the evicted {names[0]} has"

    # Counting -------------------------------------------------------------------------------------------------

    async def _count(
        self,
        answer: explain_pb2.Explanation,
        job: Job,
        tasks: int,
        what_if: explain_pb2.WhatIf | None,
        identity: Identity,
    ) -> explain_pb2.Explanation:
        """Fills in the funnel of `tasks` tasks of a job; the answer tells of the moment at which this is called."""
        if what_if is not None:
            job, words = thought(job, what_if)
            answer.what_if.extend(words)
            tasks = what_if.replicas or tasks
        async with self._slots:
            view = ClusterView.of(self._model, ((job, tasks),))
            states = self._states()
            under_way = coming(self._model.slices.values(), states)
            made = self._model.coming.get(job.job_id, "") if what_if is None and answer.pending else ""
            answer.revision.CopyFrom(self._revision())
            work, probes = probed(demand_for(job, tasks), self._model.obtained)
            found = await asyncio.to_thread(_explained, view, job, tasks, work, probes, states, under_way)
        answer.verdict = cast("explain_pb2.ExplainVerdict", int(found.verdict))
        answer.cause = f"{found.cause}; {made}" if made else found.cause
        if self._unasked is not None:
            answer.notes.append(self._unasked.placing)
        answer.notes.extend(found.notes)
        if answer.pending and answer.state and job.scheduling_deadline_ms is not None:
            left = max(0, job.scheduling_deadline_ms - self._now_ms())
            answer.notes.append(f"it ends as unschedulable in {format_duration(left)} if it is not placed before")
        thought_of = what_if is not None or not answer.state
        if (
            thought_of
            and found.verdict is Verdict.WAITS
            and self._model.occupants.any_below(found.place.effective.rank())
        ):
            answer.notes.append(
                "work of a lower band is running; whether some would be evicted for it is not counted here"
            )
        fill(answer, found, lambda name: _may_see(identity, name))
        return answer


def _may_see(identity: Identity, name: str) -> bool:
    """A task is told of its own subtree alone."""
    return identity.task is None or within(identity.task.job_id, name)


def _explained(
    view: ClusterView,
    job: Job,
    tasks: int,
    work: Demand,
    probes: Sequence[Demand],
    states: Sequence[GroupState],
    under_way: Mapping[str, Coming],
) -> Explanation:
    found = explain(view, job, tasks, verdicts(work, states, under_way, probes))
    never = job_feasibility(work, states, probes) if states and found.verdict is Verdict.NEVER_FITS else ""
    return replace(found, notes=(*found.notes, f"scale groups: {never}")) if never else found


def _ended(state: str, error: str) -> str:
    return f"ended as {state}" + (f": {error}" if error else "")


def _nothing_to_try(name: str, what_if: explain_pb2.WhatIf | None) -> None:
    if what_if is not None:
        raise precondition(
            name, f"{name} ended too long ago to be tried with changes", hint="describe it anew with job run --dry-run"
        )


def _history(
    status: controller_pb2.TaskStatus,
    attempts: Sequence[controller_pb2.AttemptStatus],
    job: Job | None,
    present: int | None,
) -> list[str]:
    """What became of the attempts before the present one (None: it waits for its next), and what it was charged."""
    before = [a for a in attempts if TaskState(a.state) in TERMINAL and a.attempt_id != present]
    older = len(before) - HISTORY
    notes = [f"{counted_are(older, 'earlier attempt')} left out here"] if older > 0 else []
    for attempt in before[-HISTORY:]:
        why = attempt.error or attempt.terminal_reason
        if why == WORKER_LOST_SPEC:
            why += " (the worker does not know it any more, as after a restart)"
        where = f" on {attempt.worker_id}" if attempt.worker_id else ""
        notes.append(
            f"attempt {attempt.attempt_id} ended as {task_label(attempt.state)}{where}"
            + (f": {clean(why, MAX_WHY)}" if why else "")
        )
    if job is not None and (status.failure_count or status.preemption_count):
        notes.append(f"charged so far: {job.spec.charged(status.failure_count, status.preemption_count)}")
    return notes
