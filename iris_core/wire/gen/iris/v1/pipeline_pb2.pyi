from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ShipperHealth(_message.Message):
    __slots__ = ("spool_bytes", "spool_cap_bytes", "waiting_bytes", "lag_ms", "lines", "lost_lines", "last_line_at_ms", "last_ack_at_ms", "problem", "address")
    SPOOL_BYTES_FIELD_NUMBER: _ClassVar[int]
    SPOOL_CAP_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAITING_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAG_MS_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    LOST_LINES_FIELD_NUMBER: _ClassVar[int]
    LAST_LINE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_ACK_AT_MS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    spool_bytes: int
    spool_cap_bytes: int
    waiting_bytes: int
    lag_ms: int
    lines: int
    lost_lines: int
    last_line_at_ms: int
    last_ack_at_ms: int
    problem: str
    address: str
    def __init__(self, spool_bytes: _Optional[int] = ..., spool_cap_bytes: _Optional[int] = ..., waiting_bytes: _Optional[int] = ..., lag_ms: _Optional[int] = ..., lines: _Optional[int] = ..., lost_lines: _Optional[int] = ..., last_line_at_ms: _Optional[int] = ..., last_ack_at_ms: _Optional[int] = ..., problem: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class WorkerPipeline(_message.Message):
    __slots__ = ("worker_id", "attached", "age_ms", "shipper")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    SHIPPER_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    attached: bool
    age_ms: int
    shipper: ShipperHealth
    def __init__(self, worker_id: _Optional[str] = ..., attached: _Optional[bool] = ..., age_ms: _Optional[int] = ..., shipper: _Optional[_Union[ShipperHealth, _Mapping]] = ...) -> None: ...

class StoreHealth(_message.Message):
    __slots__ = ("state", "problem", "release", "last_seq", "disk_bytes", "max_bytes", "disk_free_bytes", "files", "last_line_at_ms", "removed_seq", "damaged_lines", "views", "view_bytes", "waiting_readers", "shipping")
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    LAST_LINE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_SEQ_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_LINES_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    VIEW_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAITING_READERS_FIELD_NUMBER: _ClassVar[int]
    SHIPPING_FIELD_NUMBER: _ClassVar[int]
    state: str
    problem: str
    release: str
    last_seq: int
    disk_bytes: int
    max_bytes: int
    disk_free_bytes: int
    files: int
    last_line_at_ms: int
    removed_seq: int
    damaged_lines: int
    views: int
    view_bytes: int
    waiting_readers: int
    shipping: ShippingHealth
    def __init__(self, state: _Optional[str] = ..., problem: _Optional[str] = ..., release: _Optional[str] = ..., last_seq: _Optional[int] = ..., disk_bytes: _Optional[int] = ..., max_bytes: _Optional[int] = ..., disk_free_bytes: _Optional[int] = ..., files: _Optional[int] = ..., last_line_at_ms: _Optional[int] = ..., removed_seq: _Optional[int] = ..., damaged_lines: _Optional[int] = ..., views: _Optional[int] = ..., view_bytes: _Optional[int] = ..., waiting_readers: _Optional[int] = ..., shipping: _Optional[_Union[ShippingHealth, _Mapping]] = ...) -> None: ...

class ShippingHealth(_message.Message):
    __slots__ = ("state", "problem", "place", "shipped_at_ms", "shipped_seq", "unshipped_bytes", "unshipped_since_ms")
    class ShippedSeqEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    SHIPPED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    SHIPPED_SEQ_FIELD_NUMBER: _ClassVar[int]
    UNSHIPPED_BYTES_FIELD_NUMBER: _ClassVar[int]
    UNSHIPPED_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    state: str
    problem: str
    place: str
    shipped_at_ms: int
    shipped_seq: _containers.ScalarMap[str, int]
    unshipped_bytes: int
    unshipped_since_ms: int
    def __init__(self, state: _Optional[str] = ..., problem: _Optional[str] = ..., place: _Optional[str] = ..., shipped_at_ms: _Optional[int] = ..., shipped_seq: _Optional[_Mapping[str, int]] = ..., unshipped_bytes: _Optional[int] = ..., unshipped_since_ms: _Optional[int] = ...) -> None: ...

class GetPipelineHealthRequest(_message.Message):
    __slots__ = ("target",)
    TARGET_FIELD_NUMBER: _ClassVar[int]
    target: str
    def __init__(self, target: _Optional[str] = ...) -> None: ...

class GetPipelineHealthResponse(_message.Message):
    __slots__ = ("store", "workers", "controller", "problems", "now_ms")
    STORE_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    store: StoreHealth
    workers: _containers.RepeatedCompositeFieldContainer[WorkerPipeline]
    controller: ShipperHealth
    problems: _containers.RepeatedScalarFieldContainer[str]
    now_ms: int
    def __init__(self, store: _Optional[_Union[StoreHealth, _Mapping]] = ..., workers: _Optional[_Iterable[_Union[WorkerPipeline, _Mapping]]] = ..., controller: _Optional[_Union[ShipperHealth, _Mapping]] = ..., problems: _Optional[_Iterable[str]] = ..., now_ms: _Optional[int] = ...) -> None: ...
