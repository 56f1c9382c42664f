from iris_core.wire.gen.iris.v1 import common_pb2 as _common_pb2
from iris_core.wire.gen.iris.v1 import controller_pb2 as _controller_pb2
from iris_core.wire.gen.iris.v1 import profiles_pb2 as _profiles_pb2
from iris_core.wire.gen.iris.v1 import pipeline_pb2 as _pipeline_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FailureKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FAILURE_KIND_UNSPECIFIED: _ClassVar[FailureKind]
    FAILURE_KIND_COMMAND: _ClassVar[FailureKind]
    FAILURE_KIND_STAGING: _ClassVar[FailureKind]
    FAILURE_KIND_OUT_OF_MEMORY: _ClassVar[FailureKind]
    FAILURE_KIND_TIMEOUT: _ClassVar[FailureKind]
    FAILURE_KIND_STOPPED: _ClassVar[FailureKind]
FAILURE_KIND_UNSPECIFIED: FailureKind
FAILURE_KIND_COMMAND: FailureKind
FAILURE_KIND_STAGING: FailureKind
FAILURE_KIND_OUT_OF_MEMORY: FailureKind
FAILURE_KIND_TIMEOUT: FailureKind
FAILURE_KIND_STOPPED: FailureKind

class GetBundleRequest(_message.Message):
    __slots__ = ("bundle_id",)
    BUNDLE_ID_FIELD_NUMBER: _ClassVar[int]
    bundle_id: str
    def __init__(self, bundle_id: _Optional[str] = ...) -> None: ...

class GetBundleResponse(_message.Message):
    __slots__ = ("chunk", "total_bytes")
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    chunk: bytes
    total_bytes: int
    def __init__(self, chunk: _Optional[bytes] = ..., total_bytes: _Optional[int] = ...) -> None: ...

class WorkerHello(_message.Message):
    __slots__ = ("worker_id", "boot_id", "pid", "hostname", "address", "total", "cpu_count", "attributes", "version", "release", "slice_id", "scale_group", "holding")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _common_pb2.AttributeValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_common_pb2.AttributeValue, _Mapping]] = ...) -> None: ...
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    CPU_COUNT_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    SLICE_ID_FIELD_NUMBER: _ClassVar[int]
    SCALE_GROUP_FIELD_NUMBER: _ClassVar[int]
    HOLDING_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    boot_id: str
    pid: int
    hostname: str
    address: str
    total: _common_pb2.Resources
    cpu_count: int
    attributes: _containers.MessageMap[str, _common_pb2.AttributeValue]
    version: str
    release: str
    slice_id: str
    scale_group: str
    holding: _containers.RepeatedCompositeFieldContainer[Observation]
    def __init__(self, worker_id: _Optional[str] = ..., boot_id: _Optional[str] = ..., pid: _Optional[int] = ..., hostname: _Optional[str] = ..., address: _Optional[str] = ..., total: _Optional[_Union[_common_pb2.Resources, _Mapping]] = ..., cpu_count: _Optional[int] = ..., attributes: _Optional[_Mapping[str, _common_pb2.AttributeValue]] = ..., version: _Optional[str] = ..., release: _Optional[str] = ..., slice_id: _Optional[str] = ..., scale_group: _Optional[str] = ..., holding: _Optional[_Iterable[_Union[Observation, _Mapping]]] = ...) -> None: ...

class Observation(_message.Message):
    __slots__ = ("attempt_uid", "state", "exit_code", "error", "failure_kind", "started_at_ms", "finished_at_ms", "memory_peak_bytes", "log_lines", "pid", "seq", "outputs")
    ATTEMPT_UID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    FAILURE_KIND_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOG_LINES_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    attempt_uid: str
    state: _common_pb2.TaskState
    exit_code: int
    error: str
    failure_kind: FailureKind
    started_at_ms: int
    finished_at_ms: int
    memory_peak_bytes: int
    log_lines: int
    pid: int
    seq: int
    outputs: _common_pb2.TaskOutputs
    def __init__(self, attempt_uid: _Optional[str] = ..., state: _Optional[_Union[_common_pb2.TaskState, str]] = ..., exit_code: _Optional[int] = ..., error: _Optional[str] = ..., failure_kind: _Optional[_Union[FailureKind, str]] = ..., started_at_ms: _Optional[int] = ..., finished_at_ms: _Optional[int] = ..., memory_peak_bytes: _Optional[int] = ..., log_lines: _Optional[int] = ..., pid: _Optional[int] = ..., seq: _Optional[int] = ..., outputs: _Optional[_Union[_common_pb2.TaskOutputs, _Mapping]] = ...) -> None: ...

