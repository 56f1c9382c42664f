"""Small tables and batches for the tests of registered tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iris_controller.finelog.catalog import Catalog
from iris_controller.finelog.tables.admission import Rows, check
from iris_controller.finelog.tables.columns import rows_to_arrow
from iris_controller.finelog.tables.store import TableStore
from iris_core.model.tables import Column, ColumnType, StoragePolicy, Table
from iris_core.wire.rows import batch_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from iris_core.wire.gen.iris.v1 import stats_pb2

METRIC = Table(
    "test.metric",
    (
        Column("name", ColumnType.STRING),
        Column("ts", ColumnType.TIMESTAMP_MS),
        Column("value", ColumnType.FLOAT64, nullable=True),
        Column("labels", ColumnType.MAP, nullable=True),
    ),
    "name",
)
OTHER = Table("test.other", (Column("timestamp_ms", ColumnType.TIMESTAMP_MS), Column("n", ColumnType.INT64)))
EVERYTHING = Table(
    "test.everything",
    tuple(Column(type_.name.lower(), type_, nullable=type_ is not ColumnType.STRING) for type_ in ColumnType),
    "string",
)
"""A column of every type, named after it."""
NOW_MS = 1_700_000_000_000


def metric(number: int, **more: Any) -> dict[str, Any]:
    """A row of METRIC that tells its number."""
    return {"name": f"m{number % 3}", "ts": NOW_MS + number, "value": float(number), **more}


def metrics(first: int, count: int, producer: str = "p0") -> stats_pb2.RowBatch:
    """Rows `first` and following of a producer."""
    return batch_of(METRIC, producer, first, [metric(first + place) for place in range(count)])


def checked(*batches: stats_pb2.RowBatch, tables: Iterable[Table] = (METRIC, OTHER)) -> list[Rows]:
    """Batches that the schema admits."""
    for batch in batches:
        check(batch, {table.name: table for table in tables})
    return [Rows(batch, batch.SerializeToString()) for batch in batches]


def opened(folder: Path, **more: Any) -> TableStore:
    """A store of METRIC and OTHER alone."""
    more.setdefault("namespaces", (METRIC, OTHER))
    return TableStore(folder / "stats", Catalog(folder / "tables"), **more)


def with_policy(**limits: int) -> Table:
    """METRIC with that policy."""
    return Table(METRIC.name, METRIC.columns, METRIC.key_column, StoragePolicy(**limits))


def stored(store: TableStore, table: Table = METRIC) -> list[dict[str, Any]]:
    """Every row that a query would read, in the order of seq, from segments and from the files behind them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with store.view([table.name]) as view:
        found = view.tables[table.name]
        pieces = [pq.read_table(path) for path in found.paths()]
        tail = [(extent.first_seq, file.read(extent)) for file, extent in found.tail]
        pieces.append(rows_to_arrow(found.table, [(seq, batch) for seq, batch in tail if batch is not None]))
    rows: list[dict[str, Any]] = pa.concat_tables(pieces, promote_options="default").sort_by("seq").to_pylist()
    return rows


def values(store: TableStore) -> list[float]:
    """The `value` of every row of METRIC, in the order of seq."""
    return [row["value"] for row in stored(store)]
