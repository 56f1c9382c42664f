"""`job rerun`: a job that was submitted before, once more, with some things changed.

What is not named here is the original's, its secret values included, which stay on the server. Must never send what it was not told
to change, and never take the place of a job unless that was asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from iris_core.cli import output
from iris_core.cli.options import CommandAfterDashes, Seconds, Whole, command_words
from iris_core.cli.run_options import MAX_REPLICAS, POLICIES
from iris_core.cli.session import session_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

METHOD: Final = "ControllerService/LaunchJob"


class RerunCommand(CommandAfterDashes):
    """JOB, options, `--`, and another command."""

    positional = 1
    optional = True
    aliases = {"--name": "--job-name", "--env": "-e", "--unset": "--remove-env", "--band": "--priority"}  # noqa: RUF012


@click.command("rerun", cls=RerunCommand, short_help="Submit a job once more, with some things changed.")
@click.argument("job_id", metavar="JOB")
@click.option("--job-name", metavar="NAME", help="The new job's name. Default: NAME-rerun, numbered if that is taken.")
@click.option(
    "-e", "--env-vars", nargs=2, multiple=True, metavar="KEY VALUE", help="Set or replace a variable (repeatable)."
)
@click.option("--remove-env", multiple=True, metavar="KEY", help="Leave a variable of the original out (repeatable).")
@click.option("--cpu", metavar="CORES", help="Cores of each task, as 0.5 or 500m.")
@click.option("--memory", metavar="SIZE", help="Memory of each task.")
@click.option("--disk", metavar="SIZE", help="Disk of each task.")
@click.option("--replicas", type=Whole(1, MAX_REPLICAS), metavar="N", help="Tasks.")
@click.option("--priority", metavar="BAND", help="Band: production, interactive or batch.")
@click.option("--region", multiple=True, help="Region, in the place of the original's (repeatable; '' = any).")
@click.option("--zone", help="Zone, in the place of the original's ('' = any).")
@click.option(
    "--constraint",
    multiple=True,
    metavar="EXPR",
    help="What a worker must have, in the place of all that it had to have for the original, but for its place (repeatable; '' = nothing).",
)
@click.option(
    "--prefer",
    multiple=True,
    metavar="EXPR",
    help="What a worker had better have, in the place of the original's (repeatable; '' = nothing).",
)
@click.option("--timeout", type=Seconds(), metavar="S", help="Execution limit of each task, 0 = none.")
@click.option("--scheduling-timeout", type=Seconds(), metavar="S", help="How long it may wait, 0 = for ever.")
@click.option("--max-retries-failure", type=Whole(0, 10_000), metavar="N", help="Retries of a failed task.")
@click.option(
    "--max-retries-preemption",
    type=Whole(0, 10_000),
    metavar="N",
    help="Preemptions and lost workers of a task that are retried.",
)
@click.option("--max-task-failures", type=Whole(0, 1_000_000), metavar="N", help="Failed tasks it outlives.")
@click.option(
    "--existing-job",
    type=click.Choice(POLICIES),
    default="error",
    show_default=True,
    help="What to do when there is a job of the new name.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be submitted, or why it cannot be, and submit nothing.")
@click.pass_context
def rerun(ctx: click.Context, /, job_id: str, dry_run: bool, **values: Any) -> int:
    """Submit a job once more: its command, files, environment and secret values, but for what is changed here.

    \b
    job rerun /ada/train --memory 64GB
    job rerun /ada/train --job-name train-2 -e LR 0.01 -- python train.py --steps 9

    Prints the new job's id and does not follow it.
    """
    from iris_core.cli.argv import hide_secret_words
    from iris_core.cli.submit import launch

    hide_secret_words()
    session = session_of(ctx)
    request = _request(ctx, job_id, values)
    if dry_run:
        from iris_core.cli.planned import preview

        return preview(session, METHOD, [request])
    submitted = launch(session.client, request, named=values["job_name"] is not None)
    for doubt in submitted.warnings:
        session.diagnostics.warn(doubt)
    output.line(submitted.job_id)
    if submitted.existing:
        session.diagnostics.note(f"{submitted.job_id} is running already: nothing was submitted")
    return 0


def _request(ctx: click.Context, job_id: str, values: dict[str, Any]) -> pb.LaunchJobRequest:
    """What is sent: the original's id and the changes. Raises UsageFailed, ModelError, IrisError."""
    from iris_core.cli import reads
    from iris_core.cli.submit import encodable, env_name
    from iris_core.config.revision import revision_date
    from iris_core.model.ids import JobId, check_component
    from iris_core.model.redact import redact_argv
    from iris_core.sdk.spec import EXISTING
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    session = session_of(ctx)
    original = JobId.parse(job_id)
    found = reads.job_status(session.client, original)
    name = values["job_name"]
    if name is not None:
        check_component(name, what="job name", field="--job-name")
    request = pb.LaunchJobRequest(name=_beside(original, name or f"{original.name[:100]}-rerun"))
    request.rerun.job_id, request.rerun.incarnation = str(original), found.job.incarnation
    if command_words(ctx):
        request.entrypoint.run_command.argv.extend(encodable(command_words(ctx)))
    for key, value in values["env_vars"]:
        request.environment.env_vars[env_name(key)] = encodable([value])[0]
    request.rerun.remove_env.extend(values["remove_env"])
    _resources(request, found.request, values)
    _place(request, found.request, values)
    for field, value in _numbers(values):
        setattr(request, field, value)
        if not value:
            request.rerun.clear.append(field)
    request.existing_job_policy = EXISTING[values["existing_job"]]  # type: ignore[assignment]
    request.client_revision_date = revision_date()
    request.submit_argv.extend(encodable(redact_argv([session.program, *session.argv])))
    return request


