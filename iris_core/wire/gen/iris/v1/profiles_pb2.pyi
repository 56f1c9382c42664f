from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ProfileType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PROFILE_TYPE_UNSPECIFIED: _ClassVar[ProfileType]
    PROFILE_TYPE_CPU: _ClassVar[ProfileType]
    PROFILE_TYPE_MEMORY: _ClassVar[ProfileType]
    PROFILE_TYPE_THREADS: _ClassVar[ProfileType]

class ProfileFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PROFILE_FORMAT_UNSPECIFIED: _ClassVar[ProfileFormat]
    PROFILE_FORMAT_SPEEDSCOPE: _ClassVar[ProfileFormat]
    PROFILE_FORMAT_FLAMEGRAPH: _ClassVar[ProfileFormat]
    PROFILE_FORMAT_RAW: _ClassVar[ProfileFormat]
    PROFILE_FORMAT_HTML: _ClassVar[ProfileFormat]
    PROFILE_FORMAT_TABLE: _ClassVar[ProfileFormat]
    PROFILE_FORMAT_STATS: _ClassVar[ProfileFormat]
    PROFILE_FORMAT_TEXT: _ClassVar[ProfileFormat]

class ProfileTrigger(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PROFILE_TRIGGER_UNSPECIFIED: _ClassVar[ProfileTrigger]
    PROFILE_TRIGGER_ON_DEMAND: _ClassVar[ProfileTrigger]
    PROFILE_TRIGGER_PERIODIC: _ClassVar[ProfileTrigger]
PROFILE_TYPE_UNSPECIFIED: ProfileType
PROFILE_TYPE_CPU: ProfileType
PROFILE_TYPE_MEMORY: ProfileType
PROFILE_TYPE_THREADS: ProfileType
PROFILE_FORMAT_UNSPECIFIED: ProfileFormat
PROFILE_FORMAT_SPEEDSCOPE: ProfileFormat
PROFILE_FORMAT_FLAMEGRAPH: ProfileFormat
PROFILE_FORMAT_RAW: ProfileFormat
PROFILE_FORMAT_HTML: ProfileFormat
PROFILE_FORMAT_TABLE: ProfileFormat
PROFILE_FORMAT_STATS: ProfileFormat
PROFILE_FORMAT_TEXT: ProfileFormat
PROFILE_TRIGGER_UNSPECIFIED: ProfileTrigger
PROFILE_TRIGGER_ON_DEMAND: ProfileTrigger
PROFILE_TRIGGER_PERIODIC: ProfileTrigger

class ProfileOptions(_message.Message):
    __slots__ = ("type", "duration_seconds", "format", "rate_hz", "native", "leaks", "locals", "pid")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DURATION_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    RATE_HZ_FIELD_NUMBER: _ClassVar[int]
    NATIVE_FIELD_NUMBER: _ClassVar[int]
    LEAKS_FIELD_NUMBER: _ClassVar[int]
    LOCALS_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    type: ProfileType
    duration_seconds: int
    format: ProfileFormat
    rate_hz: int
    native: bool
    leaks: bool
    locals: bool
    pid: int
    def __init__(self, type: _Optional[_Union[ProfileType, str]] = ..., duration_seconds: _Optional[int] = ..., format: _Optional[_Union[ProfileFormat, str]] = ..., rate_hz: _Optional[int] = ..., native: _Optional[bool] = ..., leaks: _Optional[bool] = ..., locals: _Optional[bool] = ..., pid: _Optional[int] = ...) -> None: ...

class ProfileRecord(_message.Message):
    __slots__ = ("profile_id", "source", "attempt_id", "attempt_uid", "vm_id", "captured_at_ms", "duration_seconds", "type", "format", "trigger", "size_bytes", "rate_hz", "native", "leaks", "locals", "incarnation")
    PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_UID_FIELD_NUMBER: _ClassVar[int]
    VM_ID_FIELD_NUMBER: _ClassVar[int]
    CAPTURED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DURATION_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    RATE_HZ_FIELD_NUMBER: _ClassVar[int]
    NATIVE_FIELD_NUMBER: _ClassVar[int]
    LEAKS_FIELD_NUMBER: _ClassVar[int]
    LOCALS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    profile_id: str
    source: str
    attempt_id: int
    attempt_uid: str
    vm_id: str
    captured_at_ms: int
    duration_seconds: int
    type: ProfileType
    format: ProfileFormat
    trigger: ProfileTrigger
    size_bytes: int
    rate_hz: int
    native: bool
    leaks: bool
    locals: bool
    incarnation: int
    def __init__(self, profile_id: _Optional[str] = ..., source: _Optional[str] = ..., attempt_id: _Optional[int] = ..., attempt_uid: _Optional[str] = ..., vm_id: _Optional[str] = ..., captured_at_ms: _Optional[int] = ..., duration_seconds: _Optional[int] = ..., type: _Optional[_Union[ProfileType, str]] = ..., format: _Optional[_Union[ProfileFormat, str]] = ..., trigger: _Optional[_Union[ProfileTrigger, str]] = ..., size_bytes: _Optional[int] = ..., rate_hz: _Optional[int] = ..., native: _Optional[bool] = ..., leaks: _Optional[bool] = ..., locals: _Optional[bool] = ..., incarnation: _Optional[int] = ...) -> None: ...

class ProfileRequest(_message.Message):
    __slots__ = ("attempt_uid", "options", "requested_by")
    ATTEMPT_UID_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_BY_FIELD_NUMBER: _ClassVar[int]
    attempt_uid: str
    options: ProfileOptions
    requested_by: str
    def __init__(self, attempt_uid: _Optional[str] = ..., options: _Optional[_Union[ProfileOptions, _Mapping]] = ..., requested_by: _Optional[str] = ...) -> None: ...

class ProfilePart(_message.Message):
    __slots__ = ("data", "last", "record", "notes", "error", "hint", "code")
    DATA_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    last: bool
    record: ProfileRecord
    notes: _containers.RepeatedScalarFieldContainer[str]
    error: str
    hint: str
    code: str
    def __init__(self, data: _Optional[bytes] = ..., last: _Optional[bool] = ..., record: _Optional[_Union[ProfileRecord, _Mapping]] = ..., notes: _Optional[_Iterable[str]] = ..., error: _Optional[str] = ..., hint: _Optional[str] = ..., code: _Optional[str] = ...) -> None: ...

class ProfileTaskRequest(_message.Message):
    __slots__ = ("target", "options", "request_id")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    target: str
    options: ProfileOptions
    request_id: str
    def __init__(self, target: _Optional[str] = ..., options: _Optional[_Union[ProfileOptions, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...

class ProfileTaskResponse(_message.Message):
    __slots__ = ("profile_data", "record", "notes")
    PROFILE_DATA_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    profile_data: bytes
    record: ProfileRecord
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, profile_data: _Optional[bytes] = ..., record: _Optional[_Union[ProfileRecord, _Mapping]] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class ListProfilesRequest(_message.Message):
    __slots__ = ("source", "prefix", "types", "trigger", "since_ms", "page_size", "latest_only", "min_incarnation")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    LATEST_ONLY_FIELD_NUMBER: _ClassVar[int]
    MIN_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    source: str
    prefix: str
    types: _containers.RepeatedScalarFieldContainer[ProfileType]
    trigger: ProfileTrigger
    since_ms: int
    page_size: int
    latest_only: bool
    min_incarnation: int
    def __init__(self, source: _Optional[str] = ..., prefix: _Optional[str] = ..., types: _Optional[_Iterable[_Union[ProfileType, str]]] = ..., trigger: _Optional[_Union[ProfileTrigger, str]] = ..., since_ms: _Optional[int] = ..., page_size: _Optional[int] = ..., latest_only: _Optional[bool] = ..., min_incarnation: _Optional[int] = ...) -> None: ...

class ListProfilesResponse(_message.Message):
    __slots__ = ("profiles", "capped", "notes")
    PROFILES_FIELD_NUMBER: _ClassVar[int]
    CAPPED_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    profiles: _containers.RepeatedCompositeFieldContainer[ProfileRecord]
    capped: bool
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, profiles: _Optional[_Iterable[_Union[ProfileRecord, _Mapping]]] = ..., capped: _Optional[bool] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class GetProfileRequest(_message.Message):
    __slots__ = ("profile_id", "type", "format")
    PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    profile_id: str
    type: ProfileType
    format: ProfileFormat
    def __init__(self, profile_id: _Optional[str] = ..., type: _Optional[_Union[ProfileType, str]] = ..., format: _Optional[_Union[ProfileFormat, str]] = ...) -> None: ...

class GetProfileResponse(_message.Message):
    __slots__ = ("record", "profile_data")
    RECORD_FIELD_NUMBER: _ClassVar[int]
    PROFILE_DATA_FIELD_NUMBER: _ClassVar[int]
    record: ProfileRecord
    profile_data: bytes
    def __init__(self, record: _Optional[_Union[ProfileRecord, _Mapping]] = ..., profile_data: _Optional[bytes] = ...) -> None: ...
