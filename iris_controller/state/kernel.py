"""The transition kernel: what each event does to tasks and their attempts (control-plane §1.4).

Every function here applies one event to an overlay, with the time and any new uid given by the caller, and marks the jobs it
touched. `settle` then computes those jobs once, so the events of a batch may come in any order. Guards come before rules: an
event that speaks of an attempt which is not the task's current one can do no more than stamp that attempt's end. Must never do
I/O, read a clock or draw a random number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from iris_controller.state.desired import StopReason
from iris_controller.state.ending import end_tree, latest, live_attempt, stop_task
from iris_controller.state.expiry import expire_scheduling
from iris_controller.state.observed import (
    WORKER_LOST_SPEC,
    FailureKind,
    Observed,
    believed_time,
    cut,
    reported_state,
)
from iris_controller.state.placing import assign, assign_all, assign_gang
from iris_controller.state.preempting import displace
from iris_controller.state.records import Attempt, Charge, Job, Task
from iris_controller.state.rollup import settle
from iris_controller.state.staging import count_staging_failure, forgive_staging_failures
from iris_core.model.quantities import format_duration
from iris_core.model.states import ACTIVE, CANCEL_GUARD, EXECUTING, JOB_TERMINAL, TERMINAL, JobState, TaskState, label

if TYPE_CHECKING:
    from iris_controller.state.overlay import Overlay

__all__ = [
    "FailureKind",
    "Observed",
    "assign",
    "assign_all",
    "assign_gang",
    "attempts_missing",
    "cancel",
    "complete",
    "displace",
    "expire_scheduling",
    "observe",
    "settle",
    "time_out",
    "worker_lost",
]

_OVERWRITTEN_BY_CANCEL: Final = JOB_TERMINAL - CANCEL_GUARD


def observe(o: Overlay, worker_id: str, obs: Observed, now_ms: int) -> bool:
    """Folds one observation of a worker into its attempt and task.

    Returns False, and changes nothing, for what a truthful worker would not say now: an attempt that is unknown, over, or bound
    to another worker, a state only the controller decides, or a step back. Duplicates are accepted without effect.

    Times are the worker's, held between the attempt's creation and now. Texts are cut at 4 KiB. Budgets: control-plane §1.3.
    """
    state = reported_state(obs.state)
    attempt = o.attempt(obs.attempt_uid)
    if state is None or attempt is None or attempt.worker_id != worker_id:
        return False
    if attempt.finished_at_ms is not None:
        return state is attempt.state
    task = o.task(attempt.job_id, attempt.task_index)
    job = o.job(attempt.job_id)
    if task is None or job is None or task.attempt_uid != attempt.uid or task.state not in ACTIVE:
        if state in TERMINAL or state is TaskState.MISSING:
            _confirm(o, attempt, obs, now_ms)
        return True
    if state in ACTIVE:
        return _progress(o, task, attempt, state, obs, now_ms)
    staging = obs.failure_kind == FailureKind.STAGING
    error = cut(obs.error)
    if state is TaskState.SUCCEEDED:
        _succeed(o, task, attempt, obs, now_ms)
    elif state is TaskState.FAILED and not staging:
        _fail(o, job, task, attempt, obs, error, now_ms)
    elif state is TaskState.MISSING:
        _lose(o, job, task, attempt, obs, WORKER_LOST_SPEC, "worker_lost_spec", now_ms)
    elif state is TaskState.KILLED:
        _lose(o, job, task, attempt, obs, error or "stopped on the worker, and nobody asked for it", "killed", now_ms)
    else:
        reason = "staging" if staging else "worker_failed"
        _lose(o, job, task, attempt, obs, error or "the worker could not run it", reason, now_ms)
        if staging:
            count_staging_failure(o, worker_id, error)
    return True


def worker_lost(o: Overlay, worker_id: str, reason: str, now_ms: int) -> int:
    """Resolves every unfinished attempt of a worker that was declared dead. Returns how many.

    An attempt that was only assigned costs nothing; one that had begun costs preemption budget. Ends that waited for the worker's
    word are stamped, since nobody will give it. The worker's own row is the caller's to change.
    """
    resolved = _resolve(o, worker_id, frozenset(), f"worker {worker_id} was lost: {cut(reason)}", "worker_lost", now_ms)
    o.note("worker_failed", worker_id, "liveness", reason=cut(reason), attempts=resolved)
    return resolved


def attempts_missing(o: Overlay, worker_id: str, held: set[str], now_ms: int) -> int:
    """Resolves the attempts that a worker under a new boot id does not hold any more (DESIGN §4). Returns how many."""
    return _resolve(o, worker_id, held, WORKER_LOST_SPEC, "worker_lost_spec", now_ms)


def time_out(o: Overlay, attempt_uid: str, now_ms: int) -> bool:
    """Ends an attempt that ran longer than its job allows: FAILED, charged to the failure budget, never retried.

    Returns False, and changes nothing, when the attempt is over or not current.
    """
    attempt = o.attempt(attempt_uid)
    task = o.task(attempt.job_id, attempt.task_index) if attempt is not None else None
    job = o.job(attempt.job_id) if attempt is not None else None
    if attempt is None or task is None or job is None or task.attempt_uid != attempt_uid or task.state not in ACTIVE:
        return False
    error = f"ran longer than its limit of {format_duration(job.spec.timeout_ms, exact=True)}"
    stop_task(
        o,
        task,
        TaskState.FAILED,
        now_ms,
        stop=StopReason.TASK_TIMEOUT,
        reason="timeout",
        error=error,
        charge=Charge.FAILURE,
    )
    o.note("task_timeout", task.task_id, "timer", attempt=attempt.number, worker=attempt.worker_id, reason=error)
    return True


def cancel(o: Overlay, job_id: str, trigger: str, reason: str, now_ms: int) -> list[str]:
    """Kills a job and everything below it. Returns the ids of the jobs that ended by it, parents first.

    Idempotent: a job that has ended stays as it is, except WORKER_FAILED, which becomes KILLED (control-plane §1.5). Descendants
    that outlived an ended parent are still killed. Empty for an unknown job.
    """
    settle(o, now_ms)
    error = f"cancelled by {trigger}" + (f": {cut(reason)}" if reason else "")
    ended = end_tree(
        o,
        list(o.subtree(job_id)),
        TaskState.KILLED,
        JobState.KILLED,
        now_ms,
        stop=StopReason.CANCELLED,
        reason="cancelled",
        error=error,
        trigger=trigger,
        action="job_cancelled",
        overwrites=_OVERWRITTEN_BY_CANCEL,
    )
    settle(o, now_ms)
    return ended


def complete(o: Overlay, job_id: str, trigger: str, now_ms: int) -> list[str]:
    """Declares a job and everything below it done: what has not ended is SUCCEEDED, then stopped (control-plane §1.9).

    Returns the ids of the jobs that ended by it, parents first. Idempotent; what has ended stays as it is.
    """
    settle(o, now_ms)
    ended = end_tree(
        o,
        list(o.subtree(job_id)),
        TaskState.SUCCEEDED,
        JobState.SUCCEEDED,
        now_ms,
        stop=StopReason.JOB_TERMINATED,
        reason="completed",
        error=None,
        trigger=trigger,
        action="job_completed",
    )
    settle(o, now_ms)
    return ended


# Ends that a worker reports, or that its loss implies -----------------------------------------------------------


def _progress(o: Overlay, task: Task, attempt: Attempt, state: TaskState, obs: Observed, now_ms: int) -> bool:
    """ASSIGNED → BUILDING → RUNNING, never back."""
    peak = max(attempt.memory_peak_bytes, obs.memory_peak_bytes)
    if state is attempt.state:
        if peak != attempt.memory_peak_bytes:
            o.set_attempt(attempt, memory_peak_bytes=peak)
        return True
    if state is TaskState.BUILDING and attempt.state is TaskState.ASSIGNED:
        o.set_attempt(attempt, state=state, executed=True, memory_peak_bytes=peak)
        o.set_task(task, state=state)
        return True
    if state is TaskState.RUNNING:
        started = believed_time(obs.started_at_ms, attempt.created_at_ms, now_ms)
        o.set_attempt(attempt, state=state, executed=True, started_at_ms=started, memory_peak_bytes=peak)
        o.set_task(task, state=state, started_at_ms=started)
        forgive_staging_failures(o, attempt.worker_id)
        return True
    return False


def _ended(attempt: Attempt, obs: Observed | None, now_ms: int) -> dict[str, Any]:
    """The measured part of an attempt's end."""
    if obs is None:
        return {"finished_at_ms": latest(now_ms, attempt.created_at_ms, attempt.started_at_ms)}
    started = attempt.started_at_ms
    if started is None and obs.started_at_ms > 0:
        started = believed_time(obs.started_at_ms, attempt.created_at_ms, now_ms)
    return {
        "started_at_ms": started,
        "finished_at_ms": believed_time(obs.finished_at_ms, started or attempt.created_at_ms, now_ms),
        "memory_peak_bytes": max(attempt.memory_peak_bytes, obs.memory_peak_bytes),
        "log_lines": attempt.log_lines if obs.log_lines is None else obs.log_lines,
        "outputs": obs.outputs or attempt.outputs,
    }


