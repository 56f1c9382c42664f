"""`demo`: a real cluster on an empty temporary state, a few real jobs, and the console on them; without a terminal
the same, printed.

Everything it starts ends with it, and its folder goes away, whatever ends it. Must never touch the local cluster of
`cluster start --local`.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from iris_core.cli import output

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iris_core.cli.session import Session
    from iris_core.connect import Target
    from iris_core.contracts import Client

WORKERS: Final = 2
FINISH_S: Final = 60.0

TRAIN: Final = """\
import os, sys, time
rank = int(os.environ["IRIS_TASK_ID"].rpartition("/")[2].partition(":")[0])
steps = int(sys.argv[1])
print(f"INFO rank{rank} starting, {steps} steps", flush=True)
loss = 4.0
for step in range(1, steps + 1):
    time.sleep(float(sys.argv[2]))
    loss *= 0.97
    print(f"rank{rank} step {step}/{steps} train/loss {loss:.4f}", flush=True)
    if step % 10 == 0:
        print(f"WARNING rank{rank} gradient norm is high at step {step}", file=sys.stderr, flush=True)
print(f"INFO rank{rank} done", flush=True)
"""
FLAKY: Final = """\
import os, sys
attempt = os.environ["IRIS_TASK_ID"].rpartition(":")[2]
print(f"this is attempt {attempt}", flush=True)
sys.exit(1 if attempt == "0" else 0)
"""
FAILS: Final = """\
import sys
print("reading the config", flush=True)
print("ERROR no such dataset: gs://demo/tokens", file=sys.stderr, flush=True)
sys.exit(3)
"""


@click.command(short_help="Start a cluster with a few jobs on this machine, to look around.")
@click.pass_obj
def demo(session: Session) -> int:
    """Start a controller, two workers and a few real jobs in a temporary folder, and open the console on them.

    Without a terminal (or from iris-core) it waits for the jobs and prints them, the tail of a log and the
    scheduler's view. Everything ends with it.
    """
    from iris_core.cli.beside import load

    local = load("providers.local.cluster")
    local.check_installed()
    try:
        return _run(session, local)
    except _Stopped as stopped:
        raise click.exceptions.Exit(128 + stopped.number) from None


def _run(session: Session, local: Any) -> int:
    from iris_core.cli.cluster_start import STOP_SIGNALS
    from iris_core.connect import Target

    for number in STOP_SIGNALS:
        signal.signal(number, _interrupt)
    folder = Path(tempfile.mkdtemp(prefix="iris-demo-"))
    cluster = local.EmbeddedCluster(folder / "state", WORKERS, note=session.diagnostics.note)
    try:
        session.diagnostics.note("Starting a controller and two workers in a temporary folder …")
        target = Target(cluster.start().url, "demo", "local")
        live = session.console is not None and sys.stdin.isatty() and output.is_terminal()
        with _client(session, target) as client:
            jobs = _submit(client, live=live)
        if live and session.console is not None:
            return session.console(target)
        with _client(session, target) as client:
            return _print(session, client, jobs)
    finally:
        with _undisturbed():
            session.diagnostics.note("Ending the demo …")
            cluster.stop(lambda: True)
            shutil.rmtree(folder, ignore_errors=True)


class _Stopped(BaseException):
    """A signal. No Exception: whatever is under way must not take it for a failure of its own."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _interrupt(number: int, _frame: object) -> None:
    raise _Stopped(number)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ending is short and must come to its end."""
    from iris_core.cli.cluster_start import STOP_SIGNALS

    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    yield


def _client(session: Session, target: Target) -> Client:
    from iris_core.connect import open_client

    return open_client(target, note=session.diagnostics.note, context=session.context)


def _submit(client: Client, *, live: bool) -> list[str]:
    """Submits the jobs; returns those that will end. On a terminal there is something to watch for a while."""
    python = sys.executable
    steps, pause = ("300", "1.0") if live else ("12", "0.1")
    ending = [
        _launch(client, "hello", ["sh", "-c", 'echo "hello from $IRIS_TASK_ID"']),
        _launch(client, "train", [python, "-c", TRAIN, steps, pause], replicas=4),
        _launch(client, "flaky", [python, "-c", FLAKY], retries=1),
        _launch(client, "fails", [python, "-c", FAILS]),
    ]
    if live:
        ending.append(_launch(client, "eval", [python, "-c", TRAIN, "40", "0.5"], replicas=2))
    _launch(client, "too-large", ["true"], cpu_millicores=4096_000)
    return ending


def _launch(
    client: Client, name: str, argv: list[str], *, replicas: int = 1, retries: int = 0, cpu_millicores: int = 100
) -> str:
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    request = pb.LaunchJobRequest(
        name=f"/demo/{name}", replicas=replicas, max_retries_failure=retries, submit_argv=["iris", "demo"]
    )
    request.entrypoint.run_command.argv.extend(argv)
    request.resources.cpu_millicores = cpu_millicores
    request.resources.memory_bytes = 200_000_000
    return client.call("ControllerService/LaunchJob", request, pb.LaunchJobResponse).job_id


def _print(session: Session, client: Client, jobs: list[str]) -> int:
    from iris_core.cli import reads
    from iris_core.cli.listings import JOB_LIST
    from iris_core.cli.log_lines import task_line
    from iris_core.cli.log_reader import LogReader
    from iris_core.cli.log_subject import JobSubject
    from iris_core.model.ids import JobId

    finished = _wait(client, jobs)
    rows, _ = reads.list_jobs(client)
    output.line("Jobs")
    output.write(JOB_LIST.text(rows, "table", reads.now_ms()))
    subject = JobSubject(client, JobId("/demo/train"))
    lines, _account = LogReader(client, subject.request(0), several=True).last(8)
    output.line("\nThe last lines of /demo/train")
    output.write("".join(task_line(line) for line in lines))
    output.line("\nThe scheduler's view")
    output.write(_scheduler(client))
    output.flush()
    if not finished:
        session.diagnostics.note(f"the jobs did not end within {FINISH_S:.0f} s")
    return 0 if finished else 1


def _wait(client: Client, jobs: list[str]) -> bool:
    from iris_core.cli import reads
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    until = time.monotonic() + FINISH_S
    request = pb.GetJobStateRequest(job_ids=jobs)
    while time.monotonic() < until:
        states = client.call("ControllerService/GetJobState", request, pb.GetJobStateResponse).states
        if all(reads.job_ended(states[job]) for job in jobs):
            return True
        time.sleep(0.1)
    return False


def _scheduler(client: Client) -> str:
    from iris_core.cli.tables import Column, render
    from iris_core.live.columns import resources_text
    from iris_core.model.bands import band_label
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    state: Any = client.call(
        "ControllerService/GetSchedulerState", pb.GetSchedulerStateRequest(), pb.GetSchedulerStateResponse
    )
    rows = [
        [
            str(entry.position),
            entry.job_id,
            str(entry.count),
            band_label(entry.band),
            resources_text(entry.resources),
            entry.reason,
        ]
        for entry in state.pending_queue
    ]
    columns = [
        Column("POSITION", "right"),
        Column("JOB ID", is_id=True),
        Column("TASKS", "right"),
        Column("BAND"),
        Column("RESOURCES", shrinks=True),
        Column("REASON", shrinks=True),
    ]
    return f"{state.total_pending} pending, {state.total_running} running\n" + render(columns, rows)
