"""`stats query`, `stats tables` and `finelog query`: every value as it is, what was left out, and exit codes."""

from __future__ import annotations

import json

import pytest

from iris_core.cli.finelog import finelog
from iris_core.cli.main import run
from iris_core.contracts import RpcFailed
from iris_core.model.namespaces import TASK_EVENT
from iris_core.model.tables import ColumnType
from iris_core.wire.gen.iris.v1 import stats_pb2 as pb
from iris_core.wire.rows import table_to_wire, values_to_wire
from tests.unit.cli_world import T0, World, captured

NASTY = "\x1b]0;t\x07\x1b[31mred\nline\u202e"


@pytest.fixture
def world() -> World:
    return World()


def answer(**more: object) -> pb.QueryResponse:
    columns = [
        values_to_wire("task_id", ColumnType.STRING, [NASTY, None, ""]),
        values_to_wire("task_id", ColumnType.STRING, ["a", "b", "c"]),
        values_to_wire("ts", ColumnType.TIMESTAMP_MS, [T0 + 1, 0, None]),
        values_to_wire("n", ColumnType.INT64, [(1 << 63) - 1, None, -1]),
        values_to_wire("x", ColumnType.FLOAT64, [0.5, float("nan"), None]),
        values_to_wire("data", ColumnType.BYTES, [b"\x00\xff", None, b""]),
        values_to_wire("m", ColumnType.MAP, [{"k": "v"}, None, {}]),
        values_to_wire("l", ColumnType.INT64_LIST, [[1, 2], None, []]),
    ]
    return pb.QueryResponse(columns=columns, row_count=3, **more)  # type: ignore[arg-type]


def test_json_has_every_column_and_value(world: World) -> None:
    world.client.answer("Query", answer())
    done = world.cli("stats", "query", "SELECT 1", "-f", "json", "--max-rows", "3", "--timeout", "7")
    assert (done.code, done.err) == (0, "")
    rows = json.loads(done.out)
    assert [row["task_id"] for row in rows] == [NASTY, None, ""]
    assert [row["task_id_2"] for row in rows] == ["a", "b", "c"]
    assert [row["ts"] for row in rows] == ["2026-01-01T00:00:00.001Z", "1970-01-01T00:00:00.000Z", None]
    assert [row["n"] for row in rows] == [(1 << 63) - 1, None, -1]
    assert [row["x"] for row in rows] == [0.5, "nan", None]
    assert [row["data"] for row in rows] == ["<2 bytes>", None, "<0 bytes>"]
    assert [row["m"] for row in rows] == [{"k": "v"}, None, {}]
    assert [row["l"] for row in rows] == [[1, 2], None, []]
    assert not any(character in done.out for character in "\x1b\x07\u202e")
    (asked,) = world.client.called("Query")
    assert asked == pb.QueryRequest(sql="SELECT 1", max_rows=3, timeout_ms=7000)


def test_a_table_cannot_drive_the_terminal_and_csv_tells_null_from_empty(world: World) -> None:
    world.client.answer("Query", answer())
    done = world.cli("stats", "query", "SELECT 1")
    assert len(done.out.splitlines()) == 4
    assert not any(character in done.out for character in "\x1b\x07\u202e")
    assert '{"k": "v"}' in done.out and "NULL" in done.out
    world.client.answer("Query", answer())
    done = world.cli("stats", "query", "SELECT 1", "-f", "csv")
    assert done.out.splitlines()[-1] == '"",c,,-1,,<0 bytes>,{},[]'


def test_what_was_left_out_is_said_beside_the_data(world: World) -> None:
    world.client.answer(
        "Query",
        answer(capped=True, capped_reason="only the first 3 rows are given", notes=["the segment s is damaged"]),
    )
    done = world.cli("stats", "query", "SELECT 1", "-f", "csv")
    assert done.code == 0
    assert "3 rows are shown, there are more: only the first 3 rows are given" in done.err
    assert "the segment s is damaged" in done.err


