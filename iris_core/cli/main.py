"""The program `iris-core`, and the command tree that `iris` shares.

Only names and one-line helps are here; a command's module is imported when it runs. `main` returns the exit code of
every outcome, an interrupt during the first imports included. Must never import protobuf, grpc or YAML.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import click

    from iris_core.cli.session import Console, Opener, Session
    from iris_core.live.clock import Clock

__all__ = ["main", "root", "run"]


def root() -> click.Group:
    """The command tree."""
    from iris_core.cli.root import cli

    return cli


def run(
    argv: Sequence[str],
    *,
    program: str = "iris-core",
    console: Console | None = None,
    alone: Callable[[Session], int] | None = None,
    opener: Opener | None = None,
    tree: click.Group | None = None,
    clock: Clock | None = None,
) -> int:
    """Runs one command line and returns its exit code; nothing is raised.

    `console` opens the console on a cluster (`demo` on a terminal does). `alone` runs when no command is given;
    without it that is a usage error. `opener` replaces the connection and `clock` that of a rollout's watch, for tests. `tree` is another program's commands.
    """
    try:
        from iris_core.cli import output
        from iris_core.cli.diagnostics import guarded
        from iris_core.cli.root import cli
        from iris_core.cli.session import Session

        session = Session(
            program=program, argv=tuple(argv), console=console, alone=alone, opener=opener, clock=clock
        )  # fmt: skip

        commands = tree or cli

        def body() -> object:
            _complete(commands, program)
            try:
                with commands.make_context(program, list(argv), obj=session) as ctx:
                    return commands.invoke(ctx)
            except Exception as error:
                session.hint_unreached(error)
                raise
            finally:
                session.close()

        return guarded(session.diagnostics, body, output.flush)
    except KeyboardInterrupt:
        return 130


def _complete(cli: Any, program: str) -> None:
    """Answers the shell's question for completions, if that is what this run is."""
    variable = f"_{program.replace('-', '_')}_COMPLETE".upper()
    instruction = os.environ.get(variable)
    if instruction:
        import click
        from click.shell_completion import shell_complete

        raise click.exceptions.Exit(shell_complete(cli, {}, program, variable, instruction))


def main() -> NoReturn:
    """The entry point."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
