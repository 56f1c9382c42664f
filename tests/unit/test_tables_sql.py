"""What a statement may be, told by the engine's own parser, and that files of a query are what they should be."""

from __future__ import annotations

import duckdb
import pytest

from iris_controller.finelog.tables.sql_check import StatementRefused, check


@pytest.fixture(scope="module")
def engine() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config={"threads": 1})
    connection.execute("SET max_expression_depth = 250")
    return connection


def checked(engine: duckdb.DuckDBPyConnection, sql: str) -> dict[str, int | None]:
    found = engine.execute("SELECT json_serialize_sql($1::VARCHAR)", [sql]).fetchone()
    assert found is not None
    return check(str(found[0]), sql).tables


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT 1", set()),
        ("VALUES (1), (2);", set()),
        ('SELECT * FROM "iris.task_event"', {"iris.task_event"}),
        ("SELECT * FROM iris.task_event e JOIN log USING (key)", {"iris.task_event", "log"}),
        ("SELECT * FROM main.log", {"log"}),
        ("FROM log SELECT key LIMIT 1", {"log"}),
        ("DESCRIBE log", {"log"}),
        ("SUMMARIZE log", {"log"}),
        ("SELECT 'é', * FROM log", {"log"}),
        ("WITH log AS (SELECT 1 AS a) SELECT * FROM log", set()),
        ("WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT * FROM r", set()),
        ("SELECT * FROM log a WHERE EXISTS (SELECT 1 FROM x.y WHERE y.k = a.key)", {"log", "x.y"}),
        ("SELECT * FROM range(3), unnest([1, 2])", set()),
        ("SELECT (SELECT max(seq) FROM b) UNION ALL (SELECT seq FROM c EXCEPT SELECT 1)", {"b", "c"}),
        ("SELECT key FROM log QUALIFY row_number() OVER (PARTITION BY key ORDER BY seq DESC) = 1", {"log"}),
        ("SELECT json_get(data, 'a'), prefix(key, '/x'), regexp_matches(data, 'a.b') FROM log", {"log"}),
        ("(((SELECT 1)))", set()),
    ],
)
def test_what_reads_may_run(engine: duckdb.DuckDBPyConnection, sql: str, tables: set[str]) -> None:
    found = checked(engine, sql)
    assert set(found) == tables
    for name, position in found.items():
        assert position is None or sql[position:].replace('"', "").removeprefix("main.").startswith(name)


