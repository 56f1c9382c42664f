"""`cluster controller withdraw-rollback`: what a person does about a rollback that is asked for and whose checkpoint is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from iris_core.cli.driving import STOPPED, drive
from iris_core.cli.procedure_options import procedure_options
from iris_core.contracts import IrisError, UsageFailed

if TYPE_CHECKING:
    from iris_core.cli.deployment import Deployment
    from iris_core.cli.driving import Asked
    from iris_core.cli.session import Session
    from iris_core.procedures.events import Procedure

NAME: Final = "withdraw-rollback"


@click.command(NAME, short_help="Take back a rollback whose checkpoint is lost.")
@click.option("--to", metavar="RELEASE", help="The release that goes on. Default: the one that was to be rolled back.")
@click.option("--keep-database", is_flag=True, help="Go back all the same, on the database as it is.")
@procedure_options
@click.pass_obj
def withdraw_rollback(
    session: Session,
    to: str | None,
    keep_database: bool,
    asked: Asked,
) -> int:
    """Take back a rollback that is asked for and cannot be done, because its checkpoint is lost.

    The release that was to be rolled back is started again, on the database as it is; with --keep-database the release before runs on it,
    if it knows it. Either keeps the database, and drops no job. A rollback that can be done is gone on with by cluster controller stop,
    then start.

    \b
    iris-core --config lab.yaml cluster controller withdraw-rollback --dry-run
    iris-core --config lab.yaml cluster controller withdraw-rollback --confirm lab
    """
    from iris_core.cli.deployment import deployment
    from iris_core.cli.restart_target import target_of

    if to and keep_database:
        raise UsageFailed("--keep-database goes back to the release that was asked for: leave --to out")
    found = deployment(session)
    store = found.store()

    def make(name: str, arguments: dict[str, Any], id_: str, account: str) -> Procedure:
        from iris_core.procedures.withdraw import withdraw

        def no_tree() -> Any:
            raise IrisError("nothing is shipped here")

        target = target_of(session, found, store, id_, account, no_tree)
        return withdraw(target, str(found.root), to=str(arguments["to"]), keep=bool(arguments["keep"]))

    doing = f"taking the rollback of {found.name} back"
    options = {"to": _release(found, to) if to else "", "keep": keep_database}
    outcome = drive(session, found.name, doing, NAME, options, asked, make, (NAME,))
    return 0 if asked.dry_run and outcome.status == STOPPED else outcome.exit_code


def _release(found: Deployment, word: str) -> str:
    """The release that begins so. Raises UsageFailed: none does, or several do."""
    matching = [release for release in found.known() if release.startswith(word)]
    if len(matching) != 1:
        how = "several releases begin" if matching else "no release begins"
        there = ", ".join(release[:12] for release in found.known()) or "none"
        raise UsageFailed(f"--to {word}: {how} so on {found.where}", hint=f"there are: {there}")
    return matching[0]
