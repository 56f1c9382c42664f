from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class BeginCheckpointRequest(_message.Message):
    __slots__ = ("stop", "request_id")
    STOP_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    stop: bool
    request_id: str
    def __init__(self, stop: _Optional[bool] = ..., request_id: _Optional[str] = ...) -> None: ...

class BeginCheckpointResponse(_message.Message):
    __slots__ = ("checkpoint_path", "created_at_ms", "job_count", "task_count", "worker_count", "size_bytes")
    CHECKPOINT_PATH_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    JOB_COUNT_FIELD_NUMBER: _ClassVar[int]
    TASK_COUNT_FIELD_NUMBER: _ClassVar[int]
    WORKER_COUNT_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    checkpoint_path: str
    created_at_ms: int
    job_count: int
    task_count: int
    worker_count: int
    size_bytes: int
    def __init__(self, checkpoint_path: _Optional[str] = ..., created_at_ms: _Optional[int] = ..., job_count: _Optional[int] = ..., task_count: _Optional[int] = ..., worker_count: _Optional[int] = ..., size_bytes: _Optional[int] = ...) -> None: ...
