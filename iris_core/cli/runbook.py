"""`runbook db-rollback`: what a person does about a controller that hangs, step by step behind a gate, without asking the controller."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import click

from iris_core.cli import output
from iris_core.cli.lazy import Lazy, LazyGroup
from iris_core.cli.procedure_options import procedure_options
from iris_core.contracts import IrisError, UsageFailed

if TYPE_CHECKING:
    from iris_core.cli.deployment import Deployment
    from iris_core.cli.driving import Asked
    from iris_core.cli.session import Session
    from iris_core.procedures.events import Procedure

COMMANDS = {
    "db-rollback": Lazy(
        "iris_core.cli.runbook:db_rollback", "Put a checkpoint in the place of the database of a controller that hangs."
    ),
}
NAME: Final = "db-rollback"
BACK: Final = "db-rollback-undo"
_EPOCH: Final = re.compile(r"(?:.*/)?([0-9]{1,15})/?")


@click.group("runbook", cls=LazyGroup, table=COMMANDS)
def runbook() -> None:
    """Recover by hand what does not recover by itself, one step after the other."""


@click.command("db-rollback", short_help=COMMANDS["db-rollback"].help)
@click.argument("checkpoint", required=False, metavar="[CHECKPOINT]")
@click.option("--undo", metavar="ID", help="Take the run of that id back: the database of before again.")
@procedure_options
@click.pass_obj
def db_rollback(
    session: Session,
    checkpoint: str | None,
    undo: str | None,
    asked: Asked,
) -> int:
    """Put a checkpoint in the place of the database of a deployed controller that hangs, or that its own database keeps from starting.

    Without CHECKPOINT, list them: one that is much larger than its neighbours was wedged already. CHECKPOINT is its time, as its folder is
    called, or its path or URL. Nothing is asked of the controller: it is ended, killed if it hangs, its database is moved aside and kept, and
    the same release is started on the checkpoint. Jobs that came after it are lost. If it does not become healthy, the database of before
    is put back by itself.

    \b
    iris-core --config lab.yaml runbook db-rollback
    iris-core --config lab.yaml runbook db-rollback 1700000000000 --dry-run
    iris-core --config lab.yaml runbook db-rollback --undo ID
    """
    from iris_core.cli.deployment import deployment
    from iris_core.cli.driving import STOPPED, drive
    from iris_core.cli.restart_target import target_of

    if undo and checkpoint:
        raise UsageFailed("--undo takes no checkpoint: it puts the database of before back")
    found = deployment(session)
    store = found.store()
    if not (checkpoint or undo or asked.resume):
        return _list(session, found)
    epoch = _EPOCH.fullmatch(checkpoint) if checkpoint else None
    if checkpoint and epoch is None:
        raise UsageFailed(f"{checkpoint} is no checkpoint", hint="name one of: runbook db-rollback")
    path = f"{found.config.remote_state_dir}/controller-state/{epoch[1]}" if epoch is not None else ""

    def make(name: str, arguments: dict[str, Any], id_: str, account: str) -> Procedure:
        from iris_core.procedures import db_rollback as procedures

        def no_tree() -> Any:
            raise IrisError("a runbook ships nothing")

        target = target_of(session, found, store, id_, account, no_tree)
        if name == BACK:
            return procedures.undo(target, str(found.root), str(arguments["restored"]))
        return procedures.db_rollback(target, str(found.root), str(arguments["checkpoint"]), id_)

    doing = (
        f"putting {'the database of before' if undo else 'a checkpoint'} in the place of the database of {found.name}"
    )
    options = {"restored": undo} if undo else {"checkpoint": path}
    outcome = drive(session, found.name, doing, BACK if undo else NAME, options, asked, make, (NAME, BACK))
    return 0 if asked.dry_run and outcome.status == STOPPED else outcome.exit_code


def _list(session: Session, found: Deployment) -> int:
    from iris_core.cli import reads
    from iris_core.cli.beside import load
    from iris_core.cli.listings import CHECKPOINT_LIST

    place = found.place()
    rows = load("iris_controller.checkpoint.listing").listed(place)
    if not rows:
        raise IrisError(f"there are no checkpoints in {place}", hint="the database can only be looked at by hand")
    output.write(CHECKPOINT_LIST.text(rows, "table", reads.now_ms(), headers=True))
    session.diagnostics.note("name one: runbook db-rollback CHECKPOINT --dry-run shows what would be lost")
    return 0
