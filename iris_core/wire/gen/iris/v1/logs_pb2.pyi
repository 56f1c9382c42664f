from iris_core.wire.gen.iris.v1 import common_pb2 as _common_pb2
from iris_core.wire.gen.iris.v1 import pipeline_pb2 as _pipeline_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LogEntry(_message.Message):
    __slots__ = ("number", "epoch_ms", "source", "data", "raw", "level", "partial", "gap", "part", "seam", "unended", "back")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_MS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    SEAM_FIELD_NUMBER: _ClassVar[int]
    UNENDED_FIELD_NUMBER: _ClassVar[int]
    BACK_FIELD_NUMBER: _ClassVar[int]
    number: int
    epoch_ms: int
    source: str
    data: str
    raw: bytes
    level: _common_pb2.LogLevel
    partial: bool
    gap: int
    part: int
    seam: str
    unended: bool
    back: int
    def __init__(self, number: _Optional[int] = ..., epoch_ms: _Optional[int] = ..., source: _Optional[str] = ..., data: _Optional[str] = ..., raw: _Optional[bytes] = ..., level: _Optional[_Union[_common_pb2.LogLevel, str]] = ..., partial: _Optional[bool] = ..., gap: _Optional[int] = ..., part: _Optional[int] = ..., seam: _Optional[str] = ..., unended: _Optional[bool] = ..., back: _Optional[int] = ...) -> None: ...

class LogBatch(_message.Message):
    __slots__ = ("producer", "key", "attempt_uid", "incarnation", "entries")
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_UID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    producer: str
    key: str
    attempt_uid: str
    incarnation: int
    entries: _containers.RepeatedCompositeFieldContainer[LogEntry]
    def __init__(self, producer: _Optional[str] = ..., key: _Optional[str] = ..., attempt_uid: _Optional[str] = ..., incarnation: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[LogEntry, _Mapping]]] = ...) -> None: ...

class ProducerMark(_message.Message):
    __slots__ = ("producer", "next_number")
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    NEXT_NUMBER_FIELD_NUMBER: _ClassVar[int]
    producer: str
    next_number: int
    def __init__(self, producer: _Optional[str] = ..., next_number: _Optional[int] = ...) -> None: ...

class PushLogsRequest(_message.Message):
    __slots__ = ("batches",)
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    batches: _containers.RepeatedCompositeFieldContainer[LogBatch]
    def __init__(self, batches: _Optional[_Iterable[_Union[LogBatch, _Mapping]]] = ...) -> None: ...

class PushLogsResponse(_message.Message):
    __slots__ = ("marks",)
    MARKS_FIELD_NUMBER: _ClassVar[int]
    marks: _containers.RepeatedCompositeFieldContainer[ProducerMark]
    def __init__(self, marks: _Optional[_Iterable[_Union[ProducerMark, _Mapping]]] = ...) -> None: ...

class FetchLogsRequest(_message.Message):
    __slots__ = ("source", "match_scope", "since_ms", "until_ms", "cursor", "substring", "regex", "max_lines", "tail", "min_level", "min_incarnation", "no_children", "wait_ms", "producers", "attempt_uid", "before", "without")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    MATCH_SCOPE_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    SUBSTRING_FIELD_NUMBER: _ClassVar[int]
    REGEX_FIELD_NUMBER: _ClassVar[int]
    MAX_LINES_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    MIN_LEVEL_FIELD_NUMBER: _ClassVar[int]
    MIN_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    NO_CHILDREN_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_UID_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_FIELD_NUMBER: _ClassVar[int]
    source: str
    match_scope: _common_pb2.MatchScope
    since_ms: int
    until_ms: int
    cursor: int
    substring: str
    regex: str
    max_lines: int
    tail: bool
    min_level: _common_pb2.LogLevel
    min_incarnation: int
    no_children: bool
    wait_ms: int
    producers: _containers.RepeatedScalarFieldContainer[str]
    attempt_uid: str
    before: int
    without: str
    def __init__(self, source: _Optional[str] = ..., match_scope: _Optional[_Union[_common_pb2.MatchScope, str]] = ..., since_ms: _Optional[int] = ..., until_ms: _Optional[int] = ..., cursor: _Optional[int] = ..., substring: _Optional[str] = ..., regex: _Optional[str] = ..., max_lines: _Optional[int] = ..., tail: _Optional[bool] = ..., min_level: _Optional[_Union[_common_pb2.LogLevel, str]] = ..., min_incarnation: _Optional[int] = ..., no_children: _Optional[bool] = ..., wait_ms: _Optional[int] = ..., producers: _Optional[_Iterable[str]] = ..., attempt_uid: _Optional[str] = ..., before: _Optional[int] = ..., without: _Optional[str] = ...) -> None: ...

