from iris_core.wire.gen.iris.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class VmStatus(_message.Message):
    __slots__ = ("vm_id", "worker_id", "address", "state", "error", "attached")
    VM_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    vm_id: str
    worker_id: str
    address: str
    state: str
    error: str
    attached: bool
    def __init__(self, vm_id: _Optional[str] = ..., worker_id: _Optional[str] = ..., address: _Optional[str] = ..., state: _Optional[str] = ..., error: _Optional[str] = ..., attached: _Optional[bool] = ...) -> None: ...

class SliceStatus(_message.Message):
    __slots__ = ("slice_id", "scale_group", "lifecycle", "created_at_ms", "error", "manual", "generation", "busy", "idle_ms", "vms", "idle_since_ms")
    SLICE_ID_FIELD_NUMBER: _ClassVar[int]
    SCALE_GROUP_FIELD_NUMBER: _ClassVar[int]
    LIFECYCLE_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MANUAL_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    IDLE_MS_FIELD_NUMBER: _ClassVar[int]
    VMS_FIELD_NUMBER: _ClassVar[int]
    IDLE_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    slice_id: str
    scale_group: str
    lifecycle: str
    created_at_ms: int
    error: str
    manual: bool
    generation: int
    busy: bool
    idle_ms: int
    vms: _containers.RepeatedCompositeFieldContainer[VmStatus]
    idle_since_ms: int
    def __init__(self, slice_id: _Optional[str] = ..., scale_group: _Optional[str] = ..., lifecycle: _Optional[str] = ..., created_at_ms: _Optional[int] = ..., error: _Optional[str] = ..., manual: _Optional[bool] = ..., generation: _Optional[int] = ..., busy: _Optional[bool] = ..., idle_ms: _Optional[int] = ..., vms: _Optional[_Iterable[_Union[VmStatus, _Mapping]]] = ..., idle_since_ms: _Optional[int] = ...) -> None: ...

class ScaleGroupStatus(_message.Message):
    __slots__ = ("name", "accelerator", "num_vms", "buffer_slices", "max_slices", "priority", "quota_pool", "allocation_tier", "zone", "demand", "peak_demand", "availability", "availability_reason", "blocked_until_ms", "decision", "decision_reason", "slice_state_counts", "consecutive_failures", "backoff_until_ms", "quota_reason", "quota_exceeded_until_ms", "failure_reason", "last_scale_up_ms", "last_scale_down_ms", "idle_threshold_ms", "slices", "resources", "preemptible", "current_slices", "target_slices")
    class SliceStateCountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    ACCELERATOR_FIELD_NUMBER: _ClassVar[int]
    NUM_VMS_FIELD_NUMBER: _ClassVar[int]
    BUFFER_SLICES_FIELD_NUMBER: _ClassVar[int]
    MAX_SLICES_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    QUOTA_POOL_FIELD_NUMBER: _ClassVar[int]
    ALLOCATION_TIER_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    DEMAND_FIELD_NUMBER: _ClassVar[int]
    PEAK_DEMAND_FIELD_NUMBER: _ClassVar[int]
    AVAILABILITY_FIELD_NUMBER: _ClassVar[int]
    AVAILABILITY_REASON_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    DECISION_REASON_FIELD_NUMBER: _ClassVar[int]
    SLICE_STATE_COUNTS_FIELD_NUMBER: _ClassVar[int]
    CONSECUTIVE_FAILURES_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    QUOTA_REASON_FIELD_NUMBER: _ClassVar[int]
    QUOTA_EXCEEDED_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_REASON_FIELD_NUMBER: _ClassVar[int]
    LAST_SCALE_UP_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_SCALE_DOWN_MS_FIELD_NUMBER: _ClassVar[int]
    IDLE_THRESHOLD_MS_FIELD_NUMBER: _ClassVar[int]
    SLICES_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIBLE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_SLICES_FIELD_NUMBER: _ClassVar[int]
    TARGET_SLICES_FIELD_NUMBER: _ClassVar[int]
    name: str
    accelerator: str
    num_vms: int
    buffer_slices: int
    max_slices: int
    priority: int
    quota_pool: str
    allocation_tier: int
    zone: str
    demand: int
    peak_demand: int
    availability: str
    availability_reason: str
    blocked_until_ms: int
    decision: str
    decision_reason: str
    slice_state_counts: _containers.ScalarMap[str, int]
    consecutive_failures: int
    backoff_until_ms: int
    quota_reason: str
    quota_exceeded_until_ms: int
    failure_reason: str
    last_scale_up_ms: int
    last_scale_down_ms: int
    idle_threshold_ms: int
    slices: _containers.RepeatedCompositeFieldContainer[SliceStatus]
    resources: _common_pb2.Resources
    preemptible: bool
    current_slices: int
    target_slices: int
    def __init__(self, name: _Optional[str] = ..., accelerator: _Optional[str] = ..., num_vms: _Optional[int] = ..., buffer_slices: _Optional[int] = ..., max_slices: _Optional[int] = ..., priority: _Optional[int] = ..., quota_pool: _Optional[str] = ..., allocation_tier: _Optional[int] = ..., zone: _Optional[str] = ..., demand: _Optional[int] = ..., peak_demand: _Optional[int] = ..., availability: _Optional[str] = ..., availability_reason: _Optional[str] = ..., blocked_until_ms: _Optional[int] = ..., decision: _Optional[str] = ..., decision_reason: _Optional[str] = ..., slice_state_counts: _Optional[_Mapping[str, int]] = ..., consecutive_failures: _Optional[int] = ..., backoff_until_ms: _Optional[int] = ..., quota_reason: _Optional[str] = ..., quota_exceeded_until_ms: _Optional[int] = ..., failure_reason: _Optional[str] = ..., last_scale_up_ms: _Optional[int] = ..., last_scale_down_ms: _Optional[int] = ..., idle_threshold_ms: _Optional[int] = ..., slices: _Optional[_Iterable[_Union[SliceStatus, _Mapping]]] = ..., resources: _Optional[_Union[_common_pb2.Resources, _Mapping]] = ..., preemptible: _Optional[bool] = ..., current_slices: _Optional[int] = ..., target_slices: _Optional[int] = ...) -> None: ...

