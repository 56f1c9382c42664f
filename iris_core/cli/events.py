"""`task events` and `attempt events`: what was decided about a task, from the store and not from the state (cli-auth-logs §1.3).

The attempts of the task's job as it is now are asked for first; rows of a job that this one replaced have other uids and another
incarnation, so they never appear. Must never show a row of another incarnation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from iris_core.cli import output
from iris_core.cli.options import Whole, headers_option, output_option

if TYPE_CHECKING:
    from iris_core.cli.session import Session
    from iris_core.contracts import Client
    from iris_core.live.event_columns import TaskEvent
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

MOST: Final = 10_000
FORMATS: Final = ("table", "wide", "json", "jsonl", "csv")


def _limit_option(function: Any) -> Any:
    return click.option(
        "--limit",
        type=Whole(1, MOST),
        default=200,
        show_default=True,
        metavar="N",
        help=f"The newest so many, at most {MOST}.",
    )(function)


@click.command("events", short_help="Show what was decided about a task, and what its backend saw.")
@click.argument("target", metavar="TASK")
@_limit_option
@output_option(*FORMATS)
@headers_option
@click.pass_obj
def task_events(session: Session, target: str, limit: int, how: output.Format, no_headers: bool) -> None:
    """Show what was decided about a task over all its attempts, and what its backend saw, oldest first.

    TASK may name one attempt: /user/job/0:2. Events are kept for 30 days.
    """
    from iris_core.model.errors import ModelError
    from iris_core.model.ids import AttemptId, TaskId, parse_target

    parsed = parse_target(target)
    if not isinstance(parsed, (TaskId, AttemptId)):
        raise ModelError(f"{target} is a job", field="id", hint=f"name a task of it, such as {target}/0")
    _show(session, parsed, limit, how, headers=not no_headers)


@click.command("events", short_help="Show what was decided about an attempt, and what its backend saw.")
@click.argument("attempt_id", metavar="ATTEMPT")
@_limit_option
@output_option(*FORMATS)
@headers_option
@click.pass_obj
def attempt_events(session: Session, attempt_id: str, limit: int, how: output.Format, no_headers: bool) -> None:
    """Show what was decided about one attempt, and what its backend saw, oldest first."""
    from iris_core.model.ids import AttemptId

    _show(session, AttemptId.parse(attempt_id), limit, how, headers=not no_headers)


def _show(session: Session, target: Any, limit: int, how: output.Format, *, headers: bool) -> None:
    from iris_core.cli import reads
    from iris_core.cli.listings import EVENT_LIST
    from iris_core.cli.log_subject import AttemptSubject
    from iris_core.model.ids import AttemptId

    if isinstance(target, AttemptId):
        task, attempt = AttemptSubject(session.client, target).find()
        attempts = [attempt]
    else:
        found = reads.task_status(session.client, target)
        task, attempts = found.task, list(found.attempts)
    events, older, notes = fetch(session.client, task, attempts, limit, one_attempt=isinstance(target, AttemptId))
    for note in notes:
        session.diagnostics.warn(note)
    if not events and how in ("table", "wide"):
        session.diagnostics.note(f"no events of {target} are kept")
        return
    output.write(EVENT_LIST.text(events, how, reads.now_ms(), headers=headers))
    if older:
        session.diagnostics.note(
            f"older events were left out: the newest {limit:,} are shown (--limit, at most {MOST:,})"
        )


def fetch(
    client: Client, task: pb.TaskStatus, attempts: list[pb.AttemptStatus], limit: int, *, one_attempt: bool = False
) -> tuple[list[TaskEvent], bool, list[str]]:
    """The newest `limit` events of these attempts, oldest first; whether there are older ones; what the store adds.

    Unless it is one attempt that is asked for, events that name none are included: of a task that never began. Raises IrisError.
    """
    from iris_core.live.event_columns import TaskEvent
    from iris_core.wire.gen.iris.v1 import stats_pb2
    from iris_core.wire.rows import rows_of

    request = stats_pb2.QueryRequest(
        sql=statement(task, attempts, limit + 1, one_attempt=one_attempt), max_rows=limit + 1
    )
    answer = client.call("StatsService/Query", request, stats_pb2.QueryResponse, timeout_s=60.0)
    rows = list(rows_of(answer.columns))
    events = [
        TaskEvent(
            task.task_id, row["attempt_id"], row["attempt_uid"] or "", row["ts"], row["type"], row["source"],
            row["reason"], row["message"], row["count"],
        )
        for row in rows[:limit]
    ]  # fmt: skip
    return events[::-1], len(rows) > limit or answer.capped, list(answer.notes)


def statement(task: pb.TaskStatus, attempts: list[pb.AttemptStatus], limit: int, *, one_attempt: bool) -> str:
    """The query for the newest `limit` events of those attempts."""
    uids = ", ".join(_quoted(attempt.attempt_uid) for attempt in attempts)
    whose = [f"attempt_uid IN ({uids})"] if uids else []
    if not one_attempt:
        whose.append(f"(attempt_uid IS NULL AND incarnation = {int(task.incarnation)})")
    return (
        'SELECT ts, attempt_id, attempt_uid, type, source, reason, message, "count" FROM "iris.task_event"'
        f" WHERE task_id = {_quoted(task.task_id)} AND ({' OR '.join(whose)}) ORDER BY ts DESC, seq DESC LIMIT {int(limit)}"
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