class StoredLine(_message.Message):
    __slots__ = ("seq", "key", "epoch_ms", "source", "data", "raw", "level", "attempt_uid", "attempt_id", "number", "partial", "gap", "part", "unended", "back")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    EPOCH_MS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_UID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    UNENDED_FIELD_NUMBER: _ClassVar[int]
    BACK_FIELD_NUMBER: _ClassVar[int]
    seq: int
    key: str
    epoch_ms: int
    source: str
    data: str
    raw: bytes
    level: _common_pb2.LogLevel
    attempt_uid: str
    attempt_id: int
    number: int
    partial: bool
    gap: int
    part: int
    unended: bool
    back: int
    def __init__(self, seq: _Optional[int] = ..., key: _Optional[str] = ..., epoch_ms: _Optional[int] = ..., source: _Optional[str] = ..., data: _Optional[str] = ..., raw: _Optional[bytes] = ..., level: _Optional[_Union[_common_pb2.LogLevel, str]] = ..., attempt_uid: _Optional[str] = ..., attempt_id: _Optional[int] = ..., number: _Optional[int] = ..., partial: _Optional[bool] = ..., gap: _Optional[int] = ..., part: _Optional[int] = ..., unended: _Optional[bool] = ..., back: _Optional[int] = ...) -> None: ...

class FetchLogsResponse(_message.Message):
    __slots__ = ("entries", "cursor", "shown", "matched", "scanned", "capped", "capped_reason", "marks", "last_seq", "from_seq", "notes", "unshipped_since_ms")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    SHOWN_FIELD_NUMBER: _ClassVar[int]
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    SCANNED_FIELD_NUMBER: _ClassVar[int]
    CAPPED_FIELD_NUMBER: _ClassVar[int]
    CAPPED_REASON_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    FROM_SEQ_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    UNSHIPPED_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[StoredLine]
    cursor: int
    shown: int
    matched: int
    scanned: int
    capped: bool
    capped_reason: str
    marks: _containers.RepeatedCompositeFieldContainer[ProducerMark]
    last_seq: int
    from_seq: int
    notes: _containers.RepeatedScalarFieldContainer[str]
    unshipped_since_ms: int
    def __init__(self, entries: _Optional[_Iterable[_Union[StoredLine, _Mapping]]] = ..., cursor: _Optional[int] = ..., shown: _Optional[int] = ..., matched: _Optional[int] = ..., scanned: _Optional[int] = ..., capped: _Optional[bool] = ..., capped_reason: _Optional[str] = ..., marks: _Optional[_Iterable[_Union[ProducerMark, _Mapping]]] = ..., last_seq: _Optional[int] = ..., from_seq: _Optional[int] = ..., notes: _Optional[_Iterable[str]] = ..., unshipped_since_ms: _Optional[int] = ...) -> None: ...

class OpenLogViewRequest(_message.Message):
    __slots__ = ("query", "context", "also", "last_lines")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    ALSO_FIELD_NUMBER: _ClassVar[int]
    LAST_LINES_FIELD_NUMBER: _ClassVar[int]
    query: FetchLogsRequest
    context: int
    also: _containers.RepeatedCompositeFieldContainer[LogViewSource]
    last_lines: int
    def __init__(self, query: _Optional[_Union[FetchLogsRequest, _Mapping]] = ..., context: _Optional[int] = ..., also: _Optional[_Iterable[_Union[LogViewSource, _Mapping]]] = ..., last_lines: _Optional[int] = ...) -> None: ...

