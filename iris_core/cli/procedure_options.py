"""How a procedure on the command line is answered and where its journal is, spelled and explained once for every command that runs one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from iris_core.cli.options import Seconds, confirm_option
from iris_core.contracts import UsageFailed

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


def procedure_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """All that a command takes which runs a procedure; it is handed over as `asked` (`driving.Asked`)."""

    @functools.wraps(function)
    def command(
        *words: Any,
        confirm: str | None,
        approve: tuple[str, ...],
        journal_dir: str | None,
        resume: str | None,
        dry_run: bool,
        **options: Any,
    ) -> Any:
        from iris_core.cli.driving import Asked

        return function(*words, asked=Asked(confirm, approve, journal_dir, resume, dry_run), **options)

    of_runs = (
        confirm_option,
        approve_option,
        journal_dir_option,
        click.option("--resume", metavar="ID", help="Go on with a run that was killed."),
        click.option(
            "--dry-run", is_flag=True, help="Look at everything, show what would be done, and change nothing."
        ),
    )
    for option in reversed(of_runs):
        option(command)
    return command


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


def tokens_of(approve: Sequence[str], what: str) -> dict[str, str]:
    """The tokens of `--approve WHAT=TOKEN`, by gate. Raises UsageFailed; also for two tokens of one gate, of which one is for another question."""
    found: dict[str, str] = {}
    for word in approve:
        gate, separator, token = word.rpartition("=")
        if not (separator and gate and token):
            raise UsageFailed(f"--approve {word}: write it as {what}=TOKEN")
        if gate == "all":
            raise UsageFailed(
                "nothing approves everything at once: each gate is answered by its own token",
                hint="run it without: it stays at each gate and prints the line that approves exactly this",
            )
        if found.setdefault(gate, token) != token:
            raise UsageFailed(
                f"--approve names {gate} twice, with {found[gate]} and {token}",
                hint="leave out the one that was not meant",
            )
    return found
