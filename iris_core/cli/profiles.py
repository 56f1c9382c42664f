"""`profile list` and `profile get`: what the periodic loop and people have taken, kept for a week."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from iris_core.cli import output
from iris_core.cli.lazy import Lazy, LazyGroup
from iris_core.cli.options import Seconds, Whole, headers_option, output_option

if TYPE_CHECKING:
    from iris_core.cli.session import Session
    from iris_core.contracts import Client
    from iris_core.wire.gen.iris.v1 import profiles_pb2 as pb

COMMANDS = {
    "list": Lazy("iris_core.cli.profiles:list_profiles", "List the profiles that are kept, newest first."),
    "get": Lazy("iris_core.cli.profiles:get_profile", "Write one kept profile to a file."),
}
LIST_S: Final = 60.0


@click.group(cls=LazyGroup, table=COMMANDS)
def profile() -> None:
    """Find and fetch the profiles of the last week. New ones are taken with `task profile` and `process profile`."""


@click.command("list", short_help=COMMANDS["list"].help)
@click.option(
    "-t",
    "--target",
    "--task",
    "target",
    default="",
    metavar="NAME",
    help="A job with everything below it, a task, /system/worker/<id> or /system/controller. Default: all.",
)
@click.option("--type", "kind", type=click.Choice(["cpu", "mem", "threads"]), help="Only this kind.")
@click.option("--trigger", type=click.Choice(["periodic", "on_demand"]), help="Only those of the loop, or of people.")
@click.option("--since-seconds", type=Seconds(), default=0, metavar="S", help="Only those of the last S seconds.")
@click.option("--limit", type=Whole(1, 100_000), default=100, show_default=True, metavar="N", help="At most N.")
@click.option("--all-incarnations", is_flag=True, help="Earlier jobs of the same name, too.")
@output_option()
@headers_option
@click.pass_obj
def list_profiles(
    session: Session,
    target: str,
    kind: str | None,
    trigger: str | None,
    since_seconds: float,
    limit: int,
    all_incarnations: bool,
    how: output.Format,
    no_headers: bool,
) -> None:
    """List the profiles that are kept, newest first.

    The workers take threads and CPU of every running task each ten minutes; what people take is kept, too.
    """
    from iris_core.cli import reads
    from iris_core.cli.listings import PROFILE_LIST
    from iris_core.wire.gen.iris.v1 import profiles_pb2 as pb
    from iris_core.wire.profiles import TRIGGERS, number_of

    types = {"cpu": pb.PROFILE_TYPE_CPU, "mem": pb.PROFILE_TYPE_MEMORY, "threads": pb.PROFILE_TYPE_THREADS}
    request = pb.ListProfilesRequest(
        types=[types[kind]] if kind else [],
        trigger=number_of(TRIGGERS, trigger or ""),  # type: ignore[arg-type]
        since_ms=reads.now_ms() - int(since_seconds * 1000) if since_seconds else 0,
        page_size=limit,
    )
    if target:
        narrow(session.client, request, target, all_incarnations=all_incarnations)
    answer = session.client.call("ControllerService/ListProfiles", request, pb.ListProfilesResponse, timeout_s=LIST_S)
    for note in answer.notes:
        session.diagnostics.warn(note)
    if not answer.profiles and how in ("table", "wide"):
        session.diagnostics.note("no profiles found")
        return
    output.write(PROFILE_LIST.text(list(answer.profiles), how, reads.now_ms(), headers=not no_headers))
    if answer.capped:
        session.diagnostics.note(f"the newest {len(answer.profiles)}; --limit N shows more")


def narrow(client: Client, request: pb.ListProfilesRequest, target: str, *, all_incarnations: bool) -> None:
    """Makes the request mean `target`: of a job or task its current incarnation, unless all are wanted. Raises IrisError."""
    from iris_core.cli import reads
    from iris_core.cli.process import target_of
    from iris_core.contracts import RpcFailed
    from iris_core.model.ids import AttemptId, JobId, parse_target

    if target.startswith("/system/"):
        request.source = target_of(target, logs=False)
        return
    found = parse_target(target)
    if isinstance(found, JobId):
        request.prefix, job = str(found), found
    else:
        task = found.task if isinstance(found, AttemptId) else found
        request.source, job = str(task), task.job
    if not all_incarnations:
        try:
            request.min_incarnation = reads.job_status(client, job).job.incarnation
        except RpcFailed as error:
            if error.status != "NOT_FOUND":
                raise
            # Removed from the controller's state, and with it what told its incarnations apart.


@click.command("get", short_help=COMMANDS["get"].help)
@click.argument("profile_id", metavar="ID")
@click.option(
    "-o",
    "--output",
    "path",
    default="",
    metavar="FILE",
    help="Where to write, - for standard output; a file there is replaced. Default: named after it; a thread dump goes to standard output.",
)
@click.pass_obj
def get_profile(session: Session, profile_id: str, path: str) -> None:
    """Write one kept profile to a file (a thread dump to standard output); `profile list` names them."""
    from iris_core.cli.profile import print_text
    from iris_core.cli.saving import save
    from iris_core.contracts import UsageFailed
    from iris_core.model.errors import shown
    from iris_core.wire.gen.iris.v1 import profiles_pb2 as pb
    from iris_core.wire.profiles import FORMATS, ending, endings, suffix

    answer = session.client.call(
        "ControllerService/GetProfile", pb.GetProfileRequest(profile_id=profile_id), pb.GetProfileResponse
    )
    record = answer.record
    if not path and record.type == pb.PROFILE_TYPE_THREADS:
        print_text(answer.profile_data)
        return
    kept = suffix(record.type, record.format)
    if ending(path) not in ("", *endings(record.type, record.format)):
        raise UsageFailed(
            f"{record.profile_id} is kept as {FORMATS.get(record.format, 'another format')}: {shown(path)} does not stand for that",
            hint=f"name a file that ends in .{kept}",
        )
    name = path or f"profile-{record.profile_id}.{kept}"
    save(session, name, answer.profile_data, f"profile {record.profile_id} of {record.source}")


def fetch(client: Client, record: pb.ProfileRecord) -> bytes:
    """The bytes of a listed profile. Raises IrisError."""
    from iris_core.wire.gen.iris.v1 import profiles_pb2 as pb

    request = pb.GetProfileRequest(profile_id=record.profile_id, type=record.type, format=record.format)
    answer = client.call("ControllerService/GetProfile", request, pb.GetProfileResponse, timeout_s=LIST_S)
    return answer.profile_data
