"""What a statement gave: asked of the controller's database or of the log store's tables, in one shape for a grid, a file and an action.

Every column and every value arrives as it was sent; what the server left out stays known. The ids that an action can be about are found
by the column's name or its cells, and where several columns hold some nobody guesses. Must never change a statement.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from iris_core.model.errors import ModelError
from iris_core.model.ids import AttemptId, JobId, TaskId, parse_target
from iris_core.model.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_core.contracts import AsyncClient
    from iris_core.wire.gen.iris.v1 import stats_pb2

CONTROLLER: Final = "controller"
STATS: Final = "stats"
DATABASES: Final = (CONTROLLER, STATS)
TITLES: Final = {CONTROLLER: "the controller's database", STATS: "stats, events and logs"}
TIMEOUT_S: Final = 60.0
STATS_S: Final = 20
_PIECE: Final = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/|\s+""", re.S)
NAMED: Final = ("task_id", "job_id", "attempt_id")
"""Columns whose cells are what an action is about, if they are ids."""


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to one statement.

    Attributes:
        names: Of the columns, as they were sent; one may repeat.
        rows: JSON-ready values.
        capped: Why there are more rows than these, "" = these are all.
        notes: What was not there to be read.
    """

    sql: str
    database: str
    names: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    capped: str = ""
    notes: tuple[str, ...] = ()


async def ask(client: AsyncClient, database: str, sql: str) -> Result:
    """Run a statement. Raises IrisError; a RpcFailed has the `position` of the fault where it is known."""
    return await (_ask_stats if database == STATS else _ask_controller)(client, sql)


async def _ask_controller(client: AsyncClient, sql: str) -> Result:
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    answer = await client.call(
        "ControllerService/ExecuteRawQuery",
        pb.ExecuteRawQueryRequest(sql=sql),
        pb.ExecuteRawQueryResponse,
        timeout_s=TIMEOUT_S,
    )
    rows = tuple(tuple(json.loads(row)) for row in answer.rows)
    capped = f"the first {counted(len(rows), 'row')}, the server sends no more" if answer.truncated else ""
    return Result(sql, CONTROLLER, tuple(column.name for column in answer.columns), rows, capped)


async def _ask_stats(client: AsyncClient, sql: str) -> Result:
    from iris_core.wire.gen.iris.v1 import stats_pb2 as pb
    from iris_core.wire.rows import values_of

    request = pb.QueryRequest(sql=sql, timeout_ms=STATS_S * 1000)
    answer = await client.call("StatsService/Query", request, pb.QueryResponse, timeout_s=TIMEOUT_S)
    columns = [[cell_of(column, value) for value in values_of(column)] for column in answer.columns]
    rows = tuple(zip(*columns, strict=True))
    capped = f"{counted(len(rows), 'row')}, there are more: {answer.capped_reason}" if answer.capped else ""
    return Result(sql, STATS, tuple(column.name for column in answer.columns), rows, capped, tuple(answer.notes))


def cell_of(column: stats_pb2.ColumnValues, value: Any, *, nested: bool = False) -> Any:
    """A stats value as JSON and CSV have it: a number, a truth value, text, or None; maps and lists as JSON text unless `nested`."""
    from iris_core.model.tables import ColumnType

    if value is None:
        return None
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if int(column.type) == ColumnType.TIMESTAMP_MS:
        return _moment(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, (dict, list)):
        return value if nested else json.dumps(value, ensure_ascii=False)
    return value


def _moment(epoch_ms: int) -> str:
    from iris_core.live.wording import iso

    return iso(epoch_ms) or ("1970-01-01T00:00:00.000Z" if not epoch_ms else str(epoch_ms))


def shown(value: Any) -> str:
    """A value as a table shows it: NULL is not the empty string."""
    if value is None:
        return "NULL"
    return repr(value) if isinstance(value, float) else str(value)


def distinct(names: Sequence[str]) -> list[str]:
    """Names of which none repeats: the second `x` is `x_2`, or the next number that is free."""
    taken = set(names)
    found: list[str] = []
    for name in names:
        unique, number = name, 1
        while unique in found:
            number += 1
            unique = f"{name}_{number}"
            if unique in taken and unique not in found:
                unique = name
        found.append(unique)
    return found


# --- what an action is about -----------------------------------------------------------------------------------------


def kind_of(cell: Any) -> str:
    """ "job", "task" or "attempt" for a cell that is the id of one, else ""."""
    if not isinstance(cell, str) or not cell.startswith("/"):
        return ""
    try:
        target = parse_target(cell)
    except ModelError:
        return ""
    kinds: tuple[tuple[type, str], ...] = ((JobId, "job"), (TaskId, "task"), (AttemptId, "attempt"))
    return next((kind for type_, kind in kinds if isinstance(target, type_)), "")


def id_columns(result: Result) -> list[int]:
    """The columns that hold ids: those with a name for it, else the first whose cells begin with a slash. Several: somebody must choose."""

    def holds(at: int) -> bool:
        cells = [row[at] for row in result.rows if row[at] is not None]
        return bool(cells) and all(isinstance(cell, str) and cell.startswith("/") for cell in cells)

    named = [at for at, name in enumerate(result.names) if name in NAMED and holds(at)]
    return named or [at for at in range(len(result.names)) if holds(at)][:1]


def on_one_line(sql: str) -> str:
    """A statement without its line breaks, comments and last semicolon; what stands in quotes stays as it is."""
    return _PIECE.sub(lambda piece: piece[0] if piece[0][0] in "'\"" else " ", sql).strip().rstrip("; ")


def pipe_line(result: Result, column: int, action: str, at: str = "") -> str:
    """The command line that does the same to every row: `iris-core query -f csv … | iris-core task preempt --stdin`."""
    sql = on_one_line(result.sql)
    if column:
        # A line's first field is what is read from it.
        name = result.names[column].replace('"', '""')
        sql = f'SELECT "{name}" FROM ({sql})'
    program = " ".join(part for part in ("iris-core", at) if part)
    noun = "query" if result.database == CONTROLLER else "stats query"
    return f"{program} {noun} -f csv {shlex.quote(sql)} | {program} {action} --stdin"
