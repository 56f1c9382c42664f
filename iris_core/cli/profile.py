"""`process|task|attempt profile threads|cpu|mem`: look into a running process now (cli-auth-logs §1.6).

Threads go to standard output, harmless for a terminal; CPU and memory profiles into a file named after their target unless `-o`
says another, whose end says the format, too. The same three commands under three nouns, which differ in how the target is named.
Must never write one format under a name that stands for another.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import click

from iris_core.cli import output
from iris_core.cli.lazy import Lazy, LazyGroup
from iris_core.cli.options import Whole
from iris_core.contracts import IrisError

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_core.cli.session import Session
    from iris_core.wire.gen.iris.v1 import profiles_pb2 as pb

SLACK_S: Final = 200.0
"""What a profile may take beyond its duration: attaching, reading symbols, making the report, the way back."""
OWN: Final = "/system/process"
"""What the controller may be called here, too (cli-auth-logs §4.3)."""

_HELP: Final = {
    "threads": "Print where every thread is right now.",
    "cpu": "Sample where the time goes.",
    "mem": "Track what is allocated.",
}
_FORMATS: Final = {
    "threads": ("text",),
    "cpu": ("speedscope", "flamegraph", "raw"),
    "mem": ("html", "table", "stats", "raw"),
}
"""What each kind is written as; the first is the default."""
_CALLED: Final = {"threads": "thread dump", "cpu": "CPU profile", "mem": "memory profile"}
_NATIVE: Final = {
    "threads": "no",
    "cpu": "of tasks yes (but not on arm64), of the controller and workers no",
    "mem": "yes",
}
_LONG: Final = {
    "threads": """Print where every thread of every Python process of {what} is right now, child processes included.""",
    "cpu": """Sample {what} for a while, child processes included, and write what it spent its time on.

    speedscope opens at https://www.speedscope.app, flamegraph is an SVG for the browser, raw has one stack per line.""",
    "mem": """Track what {what} allocates for a while and write a report of its peak.

    The process needs memray in its own Python environment, and its host needs gdb. Of several Python processes the
    largest is taken. html is a flame graph, table is text, stats is JSON, raw is the capture itself.""",
}


