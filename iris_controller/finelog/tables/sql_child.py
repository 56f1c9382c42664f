"""A query's own process: one SELECT over files that it is told, bounded in memory, time and output.

Started as a script (`python -I sql_child.py`). It reads the question from stdin, says which tables the statement reads, is told
their files, and writes a `QueryResponse`; each message is a line of JSON or a length and bytes. The engine holds an empty database
in memory and may open exactly those files: no other one, no network, no extension, no setting. The kernel's limits end what escapes
the engine's own (DESIGN §6). Must never hold a secret, nor outlive whoever asked.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
import signal
import sys
import threading
import time
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock
from decimal import Decimal
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Isolated, it does not look beside itself.
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from iris_controller.finelog.tables import sql_check

ENGINE_MIB = 512
PROCESS_MIB = 3072
"""Address space, most of which is never touched: the engine, its threads, and the answer."""
FETCH_ROWS = 1024
DEPTH = 250
MACROS = (
    # Text that is no JSON, and a key that is not there, are NULL.
    "CREATE MACRO json_get(t, k) AS CASE WHEN json_valid(t) THEN json_extract_string(t, CASE WHEN typeof(k) = 'VARCHAR' "
    "THEN '$.\"' || replace(k::VARCHAR, '\"', '\"\"') || '\"' ELSE '$[' || k::VARCHAR || ']' END) END",
    "CREATE MACRO json_get_str(t, k) AS json_get(t, k)",
    "CREATE MACRO json_get_int(t, k) AS TRY_CAST(json_get(t, k) AS BIGINT)",
    "CREATE MACRO json_get_float(t, k) AS TRY_CAST(json_get(t, k) AS DOUBLE)",
    "CREATE MACRO json_get_bool(t, k) AS TRY_CAST(json_get(t, k) AS BOOLEAN)",
)
"""What operators' statements use beyond the engine's own functions (cli-auth-logs §3.6)."""

_CARET = re.compile(r"LINE (\d+): (.*)\n( *)\^")
_INTEGERS = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"})
_WIDE = frozenset({"UBIGINT", "HUGEINT", "UHUGEINT", "BIGNUM"})
_INT64 = (-(1 << 63), (1 << 63) - 1)
_EPOCH = datetime(1970, 1, 1)


class LimitReached(Exception):
    """The statement needs more than it may have."""


def main() -> None:
    question = json.loads(sys.stdin.buffer.readline())
    _confine(question)
    try:
        answer = run(question)
    except sql_check.StatementRefused as refused:
        _say({"error": refused.kind, "message": refused.message, "position": refused.position})
        return
    except LimitReached as limit:
        _say({"error": "limit", "message": str(limit)})
        return
    except MemoryError:
        _say({"error": "limit", "message": "the query needs more memory than it may use"})
        return
    except Exception as error:
        _say({"error": "fault", "message": f"{type(error).__name__}: {_first_line(error)}"})
        return
    _say({"bytes": len(answer)})
    sys.stdout.buffer.write(answer)


def _confine(question: dict[str, Any]) -> None:
    # Whoever asked may be killed: this process then ends too.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != question["parent"]:
        sys.exit(1)
    size = PROCESS_MIB << 20
    seconds = int(question["seconds"]) * question["threads"] + 2
    for limit, value in (
        (resource.RLIMIT_AS, size),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (value, value))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    os.nice(5)
    sys.setrecursionlimit(20_000)


def _say(message: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
    sys.stdout.buffer.flush()


def run(question: dict[str, Any]) -> bytes:
    import duckdb

    sql = str(question["sql"])
    started = time.monotonic()
    connection = duckdb.connect(
        ":memory:",
        config={
            "threads": question["threads"],
            "memory_limit": f"{ENGINE_MIB}MiB",
            "max_temp_directory_size": "0KiB",
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "allow_community_extensions": False,
            "python_enable_replacements": False,
        },
    )
    connection.execute(f"SET max_expression_depth = {DEPTH}")
    connection.execute("SET TimeZone = 'UTC'")
    (serialized,) = connection.execute("SELECT json_serialize_sql($1::VARCHAR)", [sql]).fetchone() or ("",)
    statement = sql_check.check(str(serialized), sql)
    _say({"tables": list(statement.tables)})
    told = json.loads(sys.stdin.buffer.readline())
    tables: dict[str, Any] = told["tables"]
    for name, where in statement.tables.items():
        if name.lower() not in tables:
            raise sql_check.StatementRefused("table", name, where)
    connection.execute("SET enable_progress_bar = false")
    connection.execute("SET allowed_paths = " + _list([path for one in tables.values() for path in one["files"]]))
    connection.execute("SET enable_external_access = false")
    for macro in MACROS:
        connection.execute(macro)
    try:
        for name, one in tables.items():
            _make_view(connection, name, one)
    except duckdb.Error as error:
        raise sql_check.StatementRefused("engine", _first_line(error)) from None
    connection.execute("SET lock_configuration = true")
    left = float(question["seconds"]) - (time.monotonic() - started)
    timer = threading.Timer(max(0.01, left), connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        return _answer(connection, question, sql, tables, started)
    except duckdb.Error as error:
        raise _told(error, question) from None
    finally:
        timer.cancel()


def _told(error: Any, question: dict[str, Any]) -> Exception:
    """What an error of the engine means for whoever asked."""
    import duckdb

    if isinstance(error, duckdb.InterruptException):
        return LimitReached(f"the query ran longer than {float(question['seconds']):g} s")
    if isinstance(error, duckdb.OutOfMemoryException):
        return LimitReached(f"the query needs more than the {ENGINE_MIB} MiB of memory that it may use")
    if isinstance(error, duckdb.PermissionException):
        return sql_check.StatementRefused("refused", _first_line(error))
    theirs = (
        duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException, duckdb.ConversionException,
        duckdb.OutOfRangeException, duckdb.NotImplementedException,
    )  # fmt: skip
    # Of what is left only whoever can look at the files knows whether one of them is at fault.
    kind = "syntax" if isinstance(error, theirs) else "engine"
    return sql_check.StatementRefused(kind, _first_line(error), _caret(error, str(question["sql"])))


def _make_view(connection: Any, name: str, one: dict[str, Any]) -> None:
    """A view of the table's name, and one in a schema, so that it is found with quotes around its whole name and without."""
    columns = ", ".join(f"NULL::{kind} AS {_quoted(column)}" for column, kind in one["columns"])
    body = f"SELECT {columns} WHERE false"
    if one["files"]:
        # By name, because older segments have fewer columns.
        body += f" UNION ALL BY NAME SELECT * FROM read_parquet({_list(one['files'])}, union_by_name = true)"
    connection.execute(f"CREATE VIEW {_quoted(name)} AS {body}")
    schema, dot, rest = name.partition(".")
    if dot and "." not in rest:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(schema)}")
        connection.execute(f"CREATE VIEW {_quoted(schema)}.{_quoted(rest)} AS SELECT * FROM main.{_quoted(name)}")


