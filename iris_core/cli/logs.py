"""`job logs`, `task logs` and `attempt logs`: one set of options over three kinds of subject (cli-auth-logs §1.5).

Text is for people: one line each, harmless for a terminal. `-o jsonl` and `--save` give what was written. Whatever is
left out is said on standard error, and something that has not started yet is answered at once with the reason.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from iris_core.cli import output
from iris_core.cli.options import LAST_MS, MOST, Seconds, output_option
from iris_core.contracts import IrisError, UsageFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_core.cli.log_lines import Line
    from iris_core.cli.log_reader import Account
    from iris_core.cli.log_subject import Standing, Subject
    from iris_core.cli.session import Session
    from iris_core.wire.gen.iris.v1.logs_pb2 import FetchLogsRequest

F = TypeVar("F", bound="Callable[..., Any]")
LEVELS = ("debug", "info", "warning", "error", "critical")


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What the options of one `logs` command said."""

    follow: bool
    since_ms: int
    until_ms: int
    max_lines: int
    tail: bool
    level: str
    substring: str
    regex: str
    how: str
    save: str
    all_incarnations: bool


def log_options(function: F) -> F:
    """The options that all three commands share."""
    for option in reversed(
        [
            click.option("-f", "--follow", is_flag=True, help="Go on until it has ended."),
            click.option(
                "--since-ms", type=click.IntRange(0, LAST_MS), metavar="MS", help="Only lines after this epoch time."
            ),
            click.option("--since-seconds", type=Seconds(), metavar="S", help="Only lines of the last S seconds."),
            click.option(
                "--until-ms",
                type=click.IntRange(0, LAST_MS),
                default=0,
                metavar="MS",
                help="Only lines before this epoch time.",
            ),
            click.option(
                "--max-lines", type=click.IntRange(0, MOST), default=0, metavar="N", help="At most N lines, 0 = 1000."
            ),
            click.option("--tail/--no-tail", default=True, show_default=True, help="The last lines, or the first."),
            click.option(
                "--level",
                type=click.Choice(LEVELS, case_sensitive=False),
                help="Only lines of this level or worse, and those without one.",
            ),
            click.option("--substring", default="", metavar="TEXT", help="Only lines that contain TEXT."),
            click.option(
                "--regex", default="", metavar="RE2", help="Only lines in which the expression is found (RE2 syntax)."
            ),
            output_option("text", "jsonl"),
            click.option(
                "--save",
                default="",
                metavar="FILE",
                help="Write the lines to FILE, byte for byte as they were written.",
            ),
            click.option("--all-incarnations", is_flag=True, help="Earlier jobs of the same name, too."),
        ]
    ):
        function = option(function)
    return function


def parse_options(**values: Any) -> LogOptions:
    """Checks what click cannot. Raises UsageFailed, ModelError."""
    from iris_core.cli.reads import now_ms
    from iris_core.model.regex import compile_content_regex

    since_ms, since_seconds = values.pop("since_ms"), values.pop("since_seconds")
    if since_ms is not None and since_seconds is not None:
        raise UsageFailed("--since-ms and --since-seconds exclude each other", hint="give one of them")
    if since_seconds is not None:
        since_ms = max(now_ms() - int(since_seconds * 1000), 0)
    if values["regex"]:
        compile_content_regex(values["regex"], field="--regex")
    if values["save"] and values["follow"]:
        raise UsageFailed("--save and --follow exclude each other", hint="save when it has ended, or redirect -o jsonl")
    return LogOptions(since_ms=since_ms or 0, **{**values, "level": values["level"] or ""})


@click.command("logs", short_help="Print what the tasks of a job wrote.")
@click.argument("job_id", metavar="JOB")
@log_options
@click.option("--no-children", is_flag=True, help="Without the child jobs.")
@click.pass_obj
def job_logs(session: Session, /, job_id: str, no_children: bool, **values: Any) -> None:
    """Print what the tasks of a job and of its child jobs wrote, in the order of time."""
    from iris_core.model.ids import JobId

    show(session, JobId.parse(job_id), parse_options(**values), children=not no_children)


@click.command("logs", short_help="Print what a task wrote, over all its attempts.")
@click.argument("task_id", metavar="TASK")
@log_options
@click.pass_obj
def task_logs(session: Session, /, task_id: str, **values: Any) -> None:
    """Print what a task wrote, over all its attempts."""
    from iris_core.model.ids import TaskId

    show(session, TaskId.parse(task_id), parse_options(**values))


@click.command("logs", short_help="Print what one attempt wrote.")
@click.argument("attempt_id", metavar="ATTEMPT")
@log_options
@click.pass_obj
def attempt_logs(session: Session, /, attempt_id: str, **values: Any) -> None:
    """Print what one attempt of a task wrote."""
    from iris_core.model.ids import AttemptId

    show(session, AttemptId.parse(attempt_id), parse_options(**values))


