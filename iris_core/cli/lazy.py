"""A group that knows its commands by name and one line of help, and imports one only when it runs.

`--help` of the whole program lists forty commands; importing them to do so would cost more than many of them take.
The short help stands in the table and a test compares it with the command's own. Must never import a command to list
it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_NAMED: Final = 3
"""So many groups that have a command of that name are offered."""


class Lazy(NamedTuple):
    """Where a command is (`module:attribute`), and its one line of help."""

    place: str
    help: str


class LazyGroup(click.Group):
    """A group over a table of commands. An unknown command is an error that suggests the closest."""

    def __init__(self, *args: Any, table: Mapping[str, Lazy], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = self.table.get(cmd_name)
        if found is None:
            return None
        module, _, attribute = found.place.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.table and not args[0].startswith("-"):
            from iris_core.model.errors import did_you_mean, shown

            near = self._in_a_group(ctx, args[0]) or did_you_mean(args[0], self.table)
            raise click.UsageError(f"No such command {shown(args[0])}{'; ' + near if near else ''}", ctx)
        return super().resolve_command(ctx, args)

    def _in_a_group(self, ctx: click.Context, name: str) -> str:
        """`did you mean 'job logs'?` for what is a command of groups below this one, "" if it is of none.

        Imports them all, which only an error may cost.
        """
        commands = ((group, self.get_command(ctx, group)) for group in self.table)
        found = [
            f"'{group} {name}'"
            for group, command in commands
            if isinstance(command, LazyGroup) and name in command.table
        ]
        return f"did you mean {' or '.join(found[:_NAMED])}?" if found else ""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows: Sequence[tuple[str, str]] = [(name, found.help) for name, found in self.table.items()]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)
