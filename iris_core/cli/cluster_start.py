"""`cluster start --local`, which keeps an embedded cluster until it is told to stop, and `cluster controller serve`,
which becomes a controller.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING, Any, Final

import click

from iris_core.cli import output
from iris_core.cli.lazy import Lazy, LazyGroup
from iris_core.cli.options import Seconds, Whole
from iris_core.contracts import IrisError, UsageFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from iris_core.cli.session import Session

DEPLOYED_S: Final = 120.0
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
COMMANDS = {
    "serve": Lazy("iris_core.cli.cluster_start:serve", "Run the controller of a cluster file in the foreground."),
    "start": Lazy("iris_core.cli.controller_lifecycle:start", "Start the controller that is deployed."),
    "stop": Lazy(
        "iris_core.cli.controller_lifecycle:stop", "Stop the controller that is deployed; workers and tasks go on."
    ),
    "restart": Lazy(
        "iris_core.cli.controller_restart:restart", "Restart the deployed controller into the tree that is here."
    ),
    "status": Lazy("iris_core.cli.controller_lifecycle:status", "Show what is deployed, and how it runs."),
    "worker-restart": Lazy(
        "iris_core.cli.worker_restart:worker_restart", "Restart the workers onto the release that the controller runs."
    ),
    "withdraw-rollback": Lazy(
        "iris_core.cli.controller_withdraw:withdraw_rollback", "Take back a rollback whose checkpoint is lost."
    ),
    "break-lock": Lazy(
        "iris_core.cli.controller_lock:break_lock", "Free the lock that a dead restart or rollout left."
    ),
    "checkpoint": Lazy("iris_core.cli.checkpoint:checkpoint", "Have the controller save its state now."),
}


class StopRequest:
    """Counts the requests to stop: a signal, again, and once more."""

    def __init__(self) -> None:
        self.count = 0
        self.name = ""

    def __call__(self, number: int, _frame: object) -> None:
        self.count += 1
        self.name = signal.Signals(number).name


@contextlib.contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Signals that would end the program are counted instead, until the block is left."""
    request = StopRequest()
    before = {number: signal.signal(number, request) for number in STOP_SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@click.command(short_help="Start a cluster on this machine and keep it until Ctrl-C.")
@click.option("--local", is_flag=True, help="On this machine: a controller, a log store and workers.")
@click.option("--fresh", is_flag=True, help="With --local: move the state of the last one aside and start empty.")
@click.option("--workers", type=Whole(1, 64), metavar="N", help="With --local: how many workers. Default: 2.")
@click.pass_obj
def start(session: Session, local: bool, fresh: bool, workers: int | None) -> int:
    """Start a cluster on this machine, print its address, and keep it until Ctrl-C; or one that is deployed.

    With --local, other shells reach it with --cluster=local. Its state outlives it. Ctrl-C ends its tasks, which get some seconds
    to end by themselves; a second Ctrl-C does not wait.

    Without, the controller that the cluster file deploys is started, as cluster controller start does, and it starts its workers.
    """
    if not local:
        if fresh or workers is not None:
            raise UsageFailed("--fresh and --workers are for --local alone", hint="cluster start --local")
        return _deployed(session)
    workers = workers or 2
    from iris_core.cli.beside import load
    from iris_core.config.places import local_cluster_dir
    from iris_core.connect.local import running_endpoint

    running = running_endpoint()
    if running is not None:
        raise IrisError(f"a local cluster is running already at {running.url} (pid {running.pid})")
    state_dir = local_cluster_dir()
    say = session.diagnostics.note
    if fresh:
        _set_aside(state_dir, say)
    cluster = load("providers.local.cluster").EmbeddedCluster(state_dir, workers, note=say)
    with stop_on_signals() as request:
        return _keep(session, cluster, request, workers, state_dir)


def _deployed(session: Session) -> int:
    from iris_core.cli.controller_lifecycle import begin
    from iris_core.cli.deployment import deployment

    if not (session.config or session.named):
        raise UsageFailed(
            "which cluster is not said", hint="cluster start --local, or name one: --config FILE, --cluster NAME"
        )
    output.line(begin(session, deployment(session), DEPLOYED_S))
    return 0


def _keep(session: Session, cluster: Any, request: StopRequest, workers: int, state_dir: Path) -> int:
    from iris_core.connect.local import LocalEndpoint, process_start, remove_endpoint, write_endpoint

    say = session.diagnostics.note
    pids: list[int] = []
    keeper = os.getpid(), process_start(os.getpid()) or 0

    def changed(running: Any) -> None:
        pids.append(running.pid)
        write_endpoint(LocalEndpoint(running.url, running.pid, running.start, running.boot_id, *keeper))

    failed: IrisError | None = None
    try:
        running = cluster.start()
        changed(running)
        output.line(running.url)
        output.flush()
        say(f"The local cluster is up: {workers} worker{'s' * (workers != 1)}, state in {state_dir}. Ctrl-C stops it.")
        say(f"In another shell: {session.program} --cluster=local job run -- echo hello")
        cluster.supervise(lambda: request.count > 0, changed)
    except IrisError as error:
        failed = error
    finally:
        for pid in pids:
            remove_endpoint(pid)
        _stop(session, cluster, request)
    if failed is not None:
        raise failed
    return 0


def _stop(session: Session, cluster: Any, request: StopRequest) -> None:
    """Ends the cluster and says what it waits for."""
    say = session.diagnostics.note
    first = request.count
    if first:
        say(
            f"{request.name}: stopping. Running tasks get up to 20 s to end; once more does not wait for them, and what they had not written is lost."
        )
    told = False

    def hurry() -> bool:
        nonlocal told
        if request.count > max(first, 1) and not told:
            told = True
            say("Not waiting: tasks are killed now.")
        return told

    began = time.monotonic()
    killed = cluster.stop(hurry)
    if killed:
        say(f"Killed: {', '.join(killed)}.")
    if first:
        say(
            f"Stopped after {time.monotonic() - began:.1f} s. The state is kept; unfinished tasks are tried again at the next start."
        )


def _set_aside(state_dir: Path, say: Callable[[str], None]) -> None:
    if not state_dir.exists():
        return
    aside = state_dir.with_name(f"{state_dir.name}.{time.strftime('%Y%m%d-%H%M%S')}")
    try:
        state_dir.rename(aside)
    except OSError as error:
        raise IrisError(f"cannot move {state_dir} aside: {(error.strerror or str(error)).lower()}") from None
    say(f"The previous state was moved to {aside}.")


@click.group(cls=LazyGroup, table=COMMANDS)
def controller() -> None:
    """Run, start, stop and look at a controller, and have it save its state."""


@click.command(short_help=COMMANDS["serve"].help)
@click.option("--config", required=True, metavar="FILE", help="The cluster's YAML file.")
@click.option("--state-dir", metavar="DIR", help="Local state. Default: storage.local_state_dir.")
@click.option("--host", metavar="ADDRESS", help="Address to listen on. Default: 127.0.0.1.")
@click.option(
    "--port",
    type=Whole(0, 65535),
    metavar="PORT",
    help="Port to listen on, 0 = any. Default: from the file, else 10000.",
)
@click.option("--fresh", is_flag=True, help="Move existing state aside and start empty.")
@click.option(
    "--checkpoint-path", metavar="PATH", help="Start from this checkpoint: a path or URL. What is there is moved aside."
)
@click.option(
    "--checkpoint-interval",
    type=Seconds(1, 7 * 86_400),
    metavar="S",
    help="Seconds between checkpoints. Default: from the file, else an hour.",
)
@click.option(
    "--take-over",
    is_flag=True,
    help="Go on with this state though another controller took over its remote state since.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Look at a state: dispatch nothing, change no machines, write no checkpoints. Its copy is kept in /tmp/dry-run/<today>.",
)
def serve(
    config: str,
    state_dir: str | None,
    host: str | None,
    port: int | None,
    fresh: bool,
    checkpoint_path: str | None,
    checkpoint_interval: float | None,
    take_over: bool,
    dry_run: bool,
) -> int:
    """Run the controller of a cluster file in the foreground, as `iris-controller serve` does.

    \b
    cluster controller serve --config c.yaml --dry-run --checkpoint-path gs://bucket/state/controller-state/1700000000000
    """
    from iris_core.cli.beside import load

    load("providers.local.cluster").check_installed()
    from iris_controller.main import serve as run

    return run(
        config,
        state_dir,
        host,
        port,
        fresh=fresh,
        checkpoint=checkpoint_path,
        checkpoint_interval_s=checkpoint_interval,
        take_over=take_over,
        dry_run=dry_run,
    )
