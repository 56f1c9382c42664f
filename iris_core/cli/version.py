"""`version`."""

from __future__ import annotations

import click

from iris_core.cli import output


def release() -> str:
    """The version of the installed package; `unknown` when it runs from a folder that was never installed."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("iris-ops")
    except PackageNotFoundError:
        return "unknown"


@click.command(short_help="Print the version.")
def version() -> None:
    """Print the version of this program."""
    output.line(release())
