"""`completion SHELL`: the script that makes a shell complete this program's words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from iris_core.cli import output

if TYPE_CHECKING:
    from iris_core.cli.session import Session


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_obj
def completion(session: Session, shell: str) -> None:
    """Print the completion script of a shell, as in: eval "$(iris-core completion bash)"."""
    from click.shell_completion import get_completion_class

    from iris_core.cli.root import cli

    kind = get_completion_class(shell)
    assert kind is not None
    variable = f"_{session.program.replace('-', '_')}_COMPLETE".upper()
    output.line(kind(cli, {}, session.program, variable).source())
