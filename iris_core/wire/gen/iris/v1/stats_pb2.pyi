from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ColumnType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COLUMN_TYPE_UNSPECIFIED: _ClassVar[ColumnType]
    COLUMN_TYPE_STRING: _ClassVar[ColumnType]
    COLUMN_TYPE_INT64: _ClassVar[ColumnType]
    COLUMN_TYPE_INT32: _ClassVar[ColumnType]
    COLUMN_TYPE_FLOAT64: _ClassVar[ColumnType]
    COLUMN_TYPE_BOOL: _ClassVar[ColumnType]
    COLUMN_TYPE_TIMESTAMP_MS: _ClassVar[ColumnType]
    COLUMN_TYPE_BYTES: _ClassVar[ColumnType]
    COLUMN_TYPE_MAP: _ClassVar[ColumnType]
    COLUMN_TYPE_FLOAT64_LIST: _ClassVar[ColumnType]
    COLUMN_TYPE_INT64_LIST: _ClassVar[ColumnType]
COLUMN_TYPE_UNSPECIFIED: ColumnType
COLUMN_TYPE_STRING: ColumnType
COLUMN_TYPE_INT64: ColumnType
COLUMN_TYPE_INT32: ColumnType
COLUMN_TYPE_FLOAT64: ColumnType
COLUMN_TYPE_BOOL: ColumnType
COLUMN_TYPE_TIMESTAMP_MS: ColumnType
COLUMN_TYPE_BYTES: ColumnType
COLUMN_TYPE_MAP: ColumnType
COLUMN_TYPE_FLOAT64_LIST: ColumnType
COLUMN_TYPE_INT64_LIST: ColumnType

class TableColumn(_message.Message):
    __slots__ = ("name", "type", "nullable")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NULLABLE_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: ColumnType
    nullable: bool
    def __init__(self, name: _Optional[str] = ..., type: _Optional[_Union[ColumnType, str]] = ..., nullable: _Optional[bool] = ...) -> None: ...

class StoragePolicy(_message.Message):
    __slots__ = ("max_segments", "max_bytes", "max_age_seconds")
    MAX_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    max_segments: int
    max_bytes: int
    max_age_seconds: int
    def __init__(self, max_segments: _Optional[int] = ..., max_bytes: _Optional[int] = ..., max_age_seconds: _Optional[int] = ...) -> None: ...

class TableSchema(_message.Message):
    __slots__ = ("table", "columns", "key_column", "policy")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    KEY_COLUMN_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    table: str
    columns: _containers.RepeatedCompositeFieldContainer[TableColumn]
    key_column: str
    policy: StoragePolicy
    def __init__(self, table: _Optional[str] = ..., columns: _Optional[_Iterable[_Union[TableColumn, _Mapping]]] = ..., key_column: _Optional[str] = ..., policy: _Optional[_Union[StoragePolicy, _Mapping]] = ...) -> None: ...

