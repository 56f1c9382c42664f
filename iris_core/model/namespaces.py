"""The tables that Iris itself writes, with every column (cli-auth-logs §3.9).

Their producers and the store start from this one list; operators' SQL names these columns, so they are only ever added to, and
what is added is nullable. Each carries `attempt_uid` (DESIGN §6), empty where a row is about no attempt; rows about an attempt
also say the job's `incarnation`, so that a job and its replacement of the same name are told apart. Must never change a type.
"""

from __future__ import annotations

from typing import Final

from iris_core.model.tables import Column, ColumnType, StoragePolicy, Table

_GIB: Final = 1 << 30
_DAY: Final = 24 * 3600
_STRING, _INT64, _INT32 = ColumnType.STRING, ColumnType.INT64, ColumnType.INT32
_FLOAT, _BOOL, _TIME, _BYTES = ColumnType.FLOAT64, ColumnType.BOOL, ColumnType.TIMESTAMP_MS, ColumnType.BYTES


def _required(**columns: ColumnType) -> tuple[Column, ...]:
    return tuple(Column(name, type_) for name, type_ in columns.items())


def _nullable(**columns: ColumnType) -> tuple[Column, ...]:
    return tuple(Column(name, type_, nullable=True) for name, type_ in columns.items())


_UID: Final = _nullable(attempt_uid=_STRING)
_ATTEMPT: Final = _nullable(attempt_uid=_STRING, incarnation=_INT64)

WORKER: Final = Table(
    "iris.worker",
    _required(worker_id=_STRING, ts=_TIME, status=_STRING)
    + _nullable(
        address=_STRING,
        cpu_pct=_FLOAT,
        mem_bytes=_INT64,
        mem_total_bytes=_INT64,
        disk_used_bytes=_INT64,
        disk_total_bytes=_INT64,
        running_task_count=_INT32,
        total_process_count=_INT32,
        net_recv_bytes=_INT64,
        net_sent_bytes=_INT64,
        device_type=_STRING,
        device_variant=_STRING,
        cpu_count=_INT32,
        memory_bytes=_INT64,
        tpu_name=_STRING,
        gce_instance_name=_STRING,
        zone=_STRING,
        gpu_count=_INT32,
        hbm_used_bytes=_INT64,
        hbm_total_bytes=_INT64,
        gpu_util_pct=_FLOAT,
        gpu_temp_c=_FLOAT,
        gpu_power_w=_FLOAT,
    )
    + _UID,
    "worker_id",
    StoragePolicy(1000, 2 * _GIB, 30 * _DAY),
)
"""A reading of a machine; `status` is IDLE or RUNNING, and what could not be read is NULL."""

TASK: Final = Table(
    "iris.task",
    _required(task_id=_STRING, attempt_id=_INT32, worker_id=_STRING, ts=_TIME)
    + _nullable(
        cpu_millicores=_INT64,
        memory_mb=_INT64,
        disk_mb=_INT64,
        memory_peak_mb=_INT64,
        accelerator_util_pct=_FLOAT,
        accelerator_mem_bytes=_INT64,
    )
    + _ATTEMPT,
    "task_id",
    StoragePolicy(1000, 4 * _GIB, 30 * _DAY),
)
"""A reading of a running attempt."""

TASK_STATUS: Final = Table(
    "iris.task_status",
    _required(task_id=_STRING, attempt_id=_INT32, ts=_TIME)
    + _nullable(status_text_detail_md=_STRING, status_text_summary_md=_STRING)
    + _ATTEMPT,
    "task_id",
    StoragePolicy(max_bytes=100 << 20, max_age_seconds=3600),
)
"""What a task says about itself."""

