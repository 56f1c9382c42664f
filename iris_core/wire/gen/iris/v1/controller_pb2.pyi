from iris_core.wire.gen.iris.v1 import autoscaler_pb2 as _autoscaler_pb2
from iris_core.wire.gen.iris.v1 import backends_pb2 as _backends_pb2
from iris_core.wire.gen.iris.v1 import budgets_pb2 as _budgets_pb2
from iris_core.wire.gen.iris.v1 import checkpoints_pb2 as _checkpoints_pb2
from iris_core.wire.gen.iris.v1 import common_pb2 as _common_pb2
from iris_core.wire.gen.iris.v1 import endpoints_pb2 as _endpoints_pb2
from iris_core.wire.gen.iris.v1 import explain_pb2 as _explain_pb2
from iris_core.wire.gen.iris.v1 import pipeline_pb2 as _pipeline_pb2
from iris_core.wire.gen.iris.v1 import plan_pb2 as _plan_pb2
from iris_core.wire.gen.iris.v1 import profiles_pb2 as _profiles_pb2
from iris_core.wire.gen.iris.v1 import task_status_pb2 as _task_status_pb2
from iris_core.wire.gen.iris.v1 import watch_rows_pb2 as _watch_rows_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JobSort(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_SORT_UNSPECIFIED: _ClassVar[JobSort]
    JOB_SORT_SUBMITTED: _ClassVar[JobSort]
    JOB_SORT_NAME: _ClassVar[JobSort]
    JOB_SORT_STATE: _ClassVar[JobSort]

class AttemptCharge(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ATTEMPT_CHARGE_UNSPECIFIED: _ClassVar[AttemptCharge]
    ATTEMPT_CHARGE_FAILURE: _ClassVar[AttemptCharge]
    ATTEMPT_CHARGE_PREEMPTION: _ClassVar[AttemptCharge]

class WatchKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WATCH_KIND_UNSPECIFIED: _ClassVar[WatchKind]
    WATCH_KIND_JOBS: _ClassVar[WatchKind]
    WATCH_KIND_TASKS: _ClassVar[WatchKind]
    WATCH_KIND_WORKERS: _ClassVar[WatchKind]
    WATCH_KIND_ATTEMPTS: _ClassVar[WatchKind]
    WATCH_KIND_PENDING_BUCKETS: _ClassVar[WatchKind]
    WATCH_KIND_RUNNING_BUCKETS: _ClassVar[WatchKind]
    WATCH_KIND_SCALE_GROUPS: _ClassVar[WatchKind]
    WATCH_KIND_SLICES: _ClassVar[WatchKind]
    WATCH_KIND_AUTOSCALER_ACTIONS: _ClassVar[WatchKind]
    WATCH_KIND_USERS: _ClassVar[WatchKind]
    WATCH_KIND_ENDPOINTS: _ClassVar[WatchKind]
    WATCH_KIND_BACKENDS: _ClassVar[WatchKind]
    WATCH_KIND_CONTROLLER: _ClassVar[WatchKind]
    WATCH_KIND_FLEET: _ClassVar[WatchKind]
JOB_SORT_UNSPECIFIED: JobSort
JOB_SORT_SUBMITTED: JobSort
JOB_SORT_NAME: JobSort
JOB_SORT_STATE: JobSort
ATTEMPT_CHARGE_UNSPECIFIED: AttemptCharge
ATTEMPT_CHARGE_FAILURE: AttemptCharge
ATTEMPT_CHARGE_PREEMPTION: AttemptCharge
WATCH_KIND_UNSPECIFIED: WatchKind
WATCH_KIND_JOBS: WatchKind
WATCH_KIND_TASKS: WatchKind
WATCH_KIND_WORKERS: WatchKind
WATCH_KIND_ATTEMPTS: WatchKind
WATCH_KIND_PENDING_BUCKETS: WatchKind
WATCH_KIND_RUNNING_BUCKETS: WatchKind
WATCH_KIND_SCALE_GROUPS: WatchKind
WATCH_KIND_SLICES: WatchKind
WATCH_KIND_AUTOSCALER_ACTIONS: WatchKind
WATCH_KIND_USERS: WatchKind
WATCH_KIND_ENDPOINTS: WatchKind
WATCH_KIND_BACKENDS: WatchKind
WATCH_KIND_CONTROLLER: WatchKind
WATCH_KIND_FLEET: WatchKind

class Command(_message.Message):
    __slots__ = ("argv",)
    ARGV_FIELD_NUMBER: _ClassVar[int]
    argv: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, argv: _Optional[_Iterable[str]] = ...) -> None: ...

class Entrypoint(_message.Message):
    __slots__ = ("run_command", "workdir_files", "workdir_file_refs")
    class WorkdirFilesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    class WorkdirFileRefsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    RUN_COMMAND_FIELD_NUMBER: _ClassVar[int]
    WORKDIR_FILES_FIELD_NUMBER: _ClassVar[int]
    WORKDIR_FILE_REFS_FIELD_NUMBER: _ClassVar[int]
    run_command: Command
    workdir_files: _containers.ScalarMap[str, bytes]
    workdir_file_refs: _containers.ScalarMap[str, str]
    def __init__(self, run_command: _Optional[_Union[Command, _Mapping]] = ..., workdir_files: _Optional[_Mapping[str, bytes]] = ..., workdir_file_refs: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Environment(_message.Message):
    __slots__ = ("env_vars", "setup_scripts")
    class EnvVarsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ENV_VARS_FIELD_NUMBER: _ClassVar[int]
    SETUP_SCRIPTS_FIELD_NUMBER: _ClassVar[int]
    env_vars: _containers.ScalarMap[str, str]
    setup_scripts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, env_vars: _Optional[_Mapping[str, str]] = ..., setup_scripts: _Optional[_Iterable[str]] = ...) -> None: ...

class CoschedulingConfig(_message.Message):
    __slots__ = ("group_by",)
    GROUP_BY_FIELD_NUMBER: _ClassVar[int]
    group_by: str
    def __init__(self, group_by: _Optional[str] = ...) -> None: ...

class Rerun(_message.Message):
    __slots__ = ("job_id", "incarnation", "remove_env", "clear")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    REMOVE_ENV_FIELD_NUMBER: _ClassVar[int]
    CLEAR_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    incarnation: int
    remove_env: _containers.RepeatedScalarFieldContainer[str]
    clear: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, job_id: _Optional[str] = ..., incarnation: _Optional[int] = ..., remove_env: _Optional[_Iterable[str]] = ..., clear: _Optional[_Iterable[str]] = ...) -> None: ...

