"""`attempt`: look at one numbered attempt of a task, and wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from iris_core.cli import output
from iris_core.cli.lazy import Lazy, LazyGroup
from iris_core.cli.options import Seconds, output_option

if TYPE_CHECKING:
    from iris_core.cli.session import Session

COMMANDS = {
    "describe": Lazy("iris_core.cli.attempt:describe", "Show an attempt."),
    "events": Lazy(
        "iris_core.cli.events:attempt_events", "Show what was decided about an attempt, and what its backend saw."
    ),
    "logs": Lazy("iris_core.cli.logs:attempt_logs", "Print what one attempt wrote."),
    "wait": Lazy("iris_core.cli.attempt:wait", "Wait until an attempt has ended."),
    "outputs": Lazy("iris_core.cli.outputs:outputs", "Fetch the archive of what an attempt left in $IRIS_OUTPUT_DIR."),
    "profile": Lazy("iris_core.cli.profile:attempt_profile", "Look into the processes of a running attempt."),
    "preempt": Lazy("iris_core.cli.kick:preempt_attempts", "Force attempts to an end while they are current."),
    "fail": Lazy(
        "iris_core.cli.kick:fail_attempts", "Force tasks to an end as FAILED while these attempts are current."
    ),
}


@click.group(cls=LazyGroup, table=COMMANDS)
def attempt() -> None:
    """Look at single attempts of a task, named TASK:N, and force them to an end."""


@click.command(short_help=COMMANDS["describe"].help)
@click.argument("attempt_id", metavar="ATTEMPT")
@output_option("table", "json")
@click.pass_obj
def describe(session: Session, attempt_id: str, how: output.Format) -> None:
    """Show where an attempt ran and how it ended; of the current one, if it failed, also what its log says of the cause."""
    from iris_core.cli import describing, root_cause
    from iris_core.cli.log_subject import AttemptSubject
    from iris_core.model.ids import AttemptId

    task, attempt = AttemptSubject(session.client, AttemptId.parse(attempt_id)).find()
    failed = root_cause.failed([attempt]) if attempt.current else None
    cause = root_cause.of_attempt(session, task, failed) if failed is not None else None
    output.write(describing.attempt_text(task, attempt, how, cause))


@click.command(short_help=COMMANDS["wait"].help)
@click.argument("attempt_id", metavar="ATTEMPT")
@click.option("--timeout", type=Seconds(), default=0, metavar="S", help="Give up after so many seconds, 0 = never.")
@click.pass_obj
def wait(session: Session, attempt_id: str, timeout: float) -> int:
    """Wait until an attempt has ended and print its state; exit 0 only when it SUCCEEDED."""
    from iris_core.cli.log_subject import AttemptSubject
    from iris_core.cli.waiting import wait_for_end
    from iris_core.model.ids import AttemptId

    return wait_for_end(session, AttemptSubject(session.client, AttemptId.parse(attempt_id)), timeout)
