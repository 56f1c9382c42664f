"""One batch as SQL: an overlay becomes a handful of set-based statements over `json_each(?)`.

Stored times are epoch ms, JSON columns hold names and never numbers, and what OPS.md's queries name is written here once per
touched row (DESIGN §5.10). Must never decide anything: the overlay already has.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from ipaddress import ip_address

from google.protobuf import json_format

from iris_controller.state.availability import without_markers
from iris_controller.state.endpoints import Endpoint, EndpointAccess
from iris_controller.state.overlay import Overlay
from iris_controller.state.records import Job, Worker
from iris_controller.store.changed import changed_rows
from iris_controller.store.machines import machine_statements
from iris_controller.store.rows import Row, bound, insert, update, upsert
from iris_controller.store.writer import Statement
from iris_core.model.bands import PriorityBand
from iris_core.model.constraints import TPU_NAME, TPU_WORKER_ID
from iris_core.model.resources import Device
from iris_core.model.states import TaskState
from iris_core.wire.convert import resources_to_wire, value_to_wire
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2, worker_pb2

JOB_STATE = (
    "state",
    "started_at_ms",
    "finished_at_ms",
    "error",
    "exit_code",
    "task_counts_json",
    "failure_count",
    "preemption_count",
    "scheduling_expired",
)
"""The columns of a job that change."""
INSERT_JOBS = partial(
    insert,
    "jobs",
    (
        "job_id",
        "user_id",
        "submitting_user",
        "parent_job_id",
        "root_job_id",
        "depth",
        "submitted_at_ms",
        "root_submitted_at_ms",
        "num_tasks",
        "name",
        "request_proto",
        "priority_insertion",
        "scheduling_deadline_epoch_ms",
        *JOB_STATE,
    ),
)
UPDATE_JOBS = update("jobs", ("job_id",), JOB_STATE)
INSERT_CONFIGS = partial(
    insert,
    "job_config",
    (
        "job_id",
        "name",
        "res_cpu_millicores",
        "res_memory_bytes",
        "res_disk_bytes",
        "res_device_json",
        "constraints_json",
        "max_task_failures",
        "max_retries_failure",
        "max_retries_preemption",
        "timeout_ms",
        "scheduling_timeout_ms",
        "entrypoint_json",
        "environment_json",
        "bundle_id",
        "ports_json",
        "preemption_policy",
        "existing_job_policy",
        "priority_band",
        "submit_argv_json",
        "has_coscheduling",
        "coscheduling_group_by",
        "task_image",
        "container_profile",
        "fail_if_exists",
    ),
)
INSERT_FILE = "INSERT INTO job_workdir_files (job_id, filename, data) VALUES (?,?,?)"
INSERT_TASKS = (
    "WITH RECURSIVE task(i, job_id, tasks, submitted, failures, preemptions, depth, root_submitted, insertion, band) AS ("
    "SELECT 0, value->>0, value->>1, value->>2, value->>3, value->>4, value->>5, value->>6, value->>7, value->>8"
    " FROM json_each(?) UNION ALL"
    " SELECT i+1, job_id, tasks, submitted, failures, preemptions, depth, root_submitted, insertion, band FROM task"
    " WHERE i+1 < tasks)"
    " INSERT INTO tasks (task_id, job_id, task_index, state, submitted_at_ms, max_retries_failure, max_retries_preemption,"
    " priority_neg_depth, priority_root_submitted_ms, priority_insertion, priority_band)"
    " SELECT job_id || '/' || i, job_id, i, 1, submitted, failures, preemptions, -depth, root_submitted, insertion + i, band"
    " FROM task"
)
UPSERT_WORKERS = upsert(
    "workers",
    ("worker_id",),
    (
        "address",
        "md_hostname",
        "md_cpu_count",
        "md_memory_bytes",
        "md_disk_bytes",
        "total_cpu_millicores",
        "total_memory_bytes",
        "total_gpu_count",
        "total_tpu_count",
        "device_type",
        "device_variant",
        "slice_id",
        "scale_group",
        "boot_id",
        "pid",
        "version",
        "release",
        "build_failures",
        "excluded",
        "md_ip_address",
        "md_tpu_name",
        "md_tpu_worker_id",
        "md_gpu_count",
        "md_gpu_name",
        "md_device_json",
    ),
)
UPSERT_BUDGETS = upsert("user_budgets", ("user_id",), ("budget_limit", "max_band", "updated_at_ms"))
UPSERT_ENDPOINTS = upsert(
    "endpoints",
    ("endpoint_id",),
    (
        "name",
        "address",
        "task_id",
        "attempt_uid",
        "metadata_json",
        "registered_at_ms",
        "lease_deadline_ms",
        "lease_ms",
        "access",
    ),
)
DELETE_ENDPOINTS = "DELETE FROM endpoints WHERE endpoint_id IN (SELECT value FROM json_each(?))"
UPSERT_META = "INSERT INTO meta (key, value) VALUES (?,?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
DELETE_JOBS = "DELETE FROM jobs WHERE job_id IN (SELECT value FROM json_each(?))"
PRUNE_TASKS = "DELETE FROM tasks WHERE job_id = ? AND task_index < ?"
DELETE_WORKERS = "DELETE FROM workers WHERE worker_id IN (SELECT value FROM json_each(?))"
SET_METADATA = "UPDATE workers SET metadata_proto=? WHERE worker_id=?"
DELETE_ATTRIBUTES = "DELETE FROM worker_attributes WHERE worker_id IN (SELECT value FROM json_each(?))"
INSERT_ATTRIBUTES = (
    "INSERT INTO worker_attributes (worker_id, key, value_type, str_value, int_value, float_value)"
    " SELECT value->>0, value->>1, value->>2, value->>3, value->>4, value->>5 FROM json_each(?)"
)
INSERT_ANSWERS = partial(
    insert, "request_ids", ("principal", "request_id", "method", "response", "request_sha256", "created_at_ms")
)
FORGET_ANSWERS = "DELETE FROM request_ids WHERE created_at_ms < ?"

_TASK_STATES = {int(state): state.name for state in TaskState}


def statements(overlay: Overlay, now_ms: int, forget_before_ms: int | None = None) -> list[Statement]:
    """The batch as one transaction's statements, in an order that respects the foreign keys."""
    found: list[Statement] = []
    found.extend((PRUNE_TASKS, part) for part in overlay.pruned_tasks)
    if overlay.deleted_jobs:
        found.append((DELETE_JOBS, (json.dumps(list(overlay.deleted_jobs)),)))
    if overlay.new_jobs:
        found.extend(_new_jobs(overlay))
    if overlay.workers:
        found.extend(_workers(overlay))
    found.extend(changed_rows(overlay))
    known = [(job.job_id, *_job_state(job)) for job_id, job in overlay.jobs.items() if job_id not in overlay.new_jobs]
    if known:
        found.append((UPDATE_JOBS, (json.dumps(known),)))
    found.extend(machine_statements(overlay))
    if overlay.budgets:
        rows = [[b.user_id, b.limit, int(b.max_band), b.updated_at_ms] for b in overlay.budgets.values()]
        found.append((UPSERT_BUDGETS, (json.dumps(rows),)))
    if overlay.endpoints:
        gone = [endpoint_id for endpoint_id, endpoint in overlay.endpoints.items() if endpoint is None]
        kept = [_endpoint_row(endpoint) for endpoint in overlay.endpoints.values() if endpoint is not None]
        found.append((DELETE_ENDPOINTS, (json.dumps(gone),)))
        found.append((UPSERT_ENDPOINTS, (json.dumps(kept),)))
    found.extend((UPSERT_META, (key, value)) for key, value in overlay.meta.items())
    answers = [(a.principal, a.request_id, a.method, a.response, a.digest, now_ms) for a in overlay.answers]
    found.extend(bound(INSERT_ANSWERS, answers))
    if forget_before_ms is not None:
        found.append((FORGET_ANSWERS, (forget_before_ms,)))
    return found


