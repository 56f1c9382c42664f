from iris_core.wire.gen.iris.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ExplainVerdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXPLAIN_VERDICT_UNSPECIFIED: _ClassVar[ExplainVerdict]
    EXPLAIN_VERDICT_RUNS_NOW: _ClassVar[ExplainVerdict]
    EXPLAIN_VERDICT_WAITS: _ClassVar[ExplainVerdict]
    EXPLAIN_VERDICT_NEVER_FITS: _ClassVar[ExplainVerdict]
    EXPLAIN_VERDICT_PLACED: _ClassVar[ExplainVerdict]
    EXPLAIN_VERDICT_ENDED: _ClassVar[ExplainVerdict]
EXPLAIN_VERDICT_UNSPECIFIED: ExplainVerdict
EXPLAIN_VERDICT_RUNS_NOW: ExplainVerdict
EXPLAIN_VERDICT_WAITS: ExplainVerdict
EXPLAIN_VERDICT_NEVER_FITS: ExplainVerdict
EXPLAIN_VERDICT_PLACED: ExplainVerdict
EXPLAIN_VERDICT_ENDED: ExplainVerdict

class WhatIf(_message.Message):
    __slots__ = ("cpu_millicores", "memory_bytes", "device", "constraints", "without", "priority_band", "replicas")
    CPU_MILLICORES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINTS_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_BAND_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    cpu_millicores: int
    memory_bytes: int
    device: _common_pb2.Device
    constraints: _containers.RepeatedCompositeFieldContainer[_common_pb2.Constraint]
    without: _containers.RepeatedScalarFieldContainer[str]
    priority_band: _common_pb2.PriorityBand
    replicas: int
    def __init__(self, cpu_millicores: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., device: _Optional[_Union[_common_pb2.Device, _Mapping]] = ..., constraints: _Optional[_Iterable[_Union[_common_pb2.Constraint, _Mapping]]] = ..., without: _Optional[_Iterable[str]] = ..., priority_band: _Optional[_Union[_common_pb2.PriorityBand, str]] = ..., replicas: _Optional[int] = ...) -> None: ...

class FoundValue(_message.Message):
    __slots__ = ("value", "workers")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    value: str
    workers: int
    def __init__(self, value: _Optional[str] = ..., workers: _Optional[int] = ...) -> None: ...

class FunnelStep(_message.Message):
    __slots__ = ("name", "wants", "left", "more", "found", "needed", "most_free", "most_total", "suggestion")
    NAME_FIELD_NUMBER: _ClassVar[int]
    WANTS_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    NEEDED_FIELD_NUMBER: _ClassVar[int]
    MOST_FREE_FIELD_NUMBER: _ClassVar[int]
    MOST_TOTAL_FIELD_NUMBER: _ClassVar[int]
    SUGGESTION_FIELD_NUMBER: _ClassVar[int]
    name: str
    wants: str
    left: int
    more: int
    found: _containers.RepeatedCompositeFieldContainer[FoundValue]
    needed: int
    most_free: int
    most_total: int
    suggestion: str
    def __init__(self, name: _Optional[str] = ..., wants: _Optional[str] = ..., left: _Optional[int] = ..., more: _Optional[int] = ..., found: _Optional[_Iterable[_Union[FoundValue, _Mapping]]] = ..., needed: _Optional[int] = ..., most_free: _Optional[int] = ..., most_total: _Optional[int] = ..., suggestion: _Optional[str] = ...) -> None: ...

class Preference(_message.Message):
    __slots__ = ("wants", "met")
    WANTS_FIELD_NUMBER: _ClassVar[int]
    MET_FIELD_NUMBER: _ClassVar[int]
    wants: str
    met: int
    def __init__(self, wants: _Optional[str] = ..., met: _Optional[int] = ...) -> None: ...

class GangGroup(_message.Message):
    __slots__ = ("value", "workers", "fits", "capable", "missing", "blocked")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    FITS_FIELD_NUMBER: _ClassVar[int]
    CAPABLE_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    value: str
    workers: int
    fits: int
    capable: int
    missing: int
    blocked: _containers.RepeatedCompositeFieldContainer[FoundValue]
    def __init__(self, value: _Optional[str] = ..., workers: _Optional[int] = ..., fits: _Optional[int] = ..., capable: _Optional[int] = ..., missing: _Optional[int] = ..., blocked: _Optional[_Iterable[_Union[FoundValue, _Mapping]]] = ...) -> None: ...

class BlockHolder(_message.Message):
    __slots__ = ("task_id", "held", "ended")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    held: int
    ended: bool
    def __init__(self, task_id: _Optional[str] = ..., held: _Optional[int] = ..., ended: _Optional[bool] = ...) -> None: ...

class BlockedWorker(_message.Message):
    __slots__ = ("worker_id", "step", "missing", "holders", "other_holders")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    HOLDERS_FIELD_NUMBER: _ClassVar[int]
    OTHER_HOLDERS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    step: str
    missing: int
    holders: _containers.RepeatedCompositeFieldContainer[BlockHolder]
    other_holders: int
    def __init__(self, worker_id: _Optional[str] = ..., step: _Optional[str] = ..., missing: _Optional[int] = ..., holders: _Optional[_Iterable[_Union[BlockHolder, _Mapping]]] = ..., other_holders: _Optional[int] = ...) -> None: ...

