"""`checkpoint list`: what has been saved of a cluster's state, and what of it can be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from iris_core.cli import output
from iris_core.cli.lazy import Lazy, LazyGroup
from iris_core.cli.options import headers_option, output_option

if TYPE_CHECKING:
    from iris_core.cli.session import Session
    from iris_core.live.checkpoint_columns import CheckpointRow

COMMANDS = {"list": Lazy("iris_core.cli.checkpoints:list_checkpoints", "List the checkpoints of a cluster's state.")}


@click.group("checkpoint", cls=LazyGroup, table=COMMANDS)
def checkpoint() -> None:
    """Look at what has been saved of a cluster's state.

    `cluster controller checkpoint` saves it now; with --checkpoint every reading command, and the console, reads one.
    """


@click.command("list", short_help=COMMANDS["list"].help)
@click.argument("place", required=False, metavar="[PATH_OR_URL]")
@output_option()
@headers_option
@click.pass_obj
def list_checkpoints(session: Session, place: str | None, how: output.Format, no_headers: bool) -> None:
    """List the checkpoints of a state dir, newest first, and why those that are not valid are never chosen.

    \b
    checkpoint list gs://bucket/iris/state
    checkpoint list --no-headers -o name ~/.local/state/iris/local

    Without a place, that of the cluster: as its file says, else, on this machine, as its controller does. The store is
    read directly; no controller is needed where the file names the place.
    """
    from iris_core.cli import reads
    from iris_core.cli.beside import load
    from iris_core.cli.listings import CHECKPOINT_LIST

    where = place or _place(session)
    rows: list[CheckpointRow] = load("iris_controller.checkpoint.listing").listed(where)
    if rows or how not in ("table", "wide"):
        output.write(CHECKPOINT_LIST.text(rows, how, reads.now_ms(), headers=not no_headers))
    else:
        session.diagnostics.note(f"there are no checkpoints in {where}")


def _place(session: Session) -> str:
    """Raises UsageFailed: it is not known here."""
    from iris_core.cli.tunnels import place_on_host
    from iris_core.connect.checkpoints import state_place
    from iris_core.contracts import UsageFailed
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    if session.checkpoint:
        return session.checkpoint
    found = state_place(session.named, session.config, on_host=place_on_host)
    if found:
        return found
    if session.target.environment != "local":
        raise UsageFailed(
            "where this cluster keeps its checkpoints is not known here",
            hint="name the place: checkpoint list gs://bucket/path",
        )
    status = session.client.call(
        "ControllerService/GetClusterStatus", pb.GetClusterStatusRequest(), pb.GetClusterStatusResponse
    )
    return status.state_dir