class _Nouns(LazyGroup):
    """`profile cpu TASK`; `profile TASK cpu` means the same."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if len(args) > 1 and args[0].startswith("/") and args[1] in self.table:
            args = [args[1], args[0], *args[2:]]
        return super().parse_args(ctx, args)


def _table(noun: str) -> dict[str, Lazy]:
    return {kind: Lazy(f"iris_core.cli.profile:{noun}_{kind}", text) for kind, text in _HELP.items()}


@click.group("profile", cls=LazyGroup, table=_table("process"), short_help="Look into a running process.")
def process_profile() -> None:
    """Look into the controller, a worker, or a running task: its threads, its CPU time, its memory."""


@click.group("profile", cls=_Nouns, table=_table("task"), short_help="Look into the processes of a running task.")
def task_profile() -> None:
    """Look into the processes of a running task: their threads, CPU time, memory."""


@click.group("profile", cls=_Nouns, table=_table("attempt"), short_help="Look into the processes of a running attempt.")
def attempt_profile() -> None:
    """Look into the processes of an attempt while it is current: their threads, CPU time, memory."""


def _command(noun: str, kind: str) -> click.Command:
    what = {"process": "a process", "task": "a task", "attempt": "an attempt"}[noun]

    def body(session: Session, **values: Any) -> None:
        _run(session, kind, _target(noun, values.pop("target")), **values)

    command: Callable[..., Any] = click.pass_obj(body)
    for option in reversed(_options(noun, kind)):
        command = option(command)
    return click.command(kind, short_help=_HELP[kind], help=_LONG[kind].format(what=what))(command)


def _options(noun: str, kind: str) -> list[Callable[..., Any]]:
    named = {
        "process": click.option(
            "-t",
            "--target",
            default="",
            metavar="NAME",
            help="/system/worker/<id>, or a task. Default: the controller.",
        ),
        "task": click.argument("target", metavar="TASK"),
        "attempt": click.argument("target", metavar="ATTEMPT"),
    }
    options: list[Callable[..., Any]] = [named[noun]]
    if kind != "threads":
        options += [
            click.option(
                "-d",
                "--duration",
                type=Whole(1, 600),
                default=10,
                show_default=True,
                metavar="S",
                help="Seconds to look.",
            ),
            click.option(
                "--format",
                "shape",
                type=click.Choice(_FORMATS[kind]),
                help=f"What is written. Default: what FILE ends in, else {_FORMATS[kind][0]}.",
            ),
        ]
    if kind == "cpu":
        options.append(
            click.option(
                "--rate",
                type=Whole(1, 1000),
                default=20,
                show_default=True,
                metavar="HZ",
                help="Samples per second.",
            )
        )
    if kind == "mem":
        options.append(click.option("--leaks", is_flag=True, help="What was not freed, instead of the peak (html)."))
    if kind == "threads":
        options.append(click.option("--locals", "local_values", is_flag=True, help="Local variables, too."))
    options += [
        click.option(
            "--native/--no-native", default=None, help=f"Frames of compiled code, too. Default: {_NATIVE[kind]}."
        ),
        click.option("--pid", type=Whole(0, 2**22), default=0, metavar="PID", help="This process of it alone."),
        click.option(
            "-o",
            "--output",
            "path",
            default="",
            metavar="FILE",
            help="Where to write, - for standard output; a file there is replaced."
            + ("" if kind == "threads" else " Default: named after it."),
        ),
    ]
    return options


def _target(noun: str, text: str) -> str:
    """The target, checked. Raises ModelError, UsageFailed."""
    from iris_core.model.ids import AttemptId, TaskId

    if noun == "task":
        return str(TaskId.parse(text))
    if noun == "attempt":
        return str(AttemptId.parse(text))
    from iris_core.cli.process import target_of
    from iris_core.model.ids import JobId, parse_target

    found = target_of("" if text == OWN else text, logs=False)
    if not found.startswith("/system/") and isinstance(parse_target(found), JobId):
        from iris_core.contracts import UsageFailed

        raise UsageFailed(f"{found} is a job", hint=f"name a task of it, such as {found}/0; job hang looks at all")
    return found


def _run(
    session: Session,
    kind: str,
    target: str,
    *,
    path: str,
    native: bool | None,
    pid: int,
    duration: int = 0,
    shape: str | None = None,
    rate: int = 0,
    leaks: bool = False,
    local_values: bool = False,
) -> None:
    from iris_core.wire.gen.iris.v1 import profiles_pb2 as pb
    from iris_core.wire.profiles import FORMATS, number_of

    types = {"threads": pb.PROFILE_TYPE_THREADS, "cpu": pb.PROFILE_TYPE_CPU, "mem": pb.PROFILE_TYPE_MEMORY}
    options = pb.ProfileOptions(
        type=types[kind],
        duration_seconds=duration,
        format=number_of(FORMATS, _shape(kind, types[kind], shape, path)),  # type: ignore[arg-type]
        rate_hz=rate,
        native=native,
        leaks=leaks,
        locals=local_values,
        pid=pid,
    )
    if kind != "threads":
        session.diagnostics.progress(f"profiling {target} for {duration} s …")
    try:
        answer = take(session, target, options)
    finally:
        session.diagnostics.progress("")
    for note in answer.notes:
        session.diagnostics.warn(note)
    _deliver(session, kind, target, path, answer)


def _shape(kind: str, number: int, asked: str | None, path: str) -> str:
    """The format: what `--format` says, else what the file ends in. Raises UsageFailed: they contradict each other, or this kind of
    profile has no format that ends so."""
    from iris_core.contracts import UsageFailed
    from iris_core.model.errors import shown
    from iris_core.wire.profiles import FORMATS, ending, endings, number_of, suffix

    end = ending(path)
    named = [word for word in _FORMATS[kind] if end in endings(number, number_of(FORMATS, word))]
    names = {word: f".{suffix(number, number_of(FORMATS, word))}" for word in _FORMATS[kind]}
    if end and not named:
        fitting = ", ".join(f"{name} ({word})" for word, name in names.items())
        raise UsageFailed(f"a {_CALLED[kind]} is not written as .{end}: {shown(path)}", hint=f"it ends in {fitting}")
    if asked and named and asked not in named:
        raise UsageFailed(
            f"--format {asked} and {shown(path)} contradict each other",
            hint=f".{end} stands for {named[0]}, and {asked} ends in {names[asked]}",
        )
    return asked or (named or _FORMATS[kind])[0]


def take(session: Session, target: str, options: pb.ProfileOptions) -> pb.ProfileTaskResponse:
    """Takes one profile. Raises IrisError."""
    from iris_core.wire.gen.iris.v1 import profiles_pb2 as pb

    return session.client.call(
        "ControllerService/ProfileTask",
        pb.ProfileTaskRequest(target=target, options=options),
        pb.ProfileTaskResponse,
        timeout_s=2 * options.duration_seconds + SLACK_S,
    )


def _deliver(session: Session, kind: str, target: str, path: str, answer: pb.ProfileTaskResponse) -> None:
    from iris_core.cli.saving import save
    from iris_core.wire.profiles import suffix

    data = answer.profile_data
    if kind == "threads" and path in ("", "-"):
        print_text(data)
        return
    if not data:
        raise IrisError(f"the profile of {target} is empty")
    name = path or f"profile-{kind}-{label(target)}.{suffix(answer.record.type, answer.record.format)}"
    try:
        save(session, name, data, f"the {_CALLED[kind]} of {target}")
    finally:
        # Also where it could not be written: nobody has to take it again for that.
        if answer.record.profile_id:
            session.diagnostics.note(f"kept as {answer.record.profile_id}")


def print_text(data: bytes) -> None:
    """Text of a profiler on standard output: as it is into a pipe, harmless on a terminal. Raises PipeClosed, IrisError."""
    from iris_core.model.text import visible

    if output.is_terminal():
        output.write(visible(data.decode("utf-8", "replace"), keep_newlines=True))
    else:
        output.write_bytes(data)
    output.flush()


def label(target: str) -> str:
    """The target as part of a file name."""
    return re.sub(r"[/\s]", "-", target.strip("/").lower()) or "process"


process_threads = _command("process", "threads")
process_cpu = _command("process", "cpu")
process_mem = _command("process", "mem")
task_threads = _command("task", "threads")
task_cpu = _command("task", "cpu")
task_mem = _command("task", "mem")
attempt_threads = _command("attempt", "threads")
attempt_cpu = _command("attempt", "cpu")
attempt_mem = _command("attempt", "mem")
