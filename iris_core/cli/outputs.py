"""`attempt outputs`: where an attempt's archive is, and the archive itself (cli-auth-logs §4.6).

The archive is read from the object store with the operator's own credentials: the controller hands out no files. A place that a
worker told is used only where it ends as every archive of that attempt does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from iris_core.cli import output, saving
from iris_core.contracts import IrisError, UsageFailed
from iris_core.model.text import one_line

if TYPE_CHECKING:
    from iris_core.cli.session import Session
    from iris_core.contracts import ObjectStore
    from iris_core.wire.gen.iris.v1 import common_pb2


@click.command(short_help="Fetch the archive of what an attempt left in $IRIS_OUTPUT_DIR.")
@click.argument("attempt_id", metavar="ATTEMPT")
@click.option(
    "--save", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write the archive there."
)
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@click.pass_obj
def outputs(session: Session, attempt_id: str, save: Path | None, force: bool) -> int:
    """Say what became of what an attempt left in $IRIS_OUTPUT_DIR, and with --save fetch it: a tar.zst.

    Exit 0 when there is an archive, 1 when there is none.
    """
    from iris_core.cli.log_subject import AttemptSubject
    from iris_core.live.wording import outputs_text
    from iris_core.model.ids import AttemptId
    from iris_core.wire.gen.iris.v1 import common_pb2

    _, attempt = AttemptSubject(session.client, AttemptId.parse(attempt_id)).find()
    kept = attempt.outputs.status == common_pb2.TASK_OUTPUTS_STATUS_UPLOADED
    if save is None or not kept:
        told = (
            outputs_text(attempt.outputs)
            if attempt.HasField("outputs")
            else "nothing was kept: it did not end by itself"
        )
        output.write(f"{one_line(told)}\n")
        return 0 if kept else 1
    if save.exists() and not force:
        raise UsageFailed(f"{save} is there already", hint="give --force to replace it")
    store, name = _archive(attempt.outputs, attempt.attempt_uid)
    saving.save(session, str(save), store.chunks(name), "the outputs")
    return 0


def _archive(found: common_pb2.TaskOutputs, uid: str) -> tuple[ObjectStore, str]:
    """Raises IrisError: the place is none of an archive of that attempt."""
    from providers.objects import open_store

    root, day, owner, name = (["", "", "", *found.url.rsplit("/", 3)])[-4:]
    if not root or owner != uid or name != "outputs.tar.zst":
        raise IrisError(f"{found.url!r} is no place of this attempt's outputs")
    return open_store(root), f"{day}/{owner}/{name}"
