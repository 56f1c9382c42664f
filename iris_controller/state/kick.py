"""An operator forces the current attempt of a task to an end: preempted (tried again within its budget) or failed (never again).

Such an end goes the way of every end that the controller decides: written now, confirmed by the worker later (`ending`). It is
applied in the batch that answers it, so an answer says what is durable and not what is intended. Must never touch a task that is
not on a worker, and never more of a job than its targets name (control-plane §1.9, DESIGN §5.17).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from iris_controller.state.desired import StopReason
from iris_controller.state.ending import live_attempt, preempt_task, stop_task
from iris_controller.state.observed import cut
from iris_controller.state.records import Charge
from iris_controller.state.rollup import settle
from iris_core.model.ids import AttemptId, JobId, TaskId
from iris_core.model.states import ACTIVE, TERMINAL, TaskState, job_label, label
from iris_core.model.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_controller.state.overlay import Overlay
    from iris_controller.state.records import Job, Task

Target = JobId | TaskId | AttemptId
End = Literal[TaskState.PREEMPTED, TaskState.FAILED]


@dataclass(frozen=True, slots=True)
class Kicked:
    """What became of one target, or of one task of a job that was named. `detail` says why it was rejected."""

    target: str
    task_id: str
    accepted: bool
    detail: str = ""


def kick(
    o: Overlay,
    targets: Sequence[tuple[str, Target | str]],
    state: End,
    trigger: str,
    reason: str,
    now_ms: int,
    *,
    dry_run: bool = False,
) -> list[Kicked]:
    """Ends the attempts that the targets name, and answers for each target in their order.

    A target comes as it was written and as it was understood; a string in the place of the latter is a rejection that the caller
    has decided on. All are looked up before the first is acted on, and a task that is named twice is kicked once. A job stands for
    its active tasks. `dry_run` answers the same and changes nothing.
    """
    settle(o, now_ms)
    results: list[Kicked] = []
    frozen: dict[str, Task] = {}
    for text, target in targets:
        found = target if isinstance(target, str) else look_up(o, target)
        if isinstance(found, str):
            task_id = str(target.task) if isinstance(target, AttemptId) else text if isinstance(target, TaskId) else ""
            results.append(Kicked(text, task_id, False, found))
            continue
        results.extend(Kicked(text, task.task_id, True) for task in found)
        frozen.update((task.task_id, task) for task in found)
    if not dry_run:
        for task in frozen.values():
            job = o.job(task.job_id)
            if job is not None:
                _end(o, job, task, state, trigger, reason, now_ms)
    return results


def look_up(o: Overlay, target: Target) -> list[Task] | str:
    """The active tasks that a target names, or why there is none."""
    if isinstance(target, JobId):
        job = o.job(str(target))
        if job is None:
            return f"there is no unfinished job {target}"
        active = [task for task in o.tasks_of(job.job_id) if task.state in ACTIVE]
        return active or f"{_standing(job)}: none of its tasks is on a worker"
    task_id = target.task if isinstance(target, AttemptId) else target
    job = o.job(str(task_id.job))
    if job is None:
        return f"there is no unfinished job {task_id.job}"
    if task_id.index >= job.num_tasks:
        return f"job {job.job_id} has {counted(job.num_tasks, 'task')}, none with index {task_id.index}"
    task = o.task(job.job_id, task_id.index)
    if task is None:
        return _standing(job)
    if isinstance(target, AttemptId) and target.number != task.attempt_number:
        current = f"attempt {task.attempt_number} is" if task.attempt_number >= 0 else "none has begun"
        return f"attempt {target.number} is not the current one, {current}"
    if task.state in ACTIVE:
        return [task]
    return f"it has ended as {label(task.state)}" if task.state in TERMINAL else "it is pending, on no worker"


def _standing(job: Job) -> str:
    if job.finished_at_ms is not None:
        return f"its job has ended as {job_label(job.state)}"
    return f"job {job.job_id} is {job_label(job.state)}"


def _end(o: Overlay, job: Job, task: Task, state: End, trigger: str, reason: str, now_ms: int) -> None:
    """Preempted charges the preemption budget from any active state; failed charges a failure and is never retried."""
    error = f"{label(state)} by {trigger}" + (f": {cut(reason)}" if reason else "")
    if state is TaskState.PREEMPTED:
        preempt_task(
            o, job, task, now_ms, trigger=trigger, reason="preempted", error=error, told=cut(reason), charged=True
        )
        return
    attempt = live_attempt(o, task)
    if attempt is None:
        return
    after = stop_task(
        o,
        task,
        state,
        now_ms,
        stop=StopReason.CANCELLED,
        reason="operator_failed",
        error=error,
        charge=Charge.FAILURE,
    )
    o.note(
        "task_failed",
        task.task_id,
        trigger,
        attempt=attempt.number,
        worker=attempt.worker_id,
        was=label(task.state),
        state=label(after.state),
        reason=cut(reason),
    )