class WorkerReport(_message.Message):
    __slots__ = ("observations", "applied_generation")
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    APPLIED_GENERATION_FIELD_NUMBER: _ClassVar[int]
    observations: _containers.RepeatedCompositeFieldContainer[Observation]
    applied_generation: int
    def __init__(self, observations: _Optional[_Iterable[_Union[Observation, _Mapping]]] = ..., applied_generation: _Optional[int] = ...) -> None: ...

class AttemptUsage(_message.Message):
    __slots__ = ("attempt_uid", "memory_bytes", "memory_peak_bytes", "cpu_millicores")
    ATTEMPT_UID_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_MILLICORES_FIELD_NUMBER: _ClassVar[int]
    attempt_uid: str
    memory_bytes: int
    memory_peak_bytes: int
    cpu_millicores: int
    def __init__(self, attempt_uid: _Optional[str] = ..., memory_bytes: _Optional[int] = ..., memory_peak_bytes: _Optional[int] = ..., cpu_millicores: _Optional[int] = ...) -> None: ...

class WorkerHeartbeat(_message.Message):
    __slots__ = ("applied_generation", "healthy", "health_error", "memory_used_bytes", "cpu_millicores", "stopping", "shipper", "usage")
    APPLIED_GENERATION_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_FIELD_NUMBER: _ClassVar[int]
    HEALTH_ERROR_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_MILLICORES_FIELD_NUMBER: _ClassVar[int]
    STOPPING_FIELD_NUMBER: _ClassVar[int]
    SHIPPER_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    applied_generation: int
    healthy: bool
    health_error: str
    memory_used_bytes: int
    cpu_millicores: int
    stopping: bool
    shipper: _pipeline_pb2.ShipperHealth
    usage: _containers.RepeatedCompositeFieldContainer[AttemptUsage]
    def __init__(self, applied_generation: _Optional[int] = ..., healthy: _Optional[bool] = ..., health_error: _Optional[str] = ..., memory_used_bytes: _Optional[int] = ..., cpu_millicores: _Optional[int] = ..., stopping: _Optional[bool] = ..., shipper: _Optional[_Union[_pipeline_pb2.ShipperHealth, _Mapping]] = ..., usage: _Optional[_Iterable[_Union[AttemptUsage, _Mapping]]] = ...) -> None: ...

class WorkerReply(_message.Message):
    __slots__ = ("request_id", "error", "exec", "process", "profile")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    EXEC_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    error: str
    exec: _controller_pb2.ExecInContainerResponse
    process: _common_pb2.ProcessInfo
    profile: _profiles_pb2.ProfilePart
    def __init__(self, request_id: _Optional[int] = ..., error: _Optional[str] = ..., exec: _Optional[_Union[_controller_pb2.ExecInContainerResponse, _Mapping]] = ..., process: _Optional[_Union[_common_pb2.ProcessInfo, _Mapping]] = ..., profile: _Optional[_Union[_profiles_pb2.ProfilePart, _Mapping]] = ...) -> None: ...

