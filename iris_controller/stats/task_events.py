"""What was decided about each attempt, derived from committed batches: assigned, started, ended and by whom, what follows.

Events are no state: they are made from what a batch has become, after it is durable, on any thread, and nothing waits for them. What
was said of an attempt is remembered until it is over, so a batch that touches it again says only what is new; a controller that
starts knows the unfinished ones from its state and says nothing twice. Must never read the model: records are handed in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from iris_core.model.states import ACTIVE, TERMINAL, TaskState, label
from iris_core.model.text import counted_are

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from iris_controller.state.changes import Changes
    from iris_controller.state.records import Attempt, Job, Task

SOURCE: Final = "iris/controller"
NORMAL: Final = "Normal"
WARNING: Final = "Warning"

_UNKNOWN, _ASSIGNED, _BUILDING, _RUNNING, _ENDED = range(5)

_ENDS: Final[dict[str, tuple[str, str]]] = {
    "command": (WARNING, "Failed"),
    "out_of_memory": (WARNING, "OutOfMemory"),
    "timeout": (WARNING, "TimedOut"),
    "staging": (WARNING, "StagingFailed"),
    "worker_failed": (WARNING, "WorkerFailed"),
    "worker_lost": (WARNING, "WorkerLost"),
    "worker_lost_spec": (WARNING, "WorkerLost"),
    "killed": (WARNING, "Killed"),
    "preempted": (WARNING, "Preempted"),
    "displaced": (WARNING, "Preempted"),
    "slice_torn_down": (WARNING, "SliceTornDown"),
    "operator_failed": (WARNING, "OperatorFailed"),
    "unschedulable": (WARNING, "Unschedulable"),
    "cosched_failed": (WARNING, "CoscheduledSiblingTerminated"),
    "cosched_requeued": (WARNING, "CoscheduledSiblingRequeued"),
    "cancelled": (NORMAL, "Cancelled"),
    "completed": (NORMAL, "Completed"),
    "job_terminated": (NORMAL, "JobFinalized"),
    "parent_ended": (NORMAL, "ParentEnded"),
    "parent_retried": (NORMAL, "ParentRetried"),
}
"""By the word that the kernel keeps with an attempt's end."""

_LOST_FOR_GOOD: Final = frozenset(
    {TaskState.FAILED, TaskState.WORKER_FAILED, TaskState.PREEMPTED, TaskState.COSCHED_FAILED}
)
_ALONE: Final = {
    TaskState.UNSCHEDULABLE: "Unschedulable",
    TaskState.COSCHED_FAILED: "CoscheduledSiblingTerminated",
}
"""Ends that a task meets in the queue, where no attempt of it is there to say so."""

Row = dict[str, Any]


class TaskEvents:
    """See the module. `unfinished` are the attempts of which an earlier controller has spoken."""

    def __init__(self, cluster: str, unfinished: Iterable[Attempt]) -> None:
        self._cluster = cluster
        self._said = {attempt.uid: (_stage(attempt), attempt.job_id) for attempt in unfinished}

    @property
    def followed(self) -> int:
        """Attempts that are not over."""
        return len(self._said)

    def of(self, changes: Changes, jobs: Mapping[str, Job], now_ms: int) -> list[Row]:
        """The rows of one batch, in the order in which they happened for each attempt. `jobs` are those that it touched."""
        if changes.deleted_jobs:
            self._said = {uid: said for uid, said in self._said.items() if said[1] not in changes.deleted_jobs}
        found: list[Row] = []
        spoken: set[tuple[str, int]] = set()
        for uid, attempt in changes.attempts.items():
            stage = _stage(attempt)
            before = self._said.get(uid, (_UNKNOWN, ""))[0]
            if attempt.finished_at_ms is None:
                self._said[uid] = (stage, attempt.job_id)
            else:
                self._said.pop(uid, None)
                if before == _ENDED:
                    found.append(self._row(attempt, jobs, now_ms, NORMAL, "Stopped", _stopped(attempt)))
            if stage <= before:
                continue
            key = (attempt.job_id, attempt.task_index)
            spoken.add(key)
            for at_ms, kind, reason, message in _steps(attempt, before, changes.tasks.get(key), jobs, now_ms):
                found.append(self._row(attempt, jobs, at_ms, kind, reason, message))
        found.extend(self._of_the_queue(changes.tasks, jobs, spoken, now_ms))
        return folded(found)

    def _of_the_queue(
        self, tasks: Mapping[tuple[str, int], Task], jobs: Mapping[str, Job], spoken: set[tuple[str, int]], now_ms: int
    ) -> Iterator[Row]:
        for key, task in tasks.items():
            reason = _ALONE.get(task.state)
            if reason is None or key in spoken:
                continue
            job = jobs.get(task.job_id)
            yield self._put(
                task.task_id, task.attempt_number, task.attempt_uid, job, now_ms, WARNING, reason, task.error or ""
            )

    def _row(self, attempt: Attempt, jobs: Mapping[str, Job], at_ms: int, kind: str, reason: str, message: str) -> Row:
        job = jobs.get(attempt.job_id)
        return self._put(attempt.task_id, attempt.number, attempt.uid, job, at_ms, kind, reason, message)

    def _put(
        self,
        task_id: str,
        number: int,
        uid: str,
        job: Job | None,
        at_ms: int,
        kind: str,
        reason: str,
        message: str,
    ) -> Row:
        return {
            "task_id": task_id,
            "attempt_id": number,
            "ts": at_ms,
            "type": kind,
            "reason": reason,
            "message": message,
            "source": SOURCE,
            "count": 1,
            "attempt_uid": uid or None,
            "cluster": self._cluster,
            "incarnation": job.submitted_at_ms if job is not None else None,
        }