TASK_EVENT: Final = Table(
    "iris.task_event",
    _required(
        task_id=_STRING, attempt_id=_INT32, ts=_TIME, type=_STRING, reason=_STRING, message=_STRING, source=_STRING,
        count=_INT64,
    )
    + _nullable(
        attempt_uid=_STRING,
        cluster=_STRING,
        pod_name=_STRING,
        pod_uid=_STRING,
        pod_deletion_timestamp=_TIME,
        node_name=_STRING,
        node_uid=_STRING,
        node_provider_id=_STRING,
        node_boot_id=_STRING,
        node_system_uuid=_STRING,
        node_unschedulable=_BOOL,
        pod_tolerations_json=_STRING,
        pod_conditions_json=_STRING,
        node_taints_json=_STRING,
        node_conditions_json=_STRING,
        node_labels_json=_STRING,
        node_annotations_json=_STRING,
        incarnation=_INT64,
    ),
    "task_id",
    StoragePolicy(1000, 4 * _GIB, 30 * _DAY),
)  # fmt: skip
"""What happened to an attempt: `type` is Normal or Warning, `source` is k8s/kueue, k8s/container, k8s/disruption or
iris/controller."""

TASK_STATE: Final = Table(
    "iris.task_state",
    _required(root_job_id=_STRING, ts=_TIME, pending=_INT64, assigned=_INT64, building=_INT64, running=_INT64)
    + _nullable(oldest_pending_age_ms=_INT64, oldest_building_age_ms=_INT64)
    + _ATTEMPT,
    "root_job_id",
    StoragePolicy(1000, 2 * _GIB, 30 * _DAY),
)
"""How many tasks of a root job are in which state, and how long the oldest have waited; `root_job_id` "" is the whole
cluster, always written."""

ADMISSION_PROBE: Final = Table(
    "iris.admission_probe",
    _required(outcome=_STRING, ts=_TIME, namespace=_STRING)
    + _nullable(error_class=_STRING, latency_ms=_INT64, message=_STRING)
    + _UID,
    "outcome",
    StoragePolicy(1000, _GIB, 30 * _DAY),
)
"""Whether a pod would be admitted; `outcome` is ok or failed."""

PROFILE: Final = Table(
    "iris.profile",
    _required(source=_STRING)
    + _nullable(attempt_id=_INT32)
    + _required(
        vm_id=_STRING, captured_at=_TIME, duration_seconds=_INT64, type=_STRING, format=_STRING, trigger=_STRING,
        size_bytes=_INT64,
    )
    + _nullable(rate_hz=_INT32, native=_BOOL, leaks=_BOOL, locals_dump=_BOOL, profile_data=_BYTES, profile_id=_STRING)
    + _ATTEMPT,
    "source",
    StoragePolicy(1000, 8 * _GIB, 7 * _DAY),
)  # fmt: skip
"""A capture: `type` is cpu, memory or thread, `trigger` periodic or on_demand. The bytes lie beside the table, under
`profile_id`; `profile_data` has them only where a capture was written without one."""

PROVISIONING: Final = Table(
    "iris.provisioning",
    _required(ts=_TIME, resource_type=_STRING, scale_group=_STRING)
    + _nullable(zone=_STRING, accelerator_variant=_STRING)
    + _required(outcome=_STRING)
    + _nullable(error_message=_STRING, worker_count=_INT32, provision_latency_ms=_INT64)
    + _UID,
    "scale_group",
    StoragePolicy(1000, _GIB, 90 * _DAY),
)
"""How a request for machines ended: `outcome` is ready, stockout, error or preempted."""

TELLTALE: Final = Table(
    "telltale",
    _required(name=_STRING, value=_FLOAT, ts=_TIME, source=_STRING)
    + _nullable(labels=_STRING, job_id=_STRING, cluster=_STRING)
    + _ATTEMPT,
    "name",
    StoragePolicy(1000, 2 * _GIB, 14 * _DAY),
)
"""Metrics; `labels` is a JSON object as text."""

NAMESPACES: Final = (
    WORKER, TASK, TASK_STATUS, TASK_EVENT, TASK_STATE, ADMISSION_PROBE, PROFILE, PROVISIONING, TELLTALE,
)  # fmt: skip
"""All of them. The store registers them when it opens, so that a query on one finds it even before its first row."""
