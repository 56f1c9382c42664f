"""`cluster controller checkpoint`: the controller saves its state, and says where."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from iris_core.cli import output
from iris_core.cli.options import Seconds, output_option
from iris_core.contracts import UsageFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_core.cli.session import Session


@click.command(short_help="Have the controller save its state now.")
@click.option(
    "--timeout",
    type=Seconds(1),
    default=60,
    show_default=True,
    metavar="S",
    help="Wait at most so long for it.",
)
@click.option(
    "--stop", is_flag=True, help="And have it end: nothing is changed after this checkpoint, and nothing is lost."
)
@click.option(
    "--confirm", metavar="CLUSTER", help="With --stop: the name of the cluster, instead of being asked for it."
)
@output_option("table", "json", "name")
@click.pass_obj
def checkpoint(session: Session, timeout: float, stop: bool, confirm: str | None, how: output.Format) -> None:
    """Have the controller save its state now, and print where; admins only.

    It holds everything that was acknowledged before. Read it with --checkpoint, without a controller:

    \b
    iris-core --checkpoint gs://bucket/state/controller-state/1700000000000 job list

    With --stop, the controller takes its last checkpoint and ends; its workers and their tasks go on until the next one takes them over.
    If the checkpoint fails, it goes on as if nothing had been.
    """
    from iris_core.cli import describing
    from iris_core.model.quantities import format_size
    from iris_core.model.text import one_line
    from iris_core.wire.gen.iris.v1 import checkpoints_pb2 as pb

    if stop:
        require_unlocked = _unlocked(session)
        require_unlocked()
        _confirm(session, confirm)
        require_unlocked()  # the question may have stood for hours
    elif confirm is not None:
        raise UsageFailed("--confirm belongs to --stop: a checkpoint alone needs no confirmation")
    made = session.client.call(
        "ControllerService/BeginCheckpoint",
        pb.BeginCheckpointRequest(stop=stop),
        pb.BeginCheckpointResponse,
        timeout_s=timeout,
    )
    if how == "json":
        output.line(output.as_json(describing.as_object(made)))
    elif how == "name":
        output.line(one_line(made.checkpoint_path))
    else:
        rows = [
            ("Checkpoint", made.checkpoint_path),
            ("Size", format_size(made.size_bytes)),
            ("Jobs", str(made.job_count)),
            ("Tasks", str(made.task_count)),
            ("Workers", str(made.worker_count)),
        ]
        output.write("".join(f"{name + ':':<12}{one_line(value)}\n" for name, value in rows))
    if stop:
        session.diagnostics.note("the controller ends; cluster controller start starts it again")


def _unlocked(session: Session) -> Callable[[], None]:
    """What raises LockHeld, LockUnreadable while a procedure changes that controller. One that is no deployment has no lock."""
    from iris_core.cli.controller_lifecycle import require_unlocked
    from iris_core.cli.deployment import deployment

    try:
        found = deployment(session)
    except UsageFailed:
        return lambda: None
    return lambda: require_unlocked(session, found)


def _confirm(session: Session, given: str | None) -> None:
    from iris_core.cli.confirming import confirmed
    from iris_core.model.text import going_on
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    said = session.client.call(
        "ControllerService/GetClusterStatus", pb.GetClusterStatusRequest(), pb.GetClusterStatusResponse
    )
    running = said.tasks_by_state.get("running", 0)
    confirmed(
        given,
        said.cluster,
        f"Stopping the controller of {said.cluster} after a checkpoint: {going_on(running)}, nothing is scheduled and nobody"
        " can submit until it is started again",
    )
