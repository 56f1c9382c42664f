"""The model's records as the wire shows them. Live work comes from here; older work from SQL (`store/reads.py`)."""

from __future__ import annotations

from collections.abc import Iterable

from iris_controller.scheduling.order import explain_next, explain_pending, explain_task
from iris_controller.state.model import Model
from iris_controller.state.records import Attempt, Job, Task, Worker
from iris_controller.state.slices import GOING, Lifecycle
from iris_controller.state.staging import why_excluded
from iris_core.model.resources import Resources
from iris_core.model.states import TaskState
from iris_core.wire.convert import (
    HEALTH,
    band_to_wire,
    job_state_to_wire,
    resources_to_wire,
    task_state_to_wire,
    value_to_wire,
)
from iris_core.wire.gen.iris.v1 import controller_pb2


def job_view(model: Model, job: Job) -> controller_pb2.JobStatus:
    status = controller_pb2.JobStatus(
        job_id=job.job_id,
        name=job.name,
        state=job_state_to_wire(job.state),
        user_id=job.user_id,
        submitting_user=job.submitting_user,
        parent_job_id=job.parent_job_id or "",
        root_job_id=job.root_job_id,
        depth=job.depth,
        submitted_at_ms=job.submitted_at_ms,
        started_at_ms=job.started_at_ms or 0,
        finished_at_ms=job.finished_at_ms or 0,
        error=job.error or "",
        exit_code=job.exit_code,
        num_tasks=job.num_tasks,
        failure_count=job.failure_count,
        preemption_count=job.preemption_count,
        pending_reason=explain_pending(model, job.job_id),
        has_children=bool(model.children.get(job.job_id)),
        priority_band=band_to_wire(job.spec.band),
        resources=resources_to_wire(job.spec.resources),
        incarnation=job.submitted_at_ms,
    )
    for state, count in enumerate(job.counts):
        if count:
            status.task_counts.add(state=task_state_to_wire(TaskState(state)), count=count)
    return status


def task_view(model: Model, job: Job | None, task: Task, attempt: Attempt | None) -> controller_pb2.TaskStatus:
    worker = model.workers.get(task.worker_id) if task.worker_id else None
    return controller_pb2.TaskStatus(
        task_id=task.task_id,
        job_id=task.job_id,
        task_index=task.index,
        state=task_state_to_wire(task.state),
        current_attempt_id=task.attempt_number,
        attempt_uid=task.attempt_uid,
        worker_id=task.worker_id,
        worker_address=worker.address if worker is not None else "",
        exit_code=task.exit_code,
        error=task.error or "",
        pending_reason=explain_task(model, task),
        submitted_at_ms=task.submitted_at_ms,
        started_at_ms=task.started_at_ms or 0,
        finished_at_ms=task.finished_at_ms or 0,
        failure_count=task.failure_count,
        preemption_count=task.preemption_count,
        memory_peak_bytes=attempt.memory_peak_bytes if attempt is not None else 0,
        log_lines=attempt.log_lines if attempt is not None else None,
        incarnation=job.submitted_at_ms if job is not None else 0,
        priority_band=band_to_wire(job.spec.band) if job is not None else None,
        placed_band=band_to_wire(task.band) if task.attempt_number >= 0 else None,
    )


def committed(model: Model, worker: Worker) -> Resources:
    usage = model.usage_of(worker.worker_id)
    device = worker.total.device
    if device is not None:
        held = usage.gpu if device.kind == "gpu" else usage.tpu
        device = type(device)(device.kind, device.variant, held)
    return Resources(usage.cpu_millicores, usage.memory_bytes, 0, device)


def leaving(model: Model, worker: Worker) -> str:
    """Why a worker is about to go on purpose; "" when it stays."""
    row = model.slices.get(worker.slice_id) if worker.slice_id else None
    if row is None or row.lifecycle not in GOING:
        return ""
    return f"stopping: its slice {'failed and ' if row.lifecycle is Lifecycle.FAILED else ''}is being deleted"


def health_reason(model: Model, worker: Worker) -> str:
    """Why a worker is not healthy, or takes no work; "" when neither."""
    gone = leaving(model, worker)
    if gone:
        return gone
    if not worker.excluded:
        return worker.health_reason
    parts = [worker.health_reason] if worker.health_reason else []
    return "; ".join([*parts, why_excluded(worker), remedy(model, worker)])


def remedy(model: Model, worker: Worker) -> str:
    """What brings a worker back that gets no work because it failed to stage: nobody else may be left to do it."""
    row = model.slices.get(worker.slice_id) if worker.slice_id else None
    if row is None:
        return "mend the machine, then restart its worker"
    if row.manual:
        return "mend the machine, then restart its worker, or delete its slice"
    return "its slice is replaced once nothing runs on it and its group pauses no more"


def worker_view(model: Model, worker: Worker, age_ms: int) -> controller_pb2.WorkerStatus:
    status = controller_pb2.WorkerStatus(
        worker_id=worker.worker_id,
        address=worker.address,
        health=HEALTH[worker.health],
        health_reason=health_reason(model, worker),
        hostname=worker.hostname,
        total=resources_to_wire(worker.total),
        committed=resources_to_wire(committed(model, worker)),
        running_tasks=model.usage_of(worker.worker_id).tasks,
        last_message_age_ms=age_ms,
        boot_id=worker.boot_id,
        pid=worker.pid,
        version=worker.version,
        release=worker.release,
        attached=worker.attached,
        build_failures=worker.build_failures,
        stopping=worker.stopping,
        excluded=worker.excluded and not leaving(model, worker),
    )
    for key, value in worker.attributes.items():
        status.attributes[key].CopyFrom(value_to_wire(value))
    return status


def overlay_reasons(model: Model, statuses: Iterable[controller_pb2.TaskStatus]) -> None:
    """Adds the live pending reason to task rows read from SQL."""
    pending = TaskState.PENDING.value
    known: dict[tuple[str, int], str] = {}
    for status in statuses:
        if status.state == pending:
            # What waits in one job waits for the same.
            asked = status.job_id, status.current_attempt_id
            reason = known.get(asked)
            if reason is None:
                reason = known[asked] = explain_next(model, *asked)
            status.pending_reason = reason
