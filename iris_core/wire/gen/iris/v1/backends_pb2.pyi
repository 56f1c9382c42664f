from iris_core.wire.gen.iris.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DeviceAvailability(_message.Message):
    __slots__ = ("kind", "variant", "total", "free", "held_by_band")
    class HeldByBandEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    KIND_FIELD_NUMBER: _ClassVar[int]
    VARIANT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    HELD_BY_BAND_FIELD_NUMBER: _ClassVar[int]
    kind: str
    variant: str
    total: int
    free: int
    held_by_band: _containers.ScalarMap[str, int]
    def __init__(self, kind: _Optional[str] = ..., variant: _Optional[str] = ..., total: _Optional[int] = ..., free: _Optional[int] = ..., held_by_band: _Optional[_Mapping[str, int]] = ...) -> None: ...

class BackendStatus(_message.Message):
    __slots__ = ("backend_id", "name", "kind", "capabilities", "scale_groups", "workers_total", "workers_healthy", "pending_tasks", "running_tasks", "attributes", "devices", "total", "committed", "detail")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: AttributeValues
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[AttributeValues, _Mapping]] = ...) -> None: ...
    BACKEND_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    SCALE_GROUPS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    WORKERS_HEALTHY_FIELD_NUMBER: _ClassVar[int]
    PENDING_TASKS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_TASKS_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    backend_id: str
    name: str
    kind: str
    capabilities: _containers.RepeatedScalarFieldContainer[str]
    scale_groups: _containers.RepeatedScalarFieldContainer[str]
    workers_total: int
    workers_healthy: int
    pending_tasks: int
    running_tasks: int
    attributes: _containers.MessageMap[str, AttributeValues]
    devices: _containers.RepeatedCompositeFieldContainer[DeviceAvailability]
    total: _common_pb2.Resources
    committed: _common_pb2.Resources
    detail: str
    def __init__(self, backend_id: _Optional[str] = ..., name: _Optional[str] = ..., kind: _Optional[str] = ..., capabilities: _Optional[_Iterable[str]] = ..., scale_groups: _Optional[_Iterable[str]] = ..., workers_total: _Optional[int] = ..., workers_healthy: _Optional[int] = ..., pending_tasks: _Optional[int] = ..., running_tasks: _Optional[int] = ..., attributes: _Optional[_Mapping[str, AttributeValues]] = ..., devices: _Optional[_Iterable[_Union[DeviceAvailability, _Mapping]]] = ..., total: _Optional[_Union[_common_pb2.Resources, _Mapping]] = ..., committed: _Optional[_Union[_common_pb2.Resources, _Mapping]] = ..., detail: _Optional[str] = ...) -> None: ...

class AttributeValues(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[_common_pb2.AttributeValue]
    def __init__(self, values: _Optional[_Iterable[_Union[_common_pb2.AttributeValue, _Mapping]]] = ...) -> None: ...

class ListBackendsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListBackendsResponse(_message.Message):
    __slots__ = ("backends", "observed_at_ms")
    BACKENDS_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    backends: _containers.RepeatedCompositeFieldContainer[BackendStatus]
    observed_at_ms: int
    def __init__(self, backends: _Optional[_Iterable[_Union[BackendStatus, _Mapping]]] = ..., observed_at_ms: _Optional[int] = ...) -> None: ...

class ScaleGroupCapacity(_message.Message):
    __slots__ = ("scale_group", "slices", "workers_total", "workers_healthy", "total", "committed", "devices")
    SCALE_GROUP_FIELD_NUMBER: _ClassVar[int]
    SLICES_FIELD_NUMBER: _ClassVar[int]
    WORKERS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    WORKERS_HEALTHY_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    scale_group: str
    slices: int
    workers_total: int
    workers_healthy: int
    total: _common_pb2.Resources
    committed: _common_pb2.Resources
    devices: _containers.RepeatedCompositeFieldContainer[DeviceAvailability]
    def __init__(self, scale_group: _Optional[str] = ..., slices: _Optional[int] = ..., workers_total: _Optional[int] = ..., workers_healthy: _Optional[int] = ..., total: _Optional[_Union[_common_pb2.Resources, _Mapping]] = ..., committed: _Optional[_Union[_common_pb2.Resources, _Mapping]] = ..., devices: _Optional[_Iterable[_Union[DeviceAvailability, _Mapping]]] = ...) -> None: ...

class SchedulingEvent(_message.Message):
    __slots__ = ("reason", "jobs", "tasks", "example_job_id")
    REASON_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    EXAMPLE_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    reason: str
    jobs: int
    tasks: int
    example_job_id: str
    def __init__(self, reason: _Optional[str] = ..., jobs: _Optional[int] = ..., tasks: _Optional[int] = ..., example_job_id: _Optional[str] = ...) -> None: ...

class WorkerProblem(_message.Message):
    __slots__ = ("worker_id", "health", "reason")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    health: _common_pb2.WorkerHealth
    reason: str
    def __init__(self, worker_id: _Optional[str] = ..., health: _Optional[_Union[_common_pb2.WorkerHealth, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class GetProviderStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetProviderStatusResponse(_message.Message):
    __slots__ = ("backend_id", "kind", "platform", "capacity", "scheduling_events", "problems", "problems_total", "capped", "revision")
    BACKEND_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PLATFORM_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    SCHEDULING_EVENTS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    CAPPED_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    backend_id: str
    kind: str
    platform: str
    capacity: _containers.RepeatedCompositeFieldContainer[ScaleGroupCapacity]
    scheduling_events: _containers.RepeatedCompositeFieldContainer[SchedulingEvent]
    problems: _containers.RepeatedCompositeFieldContainer[WorkerProblem]
    problems_total: int
    capped: bool
    revision: _common_pb2.Revision
    def __init__(self, backend_id: _Optional[str] = ..., kind: _Optional[str] = ..., platform: _Optional[str] = ..., capacity: _Optional[_Iterable[_Union[ScaleGroupCapacity, _Mapping]]] = ..., scheduling_events: _Optional[_Iterable[_Union[SchedulingEvent, _Mapping]]] = ..., problems: _Optional[_Iterable[_Union[WorkerProblem, _Mapping]]] = ..., problems_total: _Optional[int] = ..., capped: _Optional[bool] = ..., revision: _Optional[_Union[_common_pb2.Revision, _Mapping]] = ...) -> None: ...