class TextMap(_message.Message):
    __slots__ = ("entries",)
    class EntriesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.ScalarMap[str, str]
    def __init__(self, entries: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Float64List(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, values: _Optional[_Iterable[float]] = ...) -> None: ...

class Int64List(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, values: _Optional[_Iterable[int]] = ...) -> None: ...

class ColumnValues(_message.Message):
    __slots__ = ("name", "type", "nulls", "strings", "integers", "doubles", "bools", "blobs", "maps", "float_lists", "integer_lists", "engine_type")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NULLS_FIELD_NUMBER: _ClassVar[int]
    STRINGS_FIELD_NUMBER: _ClassVar[int]
    INTEGERS_FIELD_NUMBER: _ClassVar[int]
    DOUBLES_FIELD_NUMBER: _ClassVar[int]
    BOOLS_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    MAPS_FIELD_NUMBER: _ClassVar[int]
    FLOAT_LISTS_FIELD_NUMBER: _ClassVar[int]
    INTEGER_LISTS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_TYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: ColumnType
    nulls: _containers.RepeatedScalarFieldContainer[int]
    strings: _containers.RepeatedScalarFieldContainer[str]
    integers: _containers.RepeatedScalarFieldContainer[int]
    doubles: _containers.RepeatedScalarFieldContainer[float]
    bools: _containers.RepeatedScalarFieldContainer[bool]
    blobs: _containers.RepeatedScalarFieldContainer[bytes]
    maps: _containers.RepeatedCompositeFieldContainer[TextMap]
    float_lists: _containers.RepeatedCompositeFieldContainer[Float64List]
    integer_lists: _containers.RepeatedCompositeFieldContainer[Int64List]
    engine_type: str
    def __init__(self, name: _Optional[str] = ..., type: _Optional[_Union[ColumnType, str]] = ..., nulls: _Optional[_Iterable[int]] = ..., strings: _Optional[_Iterable[str]] = ..., integers: _Optional[_Iterable[int]] = ..., doubles: _Optional[_Iterable[float]] = ..., bools: _Optional[_Iterable[bool]] = ..., blobs: _Optional[_Iterable[bytes]] = ..., maps: _Optional[_Iterable[_Union[TextMap, _Mapping]]] = ..., float_lists: _Optional[_Iterable[_Union[Float64List, _Mapping]]] = ..., integer_lists: _Optional[_Iterable[_Union[Int64List, _Mapping]]] = ..., engine_type: _Optional[str] = ...) -> None: ...

class RowBatch(_message.Message):
    __slots__ = ("table", "producer", "first_number", "rows", "columns")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    FIRST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    table: str
    producer: str
    first_number: int
    rows: int
    columns: _containers.RepeatedCompositeFieldContainer[ColumnValues]
    def __init__(self, table: _Optional[str] = ..., producer: _Optional[str] = ..., first_number: _Optional[int] = ..., rows: _Optional[int] = ..., columns: _Optional[_Iterable[_Union[ColumnValues, _Mapping]]] = ...) -> None: ...

class RegisterTableRequest(_message.Message):
    __slots__ = ("schema", "request_id")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    schema: TableSchema
    request_id: str
    def __init__(self, schema: _Optional[_Union[TableSchema, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...

class RegisterTableResponse(_message.Message):
    __slots__ = ("schema", "created", "added_columns")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    ADDED_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    schema: TableSchema
    created: bool
    added_columns: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, schema: _Optional[_Union[TableSchema, _Mapping]] = ..., created: _Optional[bool] = ..., added_columns: _Optional[_Iterable[str]] = ...) -> None: ...

class TableMark(_message.Message):
    __slots__ = ("table", "producer", "next_number")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    NEXT_NUMBER_FIELD_NUMBER: _ClassVar[int]
    table: str
    producer: str
    next_number: int
    def __init__(self, table: _Optional[str] = ..., producer: _Optional[str] = ..., next_number: _Optional[int] = ...) -> None: ...

class WriteRowsRequest(_message.Message):
    __slots__ = ("batches",)
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    batches: _containers.RepeatedCompositeFieldContainer[RowBatch]
    def __init__(self, batches: _Optional[_Iterable[_Union[RowBatch, _Mapping]]] = ...) -> None: ...

class WriteRowsResponse(_message.Message):
    __slots__ = ("marks", "stored", "repeated_rows", "missing")
    MARKS_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    REPEATED_ROWS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    marks: _containers.RepeatedCompositeFieldContainer[TableMark]
    stored: int
    repeated_rows: int
    missing: int
    def __init__(self, marks: _Optional[_Iterable[_Union[TableMark, _Mapping]]] = ..., stored: _Optional[int] = ..., repeated_rows: _Optional[int] = ..., missing: _Optional[int] = ...) -> None: ...

class QueryRequest(_message.Message):
    __slots__ = ("sql", "max_rows", "timeout_ms")
    SQL_FIELD_NUMBER: _ClassVar[int]
    MAX_ROWS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    sql: str
    max_rows: int
    timeout_ms: int
    def __init__(self, sql: _Optional[str] = ..., max_rows: _Optional[int] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class QueryResponse(_message.Message):
    __slots__ = ("columns", "row_count", "capped", "capped_reason", "elapsed_ms", "tables", "notes")
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    CAPPED_FIELD_NUMBER: _ClassVar[int]
    CAPPED_REASON_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_MS_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    columns: _containers.RepeatedCompositeFieldContainer[ColumnValues]
    row_count: int
    capped: bool
    capped_reason: str
    elapsed_ms: int
    tables: _containers.RepeatedScalarFieldContainer[str]
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, columns: _Optional[_Iterable[_Union[ColumnValues, _Mapping]]] = ..., row_count: _Optional[int] = ..., capped: _Optional[bool] = ..., capped_reason: _Optional[str] = ..., elapsed_ms: _Optional[int] = ..., tables: _Optional[_Iterable[str]] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class TableStatus(_message.Message):
    __slots__ = ("table", "rows", "bytes", "segments", "pending_rows", "pending_bytes", "min_seq", "max_seq", "earliest_ms", "latest_ms", "policy", "key_column", "columns", "producers", "removed_rows", "missing_rows")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    PENDING_ROWS_FIELD_NUMBER: _ClassVar[int]
    PENDING_BYTES_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    MAX_SEQ_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_MS_FIELD_NUMBER: _ClassVar[int]
    LATEST_MS_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    KEY_COLUMN_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_ROWS_FIELD_NUMBER: _ClassVar[int]
    MISSING_ROWS_FIELD_NUMBER: _ClassVar[int]
    table: str
    rows: int
    bytes: int
    segments: int
    pending_rows: int
    pending_bytes: int
    min_seq: int
    max_seq: int
    earliest_ms: int
    latest_ms: int
    policy: StoragePolicy
    key_column: str
    columns: int
    producers: int
    removed_rows: int
    missing_rows: int
    def __init__(self, table: _Optional[str] = ..., rows: _Optional[int] = ..., bytes: _Optional[int] = ..., segments: _Optional[int] = ..., pending_rows: _Optional[int] = ..., pending_bytes: _Optional[int] = ..., min_seq: _Optional[int] = ..., max_seq: _Optional[int] = ..., earliest_ms: _Optional[int] = ..., latest_ms: _Optional[int] = ..., policy: _Optional[_Union[StoragePolicy, _Mapping]] = ..., key_column: _Optional[str] = ..., columns: _Optional[int] = ..., producers: _Optional[int] = ..., removed_rows: _Optional[int] = ..., missing_rows: _Optional[int] = ...) -> None: ...

class ListNamespacesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListNamespacesResponse(_message.Message):
    __slots__ = ("tables",)
    TABLES_FIELD_NUMBER: _ClassVar[int]
    tables: _containers.RepeatedCompositeFieldContainer[TableStatus]
    def __init__(self, tables: _Optional[_Iterable[_Union[TableStatus, _Mapping]]] = ...) -> None: ...

class GetTableSchemaRequest(_message.Message):
    __slots__ = ("table",)
    TABLE_FIELD_NUMBER: _ClassVar[int]
    table: str
    def __init__(self, table: _Optional[str] = ...) -> None: ...

class GetTableSchemaResponse(_message.Message):
    __slots__ = ("schema",)
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    schema: TableSchema
    def __init__(self, schema: _Optional[_Union[TableSchema, _Mapping]] = ...) -> None: ...

class GetTableStatusRequest(_message.Message):
    __slots__ = ("table", "producers")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    table: str
    producers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, table: _Optional[str] = ..., producers: _Optional[_Iterable[str]] = ...) -> None: ...

class GetTableStatusResponse(_message.Message):
    __slots__ = ("status", "marks")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    status: TableStatus
    marks: _containers.RepeatedCompositeFieldContainer[TableMark]
    def __init__(self, status: _Optional[_Union[TableStatus, _Mapping]] = ..., marks: _Optional[_Iterable[_Union[TableMark, _Mapping]]] = ...) -> None: ...

class DropTableRequest(_message.Message):
    __slots__ = ("table", "request_id")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    table: str
    request_id: str
    def __init__(self, table: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class DropTableResponse(_message.Message):
    __slots__ = ("removed_rows", "removed_bytes")
    REMOVED_ROWS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    removed_rows: int
    removed_bytes: int
    def __init__(self, removed_rows: _Optional[int] = ..., removed_bytes: _Optional[int] = ...) -> None: ...
