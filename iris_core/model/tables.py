"""Tables of measurements and events: columns, key, how much of one is kept, and how a schema may grow (cli-auth-logs §3.1).

Producers, the store and the command line all speak of tables through these values. Every table also has a `seq`, an INT64 that
the store gives at append and that no schema names. Must never hold a row, nor know what any one table is for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from iris_core.model.errors import ModelError, shown

MAX_COLUMNS: Final = 256
SEQ: Final = "seq"
"""The implicit column: order of append over the whole table."""
LOG: Final = "log"
"""The built-in table of log lines; it is not registered."""
TIMESTAMP: Final = "timestamp_ms"
"""The column that a table without a key must have."""

_TABLE: Final = re.compile(r"[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)*")
_COLUMN: Final = re.compile(r"[a-z_][a-z0-9_]*")
_MAX_NAME: Final = 64
_NO_QUERY: Final = re.compile(
    r"(?:main|memory|system|temp|information_schema|pg_catalog)\..*"
    r"|.*\.(?:parquet|csv|tsv|json|jsonl|ndjson|db|duckdb|arrow|gz|zst)"
)
"""Names that a statement could not read a table by: in SQL they are the engine's own, or files."""


class ColumnType(IntEnum):
    """What a column holds. The numbers are those of the wire."""

    STRING = 1
    INT64 = 2
    INT32 = 3
    FLOAT64 = 4
    BOOL = 5
    TIMESTAMP_MS = 6
    """Epoch milliseconds, UTC; in SQL a timestamp without a zone."""
    BYTES = 7
    MAP = 8
    """String to string."""
    FLOAT64_LIST = 9
    INT64_LIST = 10


KEYS: Final = frozenset({ColumnType.STRING, ColumnType.INT64, ColumnType.INT32, ColumnType.TIMESTAMP_MS})
"""Types that a key may have: scalars that have one order everywhere."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column. A row without a value for one that is not nullable is refused."""

    name: str
    type: ColumnType
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class StoragePolicy:
    """What of a table is kept on this machine, oldest rows first to go; 0 = no limit. All zero = none was given."""

    max_segments: int = 0
    max_bytes: int = 0
    max_age_seconds: int = 0

    def __bool__(self) -> bool:
        return bool(self.max_segments or self.max_bytes or self.max_age_seconds)


@dataclass(frozen=True, slots=True)
class Table:
    """The schema of a table.

    Attributes:
        name: Such as `iris.task_event`; in SQL it needs double quotes.
        columns: In the order of `SELECT *`, without `seq`.
        key_column: Rows are kept sorted by it, so a filter on it reads little; `""` = by `timestamp_ms`.
        policy: How much is kept.
    """

    name: str
    columns: tuple[Column, ...]
    key_column: str = ""
    policy: StoragePolicy = StoragePolicy()

    @property
    def sort_column(self) -> str:
        """The column that segments are sorted by, before `seq`."""
        return self.key_column or TIMESTAMP

    @property
    def time_column(self) -> str:
        """The column that says how old a row is: the first TIMESTAMP_MS, or `timestamp_ms`; `""` if there is none."""
        times = [column.name for column in self.columns if column.type is ColumnType.TIMESTAMP_MS]
        return times[0] if times else TIMESTAMP if self.column(TIMESTAMP) is not None else ""

    def column(self, name: str) -> Column | None:
        """The column of that name."""
        return next((column for column in self.columns if column.name == name), None)


def check_table_name(name: str) -> None:
    """Raises ModelError unless it is lower-case words with dots between them."""
    if len(name) > _MAX_NAME or not _TABLE.fullmatch(name):
        raise ModelError(
            f"no table can be called {shown(name)}",
            field="table",
            hint=f"at most {_MAX_NAME} lower-case letters, digits, _ and dots, such as iris.worker",
        )


def check_table(table: Table) -> None:
    """Raises ModelError if it is no schema that a store can hold."""
    check_table_name(table.name)
    if table.name == LOG:
        raise ModelError("the table log is built in and cannot be registered", field="table")
    if _NO_QUERY.fullmatch(table.name):
        raise ModelError(
            f"no query could read a table called {table.name}: SQL has another meaning for that", field="table"
        )
    if not 0 < len(table.columns) <= MAX_COLUMNS:
        raise ModelError(
            f"{table.name} has {len(table.columns)} columns; 1 to {MAX_COLUMNS} are allowed", field="columns"
        )
    seen: set[str] = set()
    for column in table.columns:
        if len(column.name) > _MAX_NAME or not _COLUMN.fullmatch(column.name) or column.name == SEQ:
            raise ModelError(
                f"{table.name}: no column can be called {shown(column.name)}",
                field="columns",
                hint="lower-case letters, digits and _; seq is given by the store",
            )
        if column.name in seen:
            raise ModelError(f"{table.name} has two columns {column.name}", field="columns")
        seen.add(column.name)
    key = table.column(table.sort_column)
    if key is None:
        missing = f"the key column {shown(table.key_column)}" if table.key_column else f"a key column, nor {TIMESTAMP}"
        raise ModelError(f"{table.name} does not have {missing}", field="key_column")
    if not table.key_column and key.type not in (ColumnType.TIMESTAMP_MS, ColumnType.INT64):
        raise ModelError(f"{table.name}: {TIMESTAMP} must be TIMESTAMP_MS or INT64", field="columns")
    if key.type not in KEYS or key.nullable:
        raise ModelError(
            f"{table.name}: the key {key.name} must be a scalar and not nullable",
            field="key_column",
            hint=f"one of {', '.join(type_.name for type_ in sorted(KEYS))}",
        )
    policy = table.policy
    if min(policy.max_segments, policy.max_bytes, policy.max_age_seconds) < 0:
        raise ModelError(f"{table.name}: a storage limit is below zero", field="policy")


def grown(old: Table, new: Table) -> Table:
    """What a table becomes when it is registered again (cli-auth-logs §3.1).

    Columns that are new and nullable are added at the end; an empty policy keeps the old one. Raises ModelError: the key changes,
    a column is missing or has another type, or a new one is required.
    """
    if new.key_column != old.key_column:
        raise ModelError(
            f"{old.name} is keyed by {old.key_column or TIMESTAMP}, not by {new.key_column or TIMESTAMP}",
            field="key_column",
            hint="a key cannot be changed; register another table",
        )
    for column in old.columns:
        given = new.column(column.name)
        if given is None:
            raise ModelError(
                f"{old.name} has a column {column.name}, which is missing now",
                field="columns",
                hint="columns cannot be dropped; register it with all it had",
            )
        if given.type is not column.type:
            raise ModelError(
                f"{old.name}.{column.name} is {column.type.name}, not {given.type.name}",
                field="columns",
                hint="a column keeps its type; add another one",
            )
        if column.nullable and not given.nullable:
            raise ModelError(f"{old.name}.{column.name} is nullable and cannot become required", field="columns")
    added = tuple(column for column in new.columns if old.column(column.name) is None)
    for column in added:
        if not column.nullable:
            raise ModelError(
                f"the new column {old.name}.{column.name} is not nullable",
                field="columns",
                hint="the rows that are there have no value for it",
            )
    return replace(old, columns=old.columns + added, policy=new.policy or old.policy)