class AutoscalerAction(_message.Message):
    __slots__ = ("at_ms", "action", "entity", "scale_group", "status", "reason", "action_id")
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    SCALE_GROUP_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ACTION_ID_FIELD_NUMBER: _ClassVar[int]
    at_ms: int
    action: str
    entity: str
    scale_group: str
    status: str
    reason: str
    action_id: str
    def __init__(self, at_ms: _Optional[int] = ..., action: _Optional[str] = ..., entity: _Optional[str] = ..., scale_group: _Optional[str] = ..., status: _Optional[str] = ..., reason: _Optional[str] = ..., action_id: _Optional[str] = ...) -> None: ...

class RoutedDemand(_message.Message):
    __slots__ = ("job_id", "count", "gang", "band", "scale_group", "code", "reason")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    GANG_FIELD_NUMBER: _ClassVar[int]
    BAND_FIELD_NUMBER: _ClassVar[int]
    SCALE_GROUP_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    count: int
    gang: bool
    band: _common_pb2.PriorityBand
    scale_group: str
    code: str
    reason: str
    def __init__(self, job_id: _Optional[str] = ..., count: _Optional[int] = ..., gang: _Optional[bool] = ..., band: _Optional[_Union[_common_pb2.PriorityBand, str]] = ..., scale_group: _Optional[str] = ..., code: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class RoutingDecision(_message.Message):
    __slots__ = ("group_to_launch", "group_reasons", "routed_entries", "unmet_entries", "entries_capped")
    class GroupToLaunchEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class GroupReasonsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    GROUP_TO_LAUNCH_FIELD_NUMBER: _ClassVar[int]
    GROUP_REASONS_FIELD_NUMBER: _ClassVar[int]
    ROUTED_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    UNMET_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_CAPPED_FIELD_NUMBER: _ClassVar[int]
    group_to_launch: _containers.ScalarMap[str, int]
    group_reasons: _containers.ScalarMap[str, str]
    routed_entries: _containers.RepeatedCompositeFieldContainer[RoutedDemand]
    unmet_entries: _containers.RepeatedCompositeFieldContainer[RoutedDemand]
    entries_capped: bool
    def __init__(self, group_to_launch: _Optional[_Mapping[str, int]] = ..., group_reasons: _Optional[_Mapping[str, str]] = ..., routed_entries: _Optional[_Iterable[_Union[RoutedDemand, _Mapping]]] = ..., unmet_entries: _Optional[_Iterable[_Union[RoutedDemand, _Mapping]]] = ..., entries_capped: _Optional[bool] = ...) -> None: ...

class GetAutoscalerStatusRequest(_message.Message):
    __slots__ = ("backend_id",)
    BACKEND_ID_FIELD_NUMBER: _ClassVar[int]
    backend_id: str
    def __init__(self, backend_id: _Optional[str] = ...) -> None: ...

class GetAutoscalerStatusResponse(_message.Message):
    __slots__ = ("groups", "current_demand", "last_evaluation_ms", "recent_actions", "last_routing_decision", "enabled", "detail", "revision")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    CURRENT_DEMAND_FIELD_NUMBER: _ClassVar[int]
    LAST_EVALUATION_MS_FIELD_NUMBER: _ClassVar[int]
    RECENT_ACTIONS_FIELD_NUMBER: _ClassVar[int]
    LAST_ROUTING_DECISION_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[ScaleGroupStatus]
    current_demand: int
    last_evaluation_ms: int
    recent_actions: _containers.RepeatedCompositeFieldContainer[AutoscalerAction]
    last_routing_decision: RoutingDecision
    enabled: bool
    detail: str
    revision: _common_pb2.Revision
    def __init__(self, groups: _Optional[_Iterable[_Union[ScaleGroupStatus, _Mapping]]] = ..., current_demand: _Optional[int] = ..., last_evaluation_ms: _Optional[int] = ..., recent_actions: _Optional[_Iterable[_Union[AutoscalerAction, _Mapping]]] = ..., last_routing_decision: _Optional[_Union[RoutingDecision, _Mapping]] = ..., enabled: _Optional[bool] = ..., detail: _Optional[str] = ..., revision: _Optional[_Union[_common_pb2.Revision, _Mapping]] = ...) -> None: ...

class CreateSliceRequest(_message.Message):
    __slots__ = ("scale_group", "dry_run", "request_id")
    SCALE_GROUP_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    scale_group: str
    dry_run: bool
    request_id: str
    def __init__(self, scale_group: _Optional[str] = ..., dry_run: _Optional[bool] = ..., request_id: _Optional[str] = ...) -> None: ...

class CreateSliceResponse(_message.Message):
    __slots__ = ("slice_id", "worker_ids")
    SLICE_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_IDS_FIELD_NUMBER: _ClassVar[int]
    slice_id: str
    worker_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, slice_id: _Optional[str] = ..., worker_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteSliceRequest(_message.Message):
    __slots__ = ("slice_id", "confirm", "dry_run", "generation", "reason", "request_id")
    SLICE_ID_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    slice_id: str
    confirm: str
    dry_run: bool
    generation: int
    reason: str
    request_id: str
    def __init__(self, slice_id: _Optional[str] = ..., confirm: _Optional[str] = ..., dry_run: _Optional[bool] = ..., generation: _Optional[int] = ..., reason: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class DeleteSliceResponse(_message.Message):
    __slots__ = ("worker_ids", "task_ids", "generation")
    WORKER_IDS_FIELD_NUMBER: _ClassVar[int]
    TASK_IDS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    worker_ids: _containers.RepeatedScalarFieldContainer[str]
    task_ids: _containers.RepeatedScalarFieldContainer[str]
    generation: int
    def __init__(self, worker_ids: _Optional[_Iterable[str]] = ..., task_ids: _Optional[_Iterable[str]] = ..., generation: _Optional[int] = ...) -> None: ...

class GetVmLogsRequest(_message.Message):
    __slots__ = ("vm_id", "max_lines")
    VM_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_LINES_FIELD_NUMBER: _ClassVar[int]
    vm_id: str
    max_lines: int
    def __init__(self, vm_id: _Optional[str] = ..., max_lines: _Optional[int] = ...) -> None: ...

class GetVmLogsResponse(_message.Message):
    __slots__ = ("vm", "slice", "lines")
    VM_FIELD_NUMBER: _ClassVar[int]
    SLICE_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    vm: VmStatus
    slice: SliceStatus
    lines: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, vm: _Optional[_Union[VmStatus, _Mapping]] = ..., slice: _Optional[_Union[SliceStatus, _Mapping]] = ..., lines: _Optional[_Iterable[str]] = ...) -> None: ...
