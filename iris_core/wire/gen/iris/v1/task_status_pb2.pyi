from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class UpdateTaskStatusRequest(_message.Message):
    __slots__ = ("summary_md", "detail_md", "request_id")
    SUMMARY_MD_FIELD_NUMBER: _ClassVar[int]
    DETAIL_MD_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    summary_md: str
    detail_md: str
    request_id: str
    def __init__(self, summary_md: _Optional[str] = ..., detail_md: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class UpdateTaskStatusResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
