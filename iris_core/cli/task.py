"""`task`: look at tasks, wait for one, and run a command beside it. `task preempt|fail` have a room of their own."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from iris_core.cli import output
from iris_core.cli.lazy import Lazy, LazyGroup
from iris_core.cli.options import (
    YEAR_S,
    CommandAfterDashes,
    Seconds,
    Whole,
    command_words,
    headers_option,
    output_option,
    watch_option,
)
from iris_core.cli.session import session_of
from iris_core.contracts import IrisError

if TYPE_CHECKING:
    from iris_core.cli.session import Session

COMMANDS = {
    "list": Lazy("iris_core.cli.task:list_tasks", "List the tasks of a job."),
    "describe": Lazy("iris_core.cli.task:describe", "Show a task and its attempts."),
    "explain": Lazy("iris_core.cli.explain:explain_task", "Say why a task waits, where it is, or how it ended."),
    "events": Lazy("iris_core.cli.events:task_events", "Show what was decided about a task, and what its backend saw."),
    "logs": Lazy("iris_core.cli.logs:task_logs", "Print what a task wrote, over all its attempts."),
    "wait": Lazy("iris_core.cli.task:wait", "Wait until a task has ended."),
    "exec": Lazy("iris_core.cli.task:exec_command", "Run a command in a task's directory and environment."),
    "profile": Lazy("iris_core.cli.profile:task_profile", "Look into the processes of a running task."),
    "preempt": Lazy("iris_core.cli.kick:preempt_tasks", "Force the current attempts of tasks to an end."),
    "fail": Lazy("iris_core.cli.kick:fail_tasks", "Force tasks to an end as FAILED."),
}

ANSWER_S: Final = 20.0
"""What an exec may take beyond its own time limit: to end what is over it, and to bring the output back, or to say that no worker did."""


@click.group(cls=LazyGroup, table=COMMANDS)
def task() -> None:
    """Look at tasks, run commands beside them, and force them to an end."""


@click.command("list", short_help=COMMANDS["list"].help)
@click.argument("job_id", metavar="JOB")
@output_option()
@headers_option
@watch_option
@click.pass_obj
def list_tasks(session: Session, job_id: str, how: output.Format, no_headers: bool, watch: bool) -> None:
    """List the tasks of a job, by index."""
    from iris_core.cli import reads, watching
    from iris_core.cli.listings import TASK_LIST
    from iris_core.model.ids import JobId

    parsed = JobId.parse(job_id)
    if watch:
        watching.watch(
            session, TASK_LIST, lambda: reads.list_tasks(session.client, parsed), how, headers=not no_headers
        )
    rows = reads.list_tasks(session.client, parsed)
    output.write(TASK_LIST.text(rows, how, reads.now_ms(), headers=not no_headers))


@click.command(short_help=COMMANDS["describe"].help)
@click.argument("task_id", metavar="TASK")
@output_option("table", "wide", "json")
@click.pass_obj
def describe(session: Session, task_id: str, how: output.Format) -> None:
    """Show a task, its resources and its attempts; of one that failed also what its log says of the cause."""
    from iris_core.cli import describing, reads, root_cause
    from iris_core.model.ids import TaskId

    found = reads.task_status(session.client, TaskId.parse(task_id))
    failed = root_cause.failed(found.attempts)
    cause = root_cause.of_attempt(session, found.task, failed) if failed is not None else None
    output.write(describing.task_text(found, how, reads.now_ms(), cause))


@click.command(short_help=COMMANDS["wait"].help)
@click.argument("task_id", metavar="TASK")
@click.option("--timeout", type=Seconds(), default=0, metavar="S", help="Give up after so many seconds, 0 = never.")
@click.pass_obj
def wait(session: Session, task_id: str, timeout: float) -> int:
    """Wait until a task has ended and print its state; exit 0 only when it SUCCEEDED.

    Another attempt is waited for, too; a later job of the same name ends the wait with exit code 1.
    """
    from iris_core.cli.log_subject import TaskSubject
    from iris_core.cli.waiting import wait_for_end
    from iris_core.model.ids import TaskId

    return wait_for_end(session, TaskSubject(session.client, TaskId.parse(task_id)), timeout)


class ExecCommand(CommandAfterDashes):
    """TASK, options, `--`, and the command."""

    positional = 1


@click.command("exec", cls=ExecCommand, short_help=COMMANDS["exec"].help)
@click.argument("target", metavar="TASK")
@click.option(
    "--timeout",
    type=Whole(-1, YEAR_S),
    default=60,
    show_default=True,
    metavar="S",
    help="Seconds it may run, -1 = no limit.",
)
@click.pass_context
def exec_command(ctx: click.Context, target: str, timeout: int) -> int:
    """Run a command in the directory and environment of a running task (or of its attempt TASK:N, while that is
    current).

    Its output comes when it has ended, byte for byte, and its exit code becomes this command's own. What it leaves in
    the background (`nohup … &`) outlives it and ends with the attempt.

    COMMAND ends with this one: on Ctrl-C, and when the connection breaks. It runs at most once: where its answer is
    lost, the exit code is 1 and it is said that it is not known whether it ran.
    """
    from iris_core.cli.argv import hide_secret_words
    from iris_core.cli.exec_fate import ask
    from iris_core.model.errors import ModelError
    from iris_core.model.ids import AttemptId, parse_target
    from iris_core.model.ids import TaskId as Task
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    hide_secret_words()
    session = session_of(ctx)
    parsed = parse_target(target)
    if not isinstance(parsed, (Task, AttemptId)):
        raise ModelError(f"{target} is a job", field="id", hint=f"name a task of it, such as {target}/0")
    request = pb.ExecInContainerRequest(task_id=str(parsed), command=command_words(ctx), timeout_seconds=timeout)
    if timeout == 0:
        raise ModelError("--timeout 0 leaves no time", field="--timeout", hint="give seconds, or -1 for no limit")
    limit_s = math.inf if timeout < 0 else timeout + ANSWER_S
    answer = ask(session, request, parsed, limit_s)
    output.write_bytes(_passed_on(answer.stdout, sys.stdout))
    output.flush()
    _stderr(_passed_on(answer.stderr, sys.stderr))
    if answer.truncated:
        session.diagnostics.warn(
            "the output was longer than is kept; the rest is lost (redirect it to a file in the task)"
        )
    if answer.error:
        raise IrisError(f"exec in {parsed}: {answer.error}")
    return answer.exit_code


def _passed_on(data: bytes, stream: Any) -> bytes:
    """The bytes themselves, or on a terminal what cannot steer it: colours stay."""
    from iris_core.model.text import strip_to_sgr

    try:
        if not stream.isatty():
            return data
    except (ValueError, AttributeError):
        return data
    return strip_to_sgr(data.decode("utf-8", "replace"), keep_newlines=True).encode()


def _stderr(data: bytes) -> None:
    """The command's own standard error, byte for byte: it is its output, not a message of this program."""
    try:
        sys.stderr.flush()
        sys.stderr.buffer.write(data)
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass
