"""The columns of the log store's tables and of their columns, for the command line's tables; rules as in `columns`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from iris_core.live.columns import ColumnSpec, iso, when
from iris_core.live.wording import NOTHING, or_nothing
from iris_core.model.quantities import format_size
from iris_core.model.tables import ColumnType

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_core.wire.gen.iris.v1.stats_pb2 import TableColumn, TableStatus

SchemaRow = tuple["TableColumn", bool]
"""A column, and whether it is the key."""


def type_word(number: int) -> str:
    """A type as it is named; an unknown one shows as its number."""
    try:
        return ColumnType(number).name
    except ValueError:
        return str(number)


def policy_text(table: TableStatus) -> str:
    """What of a table is kept, as a person reads it."""
    policy = table.policy
    parts = []
    if policy.max_age_seconds:
        days, rest = divmod(policy.max_age_seconds, 86_400)
        parts.append(f"{days}d" if days and not rest else f"{policy.max_age_seconds / 3600:g}h")
    if policy.max_bytes:
        parts.append(format_size(policy.max_bytes))
    if policy.max_segments:
        parts.append(f"{policy.max_segments} segments")
    return ", ".join(parts) or NOTHING


def _word(applies: bool, word: str) -> str:
    return word if applies else NOTHING


def _policy(table: TableStatus) -> dict[str, int]:
    policy = table.policy
    return {
        "max_segments": policy.max_segments,
        "max_bytes": policy.max_bytes,
        "max_age_seconds": policy.max_age_seconds,
    }


def _text(name: str, title: str, value: Callable[[Any], str], **more: Any) -> ColumnSpec[Any]:
    return ColumnSpec(
        id=name, title=title, value=lambda row: value(row) or None, text=lambda row, _: or_nothing(value(row)),
        sort=lambda row, _: value(row), **more,
    )  # fmt: skip


def _count(name: str, title: str, value: Callable[[Any], int]) -> ColumnSpec[Any]:
    return ColumnSpec(
        id=name, title=title, align="right", value=value, text=lambda row, _: f"{value(row):,}",
        sort=lambda row, _: value(row),
    )  # fmt: skip


def _size(name: str, title: str, value: Callable[[Any], int]) -> ColumnSpec[Any]:
    return ColumnSpec(
        id=name, title=title, align="right", value=value, text=lambda row, _: format_size(value(row)),
        sort=lambda row, _: value(row),
    )  # fmt: skip


def _moment(name: str, title: str, value: Callable[[Any], int]) -> ColumnSpec[Any]:
    return ColumnSpec(
        id=name, title=title, value=lambda row: iso(value(row)), text=lambda row, _: when(value(row)),
        sort=lambda row, _: value(row),
    )  # fmt: skip


TABLES: Final[dict[str, ColumnSpec[TableStatus]]] = {
    spec.id: spec
    for spec in (
        _text("table", "TABLE", lambda row: row.table, min_width=12),
        _text("key", "KEY", lambda row: row.key_column),
        _count("columns", "COLUMNS", lambda row: row.columns),
        _count("rows", "ROWS", lambda row: row.rows),
        _count("pending", "PENDING", lambda row: row.pending_rows),
        _size("bytes", "SIZE", lambda row: row.bytes + row.pending_bytes),
        _count("segments", "SEGMENTS", lambda row: row.segments),
        _count("min_seq", "MIN SEQ", lambda row: row.min_seq),
        _count("max_seq", "MAX SEQ", lambda row: row.max_seq),
        _moment("earliest", "EARLIEST", lambda row: row.earliest_ms),
        _moment("latest", "LATEST", lambda row: row.latest_ms),
        _count("producers", "PRODUCERS", lambda row: row.producers),
        _count("removed", "REMOVED", lambda row: row.removed_rows),
        _count("missing", "MISSING", lambda row: row.missing_rows),
        ColumnSpec(id="policy", title="KEPT", value=_policy, text=lambda row, _: policy_text(row)),
    )
}

COLUMNS: Final[dict[str, ColumnSpec[SchemaRow]]] = {
    spec.id: spec
    for spec in (
        _text("column", "COLUMN", lambda row: row[0].name, min_width=8),
        _text("type", "TYPE", lambda row: type_word(row[0].type)),
        ColumnSpec(
            id="nullable", title="NULLABLE", value=lambda row: row[0].nullable,
            text=lambda row, _: _word(row[0].nullable, "yes"),
        ),
        ColumnSpec(
            id="key", title="KEY", value=lambda row: row[1], text=lambda row, _: _word(row[1], "key")
        ),
    )
}  # fmt: skip
