from iris_core.wire.gen.iris.v1 import backends_pb2 as _backends_pb2
from iris_core.wire.gen.iris.v1 import budgets_pb2 as _budgets_pb2
from iris_core.wire.gen.iris.v1 import common_pb2 as _common_pb2
from iris_core.wire.gen.iris.v1 import pipeline_pb2 as _pipeline_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PendingBucketRow(_message.Message):
    __slots__ = ("bucket_id", "job_id", "band", "requested_band", "user_id", "backend_id", "count", "position", "pending_since_ms", "reason", "resources", "gang", "constraints")
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    BAND_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_BAND_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    BACKEND_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    PENDING_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    GANG_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINTS_FIELD_NUMBER: _ClassVar[int]
    bucket_id: str
    job_id: str
    band: _common_pb2.PriorityBand
    requested_band: _common_pb2.PriorityBand
    user_id: str
    backend_id: str
    count: int
    position: int
    pending_since_ms: int
    reason: str
    resources: _common_pb2.Resources
    gang: bool
    constraints: _containers.RepeatedCompositeFieldContainer[_common_pb2.Constraint]
    def __init__(self, bucket_id: _Optional[str] = ..., job_id: _Optional[str] = ..., band: _Optional[_Union[_common_pb2.PriorityBand, str]] = ..., requested_band: _Optional[_Union[_common_pb2.PriorityBand, str]] = ..., user_id: _Optional[str] = ..., backend_id: _Optional[str] = ..., count: _Optional[int] = ..., position: _Optional[int] = ..., pending_since_ms: _Optional[int] = ..., reason: _Optional[str] = ..., resources: _Optional[_Union[_common_pb2.Resources, _Mapping]] = ..., gang: _Optional[bool] = ..., constraints: _Optional[_Iterable[_Union[_common_pb2.Constraint, _Mapping]]] = ...) -> None: ...

