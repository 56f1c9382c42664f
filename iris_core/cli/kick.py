"""`task preempt|fail` and `attempt preempt|fail`: force current attempts to an end, by exact id, one or thousands.

The ids come as arguments or from a query over a pipe; each is answered by itself, so that one that is refused does not spare the
rest. Must never widen what was named: a job is no target here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from iris_core.cli import output
from iris_core.cli.options import gather_ids, stdin_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_core.cli.session import Session

AT_ONCE: Final = 1_000
"""Targets in one request."""


def _command(noun: str, verb: str, help_text: str) -> click.Command:
    metavar = f"[{noun.upper()}... | -]"

    @click.command(verb, help=help_text, short_help=help_text.partition(".")[0] + ".")
    @click.argument("ids", nargs=-1, metavar=metavar)
    @stdin_option
    @click.option(
        "--dry-run",
        is_flag=True,
        help=f"Print which would be {_DONE[verb]}, and change nothing; exit 0 also where some are rejected.",
    )
    @click.option("--reason", default="", metavar="TEXT", help="Kept with the attempt and in the controller's log.")
    @click.pass_obj
    def command(session: Session, ids: Sequence[str], from_stdin: bool, dry_run: bool, reason: str) -> int:
        from iris_core.model.ids import AttemptId, TaskId

        kind: Any = TaskId if noun == "task" else AttemptId
        targets = [str(kind.parse(text)) for text in gather_ids(ids, from_stdin, session.diagnostics.note)]
        return _kick(session, targets, verb, dry_run, reason)

    return command


def _kick(session: Session, targets: Sequence[str], verb: str, dry_run: bool, reason: str) -> int:
    """Exit code 1 when any target was rejected; a dry run says so, too, and is 0."""
    from iris_core.model.states import TaskState
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    end = TaskState.PREEMPTED if verb == "preempt" else TaskState.FAILED
    accepted = rejected = 0
    for start in range(0, len(targets), AT_ONCE):
        request = pb.KickTasksRequest(
            targets=targets[start : start + AT_ONCE],
            desired_state=end.value,  # type: ignore[arg-type]
            reason=reason,
            dry_run=dry_run,
        )
        answer = session.client.call("ControllerService/KickTasks", request, pb.KickTasksResponse)
        for result in answer.results:
            if result.queued:
                accepted += 1
                output.line(result.target if dry_run else f"{_DONE[verb]} {result.target}")
            else:
                rejected += 1
                session.diagnostics.note(f"rejected {result.target}: {result.detail}")
        output.flush()
    if dry_run:
        refused = f", {rejected} rejected" if rejected else ""
        session.diagnostics.note(f"would {verb} {accepted} of {len(targets)}{refused}; nothing was changed")
        return 0
    return 1 if rejected else 0


_DONE: Final = {"preempt": "preempted", "fail": "failed"}

preempt_tasks = _command(
    "task",
    "preempt",
    "Force the current attempts of tasks to an end. A task is tried again within its preemption budget, which this charges.",
)
fail_tasks = _command("task", "fail", "Force tasks to an end as FAILED. They are not tried again.")
preempt_attempts = _command(
    "attempt",
    "preempt",
    "Force attempts to an end while they are current. The task is tried again within its preemption budget, which this"
    " charges.",
)
fail_attempts = _command(
    "attempt", "fail", "Force tasks to an end as FAILED while these attempts are current. They are not tried again."
)
