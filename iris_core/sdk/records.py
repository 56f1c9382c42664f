"""What the controller says of jobs, tasks, logs and endpoints, as plain values. Times are epoch ms; None = not yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from iris_core.contracts import IrisError
from iris_core.model.bands import PriorityBand
from iris_core.model.states import JOB_TERMINAL, TERMINAL, JobState, TaskState

if TYPE_CHECKING:
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
    from iris_core.wire.gen.iris.v1 import endpoints_pb2, logs_pb2


class Missing(IrisError):
    """There is no such job, or another job has its name now."""


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A job as it stands. `incarnation` tells it from an earlier or later job of the same name."""

    job_id: str
    state: JobState
    user: str
    band: PriorityBand
    incarnation: int
    num_tasks: int
    tasks: Mapping[TaskState, int]
    submitted_at_ms: int
    started_at_ms: int | None
    finished_at_ms: int | None
    exit_code: int | None
    error: str
    pending_reason: str
    failure_count: int
    preemption_count: int
    has_children: bool

    @property
    def ended(self) -> bool:
        return self.state in JOB_TERMINAL

    @property
    def succeeded(self) -> bool:
        return self.state is JobState.SUCCEEDED


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """A task as it stands. `attempt` -1 = it has never been on a worker."""

    task_id: str
    index: int
    state: TaskState
    attempt: int
    attempt_uid: str
    worker_id: str
    exit_code: int | None
    error: str
    pending_reason: str
    started_at_ms: int | None
    finished_at_ms: int | None
    failure_count: int
    preemption_count: int
    log_lines: int | None
    """How many lines the attempt wrote in all, once it has ended."""

    @property
    def ended(self) -> bool:
        return self.state in TERMINAL


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line. `gap` > 0: so many lines are lost here, and `text` says why. `partial`: the rest follows with the next."""

    seq: int
    task_id: str
    attempt: int
    attempt_uid: str
    number: int
    epoch_ms: int
    source: str
    text: str
    partial: bool
    gap: int


@dataclass(frozen=True, slots=True)
class Gone:
    """A job that is not watched any more: removed, or it no longer matches."""

    job_id: str


@dataclass(frozen=True, slots=True)
class EndpointInfo:
    """Something that serves under a name."""

    endpoint_id: str
    name: str
    address: str
    task_id: str
    metadata: Mapping[str, str]
    proxy_path: str


def job_info(job: pb.JobStatus) -> JobInfo:
    return JobInfo(
        job_id=job.job_id,
        state=JobState(job.state),
        user=job.user_id,
        band=PriorityBand(job.priority_band),
        incarnation=job.incarnation,
        num_tasks=job.num_tasks,
        tasks={TaskState(part.state): part.count for part in job.task_counts if part.count},
        submitted_at_ms=job.submitted_at_ms,
        started_at_ms=job.started_at_ms or None,
        finished_at_ms=job.finished_at_ms or None,
        exit_code=job.exit_code if job.HasField("exit_code") else None,
        error=job.error,
        pending_reason=job.pending_reason,
        failure_count=job.failure_count,
        preemption_count=job.preemption_count,
        has_children=job.has_children,
    )


def task_info(task: pb.TaskStatus) -> TaskInfo:
    return TaskInfo(
        task_id=task.task_id,
        index=task.task_index,
        state=TaskState(task.state),
        attempt=task.current_attempt_id,
        attempt_uid=task.attempt_uid,
        worker_id=task.worker_id,
        exit_code=task.exit_code if task.HasField("exit_code") else None,
        error=task.error,
        pending_reason=task.pending_reason,
        started_at_ms=task.started_at_ms or None,
        finished_at_ms=task.finished_at_ms or None,
        failure_count=task.failure_count,
        preemption_count=task.preemption_count,
        log_lines=task.log_lines if task.HasField("log_lines") else None,
    )


def log_line(line: logs_pb2.StoredLine) -> LogLine:
    return LogLine(
        seq=line.seq,
        task_id=line.key.rpartition(":")[0] or line.key,
        attempt=line.attempt_id,
        attempt_uid=line.attempt_uid,
        number=line.number,
        epoch_ms=line.epoch_ms,
        source=line.source,
        text=line.data,
        partial=line.partial,
        gap=line.gap,
    )


def endpoint_info(endpoint: endpoints_pb2.Endpoint) -> EndpointInfo:
    return EndpointInfo(
        endpoint_id=endpoint.endpoint_id,
        name=endpoint.name,
        address=endpoint.address,
        task_id=endpoint.task_id,
        metadata=dict(endpoint.metadata),
        proxy_path=endpoint.proxy_path,
    )