class LogViewSource(_message.Message):
    __slots__ = ("source", "match_scope")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    MATCH_SCOPE_FIELD_NUMBER: _ClassVar[int]
    source: str
    match_scope: _common_pb2.MatchScope
    def __init__(self, source: _Optional[str] = ..., match_scope: _Optional[_Union[_common_pb2.MatchScope, str]] = ...) -> None: ...

class OpenLogViewResponse(_message.Message):
    __slots__ = ("view_id", "state", "sources", "lines")
    VIEW_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    view_id: str
    state: LogViewState
    sources: int
    lines: _containers.RepeatedCompositeFieldContainer[ViewLine]
    def __init__(self, view_id: _Optional[str] = ..., state: _Optional[_Union[LogViewState, _Mapping]] = ..., sources: _Optional[int] = ..., lines: _Optional[_Iterable[_Union[ViewLine, _Mapping]]] = ...) -> None: ...

class LogViewState(_message.Message):
    __slots__ = ("lines", "hits", "scanned", "scanned_to", "last_seq", "complete", "capped", "capped_reason", "notes", "memory_bytes", "expires_in_ms", "unshipped_since_ms", "full", "held")
    LINES_FIELD_NUMBER: _ClassVar[int]
    HITS_FIELD_NUMBER: _ClassVar[int]
    SCANNED_FIELD_NUMBER: _ClassVar[int]
    SCANNED_TO_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    CAPPED_FIELD_NUMBER: _ClassVar[int]
    CAPPED_REASON_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_MS_FIELD_NUMBER: _ClassVar[int]
    UNSHIPPED_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    lines: int
    hits: int
    scanned: int
    scanned_to: int
    last_seq: int
    complete: bool
    capped: bool
    capped_reason: str
    notes: _containers.RepeatedScalarFieldContainer[str]
    memory_bytes: int
    expires_in_ms: int
    unshipped_since_ms: int
    full: bool
    held: int
    def __init__(self, lines: _Optional[int] = ..., hits: _Optional[int] = ..., scanned: _Optional[int] = ..., scanned_to: _Optional[int] = ..., last_seq: _Optional[int] = ..., complete: _Optional[bool] = ..., capped: _Optional[bool] = ..., capped_reason: _Optional[str] = ..., notes: _Optional[_Iterable[str]] = ..., memory_bytes: _Optional[int] = ..., expires_in_ms: _Optional[int] = ..., unshipped_since_ms: _Optional[int] = ..., full: _Optional[bool] = ..., held: _Optional[int] = ...) -> None: ...

class ViewLine(_message.Message):
    __slots__ = ("number", "line", "is_context", "breaks", "gone")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    IS_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    BREAKS_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    number: int
    line: StoredLine
    is_context: bool
    breaks: bool
    gone: bool
    def __init__(self, number: _Optional[int] = ..., line: _Optional[_Union[StoredLine, _Mapping]] = ..., is_context: _Optional[bool] = ..., breaks: _Optional[bool] = ..., gone: _Optional[bool] = ...) -> None: ...

class ReadLinesRequest(_message.Message):
    __slots__ = ("view_id", "first", "count", "at_seq", "at_ms")
    VIEW_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    AT_SEQ_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    view_id: str
    first: int
    count: int
    at_seq: int
    at_ms: int
    def __init__(self, view_id: _Optional[str] = ..., first: _Optional[int] = ..., count: _Optional[int] = ..., at_seq: _Optional[int] = ..., at_ms: _Optional[int] = ...) -> None: ...

