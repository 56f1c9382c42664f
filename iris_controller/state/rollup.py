"""The second pass of the kernel: what the changed tasks of a batch mean for their jobs and those jobs' descendants.

The first pass applies every event to tasks and attempts and only marks the job. Here each marked job is computed once from its
counts, so the result does not depend on the order in which a batch's events came (control-plane §1.5). Must never look at an
event, only at what tasks have become.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_controller.state.desired import StopReason
from iris_controller.state.ending import end_job, end_tree, latest, stop_tasks
from iris_controller.state.expiry import expire_requeued
from iris_controller.state.gang import LOST, began_it, keep_whole
from iris_controller.state.records import ChildrenPolicy
from iris_core.model.states import ACTIVE, JOB_TERMINAL, NON_TERMINAL, JobState, TaskState, label

if TYPE_CHECKING:
    from iris_controller.state.overlay import Overlay
    from iris_controller.state.records import Job

_DECIDED_BY: Final = {
    JobState.FAILED: frozenset({TaskState.FAILED}),
    JobState.UNSCHEDULABLE: frozenset({TaskState.UNSCHEDULABLE}),
    JobState.KILLED: frozenset({TaskState.KILLED}),
    JobState.WORKER_FAILED: LOST,
}


def rolled_up(job: Job) -> JobState:
    """The state that follows from the counts of a job's tasks (control-plane §1.5, DESIGN §5.2), in this order:

    a terminal job stays; more FAILED tasks than tolerated → FAILED; any UNSCHEDULABLE → UNSCHEDULABLE; any KILLED → KILLED; all
    terminal and any lost to its worker, preemption or gang → WORKER_FAILED; all terminal → SUCCEEDED; any on a worker, or any
    ever → RUNNING; else PENDING.
    """
    if job.state in JOB_TERMINAL:
        return job.state
    counts = job.counts
    if counts[TaskState.FAILED] > job.spec.max_task_failures:
        return JobState.FAILED
    if counts[TaskState.UNSCHEDULABLE]:
        return JobState.UNSCHEDULABLE
    if counts[TaskState.KILLED]:
        return JobState.KILLED
    if job.num_tasks and not any(counts[state] for state in NON_TERMINAL):
        return JobState.WORKER_FAILED if any(counts[state] for state in LOST) else JobState.SUCCEEDED
    if job.started_at_ms is not None or any(counts[state] for state in ACTIVE):
        return JobState.RUNNING
    return JobState.PENDING


def terminates_children(job: Job) -> bool:
    """Whether the job takes its children with it; unspecified: single-task jobs do (DESIGN §5.3)."""
    policy = job.spec.children_policy
    if policy is ChildrenPolicy.UNSPECIFIED:
        return job.num_tasks <= 1
    return policy is ChildrenPolicy.TERMINATE_CHILDREN


def settle(o: Overlay, now_ms: int) -> None:
    """Keeps every gang whole, rolls up every job that this batch touched, ends what ends with it, and repeats until nothing is touched.

    All roll-ups come before any cascade: a child whose own tasks ended in the same batch keeps the end they gave it, whichever
    was reported first. Calling it between the commands of a batch is allowed and cheap.
    """
    while o.touched_jobs or o.requeued_jobs:
        ended: set[str] = set()
        while o.touched_jobs:
            for job_id in sorted(o.touched_jobs):
                if _roll_up(o, job_id, now_ms):
                    ended.add(job_id)
        requeued = list(o.requeued_jobs)
        o.requeued_jobs.clear()
        for job_id in sorted(ended.union(requeued)):
            _cascade(o, job_id, now_ms)


def _roll_up(o: Overlay, job_id: str, now_ms: int) -> bool:
    """Computes one job. Returns whether it ended now."""
    job = o.fold(job_id)
    if job is not None and keep_whole(o, job, now_ms):
        job = o.fold(job_id)
    if job is not None and expire_requeued(o, job, now_ms):
        job = o.fold(job_id)
    o.touched_jobs.pop(job_id, None)
    if job is None:
        return False
    state = rolled_up(job)
    if state is job.state:
        return False
    if state not in JOB_TERMINAL:
        started = job.started_at_ms
        if state is JobState.RUNNING and started is None:
            started = latest(now_ms, job.submitted_at_ms)
        o.set_job(job, state=state, started_at_ms=started)
        return False
    error, exit_code = _outcome(o, job, state)
    end_job(o, job, state, now_ms, error=error, exit_code=exit_code, trigger="tasks")
    stop_tasks(
        o,
        job,
        TaskState.KILLED,
        now_ms,
        stop=StopReason.JOB_TERMINATED,
        reason="job_terminated",
        error=f"the job ended as {label(state)}",
    )
    return True


def _outcome(o: Overlay, job: Job, state: JobState) -> tuple[str | None, int | None]:
    """Error and exit code of a job that ends by its tasks: those of the first task that decided it."""
    if state is JobState.SUCCEEDED:
        return None, 0
    deciding = _DECIDED_BY[state]
    first = min(
        (task for task in o.tasks_of(job.job_id) if task.state in deciding),
        key=began_it,
        default=None,
    )
    if first is None:
        return None, None
    error = first.error or label(first.state)
    return (f"task {first.index}: {error}" if job.num_tasks > 1 else error), first.exit_code


def _cascade(o: Overlay, job_id: str, now_ms: int) -> None:
    """Ends the descendants of a job that ended, or that has a task going back to the queue (control-plane §1.5)."""
    job = o.job(job_id)
    if job is None or not (job.state is JobState.SUCCEEDED or terminates_children(job)):
        return
    descendants = [found for found in o.subtree(job_id) if found != job_id]
    if not descendants:
        return
    why = f"ended as {label(job.state)}" if job.state in JOB_TERMINAL else "is being retried"
    end_tree(
        o,
        descendants,
        TaskState.KILLED,
        JobState.KILLED,
        now_ms,
        stop=StopReason.JOB_TERMINATED,
        reason="parent_ended" if job.state in JOB_TERMINAL else "parent_retried",
        error=f"its parent job {job_id} {why}",
        trigger=job_id,
    )
