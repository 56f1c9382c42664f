"""Options and arguments that several commands share, so that they are spelled and explained once."""

from __future__ import annotations

import csv
import io
import sys
from typing import TYPE_CHECKING, Any, TypeVar

import click

from iris_core.cli.output import FORMATS
from iris_core.contracts import UsageFailed
from iris_core.model.errors import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

F = TypeVar("F", bound="Callable[..., Any]")

YEAR_S = 31_536_000
MOST = 2**31 - 1
"""Of what is counted; more does not fit into a request."""
LAST_MS = 2**53
"""Of an epoch time."""


class Whole(click.IntRange):
    """A whole number within bounds. What is none is not said to be "not a valid integer range"."""

    name = "integer"


class Seconds(click.FloatRange):
    """A time in seconds, at most a year. "nan" passes a plain range, being neither less nor more than anything."""

    name = "number of seconds"

    def __init__(self, least: float = 0, most: float = YEAR_S) -> None:
        super().__init__(least, most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found: float = super().convert(value, param, ctx)
        if found != found:
            self.fail(f"{value} is no number.", param, ctx)
        return found


def output_option(*formats: str) -> Callable[[F], F]:
    """`-o/--output`, of those formats or all; the JSON ones make errors JSON too."""

    def note(ctx: click.Context, _: click.Parameter, value: str) -> str:
        from iris_core.cli.session import session_of

        session_of(ctx).diagnostics.json_errors = value in ("json", "jsonl")
        return value

    return click.option(
        "-o",
        "--output",
        "how",
        type=click.Choice(formats or FORMATS),
        default=(formats or FORMATS)[0],
        show_default=True,
        callback=note,
        help="Format on standard output.",
    )


def headers_option(function: F) -> F:
    """`--no-headers`."""
    return click.option("--no-headers", is_flag=True, help="Leave the headings out.")(function)


def confirm_option(function: F) -> F:
    """`--confirm`, the cluster's name."""
    return click.option("--confirm", metavar="CLUSTER", help="The name of the cluster, instead of being asked for it.")(
        function
    )


def watch_option(function: F) -> F:
    """`-w/--watch`."""
    return click.option("-w", "--watch", is_flag=True, help="Go on and print what changes.")(function)


def stdin_option(function: F) -> F:
    """`--stdin`."""
    return click.option(
        "--stdin",
        "from_stdin",
        is_flag=True,
        help="Read ids from standard input, too (CSV; the first field counts). So does `-`.",
    )(function)


def gather_ids(ids: Sequence[str], from_stdin: bool, note: Callable[[str], None]) -> list[str]:
    """The ids given as arguments, then those of standard input: the first CSV field of each line that starts with `/`. `note` is told
    of the other lines, but for a first one, which is a heading.

    Raises UsageFailed: there are none at all, or standard input is not text.
    """
    rows: list[list[str]] = []
    found = [text for text in ids if text != "-"]
    if from_stdin or "-" in ids:
        if sys.stdin is None:
            raise UsageFailed("standard input is closed")
        try:
            text = sys.stdin.buffer.read().decode()
        except UnicodeDecodeError:
            raise UsageFailed("standard input is not UTF-8 text") from None
        except (OSError, AttributeError, ValueError) as error:
            raise UsageFailed(f"standard input cannot be read: {error}") from None
        try:
            rows = [row for row in csv.reader(io.StringIO(text.replace("\0", ""))) if any(map(str.strip, row))]
        except csv.Error as error:
            raise UsageFailed(f"standard input is not CSV: {error}") from None
        firsts = [row[0].strip() for row in rows]
        found.extend(first for first in firsts if first.startswith("/"))
        others = [first for first in firsts[1:] if not first.startswith("/")]
        if others:
            from iris_core.model.text import counted

            note(
                f"{counted(len(others), 'line')} of standard input left out, the first field of which is no id: the first is {shown(others[0])}"
            )
    if not found and len(rows) > 1:
        raise UsageFailed("no line of standard input begins with an id", hint="select the id as the first column")
    if not found:
        raise UsageFailed("no ids were given", hint="name them, or pipe them in with --stdin")
    return found


def split_command(args: list[str]) -> tuple[list[str], list[str] | None]:
    """The words before the first `--`, and those after it; None when there is no `--`."""
    if "--" not in args:
        return args, None
    place = args.index("--")
    return args[:place], args[place + 1 :]


class CommandAfterDashes(click.Command):
    """A command whose line ends in `-- WORDS…`, which nothing here looks at (DESIGN §5.13).

    The words arrive as the parameter `command`. `positional` arguments may stand before the dashes; any other word
    there is an error that shows where the dashes belong, because an option after such a word would silently become
    part of the command.
    """

    positional = 0
    optional = False
    """Whether the command may be left out."""
    aliases: dict[str, str] = {}  # noqa: RUF012 (set by subclasses)
    """Options that people type and that are called otherwise here."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        before, command = split_command(list(args))
        wants_help = any(word in ctx.help_option_names for word in before[: self._first_plain(ctx, before)])
        if not wants_help:
            self._check(ctx, before, command)
        ctx.meta["iris.command"] = command or []
        return super().parse_args(ctx, before)

    def _values(self) -> dict[str, int]:
        """How many words each option takes."""
        return {
            name: param.nargs if not getattr(param, "is_flag", False) else 0
            for param in self.params
            for name in [*param.opts, *param.secondary_opts]
            if name.startswith("-")
        }

    def _first_plain(self, ctx: click.Context, before: list[str]) -> int:
        """Index of the first word too many before the dashes."""
        skip = plain = 0
        takes = self._values()
        for place, word in enumerate(before):
            if skip:
                skip -= 1
            elif word.startswith("-") and word != "-":
                skip = 0 if "=" in word else takes.get(word, 0)
            else:
                plain += 1
                if plain > self.positional:
                    return place
        return len(before)

    def _check(self, ctx: click.Context, before: list[str], command: list[str] | None) -> None:
        from iris_core.model.errors import did_you_mean, shown

        place = self._first_plain(ctx, before)
        known = {*self._values(), *ctx.help_option_names}
        for word in before[:place]:
            name = word.partition("=")[0]
            if name in self.aliases or (name.startswith("--") and name not in known):
                near = f"did you mean {self.aliases[name]!r}?" if name in self.aliases else did_you_mean(name, known)
                raise click.UsageError(f"No such option {shown(name)}{'; ' + near if near else ''}", ctx)
        if place < len(before):
            line = " ".join([*before[:place], "--", *before[place:]])
            raise click.UsageError(
                f"{shown(before[place])} is no option; the command goes after `--`: {ctx.command_path} {shown(line, 160)[1:-1]}",
                ctx,
            )
        if self.optional and command is None:
            return
        if command is None or not command:
            raise click.UsageError(
                f"there is no command; write it after `--`: {ctx.command_path} … -- python train.py", ctx
            )
        if not command[0]:
            raise click.UsageError("the command's first word is empty", ctx)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        pieces = [piece for piece in self.collect_usage_pieces(ctx)]
        words = "[-- COMMAND...]" if self.optional else "-- COMMAND..."
        formatter.write_usage(ctx.command_path, " ".join([*pieces, words]))


def command_words(ctx: click.Context) -> list[str]:
    """The words after the dashes."""
    words: list[str] = ctx.meta["iris.command"]
    return words
