from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EndpointAccess(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENDPOINT_ACCESS_UNSPECIFIED: _ClassVar[EndpointAccess]
    ENDPOINT_ACCESS_PRIVATE: _ClassVar[EndpointAccess]
    ENDPOINT_ACCESS_LINK: _ClassVar[EndpointAccess]
ENDPOINT_ACCESS_UNSPECIFIED: EndpointAccess
ENDPOINT_ACCESS_PRIVATE: EndpointAccess
ENDPOINT_ACCESS_LINK: EndpointAccess

class Endpoint(_message.Message):
    __slots__ = ("endpoint_id", "name", "address", "task_id", "attempt_uid", "metadata", "registered_at_ms", "lease_ms", "access", "proxy_path")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ENDPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_UID_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    ACCESS_FIELD_NUMBER: _ClassVar[int]
    PROXY_PATH_FIELD_NUMBER: _ClassVar[int]
    endpoint_id: str
    name: str
    address: str
    task_id: str
    attempt_uid: str
    metadata: _containers.ScalarMap[str, str]
    registered_at_ms: int
    lease_ms: int
    access: EndpointAccess
    proxy_path: str
    def __init__(self, endpoint_id: _Optional[str] = ..., name: _Optional[str] = ..., address: _Optional[str] = ..., task_id: _Optional[str] = ..., attempt_uid: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., registered_at_ms: _Optional[int] = ..., lease_ms: _Optional[int] = ..., access: _Optional[_Union[EndpointAccess, str]] = ..., proxy_path: _Optional[str] = ...) -> None: ...

class RegisterEndpointRequest(_message.Message):
    __slots__ = ("name", "address", "task_id", "endpoint_id", "metadata", "lease_ms", "access", "request_id")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    ACCESS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    address: str
    task_id: str
    endpoint_id: str
    metadata: _containers.ScalarMap[str, str]
    lease_ms: int
    access: EndpointAccess
    request_id: str
    def __init__(self, name: _Optional[str] = ..., address: _Optional[str] = ..., task_id: _Optional[str] = ..., endpoint_id: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., lease_ms: _Optional[int] = ..., access: _Optional[_Union[EndpointAccess, str]] = ..., request_id: _Optional[str] = ...) -> None: ...

class RegisterEndpointResponse(_message.Message):
    __slots__ = ("endpoint",)
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    endpoint: Endpoint
    def __init__(self, endpoint: _Optional[_Union[Endpoint, _Mapping]] = ...) -> None: ...

class UnregisterEndpointRequest(_message.Message):
    __slots__ = ("endpoint_id", "request_id")
    ENDPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    endpoint_id: str
    request_id: str
    def __init__(self, endpoint_id: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class UnregisterEndpointResponse(_message.Message):
    __slots__ = ("removed",)
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    removed: bool
    def __init__(self, removed: _Optional[bool] = ...) -> None: ...

class ListEndpointsRequest(_message.Message):
    __slots__ = ("prefix", "exact", "page_size", "page_token")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    EXACT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    exact: bool
    page_size: int
    page_token: str
    def __init__(self, prefix: _Optional[str] = ..., exact: _Optional[bool] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListEndpointsResponse(_message.Message):
    __slots__ = ("endpoints", "next_page_token", "total_count")
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOTAL_COUNT_FIELD_NUMBER: _ClassVar[int]
    endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    next_page_token: str
    total_count: int
    def __init__(self, endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., total_count: _Optional[int] = ...) -> None: ...

class MintEndpointTokenRequest(_message.Message):
    __slots__ = ("name", "ttl_ms", "request_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    ttl_ms: int
    request_id: str
    def __init__(self, name: _Optional[str] = ..., ttl_ms: _Optional[int] = ..., request_id: _Optional[str] = ...) -> None: ...

class MintEndpointTokenResponse(_message.Message):
    __slots__ = ("path", "expires_at_ms")
    PATH_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    path: str
    expires_at_ms: int
    def __init__(self, path: _Optional[str] = ..., expires_at_ms: _Optional[int] = ...) -> None: ...
