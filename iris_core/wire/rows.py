"""Rows of tables on the wire: typed columns with the positions of the NULLs, made from mappings and turned back.

Producers on a base install use it, so it needs neither pyarrow nor duckdb. Must never guess a type: a value that does not fit its
column is refused by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iris_core.model.errors import ModelError, shown
from iris_core.model.tables import Column, ColumnType, StoragePolicy, Table
from iris_core.wire.gen.iris.v1 import stats_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Value = Any
"""str, int, float, bool, bytes, dict[str, str], list[float], list[int], or None."""

_FIELDS = {
    ColumnType.STRING: ("strings", str),
    ColumnType.INT64: ("integers", int),
    ColumnType.INT32: ("integers", int),
    ColumnType.FLOAT64: ("doubles", float),
    ColumnType.BOOL: ("bools", bool),
    ColumnType.TIMESTAMP_MS: ("integers", int),
    ColumnType.BYTES: ("blobs", bytes),
    ColumnType.MAP: ("maps", dict),
    ColumnType.FLOAT64_LIST: ("float_lists", list),
    ColumnType.INT64_LIST: ("integer_lists", list),
}
_LIMITS = {ColumnType.INT32: 1 << 31, ColumnType.INT64: 1 << 63, ColumnType.TIMESTAMP_MS: 1 << 63}


def field_of(type_: int) -> str:
    """The list of a `ColumnValues` that holds the values of that type; text for a type that is not ours."""
    try:
        return _FIELDS[ColumnType(type_)][0]
    except ValueError:
        return "strings"


def batch_of(table: Table, producer: str, first_number: int, rows: Sequence[Mapping[str, Value]]) -> stats_pb2.RowBatch:
    """The batch of these rows; a column that no row has is left out. TIMESTAMP_MS is given as epoch milliseconds.

    Raises ModelError: a column is not of the table, a value does not fit, or a required one is missing.
    """
    used: set[str] = set().union(*rows)
    for name in used.difference(column.name for column in table.columns):
        raise ModelError(f"{table.name} has no column {shown(name)}", field=name)
    batch = stats_pb2.RowBatch(table=table.name, producer=producer, first_number=first_number, rows=len(rows))
    for column in table.columns:
        if column.nullable and column.name not in used:
            continue
        values = [row.get(column.name) for row in rows]
        nulls = [place for place, value in enumerate(values) if value is None]
        if nulls and not column.nullable:
            raise ModelError(f"{table.name}.{column.name} is missing in row {nulls[0]}", field=column.name)
        if len(nulls) < len(values):
            batch.columns.append(_filled(table.name, column, values, nulls))
    return batch


def values_to_wire(name: str, type_: ColumnType, values: Sequence[Value]) -> stats_pb2.ColumnValues:
    """One column, None for NULL. Raises ModelError: a value does not fit."""
    nulls = [place for place, value in enumerate(values) if value is None]
    return _filled("", Column(name, type_, nullable=True), values, nulls)


def _filled(table: str, column: Column, values: Sequence[Value], nulls: list[int]) -> stats_pb2.ColumnValues:
    field, kind = _FIELDS[column.type]
    message = stats_pb2.ColumnValues(name=column.name, type=int(column.type), nulls=nulls)  # type: ignore[arg-type]
    target = getattr(message, field)
    limit = _LIMITS.get(column.type)
    where = f"{table}.{column.name}" if table else column.name
    for place, value in enumerate(values):
        if value is None:
            value = kind()
        elif kind is float and type(value) is int:
            value = float(value)
        elif type(value) is not kind and not (isinstance(value, kind) and kind is not int):
            raise ModelError(
                f"{where}: row {place} has {type(value).__name__} for {column.type.name}", field=column.name
            )
        if limit is not None and not -limit <= value < limit:
            raise ModelError(f"{where}: row {place} has {value}, outside {column.type.name}", field=column.name)
        try:
            if column.type is ColumnType.MAP:
                target.add().entries.update(value)
            elif kind is list:
                target.add().values.extend(value)
            else:
                target.append(value)
        except (TypeError, ValueError) as error:
            raise ModelError(
                f"{where}: row {place} does not fit {column.type.name}: {error}", field=column.name
            ) from None
    return message


def values_of(column: stats_pb2.ColumnValues) -> list[Value]:
    """The values of a column, None where they are NULL. Positions beyond the values are ignored."""
    field = field_of(column.type)
    found: list[Value]
    if field == "maps":
        found = [dict(entry.entries) for entry in column.maps]
    elif field in ("float_lists", "integer_lists"):
        found = [list(entry.values) for entry in getattr(column, field)]
    else:
        found = list(getattr(column, field))
    for place in column.nulls:
        if place < len(found):
            found[place] = None
    return found


def rows_of(columns: Iterable[stats_pb2.ColumnValues]) -> Iterator[dict[str, Value]]:
    """The rows of an answer of `Query`, or of a batch, as mappings."""
    columns = list(columns)
    names = [column.name for column in columns]
    for values in zip(*map(values_of, columns), strict=True):
        yield dict(zip(names, values, strict=True))


def table_to_wire(table: Table) -> stats_pb2.TableSchema:
    """The schema as a message."""
    return stats_pb2.TableSchema(
        table=table.name,
        columns=[
            stats_pb2.TableColumn(name=column.name, type=int(column.type), nullable=column.nullable)  # type: ignore[arg-type]
            for column in table.columns
        ],
        key_column=table.key_column,
        policy=policy_to_wire(table.policy),
    )


def table_from_wire(message: stats_pb2.TableSchema) -> Table:
    """The schema of a message, unchecked but for its types. Raises ModelError."""
    columns = []
    for column in message.columns:
        try:
            type_ = ColumnType(column.type)
        except ValueError:
            raise ModelError(f"{shown(column.name)} has no known type ({column.type})", field="columns") from None
        columns.append(Column(column.name, type_, column.nullable))
    policy = StoragePolicy(message.policy.max_segments, message.policy.max_bytes, message.policy.max_age_seconds)
    return Table(message.table, tuple(columns), message.key_column, policy)


def policy_to_wire(policy: StoragePolicy) -> stats_pb2.StoragePolicy:
    """The policy as a message."""
    return stats_pb2.StoragePolicy(
        max_segments=policy.max_segments, max_bytes=policy.max_bytes, max_age_seconds=policy.max_age_seconds
    )
