"""`job run`: submits the command, prints the job's id, and follows it to its end.

Standard output holds the id on its first line and then what the job writes; everything Iris itself has to say goes to
standard error. Ctrl-C cancels the job unless it was told not to; a lost connection never does, and says how to look
again. Must never cancel a job that it did not submit.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from iris_core.cli import output
from iris_core.cli.options import CommandAfterDashes, command_words
from iris_core.cli.run_options import RunOptions, run_options
from iris_core.cli.session import Session, session_of
from iris_core.contracts import ConnectFailed, IrisError, RpcFailed, UsageFailed

if TYPE_CHECKING:
    from iris_core.cli.log_subject import Standing
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

CANCEL_TIMEOUT_S: Final = 10.0


class RunCommand(CommandAfterDashes):
    """Knows what people type instead, and catches a value of `-e` that went missing."""

    aliases = {  # noqa: RUF012
        "--ram": "--memory",
        "--mem": "--memory",
        "--cpus": "--cpu",
        "--gpus": "--gpu",
        "--tpus": "--tpu",
        "--name": "--job-name",
        "--env": "-e",
        "--env-var": "-e",
        "--retries": "--max-retries",
        "--band": "--priority",
        "--image": "--task-image",
        "--regions": "--region",
        "--ports": "--port",
        "--extras": "--extra",
        "--tasks": "--replicas",
        "--num-tasks": "--replicas",
        "--detach": "--no-wait",
        "-d": "--no-wait",
    }

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        before = args[: args.index("--")] if "--" in args else args
        known = {name for param in self.params for name in [*param.opts, *param.secondary_opts]}
        for place, word in enumerate(before):
            if word in ("-e", "--env-vars"):
                values = before[place + 1 : place + 3]
                if len(values) < 2 or values[1] in known or values[0] in known:
                    name = values[0] if values and values[0] not in known else "KEY"
                    from iris_core.model.errors import shown

                    raise click.UsageError(
                        f'-e {shown(name)[1:-1]} has no value; write -e {shown(name)[1:-1]} "$VALUE", in quotes', ctx
                    )
        return super().parse_args(ctx, args)


@click.command(cls=RunCommand, short_help="Submit a command as a job and follow it.")
@run_options
@click.option("--no-wait", is_flag=True, help="Print the id and do not follow.")
@click.option("--dry-run", is_flag=True, help="Say whether it would run now, wait or never fit, and submit nothing.")
@click.option(
    "--terminate-on-exit/--no-terminate-on-exit",
    default=True,
    show_default=True,
    help="Whether Ctrl-C cancels the job.",
)
@click.pass_context
def run(ctx: click.Context, /, no_wait: bool, dry_run: bool, terminate_on_exit: bool, **values: Any) -> int:
    """Submit a command as a job, print its id, and follow it until it ends.

    The command stands after `--`; nothing that follows is looked at. It runs in a copy of the git repository around
    the current directory (outside git: of the current directory), from its root.

    Exit code: 0 when the job SUCCEEDED (with --no-wait: when it was submitted, with --dry-run: when it would be
    accepted), 1 when it did not or when a later job of its name replaced it, 130 on Ctrl-C.
    """
    from iris_core.cli.argv import hide_secret_words
    from iris_core.cli.setup_steps import project_environment, setup_scripts, warn_without_uv
    from iris_core.cli.submit import add_environment, build, check_cluster, launch, prepare_bundle, store_bundle

    hide_secret_words()
    session = session_of(ctx)
    options = RunOptions(command=command_words(ctx), **values)
    request = build(options, session.argv, session.program)
    check_cluster(session, options)
    bundle, workspace = prepare_bundle(session, _folder())
    add_environment(session, request, project_environment(workspace.root))
    has_project = workspace.has("pyproject.toml")
    request.inherit_workspace &= has_project
    if not request.inherit_workspace:
        request.environment.setup_scripts.extend(setup_scripts(options, has_project))
    if request.environment.setup_scripts:
        warn_without_uv(session)
    if dry_run:
        return _rehearse(session, request)
    if bundle.bundle_id:
        store_bundle(session, bundle)
        request.bundle_id = bundle.bundle_id
    try:
        submitted = launch(session.client, request, named=bool(options.job_name))
    except KeyboardInterrupt:
        return _interrupted_submit(session, request, terminate_on_exit)
    for doubt in submitted.warnings:
        session.diagnostics.warn(doubt)
    if options.max_task_failures is None and request.max_task_failures >= max(request.replicas, 1):
        session.diagnostics.warn(
            f"it succeeds even if every task fails in the end: --max-retries {options.max_retries} lets it outlive that "
            f"many; --max-retries-failure {options.max_retries} only retries"
        )
    if submitted.existing:
        session.diagnostics.note(f"{submitted.job_id} is running already: nothing was submitted")
    try:
        output.line(submitted.job_id)
        output.flush()
        return 0 if no_wait else _follow(session, submitted)
    except KeyboardInterrupt:
        return _interrupted(session, submitted, terminate_on_exit)


def _rehearse(session: Session, request: pb.LaunchJobRequest) -> int:
    """Prints what would become of the submission; nothing was stored or submitted. Raises what a submit would."""
    from iris_core.cli.explaining import text
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
    from iris_core.wire.gen.iris.v1 import explain_pb2

    question = pb.ExplainJobRequest(launch=request)
    found = session.client.call("ControllerService/ExplainJob", question, pb.ExplainJobResponse).explanation
    output.write(text(found, "table"))
    session.diagnostics.note("nothing was stored or submitted")
    return 1 if found.verdict == explain_pb2.EXPLAIN_VERDICT_ENDED else 0


def _folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageFailed("the current directory does not exist any more") from None


def _follow(session: Session, submitted: pb.LaunchJobResponse) -> int:
    from iris_core.cli.follow import Follower
    from iris_core.cli.log_reader import LogReader
    from iris_core.cli.log_sinks import Printer
    from iris_core.cli.log_subject import JobSubject
    from iris_core.cli.pipeline import likely_cause
    from iris_core.model.ids import JobId

    job = JobId(submitted.job_id)
    subject = JobSubject(session.client, job, incarnation=submitted.incarnation)
    began = time.monotonic()
    try:
        reader = LogReader(session.client, subject.request(submitted.incarnation), several=True)
        follower = Follower(
            session.diagnostics,
            subject,
            reader,
            Printer("text").emit,
            several=_several(subject),
            explain=lambda now: likely_cause(session, subject, now),
        )
        standing = follower.run()
    except (ConnectFailed, RpcFailed) as error:
        if isinstance(error, RpcFailed) and error.status != "UNAVAILABLE":
            raise
        raise IrisError(
            f"lost the controller: {error.message}", hint=f"{job} goes on; {_how_to_look(session, str(job))}"
        ) from None
    _say_end(session, subject, standing, time.monotonic() - began)
    return 0 if standing.succeeded else 1


def _several(subject: Any) -> bool:
    """Whether several tasks write side by side: then their lines must be put in order."""
    return bool(subject.standing().several)


def _how_to_look(session: Session, job_id: str) -> str:
    return f"follow it with: {session.program} {session.selector()}job logs {job_id} -f"


def _say_end(session: Session, subject: Any, standing: Standing, seconds: float) -> None:
    from iris_core.live.columns import exit_text
    from iris_core.model.quantities import format_duration
    from iris_core.model.states import task_label

    job: pb.JobStatus = subject.status
    took = f" after {format_duration(round(seconds * 1000))}"
    if standing.succeeded:
        failed = sum(count.count for count in job.task_counts if task_label(count.state) == "failed")
        but = f", although {failed} of {job.num_tasks} tasks failed for good: it outlives that many" if failed else ""
        session.diagnostics.note(f"{job.job_id} succeeded{took}{but}")
        return
    why = job.error or (f"exit {exit_text(job.exit_code)}" if job.HasField("exit_code") else "")
    session.diagnostics.note(f"{job.job_id} {standing.label}{took}" + (f": {why}" if why else ""))
    session.diagnostics.note(f"look closer with: {session.program} {session.selector()}job describe {job.job_id}")


def _interrupted(session: Session, submitted: pb.LaunchJobResponse, terminate: bool) -> int:
    """Ctrl-C while following: 130, whatever becomes of the cancelling. What was there already is left alone."""
    from iris_core.cli.submission import Replaced, cancel
    from iris_core.model.ids import JobId

    job_id = submitted.job_id
    if not terminate or submitted.existing:
        session.diagnostics.note(f"{job_id} goes on; {_how_to_look(session, job_id)}")
        return 130
    session.diagnostics.note(f"cancelling {job_id} …")
    reason = "interrupted: Ctrl-C in job run"
    try:
        is_sure = cancel(session.client, JobId(job_id), submitted.incarnation, reason, timeout_s=CANCEL_TIMEOUT_S)
    except Replaced as replaced:
        session.diagnostics.note(f"{replaced.message}, which goes on; nothing was cancelled")
        return 130
    except (IrisError, KeyboardInterrupt) as error:
        said = error.message if isinstance(error, IrisError) else "interrupted again"
        session.diagnostics.note(
            f"{job_id} may go on ({said}); cancel it with: {session.program} {session.selector()}job cancel {job_id}"
        )
        return 130
    # A controller that does not say which job it was.
    unsure = "; the controller's release goes by the name: had a later job taken it just then, that one was cancelled"
    session.diagnostics.note(f"cancelled {job_id}{'' if is_sure else unsure}")
    return 130


def _interrupted_submit(session: Session, request: pb.LaunchJobRequest, terminate: bool) -> int:
    """Ctrl-C before the answer: the same request id tells whether the job is ours, and only then is it cancelled."""
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    try:
        submitted = session.client.call(
            "ControllerService/LaunchJob", request, pb.LaunchJobResponse, timeout_s=CANCEL_TIMEOUT_S
        )
    except (IrisError, KeyboardInterrupt):
        session.diagnostics.note(
            f"interrupted while submitting; whether {request.name} exists is not known; look with: "
            f"{session.program} {session.selector()}job describe {request.name}"
        )
        return 130
    return _interrupted(session, submitted, terminate)