def device_json(device: Device | None) -> str | None:
    if device is None:
        return None
    return json.dumps({"kind": device.kind, "variant": device.variant, "count": device.count})


def _new_jobs(overlay: Overlay) -> Iterable[Statement]:
    """Parents first."""
    jobs = sorted((overlay.jobs[job_id] for job_id in overlay.new_jobs), key=lambda j: (j.depth, j.submitted_at_ms))
    yield from bound(INSERT_JOBS, [_job_row(job) for job in jobs])
    files = {job.job_id: overlay.files.get(job.job_id, {}) for job in jobs}
    yield from bound(INSERT_CONFIGS, [_config_row(job, sorted(files[job.job_id])) for job in jobs])
    for job_id, contents in files.items():
        for name, data in sorted(contents.items()):
            yield INSERT_FILE, (job_id, name, data)
    tasks = [_tasks_row(job) for job in jobs if job.num_tasks]
    if tasks:
        yield INSERT_TASKS, (json.dumps(tasks),)


def _job_row(job: Job) -> Row:
    return (
        job.job_id,
        job.user_id,
        job.submitting_user,
        job.parent_job_id,
        job.root_job_id,
        job.depth,
        job.submitted_at_ms,
        job.root_submitted_ms,
        job.num_tasks,
        job.name,
        job.spec.request,
        job.priority_insertion,
        job.scheduling_deadline_ms,
        *_job_state(job),
    )