def _confirm(o: Overlay, attempt: Attempt, obs: Observed | None, now_ms: int) -> None:
    """Second half of a two-phase finish: the end was decided before, the worker says that the process is gone."""
    exit_code = attempt.exit_code if obs is None or obs.exit_code is None else obs.exit_code
    o.set_attempt(attempt, exit_code=exit_code, **_ended(attempt, obs, now_ms))


def _succeed(o: Overlay, task: Task, attempt: Attempt, obs: Observed, now_ms: int) -> None:
    exit_code = obs.exit_code or 0
    ended = _ended(attempt, obs, now_ms)
    o.set_attempt(attempt, state=TaskState.SUCCEEDED, executed=True, exit_code=exit_code, **ended)
    o.set_task(
        task,
        state=TaskState.SUCCEEDED,
        exit_code=exit_code,
        error=None,
        started_at_ms=ended.get("started_at_ms"),
        finished_at_ms=ended["finished_at_ms"],
    )


def _fail(o: Overlay, job: Job, task: Task, attempt: Attempt, obs: Observed, error: str, now_ms: int) -> None:
    """The command or a setup step failed: charged to the failure budget. A timeout is never retried (DESIGN §5.4)."""
    if not error:
        error = "failed" if obs.exit_code is None else f"exit code {obs.exit_code}"
    timed_out = obs.failure_kind == FailureKind.TIMEOUT and job.spec.timeout_ms > 0
    retry = not timed_out and task.failure_count + 1 <= job.spec.max_retries_failure
    if timed_out:
        o.note("task_timeout", task.task_id, attempt.worker_id, attempt=attempt.number, reason=error)
    reason = _FAILURE_WORDS.get(obs.failure_kind, "command") if not timed_out else "timeout"
    _end(o, task, attempt, obs, TaskState.FAILED, Charge.FAILURE, retry, error, reason, now_ms)


