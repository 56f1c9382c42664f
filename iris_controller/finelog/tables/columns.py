"""Between rows on the wire, Arrow, and the columns that SQL sees: one place that knows how each type lies in a segment.

pyarrow is heavy: this module is only imported where rows become a segment or are handed to a query. Must never change a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from iris_controller.finelog.segments import Layout, conform
from iris_core.model.tables import SEQ, ColumnType, Table
from iris_core.wire.rows import values_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_core.wire.gen.iris.v1 import stats_pb2

_ARROW: dict[ColumnType, Any] = {
    ColumnType.STRING: pa.string(),
    ColumnType.INT64: pa.int64(),
    ColumnType.INT32: pa.int32(),
    ColumnType.FLOAT64: pa.float64(),
    ColumnType.BOOL: pa.bool_(),
    ColumnType.TIMESTAMP_MS: pa.timestamp("ms"),
    ColumnType.BYTES: pa.binary(),
    ColumnType.MAP: pa.map_(pa.string(), pa.string()),
    ColumnType.FLOAT64_LIST: pa.list_(pa.float64()),
    ColumnType.INT64_LIST: pa.list_(pa.int64()),
}


def schema_of(table: Table) -> Any:
    """The `pyarrow.Schema` of a table's segments: `seq`, then its columns."""
    fields = [pa.field(SEQ, pa.int64(), nullable=False)]
    fields += [pa.field(column.name, _ARROW[column.type]) for column in table.columns]
    return pa.schema(fields)


def layout_of(table: Table) -> Layout:
    """How its rows lie in segments. Blobs get no dictionary and no bounds."""
    unique = tuple(column.name for column in table.columns if column.type is ColumnType.BYTES)
    return Layout(table.name, schema_of(table), table.sort_column, table.time_column or SEQ, unique)


def rows_to_arrow(table: Table, batches: Iterable[tuple[int, stats_pb2.RowBatch]]) -> Any:
    """The rows of batches, each with the seq of its first row, as one `pyarrow.Table` of the table's schema."""
    schema = schema_of(table)
    pieces = [_batch_to_arrow(table, first_seq, batch) for first_seq, batch in batches]
    if not pieces:
        return schema.empty_table()
    return pa.concat_tables([conform(piece, schema) for piece in pieces])


def _batch_to_arrow(table: Table, first_seq: int, batch: stats_pb2.RowBatch) -> Any:
    names, arrays = [SEQ], [pa.array(range(first_seq, first_seq + batch.rows), pa.int64())]
    for values in batch.columns:
        column = table.column(values.name)
        if column is None:
            continue
        found = values_of(values)
        if column.type is ColumnType.MAP:
            found = [None if entries is None else list(entries.items()) for entries in found]
        names.append(column.name)
        arrays.append(pa.array(found, _ARROW[column.type]))
    return pa.Table.from_arrays(arrays, names=names)
