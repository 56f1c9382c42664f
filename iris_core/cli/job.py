"""`job`: the group, and the commands that look at jobs and end them. `job run` has a room of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from iris_core.cli import output
from iris_core.cli.lazy import Lazy, LazyGroup
from iris_core.cli.options import (
    MOST,
    Seconds,
    Whole,
    gather_ids,
    headers_option,
    output_option,
    stdin_option,
    watch_option,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_core.cli.session import Session
    from iris_core.contracts import Client
    from iris_core.model.ids import JobId
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

COMMANDS = {
    "run": Lazy("iris_core.cli.job_run:run", "Submit a command as a job and follow it."),
    "rerun": Lazy("iris_core.cli.job_rerun:rerun", "Submit a job once more, with some things changed."),
    "list": Lazy("iris_core.cli.job:list_jobs", "List jobs, the newest first."),
    "describe": Lazy("iris_core.cli.job:describe", "Show a job and its tasks."),
    "explain": Lazy("iris_core.cli.explain:explain_job", "Say why a job waits."),
    "logs": Lazy("iris_core.cli.logs:job_logs", "Print what the tasks of a job wrote."),
    "hang": Lazy("iris_core.cli.hang:hang", "Show where all running tasks of a job stand, the odd one first."),
    "profile-summary": Lazy(
        "iris_core.cli.profile_summary:profile_summary", "Say where a whole job spends its CPU time."
    ),
    "wait": Lazy("iris_core.cli.job:wait", "Wait until a job has ended."),
    "cancel": Lazy("iris_core.cli.job:cancel", "End jobs and their children as KILLED."),
    "complete": Lazy("iris_core.cli.job:complete", "End a job and its children as SUCCEEDED."),
}

DEFAULT_LIMIT = 500
MOST_PLANNED = 1_000
"""Jobs in one plan."""


@click.group(cls=LazyGroup, table=COMMANDS)
def job() -> None:
    """Run, list, follow and end jobs."""


@click.command("list", short_help=COMMANDS["list"].help)
@click.option("--state", "states", multiple=True, metavar="NAME", help="Only jobs in this state (repeatable).")
@click.option("--prefix", metavar="STR", help="Only jobs whose id begins so, as /user/name.")
@click.option(
    "--filter", "filter_text", default="", metavar="EXPR", help="Only jobs that match, as 'failures>0 user:ada'."
)
@click.option(
    "--limit", type=Whole(0, MOST), default=DEFAULT_LIMIT, show_default=True, help="At most so many, 0 = all."
)
@output_option()
@headers_option
@watch_option
@click.pass_obj
def list_jobs(
    session: Session,
    states: Sequence[str],
    prefix: str | None,
    filter_text: str,
    limit: int,
    how: output.Format,
    no_headers: bool,
    watch: bool,
) -> None:
    """List jobs, the newest submission first."""
    from iris_core.cli import reads, watching
    from iris_core.cli.listings import JOB_LIST
    from iris_core.model.states import parse_job_state

    numbers = [parse_job_state(name).value for name in states]
    begins = reads.check_prefix(prefix, wide=True) if prefix is not None else ""

    def read() -> tuple[list[pb.JobStatus], bool]:
        return reads.list_jobs(session.client, prefix=begins, states=numbers, filter_text=filter_text, limit=limit)

    if watch:
        watching.watch(session, JOB_LIST, lambda: read()[0], how, headers=not no_headers)
    rows, more = read()
    if not rows and how in ("table", "wide"):
        session.diagnostics.note("No jobs found.")
        return
    output.write(JOB_LIST.text(rows, how, reads.now_ms(), headers=not no_headers))
    if more:
        session.diagnostics.note(f"the newest {limit} jobs are shown, there are more; --limit 0 shows all")


@click.command(short_help=COMMANDS["describe"].help)
@click.argument("job_id", metavar="JOB")
@output_option("table", "wide", "json")
@click.pass_obj
def describe(session: Session, job_id: str, how: output.Format) -> None:
    """Show a job, its tasks, exit codes and peak memory."""
    from iris_core.cli import describing, reads, root_cause
    from iris_core.model.ids import JobId

    parsed = JobId.parse(job_id)
    found = reads.job_status(session.client, parsed)
    tasks = reads.list_tasks(session.client, parsed)
    output.write(describing.job_text(found, tasks, how, reads.now_ms()))
    culprit = root_cause.culprit(found.job, tasks)
    if culprit is not None and how != "json" and root_cause.may_have_logged(culprit):
        command = f"{session.program} {session.selector()}task describe {culprit.task_id}"
        output.flush()
        session.diagnostics.note(f"the root cause, from its log: {command}")


@click.command(short_help=COMMANDS["wait"].help)
@click.argument("job_id", metavar="JOB")
@click.option("--timeout", type=Seconds(), default=0, metavar="S", help="Give up after so many seconds, 0 = never.")
@click.pass_obj
def wait(session: Session, job_id: str, timeout: float) -> int:
    """Wait until a job has ended and print its state; exit 0 only when it SUCCEEDED.

    A later job of the same name is another one: it ends the wait with exit code 1.
    """
    from iris_core.cli.log_subject import JobSubject
    from iris_core.cli.waiting import wait_for_end
    from iris_core.model.ids import JobId

    return wait_for_end(session, JobSubject(session.client, JobId.parse(job_id)), timeout)


@click.command(short_help=COMMANDS["cancel"].help)
@click.argument("ids", nargs=-1, metavar="[JOB... | -]")
@stdin_option
@click.option(
    "--prefix", metavar="STR", help="Every job whose id begins so; at least the beginning of a name is needed."
)
@click.option("--dry-run", is_flag=True, help="Print what would end, and end nothing.")
@click.option("--reason", default="", metavar="TEXT", help="Kept with the job.")
@click.pass_obj
def cancel(
    session: Session, ids: Sequence[str], from_stdin: bool, prefix: str | None, dry_run: bool, reason: str
) -> int:
    """End jobs, by exact id, with their child jobs. They are recorded as KILLED."""
    from iris_core.cli import reads
    from iris_core.contracts import UsageFailed
    from iris_core.model.ids import JobId
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    if prefix is not None:
        if ids or from_stdin:
            raise UsageFailed("--prefix and ids exclude each other", hint="give one of them")
        targets = _below_prefix(session.client, reads.check_prefix(prefix, wide=False))
        if not targets:
            session.diagnostics.note(f"no unfinished job begins with {prefix.strip()}")
            return 0
    else:
        targets = [JobId.parse(text) for text in gather_ids(ids, from_stdin, session.diagnostics.note)]
    if dry_run:
        return _preview(session, targets)

    def send(target: JobId) -> Sequence[str]:
        request = pb.TerminateJobRequest(job_id=str(target), reason=reason)
        return session.client.call("ControllerService/TerminateJob", request, pb.TerminateJobResponse).job_ids

    return _each(session, targets, send, "cancelled")


@click.command(short_help=COMMANDS["complete"].help)
@click.argument("job_id", metavar="JOB")
@click.option("--dry-run", is_flag=True, help="Print what would end, and end nothing.")
@click.pass_obj
def complete(session: Session, job_id: str, dry_run: bool) -> int:
    """Record a job, its unfinished tasks and its child jobs as SUCCEEDED, then stop what runs."""
    from iris_core.model.ids import JobId
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    if dry_run:
        from iris_core.cli.planned import preview

        asked = pb.CompleteJobRequest(job_id=str(JobId.parse(job_id)))
        return preview(session, "ControllerService/CompleteJob", [asked])

    def send(target: JobId) -> Sequence[str]:
        request = pb.CompleteJobRequest(job_id=str(target))
        return session.client.call("ControllerService/CompleteJob", request, pb.CompleteJobResponse).job_ids

    return _each(session, [JobId.parse(job_id)], send, "completed")


def _below_prefix(client: Client, prefix: str) -> list[JobId]:
    """The unfinished jobs whose id begins so, without those whose parent is among them."""
    from iris_core.cli import reads
    from iris_core.model.ids import JobId
    from iris_core.model.states import JOB_TERMINAL, JobState

    unfinished = [state.value for state in JobState if state and state not in JOB_TERMINAL]
    rows, _ = reads.list_jobs(client, prefix=prefix, states=unfinished)
    names = {row.job_id for row in rows}
    return [JobId(name) for name in sorted(names) if not any(name.startswith(f"{other}/") for other in names)]


def _preview(session: Session, targets: Sequence[JobId]) -> int:
    """What a cancel would end. One that the controller does not know does not spare the rest, as when they are ended; then it is 1."""
    from iris_core.cli import reads
    from iris_core.contracts import RpcFailed

    code = 0
    known: list[JobId] = []
    affected: dict[str, None] = {}
    for target in targets:
        try:
            found = reads.job_status(session.client, target).job
        except RpcFailed as error:
            code = max(code, session.diagnostics.fail(error))
            continue
        known.append(target)
        if reads.job_ended(found.state):
            session.diagnostics.note(f"{target} has ended already")
        below, _ = reads.list_jobs(session.client, prefix=f"{target}/") if found.has_children else ([], False)
        affected.update((row.job_id, None) for row in (found, *below) if not reads.job_ended(row.state))
    session.diagnostics.note(f"would cancel {len(affected)} job{'s' * (len(affected) != 1)}; nothing was sent")
    output.write("".join(f"{name}\n" for name in affected))
    if affected:
        from iris_core.cli.planned import effects
        from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

        asked = [pb.TerminateJobRequest(job_id=str(target)) for target in known[:MOST_PLANNED]]
        effects(session, "ControllerService/TerminateJob", asked)
        if len(known) > MOST_PLANNED:
            session.diagnostics.note(f"that is of the first {MOST_PLANNED} of {len(known)} jobs")
    return code


def _each(session: Session, targets: Sequence[JobId], send: Any, verb: str) -> int:
    """Acts on one target after the other; one that is refused does not spare the rest."""
    from iris_core.contracts import RpcFailed

    code = 0
    for target in targets:
        try:
            ended = send(target)
        except RpcFailed as error:
            code = max(code, session.diagnostics.fail(error))
            continue
        others = len(ended) - 1
        if ended:
            output.line(f"{verb} {target}" + (f" and {others} child job{'s' * (others != 1)}" if others else ""))
            output.flush()
        else:
            session.diagnostics.note(f"{target} had ended already")
    return code
