"""`process`: the controller, the workers and the runtime of a task as processes (cli-auth-logs §1.6)."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from iris_core.cli import output
from iris_core.cli.lazy import Lazy, LazyGroup
from iris_core.cli.options import MOST, Whole, output_option

if TYPE_CHECKING:
    from iris_core.cli.session import Session
    from iris_core.wire.gen.iris.v1.common_pb2 import ProcessInfo

COMMANDS = {
    "status": Lazy("iris_core.cli.process:status", "Show what a process is and uses."),
    "logs": Lazy("iris_core.cli.process:logs", "Print the log of the controller or of a worker."),
    "profile": Lazy("iris_core.cli.profile:process_profile", "Look into a running process."),
}

CONTROLLER: Final = "/system/controller"
WAIT_MS: Final = 2_000


@click.group(cls=LazyGroup, table=COMMANDS)
def process() -> None:
    """Look at the controller and the workers themselves."""


def target_of(text: str, *, logs: bool) -> str:
    """A process's name, checked. Raises ModelError, UsageFailed."""
    from iris_core.contracts import UsageFailed
    from iris_core.model.errors import shown
    from iris_core.model.ids import check_component, parse_target

    if not text or text == CONTROLLER:
        return CONTROLLER
    head, _, worker = text.rpartition("/")
    if head == "/system/worker":
        check_component(worker, what="worker id", field="--target")
        return text
    if logs or text.startswith("/system/"):
        hint = f"it is {CONTROLLER} or /system/worker/<id>"
        raise UsageFailed(
            f"{shown(text)} has no process log" if logs else f"there is no process {shown(text)}",
            hint=hint + ("; for a task see task logs" if logs else ""),
        )
    return str(parse_target(text))


@click.command(short_help=COMMANDS["status"].help)
@click.option(
    "-t", "--target", default="", metavar="NAME", help="/system/worker/<id> or a task. Default: the controller."
)
@output_option("table", "json")
@click.pass_obj
def status(session: Session, target: str, how: output.Format) -> None:
    """Show host, pid, CPU and memory of the controller, of a worker, or of a running task."""
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    request = pb.GetProcessStatusRequest(target=target_of(target, logs=False))
    found = session.client.call("ControllerService/GetProcessStatus", request, pb.GetProcessStatusResponse).process
    if how == "json":
        from iris_core.cli.describing import as_object

        output.line(output.as_json(as_object(found)))
        return
    output.write(_status_text(found))


def _status_text(info: ProcessInfo) -> str:
    from iris_core.model.quantities import format_cpu, format_duration, format_size
    from iris_core.model.text import one_line

    rows: list[tuple[str, Any]] = [
        ("Target", info.target),
        ("Hostname", info.hostname),
        ("PID", info.pid or ""),
        ("Python", info.python),
        ("Version", f"{info.version} ({info.release})" if info.release else info.version),
        ("Boot id", info.boot_id),
        ("Uptime", format_duration(info.uptime_ms)),
        ("CPU", f"{format_cpu(info.cpu_millicores)} cores ({info.cpu_millicores}m) of {info.cpu_count}"),
        ("Memory RSS", format_size(info.memory_rss_bytes)),
        ("Memory VMS", format_size(info.memory_vms_bytes)),
        ("Memory total", format_size(info.memory_total_bytes)),
        ("Threads", info.threads),
        ("Open FDs", info.open_fds),
        *sorted(info.details.items()),
    ]
    shown = [(name, one_line(str(value))) for name, value in rows if value != ""]
    wide = max(len(name) for name, _ in shown) + 2
    return "".join(f"{name + ':':<{wide}}{value}\n" for name, value in shown)


@click.command(short_help=COMMANDS["logs"].help)
@click.option("-t", "--target", default="", metavar="NAME", help="/system/worker/<id>. Default: the controller.")
@click.option("-f", "--follow", is_flag=True, help="Go on.")
@click.option("--max-lines", type=Whole(1, MOST), default=200, show_default=True, metavar="N", help="The last N lines.")
@click.option(
    "--level",
    type=click.Choice(["debug", "info", "warning", "error", "critical"], case_sensitive=False),
    help="Only lines of this level or worse, and those without one.",
)
@click.option("--substring", default="", metavar="TEXT", help="Only lines that contain TEXT, as event=job_submitted.")
@output_option("text", "jsonl")
@click.pass_obj
def logs(
    session: Session, target: str, follow: bool, max_lines: int, level: str | None, substring: str, how: str
) -> None:
    """Print the log of the controller or of a worker, its audit lines included.

    To keep it, redirect standard output into a file; `stats query` searches it by time and pattern.
    """
    from iris_core.cli.log_lines import Line, line_object, process_line
    from iris_core.cli.log_reader import LogReader
    from iris_core.cli.reads import Patience
    from iris_core.model.levels import LogLevel
    from iris_core.wire.gen.iris.v1.common_pb2 import MATCH_SCOPE_EXACT
    from iris_core.wire.gen.iris.v1.logs_pb2 import FetchLogsRequest

    request = FetchLogsRequest(source=target_of(target, logs=True), match_scope=MATCH_SCOPE_EXACT, substring=substring)
    if level:
        number: Any = LogLevel[level.upper()].value
        request.min_level = number
    reader = LogReader(session.client, request, several=False)

    def write(lines: list[Line]) -> None:
        for line in lines:
            output.write(output.as_json_line(line_object(line)) + "\n" if how == "jsonl" else process_line(line))
        output.flush()

    lines, account = reader.last(max_lines)
    write(lines)
    for note in account.notes:
        session.diagnostics.note(note)
    lost = [reason for reason in account.reasons if not reason.startswith("the last ")]
    if account.reasons and not follow:
        of = f" of {'' if account.exact else 'at least '}{account.matched:,}" if account.matched > account.shown else ""
        why = "; ".join(lost)
        hint = "; --max-lines N shows more" if account.more else ""
        session.diagnostics.note(f"the last {account.shown:,}{of} matching lines{f' ({why})' if why else ''}{hint}")
    if not account.shown:
        _say_nothing(session, request.source, is_filtered=bool(level or substring))
    if not follow:
        return
    from iris_core.cli.log_lines import ordered
    from iris_core.cli.losses import Losses

    losses = Losses(session.diagnostics, request.source)
    losses.add(lost)
    patience = Patience(session.diagnostics, "the process goes on")
    cursor = account.cursor
    while True:
        began = time.monotonic()
        answer = patience.ask(partial(reader.fetch, cursor=cursor, max_lines=2_000, wait_ms=WAIT_MS))
        cursor = answer.cursor
        losses.take(answer)
        write(ordered(answer.entries))
        time.sleep(max(0.0, 0.1 - (time.monotonic() - began)))


def _say_nothing(session: Session, source: str, *, is_filtered: bool) -> None:
    """Tells on standard error why there is no line."""
    from iris_core.cli.pipeline import ask

    found = ask(session, "")
    said = "no line matches" if is_filtered else "no line is kept"
    problems = list(found.problems) if found is not None else []
    worker_id = source.rpartition("/")[2] if source != CONTROLLER else ""
    if worker_id and found is not None:
        if worker_id not in [worker.worker_id for worker in found.workers]:
            session.diagnostics.note(f"there is no worker {worker_id} now, and {said.replace('line', 'line of it')}")
            return
        problems = [problem for problem in problems if problem.startswith(("the log store", f"worker {worker_id} "))]
    session.diagnostics.note(f"{source}: {said}" + (f" ({'; '.join(problems)})" if problems else ""))