def _job_state(job: Job) -> Row:
    counts = {_TASK_STATES[i]: n for i, n in enumerate(job.counts) if n}
    return (
        int(job.state),
        job.started_at_ms,
        job.finished_at_ms,
        job.error,
        job.exit_code,
        json.dumps(counts),
        job.failure_count,
        job.preemption_count,
        int(job.scheduling_expired),
    )


def _config_row(job: Job, files: list[str]) -> Row:
    spec = job.spec
    request = controller_pb2.LaunchJobRequest.FromString(spec.request)
    entrypoint = {"run_command": {"argv": list(request.entrypoint.run_command.argv)}, "workdir_files": files}
    environment = "{}"
    if request.HasField("environment"):
        found = json_format.MessageToDict(request.environment, preserving_proto_field_name=True)
        environment = json.dumps(found, sort_keys=True)
    constraints = [
        {"key": c.key, "op": c.op.name, "values": list(c.values), "mode": c.mode.name} for c in spec.constraints
    ]
    resources = spec.resources
    return (
        job.job_id,
        job.name,
        resources.cpu_millicores,
        resources.memory_bytes,
        resources.disk_bytes,
        device_json(resources.device),
        json.dumps(constraints) if constraints else None,
        spec.max_task_failures,
        spec.max_retries_failure,
        spec.max_retries_preemption,
        spec.timeout_ms or None,
        spec.scheduling_timeout_ms or None,
        json.dumps(entrypoint),
        environment,
        spec.bundle_id,
        json.dumps(list(request.ports)) if request.ports else "[]",
        int(spec.children_policy),
        int(request.existing_job_policy),
        int(spec.band),
        json.dumps(list(request.submit_argv)) if request.submit_argv else "[]",
        int(bool(spec.group_by)),
        spec.group_by,
        request.task_image,
        int(request.container_profile),
        int(request.existing_job_policy == common_pb2.EXISTING_JOB_POLICY_ERROR),
    )


def _tasks_row(job: Job) -> Row:
    spec = job.spec
    return (
        job.job_id,
        job.num_tasks,
        job.submitted_at_ms,
        spec.max_retries_failure,
        spec.max_retries_preemption,
        job.depth,
        job.root_submitted_ms,
        job.priority_insertion,
        int(spec.band or PriorityBand.INTERACTIVE),
    )