class QueuePlace(_message.Message):
    __slots__ = ("requested_band", "effective_band", "user_id", "budget_spent", "budget_limit", "position", "queue")
    REQUESTED_BAND_FIELD_NUMBER: _ClassVar[int]
    EFFECTIVE_BAND_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    BUDGET_SPENT_FIELD_NUMBER: _ClassVar[int]
    BUDGET_LIMIT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    requested_band: _common_pb2.PriorityBand
    effective_band: _common_pb2.PriorityBand
    user_id: str
    budget_spent: int
    budget_limit: int
    position: int
    queue: int
    def __init__(self, requested_band: _Optional[_Union[_common_pb2.PriorityBand, str]] = ..., effective_band: _Optional[_Union[_common_pb2.PriorityBand, str]] = ..., user_id: _Optional[str] = ..., budget_spent: _Optional[int] = ..., budget_limit: _Optional[int] = ..., position: _Optional[int] = ..., queue: _Optional[int] = ...) -> None: ...

class ScaleGroupVerdict(_message.Message):
    __slots__ = ("scale_group", "verdict", "reason", "can_ever")
    SCALE_GROUP_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CAN_EVER_FIELD_NUMBER: _ClassVar[int]
    scale_group: str
    verdict: str
    reason: str
    can_ever: bool
    def __init__(self, scale_group: _Optional[str] = ..., verdict: _Optional[str] = ..., reason: _Optional[str] = ..., can_ever: _Optional[bool] = ...) -> None: ...

class Explanation(_message.Message):
    __slots__ = ("subject", "verdict", "cause", "notes", "what_if", "state", "tasks", "pending", "resources", "constraints", "workers", "fits", "capable", "released", "funnel", "preferences", "group_by", "gang_size", "groups", "groups_total", "blocked", "place", "scheduler_reason", "warnings", "revision", "scale_groups", "room")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    WHAT_IF_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINTS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    FITS_FIELD_NUMBER: _ClassVar[int]
    CAPABLE_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    FUNNEL_FIELD_NUMBER: _ClassVar[int]
    PREFERENCES_FIELD_NUMBER: _ClassVar[int]
    GROUP_BY_FIELD_NUMBER: _ClassVar[int]
    GANG_SIZE_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_REASON_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SCALE_GROUPS_FIELD_NUMBER: _ClassVar[int]
    ROOM_FIELD_NUMBER: _ClassVar[int]
    subject: str
    verdict: ExplainVerdict
    cause: str
    notes: _containers.RepeatedScalarFieldContainer[str]
    what_if: _containers.RepeatedScalarFieldContainer[str]
    state: str
    tasks: int
    pending: int
    resources: _common_pb2.Resources
    constraints: _containers.RepeatedCompositeFieldContainer[_common_pb2.Constraint]
    workers: int
    fits: int
    capable: int
    released: int
    funnel: _containers.RepeatedCompositeFieldContainer[FunnelStep]
    preferences: _containers.RepeatedCompositeFieldContainer[Preference]
    group_by: str
    gang_size: int
    groups: _containers.RepeatedCompositeFieldContainer[GangGroup]
    groups_total: int
    blocked: _containers.RepeatedCompositeFieldContainer[BlockedWorker]
    place: QueuePlace
    scheduler_reason: str
    warnings: _containers.RepeatedScalarFieldContainer[str]
    revision: _common_pb2.Revision
    scale_groups: _containers.RepeatedCompositeFieldContainer[ScaleGroupVerdict]
    room: int
    def __init__(self, subject: _Optional[str] = ..., verdict: _Optional[_Union[ExplainVerdict, str]] = ..., cause: _Optional[str] = ..., notes: _Optional[_Iterable[str]] = ..., what_if: _Optional[_Iterable[str]] = ..., state: _Optional[str] = ..., tasks: _Optional[int] = ..., pending: _Optional[int] = ..., resources: _Optional[_Union[_common_pb2.Resources, _Mapping]] = ..., constraints: _Optional[_Iterable[_Union[_common_pb2.Constraint, _Mapping]]] = ..., workers: _Optional[int] = ..., fits: _Optional[int] = ..., capable: _Optional[int] = ..., released: _Optional[int] = ..., funnel: _Optional[_Iterable[_Union[FunnelStep, _Mapping]]] = ..., preferences: _Optional[_Iterable[_Union[Preference, _Mapping]]] = ..., group_by: _Optional[str] = ..., gang_size: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[GangGroup, _Mapping]]] = ..., groups_total: _Optional[int] = ..., blocked: _Optional[_Iterable[_Union[BlockedWorker, _Mapping]]] = ..., place: _Optional[_Union[QueuePlace, _Mapping]] = ..., scheduler_reason: _Optional[str] = ..., warnings: _Optional[_Iterable[str]] = ..., revision: _Optional[_Union[_common_pb2.Revision, _Mapping]] = ..., scale_groups: _Optional[_Iterable[_Union[ScaleGroupVerdict, _Mapping]]] = ..., room: _Optional[int] = ...) -> None: ...