def show(session: Session, target: Any, options: LogOptions, *, children: bool = True) -> None:
    """Prints, saves or follows the log of a job, task or attempt. Raises IrisError."""
    from iris_core.cli.log_reader import DEFAULT_LINES, Account, LogReader
    from iris_core.cli.log_subject import subject_of

    subject = subject_of(session.client, target, children=children)
    standing = subject.standing()
    request = filtered(subject.request(0 if options.all_incarnations else standing.incarnation), options)
    reader = LogReader(session.client, request, several=standing.several)
    count = options.max_lines or DEFAULT_LINES
    account = Account()
    sink = Saver(options.save) if options.save else Printer(options.how)
    try:
        if options.tail:
            lines, account = reader.last(count)
            sink.emit(lines)
        else:
            sink.emit(reader.first(count, account))
    finally:
        sink.close()
    if isinstance(sink, Saver):
        session.diagnostics.note(
            f"saved {account.shown} line{'s' * (account.shown != 1)} ({sink.bytes_written} bytes) to {options.save}"
        )
    say_left_out(session, options, account)
    if options.follow:
        _follow(session, subject, reader, sink, standing, account)
    elif not account.shown:
        say_nothing(session, subject, standing)


def filtered(request: FetchLogsRequest, options: LogOptions) -> FetchLogsRequest:
    """The request with the filters of the options."""
    from iris_core.model.levels import LogLevel

    request.since_ms = options.since_ms
    request.until_ms = options.until_ms
    request.substring = options.substring
    request.regex = options.regex
    if options.level:
        request.min_level = cast("Any", LogLevel[options.level.upper()].value)
    return request


def say_left_out(session: Session, options: LogOptions, account: Account) -> None:
    """Tells on standard error that lines are missing, how many, and how to get them."""
    if not account.reasons:
        return
    more = account.matched > account.shown
    total = f"{account.matched:,}" if account.exact else f"at least {account.matched:,}"
    counted = (
        f"{account.shown:,} of {total} matching lines are shown"
        if more
        else f"{account.shown:,} lines are shown, more match"
    )
    hint = "; --max-lines N shows more" + (", --no-tail the first ones" if options.tail else "")
    session.diagnostics.note(f"{counted} ({'; '.join(account.reasons)}){hint}")


def say_nothing(session: Session, subject: Subject, standing: Standing) -> None:
    """Tells on standard error why there is no line, so that an empty answer is never taken for a fault."""
    why = f": {standing.reason}" if standing.reason else ""
    session.diagnostics.note(
        f"{subject.id} is {standing.label}{why}; no line matches{'' if standing.ended else ' so far'}"
    )


def _follow(session: Session, subject: Subject, reader: Any, sink: Any, standing: Standing, account: Account) -> None:
    from iris_core.cli.follow import Follower

    follower = Follower(session.diagnostics, subject, reader, sink.emit, several=standing.several)
    try:
        follower.run(account.cursor)
    except KeyboardInterrupt:
        session.diagnostics.note(
            f"{subject.id} goes on; look again with: {session.program} {session.selector()}{subject_word(subject.id)} logs {subject.id} -f"
        )
        raise


def subject_word(target: str) -> str:
    """The command group for an id."""
    if ":" in target:
        return "attempt"
    last = target.rpartition("/")[2]
    return "task" if last.isdigit() and target.count("/") > 2 else "job"


class Printer:
    """Lines to standard output, as text or JSON lines; each batch goes out at once."""

    def __init__(self, how: str) -> None:
        from iris_core.cli.log_lines import line_object, task_line

        self._format: Callable[[Line], str] = (
            (lambda line: output.as_json_line(line_object(line)) + "\n") if how == "jsonl" else task_line
        )

    def emit(self, lines: Iterable[Line]) -> None:
        """Writes them. Raises PipeClosed, IrisError."""
        for line in lines:
            output.write(self._format(line))
        output.flush()

    def close(self) -> None:
        """Nothing to do."""


class Saver:
    """Lines to a file, byte for byte, which appears whole. What is lost is marked by a line in brackets."""

    def __init__(self, path: str) -> None:
        self._path = path
        # A device or a pipe is written to as it is.
        self._scratch = path if os.path.exists(path) and not os.path.isfile(path) else f"{path}.part-{os.getpid()}"
        self.bytes_written = 0
        self._done = False
        try:
            # The user's own mask decides who may read it: it is their file.
            self._file = open(self._scratch, "wb" if self._scratch == path else "xb")  # noqa: SIM115
        except OSError as error:
            raise IrisError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from None

    def emit(self, lines: Iterable[Line]) -> None:
        """Writes them. Raises IrisError."""
        try:
            for line in lines:
                data = line.bytes if not line.gap else f"[{line.gap} lines lost: {line.data}]".encode()
                self._file.write(data + b"\n")
                self.bytes_written += len(data) + 1
            self._file.flush()
            if self._scratch != self._path:
                os.replace(self._scratch, self._path)
            self._done = True
        except OSError as error:
            raise IrisError(f"cannot write {self._path}: {(error.strerror or str(error)).lower()}") from None

    def close(self) -> None:
        """Closes the file; one that is not whole is removed."""
        self._file.close()
        if not self._done:
            try:
                os.unlink(self._scratch)
            except OSError:
                pass