def folded(rows: list[Row]) -> list[Row]:
    """Rows that say the same of the same attempt as one, the first of them, with their number as `count`."""
    first: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = (row["task_id"], row["attempt_uid"], row["type"], row["reason"], row["source"], row["message"])
        known = first.get(key)
        if known is None:
            first[key] = row
        else:
            known["count"] += row["count"]
    return list(first.values())


def _stage(attempt: Attempt) -> int:
    if attempt.state in TERMINAL:
        return _ENDED
    if attempt.state is TaskState.RUNNING:
        return _RUNNING
    return _BUILDING if attempt.state is TaskState.BUILDING else _ASSIGNED


def _steps(
    attempt: Attempt, before: int, task: Task | None, jobs: Mapping[str, Job], now_ms: int
) -> Iterator[tuple[int, str, str, str]]:
    """Time, type, reason and message of what happened since `before`."""
    if before < _ASSIGNED:
        waits = ""
        if attempt.displaces:
            waits = f", once {counted_are(len(attempt.displaces), 'preempted attempt')} gone"
        yield attempt.created_at_ms, NORMAL, "Assigned", f"to worker {attempt.worker_id}{waits}"
    if before < _BUILDING and attempt.state is TaskState.BUILDING:
        yield now_ms, NORMAL, "Building", f"worker {attempt.worker_id} prepares it"
    if before < _RUNNING and attempt.started_at_ms is not None:
        yield attempt.started_at_ms, NORMAL, "Started", f"its command runs on worker {attempt.worker_id}"
    if attempt.state in ACTIVE:
        return
    kind, reason = _ENDS.get(attempt.terminal_reason, ("", ""))
    if not reason:
        succeeded = attempt.state is TaskState.SUCCEEDED
        kind = NORMAL if succeeded else WARNING
        reason = "".join(word.capitalize() for word in label(attempt.state).split("_"))
    yield now_ms, kind, reason, attempt.error or ("" if attempt.exit_code is None else f"exit code {attempt.exit_code}")
    if task is None:
        return
    budget = _budget(task, jobs.get(attempt.job_id))
    if task.attempt_uid != attempt.uid or task.state is TaskState.PENDING:
        yield now_ms, NORMAL, "RetryScheduled", f"attempt {attempt.number + 1} follows{budget}"
    elif task.state in _LOST_FOR_GOOD:
        yield now_ms, WARNING, "Terminated", f"the task ended as {label(task.state)}{budget}"


def _budget(task: Task, job: Job | None) -> str:
    if job is None:
        return ""
    return f" ({job.spec.charged(task.failure_count, task.preemption_count)})"


def _stopped(attempt: Attempt) -> str:
    code = f", exit code {attempt.exit_code}" if attempt.exit_code is not None else ""
    return f"nothing of it is left on worker {attempt.worker_id}{code}"
