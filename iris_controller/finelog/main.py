"""The command `finelog`: its options, and every failure as one line with the right exit code."""

from __future__ import annotations

import os
from pathlib import Path

import click

from iris_core.contracts import IrisError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """The store of log lines."""


@main.command()
@click.option(
    "--data-dir", type=click.Path(path_type=Path, file_okay=False), required=True, help="Where the lines are kept."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="0 takes a free one.")
@click.option(
    "--endpoint-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Written when ready: JSON with host, port, pid.",
)
@click.option(
    "--max-bytes",
    type=click.IntRange(1 << 20),
    default=20 << 30,
    show_default="20 GiB",
    help="The oldest lines beyond it are removed.",
)
@click.option(
    "--max-age-seconds",
    type=click.IntRange(0),
    default=0,
    show_default="any age",
    help="Lines that were stored longer ago are removed, a segment at a time.",
)
@click.option(
    "--max-segments",
    type=click.IntRange(0),
    default=0,
    show_default="any number",
    help="The oldest segments beyond it are removed.",
)
@click.option(
    "--remote",
    default="",
    metavar="URL",
    help="Ship finished segments to this object store (gs://…, file:///…), and restore from it when the data dir is empty.",
)
@click.option(
    "--ship-seconds",
    type=click.FloatRange(1, 86_400),
    default=60.0,
    show_default=True,
    help="Rows that are older than this are shipped.",
)
@click.option(
    "--local-bytes",
    type=click.IntRange(0),
    default=0,
    show_default="all",
    help="With --remote: shipped segments leave this disk when more is on it, and are fetched again to be read.",
)
@click.option(
    "--allow-remote", is_flag=True, help="Listen beyond loopback; whoever reaches the port can read and write."
)
@click.option(
    "--release", default="", help="Content hash of the code that runs, for the endpoint file; by default computed."
)
def serve(
    data_dir: Path,
    host: str,
    port: int,
    endpoint_file: Path | None,
    max_bytes: int,
    max_age_seconds: int,
    max_segments: int,
    remote: str,
    ship_seconds: float,
    local_bytes: int,
    allow_remote: bool,
    release: str,
) -> None:
    """Takes in and hands out log lines until SIGTERM."""
    # A query's process is forked beside threads of gRPC, whose handlers of a fork crash the child before it is a program.
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    try:
        from iris_controller import logs
        from iris_controller.finelog.server import Settings, run
    except ModuleNotFoundError as missing:
        click.echo(f"finelog: {missing.name} is not installed: pip install 'iris-ops[controller]'", err=True)
        raise SystemExit(1) from None
    logs.configure()
    settings = Settings(
        data_dir=data_dir,
        host=host,
        port=port,
        endpoint_file=endpoint_file,
        allow_remote=allow_remote,
        max_bytes=max_bytes,
        max_age_seconds=max_age_seconds,
        max_segments=max_segments,
        release=release,
        remote=remote,
        ship_seconds=ship_seconds,
        local_bytes=local_bytes,
    )
    try:
        run(settings)
    except IrisError as error:
        click.echo(f"finelog: {error.message}", err=True)
        if error.hint:
            click.echo(f"  {error.hint}", err=True)
        raise SystemExit(error.exit_code) from None
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        click.echo(f"finelog: cannot use {data_dir}: {error.strerror or error}{where}", err=True)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