class RunningBucketRow(_message.Message):
    __slots__ = ("bucket_id", "job_id", "band", "user_id", "worker_id", "backend_id", "count")
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    BAND_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    BACKEND_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    bucket_id: str
    job_id: str
    band: _common_pb2.PriorityBand
    user_id: str
    worker_id: str
    backend_id: str
    count: int
    def __init__(self, bucket_id: _Optional[str] = ..., job_id: _Optional[str] = ..., band: _Optional[_Union[_common_pb2.PriorityBand, str]] = ..., user_id: _Optional[str] = ..., worker_id: _Optional[str] = ..., backend_id: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class UserRow(_message.Message):
    __slots__ = ("user_id", "budget", "summary", "active_tasks", "max_active_tasks")
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_TASKS_FIELD_NUMBER: _ClassVar[int]
    MAX_ACTIVE_TASKS_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    budget: _budgets_pb2.UserBudget
    summary: _budgets_pb2.UserSummary
    active_tasks: int
    max_active_tasks: int
    def __init__(self, user_id: _Optional[str] = ..., budget: _Optional[_Union[_budgets_pb2.UserBudget, _Mapping]] = ..., summary: _Optional[_Union[_budgets_pb2.UserSummary, _Mapping]] = ..., active_tasks: _Optional[int] = ..., max_active_tasks: _Optional[int] = ...) -> None: ...

class BackendRow(_message.Message):
    __slots__ = ("backend_id", "status", "provider")
    BACKEND_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    backend_id: str
    status: _backends_pb2.BackendStatus
    provider: _backends_pb2.GetProviderStatusResponse
    def __init__(self, backend_id: _Optional[str] = ..., status: _Optional[_Union[_backends_pb2.BackendStatus, _Mapping]] = ..., provider: _Optional[_Union[_backends_pb2.GetProviderStatusResponse, _Mapping]] = ...) -> None: ...

class LoopLag(_message.Message):
    __slots__ = ("p50_ms", "p99_ms", "max_ms", "samples", "window_ms")
    P50_MS_FIELD_NUMBER: _ClassVar[int]
    P99_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    p50_ms: float
    p99_ms: float
    max_ms: float
    samples: int
    window_ms: int
    def __init__(self, p50_ms: _Optional[float] = ..., p99_ms: _Optional[float] = ..., max_ms: _Optional[float] = ..., samples: _Optional[int] = ..., window_ms: _Optional[int] = ...) -> None: ...

class CheckpointCondition(_message.Message):
    __slots__ = ("last_at_ms", "size_bytes", "next_due_ms", "failure", "place", "taking")
    LAST_AT_MS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    NEXT_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    TAKING_FIELD_NUMBER: _ClassVar[int]
    last_at_ms: int
    size_bytes: int
    next_due_ms: int
    failure: str
    place: str
    taking: bool
    def __init__(self, last_at_ms: _Optional[int] = ..., size_bytes: _Optional[int] = ..., next_due_ms: _Optional[int] = ..., failure: _Optional[str] = ..., place: _Optional[str] = ..., taking: _Optional[bool] = ...) -> None: ...

class BackgroundTask(_message.Message):
    __slots__ = ("name", "started_at_ms", "ended")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    name: str
    started_at_ms: int
    ended: str
    def __init__(self, name: _Optional[str] = ..., started_at_ms: _Optional[int] = ..., ended: _Optional[str] = ...) -> None: ...

class ControllerRow(_message.Message):
    __slots__ = ("controller_id", "cluster", "process", "started_at_ms", "state_dir", "lag", "queued_commands", "writing_commands", "watchers", "attached_workers", "last_plan_ms", "last_commit_ms", "batches", "commands", "failed_commits", "store_error", "checkpoint", "store", "shipping_lag_ms", "shipping_lag_worker", "stats_rows_waiting", "stats_rows_lost", "ready", "problems", "jobs", "tasks", "attempts", "workers", "slices", "endpoints", "observed_at_ms", "background")
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    STATE_DIR_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    QUEUED_COMMANDS_FIELD_NUMBER: _ClassVar[int]
    WRITING_COMMANDS_FIELD_NUMBER: _ClassVar[int]
    WATCHERS_FIELD_NUMBER: _ClassVar[int]
    ATTACHED_WORKERS_FIELD_NUMBER: _ClassVar[int]
    LAST_PLAN_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_COMMIT_MS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    FAILED_COMMITS_FIELD_NUMBER: _ClassVar[int]
    STORE_ERROR_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    SHIPPING_LAG_MS_FIELD_NUMBER: _ClassVar[int]
    SHIPPING_LAG_WORKER_FIELD_NUMBER: _ClassVar[int]
    STATS_ROWS_WAITING_FIELD_NUMBER: _ClassVar[int]
    STATS_ROWS_LOST_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    SLICES_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_FIELD_NUMBER: _ClassVar[int]
    controller_id: str
    cluster: str
    process: _common_pb2.ProcessInfo
    started_at_ms: int
    state_dir: str
    lag: LoopLag
    queued_commands: int
    writing_commands: int
    watchers: int
    attached_workers: int
    last_plan_ms: float
    last_commit_ms: float
    batches: int
    commands: int
    failed_commits: int
    store_error: str
    checkpoint: CheckpointCondition
    store: _pipeline_pb2.StoreHealth
    shipping_lag_ms: int
    shipping_lag_worker: str
    stats_rows_waiting: int
    stats_rows_lost: int
    ready: bool
    problems: _containers.RepeatedScalarFieldContainer[str]
    jobs: int
    tasks: int
    attempts: int
    workers: int
    slices: int
    endpoints: int
    observed_at_ms: int
    background: _containers.RepeatedCompositeFieldContainer[BackgroundTask]
    def __init__(self, controller_id: _Optional[str] = ..., cluster: _Optional[str] = ..., process: _Optional[_Union[_common_pb2.ProcessInfo, _Mapping]] = ..., started_at_ms: _Optional[int] = ..., state_dir: _Optional[str] = ..., lag: _Optional[_Union[LoopLag, _Mapping]] = ..., queued_commands: _Optional[int] = ..., writing_commands: _Optional[int] = ..., watchers: _Optional[int] = ..., attached_workers: _Optional[int] = ..., last_plan_ms: _Optional[float] = ..., last_commit_ms: _Optional[float] = ..., batches: _Optional[int] = ..., commands: _Optional[int] = ..., failed_commits: _Optional[int] = ..., store_error: _Optional[str] = ..., checkpoint: _Optional[_Union[CheckpointCondition, _Mapping]] = ..., store: _Optional[_Union[_pipeline_pb2.StoreHealth, _Mapping]] = ..., shipping_lag_ms: _Optional[int] = ..., shipping_lag_worker: _Optional[str] = ..., stats_rows_waiting: _Optional[int] = ..., stats_rows_lost: _Optional[int] = ..., ready: _Optional[bool] = ..., problems: _Optional[_Iterable[str]] = ..., jobs: _Optional[int] = ..., tasks: _Optional[int] = ..., attempts: _Optional[int] = ..., workers: _Optional[int] = ..., slices: _Optional[int] = ..., endpoints: _Optional[int] = ..., observed_at_ms: _Optional[int] = ..., background: _Optional[_Iterable[_Union[BackgroundTask, _Mapping]]] = ...) -> None: ...

class BandPending(_message.Message):
    __slots__ = ("band", "tasks", "buckets", "pending_since_ms", "job_id")
    BAND_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    PENDING_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    band: _common_pb2.PriorityBand
    tasks: int
    buckets: int
    pending_since_ms: int
    job_id: str
    def __init__(self, band: _Optional[_Union[_common_pb2.PriorityBand, str]] = ..., tasks: _Optional[int] = ..., buckets: _Optional[int] = ..., pending_since_ms: _Optional[int] = ..., job_id: _Optional[str] = ...) -> None: ...

class BandRunning(_message.Message):
    __slots__ = ("band", "tasks")
    BAND_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    band: _common_pb2.PriorityBand
    tasks: int
    def __init__(self, band: _Optional[_Union[_common_pb2.PriorityBand, str]] = ..., tasks: _Optional[int] = ...) -> None: ...

class WorkersByHealth(_message.Message):
    __slots__ = ("health", "count")
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    health: _common_pb2.WorkerHealth
    count: int
    def __init__(self, health: _Optional[_Union[_common_pb2.WorkerHealth, str]] = ..., count: _Optional[int] = ...) -> None: ...

class HourOfEnds(_message.Message):
    __slots__ = ("counted_since_ms", "failures", "preemptions", "failures_by_minute", "preemptions_by_minute", "minute_started_ms")
    COUNTED_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_BY_MINUTE_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_BY_MINUTE_FIELD_NUMBER: _ClassVar[int]
    MINUTE_STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    counted_since_ms: int
    failures: int
    preemptions: int
    failures_by_minute: _containers.RepeatedScalarFieldContainer[int]
    preemptions_by_minute: _containers.RepeatedScalarFieldContainer[int]
    minute_started_ms: int
    def __init__(self, counted_since_ms: _Optional[int] = ..., failures: _Optional[int] = ..., preemptions: _Optional[int] = ..., failures_by_minute: _Optional[_Iterable[int]] = ..., preemptions_by_minute: _Optional[_Iterable[int]] = ..., minute_started_ms: _Optional[int] = ...) -> None: ...

class AutoscalerSummary(_message.Message):
    __slots__ = ("enabled", "detail", "current_demand", "last_evaluation_ms", "groups", "groups_blocked", "slices_by_lifecycle")
    class SlicesByLifecycleEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    CURRENT_DEMAND_FIELD_NUMBER: _ClassVar[int]
    LAST_EVALUATION_MS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_BLOCKED_FIELD_NUMBER: _ClassVar[int]
    SLICES_BY_LIFECYCLE_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    detail: str
    current_demand: int
    last_evaluation_ms: int
    groups: int
    groups_blocked: int
    slices_by_lifecycle: _containers.ScalarMap[str, int]
    def __init__(self, enabled: _Optional[bool] = ..., detail: _Optional[str] = ..., current_demand: _Optional[int] = ..., last_evaluation_ms: _Optional[int] = ..., groups: _Optional[int] = ..., groups_blocked: _Optional[int] = ..., slices_by_lifecycle: _Optional[_Mapping[str, int]] = ...) -> None: ...

class FleetRow(_message.Message):
    __slots__ = ("fleet_id", "jobs_by_state", "tasks_by_state", "pending", "running", "total", "committed", "devices", "workers", "workers_total", "workers_leaving", "ends", "autoscaler", "users", "never_fits", "workers_excluded")
    class JobsByStateEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class TasksByStateEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    FLEET_ID_FIELD_NUMBER: _ClassVar[int]
    JOBS_BY_STATE_FIELD_NUMBER: _ClassVar[int]
    TASKS_BY_STATE_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    WORKERS_LEAVING_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    AUTOSCALER_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    NEVER_FITS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_EXCLUDED_FIELD_NUMBER: _ClassVar[int]
    fleet_id: str
    jobs_by_state: _containers.ScalarMap[str, int]
    tasks_by_state: _containers.ScalarMap[str, int]
    pending: _containers.RepeatedCompositeFieldContainer[BandPending]
    running: _containers.RepeatedCompositeFieldContainer[BandRunning]
    total: _common_pb2.Resources
    committed: _common_pb2.Resources
    devices: _containers.RepeatedCompositeFieldContainer[_backends_pb2.DeviceAvailability]
    workers: _containers.RepeatedCompositeFieldContainer[WorkersByHealth]
    workers_total: int
    workers_leaving: int
    ends: HourOfEnds
    autoscaler: AutoscalerSummary
    users: int
    never_fits: NeverFits
    workers_excluded: int
    def __init__(self, fleet_id: _Optional[str] = ..., jobs_by_state: _Optional[_Mapping[str, int]] = ..., tasks_by_state: _Optional[_Mapping[str, int]] = ..., pending: _Optional[_Iterable[_Union[BandPending, _Mapping]]] = ..., running: _Optional[_Iterable[_Union[BandRunning, _Mapping]]] = ..., total: _Optional[_Union[_common_pb2.Resources, _Mapping]] = ..., committed: _Optional[_Union[_common_pb2.Resources, _Mapping]] = ..., devices: _Optional[_Iterable[_Union[_backends_pb2.DeviceAvailability, _Mapping]]] = ..., workers: _Optional[_Iterable[_Union[WorkersByHealth, _Mapping]]] = ..., workers_total: _Optional[int] = ..., workers_leaving: _Optional[int] = ..., ends: _Optional[_Union[HourOfEnds, _Mapping]] = ..., autoscaler: _Optional[_Union[AutoscalerSummary, _Mapping]] = ..., users: _Optional[int] = ..., never_fits: _Optional[_Union[NeverFits, _Mapping]] = ..., workers_excluded: _Optional[int] = ...) -> None: ...

class NeverFits(_message.Message):
    __slots__ = ("tasks", "jobs", "job_id", "reason", "unjudged")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    UNJUDGED_FIELD_NUMBER: _ClassVar[int]
    tasks: int
    jobs: int
    job_id: str
    reason: str
    unjudged: int
    def __init__(self, tasks: _Optional[int] = ..., jobs: _Optional[int] = ..., job_id: _Optional[str] = ..., reason: _Optional[str] = ..., unjudged: _Optional[int] = ...) -> None: ...
