"""How a procedure on the command line is answered and where its journal is, spelled and explained once for every command that runs one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from iris_core.cli.options import Seconds

F = TypeVar("F", bound=Callable[..., Any])

CHECKPOINT_S: Final = 300


def approve_option(function: F) -> F:
    """`--approve`, of what a dry run showed."""
    return click.option(
        "--approve", multiple=True, metavar="STEP=TOKEN", help="Approve exactly what --dry-run showed under this token."
    )(function)


def journal_dir_option(function: F) -> F:
    """`--journal-dir`, where one procedure's journal is written."""
    return click.option(
        "--journal-dir", metavar="DIR", help="Where the journal is written. Default: $IRIS_JOURNAL_DIR."
    )(function)


def checkpoint_timeout_option(function: F) -> F:
    """`--checkpoint-timeout`, in seconds."""
    return click.option(
        "--checkpoint-timeout",
        type=Seconds(1),
        default=CHECKPOINT_S,
        show_default=True,
        metavar="S",
        help="Wait at most so long for each checkpoint.",
    )(function)