def _answer(connection: Any, question: dict[str, Any], sql: str, tables: dict[str, Any], started: float) -> bytes:
    from iris_core.wire.gen.iris.v1 import stats_pb2

    cursor = connection.execute(sql)
    described = cursor.description or []
    columns: list[list[Any]] = [[] for _ in described]
    has_blobs = any(str(one[1]) == "BLOB" for one in described)
    rows = size = 0
    reason = ""
    while not reason:
        wanted = min(8 if has_blobs else FETCH_ROWS, question["max_rows"] - rows + 1)
        fetched = cursor.fetchmany(wanted)
        if not fetched:
            break
        if rows + len(fetched) > question["max_rows"]:
            most = question["max_rows"]
            reason = f"only the first {most} rows are given" if most != 1 else "only the first row is given"
            fetched = fetched[: question["max_rows"] - rows]
        for row in fetched:
            size += sum(map(_size, row))
            if size > question["max_bytes"]:
                reason = f"an answer has at most {question['max_bytes'] >> 20} MiB"
                break
            for place, value in enumerate(row):
                columns[place].append(value)
            rows += 1
    if reason and not rows:
        raise LimitReached(f"the first row alone is larger than {question['max_bytes'] >> 20} MiB")
    response = stats_pb2.QueryResponse(
        columns=[_column(str(one[0]), str(one[1]), values) for one, values in zip(described, columns, strict=True)],
        row_count=rows,
        capped=bool(reason),
        capped_reason=reason,
        elapsed_ms=int((time.monotonic() - started) * 1000),
        tables=sorted(tables),
    )
    return response.SerializeToString()


