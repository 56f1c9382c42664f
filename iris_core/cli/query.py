"""`query`: one read-only SQL statement on the controller's database, as a table, JSON or CSV.

Every column and every value arrives: in JSON a repeated column name gets a number (`state`, `state_2`), whole numbers
keep all their digits, NULL is not the empty string (a table shows `NULL`, CSV nothing, where an empty string is
`""`), and bytes show as a placeholder with their size. Must never change a statement.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from iris_core.cli import output
from iris_core.cli.options import MOST, Whole
from iris_core.live.query_result import distinct, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_core.cli.session import Session

TIMEOUT_S = 60.0


@click.command(short_help="Run one read-only SQL statement on the controller's database.")
@click.argument("sql")
@click.option(
    "-f",
    "--format",
    "how",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="Format on standard output.",
)
@click.option("--max-rows", type=Whole(0, MOST), default=0, metavar="N", help="At most N rows, 0 = 10000.")
@click.pass_obj
def query(session: Session, sql: str, how: str, max_rows: int) -> None:
    """Run one read-only SQL statement on the controller's database.

    In JSON a repeated column name gets a number: state, state_2. NULL shows as NULL in a table and as nothing in CSV;
    bytes show as <N bytes>. A `state` is a number: 1 pending, 2 building, 3 running, 4 succeeded, 5 failed, 6 killed,
    7 worker failed, 8 unschedulable; of tasks also 9 assigned, 10 preempted, 11 coscheduled failed, 12 missing.

    \b
    SELECT name FROM sqlite_master WHERE type = 'table'   -- the tables
    SELECT job_id, error FROM jobs WHERE state = 5        -- what failed
    """
    from iris_core.model.text import counted_are
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    session.diagnostics.json_errors = how == "json"
    answer = session.client.call(
        "ControllerService/ExecuteRawQuery",
        pb.ExecuteRawQueryRequest(sql=sql, max_rows=max_rows),
        pb.ExecuteRawQueryResponse,
        timeout_s=TIMEOUT_S,
    )
    names = [column.name for column in answer.columns]
    output.write(text_of(names, [json.loads(row) for row in answer.rows], how))
    if answer.truncated:
        session.diagnostics.note(
            f"the first {counted_are(len(answer.rows), 'row')} shown, there are more; --max-rows N shows more"
        )


def text_of(names: Sequence[str], rows: Sequence[Sequence[Any]], how: str) -> str:
    """The result in that format."""
    if how == "json":
        keys = distinct(names)
        return output.as_json([dict(zip(keys, row, strict=True)) for row in rows]) + "\n"
    if how == "csv":
        return _csv(names, rows)
    from iris_core.cli.tables import Column, render

    numeric = [
        all(isinstance(row[n], (int, float)) or row[n] is None for row in rows) and bool(rows)
        for n in range(len(names))
    ]
    columns = [
        Column(name, "right" if right else "left", shrinks=not right)
        for name, right in zip(names, numeric, strict=True)
    ]
    return render(columns, [[shown(value) for value in row] for row in rows])


def _csv(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """CSV in which an empty string is `""` and NULL is nothing at all."""
    lines = [names, *rows]
    return "".join(",".join("" if cell is None else _quoted(shown(cell)) for cell in line) + "\n" for line in lines)


def _quoted(text: str) -> str:
    text = output.harmless(text)
    if text == "" or any(character in text for character in '",\r\n') or text != text.strip():
        return '"' + text.replace('"', '""') + '"'
    return text
