"""`cluster controller checkpoint`: the controller saves its state, and says where."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from iris_core.cli import output
from iris_core.cli.options import Seconds, output_option

if TYPE_CHECKING:
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
@output_option("table", "json", "name")
@click.pass_obj
def checkpoint(session: Session, timeout: float, how: output.Format) -> None:
    """Have the controller save its state now, and print where; admins only.

    It holds everything that was acknowledged before. Read it with --checkpoint, without a controller:

    \b
    iris-core --checkpoint gs://bucket/state/controller-state/1700000000000 job list
    """
    from iris_core.cli import describing
    from iris_core.model.quantities import format_size
    from iris_core.model.text import one_line
    from iris_core.wire.gen.iris.v1 import checkpoints_pb2 as pb

    made = session.client.call(
        "ControllerService/BeginCheckpoint",
        pb.BeginCheckpointRequest(),
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
