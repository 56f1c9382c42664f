"""Writes docs/cli.md from the command tree: `python -m iris_core.cli.docs`, and `--check` to compare only.

The page says what the program says. Must never know a command by name.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from iris_core.cli.root import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
PROGRAM: Final = "iris-core"
HEAD: Final = """\
# The command line

Written by `python -m iris_core.cli.docs`; do not edit. `iris` followed by a command is the same as `iris-core`.

Data goes to standard output, messages to standard error. `-o` chooses a format where there is something to choose; times in
machine formats are ISO 8601 in UTC. A command that follows or waits survives a controller that is away for a minute.

| exit code | means |
|---|---|
| 0 | done; nothing matched; submitted with `--no-wait` |
| 1 | failed, refused, not reached, not allowed; the job did not succeed |
| 2 | wrong usage, found here or by the server |
| 130 | interrupted by Ctrl-C (`job run` cancels its job then) |
| 141 | whoever read the output went away |
| other | `task exec`: the command's own exit code, 128+N when signal N ended it |

Which controller is meant: `--cluster`, `--config` or `--controller-url`; inside a task `$IRIS_CONTROLLER_URL`; else `$IRIS_CLUSTER`;
else a local cluster that runs. `$IRIS_TOKEN` is sent as bearer token.
"""


def page() -> str:
    """The text of docs/cli.md."""
    parts = [HEAD]
    root = click.Context(cli, info_name=PROGRAM)
    for context in _walk(root):
        parts.append(_section(context))
    return "\n".join(parts)


def _walk(context: click.Context) -> Iterator[click.Context]:
    yield context
    command = context.command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            # The methods of a service are listed, not explained one by one: they follow from the protos.
            if isinstance(command, _services()):
                continue
            yield from _walk(click.Context(found, info_name=name, parent=context))


def _services() -> type[click.Group]:
    from iris_core.cli.rpc import ServiceGroup

    return ServiceGroup


def _section(context: click.Context) -> str:
    command = context.command
    level = "##" if context.parent is None or context.parent.parent is None else "###"
    formatter = click.HelpFormatter(width=110)
    command.format_usage(context, formatter)
    usage = " ".join(formatter.getvalue().removeprefix("Usage: ").split())
    lines = [f"{level} {context.command_path}", "", "```", usage, "```", ""]
    lines += [_prose(command.help or ""), ""]
    options = [param for param in command.params if isinstance(param, click.Option) and not param.hidden]
    if options:
        lines += ["| option | |", "|---|---|", *map(_option, options), ""]
    if isinstance(command, click.Group):
        lines += ["| command | |", "|---|---|", *_commands(context, command), ""]
    if command.epilog:
        lines += [*_epilog(command.epilog), ""]
    return "\n".join(lines)


def _prose(text: str) -> str:
    return "\n\n".join(_as_written(part) if "\b" in part else " ".join(part.split()) for part in text.split("\n\n"))


def _as_written(part: str) -> str:
    lines = (line.strip() for line in part.replace("\b", "").splitlines())
    return "\n".join(f"    {line}" for line in lines if line)


def _option(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    if option.secondary_opts:
        names += " / " + ", ".join(f"`{name}`" for name in option.secondary_opts)
    if isinstance(option.type, click.Choice):
        names += " " + "\\|".join(f"`{choice}`" for choice in option.type.choices)
    elif option.metavar:
        names += f" `{option.metavar}`"
    return f"| {names} | {_cell(option.help or '')}{_default(option)} |"


def _default(option: Any) -> str:
    if option.required:
        return " Required."
    if not option.show_default or option.default is None:
        return ""
    shown = option.default
    if isinstance(shown, bool):
        shown = (option.opts if shown else option.secondary_opts)[0]
    return f" Default: `{shown}`."


def _commands(context: click.Context, group: click.Group) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        words = f"{context.command_path} {name}"
        anchor = words.replace(" ", "-")
        shown = f"`{name}`" if isinstance(group, _services()) else f"[`{name}`](#{anchor})"
        yield f"| {shown} | {_cell(command.get_short_help_str(200))} |"


def _cell(text: str) -> str:
    return re.sub(r"([|])", r"\\\1", " ".join(text.split()))


def _epilog(text: str) -> Iterator[str]:
    lines = [line for line in text.replace("\b\n", "").splitlines() if line.strip()]
    yield lines[0]
    yield ""
    for line in lines[1:]:
        yield "    " + line.strip()


def main(argv: list[str]) -> int:
    """Writes the page; with `--check` returns 1 when the one on disk differs."""
    text = page()
    if "--check" in argv:
        same = PAGE.exists() and PAGE.read_text() == text
        if not same:
            sys.stderr.write("docs/cli.md is out of date (run: python -m iris_core.cli.docs)\n")
        return 0 if same else 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