class LaunchJobRequest(_message.Message):
    __slots__ = ("name", "entrypoint", "resources", "environment", "bundle_id", "ports", "constraints", "replicas", "max_retries_failure", "max_retries_preemption", "max_task_failures", "timeout_ms", "scheduling_timeout_ms", "preemption_policy", "existing_job_policy", "priority_band", "submit_argv", "coscheduling", "task_image", "container_profile", "client_revision_date", "system_reason", "inherit_workspace", "processes_per_task", "rerun", "request_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ENTRYPOINT_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_ID_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINTS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    MAX_RETRIES_FAILURE_FIELD_NUMBER: _ClassVar[int]
    MAX_RETRIES_PREEMPTION_FIELD_NUMBER: _ClassVar[int]
    MAX_TASK_FAILURES_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULING_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    PREEMPTION_POLICY_FIELD_NUMBER: _ClassVar[int]
    EXISTING_JOB_POLICY_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_BAND_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_ARGV_FIELD_NUMBER: _ClassVar[int]
    COSCHEDULING_FIELD_NUMBER: _ClassVar[int]
    TASK_IMAGE_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_PROFILE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_REVISION_DATE_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_REASON_FIELD_NUMBER: _ClassVar[int]
    INHERIT_WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_PER_TASK_FIELD_NUMBER: _ClassVar[int]
    RERUN_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    entrypoint: Entrypoint
    resources: _common_pb2.Resources
    environment: Environment
    bundle_id: str
    ports: _containers.RepeatedScalarFieldContainer[str]
    constraints: _containers.RepeatedCompositeFieldContainer[_common_pb2.Constraint]
    replicas: int
    max_retries_failure: int
    max_retries_preemption: int
    max_task_failures: int
    timeout_ms: int
    scheduling_timeout_ms: int
    preemption_policy: _common_pb2.JobPreemptionPolicy
    existing_job_policy: _common_pb2.ExistingJobPolicy
    priority_band: _common_pb2.PriorityBand
    submit_argv: _containers.RepeatedScalarFieldContainer[str]
    coscheduling: CoschedulingConfig
    task_image: str
    container_profile: _common_pb2.ContainerProfile
    client_revision_date: str
    system_reason: str
    inherit_workspace: bool
    processes_per_task: int
    rerun: Rerun
    request_id: str
    def __init__(self, name: _Optional[str] = ..., entrypoint: _Optional[_Union[Entrypoint, _Mapping]] = ..., resources: _Optional[_Union[_common_pb2.Resources, _Mapping]] = ..., environment: _Optional[_Union[Environment, _Mapping]] = ..., bundle_id: _Optional[str] = ..., ports: _Optional[_Iterable[str]] = ..., constraints: _Optional[_Iterable[_Union[_common_pb2.Constraint, _Mapping]]] = ..., replicas: _Optional[int] = ..., max_retries_failure: _Optional[int] = ..., max_retries_preemption: _Optional[int] = ..., max_task_failures: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., scheduling_timeout_ms: _Optional[int] = ..., preemption_policy: _Optional[_Union[_common_pb2.JobPreemptionPolicy, str]] = ..., existing_job_policy: _Optional[_Union[_common_pb2.ExistingJobPolicy, str]] = ..., priority_band: _Optional[_Union[_common_pb2.PriorityBand, str]] = ..., submit_argv: _Optional[_Iterable[str]] = ..., coscheduling: _Optional[_Union[CoschedulingConfig, _Mapping]] = ..., task_image: _Optional[str] = ..., container_profile: _Optional[_Union[_common_pb2.ContainerProfile, str]] = ..., client_revision_date: _Optional[str] = ..., system_reason: _Optional[str] = ..., inherit_workspace: _Optional[bool] = ..., processes_per_task: _Optional[int] = ..., rerun: _Optional[_Union[Rerun, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...

class LaunchJobResponse(_message.Message):
    __slots__ = ("job_id", "incarnation", "warnings", "existing")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    EXISTING_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    incarnation: int
    warnings: _containers.RepeatedScalarFieldContainer[str]
    existing: bool
    def __init__(self, job_id: _Optional[str] = ..., incarnation: _Optional[int] = ..., warnings: _Optional[_Iterable[str]] = ..., existing: _Optional[bool] = ...) -> None: ...

class StatBundleRequest(_message.Message):
    __slots__ = ("bundle_id",)
    BUNDLE_ID_FIELD_NUMBER: _ClassVar[int]
    bundle_id: str
    def __init__(self, bundle_id: _Optional[str] = ...) -> None: ...

class StatBundleResponse(_message.Message):
    __slots__ = ("exists", "size_bytes")
    EXISTS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    exists: bool
    size_bytes: int
    def __init__(self, exists: _Optional[bool] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class PutBundleRequest(_message.Message):
    __slots__ = ("bundle_id", "data")
    BUNDLE_ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    bundle_id: str
    data: bytes
    def __init__(self, bundle_id: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...

class PutBundleResponse(_message.Message):
    __slots__ = ("existed",)
    EXISTED_FIELD_NUMBER: _ClassVar[int]
    existed: bool
    def __init__(self, existed: _Optional[bool] = ...) -> None: ...

class TaskStateCount(_message.Message):
    __slots__ = ("state", "count")
    STATE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    state: _common_pb2.TaskState
    count: int
    def __init__(self, state: _Optional[_Union[_common_pb2.TaskState, str]] = ..., count: _Optional[int] = ...) -> None: ...

class JobStatus(_message.Message):
    __slots__ = ("job_id", "name", "state", "user_id", "submitting_user", "parent_job_id", "root_job_id", "depth", "submitted_at_ms", "started_at_ms", "finished_at_ms", "error", "exit_code", "num_tasks", "task_counts", "failure_count", "preemption_count", "pending_reason", "has_children", "priority_band", "resources", "incarnation")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    SUBMITTING_USER_FIELD_NUMBER: _ClassVar[int]
    PARENT_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ROOT_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    NUM_TASKS_FIELD_NUMBER: _ClassVar[int]
    TASK_COUNTS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_COUNT_FIELD_NUMBER: _ClassVar[int]
    PREEMPTION_COUNT_FIELD_NUMBER: _ClassVar[int]
    PENDING_REASON_FIELD_NUMBER: _ClassVar[int]
    HAS_CHILDREN_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_BAND_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    name: str
    state: _common_pb2.JobState
    user_id: str
    submitting_user: str
    parent_job_id: str
    root_job_id: str
    depth: int
    submitted_at_ms: int
    started_at_ms: int
    finished_at_ms: int
    error: str
    exit_code: int
    num_tasks: int
    task_counts: _containers.RepeatedCompositeFieldContainer[TaskStateCount]
    failure_count: int
    preemption_count: int
    pending_reason: str
    has_children: bool
    priority_band: _common_pb2.PriorityBand
    resources: _common_pb2.Resources
    incarnation: int
    def __init__(self, job_id: _Optional[str] = ..., name: _Optional[str] = ..., state: _Optional[_Union[_common_pb2.JobState, str]] = ..., user_id: _Optional[str] = ..., submitting_user: _Optional[str] = ..., parent_job_id: _Optional[str] = ..., root_job_id: _Optional[str] = ..., depth: _Optional[int] = ..., submitted_at_ms: _Optional[int] = ..., started_at_ms: _Optional[int] = ..., finished_at_ms: _Optional[int] = ..., error: _Optional[str] = ..., exit_code: _Optional[int] = ..., num_tasks: _Optional[int] = ..., task_counts: _Optional[_Iterable[_Union[TaskStateCount, _Mapping]]] = ..., failure_count: _Optional[int] = ..., preemption_count: _Optional[int] = ..., pending_reason: _Optional[str] = ..., has_children: _Optional[bool] = ..., priority_band: _Optional[_Union[_common_pb2.PriorityBand, str]] = ..., resources: _Optional[_Union[_common_pb2.Resources, _Mapping]] = ..., incarnation: _Optional[int] = ...) -> None: ...

class GetJobStatusRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class GetJobStatusResponse(_message.Message):
    __slots__ = ("job", "request", "revision")
    JOB_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    job: JobStatus
    request: LaunchJobRequest
    revision: _common_pb2.Revision
    def __init__(self, job: _Optional[_Union[JobStatus, _Mapping]] = ..., request: _Optional[_Union[LaunchJobRequest, _Mapping]] = ..., revision: _Optional[_Union[_common_pb2.Revision, _Mapping]] = ...) -> None: ...

class GetJobStateRequest(_message.Message):
    __slots__ = ("job_ids",)
    JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    job_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, job_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class GetJobStateResponse(_message.Message):
    __slots__ = ("states",)
    class StatesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _common_pb2.JobState
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_common_pb2.JobState, str]] = ...) -> None: ...
    STATES_FIELD_NUMBER: _ClassVar[int]
    states: _containers.ScalarMap[str, _common_pb2.JobState]
    def __init__(self, states: _Optional[_Mapping[str, _common_pb2.JobState]] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ("states", "prefix", "parent_job_id", "roots_only", "filter", "sort", "ascending", "page_size", "page_token")
    STATES_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    PARENT_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ROOTS_ONLY_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    SORT_FIELD_NUMBER: _ClassVar[int]
    ASCENDING_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedScalarFieldContainer[_common_pb2.JobState]
    prefix: str
    parent_job_id: str
    roots_only: bool
    filter: str
    sort: JobSort
    ascending: bool
    page_size: int
    page_token: str
    def __init__(self, states: _Optional[_Iterable[_Union[_common_pb2.JobState, str]]] = ..., prefix: _Optional[str] = ..., parent_job_id: _Optional[str] = ..., roots_only: _Optional[bool] = ..., filter: _Optional[str] = ..., sort: _Optional[_Union[JobSort, str]] = ..., ascending: _Optional[bool] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ("jobs", "next_page_token", "total_count", "total_capped", "revision")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOTAL_COUNT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_CAPPED_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobStatus]
    next_page_token: str
    total_count: int
    total_capped: bool
    revision: _common_pb2.Revision
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobStatus, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., total_count: _Optional[int] = ..., total_capped: _Optional[bool] = ..., revision: _Optional[_Union[_common_pb2.Revision, _Mapping]] = ...) -> None: ...

class TerminateJobRequest(_message.Message):
    __slots__ = ("job_id", "reason", "incarnation", "request_id")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    reason: str
    incarnation: int
    request_id: str
    def __init__(self, job_id: _Optional[str] = ..., reason: _Optional[str] = ..., incarnation: _Optional[int] = ..., request_id: _Optional[str] = ...) -> None: ...

class TerminateJobResponse(_message.Message):
    __slots__ = ("job_ids", "incarnation")
    JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    job_ids: _containers.RepeatedScalarFieldContainer[str]
    incarnation: int
    def __init__(self, job_ids: _Optional[_Iterable[str]] = ..., incarnation: _Optional[int] = ...) -> None: ...

class CompleteJobRequest(_message.Message):
    __slots__ = ("job_id", "request_id")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    request_id: str
    def __init__(self, job_id: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class CompleteJobResponse(_message.Message):
    __slots__ = ("job_ids",)
    JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    job_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, job_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class KickTasksRequest(_message.Message):
    __slots__ = ("targets", "desired_state", "reason", "dry_run", "request_id")
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    DESIRED_STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    targets: _containers.RepeatedScalarFieldContainer[str]
    desired_state: _common_pb2.TaskState
    reason: str
    dry_run: bool
    request_id: str
    def __init__(self, targets: _Optional[_Iterable[str]] = ..., desired_state: _Optional[_Union[_common_pb2.TaskState, str]] = ..., reason: _Optional[str] = ..., dry_run: _Optional[bool] = ..., request_id: _Optional[str] = ...) -> None: ...

class KickResult(_message.Message):
    __slots__ = ("target", "task_id", "queued", "detail")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    target: str
    task_id: str
    queued: bool
    detail: str
    def __init__(self, target: _Optional[str] = ..., task_id: _Optional[str] = ..., queued: _Optional[bool] = ..., detail: _Optional[str] = ...) -> None: ...

class KickTasksResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[KickResult]
    def __init__(self, results: _Optional[_Iterable[_Union[KickResult, _Mapping]]] = ...) -> None: ...

class AttemptStatus(_message.Message):
    __slots__ = ("attempt_uid", "task_id", "attempt_id", "state", "worker_id", "created_at_ms", "started_at_ms", "finished_at_ms", "exit_code", "error", "terminal_reason", "memory_peak_bytes", "log_lines", "current", "outputs", "charge")
    ATTEMPT_UID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_REASON_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOG_LINES_FIELD_NUMBER: _ClassVar[int]
    CURRENT_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    CHARGE_FIELD_NUMBER: _ClassVar[int]
    attempt_uid: str
    task_id: str
    attempt_id: int
    state: _common_pb2.TaskState
    worker_id: str
    created_at_ms: int
    started_at_ms: int
    finished_at_ms: int
    exit_code: int
    error: str
    terminal_reason: str
    memory_peak_bytes: int
    log_lines: int
    current: bool
    outputs: _common_pb2.TaskOutputs
    charge: AttemptCharge
    def __init__(self, attempt_uid: _Optional[str] = ..., task_id: _Optional[str] = ..., attempt_id: _Optional[int] = ..., state: _Optional[_Union[_common_pb2.TaskState, str]] = ..., worker_id: _Optional[str] = ..., created_at_ms: _Optional[int] = ..., started_at_ms: _Optional[int] = ..., finished_at_ms: _Optional[int] = ..., exit_code: _Optional[int] = ..., error: _Optional[str] = ..., terminal_reason: _Optional[str] = ..., memory_peak_bytes: _Optional[int] = ..., log_lines: _Optional[int] = ..., current: _Optional[bool] = ..., outputs: _Optional[_Union[_common_pb2.TaskOutputs, _Mapping]] = ..., charge: _Optional[_Union[AttemptCharge, str]] = ...) -> None: ...

class TaskStatus(_message.Message):
    __slots__ = ("task_id", "job_id", "task_index", "state", "current_attempt_id", "attempt_uid", "worker_id", "worker_address", "exit_code", "error", "pending_reason", "submitted_at_ms", "started_at_ms", "finished_at_ms", "failure_count", "preemption_count", "memory_peak_bytes", "log_lines", "incarnation", "priority_band", "placed_band", "memory_bytes", "cpu_millicores", "status_md")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_INDEX_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_UID_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PENDING_REASON_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_COUNT_FIELD_NUMBER: _ClassVar[int]
    PREEMPTION_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOG_LINES_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_BAND_FIELD_NUMBER: _ClassVar[int]
    PLACED_BAND_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_MILLICORES_FIELD_NUMBER: _ClassVar[int]
    STATUS_MD_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    job_id: str
    task_index: int
    state: _common_pb2.TaskState
    current_attempt_id: int
    attempt_uid: str
    worker_id: str
    worker_address: str
    exit_code: int
    error: str
    pending_reason: str
    submitted_at_ms: int
    started_at_ms: int
    finished_at_ms: int
    failure_count: int
    preemption_count: int
    memory_peak_bytes: int
    log_lines: int
    incarnation: int
    priority_band: _common_pb2.PriorityBand
    placed_band: _common_pb2.PriorityBand
    memory_bytes: int
    cpu_millicores: int
    status_md: str
    def __init__(self, task_id: _Optional[str] = ..., job_id: _Optional[str] = ..., task_index: _Optional[int] = ..., state: _Optional[_Union[_common_pb2.TaskState, str]] = ..., current_attempt_id: _Optional[int] = ..., attempt_uid: _Optional[str] = ..., worker_id: _Optional[str] = ..., worker_address: _Optional[str] = ..., exit_code: _Optional[int] = ..., error: _Optional[str] = ..., pending_reason: _Optional[str] = ..., submitted_at_ms: _Optional[int] = ..., started_at_ms: _Optional[int] = ..., finished_at_ms: _Optional[int] = ..., failure_count: _Optional[int] = ..., preemption_count: _Optional[int] = ..., memory_peak_bytes: _Optional[int] = ..., log_lines: _Optional[int] = ..., incarnation: _Optional[int] = ..., priority_band: _Optional[_Union[_common_pb2.PriorityBand, str]] = ..., placed_band: _Optional[_Union[_common_pb2.PriorityBand, str]] = ..., memory_bytes: _Optional[int] = ..., cpu_millicores: _Optional[int] = ..., status_md: _Optional[str] = ...) -> None: ...

class GetTaskStatusRequest(_message.Message):
    __slots__ = ("task_id",)
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    def __init__(self, task_id: _Optional[str] = ...) -> None: ...

class GetTaskStatusResponse(_message.Message):
    __slots__ = ("task", "attempts", "resources", "revision")
    TASK_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    task: TaskStatus
    attempts: _containers.RepeatedCompositeFieldContainer[AttemptStatus]
    resources: _common_pb2.Resources
    revision: _common_pb2.Revision
    def __init__(self, task: _Optional[_Union[TaskStatus, _Mapping]] = ..., attempts: _Optional[_Iterable[_Union[AttemptStatus, _Mapping]]] = ..., resources: _Optional[_Union[_common_pb2.Resources, _Mapping]] = ..., revision: _Optional[_Union[_common_pb2.Revision, _Mapping]] = ...) -> None: ...

class ListTasksRequest(_message.Message):
    __slots__ = ("job_id", "page_size", "page_token", "filter")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    page_size: int
    page_token: str
    filter: str
    def __init__(self, job_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., filter: _Optional[str] = ...) -> None: ...

class ListTasksResponse(_message.Message):
    __slots__ = ("tasks", "next_page_token", "total_count", "total_capped", "revision")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOTAL_COUNT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_CAPPED_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[TaskStatus]
    next_page_token: str
    total_count: int
    total_capped: bool
    revision: _common_pb2.Revision
    def __init__(self, tasks: _Optional[_Iterable[_Union[TaskStatus, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., total_count: _Optional[int] = ..., total_capped: _Optional[bool] = ..., revision: _Optional[_Union[_common_pb2.Revision, _Mapping]] = ...) -> None: ...

class ExplainJobRequest(_message.Message):
    __slots__ = ("job_id", "launch", "what_if")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_FIELD_NUMBER: _ClassVar[int]
    WHAT_IF_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    launch: LaunchJobRequest
    what_if: _explain_pb2.WhatIf
    def __init__(self, job_id: _Optional[str] = ..., launch: _Optional[_Union[LaunchJobRequest, _Mapping]] = ..., what_if: _Optional[_Union[_explain_pb2.WhatIf, _Mapping]] = ...) -> None: ...

class ExplainJobResponse(_message.Message):
    __slots__ = ("explanation",)
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    explanation: _explain_pb2.Explanation
    def __init__(self, explanation: _Optional[_Union[_explain_pb2.Explanation, _Mapping]] = ...) -> None: ...

class ExplainTaskRequest(_message.Message):
    __slots__ = ("task_id", "what_if")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    WHAT_IF_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    what_if: _explain_pb2.WhatIf
    def __init__(self, task_id: _Optional[str] = ..., what_if: _Optional[_Union[_explain_pb2.WhatIf, _Mapping]] = ...) -> None: ...

class ExplainTaskResponse(_message.Message):
    __slots__ = ("explanation",)
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    explanation: _explain_pb2.Explanation
    def __init__(self, explanation: _Optional[_Union[_explain_pb2.Explanation, _Mapping]] = ...) -> None: ...

class ExecInContainerRequest(_message.Message):
    __slots__ = ("task_id", "command", "timeout_seconds", "request_id")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    command: _containers.RepeatedScalarFieldContainer[str]
    timeout_seconds: int
    request_id: str
    def __init__(self, task_id: _Optional[str] = ..., command: _Optional[_Iterable[str]] = ..., timeout_seconds: _Optional[int] = ..., request_id: _Optional[str] = ...) -> None: ...

class ExecInContainerResponse(_message.Message):
    __slots__ = ("exit_code", "stdout", "stderr", "error", "truncated")
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    exit_code: int
    stdout: bytes
    stderr: bytes
    error: str
    truncated: bool
    def __init__(self, exit_code: _Optional[int] = ..., stdout: _Optional[bytes] = ..., stderr: _Optional[bytes] = ..., error: _Optional[str] = ..., truncated: _Optional[bool] = ...) -> None: ...

class GetProcessStatusRequest(_message.Message):
    __slots__ = ("target",)
    TARGET_FIELD_NUMBER: _ClassVar[int]
    target: str
    def __init__(self, target: _Optional[str] = ...) -> None: ...

class GetProcessStatusResponse(_message.Message):
    __slots__ = ("process",)
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    process: _common_pb2.ProcessInfo
    def __init__(self, process: _Optional[_Union[_common_pb2.ProcessInfo, _Mapping]] = ...) -> None: ...

class WorkerStatus(_message.Message):
    __slots__ = ("worker_id", "address", "health", "health_reason", "hostname", "total", "committed", "running_tasks", "attributes", "last_message_age_ms", "boot_id", "pid", "version", "release", "attached", "build_failures", "stopping", "excluded")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _common_pb2.AttributeValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_common_pb2.AttributeValue, _Mapping]] = ...) -> None: ...
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    HEALTH_REASON_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    RUNNING_TASKS_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    LAST_MESSAGE_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    BUILD_FAILURES_FIELD_NUMBER: _ClassVar[int]
    STOPPING_FIELD_NUMBER: _ClassVar[int]
    EXCLUDED_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    address: str
    health: _common_pb2.WorkerHealth
    health_reason: str
    hostname: str
    total: _common_pb2.Resources
    committed: _common_pb2.Resources
    running_tasks: int
    attributes: _containers.MessageMap[str, _common_pb2.AttributeValue]
    last_message_age_ms: int
    boot_id: str
    pid: int
    version: str
    release: str
    attached: bool
    build_failures: int
    stopping: bool
    excluded: bool
    def __init__(self, worker_id: _Optional[str] = ..., address: _Optional[str] = ..., health: _Optional[_Union[_common_pb2.WorkerHealth, str]] = ..., health_reason: _Optional[str] = ..., hostname: _Optional[str] = ..., total: _Optional[_Union[_common_pb2.Resources, _Mapping]] = ..., committed: _Optional[_Union[_common_pb2.Resources, _Mapping]] = ..., running_tasks: _Optional[int] = ..., attributes: _Optional[_Mapping[str, _common_pb2.AttributeValue]] = ..., last_message_age_ms: _Optional[int] = ..., boot_id: _Optional[str] = ..., pid: _Optional[int] = ..., version: _Optional[str] = ..., release: _Optional[str] = ..., attached: _Optional[bool] = ..., build_failures: _Optional[int] = ..., stopping: _Optional[bool] = ..., excluded: _Optional[bool] = ...) -> None: ...

class ListWorkersRequest(_message.Message):
    __slots__ = ("filter", "page_size", "page_token")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    filter: str
    page_size: int
    page_token: str
    def __init__(self, filter: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListWorkersResponse(_message.Message):
    __slots__ = ("workers", "next_page_token", "total_count", "total_capped", "revision")
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOTAL_COUNT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_CAPPED_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerStatus]
    next_page_token: str
    total_count: int
    total_capped: bool
    revision: _common_pb2.Revision
    def __init__(self, workers: _Optional[_Iterable[_Union[WorkerStatus, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., total_count: _Optional[int] = ..., total_capped: _Optional[bool] = ..., revision: _Optional[_Union[_common_pb2.Revision, _Mapping]] = ...) -> None: ...

class PendingBucket(_message.Message):
    __slots__ = ("band", "user_id", "job_id", "backend_id", "count")
    BAND_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    BACKEND_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    band: _common_pb2.PriorityBand
    user_id: str
    job_id: str
    backend_id: str
    count: int
    def __init__(self, band: _Optional[_Union[_common_pb2.PriorityBand, str]] = ..., user_id: _Optional[str] = ..., job_id: _Optional[str] = ..., backend_id: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class RunningBucket(_message.Message):
    __slots__ = ("band", "user_id", "worker_id", "job_id", "backend_id", "count")
    BAND_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    BACKEND_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    band: _common_pb2.PriorityBand
    user_id: str
    worker_id: str
    job_id: str
    backend_id: str
    count: int
    def __init__(self, band: _Optional[_Union[_common_pb2.PriorityBand, str]] = ..., user_id: _Optional[str] = ..., worker_id: _Optional[str] = ..., job_id: _Optional[str] = ..., backend_id: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class QueueEntry(_message.Message):
    __slots__ = ("position", "job_id", "count", "band", "user_id", "resources", "constraints", "reason", "requested_band")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    BAND_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINTS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_BAND_FIELD_NUMBER: _ClassVar[int]
    position: int
    job_id: str
    count: int
    band: _common_pb2.PriorityBand
    user_id: str
    resources: _common_pb2.Resources
    constraints: _containers.RepeatedCompositeFieldContainer[_common_pb2.Constraint]
    reason: str
    requested_band: _common_pb2.PriorityBand
    def __init__(self, position: _Optional[int] = ..., job_id: _Optional[str] = ..., count: _Optional[int] = ..., band: _Optional[_Union[_common_pb2.PriorityBand, str]] = ..., user_id: _Optional[str] = ..., resources: _Optional[_Union[_common_pb2.Resources, _Mapping]] = ..., constraints: _Optional[_Iterable[_Union[_common_pb2.Constraint, _Mapping]]] = ..., reason: _Optional[str] = ..., requested_band: _Optional[_Union[_common_pb2.PriorityBand, str]] = ...) -> None: ...

class GetSchedulerStateRequest(_message.Message):
    __slots__ = ("max_queue", "max_running_buckets")
    MAX_QUEUE_FIELD_NUMBER: _ClassVar[int]
    MAX_RUNNING_BUCKETS_FIELD_NUMBER: _ClassVar[int]
    max_queue: int
    max_running_buckets: int
    def __init__(self, max_queue: _Optional[int] = ..., max_running_buckets: _Optional[int] = ...) -> None: ...

class GetSchedulerStateResponse(_message.Message):
    __slots__ = ("total_pending", "total_running", "pending_buckets", "running_buckets", "pending_queue", "queue_capped", "revision", "user_budgets", "running_capped")
    TOTAL_PENDING_FIELD_NUMBER: _ClassVar[int]
    TOTAL_RUNNING_FIELD_NUMBER: _ClassVar[int]
    PENDING_BUCKETS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_BUCKETS_FIELD_NUMBER: _ClassVar[int]
    PENDING_QUEUE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_CAPPED_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    USER_BUDGETS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_CAPPED_FIELD_NUMBER: _ClassVar[int]
    total_pending: int
    total_running: int
    pending_buckets: _containers.RepeatedCompositeFieldContainer[PendingBucket]
    running_buckets: _containers.RepeatedCompositeFieldContainer[RunningBucket]
    pending_queue: _containers.RepeatedCompositeFieldContainer[QueueEntry]
    queue_capped: bool
    revision: _common_pb2.Revision
    user_budgets: _containers.RepeatedCompositeFieldContainer[_budgets_pb2.UserBudget]
    running_capped: bool
    def __init__(self, total_pending: _Optional[int] = ..., total_running: _Optional[int] = ..., pending_buckets: _Optional[_Iterable[_Union[PendingBucket, _Mapping]]] = ..., running_buckets: _Optional[_Iterable[_Union[RunningBucket, _Mapping]]] = ..., pending_queue: _Optional[_Iterable[_Union[QueueEntry, _Mapping]]] = ..., queue_capped: _Optional[bool] = ..., revision: _Optional[_Union[_common_pb2.Revision, _Mapping]] = ..., user_budgets: _Optional[_Iterable[_Union[_budgets_pb2.UserBudget, _Mapping]]] = ..., running_capped: _Optional[bool] = ...) -> None: ...

class GetClusterStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetClusterStatusResponse(_message.Message):
    __slots__ = ("cluster", "boot_id", "version", "release", "started_at_ms", "workers_total", "workers_healthy", "jobs_by_state", "tasks_by_state", "ready", "problems", "state_dir", "finelog_release", "revision", "now_ms", "slices_by_lifecycle", "workers_leaving", "tree", "lag", "ends", "workers_excluded")
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
    class SlicesByLifecycleEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    WORKERS_HEALTHY_FIELD_NUMBER: _ClassVar[int]
    JOBS_BY_STATE_FIELD_NUMBER: _ClassVar[int]
    TASKS_BY_STATE_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    STATE_DIR_FIELD_NUMBER: _ClassVar[int]
    FINELOG_RELEASE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    SLICES_BY_LIFECYCLE_FIELD_NUMBER: _ClassVar[int]
    WORKERS_LEAVING_FIELD_NUMBER: _ClassVar[int]
    TREE_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_EXCLUDED_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    boot_id: str
    version: str
    release: str
    started_at_ms: int
    workers_total: int
    workers_healthy: int
    jobs_by_state: _containers.ScalarMap[str, int]
    tasks_by_state: _containers.ScalarMap[str, int]
    ready: bool
    problems: _containers.RepeatedScalarFieldContainer[str]
    state_dir: str
    finelog_release: str
    revision: _common_pb2.Revision
    now_ms: int
    slices_by_lifecycle: _containers.ScalarMap[str, int]
    workers_leaving: int
    tree: str
    lag: _watch_rows_pb2.LoopLag
    ends: _watch_rows_pb2.HourOfEnds
    workers_excluded: int
    def __init__(self, cluster: _Optional[str] = ..., boot_id: _Optional[str] = ..., version: _Optional[str] = ..., release: _Optional[str] = ..., started_at_ms: _Optional[int] = ..., workers_total: _Optional[int] = ..., workers_healthy: _Optional[int] = ..., jobs_by_state: _Optional[_Mapping[str, int]] = ..., tasks_by_state: _Optional[_Mapping[str, int]] = ..., ready: _Optional[bool] = ..., problems: _Optional[_Iterable[str]] = ..., state_dir: _Optional[str] = ..., finelog_release: _Optional[str] = ..., revision: _Optional[_Union[_common_pb2.Revision, _Mapping]] = ..., now_ms: _Optional[int] = ..., slices_by_lifecycle: _Optional[_Mapping[str, int]] = ..., workers_leaving: _Optional[int] = ..., tree: _Optional[str] = ..., lag: _Optional[_Union[_watch_rows_pb2.LoopLag, _Mapping]] = ..., ends: _Optional[_Union[_watch_rows_pb2.HourOfEnds, _Mapping]] = ..., workers_excluded: _Optional[int] = ...) -> None: ...

class GetCurrentUserRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetCurrentUserResponse(_message.Message):
    __slots__ = ("user_id", "role", "read_only")
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    role: str
    read_only: bool
    def __init__(self, user_id: _Optional[str] = ..., role: _Optional[str] = ..., read_only: _Optional[bool] = ...) -> None: ...

class QueryColumn(_message.Message):
    __slots__ = ("name", "type")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ...) -> None: ...

class ExecuteRawQueryRequest(_message.Message):
    __slots__ = ("sql", "database", "max_rows")
    SQL_FIELD_NUMBER: _ClassVar[int]
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    MAX_ROWS_FIELD_NUMBER: _ClassVar[int]
    sql: str
    database: str
    max_rows: int
    def __init__(self, sql: _Optional[str] = ..., database: _Optional[str] = ..., max_rows: _Optional[int] = ...) -> None: ...

class ExecuteRawQueryResponse(_message.Message):
    __slots__ = ("columns", "rows", "total_count", "truncated")
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_COUNT_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    columns: _containers.RepeatedCompositeFieldContainer[QueryColumn]
    rows: _containers.RepeatedScalarFieldContainer[str]
    total_count: int
    truncated: bool
    def __init__(self, columns: _Optional[_Iterable[_Union[QueryColumn, _Mapping]]] = ..., rows: _Optional[_Iterable[str]] = ..., total_count: _Optional[int] = ..., truncated: _Optional[bool] = ...) -> None: ...

class WatchSelector(_message.Message):
    __slots__ = ("id", "kind", "filter", "job_ids", "resume", "task_ids")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    TASK_IDS_FIELD_NUMBER: _ClassVar[int]
    id: str
    kind: WatchKind
    filter: str
    job_ids: _containers.RepeatedScalarFieldContainer[str]
    resume: _common_pb2.Revision
    task_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., kind: _Optional[_Union[WatchKind, str]] = ..., filter: _Optional[str] = ..., job_ids: _Optional[_Iterable[str]] = ..., resume: _Optional[_Union[_common_pb2.Revision, _Mapping]] = ..., task_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("selectors",)
    SELECTORS_FIELD_NUMBER: _ClassVar[int]
    selectors: _containers.RepeatedCompositeFieldContainer[WatchSelector]
    def __init__(self, selectors: _Optional[_Iterable[_Union[WatchSelector, _Mapping]]] = ...) -> None: ...

class WatchRows(_message.Message):
    __slots__ = ("selector_id", "jobs", "tasks", "workers", "removed", "attempts", "pending_buckets", "running_buckets", "scale_groups", "slices", "actions", "users", "endpoints", "backends", "controller", "fleet")
    SELECTOR_ID_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    PENDING_BUCKETS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_BUCKETS_FIELD_NUMBER: _ClassVar[int]
    SCALE_GROUPS_FIELD_NUMBER: _ClassVar[int]
    SLICES_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    BACKENDS_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    FLEET_FIELD_NUMBER: _ClassVar[int]
    selector_id: str
    jobs: _containers.RepeatedCompositeFieldContainer[JobStatus]
    tasks: _containers.RepeatedCompositeFieldContainer[TaskStatus]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerStatus]
    removed: _containers.RepeatedScalarFieldContainer[str]
    attempts: _containers.RepeatedCompositeFieldContainer[AttemptStatus]
    pending_buckets: _containers.RepeatedCompositeFieldContainer[_watch_rows_pb2.PendingBucketRow]
    running_buckets: _containers.RepeatedCompositeFieldContainer[_watch_rows_pb2.RunningBucketRow]
    scale_groups: _containers.RepeatedCompositeFieldContainer[_autoscaler_pb2.ScaleGroupStatus]
    slices: _containers.RepeatedCompositeFieldContainer[_autoscaler_pb2.SliceStatus]
    actions: _containers.RepeatedCompositeFieldContainer[_autoscaler_pb2.AutoscalerAction]
    users: _containers.RepeatedCompositeFieldContainer[_watch_rows_pb2.UserRow]
    endpoints: _containers.RepeatedCompositeFieldContainer[_endpoints_pb2.Endpoint]
    backends: _containers.RepeatedCompositeFieldContainer[_watch_rows_pb2.BackendRow]
    controller: _containers.RepeatedCompositeFieldContainer[_watch_rows_pb2.ControllerRow]
    fleet: _containers.RepeatedCompositeFieldContainer[_watch_rows_pb2.FleetRow]
    def __init__(self, selector_id: _Optional[str] = ..., jobs: _Optional[_Iterable[_Union[JobStatus, _Mapping]]] = ..., tasks: _Optional[_Iterable[_Union[TaskStatus, _Mapping]]] = ..., workers: _Optional[_Iterable[_Union[WorkerStatus, _Mapping]]] = ..., removed: _Optional[_Iterable[str]] = ..., attempts: _Optional[_Iterable[_Union[AttemptStatus, _Mapping]]] = ..., pending_buckets: _Optional[_Iterable[_Union[_watch_rows_pb2.PendingBucketRow, _Mapping]]] = ..., running_buckets: _Optional[_Iterable[_Union[_watch_rows_pb2.RunningBucketRow, _Mapping]]] = ..., scale_groups: _Optional[_Iterable[_Union[_autoscaler_pb2.ScaleGroupStatus, _Mapping]]] = ..., slices: _Optional[_Iterable[_Union[_autoscaler_pb2.SliceStatus, _Mapping]]] = ..., actions: _Optional[_Iterable[_Union[_autoscaler_pb2.AutoscalerAction, _Mapping]]] = ..., users: _Optional[_Iterable[_Union[_watch_rows_pb2.UserRow, _Mapping]]] = ..., endpoints: _Optional[_Iterable[_Union[_endpoints_pb2.Endpoint, _Mapping]]] = ..., backends: _Optional[_Iterable[_Union[_watch_rows_pb2.BackendRow, _Mapping]]] = ..., controller: _Optional[_Iterable[_Union[_watch_rows_pb2.ControllerRow, _Mapping]]] = ..., fleet: _Optional[_Iterable[_Union[_watch_rows_pb2.FleetRow, _Mapping]]] = ...) -> None: ...

class WatchSnapshotPage(_message.Message):
    __slots__ = ("rows", "last", "revision", "total_count")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    TOTAL_COUNT_FIELD_NUMBER: _ClassVar[int]
    rows: WatchRows
    last: bool
    revision: _common_pb2.Revision
    total_count: int
    def __init__(self, rows: _Optional[_Union[WatchRows, _Mapping]] = ..., last: _Optional[bool] = ..., revision: _Optional[_Union[_common_pb2.Revision, _Mapping]] = ..., total_count: _Optional[int] = ...) -> None: ...

class WatchDelta(_message.Message):
    __slots__ = ("rows", "revision")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[WatchRows]
    revision: _common_pb2.Revision
    def __init__(self, rows: _Optional[_Iterable[_Union[WatchRows, _Mapping]]] = ..., revision: _Optional[_Union[_common_pb2.Revision, _Mapping]] = ...) -> None: ...

class WatchHeartbeat(_message.Message):
    __slots__ = ("revision", "now_ms")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    revision: _common_pb2.Revision
    now_ms: int
    def __init__(self, revision: _Optional[_Union[_common_pb2.Revision, _Mapping]] = ..., now_ms: _Optional[int] = ...) -> None: ...

class WatchResync(_message.Message):
    __slots__ = ("selector_id", "reason")
    SELECTOR_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    selector_id: str
    reason: str
    def __init__(self, selector_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("snapshot", "delta", "heartbeat", "resync")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    RESYNC_FIELD_NUMBER: _ClassVar[int]
    snapshot: WatchSnapshotPage
    delta: WatchDelta
    heartbeat: WatchHeartbeat
    resync: WatchResync
    def __init__(self, snapshot: _Optional[_Union[WatchSnapshotPage, _Mapping]] = ..., delta: _Optional[_Union[WatchDelta, _Mapping]] = ..., heartbeat: _Optional[_Union[WatchHeartbeat, _Mapping]] = ..., resync: _Optional[_Union[WatchResync, _Mapping]] = ...) -> None: ...
