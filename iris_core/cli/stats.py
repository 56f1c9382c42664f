"""`stats query`, `stats tables` and `finelog query`: SQL over the tables of the log store, and what is in them.

What a query gives is shown as `query` shows it: every column and every value, bytes as a placeholder with their size, times in ISO
8601. Whatever an answer leaves out is said on standard error. Must never change a statement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from iris_core.cli import output
from iris_core.cli.lazy import Lazy, LazyGroup
from iris_core.cli.options import Whole, headers_option, output_option

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_core.cli.session import Session

COMMANDS = {
    "query": Lazy("iris_core.cli.stats:query", "Run one SELECT over logs, stats and events."),
    "tables": Lazy("iris_core.cli.stats:tables", "List the tables, or the columns of one."),
}
MOST_ROWS: Final = 500_000
MOST_S: Final = 60
SPARE_S: Final = 30.0
"""A query may wait for those before it."""


@click.group(cls=LazyGroup, table=COMMANDS)
def stats() -> None:
    """Ask the log store's tables: measurements, events, profiles, and the log itself."""


def _options(function: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option(
            "--timeout", "seconds", type=Whole(1, MOST_S), default=20, show_default=True, metavar="S",
            help="End it after S seconds.",
        ),
        click.option(
            "--max-rows", type=Whole(0, MOST_ROWS), default=0, metavar="N", help="At most N rows, 0 = 10000."
        ),
        click.option(
            "-f", "--format", "how", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True,
            help="Format on standard output.",
        ),
    ):  # fmt: skip
        function = option(function)
    return function


@click.command(short_help=COMMANDS["query"].help)
@click.argument("sql")
@_options
@click.pass_obj
def query(session: Session, sql: str, how: str, max_rows: int, seconds: int) -> None:
    """Run one SELECT over logs, stats and events.

    The tables are those of `stats tables`; a name with a dot works with double quotes and without. Bound the time and the key:
    a query has 20 seconds and half a gigabyte.

    \b
    SELECT reason, count(*) FROM iris.task_event WHERE ts > now() - INTERVAL '1 hour' GROUP BY 1
    SELECT data FROM log WHERE prefix(key, '/ada/train/') AND level >= 4 ORDER BY seq DESC LIMIT 20
    """
    _run(session, sql, how, max_rows, seconds)


@click.command("query", short_help=COMMANDS["query"].help)
@click.argument("name")
@click.argument("sql")
@_options
@click.pass_obj
def finelog_query(session: Session, name: str, sql: str, how: str, max_rows: int, seconds: int) -> None:
    """Run one SELECT over logs, stats and events of the cluster NAME; `local` is the one on this machine.

    The tables are those of `iris-core stats tables`; a name with a dot works with double quotes and without.

    \b
    finelog query local "SELECT source, type, count(*) FROM iris.profile GROUP BY 1, 2"
    """
    session.cluster = name
    _run(session, sql, how, max_rows, seconds)


def _run(session: Session, sql: str, how: str, max_rows: int, seconds: int) -> None:
    from iris_core.cli.query import text_of
    from iris_core.live.query_result import cell_of
    from iris_core.model.text import counted_are
    from iris_core.wire.gen.iris.v1 import stats_pb2 as pb
    from iris_core.wire.rows import values_of

    session.diagnostics.json_errors = how == "json"
    answer = session.client.call(
        "StatsService/Query",
        pb.QueryRequest(sql=sql, max_rows=max_rows, timeout_ms=seconds * 1000),
        pb.QueryResponse,
        timeout_s=seconds + SPARE_S,
    )
    names = [column.name for column in answer.columns]
    columns = [
        [cell_of(column, value, nested=how == "json") for value in values_of(column)] for column in answer.columns
    ]
    output.write(text_of(names, list(zip(*columns, strict=True)), how))
    for note in answer.notes:
        session.diagnostics.warn(note)
    if answer.capped:
        session.diagnostics.note(
            f"{counted_are(answer.row_count, 'row')} shown, there are more: {answer.capped_reason}"
        )


@click.command(short_help=COMMANDS["tables"].help)
@click.argument("name", required=False)
@output_option("table", "wide", "json", "jsonl", "csv", "name")
@headers_option
@click.pass_obj
def tables(session: Session, name: str | None, how: output.Format, no_headers: bool) -> None:
    """List the tables of the log store, or the columns of one.

    Rows that are PENDING are durable and in no segment yet; a query sees them all the same.
    """
    from iris_core.cli.listings import COLUMN_LIST, TABLE_LIST
    from iris_core.cli.reads import now_ms
    from iris_core.model.text import counted
    from iris_core.wire.gen.iris.v1 import stats_pb2 as pb

    client = session.client
    if name is not None:
        schema = client.call(
            "StatsService/GetTableSchema", pb.GetTableSchemaRequest(table=name), pb.GetTableSchemaResponse
        ).schema
        columns = [pb.TableColumn(name="seq", type=pb.COLUMN_TYPE_INT64), *schema.columns]
        shown = [(column, column.name == schema.key_column) for column in columns]
        output.write(COLUMN_LIST.text(shown, how, now_ms(), headers=not no_headers))
        return
    answer = client.call("StatsService/ListNamespaces", pb.ListNamespacesRequest(), pb.ListNamespacesResponse)
    output.write(TABLE_LIST.text(list(answer.tables), how, now_ms(), headers=not no_headers))
    for table in answer.tables:
        if table.missing_rows:
            session.diagnostics.note(
                f"{counted(table.missing_rows, 'row')} of {table.table} never arrived from their producers"
            )