class ProfileCapture(_message.Message):
    __slots__ = ("record", "data")
    RECORD_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    record: _profiles_pb2.ProfileRecord
    data: bytes
    def __init__(self, record: _Optional[_Union[_profiles_pb2.ProfileRecord, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class AttachRequest(_message.Message):
    __slots__ = ("hello", "report", "heartbeat", "reply", "capture")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    REPLY_FIELD_NUMBER: _ClassVar[int]
    CAPTURE_FIELD_NUMBER: _ClassVar[int]
    hello: WorkerHello
    report: WorkerReport
    heartbeat: WorkerHeartbeat
    reply: WorkerReply
    capture: ProfileCapture
    def __init__(self, hello: _Optional[_Union[WorkerHello, _Mapping]] = ..., report: _Optional[_Union[WorkerReport, _Mapping]] = ..., heartbeat: _Optional[_Union[WorkerHeartbeat, _Mapping]] = ..., reply: _Optional[_Union[WorkerReply, _Mapping]] = ..., capture: _Optional[_Union[ProfileCapture, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("controller_boot_id", "cluster", "dead_after_ms", "heartbeat_ms", "log_addresses", "task_outputs", "profile_interval_ms", "stats_interval_ms")
    CONTROLLER_BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    DEAD_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    LOG_ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    TASK_OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    PROFILE_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    STATS_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    controller_boot_id: str
    cluster: str
    dead_after_ms: int
    heartbeat_ms: int
    log_addresses: _containers.RepeatedScalarFieldContainer[str]
    task_outputs: TaskOutputsPolicy
    profile_interval_ms: int
    stats_interval_ms: int
    def __init__(self, controller_boot_id: _Optional[str] = ..., cluster: _Optional[str] = ..., dead_after_ms: _Optional[int] = ..., heartbeat_ms: _Optional[int] = ..., log_addresses: _Optional[_Iterable[str]] = ..., task_outputs: _Optional[_Union[TaskOutputsPolicy, _Mapping]] = ..., profile_interval_ms: _Optional[int] = ..., stats_interval_ms: _Optional[int] = ...) -> None: ...

class TaskOutputsPolicy(_message.Message):
    __slots__ = ("destination", "ttl_ms", "max_bytes", "max_entries", "finalization_timeout_ms")
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    FINALIZATION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    destination: str
    ttl_ms: int
    max_bytes: int
    max_entries: int
    finalization_timeout_ms: int
    def __init__(self, destination: _Optional[str] = ..., ttl_ms: _Optional[int] = ..., max_bytes: _Optional[int] = ..., max_entries: _Optional[int] = ..., finalization_timeout_ms: _Optional[int] = ...) -> None: ...

class Rejected(_message.Message):
    __slots__ = ("code", "message", "permanent")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PERMANENT_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    permanent: bool
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., permanent: _Optional[bool] = ...) -> None: ...

class RunSpec(_message.Message):
    __slots__ = ("spec_id", "job_id", "incarnation", "num_tasks", "entrypoint", "environment", "bundle_id", "resources", "ports", "timeout_ms", "priority_band", "processes_per_task")
    SPEC_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    NUM_TASKS_FIELD_NUMBER: _ClassVar[int]
    ENTRYPOINT_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_BAND_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_PER_TASK_FIELD_NUMBER: _ClassVar[int]
    spec_id: str
    job_id: str
    incarnation: int
    num_tasks: int
    entrypoint: _controller_pb2.Entrypoint
    environment: _controller_pb2.Environment
    bundle_id: str
    resources: _common_pb2.Resources
    ports: _containers.RepeatedScalarFieldContainer[str]
    timeout_ms: int
    priority_band: _common_pb2.PriorityBand
    processes_per_task: int
    def __init__(self, spec_id: _Optional[str] = ..., job_id: _Optional[str] = ..., incarnation: _Optional[int] = ..., num_tasks: _Optional[int] = ..., entrypoint: _Optional[_Union[_controller_pb2.Entrypoint, _Mapping]] = ..., environment: _Optional[_Union[_controller_pb2.Environment, _Mapping]] = ..., bundle_id: _Optional[str] = ..., resources: _Optional[_Union[_common_pb2.Resources, _Mapping]] = ..., ports: _Optional[_Iterable[str]] = ..., timeout_ms: _Optional[int] = ..., priority_band: _Optional[_Union[_common_pb2.PriorityBand, str]] = ..., processes_per_task: _Optional[int] = ...) -> None: ...

class RunTask(_message.Message):
    __slots__ = ("spec_id", "task_id", "attempt_id", "task_index", "token", "timeout_remaining_ms")
    SPEC_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_INDEX_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    spec_id: str
    task_id: str
    attempt_id: int
    task_index: int
    token: str
    timeout_remaining_ms: int
    def __init__(self, spec_id: _Optional[str] = ..., task_id: _Optional[str] = ..., attempt_id: _Optional[int] = ..., task_index: _Optional[int] = ..., token: _Optional[str] = ..., timeout_remaining_ms: _Optional[int] = ...) -> None: ...

class StopTask(_message.Message):
    __slots__ = ("reason", "grace_ms")
    REASON_FIELD_NUMBER: _ClassVar[int]
    GRACE_MS_FIELD_NUMBER: _ClassVar[int]
    reason: _common_pb2.StopReason
    grace_ms: int
    def __init__(self, reason: _Optional[_Union[_common_pb2.StopReason, str]] = ..., grace_ms: _Optional[int] = ...) -> None: ...

class DesiredAttempt(_message.Message):
    __slots__ = ("attempt_uid", "run", "keep", "stop")
    ATTEMPT_UID_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    attempt_uid: str
    run: RunTask
    keep: bool
    stop: StopTask
    def __init__(self, attempt_uid: _Optional[str] = ..., run: _Optional[_Union[RunTask, _Mapping]] = ..., keep: _Optional[bool] = ..., stop: _Optional[_Union[StopTask, _Mapping]] = ...) -> None: ...

class DesiredSet(_message.Message):
    __slots__ = ("generation", "specs", "forget_specs", "attempts")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SPECS_FIELD_NUMBER: _ClassVar[int]
    FORGET_SPECS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    generation: int
    specs: _containers.RepeatedCompositeFieldContainer[RunSpec]
    forget_specs: _containers.RepeatedScalarFieldContainer[str]
    attempts: _containers.RepeatedCompositeFieldContainer[DesiredAttempt]
    def __init__(self, generation: _Optional[int] = ..., specs: _Optional[_Iterable[_Union[RunSpec, _Mapping]]] = ..., forget_specs: _Optional[_Iterable[str]] = ..., attempts: _Optional[_Iterable[_Union[DesiredAttempt, _Mapping]]] = ...) -> None: ...

class ExecRequest(_message.Message):
    __slots__ = ("attempt_uid", "command", "timeout_ms")
    ATTEMPT_UID_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    attempt_uid: str
    command: _containers.RepeatedScalarFieldContainer[str]
    timeout_ms: int
    def __init__(self, attempt_uid: _Optional[str] = ..., command: _Optional[_Iterable[str]] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class WorkerRequest(_message.Message):
    __slots__ = ("request_id", "exec", "process_status", "task_process_status", "profile", "give_up")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    EXEC_FIELD_NUMBER: _ClassVar[int]
    PROCESS_STATUS_FIELD_NUMBER: _ClassVar[int]
    TASK_PROCESS_STATUS_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    GIVE_UP_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    exec: ExecRequest
    process_status: bool
    task_process_status: str
    profile: _profiles_pb2.ProfileRequest
    give_up: int
    def __init__(self, request_id: _Optional[int] = ..., exec: _Optional[_Union[ExecRequest, _Mapping]] = ..., process_status: _Optional[bool] = ..., task_process_status: _Optional[str] = ..., profile: _Optional[_Union[_profiles_pb2.ProfileRequest, _Mapping]] = ..., give_up: _Optional[int] = ...) -> None: ...

class ObservationAck(_message.Message):
    __slots__ = ("seq",)
    SEQ_FIELD_NUMBER: _ClassVar[int]
    seq: int
    def __init__(self, seq: _Optional[int] = ...) -> None: ...

class AttachResponse(_message.Message):
    __slots__ = ("welcome", "rejected", "desired", "request", "ack")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    DESIRED_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    rejected: Rejected
    desired: DesiredSet
    request: WorkerRequest
    ack: ObservationAck
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., rejected: _Optional[_Union[Rejected, _Mapping]] = ..., desired: _Optional[_Union[DesiredSet, _Mapping]] = ..., request: _Optional[_Union[WorkerRequest, _Mapping]] = ..., ack: _Optional[_Union[ObservationAck, _Mapping]] = ...) -> None: ...
