"""The root of the command tree: the options that choose a controller, and the table of commands."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

import click

from iris_core.cli.lazy import Lazy, LazyGroup
from iris_core.cli.session import session_of

if TYPE_CHECKING:
    from iris_core.connect import Transport

COMMANDS = {
    "cluster": Lazy("iris_core.cli.cluster:cluster", "List, start and look at clusters."),
    "job": Lazy("iris_core.cli.job:job", "Run, list, follow and end jobs."),
    "task": Lazy("iris_core.cli.task:task", "Look at tasks, run commands beside them, and force them to an end."),
    "attempt": Lazy(
        "iris_core.cli.attempt:attempt", "Look at single attempts of a task, named TASK:N, and force them to an end."
    ),
    "rollout": Lazy(
        "iris_core.cli.rollout:rollout",
        "Ship one tree to several clusters, one after the other, each approved on its own.",
    ),
    "runbook": Lazy(
        "iris_core.cli.runbook:runbook", "Recover by hand what does not recover by itself, one step after the other."
    ),
    "user": Lazy("iris_core.cli.user:user", "Look at users, and set what they may spend."),
    "checkpoint": Lazy("iris_core.cli.checkpoints:checkpoint", "Look at what has been saved of a cluster's state."),
    "endpoints": Lazy("iris_core.cli.endpoints:endpoints", "Look at what tasks serve, and make links to it."),
    "process": Lazy("iris_core.cli.process:process", "Look at the controller and the workers themselves."),
    "profile": Lazy("iris_core.cli.profiles:profile", "Find and fetch the profiles of the last week."),
    "query": Lazy("iris_core.cli.query:query", "Run one read-only SQL statement on the controller's database."),
    "stats": Lazy(
        "iris_core.cli.stats:stats", "Ask the log store's tables: measurements, events, profiles, and the log itself."
    ),
    "build": Lazy(
        "iris_core.cli.build:build", "Build the container images of a cluster, and look at those in a registry."
    ),
    "rpc": Lazy("iris_core.cli.rpc:rpc", "Call any RPC by its name."),
    "demo": Lazy("iris_core.cli.demo:demo", "Start a cluster with a few jobs on this machine, to look around."),
    "debug": Lazy(
        "iris_core.cli.debug:debug", "Look at this program itself: versions, files, terminal, the last crash."
    ),
    "completion": Lazy("iris_core.cli.completion:completion", "Print the completion script of a shell."),
    "version": Lazy("iris_core.cli.version:version", "Print the version."),
}

EPILOG = """\b
Examples:
  iris-core cluster start --local            # in one shell
  iris-core --cluster=local job run -- python train.py
  iris-core --cluster=local job list --state running
  iris-core --cluster=local job logs /me/train -f
"""


def help_width() -> int:
    """Cells of a help text's line: the terminal's less a margin, at most 100."""
    named = os.environ.get("COLUMNS", "")
    try:
        cells = int(named) if named else os.get_terminal_size(1).columns
    except (OSError, ValueError):
        cells = 80
    return max(min(cells, 100) - 2, 50)


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """As `version` does, for whoever tries the option first."""
    if wanted and not ctx.resilient_parsing:
        from iris_core.cli import output
        from iris_core.cli.version import release

        output.line(release())
        ctx.exit()


def _keys(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Answered by `iris` before a command line is read."""
    if wanted and not ctx.resilient_parsing:
        raise click.UsageError("--keys lists the keys of the console and stands alone: run `iris --keys`")


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    epilog=EPILOG,
    invoke_without_command=True,
    # The width is found here, because click would load all of shutil for it.
    context_settings={"help_option_names": ["-h", "--help"], "terminal_width": help_width()},
)
@click.option(
    "--cluster",
    metavar="NAME",
    help="A named cluster, or `local`. Default: $IRIS_CLUSTER, else a running local cluster.",
)
@click.option("--config", metavar="FILE", help="A cluster file.")
@click.option("--controller-url", metavar="URL", help="A controller's address, as http://HOST:10000.")
@click.option(
    "--checkpoint",
    metavar="PATH",
    help="Read a checkpoint instead of a controller: a path or URL of its folder, of a file in it, or of a remote state dir.",
)
@click.option(
    "--transport",
    type=click.Choice(["auto", "grpc", "http"]),
    default="auto",
    show_default=True,
    help="How to speak to it; http passes proxies that know no gRPC.",
)
@click.option("--read-only", is_flag=True, help="Have the server refuse every change.")
@click.option(
    "--keys",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_keys,
    help="List the console's keys and commands, with your own in them (-o table, json or markdown); `iris` only.",
)
@click.option("-v", "--verbose", is_flag=True, help="Say more on standard error.")
@click.option("--traceback", is_flag=True, help="Print the stack when something goes wrong.")
@click.option(
    "-V", "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version."
)
@click.pass_context
def cli(
    ctx: click.Context,
    cluster: str | None,
    config: str | None,
    controller_url: str | None,
    checkpoint: str | None,
    transport: str,
    read_only: bool,
    verbose: bool,
    traceback: bool,
) -> int | None:
    """Run machine-learning jobs on many machines, and watch and steer them.

    `iris` without a command opens the console, which needs a terminal; with `--plain` it is lines at a prompt, for screen readers
    and dumb terminals, and where there is no terminal the list of jobs, printed once. One of --cluster, --config and --controller-url says which controller is meant;
    --checkpoint reads the state that one has saved.
    """
    session = session_of(ctx)
    session.cluster = cluster or ""
    session.config = config or ""
    session.controller_url = controller_url or ""
    session.checkpoint = checkpoint or ""
    session.transport = cast("Transport", transport)
    session.read_only = read_only
    session.diagnostics.verbose = verbose
    session.diagnostics.traceback = traceback
    if controller_url and config:
        raise click.UsageError("--controller-url and --config exclude each other")
    selectors = {
        "--cluster": cluster,
        "--config": config,
        "--controller-url": controller_url,
        "--checkpoint": checkpoint,
    }
    for name, value in selectors.items():
        if value == "":
            raise click.UsageError(f"{name} is empty")
        if value and checkpoint and name != "--checkpoint":
            raise click.UsageError(f"--checkpoint and {name} exclude each other")
    if checkpoint and ctx.invoked_subcommand is None and session.alone is None:
        raise click.UsageError("--checkpoint goes with a command, as `job list`; `iris` opens the console on it")
    if ctx.invoked_subcommand is None:
        if session.alone is None:
            raise click.exceptions.NoArgsIsHelpError(ctx)
        return session.alone(session)
    return None
