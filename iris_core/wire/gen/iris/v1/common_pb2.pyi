from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TaskState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_STATE_UNSPECIFIED: _ClassVar[TaskState]
    TASK_STATE_PENDING: _ClassVar[TaskState]
    TASK_STATE_BUILDING: _ClassVar[TaskState]
    TASK_STATE_RUNNING: _ClassVar[TaskState]
    TASK_STATE_SUCCEEDED: _ClassVar[TaskState]
    TASK_STATE_FAILED: _ClassVar[TaskState]
    TASK_STATE_KILLED: _ClassVar[TaskState]
    TASK_STATE_WORKER_FAILED: _ClassVar[TaskState]
    TASK_STATE_UNSCHEDULABLE: _ClassVar[TaskState]
    TASK_STATE_ASSIGNED: _ClassVar[TaskState]
    TASK_STATE_PREEMPTED: _ClassVar[TaskState]
    TASK_STATE_COSCHED_FAILED: _ClassVar[TaskState]
    TASK_STATE_MISSING: _ClassVar[TaskState]

class JobState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATE_UNSPECIFIED: _ClassVar[JobState]
    JOB_STATE_PENDING: _ClassVar[JobState]
    JOB_STATE_BUILDING: _ClassVar[JobState]
    JOB_STATE_RUNNING: _ClassVar[JobState]
    JOB_STATE_SUCCEEDED: _ClassVar[JobState]
    JOB_STATE_FAILED: _ClassVar[JobState]
    JOB_STATE_KILLED: _ClassVar[JobState]
    JOB_STATE_WORKER_FAILED: _ClassVar[JobState]
    JOB_STATE_UNSCHEDULABLE: _ClassVar[JobState]

