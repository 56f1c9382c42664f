"""`cluster stop` and `cluster restart` of a deployment: controller, workers, their tasks and the log store.

Unlike `cluster controller stop|restart` this ends what runs: it asks for the cluster's name and says how much that is. The state is
kept, and nothing is shipped.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from iris_core.cli import output
from iris_core.cli.options import Seconds, confirm_option
from iris_core.contracts import IrisError

if TYPE_CHECKING:
    from iris_core.cli.deployment import Deployment
    from iris_core.cli.session import Session


@click.command(short_help="Stop a deployed cluster: controller, workers, tasks.")
@confirm_option
@click.pass_obj
def stop(session: Session, confirm: str | None) -> None:
    """Stop a cluster that is deployed, with its workers and log store: everything that runs on it ends.

    The state is kept; unfinished tasks are tried again at the next start. To stop the controller alone: cluster controller stop.
    """
    from iris_core.cli.deployment import deployment

    found = deployment(session)
    _stop(session, found, confirm, "Stopping")
    session.diagnostics.note(f"{found.name} is stopped; cluster controller start starts it again")


@click.command(short_help="Stop a deployed cluster with all that runs, and start it again.")
@confirm_option
@click.option(
    "--timeout",
    type=Seconds(1),
    default=120,
    show_default=True,
    metavar="S",
    help="Wait at most so long until it serves.",
)
@click.pass_obj
def restart(session: Session, confirm: str | None, timeout: float) -> None:
    """Stop a cluster that is deployed with everything that runs on it, and start the same release again.

    To replace the controller alone, with all jobs going on: cluster controller restart.
    """
    from iris_core.cli.controller_lifecycle import begin
    from iris_core.cli.deployment import deployment

    found = deployment(session)
    _stop(session, found, confirm, "Restarting")
    output.line(begin(session, found, timeout))


def _stop(session: Session, found: Deployment, confirm: str | None, doing: str) -> None:
    from iris_core.cli.confirming import confirmed
    from iris_core.procedures.lock import require_free

    program = session.command()
    require_free(found.store(), time.time_ns() // 1_000_000, program=program)
    confirmed(confirm, found.name, f"{doing} {found.name}: {_ending(session)}")
    require_free(found.store(), time.time_ns() // 1_000_000, program=program)  # the question may have stood for hours
    found.host.stop()
    killed = found.end_leftovers()
    if killed:
        session.diagnostics.note(f"killed: {', '.join(killed)}; what its tasks had not written is lost")


def _ending(session: Session) -> str:
    """What ends with it, as far as the controller says."""
    from iris_core.model.text import counted
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    try:
        found = session.client.call(
            "ControllerService/GetClusterStatus",
            pb.GetClusterStatusRequest(),
            pb.GetClusterStatusResponse,
            timeout_s=5.0,
        )
    except IrisError as error:
        return f"everything that runs on it ends; how much that is its controller does not say ({error.message})"
    tasks = sum(found.tasks_by_state.get(state, 0) for state in ("assigned", "building", "running"))
    jobs = found.jobs_by_state.get("running", 0)
    end = "ends" if tasks == 1 else "end"
    return f"{counted(tasks, 'task')} of {counted(jobs, 'running job')} {end}, to be tried again after the next start"
