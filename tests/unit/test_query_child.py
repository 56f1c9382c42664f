"""The SQL endpoint: it reads, and nothing else, within its limits (targets S3, S4)."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from iris_controller.rpc import query
from iris_controller.rpc.errors import RpcError
from iris_controller.rpc.query import QueryService
from iris_controller.store.database import migrate, open_writer
from iris_core.wire.gen.iris.v1 import controller_pb2

ANY: Any = None


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "db" / "controller.sqlite3"
    path.parent.mkdir()
    connection = open_writer(path)
    migrate(connection, 1)
    connection.execute("INSERT INTO request_ids VALUES ('u', 'r', 'LaunchJob', x'00', 1, x'')")
    connection.execute("CREATE TABLE t (a, b, c)")
    connection.execute("INSERT INTO t VALUES (9007199254740993, NULL, x'00ff'), ('', 'ß', 1.5)")
    connection.close()
    return path


def ask(database: Path, sql: str, max_rows: int = 0) -> controller_pb2.ExecuteRawQueryResponse:
    request = controller_pb2.ExecuteRawQueryRequest(sql=sql, max_rows=max_rows)
    return asyncio.run(QueryService(database).execute_raw_query(request, ANY))


def test_values_arrive_as_they_are(database: Path) -> None:
    answer = ask(database, "SELECT a, b, c, a AS b FROM t")
    assert [c.name for c in answer.columns] == ["a", "b", "c", "b"]
    assert [json.loads(r) for r in answer.rows] == [
        [9007199254740993, None, "<blob 2 bytes>", 9007199254740993],
        ["", "ß", 1.5, ""],
    ]
    assert answer.total_count == 2 and not answer.truncated


def test_the_queries_of_the_manual_run_as_printed(database: Path) -> None:
    for sql in (
        "SELECT state, count(*) FROM jobs GROUP BY state",
        "SELECT job_id, error, exit_code FROM jobs WHERE state=5 ORDER BY submitted_at_ms DESC LIMIT 10;",
        "SELECT task_id, attempt_id, state, exit_code, error FROM task_attempts"
        " WHERE task_id LIKE '%x%' ORDER BY attempt_id;",
        "SELECT scale_group, device_variant, count(*) AS workers, count(DISTINCT slice_id) AS slices\n"
        "FROM workers WHERE device_type='tpu' GROUP BY scale_group, device_variant;",
        "SELECT t.job_id, t.state, count(*) FROM tasks t\nJOIN workers w ON t.current_worker_id=w.worker_id"
        " WHERE w.slice_id='s' AND t.state IN (2,3,9) GROUP BY t.job_id, t.state;",
        "SELECT name FROM sqlite_master WHERE type='table'",
    ):
        ask(database, sql)


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t VALUES (1,2,3)",
        "UPDATE jobs SET state=4",
        "DELETE FROM t",
        "DROP TABLE t",
        "CREATE TABLE x (y)",
        "CREATE TEMP TABLE x (y)",
        "ATTACH '/tmp/iris-query-attack.db' AS x",
        "PRAGMA journal_mode=DELETE",
        "PRAGMA table_info(jobs)",
        "SELECT * FROM pragma_table_info('jobs')",
        "VACUUM",
        "VACUUM INTO '/tmp/iris-query-attack.db'",
        "BEGIN",
        "SELECT load_extension('x')",
        "SELECT * FROM request_ids",
        "SELECT (SELECT response FROM request_ids)",
        "REINDEX",
        "ANALYZE",
    ],
)
def test_everything_but_reading_is_refused(database: Path, sql: str) -> None:
    before = database.read_bytes()
    with pytest.raises(RpcError) as caught:
        ask(database, sql)
    assert caught.value.status == "FAILED_PRECONDITION", caught.value
    assert caught.value.message.count("\n") == 0
    assert database.read_bytes() == before
    assert not Path("/tmp/iris-query-attack.db").exists()


@pytest.mark.parametrize(
    ("sql", "position"),
    [
        ("SELEC 1", 0),
        ("SELECT * FORM jobs", 9),
        ("SELECT nope FROM jobs", 7),
        ("SELECT * FROM nope", 14),
        ("SELECT 'open", 7),
    ],
)
def test_a_syntax_error_has_its_place(database: Path, sql: str, position: int) -> None:
    with pytest.raises(RpcError) as caught:
        ask(database, sql)
    assert caught.value.status == "INVALID_ARGUMENT"
    assert caught.value.position == position, caught.value.message


def test_a_table_of_the_log_store_is_pointed_at_the_command_that_has_it(database: Path) -> None:
    with pytest.raises(RpcError) as caught:
        ask(database, "SELECT * FROM log")
    assert "are asked with `stats query`" in caught.value.hint
    with pytest.raises(RpcError) as other:
        ask(database, "SELECT nope FROM t")
    assert not other.value.hint


@pytest.mark.parametrize("sql", ["", "   ", ";", "-- nothing", "SELECT 1; SELECT 2"])
def test_exactly_one_statement(database: Path, sql: str) -> None:
    with pytest.raises(RpcError) as caught:
        ask(database, sql)
    assert caught.value.status == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    "sql",
    [
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT max(i) FROM n",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT 3000000) SELECT count(*) FROM n a, n b",
        "SELECT hex(randomblob(300000000))",
        "SELECT zeroblob(2000000000)",
        "SELECT replace(hex(zeroblob(4000000)), '00', hex(zeroblob(1000)))",
        "SELECT group_concat(hex(randomblob(1000000))) FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n"
        " LIMIT 2000) SELECT i FROM n)",
        pytest.param(f"SELECT {'+'.join(['1'] * 5000)}", id="a deep expression"),
    ],
)
def test_greedy_queries_are_ended(database: Path, sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "SECONDS", 1.0)
    with pytest.raises(RpcError) as caught:
        ask(database, sql)
    assert caught.value.status in ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT"), caught.value
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert peak < 600 * 1024, "the child stays within its memory"


def test_rows_beyond_the_limit_are_said(database: Path) -> None:
    sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT 50) SELECT i FROM n"
    answer = ask(database, sql, max_rows=7)
    assert len(answer.rows) == 7 and answer.truncated


def test_the_child_inherits_nothing_of_the_environment(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_TOKEN", "hunter2")
    seen: list[dict[str, str]] = []
    original = subprocess.Popen

    def spy(words: Any, **options: Any) -> Any:
        seen.append(dict(options["env"]))
        return original(words, **options)

    monkeypatch.setattr(subprocess, "Popen", spy)
    ask(database, "SELECT 1")
    assert seen == [{}]
    assert "CANARY_TOKEN" in os.environ


def test_a_hostile_text_reaches_sql_as_a_value(database: Path) -> None:
    connection = sqlite3.connect(database)
    connection.execute("INSERT INTO t VALUES (?, ?, ?)", ("'; DROP TABLE t; --", "\0", "%_"))
    connection.commit()
    connection.close()
    answer = ask(database, "SELECT count(*) FROM t WHERE a LIKE '%DROP%'")
    assert json.loads(answer.rows[0]) == [1]
