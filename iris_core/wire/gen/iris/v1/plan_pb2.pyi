from iris_core.wire.gen.iris.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PlanRequest(_message.Message):
    __slots__ = ("method", "requests", "requests_json")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_JSON_FIELD_NUMBER: _ClassVar[int]
    method: str
    requests: _containers.RepeatedScalarFieldContainer[bytes]
    requests_json: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, method: _Optional[str] = ..., requests: _Optional[_Iterable[bytes]] = ..., requests_json: _Optional[_Iterable[str]] = ...) -> None: ...

class PlanTarget(_message.Message):
    __slots__ = ("kind", "id", "generation", "note")
    KIND_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    kind: str
    id: str
    generation: str
    note: str
    def __init__(self, kind: _Optional[str] = ..., id: _Optional[str] = ..., generation: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class PlanSkip(_message.Message):
    __slots__ = ("id", "why")
    ID_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    id: str
    why: str
    def __init__(self, id: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class PlanCounts(_message.Message):
    __slots__ = ("jobs", "child_jobs", "running_tasks", "waiting_tasks", "workers", "capped")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    CHILD_JOBS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_TASKS_FIELD_NUMBER: _ClassVar[int]
    WAITING_TASKS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    CAPPED_FIELD_NUMBER: _ClassVar[int]
    jobs: int
    child_jobs: int
    running_tasks: int
    waiting_tasks: int
    workers: int
    capped: bool
    def __init__(self, jobs: _Optional[int] = ..., child_jobs: _Optional[int] = ..., running_tasks: _Optional[int] = ..., waiting_tasks: _Optional[int] = ..., workers: _Optional[int] = ..., capped: _Optional[bool] = ...) -> None: ...

class PlanResponse(_message.Message):
    __slots__ = ("method", "tier", "effects", "lasting", "counts", "targets", "skipped", "hints", "token", "expires_in_ms", "requests", "cluster", "revision")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    EFFECTS_FIELD_NUMBER: _ClassVar[int]
    LASTING_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    HINTS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_MS_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    method: str
    tier: int
    effects: _containers.RepeatedScalarFieldContainer[str]
    lasting: _containers.RepeatedScalarFieldContainer[str]
    counts: PlanCounts
    targets: _containers.RepeatedCompositeFieldContainer[PlanTarget]
    skipped: _containers.RepeatedCompositeFieldContainer[PlanSkip]
    hints: _containers.RepeatedScalarFieldContainer[str]
    token: str
    expires_in_ms: int
    requests: _containers.RepeatedScalarFieldContainer[bytes]
    cluster: str
    revision: _common_pb2.Revision
    def __init__(self, method: _Optional[str] = ..., tier: _Optional[int] = ..., effects: _Optional[_Iterable[str]] = ..., lasting: _Optional[_Iterable[str]] = ..., counts: _Optional[_Union[PlanCounts, _Mapping]] = ..., targets: _Optional[_Iterable[_Union[PlanTarget, _Mapping]]] = ..., skipped: _Optional[_Iterable[_Union[PlanSkip, _Mapping]]] = ..., hints: _Optional[_Iterable[str]] = ..., token: _Optional[str] = ..., expires_in_ms: _Optional[int] = ..., requests: _Optional[_Iterable[bytes]] = ..., cluster: _Optional[str] = ..., revision: _Optional[_Union[_common_pb2.Revision, _Mapping]] = ...) -> None: ...
