"""What a filter can ask of jobs, tasks and workers: the same fields wherever one is typed.

The grammar is `iris_core.model.filter`; here are the fields of each kind of row and how a wire message answers for them, so
that the console's live filter and the server's List and Watch cannot disagree. Ages and durations need the time now, which
the caller passes in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from iris_core.model.bands import BANDS, band_label
from iris_core.model.filter import Field, FieldType
from iris_core.model.states import JobState, TaskState, job_label, label, task_label
from iris_core.model.text import yes_or_no

if TYPE_CHECKING:
    from iris_core.wire.gen.iris.v1.controller_pb2 import JobStatus, TaskStatus, WorkerStatus

JOB_FIELDS: Final[dict[str, FieldType | Field]] = {
    "job": FieldType.TEXT,
    "state": Field(FieldType.WORD, tuple(label(state) for state in JobState if state)),
    "user": FieldType.TEXT,
    "band": Field(FieldType.WORD, tuple(band.label for band in BANDS)),
    "parent": FieldType.TEXT,
    "reason": FieldType.TEXT,
    "error": FieldType.TEXT,
    "tasks": FieldType.NUMBER,
    "failures": FieldType.NUMBER,
    "preemptions": FieldType.NUMBER,
    "exit": FieldType.NUMBER,
    "depth": FieldType.NUMBER,
    "age": FieldType.DURATION,
    "time": FieldType.DURATION,
    "submitted": FieldType.TIME,
    "started": FieldType.TIME,
    "finished": FieldType.TIME,
}
"""Fields of a job. `age` is since submission, `time` how long it ran (until now if it runs)."""

JOB_WORDS: Final = ("job", "state", "reason", "error")
"""Where a bare word is looked for."""

TASK_FIELDS: Final[dict[str, FieldType | Field]] = {
    "task": FieldType.TEXT,
    "job": FieldType.TEXT,
    "state": Field(FieldType.WORD, tuple(label(state) for state in TaskState if state)),
    "worker": FieldType.TEXT,
    "reason": FieldType.TEXT,
    "error": FieldType.TEXT,
    "index": FieldType.NUMBER,
    "attempt": FieldType.NUMBER,
    "failures": FieldType.NUMBER,
    "preemptions": FieldType.NUMBER,
    "exit": FieldType.NUMBER,
    "memory": FieldType.SIZE,
    "age": FieldType.DURATION,
    "time": FieldType.DURATION,
    "submitted": FieldType.TIME,
    "started": FieldType.TIME,
    "finished": FieldType.TIME,
}
TASK_WORDS: Final = ("task", "state", "worker", "reason", "error")

WORKER_FIELDS: Final[dict[str, FieldType | Field]] = {
    "worker": FieldType.TEXT,
    "health": Field(FieldType.WORD, ("healthy", "degraded", "dead")),
    "address": FieldType.TEXT,
    "reason": FieldType.TEXT,
    "hostname": FieldType.TEXT,
    "running": FieldType.NUMBER,
    "device": FieldType.TEXT,
    "zone": FieldType.TEXT,
    "region": FieldType.TEXT,
    "release": FieldType.TEXT,
    "builds": FieldType.NUMBER,
    "excluded": Field(FieldType.WORD, ("yes", "no")),
}
WORKER_WORDS: Final = ("worker", "health", "address", "reason", "device")


def _span(started_ms: int, finished_ms: int, now_ms: int) -> int | None:
    return (finished_ms or now_ms) - started_ms if started_ms else None


_JOB_VALUES: Final[dict[str, Callable[[JobStatus, int], object]]] = {
    "job": lambda job, _: job.job_id,
    "state": lambda job, _: job_label(job.state),
    "user": lambda job, _: job.user_id,
    "band": lambda job, _: band_label(job.priority_band),
    "parent": lambda job, _: job.parent_job_id or None,
    "reason": lambda job, _: job.pending_reason or None,
    "error": lambda job, _: job.error or None,
    "tasks": lambda job, _: job.num_tasks,
    "failures": lambda job, _: job.failure_count,
    "preemptions": lambda job, _: job.preemption_count,
    "exit": lambda job, _: job.exit_code if job.HasField("exit_code") else None,
    "depth": lambda job, _: job.depth,
    "age": lambda job, now: now - job.submitted_at_ms,
    "time": lambda job, now: _span(job.started_at_ms, job.finished_at_ms, now),
    "submitted": lambda job, _: job.submitted_at_ms or None,
    "started": lambda job, _: job.started_at_ms or None,
    "finished": lambda job, _: job.finished_at_ms or None,
}
_TASK_VALUES: Final[dict[str, Callable[[TaskStatus, int], object]]] = {
    "task": lambda task, _: task.task_id,
    "job": lambda task, _: task.job_id,
    "state": lambda task, _: task_label(task.state),
    "worker": lambda task, _: task.worker_id or None,
    "reason": lambda task, _: task.pending_reason or None,
    "error": lambda task, _: task.error or None,
    "index": lambda task, _: task.task_index,
    "attempt": lambda task, _: task.current_attempt_id if task.current_attempt_id >= 0 else None,
    "failures": lambda task, _: task.failure_count,
    "preemptions": lambda task, _: task.preemption_count,
    "exit": lambda task, _: task.exit_code if task.HasField("exit_code") else None,
    "memory": lambda task, _: task.memory_peak_bytes or None,
    "age": lambda task, now: now - task.submitted_at_ms,
    "time": lambda task, now: _span(task.started_at_ms, task.finished_at_ms, now),
    "submitted": lambda task, _: task.submitted_at_ms or None,
    "started": lambda task, _: task.started_at_ms or None,
    "finished": lambda task, _: task.finished_at_ms or None,
}
_HEALTH: Final = {1: "healthy", 2: "degraded", 3: "dead"}
_WORKER_VALUES: Final[dict[str, Callable[[WorkerStatus], object]]] = {
    "worker": lambda worker: worker.worker_id,
    "health": lambda worker: _HEALTH.get(worker.health),
    "address": lambda worker: worker.address or None,
    "reason": lambda worker: worker.health_reason or None,
    "hostname": lambda worker: worker.hostname or None,
    "running": lambda worker: worker.running_tasks,
    "device": lambda worker: worker.total.device.variant or worker.total.device.kind or None,
    "zone": lambda worker: worker.attributes["zone"].text if "zone" in worker.attributes else None,
    "region": lambda worker: worker.attributes["region"].text if "region" in worker.attributes else None,
    "release": lambda worker: worker.release or worker.version or None,
    "builds": lambda worker: worker.build_failures,
    "excluded": lambda worker: yes_or_no(worker.excluded),
}


def job_row(job: JobStatus, now_ms: int) -> Callable[[str], object]:
    """The job as `Filter.matches` wants it."""
    return lambda name: _JOB_VALUES[name](job, now_ms)


def task_row(task: TaskStatus, now_ms: int) -> Callable[[str], object]:
    """The task as `Filter.matches` wants it."""
    return lambda name: _TASK_VALUES[name](task, now_ms)


def worker_row(worker: WorkerStatus) -> Callable[[str], object]:
    """The worker as `Filter.matches` wants it."""
    return lambda name: _WORKER_VALUES[name](worker)
