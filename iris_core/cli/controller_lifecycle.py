"""`cluster controller start|stop|status`: the deployed controller, without shipping code to a running one.

`start` starts what is deployed; only where nothing was ever deployed does it build the tree around the working directory. Code
reaches a deployed controller by `restart`, which asks and can be undone.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from iris_core.cli import output
from iris_core.cli.options import Seconds, confirm_option, output_option
from iris_core.contracts import IrisError

if TYPE_CHECKING:
    from iris_core.cli.deployment import Deployment
    from iris_core.cli.session import Session
    from iris_core.contracts import ControllerStatus, ObjectStore
    from iris_core.procedures.record import RolloutRecord


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@click.command(short_help="Start the controller that is deployed.")
@click.option(
    "--timeout",
    type=Seconds(1),
    default=120,
    show_default=True,
    metavar="S",
    help="Wait at most so long until it serves.",
)
@click.pass_obj
def start(session: Session, timeout: float) -> None:
    """Start the controller that is deployed, wait until it serves, and print its address.

    It is started again when it dies, and outlives this command. Where nothing was deployed yet, the tree around the working directory is
    built and deployed. Workers and log store of an earlier controller are taken over.

    \b
    iris-core --config lab.yaml cluster controller start
    """
    from iris_core.cli.deployment import deployment

    output.line(begin(session, deployment(session), timeout))


def begin(session: Session, found: Deployment, timeout_s: float) -> str:
    """Starts what is deployed, or what is here where nothing is, and waits; the address. Raises IrisError: it does not come up."""
    from iris_core.cli.deployment import say_lines, short
    from iris_core.procedures.lock import require_free
    from iris_core.procedures.target import hangs

    store = found.store()
    program = session.command()
    controller = f"{program} cluster controller"
    require_free(store, _now_ms(), program=program)
    status = found.host.status()
    if status.running:
        hint = "" if status.url else hangs(program)
        raise IrisError(f"a controller of {found.name} runs already: {status.detail}", hint=hint)
    release, first = _wanted(session, found, store)
    found.host.stage(release)
    session.diagnostics.note(f"starting release {short(release)} of {found.name}")
    found.host.start(release)
    try:
        healthy = found.host.await_healthy(timeout_s)
    except IrisError as error:
        say_lines(session, error)
        found.host.stop()
        error.message += "; it was stopped"
        if first:
            error.message += f". This is the first deployment of {found.name}: there is nothing to return to"
            error.hint = f"mend it, then: {controller} start{f'. {error.hint}' if error.hint else ''}"
        elif _phase(store) == "pending":
            error.hint = f"mend what keeps it from coming up, or go back: {controller} restart --rollback"
        elif _phase(store) == "rollback_requested":
            error.hint = (
                f"mend what keeps it from coming up, or decide without its checkpoint: {controller} withdraw-rollback"
            )
        raise
    if first:
        _record_first(store, release)
    else:
        _see_through(session, store, release)
    return healthy.url


def _phase(store: ObjectStore) -> str:
    """What the record says, "" = nothing that can be read."""
    from iris_core.procedures import record

    try:
        found = record.read(store).record
    except IrisError:
        return ""
    return str(found.phase) if found is not None else ""


def _see_through(session: Session, store: ObjectStore, release: str) -> None:
    """Ends what a deployment left that came to no end: the release that runs is committed, or its rollback is done. Raises IrisError."""
    from iris_core.cli.deployment import short
    from iris_core.procedures import record

    standing = record.read(store)
    found = standing.record
    if found is None or found.image != release:
        return
    if found.phase is record.Phase.ROLLBACK_REQUESTED:
        raise IrisError(
            f"release {short(release)} serves, and the rollback to it is not marked as done", hint="look at its log"
        )
    if found.phase is record.Phase.PENDING:
        try:
            record.write(store, record.committed(standing, release, _now_ms()), standing)
        except IrisError as error:
            session.diagnostics.warn(f"{error.message}; release {short(release)} commits itself within two minutes")
            return
        session.diagnostics.note(f"release {short(release)}, which was pending, is committed")


def _wanted(session: Session, found: Deployment, store: ObjectStore) -> tuple[str, bool]:
    """The release to start, and whether it is the first that is deployed."""
    from iris_core.cli.deployment import short
    from iris_core.procedures import record
    from iris_core.procedures.source_tree import freeze

    standing = record.read(store).record
    if standing is None:
        tree = freeze(Path.cwd())
        session.diagnostics.note(f"nothing is deployed yet: tree {short(tree.id)} of {tree.branch}, {tree.subject}")
        for warning in tree.warnings():
            session.diagnostics.warn(warning)
        return found.built(tree, _now_ms(), session), True
    if standing.phase is record.Phase.PENDING:
        session.diagnostics.note(f"the deployment of {short(standing.image)} came to no end: it is gone on with")
    elif standing.phase is record.Phase.ROLLBACK_REQUESTED:
        session.diagnostics.note(f"a rollback to {short(standing.image)} is asked for: it is gone on with")
    if not found.has(standing.image):
        tree = freeze(Path.cwd())
        if tree.id != standing.image:
            raise IrisError(
                f"release {short(standing.image)}, which is deployed, is not on {found.where}, and the tree here is {short(tree.id)}",
                hint=f"check that tree out, or deploy another one: {session.command()} cluster controller restart",
            )
        return found.built(tree, _now_ms(), session), False
    return standing.image, False


def _record_first(store: ObjectStore, release: str) -> None:
    from iris_core.procedures import record

    standing = record.read(store)
    record.write(store, record.first_committed(standing, release, _now_ms()), standing)


@click.command(short_help="Stop the controller that is deployed; workers and tasks go on.")
@confirm_option
@click.pass_obj
def stop(session: Session, confirm: str | None) -> None:
    """Stop the controller that is deployed. Its workers and their tasks go on, and the next one takes them over.

    One that hangs is killed after 75 s. Not while a restart or a rollout changes it: it is said whose that is, and how to go on with it. Workers without a controller and without a task end after 10 minutes.
    """
    from iris_core.cli.confirming import confirmed
    from iris_core.cli.deployment import deployment

    found = deployment(session)
    require_unlocked(session, found)
    status = found.host.status()
    if not status.running:
        session.diagnostics.note(f"no controller of {found.name} runs: {status.detail}")
        return
    confirmed(confirm, found.name, f"Stopping the controller of {found.name}: {_riding(session)}")
    require_unlocked(session, found)  # the question may have stood for hours
    found.host.stop()
    again = f"{session.command()} cluster controller start"
    session.diagnostics.note(f"the controller of {found.name} is stopped; {again} starts it again")


def require_unlocked(session: Session, found: Deployment) -> None:
    """Raises LockHeld, LockUnreadable. A store that does not answer is said, and keeps nobody from ending a controller."""
    from iris_core.procedures.lock import LockHeld, LockUnreadable, require_free

    if not found.config.remote_state_dir:
        return
    try:
        require_free(found.store(), _now_ms(), program=session.command())
    except (LockHeld, LockUnreadable):
        raise
    except IrisError as error:
        session.diagnostics.warn(f"whether a procedure changes {found.name} is not known: {error.message}")


def _riding(session: Session) -> str:
    """What goes on without a controller, as far as it says."""
    from iris_core.model.text import going_on
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    try:
        found = session.client.call(
            "ControllerService/GetClusterStatus",
            pb.GetClusterStatusRequest(),
            pb.GetClusterStatusResponse,
            timeout_s=5.0,
        )
    except IrisError as error:
        return f"it does not say what runs ({error.message})"
    running = going_on(found.tasks_by_state.get("running", 0))
    return f"{running}, nothing is scheduled and nobody can submit until it is started again"


@click.command(short_help="Show what is deployed, and how it runs.")
@output_option("table", "json")
@click.pass_obj
def status(session: Session, how: output.Format) -> int:
    """Show what is deployed and how its controller runs, without asking it; exit 1 when none serves."""
    from iris_core.cli.deployment import deployment
    from iris_core.procedures import lock, record

    found = deployment(session)
    now = found.host.status()
    standing, holder, problem = None, None, ""
    if found.config.remote_state_dir:
        try:
            store = found.store()
            standing, holder = record.read(store).record, lock.read(store).holder
        except IrisError as error:
            problem = error.message
    words = holder.words(_now_ms()) if holder is not None else ""
    releases = found.known()
    if how == "json":
        output.line(output.as_json(_object(found, now, standing, words, releases, problem)))
    else:
        output.write(_text(found, now, standing, words, releases, problem))
    return 0 if now.url else 1


def _object(
    found: Deployment,
    now: ControllerStatus,
    standing: RolloutRecord | None,
    lock: str,
    releases: list[str],
    problem: str,
) -> dict[str, object]:
    record = None
    if standing is not None:
        record = {
            "phase": str(standing.phase),
            "image": standing.image,
            "previous_image": standing.previous_image or None,
            "rollback_checkpoint": standing.rollback_checkpoint or None,
            "updated_at_ms": standing.updated_at_ms,
        }
    return {
        "cluster": found.name,
        "running": now.running,
        "url": now.url or None,
        "pid": now.pid or None,
        "boot_id": now.boot_id or None,
        "release": now.release or None,
        "failures": now.failures,
        "detail": now.detail,
        "record": record,
        "lock": lock or None,
        "releases": releases,
        "state_dir": str(found.root),
        "problem": problem or None,
    }


def _text(
    found: Deployment,
    now: ControllerStatus,
    standing: RolloutRecord | None,
    lock: str,
    releases: list[str],
    problem: str,
) -> str:
    from iris_core.cli.deployment import short
    from iris_core.live.columns import age
    from iris_core.model.text import one_line, yes_or_no

    rows = [
        ("Cluster", found.name),
        ("Running", yes_or_no(now.running)),
        ("State", now.detail),
        ("Release", short(now.release)),
        ("Process", str(now.pid) if now.pid else ""),
        ("Failures", str(now.failures) if now.failures else ""),
    ]
    if standing is not None:
        rows += [
            ("Deployed", f"{short(standing.image)}, {standing.phase} {age(standing.updated_at_ms, _now_ms())} ago"),
            ("Before it", short(standing.previous_image)),
            ("Checkpoint", standing.rollback_checkpoint),
        ]
    else:
        rows.append(("Deployed", "" if problem else "nothing yet"))
    rows += [
        ("Lock", lock),
        ("On disk", ", ".join(short(release) for release in releases)),
        ("State dir", str(found.root)),
        ("Problem", problem),
    ]
    return "".join(f"{name + ':':<12}{one_line(value)}\n" for name, value in rows if value)