class PriorityBand(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRIORITY_BAND_INHERIT: _ClassVar[PriorityBand]
    PRIORITY_BAND_SYSTEM: _ClassVar[PriorityBand]
    PRIORITY_BAND_PRODUCTION: _ClassVar[PriorityBand]
    PRIORITY_BAND_INTERACTIVE: _ClassVar[PriorityBand]
    PRIORITY_BAND_BATCH: _ClassVar[PriorityBand]

class ConstraintOp(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONSTRAINT_OP_UNSPECIFIED: _ClassVar[ConstraintOp]
    CONSTRAINT_OP_EQ: _ClassVar[ConstraintOp]
    CONSTRAINT_OP_NE: _ClassVar[ConstraintOp]
    CONSTRAINT_OP_EXISTS: _ClassVar[ConstraintOp]
    CONSTRAINT_OP_NOT_EXISTS: _ClassVar[ConstraintOp]
    CONSTRAINT_OP_GT: _ClassVar[ConstraintOp]
    CONSTRAINT_OP_GE: _ClassVar[ConstraintOp]
    CONSTRAINT_OP_LT: _ClassVar[ConstraintOp]
    CONSTRAINT_OP_LE: _ClassVar[ConstraintOp]
    CONSTRAINT_OP_IN: _ClassVar[ConstraintOp]

class ConstraintMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONSTRAINT_MODE_UNSPECIFIED: _ClassVar[ConstraintMode]
    CONSTRAINT_MODE_REQUIRED: _ClassVar[ConstraintMode]
    CONSTRAINT_MODE_PREFERRED: _ClassVar[ConstraintMode]

class MatchScope(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MATCH_SCOPE_UNSPECIFIED: _ClassVar[MatchScope]
    MATCH_SCOPE_EXACT: _ClassVar[MatchScope]
    MATCH_SCOPE_PREFIX: _ClassVar[MatchScope]
    MATCH_SCOPE_REGEX: _ClassVar[MatchScope]

class LogLevel(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOG_LEVEL_UNKNOWN: _ClassVar[LogLevel]
    LOG_LEVEL_DEBUG: _ClassVar[LogLevel]
    LOG_LEVEL_INFO: _ClassVar[LogLevel]
    LOG_LEVEL_WARNING: _ClassVar[LogLevel]
    LOG_LEVEL_ERROR: _ClassVar[LogLevel]
    LOG_LEVEL_CRITICAL: _ClassVar[LogLevel]

class StopReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STOP_REASON_UNSPECIFIED: _ClassVar[StopReason]
    STOP_REASON_CANCELLED: _ClassVar[StopReason]
    STOP_REASON_PREEMPTED: _ClassVar[StopReason]
    STOP_REASON_SUPERSEDED: _ClassVar[StopReason]
    STOP_REASON_JOB_TERMINATED: _ClassVar[StopReason]
    STOP_REASON_TASK_TIMEOUT: _ClassVar[StopReason]
    STOP_REASON_WORKER_DRAIN: _ClassVar[StopReason]

class JobPreemptionPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_PREEMPTION_POLICY_UNSPECIFIED: _ClassVar[JobPreemptionPolicy]
    JOB_PREEMPTION_POLICY_TERMINATE_CHILDREN: _ClassVar[JobPreemptionPolicy]
    JOB_PREEMPTION_POLICY_PRESERVE_CHILDREN: _ClassVar[JobPreemptionPolicy]

class ExistingJobPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXISTING_JOB_POLICY_UNSPECIFIED: _ClassVar[ExistingJobPolicy]
    EXISTING_JOB_POLICY_ERROR: _ClassVar[ExistingJobPolicy]
    EXISTING_JOB_POLICY_KEEP: _ClassVar[ExistingJobPolicy]
    EXISTING_JOB_POLICY_RECREATE: _ClassVar[ExistingJobPolicy]

class ContainerProfile(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONTAINER_PROFILE_UNSPECIFIED: _ClassVar[ContainerProfile]
    CONTAINER_PROFILE_DEFAULT: _ClassVar[ContainerProfile]
    CONTAINER_PROFILE_RESTRICTED: _ClassVar[ContainerProfile]
    CONTAINER_PROFILE_DOCKER_ACCESS: _ClassVar[ContainerProfile]
    CONTAINER_PROFILE_PRIVILEGED: _ClassVar[ContainerProfile]
    CONTAINER_PROFILE_GVISOR: _ClassVar[ContainerProfile]

class WorkerHealth(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORKER_HEALTH_UNSPECIFIED: _ClassVar[WorkerHealth]
    WORKER_HEALTH_HEALTHY: _ClassVar[WorkerHealth]
    WORKER_HEALTH_DEGRADED: _ClassVar[WorkerHealth]
    WORKER_HEALTH_DEAD: _ClassVar[WorkerHealth]

class TaskOutputsStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_OUTPUTS_STATUS_UNSPECIFIED: _ClassVar[TaskOutputsStatus]
    TASK_OUTPUTS_STATUS_UPLOADED: _ClassVar[TaskOutputsStatus]
    TASK_OUTPUTS_STATUS_EMPTY: _ClassVar[TaskOutputsStatus]
    TASK_OUTPUTS_STATUS_FAILED: _ClassVar[TaskOutputsStatus]
    TASK_OUTPUTS_STATUS_UNAVAILABLE: _ClassVar[TaskOutputsStatus]
TASK_STATE_UNSPECIFIED: TaskState
TASK_STATE_PENDING: TaskState
TASK_STATE_BUILDING: TaskState
TASK_STATE_RUNNING: TaskState
TASK_STATE_SUCCEEDED: TaskState
TASK_STATE_FAILED: TaskState
TASK_STATE_KILLED: TaskState
TASK_STATE_WORKER_FAILED: TaskState
TASK_STATE_UNSCHEDULABLE: TaskState
TASK_STATE_ASSIGNED: TaskState
TASK_STATE_PREEMPTED: TaskState
TASK_STATE_COSCHED_FAILED: TaskState
TASK_STATE_MISSING: TaskState
JOB_STATE_UNSPECIFIED: JobState
JOB_STATE_PENDING: JobState
JOB_STATE_BUILDING: JobState
JOB_STATE_RUNNING: JobState
JOB_STATE_SUCCEEDED: JobState
JOB_STATE_FAILED: JobState
JOB_STATE_KILLED: JobState
JOB_STATE_WORKER_FAILED: JobState
JOB_STATE_UNSCHEDULABLE: JobState
PRIORITY_BAND_INHERIT: PriorityBand
PRIORITY_BAND_SYSTEM: PriorityBand
PRIORITY_BAND_PRODUCTION: PriorityBand
PRIORITY_BAND_INTERACTIVE: PriorityBand
PRIORITY_BAND_BATCH: PriorityBand
CONSTRAINT_OP_UNSPECIFIED: ConstraintOp
CONSTRAINT_OP_EQ: ConstraintOp
CONSTRAINT_OP_NE: ConstraintOp
CONSTRAINT_OP_EXISTS: ConstraintOp
CONSTRAINT_OP_NOT_EXISTS: ConstraintOp
CONSTRAINT_OP_GT: ConstraintOp
CONSTRAINT_OP_GE: ConstraintOp
CONSTRAINT_OP_LT: ConstraintOp
CONSTRAINT_OP_LE: ConstraintOp
CONSTRAINT_OP_IN: ConstraintOp
CONSTRAINT_MODE_UNSPECIFIED: ConstraintMode
CONSTRAINT_MODE_REQUIRED: ConstraintMode
CONSTRAINT_MODE_PREFERRED: ConstraintMode
MATCH_SCOPE_UNSPECIFIED: MatchScope
MATCH_SCOPE_EXACT: MatchScope
MATCH_SCOPE_PREFIX: MatchScope
MATCH_SCOPE_REGEX: MatchScope
LOG_LEVEL_UNKNOWN: LogLevel
LOG_LEVEL_DEBUG: LogLevel
LOG_LEVEL_INFO: LogLevel
LOG_LEVEL_WARNING: LogLevel
LOG_LEVEL_ERROR: LogLevel
LOG_LEVEL_CRITICAL: LogLevel
STOP_REASON_UNSPECIFIED: StopReason
STOP_REASON_CANCELLED: StopReason
STOP_REASON_PREEMPTED: StopReason
STOP_REASON_SUPERSEDED: StopReason
STOP_REASON_JOB_TERMINATED: StopReason
STOP_REASON_TASK_TIMEOUT: StopReason
STOP_REASON_WORKER_DRAIN: StopReason
JOB_PREEMPTION_POLICY_UNSPECIFIED: JobPreemptionPolicy
JOB_PREEMPTION_POLICY_TERMINATE_CHILDREN: JobPreemptionPolicy
JOB_PREEMPTION_POLICY_PRESERVE_CHILDREN: JobPreemptionPolicy
EXISTING_JOB_POLICY_UNSPECIFIED: ExistingJobPolicy
EXISTING_JOB_POLICY_ERROR: ExistingJobPolicy
EXISTING_JOB_POLICY_KEEP: ExistingJobPolicy
EXISTING_JOB_POLICY_RECREATE: ExistingJobPolicy
CONTAINER_PROFILE_UNSPECIFIED: ContainerProfile
CONTAINER_PROFILE_DEFAULT: ContainerProfile
CONTAINER_PROFILE_RESTRICTED: ContainerProfile
CONTAINER_PROFILE_DOCKER_ACCESS: ContainerProfile
CONTAINER_PROFILE_PRIVILEGED: ContainerProfile
CONTAINER_PROFILE_GVISOR: ContainerProfile
WORKER_HEALTH_UNSPECIFIED: WorkerHealth
WORKER_HEALTH_HEALTHY: WorkerHealth
WORKER_HEALTH_DEGRADED: WorkerHealth
WORKER_HEALTH_DEAD: WorkerHealth
TASK_OUTPUTS_STATUS_UNSPECIFIED: TaskOutputsStatus
TASK_OUTPUTS_STATUS_UPLOADED: TaskOutputsStatus
TASK_OUTPUTS_STATUS_EMPTY: TaskOutputsStatus
TASK_OUTPUTS_STATUS_FAILED: TaskOutputsStatus
TASK_OUTPUTS_STATUS_UNAVAILABLE: TaskOutputsStatus

class Device(_message.Message):
    __slots__ = ("kind", "variant", "count")
    KIND_FIELD_NUMBER: _ClassVar[int]
    VARIANT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    kind: str
    variant: str
    count: int
    def __init__(self, kind: _Optional[str] = ..., variant: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class Resources(_message.Message):
    __slots__ = ("cpu_millicores", "memory_bytes", "disk_bytes", "device")
    CPU_MILLICORES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    cpu_millicores: int
    memory_bytes: int
    disk_bytes: int
    device: Device
    def __init__(self, cpu_millicores: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., disk_bytes: _Optional[int] = ..., device: _Optional[_Union[Device, _Mapping]] = ...) -> None: ...

class AttributeValue(_message.Message):
    __slots__ = ("text", "integer", "number")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    text: str
    integer: int
    number: float
    def __init__(self, text: _Optional[str] = ..., integer: _Optional[int] = ..., number: _Optional[float] = ...) -> None: ...

class Constraint(_message.Message):
    __slots__ = ("key", "op", "values", "mode")
    KEY_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    key: str
    op: ConstraintOp
    values: _containers.RepeatedCompositeFieldContainer[AttributeValue]
    mode: ConstraintMode
    def __init__(self, key: _Optional[str] = ..., op: _Optional[_Union[ConstraintOp, str]] = ..., values: _Optional[_Iterable[_Union[AttributeValue, _Mapping]]] = ..., mode: _Optional[_Union[ConstraintMode, str]] = ...) -> None: ...

class ErrorDetail(_message.Message):
    __slots__ = ("code", "subject", "field", "position", "hint", "retry_after_ms")
    CODE_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    code: str
    subject: str
    field: str
    position: int
    hint: str
    retry_after_ms: int
    def __init__(self, code: _Optional[str] = ..., subject: _Optional[str] = ..., field: _Optional[str] = ..., position: _Optional[int] = ..., hint: _Optional[str] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...

class Revision(_message.Message):
    __slots__ = ("boot_id", "n")
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    boot_id: str
    n: int
    def __init__(self, boot_id: _Optional[str] = ..., n: _Optional[int] = ...) -> None: ...

class ProcessInfo(_message.Message):
    __slots__ = ("target", "hostname", "pid", "python", "version", "release", "boot_id", "uptime_ms", "cpu_millicores", "memory_rss_bytes", "memory_vms_bytes", "memory_total_bytes", "threads", "open_fds", "cpu_count", "details")
    class DetailsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TARGET_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    UPTIME_MS_FIELD_NUMBER: _ClassVar[int]
    CPU_MILLICORES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_RSS_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_VMS_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    OPEN_FDS_FIELD_NUMBER: _ClassVar[int]
    CPU_COUNT_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    target: str
    hostname: str
    pid: int
    python: str
    version: str
    release: str
    boot_id: str
    uptime_ms: int
    cpu_millicores: int
    memory_rss_bytes: int
    memory_vms_bytes: int
    memory_total_bytes: int
    threads: int
    open_fds: int
    cpu_count: int
    details: _containers.ScalarMap[str, str]
    def __init__(self, target: _Optional[str] = ..., hostname: _Optional[str] = ..., pid: _Optional[int] = ..., python: _Optional[str] = ..., version: _Optional[str] = ..., release: _Optional[str] = ..., boot_id: _Optional[str] = ..., uptime_ms: _Optional[int] = ..., cpu_millicores: _Optional[int] = ..., memory_rss_bytes: _Optional[int] = ..., memory_vms_bytes: _Optional[int] = ..., memory_total_bytes: _Optional[int] = ..., threads: _Optional[int] = ..., open_fds: _Optional[int] = ..., cpu_count: _Optional[int] = ..., details: _Optional[_Mapping[str, str]] = ...) -> None: ...

class TaskOutputs(_message.Message):
    __slots__ = ("status", "url", "entries", "total_bytes", "archive_bytes", "skipped", "error", "expires_at_ms")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    ARCHIVE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    status: TaskOutputsStatus
    url: str
    entries: int
    total_bytes: int
    archive_bytes: int
    skipped: int
    error: str
    expires_at_ms: int
    def __init__(self, status: _Optional[_Union[TaskOutputsStatus, str]] = ..., url: _Optional[str] = ..., entries: _Optional[int] = ..., total_bytes: _Optional[int] = ..., archive_bytes: _Optional[int] = ..., skipped: _Optional[int] = ..., error: _Optional[str] = ..., expires_at_ms: _Optional[int] = ...) -> None: ...
