"""One producer's rows on their way in: checked against the schema, and freed of what is here already.

A producer numbers the rows it writes to a table from 0 and pushes them in order, one push at a time. Rows below its mark were stored
before and are dropped; numbers that it jumps over are counted as missing. A push is taken whole or not at all. Must never touch a
disk.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from iris_controller.rpc.errors import RpcError, invalid
from iris_core.model.errors import did_you_mean, shown
from iris_core.model.tables import ColumnType
from iris_core.wire.gen.iris.v1 import stats_pb2
from iris_core.wire.rows import field_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from iris_core.model.tables import Column, Table

MAX_PUSH_BYTES = 12 << 20
MAX_ROWS = 50_000
MAX_TEXT_BYTES = 1 << 20
MAX_BLOB_BYTES = 8 << 20
MAX_KEY_BYTES = 1024
MAX_LIST = 100_000
"""Values of a list, and entries of a map."""
MAX_NUMBER = 1 << 63
EARLIEST_MS = -62_135_596_800_000
LATEST_MS = 253_402_300_799_999
"""Times of the years 1 to 9999: what every reader can show."""

_WORD = re.compile(r"[A-Za-z0-9._-]{1,64}")
_FIELDS = ("strings", "integers", "doubles", "bools", "blobs", "maps", "float_lists", "integer_lists")
_RANGES = {
    ColumnType.INT32: (-(1 << 31), (1 << 31) - 1, "an INT32"),
    ColumnType.TIMESTAMP_MS: (EARLIEST_MS, LATEST_MS, "a time between the years 1 and 9999"),
}


@dataclass(slots=True)
class Rows:
    """A checked `RowBatch`, and after it was stored what became of it.

    Attributes:
        stored: How many of its rows are new.
        missing: How many numbers before it never arrived.
        refused: Why none of it was.
    """

    message: stats_pb2.RowBatch
    payload: bytes
    stored: int = 0
    missing: int = 0
    refused: RpcError | None = None

    @property
    def end(self) -> int:
        """The number after that of its last row."""
        return self.message.first_number + self.message.rows


def parse(raw: bytes, tables: Mapping[str, Table]) -> list[Rows]:
    """The batches of a serialised `WriteRowsRequest`. Raises RpcError: nothing of the push may be stored."""
    if len(raw) > MAX_PUSH_BYTES:
        raise RpcError(
            "INVALID_ARGUMENT",
            f"the push has {len(raw)} bytes, more than {MAX_PUSH_BYTES}",
            code="push_too_large",
            hint="send fewer rows at once",
        )
    try:
        request = stats_pb2.WriteRowsRequest.FromString(raw)
    except DecodeError as error:
        raise invalid("", "this is no WriteRowsRequest", code="malformed") from error
    found = []
    for place, message in enumerate(request.batches):
        where = f"batches[{place}]"
        check(message, tables, where)
        if message.rows:
            found.append(Rows(message, message.SerializeToString()))
    return found


def no_table(name: str, tables: Iterable[str], field: str = "table") -> RpcError:
    """The error for a table that is not there."""
    near = did_you_mean(name, sorted(tables))
    return RpcError(
        "NOT_FOUND",
        f"there is no table {shown(name)}",
        code="unknown_table",
        subject=name[:64],
        field=field,
        hint=near or "register it first; `stats tables` lists those that are there",
    )


def check(message: stats_pb2.RowBatch, tables: Mapping[str, Table], where: str = "batch") -> None:
    """Raises RpcError unless the batch fits the schema of its table."""
    table = tables.get(message.table)
    if table is None:
        raise no_table(message.table, tables, f"{where}.table")
    if not _WORD.fullmatch(message.producer):
        raise invalid(
            f"{where}.producer",
            f"the producer {message.producer[:80]!r} is not 1 to 64 letters, digits, dots, dashes or underscores",
        )
    if not 0 <= message.rows <= MAX_ROWS:
        raise invalid(f"{where}.rows", f"a batch of {message.rows} rows; 0 to {MAX_ROWS} are taken")
    if message.first_number + message.rows > MAX_NUMBER:
        raise invalid(f"{where}.first_number", f"row number {message.first_number} is out of range")
    seen: set[str] = set()
    for values in message.columns:
        column = table.column(values.name)
        if column is None:
            near = did_you_mean(values.name, [known.name for known in table.columns])
            raise invalid(
                f"{where}.columns", f"{table.name} has no column {shown(values.name)}", code="unknown_column", hint=near
            )
        if column.name in seen:
            raise invalid(f"{where}.columns", f"{table.name}.{column.name} is given twice")
        seen.add(column.name)
        _check_values(message, column, values, f"{where}.{column.name}")
        if column.name == table.sort_column and column.type is ColumnType.STRING:
            _check_lengths(values.strings, MAX_KEY_BYTES, f"{where}.{column.name}")
    for column in table.columns:
        if not column.nullable and column.name not in seen and message.rows:
            raise invalid(
                f"{where}.columns", f"{table.name}.{column.name} is required and missing", code="missing_column"
            )


def _check_values(message: stats_pb2.RowBatch, column: Column, values: stats_pb2.ColumnValues, where: str) -> None:
    if int(values.type) != int(column.type):
        given = stats_pb2.ColumnType.Name(values.type) if values.type in stats_pb2.ColumnType.values() else values.type
        raise invalid(
            where,
            f"{message.table}.{column.name} is {column.type.name}, not {str(given).removeprefix('COLUMN_TYPE_')}",
            code="wrong_type",
        )
    field = field_of(column.type)
    found: Any = getattr(values, field)
    if len(found) != message.rows:
        raise invalid(where, f"{len(found)} {field} for {message.rows} rows", code="wrong_length")
    for other in _FIELDS:
        if other != field and len(getattr(values, other)):
            raise invalid(where, f"{column.type.name} comes as {field}, and there are {other} too", code="wrong_type")
    nulls = list(values.nulls)
    if nulls:
        if not column.nullable:
            raise invalid(where, f"{message.table}.{column.name} may not be NULL (row {nulls[0]})", code="null")
        if nulls[-1] >= message.rows or any(a >= b for a, b in pairwise(nulls)):
            raise invalid(where, "the positions of the NULLs do not ascend within the rows")
    if column.type in _RANGES and len(found):
        low, high, what = _RANGES[column.type]
        for bound in (min(found), max(found)):
            if not low <= bound <= high:
                raise invalid(where, f"{bound} is not {what}", code="out_of_range")
    match column.type:
        case ColumnType.STRING:
            _check_lengths(found, MAX_TEXT_BYTES, where)
        case ColumnType.BYTES:
            _check_lengths(found, MAX_BLOB_BYTES, where)
        case ColumnType.MAP:
            _check_counts((len(entry.entries) for entry in found), where)
        case ColumnType.FLOAT64_LIST | ColumnType.INT64_LIST:
            _check_counts((len(entry.values) for entry in found), where)


def _check_lengths(values: Iterable[str] | Iterable[bytes], limit: int, where: str) -> None:
    for place, value in enumerate(values):
        # A character has at most four bytes.
        if len(value) * 4 > limit and (size := len(value.encode() if isinstance(value, str) else value)) > limit:
            raise invalid(where, f"row {place} has {size} bytes, more than {limit}", code="value_too_long")


def _check_counts(counts: Iterable[int], where: str) -> None:
    for place, count in enumerate(counts):
        if count > MAX_LIST:
            raise invalid(where, f"row {place} has {count} values, more than {MAX_LIST}", code="value_too_long")


def admit(rows: Rows, mark: int) -> Rows | None:
    """What of a batch is new to a store that has the producer's rows below `mark`; None if nothing is.

    What became of it is told in `rows`.
    """
    message = rows.message
    rows.missing = max(0, message.first_number - mark)
    rows.stored = max(0, min(message.rows, rows.end - mark))
    if not rows.stored:
        rows.missing = 0
        return None
    if rows.stored == message.rows:
        return rows
    fresh = _rest(message, message.rows - rows.stored)
    return Rows(fresh, fresh.SerializeToString())


def _rest(message: stats_pb2.RowBatch, skip: int) -> stats_pb2.RowBatch:
    """The batch without its first `skip` rows."""
    fresh = stats_pb2.RowBatch(
        table=message.table,
        producer=message.producer,
        first_number=message.first_number + skip,
        rows=message.rows - skip,
    )
    for values in message.columns:
        kept = fresh.columns.add(
            name=values.name, type=values.type, nulls=[place - skip for place in values.nulls if place >= skip]
        )
        field = field_of(values.type)
        getattr(kept, field).extend(getattr(values, field)[skip:])
    return fresh