def _lose(
    o: Overlay, job: Job, task: Task, attempt: Attempt, obs: Observed | None, error: str, reason: str, now_ms: int
) -> None:
    """The machine failed the attempt: free before it had begun, else charged to the preemption budget."""
    begun = attempt.state in EXECUTING
    charge = Charge.PREEMPTION if begun else Charge.NONE
    retry = not begun or task.preemption_count + 1 <= job.spec.max_retries_preemption
    _end(o, task, attempt, obs, TaskState.WORKER_FAILED, charge, retry, error, reason, now_ms)


def _end(
    o: Overlay,
    task: Task,
    attempt: Attempt,
    obs: Observed | None,
    state: TaskState,
    charge: Charge,
    retry: bool,
    error: str,
    reason: str,
    now_ms: int,
) -> None:
    """Writes an attempt's failure with its charge, and the task's next state: PENDING with budget left, else the same end."""
    ended = _ended(attempt, obs, now_ms)
    exit_code = None if obs is None else obs.exit_code
    o.set_attempt(
        attempt, state=state, exit_code=exit_code, error=error, terminal_reason=reason, charge=charge, **ended
    )
    o.set_task(
        task,
        state=TaskState.PENDING if retry else state,
        worker_id="" if retry else task.worker_id,
        started_at_ms=None if retry else ended.get("started_at_ms", task.started_at_ms),
        finished_at_ms=None if retry else ended["finished_at_ms"],
        error=error,
        exit_code=exit_code,
        failure_count=task.failure_count + (charge is Charge.FAILURE),
        preemption_count=task.preemption_count + (charge is Charge.PREEMPTION),
    )
    if retry:
        o.note(
            "task_retry",
            task.task_id,
            attempt.worker_id,
            attempt=attempt.number,
            next_attempt=attempt.number + 1,
            state=label(state),
            charge=charge.name.lower(),
            reason=error,
        )


def _resolve(o: Overlay, worker_id: str, held: set[str] | frozenset[str], error: str, reason: str, now_ms: int) -> int:
    """Resolves the worker's unfinished attempts that are not in `held`, without a word from the worker."""
    resolved = 0
    for attempt in list(o.attempts_on(worker_id)):
        if attempt.uid in held:
            continue
        resolved += 1
        task = o.task(attempt.job_id, attempt.task_index)
        job = o.job(attempt.job_id)
        if task is None or job is None or live_attempt(o, task) is not attempt:
            _confirm(o, attempt, None, now_ms)
        else:
            _lose(o, job, task, attempt, None, error, reason, now_ms)
    return resolved


_FAILURE_WORDS: Final[dict[int, str]] = {FailureKind.OUT_OF_MEMORY: "out_of_memory", FailureKind.TIMEOUT: "timeout"}
