"""`cluster controller restart`: ships the tree around the working directory to a deployed controller, step by step, or goes back.

What is asked, approved, done and found is in a journal; a run that was killed goes on with `--resume`. The approval names the tree by
its hash, and the cluster's name is typed, or given with `--confirm`; without a terminal nothing is taken for a yes.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from iris_core.cli.driving import STOPPED, drive
from iris_core.cli.image_options import build_profile_option, image_platform_option, prebuilt_tag_option
from iris_core.cli.procedure_options import checkpoint_timeout_option, procedure_options
from iris_core.cli.restart_target import target_of
from iris_core.contracts import IrisError, UsageFailed

if TYPE_CHECKING:
    from iris_core.cli.deployment import Deployment
    from iris_core.cli.driving import Asked
    from iris_core.cli.session import Session
    from iris_core.procedures.events import Procedure

__all__ = ["prune_releases", "restart", "target_of"]

NAME: Final = "restart"
BACK: Final = "rollback"


@click.command(short_help="Restart the deployed controller into the tree that is here.")
@click.option(
    "--skip-checkpoint",
    is_flag=True,
    help="Take no checkpoint: to go back to, there is the newest that was taken before.",
)
@click.option(
    "--rollback",
    is_flag=True,
    help="Go back to what the last deployment replaced; drops what came after its checkpoint.",
)
@checkpoint_timeout_option
@image_platform_option
@build_profile_option
@prebuilt_tag_option
@procedure_options
@click.pass_obj
def restart(
    session: Session,
    skip_checkpoint: bool,
    rollback: bool,
    checkpoint_timeout: float,
    image_platform: str | None,
    build_profile: str,
    prebuilt_tag: str | None,
    asked: Asked,
) -> int:
    """Restart the deployed controller into the tree around the working directory: some seconds without a controller.

    Workers and tasks go on. The release is built and a checkpoint taken before anything is touched; a release that does not come up is
    replaced by the one before on its last checkpoint, and nothing is lost. Exit code 1 whenever the new release does not run in the end.

    With --rollback, once, the release before the last deployment runs again on the checkpoint that was taken for it: jobs that were
    submitted or changed after that are lost or go back, and the question says how many.

    \b
    iris-core --config lab.yaml cluster controller restart --dry-run
    iris-core --config lab.yaml cluster controller restart --confirm lab
    iris-core --config lab.yaml cluster controller restart --rollback
    """
    if rollback and skip_checkpoint:
        raise UsageFailed("--rollback takes no checkpoint: leave --skip-checkpoint out")
    from iris_core.cli.deployment import deployment
    from iris_core.procedures.images import check_options

    found = deployment(session)
    check_options(found.config, image_platform or "", build_profile, prebuilt_tag or "", rollback)
    store = found.store()

    def make(name: str, arguments: dict[str, Any], id_: str, account: str) -> Procedure:
        from iris_core.procedures.restart import restart as forward
        from iris_core.procedures.rollback import rollback as backward
        from iris_core.procedures.source_tree import freeze

        target = target_of(session, found, store, id_, account, lambda: freeze(Path.cwd()))
        if name == BACK:
            return backward(target)
        return forward(
            target,
            skip_checkpoint=bool(arguments["skip_checkpoint"]),
            checkpoint_timeout_s=float(arguments["checkpoint_timeout_s"]),
        )

    doing = f"{'rolling back' if rollback else 'restarting'} the controller of {found.name}"
    options = {} if rollback else {"skip_checkpoint": skip_checkpoint, "checkpoint_timeout_s": checkpoint_timeout}
    outcome = drive(session, found.name, doing, BACK if rollback else NAME, options, asked, make, (NAME, BACK))
    if outcome.exit_code == 0:
        prune_releases(session, found)
    return 0 if asked.dry_run and outcome.status == STOPPED else outcome.exit_code


def prune_releases(session: Session, found: Deployment) -> None:
    """Removes releases that nothing runs from and nobody goes back to; what was deployed last and before that stays."""
    from iris_core.cli.deployment import short
    from iris_core.procedures import record

    # The restart is done; room that is not made now is made by the next one.
    with contextlib.suppress(IrisError, OSError):
        standing = record.read(found.store()).record
        kept = (standing.image, standing.previous_image) if standing is not None else ()
        for release in found.prune(kept):
            session.diagnostics.note(f"removed release {short(release)}, from which nothing runs")
