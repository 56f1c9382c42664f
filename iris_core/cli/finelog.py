"""The program `finelog`: the log store itself, and queries on one from wherever its cluster is reached.

Must never import what serves the store unless it is asked to serve.
"""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from iris_core.cli.lazy import Lazy, LazyGroup
from iris_core.cli.main import run

COMMANDS = {
    "serve": Lazy("iris_controller.finelog.main:serve", "Takes in and hands out log lines until SIGTERM."),
    "query": Lazy("iris_core.cli.stats:finelog_query", "Run one SELECT over logs, stats and events."),
}


@click.group(cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
def finelog() -> None:
    """The store of logs, stats and events."""


def main() -> NoReturn:
    """The entry point."""
    sys.exit(run(sys.argv[1:], program="finelog", tree=finelog))
