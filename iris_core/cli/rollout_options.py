"""Options that the commands of `rollout` share, and what they come to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from iris_core.contracts import UsageFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_core.cli.rollout_fleet import Shipping

    F = TypeVar("F", bound=Callable[..., Any])

UPSTREAM: Final = "origin/main"


def clusters_option(function: F) -> F:
    return click.option(
        "--clusters",
        metavar="A,B",
        help="These clusters, in this order. Default: the one that the root options name, else all of them: marin-dev, marin, "
        "then the smallest first.",
    )(function)


def shipping_options(function: F) -> F:
    for option in (
        click.option(
            "--checks-command",
            metavar="CMD",
            default="",
            help="Test the tree with this first, in an export of exactly what is shipped; it must end with exit code 0.",
        ),
        click.option("--no-fetch", is_flag=True, help="Do not fetch the upstream before comparing with it."),
        click.option(
            "--upstream",
            metavar="REMOTE/BRANCH",
            default=UPSTREAM,
            show_default=True,
            help="Compare the tree with this branch.",
        ),
    ):
        function = option(function)
    return function


def answer_options(function: F) -> F:
    for option in (
        click.option(
            "--approve",
            multiple=True,
            metavar="GATE=TOKEN",
            help="Approve exactly the question that was shown under this token.",
        ),
        click.option(
            "--confirm",
            multiple=True,
            metavar="NAME",
            help="Answer one gate that asks for this to be typed: a cluster's name, or the first 12 digits of the tree.",
        ),
    ):
        function = option(function)
    return function


def journal_option(function: F) -> F:
    return click.option(
        "--journal-dir",
        metavar="DIR",
        help="Where the journals are. Default: $IRIS_JOURNAL_DIR, else the state folder of this account.",
    )(function)


def folder_of(journal_dir: str | None) -> Path:
    from iris_core.procedures.journal import journal_dir as place

    return place(journal_dir)


def shipping_of(upstream: str, no_fetch: bool, checks_command: str) -> Shipping:
    from iris_core.cli.rollout_fleet import Shipping

    remote, slash, branch = upstream.partition("/")
    if not (slash and remote and branch) or upstream.startswith("-"):
        raise UsageFailed(f"--upstream {upstream}: write it as REMOTE/BRANCH", hint=f"as {UPSTREAM}")
    return Shipping(upstream, not no_fetch, checks_command)