class ReadLinesResponse(_message.Message):
    __slots__ = ("lines", "state", "at")
    LINES_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    lines: _containers.RepeatedCompositeFieldContainer[ViewLine]
    state: LogViewState
    at: int
    def __init__(self, lines: _Optional[_Iterable[_Union[ViewLine, _Mapping]]] = ..., state: _Optional[_Union[LogViewState, _Mapping]] = ..., at: _Optional[int] = ...) -> None: ...

class FindNextRequest(_message.Message):
    __slots__ = ("view_id", "regex", "substring", "from_line", "backward", "min_level")
    VIEW_ID_FIELD_NUMBER: _ClassVar[int]
    REGEX_FIELD_NUMBER: _ClassVar[int]
    SUBSTRING_FIELD_NUMBER: _ClassVar[int]
    FROM_LINE_FIELD_NUMBER: _ClassVar[int]
    BACKWARD_FIELD_NUMBER: _ClassVar[int]
    MIN_LEVEL_FIELD_NUMBER: _ClassVar[int]
    view_id: str
    regex: str
    substring: str
    from_line: int
    backward: bool
    min_level: _common_pb2.LogLevel
    def __init__(self, view_id: _Optional[str] = ..., regex: _Optional[str] = ..., substring: _Optional[str] = ..., from_line: _Optional[int] = ..., backward: _Optional[bool] = ..., min_level: _Optional[_Union[_common_pb2.LogLevel, str]] = ...) -> None: ...

class FindNextResponse(_message.Message):
    __slots__ = ("found", "number", "ordinal", "total", "complete", "state")
    FOUND_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ORDINAL_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    found: bool
    number: int
    ordinal: int
    total: int
    complete: bool
    state: LogViewState
    def __init__(self, found: _Optional[bool] = ..., number: _Optional[int] = ..., ordinal: _Optional[int] = ..., total: _Optional[int] = ..., complete: _Optional[bool] = ..., state: _Optional[_Union[LogViewState, _Mapping]] = ...) -> None: ...

class TailRequest(_message.Message):
    __slots__ = ("view_id", "first")
    VIEW_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    view_id: str
    first: int
    def __init__(self, view_id: _Optional[str] = ..., first: _Optional[int] = ...) -> None: ...

class TailResponse(_message.Message):
    __slots__ = ("lines", "state")
    LINES_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    lines: _containers.RepeatedCompositeFieldContainer[ViewLine]
    state: LogViewState
    def __init__(self, lines: _Optional[_Iterable[_Union[ViewLine, _Mapping]]] = ..., state: _Optional[_Union[LogViewState, _Mapping]] = ...) -> None: ...

class ExportLogsRequest(_message.Message):
    __slots__ = ("view_id", "first")
    VIEW_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    view_id: str
    first: int
    def __init__(self, view_id: _Optional[str] = ..., first: _Optional[int] = ...) -> None: ...

class ExportLogsResponse(_message.Message):
    __slots__ = ("data", "next_line", "lines", "lost_lines", "done", "state")
    DATA_FIELD_NUMBER: _ClassVar[int]
    NEXT_LINE_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    LOST_LINES_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    next_line: int
    lines: int
    lost_lines: int
    done: bool
    state: LogViewState
    def __init__(self, data: _Optional[bytes] = ..., next_line: _Optional[int] = ..., lines: _Optional[int] = ..., lost_lines: _Optional[int] = ..., done: _Optional[bool] = ..., state: _Optional[_Union[LogViewState, _Mapping]] = ...) -> None: ...

class CloseLogViewRequest(_message.Message):
    __slots__ = ("view_id",)
    VIEW_ID_FIELD_NUMBER: _ClassVar[int]
    view_id: str
    def __init__(self, view_id: _Optional[str] = ...) -> None: ...

class CloseLogViewResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStoreHealthRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStoreHealthResponse(_message.Message):
    __slots__ = ("store",)
    STORE_FIELD_NUMBER: _ClassVar[int]
    store: _pipeline_pb2.StoreHealth
    def __init__(self, store: _Optional[_Union[_pipeline_pb2.StoreHealth, _Mapping]] = ...) -> None: ...