def _size(value: Any) -> int:
    if isinstance(value, (str, bytes)):
        return len(value) + 8
    if isinstance(value, (list, tuple)):
        return 16 + sum(map(_size, value))
    if isinstance(value, dict):
        return 16 + sum(_size(key) + _size(one) for key, one in value.items())
    return 16


def _column(name: str, kind: str, values: list[Any]) -> Any:
    """The values as the wire has them. What no type of the wire holds exactly is given as text, under the engine's word for it."""
    from iris_core.model.tables import ColumnType
    from iris_core.wire.gen.iris.v1 import stats_pb2
    from iris_core.wire.rows import values_to_wire

    type_, found = _typed(kind, values)
    wire = values_to_wire(name, type_ or ColumnType.STRING, found)
    if type_ is None:
        wire.type = stats_pb2.COLUMN_TYPE_UNSPECIFIED
    wire.engine_type = kind
    return wire


def _typed(kind: str, values: list[Any]) -> tuple[Any, list[Any]]:
    from iris_core.model.tables import ColumnType

    some = [value for value in values if value is not None]
    if kind in _INTEGERS or (kind in _WIDE and all(_INT64[0] <= int(value) <= _INT64[1] for value in some)):
        return ColumnType.INT32 if kind == "INTEGER" else ColumnType.INT64, values
    if kind in ("FLOAT", "DOUBLE"):
        return ColumnType.FLOAT64, values
    if kind.startswith("DECIMAL") and int(re.findall(r"\d+", kind)[0]) <= 15:
        return ColumnType.FLOAT64, [None if value is None else float(value) for value in values]
    if kind == "BOOLEAN":
        return ColumnType.BOOL, values
    if kind == "BLOB":
        return ColumnType.BYTES, values
    if kind.startswith("TIMESTAMP") and all(isinstance(one, datetime) and not one.microsecond % 1000 for one in some):
        return ColumnType.TIMESTAMP_MS, [None if value is None else _epoch_ms(value) for value in values]
    if kind == "MAP(VARCHAR, VARCHAR)" and all(None not in one.values() for one in some):
        return ColumnType.MAP, values
    if kind in ("DOUBLE[]", "BIGINT[]", "INTEGER[]") and all(None not in one for one in some):
        return ColumnType.FLOAT64_LIST if kind == "DOUBLE[]" else ColumnType.INT64_LIST, values
    if kind in ("VARCHAR", "JSON"):
        return ColumnType.STRING, values
    return None, [None if value is None else _text(value) for value in values]


def _epoch_ms(value: datetime) -> int:
    if value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return (value - _EPOCH) // timedelta(milliseconds=1)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value, default=_text, ensure_ascii=False)
    if isinstance(value, (datetime, date, clock)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


def _first_line(error: BaseException) -> str:
    """What the engine says, without its drawing of the place."""
    text = str(error).split("\n\nLINE ")[0]
    return " ".join(text.split())[:1000]


def _caret(error: BaseException, sql: str) -> int | None:
    """The place that the engine drew, as a character offset, unless it drew only a part of the line."""
    found = _CARET.search(str(error))
    if found is None:
        return None
    number, line, blanks = int(found[1]), found[2], found[3]
    lines = sql.split("\n")
    if number > len(lines) or line.startswith("...") or not lines[number - 1].startswith(line.removesuffix("...")):
        return None
    column = len(blanks) - len(f"LINE {number}: ")
    return sum(len(before) + 1 for before in lines[: number - 1]) + max(0, column)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _list(texts: list[str]) -> str:
    return "[" + ", ".join("'" + text.replace("'", "''") + "'" for text in texts) + "]"


if __name__ == "__main__":
    main()