def _beside(original: Any, name: str) -> str:
    parent = original.parent
    return f"{parent if parent is not None else f'/{original.user}'}/{name}"


def _resources(request: pb.LaunchJobRequest, before: pb.LaunchJobRequest, values: dict[str, Any]) -> None:
    """Resources are replaced as a whole: what is not named is what it was."""
    from iris_core.model.quantities import parse_cpu, parse_size

    if values["cpu"] is None and values["memory"] is None and values["disk"] is None:
        return
    request.resources.CopyFrom(before.resources)
    if values["cpu"] is not None:
        request.resources.cpu_millicores = parse_cpu(values["cpu"], field="--cpu")
    if values["memory"] is not None:
        request.resources.memory_bytes = parse_size(values["memory"], field="--memory")
    if values["disk"] is not None:
        request.resources.disk_bytes = parse_size(values["disk"], field="--disk")


def _place(request: pb.LaunchJobRequest, before: pb.LaunchJobRequest, values: dict[str, Any]) -> None:
    """What is named takes the place of what the original had of that kind; the rest stays. Raises ModelError."""
    from iris_core.cli.placement import parsed_constraint
    from iris_core.live.placed_again import placed_again
    from iris_core.model.constraints import Mode
    from iris_core.wire.convert import constraint_from_wire, constraint_to_wire

    def named(option: str, mode: Mode) -> list[Any] | None:
        texts = values[option]
        return [parsed_constraint(text, f"--{option}", mode) for text in texts if text] if texts else None

    required, preferred = named("constraint", Mode.REQUIRED), named("prefer", Mode.PREFERRED)
    regions = [region for region in values["region"] if region] if values["region"] else None
    if regions is None and values["zone"] is None and required is None and preferred is None:
        return
    placed = placed_again(
        [constraint_from_wire(message) for message in before.constraints],
        regions=regions,
        zone=values["zone"],
        required=required,
        preferred=preferred,
    )
    request.constraints.extend(constraint_to_wire(constraint) for constraint in placed)
    if not placed:
        request.rerun.clear.append("constraints")


def _numbers(values: dict[str, Any]) -> Sequence[tuple[str, int]]:
    from iris_core.model.bands import parse_band

    found: list[tuple[str, int]] = []
    if values["replicas"] is not None:
        found.append(("replicas", values["replicas"]))
    if values["priority"] is not None:
        found.append(("priority_band", parse_band(values["priority"]).value))
    for option, field in (("timeout", "timeout_ms"), ("scheduling_timeout", "scheduling_timeout_ms")):
        if values[option] is not None:
            found.append((field, round(values[option] * 1000)))
    found.extend(
        (name, values[name])
        for name in ("max_retries_failure", "max_retries_preemption", "max_task_failures")
        if values[name] is not None
    )
    return found
