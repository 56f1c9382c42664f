"""How tasks and jobs end by decision of the controller: cancelled, completed, timed out, kicked, or because their job is over.

Such an end is the first half of a two-phase finish: state and reason are written now, `finished_at_ms` of the attempt stays
empty and its capacity held until the worker confirms or is declared dead (control-plane §1.4). Used by all that
ends work; must never decide whether something ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_controller.state.desired import StopReason
from iris_controller.state.records import Charge, changed
from iris_core.model.states import ACTIVE, JOB_ERROR, JOB_TERMINAL, NON_TERMINAL, JobState, TaskState, label

if TYPE_CHECKING:
    from iris_controller.state.overlay import Overlay
    from iris_controller.state.records import Attempt, Job, Task


def latest(now_ms: int, *earlier: int | None) -> int:
    """Now, but never before what it follows: a clock that was set back makes no negative duration."""
    for time in earlier:
        if time is not None and time > now_ms:
            now_ms = time
    return now_ms


def live_attempt(o: Overlay, task: Task) -> Attempt | None:
    """The attempt that runs the task, or None when nothing does."""
    return o.attempt(task.attempt_uid) if task.state in ACTIVE else None


def stop_task(
    o: Overlay,
    task: Task,
    state: TaskState,
    now_ms: int,
    *,
    stop: StopReason,
    reason: str,
    error: str | None,
    charge: Charge = Charge.NONE,
) -> Task:
    """Ends a non-terminal task for good, and its attempt as far as the controller can.

    `reason` is the stable word kept with the attempt, `error` the sentence for people.
    """
    attempt = live_attempt(o, task)
    if attempt is not None:
        o.set_attempt(attempt, state=state, stop_reason=int(stop), terminal_reason=reason, error=error, charge=charge)
    return o.set_task(
        task,
        state=state,
        finished_at_ms=latest(now_ms, task.submitted_at_ms, task.started_at_ms),
        error=error,
        exit_code=None,
        failure_count=task.failure_count + (charge is Charge.FAILURE),
        preemption_count=task.preemption_count + (charge is Charge.PREEMPTION),
    )


def requeue_task(
    o: Overlay, task: Task, state: TaskState, *, stop: StopReason, reason: str, error: str, charge: Charge = Charge.NONE
) -> Task:
    """Ends the attempt of an active task as far as the controller can, and sends the task back to the queue.

    `state` is the attempt's end. Its capacity stays held until the worker confirms, while the task may already run elsewhere.
    """
    attempt = live_attempt(o, task)
    if attempt is not None:
        o.set_attempt(attempt, state=state, stop_reason=int(stop), terminal_reason=reason, error=error, charge=charge)
    return o.set_task(
        task,
        state=TaskState.PENDING,
        worker_id="",
        started_at_ms=None,
        finished_at_ms=None,
        error=error,
        exit_code=None,
        failure_count=task.failure_count + (charge is Charge.FAILURE),
        preemption_count=task.preemption_count + (charge is Charge.PREEMPTION),
    )


def preempt_task(
    o: Overlay, job: Job, task: Task, now_ms: int, *, trigger: str, reason: str, error: str, told: str, charged: bool
) -> None:
    """Ends the attempt of an active task as PREEMPTED: the task waits again, or ends with it when its budget is used up.

    `charged` says whether it costs the preemption budget; what costs nothing always waits again. `reason` and `error` as in `stop_task`,
    `told` is the audit line's reason.
    """
    attempt = live_attempt(o, task)
    if attempt is None:
        return
    charge = Charge.PREEMPTION if charged else Charge.NONE
    state, stop = TaskState.PREEMPTED, StopReason.PREEMPTED
    if not charged or task.preemption_count + 1 <= job.spec.max_retries_preemption:
        after = requeue_task(o, task, state, stop=stop, reason=reason, error=error, charge=charge)
    else:
        after = stop_task(o, task, state, now_ms, stop=stop, reason=reason, error=error, charge=charge)
    o.note(
        "task_preempted",
        task.task_id,
        trigger,
        attempt=attempt.number,
        worker=attempt.worker_id,
        was=label(task.state),
        state=label(after.state),
        band=task.band.label,
        reason=told,
    )


def stop_tasks(
    o: Overlay, job: Job, state: TaskState, now_ms: int, *, stop: StopReason, reason: str, error: str | None
) -> int:
    """Ends every task of the job that is not terminal yet. Returns how many."""
    if not sum(job.counts[s] for s in NON_TERMINAL) and job.job_id not in o.touched_jobs:
        return 0
    ended = 0
    finished = latest(now_ms, job.submitted_at_ms)
    values: dict[str, object] = {"state": state, "error": error, "exit_code": None, "finished_at_ms": finished}
    for task in o.tasks_of(job.job_id):
        if task.state is TaskState.PENDING:  # without ceremony: a job may have 100,000 of them
            o.put_task(task, changed(task, values))
            ended += 1
        elif task.state in ACTIVE:
            stop_task(o, task, state, now_ms, stop=stop, reason=reason, error=error)
            ended += 1
    return ended


def end_job(
    o: Overlay,
    job: Job,
    state: JobState,
    now_ms: int,
    *,
    error: str | None,
    exit_code: int | None,
    trigger: str,
    action: str = "job_terminated",
) -> Job:
    """Writes the end of a job and its audit line; its tasks must be ended by the caller."""
    finished = latest(now_ms, job.submitted_at_ms, job.started_at_ms)
    if job.state in JOB_TERMINAL and job.finished_at_ms is not None:
        finished = job.finished_at_ms
    ended = o.set_job(
        job,
        state=state,
        finished_at_ms=finished,
        error=error if state in JOB_ERROR else None,
        exit_code=exit_code,
    )
    values: dict[str, object] = {"state": label(state), "tasks": job.num_tasks}
    if exit_code is not None:
        values["exit_code"] = exit_code
    if ended.error:
        values["reason"] = ended.error
    o.note(action, job.job_id, trigger, **values)
    return ended


def end_tree(
    o: Overlay,
    job_ids: list[str],
    task_state: TaskState,
    job_state: JobState,
    now_ms: int,
    *,
    stop: StopReason,
    reason: str,
    error: str | None,
    trigger: str,
    action: str = "job_terminated",
    overwrites: frozenset[JobState] = frozenset(),
) -> list[str]:
    """Ends those of the jobs, and their tasks, that are not terminal yet or whose end `overwrites` names.

    Returns their ids in the order given. One that has ended already is left as it is.
    """
    ended = []
    for job_id in job_ids:
        job = o.job(job_id)
        if job is None or (job.state in JOB_TERMINAL and job.state not in overwrites):
            continue
        stop_tasks(o, job, task_state, now_ms, stop=stop, reason=reason, error=error)
        folded = o.fold(job_id) or job
        end_job(o, folded, job_state, now_ms, error=error, exit_code=None, trigger=trigger, action=action)
        ended.append(job_id)
    return ended