def _endpoint_row(endpoint: Endpoint) -> list[object]:
    return [
        endpoint.endpoint_id,
        endpoint.name,
        endpoint.address,
        endpoint.task_id,
        endpoint.attempt_uid,
        json.dumps(endpoint.metadata, sort_keys=True),
        endpoint.registered_at_ms,
        endpoint.lease_deadline_ms,
        endpoint.lease_ms,
        None if endpoint.access is EndpointAccess.PRIVATE else int(endpoint.access),
    ]


def _workers(overlay: Overlay) -> Iterable[Statement]:
    gone = [worker_id for worker_id, worker in overlay.workers.items() if worker is None]
    kept = [worker for worker in overlay.workers.values() if worker is not None]
    if gone:
        yield DELETE_WORKERS, (json.dumps(gone),)
    if not kept:
        return
    yield UPSERT_WORKERS, (json.dumps([_worker_row(w) for w in kept]),)
    for worker in kept:
        yield SET_METADATA, (_metadata(worker), worker.worker_id)
    changed = [
        w for w in kept if (old := overlay.model.workers.get(w.worker_id)) is None or old.attributes != w.attributes
    ]
    if changed:
        yield DELETE_ATTRIBUTES, (json.dumps([w.worker_id for w in changed]),)
        yield INSERT_ATTRIBUTES, (json.dumps([row for w in changed for row in _attribute_rows(w)]),)


def _metadata(worker: Worker) -> bytes:
    hello = worker_pb2.WorkerHello(
        worker_id=worker.worker_id,
        boot_id=worker.boot_id,
        pid=worker.pid,
        hostname=worker.hostname,
        address=worker.address,
        total=resources_to_wire(worker.total),
        cpu_count=worker.cpu_count,
        attributes={key: value_to_wire(value) for key, value in without_markers(worker.attributes).items()},
        version=worker.version,
        release=worker.release,
        slice_id=worker.slice_id,
        scale_group=worker.scale_group,
    )
    return hello.SerializeToString(deterministic=True)


def _worker_row(worker: Worker) -> list[object]:
    total = worker.total
    device = total.device
    return [
        worker.worker_id,
        worker.address,
        worker.hostname,
        worker.cpu_count,
        total.memory_bytes,
        total.disk_bytes,
        total.cpu_millicores,
        total.memory_bytes,
        device.count if device is not None and device.kind == "gpu" else 0,
        device.count if device is not None and device.kind == "tpu" else 0,
        device.kind if device is not None else "cpu",
        device.variant if device is not None else "",
        worker.slice_id,
        worker.scale_group,
        worker.boot_id,
        worker.pid,
        worker.version,
        worker.release,
        worker.build_failures,
        int(worker.excluded),
        _ip_address(worker.address),
        str(worker.attributes.get(TPU_NAME, "")),
        str(worker.attributes.get(TPU_WORKER_ID, "")),
        device.count if device is not None and device.kind == "gpu" else 0,
        device.variant if device is not None and device.kind == "gpu" else "",
        device_json(device),
    ]


def _ip_address(address: str) -> str:
    """The address in `10.0.0.7:10001` or `[::1]:10001`; "" when it is a name, or nothing."""
    host = address.rpartition(":")[0].removeprefix("[").removesuffix("]")
    try:
        return str(ip_address(host))
    except ValueError:
        return ""


def _attribute_rows(worker: Worker) -> Iterable[list[object]]:
    for key, value in without_markers(worker.attributes).items():
        if isinstance(value, int):
            yield [worker.worker_id, key, "int", None, value, None]
        elif isinstance(value, float):
            yield [worker.worker_id, key, "float", None, None, value]
        else:
            yield [worker.worker_id, key, "str", value, None, None]
