"""`cluster controller break-lock`: frees the lock that a dead restart or rollout left, once a person has looked at whose it is."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Any, Final

import click

from iris_core.cli.driving import STOPPED, Asked, drive
from iris_core.cli.options import confirm_option
from iris_core.cli.procedure_options import approve_option, journal_dir_option
from iris_core.contracts import IrisError

if TYPE_CHECKING:
    from iris_core.cli.session import Session
    from iris_core.procedures.events import Procedure

NAME: Final = "break-lock"


@click.command("break-lock", short_help="Free the lock that a dead restart or rollout left.")
@confirm_option
@approve_option
@journal_dir_option
@click.option("--dry-run", is_flag=True, help="Show who holds it and since when, and change nothing.")
@click.pass_obj
def break_lock(
    session: Session, confirm: str | None, approve: tuple[str, ...], journal_dir: str | None, dry_run: bool
) -> int:
    """Free the lock of a cluster whose restart or rollout is dead; it is shown who holds it, and since when.

    A procedure that was killed is better gone on with (`restart --resume ID`): it puts right what it began. On the machine where its journal
    is, the question says whether a process drives it; elsewhere nothing can tell a dead one from a slow one, so look first at the machine that
    the lock names.

    \b
    iris-core --config lab.yaml cluster controller break-lock --dry-run
    """
    from iris_core.cli.deployment import deployment

    found = deployment(session)
    store = found.store()

    def driven(procedure: str) -> bool | None:
        from iris_core.procedures import journal

        try:
            return journal.is_driven(journal.path_of(journal.journal_dir(journal_dir), procedure))
        except IrisError:
            return None

    def make(name: str, arguments: dict[str, Any], id_: str, account: str) -> Procedure:
        from iris_core.procedures.break_lock import break_lock as procedure

        command = shlex.join([session.program, *session.argv])
        return procedure(found.name, store, lambda: time.time_ns() // 1_000_000, command, session.command(), driven)

    asked = Asked(confirm, approve, journal_dir, None, dry_run)
    outcome = drive(session, found.name, f"breaking the lock of {found.name}", NAME, {}, asked, make, (NAME,))
    return 0 if dry_run and outcome.status == STOPPED else outcome.exit_code