def test_one_row_is_one(world: World) -> None:
    one = answer(capped=True, capped_reason="only the first row is given")
    one.row_count = 1
    world.client.answer("Query", one)
    done = world.cli("stats", "query", "SELECT 1", "--max-rows", "1")
    assert "1 row is shown, there are more: only the first row is given\n" in done.err


def test_an_empty_answer_has_its_headings(world: World) -> None:
    world.client.answer("Query", pb.QueryResponse(columns=[values_to_wire("a", ColumnType.STRING, [])]))
    assert world.cli("stats", "query", "SELECT 1").out == "a\n"


@pytest.mark.parametrize(
    ("status", "code"), [("INVALID_ARGUMENT", 2), ("FAILED_PRECONDITION", 1), ("RESOURCE_EXHAUSTED", 1)]
)
def test_exit_codes_are_those_of_query(world: World, status: str, code: int) -> None:
    world.client.answer("Query", RpcFailed(status, "SQL: no", code="query_syntax", field="sql", position=7))
    done = world.cli("stats", "query", "SELECT FROM")
    assert (done.code, done.out) == (code, "")
    assert done.err.count("\n") <= 2 and "SQL: no" in done.err
    world.client.answer("ExecuteRawQuery", RpcFailed(status, "SQL: no", code="query_syntax", field="sql", position=7))
    assert world.cli("query", "SELECT FROM").code == code


def test_tables_and_columns_are_listed(world: World) -> None:
    status = pb.TableStatus(
        table="iris.task_event", rows=1234, pending_rows=4, bytes=2048, segments=2, min_seq=1, max_seq=1300,
        latest_ms=T0, key_column="task_id", columns=26, missing_rows=3, policy=table_to_wire(TASK_EVENT).policy,
    )  # fmt: skip
    world.client.answer("ListNamespaces", pb.ListNamespacesResponse(tables=[pb.TableStatus(table="log"), status]))
    done = world.cli("stats", "tables")
    assert done.code == 0
    assert [line.split()[0] for line in done.out.splitlines()] == ["TABLE", "log", "iris.task_event"]
    assert "1,234" in done.out and "30d, 4.29GB, 1000 segments" in done.out
    assert "3 rows of iris.task_event never arrived" in done.err
    world.client.answer("ListNamespaces", pb.ListNamespacesResponse(tables=[status]))
    (row,) = json.loads(world.cli("stats", "tables", "-o", "json").out)
    assert (row["table"], row["max_seq"], row["policy"]["max_age_seconds"]) == ("iris.task_event", 1300, 30 * 86400)
    assert (row["latest"], row["earliest"]) == ("2026-01-01T00:00:00.000Z", None)
    world.client.answer("GetTableSchema", pb.GetTableSchemaResponse(schema=table_to_wire(TASK_EVENT)))
    lines = world.cli("stats", "tables", "iris.task_event").out.splitlines()
    assert lines[1].split() == ["seq", "INT64", "-", "-"]
    assert lines[2].split() == ["task_id", "STRING", "-", "key"]
    assert len(lines) == 2 + len(TASK_EVENT.columns)


def test_the_program_finelog_asks_the_cluster_that_is_named(world: World) -> None:
    def finelog_run(*argv: str) -> tuple[int, str, str]:
        with captured() as (out, err):
            code = run(argv, program="finelog", tree=finelog, opener=lambda *_: world.client)
        return code, out().decode(), err().decode()

    code, out, err = finelog_run("query", "no-such-cluster", "SELECT 1")
    assert (code, out) == (world.cli("query", "SELECT 1", selector="--cluster=no-such-cluster").code, "")
    assert "no-such-cluster" in err and err.count("\n") <= 2
    assert finelog_run("query", "local")[0] == 2
    code, _, err = finelog_run("quer")
    assert code == 2 and "query" in err