@pytest.mark.parametrize(
    "name",
    ["duckdb_views", "pragma_database_list", "sqlite_master", "pg_settings", "pg_catalog.pg_settings", "main.log"],
)
def test_a_name_that_a_statement_defines_opens_nothing_elsewhere_in_it(
    engine: duckdb.DuckDBPyConnection, name: str
) -> None:
    found = checked(engine, f'SELECT * FROM (WITH "{name}" AS (SELECT 1 AS a) SELECT 1) AS x, {name}')
    assert set(found) == {name.removeprefix("main.")}
    assert not checked(engine, "WITH log AS (SELECT 1), pg_rows AS (SELECT 2) SELECT * FROM log, pg_rows")


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO log VALUES (1)", "UPDATE log SET key = ''", "DELETE FROM log", "MERGE INTO log USING log AS b ON (log.key = b.key) WHEN MATCHED THEN DELETE",
        "CREATE TABLE t (a INT)", "CREATE VIEW v AS SELECT 1", "CREATE MACRO f(a) AS a", "CREATE SECRET s (TYPE s3)",
        'DROP VIEW "iris.task_event"', "DROP TABLE log", "ALTER TABLE log RENAME TO l", "TRUNCATE log",
        "COPY log TO '/tmp/x'", "COPY (SELECT 1) TO '/tmp/x'", "COPY log FROM '/etc/passwd'",
        "EXPORT DATABASE '/tmp/x'", "IMPORT DATABASE '/tmp/x'", "ATTACH '/tmp/x.db' AS x", "DETACH x", "USE memory",
        "INSTALL httpfs", "LOAD httpfs", "FORCE INSTALL json", "UPDATE EXTENSIONS",
        "SET threads = 8", "SET enable_external_access = true", "RESET threads", "PRAGMA version",
        "PRAGMA database_list", "CALL pragma_version()", "CHECKPOINT", "VACUUM", "ANALYZE",
        "EXPLAIN SELECT 1", "EXPLAIN ANALYZE SELECT 1", "PREPARE p AS SELECT 1", "EXECUTE p", "BEGIN", "COMMIT",
        "SET VARIABLE a = 1", "COMMENT ON VIEW log IS 'x'",
        "SELECT 1; SELECT 2", "SELECT 1; DROP VIEW log", "SELECT 1;;SELECT 2",
        "WITH x AS (DELETE FROM log RETURNING *) SELECT * FROM x",
        "WITH x AS (INSERT INTO log VALUES (1) RETURNING *) SELECT * FROM x",
        "SELECT * FROM (WITH x AS (UPDATE log SET key = '' RETURNING *) SELECT * FROM x)",
        "SELECT * FROM read_csv('/etc/passwd')", "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_blob('/etc/*')", "SELECT * FROM read_parquet('/x')", "SELECT * FROM parquet_scan('/x')",
        "SELECT * FROM read_json('/x')", "SELECT * FROM glob('/*')", "SELECT * FROM sniff_csv('/x')",
        "SELECT * FROM parquet_metadata('/x')", "SELECT * FROM sqlite_scan('a', 'b')", "SELECT * FROM arrow_scan(1, 2, 3)",
        "SELECT * FROM '/etc/passwd'", "SELECT * FROM 'x.parquet'", "SELECT * FROM 's3://b/x.csv'", "FROM 'a*.json'",
        "SELECT * FROM query('DROP VIEW log')", "SELECT * FROM query_table('log')",
        "SELECT * FROM duckdb_settings()", "SELECT * FROM duckdb_secrets()", "SELECT * FROM pragma_table_info('log')",
        "SELECT getenv('HOME')", "SELECT GETENV('HOME')", "SELECT current_setting('allowed_paths')",
        "SELECT nextval('s')", "SELECT write_log('x')", "SELECT 1 WHERE getenv('HOME') = 'x'",
        "SELECT a FROM log GROUP BY a HAVING getenv(a) > 'x' ORDER BY 1",
        "SHOW TABLES", "SHOW ALL TABLES", "PIVOT log ON key",
        "SELECT " + "(" * 400 + "1" + ")" * 400, "SELECT " + "+".join(["1"] * 400), "SELECT " + "NOT " * 400 + "true",
    ],
)  # fmt: skip
def test_everything_else_is_refused(engine: duckdb.DuckDBPyConnection, sql: str) -> None:
    with pytest.raises(StatementRefused) as refused:
        checked(engine, sql)
    assert refused.value.kind == "refused", refused.value
    assert refused.value.message.isprintable()


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("SELECT FROM", "FROM"),
        ("SELECT 'é', 1 FRM x y", "x y"),
        ("SELECT (", "("),
        ("SELECT ?", "?"),
        ("SELECT 1,\n $a", "$a"),
        ("SELECT 1 AS", "AS"),
    ],
)
def test_a_syntax_error_has_its_position(engine: duckdb.DuckDBPyConnection, sql: str, word: str) -> None:
    with pytest.raises(StatementRefused) as refused:
        checked(engine, sql)
    assert refused.value.kind == "syntax"
    assert refused.value.position == sql.index(word)


def test_text_without_a_statement(engine: duckdb.DuckDBPyConnection) -> None:
    for sql in ("-- nothing", ";", "/* */"):
        with pytest.raises(StatementRefused, match="empty"):
            checked(engine, sql)
