"""`job logs`, `task logs` and `attempt logs`: one set of options over three kinds of subject (cli-auth-logs §1.5).

Text is for people: one line each, harmless for a terminal. `-o jsonl` and `--save` give what was written. Whatever is
left out is said on standard error, and something that has not started yet is answered at once with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from iris_core.cli.log_sinks import Printer, Saver
from iris_core.cli.moments import EXAMPLES, Moment
from iris_core.cli.options import LAST_MS, MOST, Seconds, Whole, output_option
from iris_core.contracts import UsageFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_core.cli.log_context import ContextReader
    from iris_core.cli.log_lines import Line
    from iris_core.cli.log_reader import Account, LogReader
    from iris_core.cli.log_subject import Standing, Subject
    from iris_core.cli.session import Session
    from iris_core.wire.gen.iris.v1.logs_pb2 import FetchLogsRequest

F = TypeVar("F", bound="Callable[..., Any]")
MAX_CONTEXT: Final = 1_000
UNSHIPPED_MS: Final = 5 * 60_000
"""Shipping that is so far behind is worth a word; it ships every minute or so."""
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
    without: str
    context: int | None
    how: str
    save: str
    force: bool
    all_incarnations: bool

    @property
    def is_filtered(self) -> bool:
        """Whether lines that were written may be left out on purpose."""
        return bool(self.since_ms or self.until_ms or self.level or self.substring or self.regex or self.without)


def log_options(function: F) -> F:
    """The options that all three commands share."""
    for option in reversed(
        [
            click.option("-f", "--follow", is_flag=True, help="Go on until it has ended, or --until has passed."),
            click.option("--since", type=Moment(), metavar="TIME", help=f"Only lines from then on: {EXAMPLES} (UTC)."),
            click.option("--until", type=Moment(), metavar="TIME", help="Only lines before then."),
            click.option("--since-ms", type=Whole(0, LAST_MS), metavar="MS", help="Only lines after this epoch time."),
            click.option("--since-seconds", type=Seconds(), metavar="S", help="Only lines of the last S seconds."),
            click.option(
                "--until-ms",
                type=Whole(0, LAST_MS),
                default=0,
                metavar="MS",
                help="Only lines before this epoch time.",
            ),
            click.option("--max-lines", type=Whole(0, MOST), default=0, metavar="N", help="At most N lines, 0 = 1000."),
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
            click.option(
                "--without", default="", metavar="RE2", help="Leave out the lines in which the expression is found."
            ),
            click.option(
                "-C",
                "--context",
                type=Whole(0, MAX_CONTEXT),
                metavar="N",
                help="Also N lines of the same attempt around each match, and all of a traceback that it is part of.",
            ),
            output_option("text", "jsonl"),
            click.option(
                "--save",
                metavar="FILE",
                help="Write to FILE, byte for byte as it was written: everything, or the N lines of --max-lines.",
            ),
            click.option("--force", is_flag=True, help="Replace the file of --save if there is one."),
            click.option("--all-incarnations", is_flag=True, help="Earlier jobs of the same name, too."),
        ]
    ):
        function = option(function)
    return function


def parse_options(**values: Any) -> LogOptions:
    """Checks what click cannot. Raises UsageFailed, ModelError."""
    from iris_core.model.regex import compile_content_regex

    values["since_ms"] = _since_ms(values) or 0
    until = values.pop("until")
    if until is not None and values["until_ms"]:
        raise UsageFailed("--until and --until-ms exclude each other", hint="give one of them")
    # The wire has 0 for no bound.
    values["until_ms"] = max(int(until), 1) if until is not None else values["until_ms"]
    if values["until_ms"] and values["since_ms"] >= values["until_ms"]:
        raise UsageFailed("no time lies between --since and --until", hint="--since is the earlier one")
    if values["regex"]:
        compile_content_regex(values["regex"], field="--regex")
    if values["without"]:
        compile_content_regex(values["without"], field="--without")
    if values["save"] == "":
        raise UsageFailed("--save names no file", hint="it is empty: a variable that is not set?")
    if values["save"] == "-":
        raise UsageFailed(
            "--save names a file, and - is none", hint="without --save the lines go to standard output; ./- is a file"
        )
    values["save"] = values["save"] or ""
    if values["save"] and values["follow"]:
        raise UsageFailed("--save and --follow exclude each other", hint="save when it has ended, or redirect -o jsonl")
    if values["save"] and values["how"] != "text":
        raise UsageFailed(
            "--save and --output exclude each other", hint="--save writes the bytes as they were; redirect -o jsonl"
        )
    if values["force"] and not values["save"]:
        raise UsageFailed("--force belongs to --save", hint="add --save FILE")
    return LogOptions(**{**values, "level": values["level"] or ""})


def _since_ms(values: dict[str, Any]) -> int | None:
    """What `--since`, `--since-ms` or `--since-seconds` said, as the time that lines must be later than."""
    from iris_core.cli.reads import now_ms

    since, since_ms, since_seconds = values.pop("since"), values.pop("since_ms"), values.pop("since_seconds")
    given = [
        name
        for name, value in (("--since", since), ("--since-ms", since_ms), ("--since-seconds", since_seconds))
        if value is not None
    ]
    if len(given) > 1:
        raise UsageFailed(f"{' and '.join(given)} exclude each other", hint="give one of them")
    if since_seconds is not None:
        return max(now_ms() - int(since_seconds * 1000), 0)
    if since is not None:
        return max(int(since) - 1, 0)
    return cast("int | None", since_ms)


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
@click.option("--attempt", type=Whole(0, MOST), metavar="N", help="Only what attempt N wrote.")
@click.pass_obj
def task_logs(session: Session, /, task_id: str, attempt: int | None, **values: Any) -> None:
    """Print what a task wrote, over all its attempts."""
    from iris_core.model.ids import AttemptId, TaskId

    task = TaskId.parse(task_id)
    show(session, task if attempt is None else AttemptId.parse(f"{task}:{attempt}"), parse_options(**values))


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
    from iris_core.cli.log_missing import missing_lines, say_missing
    from iris_core.cli.log_reader import Account
    from iris_core.cli.log_subject import subject_of
    from iris_core.cli.pipeline import say_how_it_is, say_nothing
    from iris_core.cli.submission import own_lines

    subject = subject_of(session.client, target, children=children)
    standing = subject.standing()
    request = filtered(subject.request(0 if options.all_incarnations else standing.incarnation), options)
    account = Account()
    sink = (
        Saver(options.save, force=options.force, progress=session.diagnostics.progress)
        if options.save
        else Printer(options.how)
    )
    reader = _reader(session, request, options, several=standing.several)
    # Before the lines are read: what comes in between is shown and was told missing, never the other way round.
    missing = {} if options.follow else missing_lines(session.client, subject, standing)
    emit = (lambda lines: sink.emit(own_lines(subject, lines))) if options.follow else sink.emit
    try:
        account = _read(reader, emit, options)
    finally:
        sink.close()
        if not options.follow:
            _let_go(reader)
    if isinstance(sink, Saver):
        _say_saved(session, sink, options)
    if options.follow and not options.tail and account.more:
        # Whatever is behind the first lines is what is followed; what is lost stays lost.
        account.more = False
        del account.reasons[0]
    say_left_out(session, options, account)
    if options.follow:
        try:
            _follow(session, options, subject, reader, sink, standing, account)
        finally:
            _let_go(reader)
    elif missing:
        say_missing(session, subject, missing)
    elif not account.shown:
        say_nothing(session, subject, standing, is_filtered=options.is_filtered)
    elif not standing.ended:
        say_how_it_is(session, subject)


def _reader(
    session: Session, request: FetchLogsRequest, options: LogOptions, *, several: bool
) -> LogReader | ContextReader:
    from iris_core.cli.log_context import ContextReader
    from iris_core.cli.log_reader import DEFAULT_LINES, LogReader
    from iris_core.cli.reads import Patience
    from iris_core.cli.silence import Silence

    silence = Silence(session.diagnostics, "the log store")
    if options.context is not None:
        hits = options.max_lines or (0 if options.save else DEFAULT_LINES)
        return ContextReader(
            session.client, request, context=options.context, hits=hits, tail=options.tail, silence=silence
        )
    if not options.save:
        return LogReader(session.client, request, several=several, ask=silence.ask)
    # A long read goes on where it was when the connection breaks.
    patience = Patience(session.diagnostics, "what is saved so far is kept")
    return LogReader(
        session.client, request, several=several, ask=lambda question: patience.ask(lambda: silence.ask(question))
    )


def _read(reader: LogReader | ContextReader, emit: Callable[[Iterable[Line]], None], options: LogOptions) -> Account:
    from iris_core.cli.log_context import ContextReader
    from iris_core.cli.log_reader import DEFAULT_LINES, Account

    account = Account()
    if isinstance(reader, ContextReader):
        emit(reader.lines(account))
    elif options.save and not options.max_lines:
        emit(reader.first(MOST, account))
    elif options.tail:
        lines, account = reader.last(options.max_lines or DEFAULT_LINES)
        emit(lines)
    else:
        emit(reader.first(options.max_lines or DEFAULT_LINES, account))
    return account


def _let_go(reader: LogReader | ContextReader) -> None:
    from iris_core.cli.log_context import ContextReader

    if isinstance(reader, ContextReader):
        reader.close()


def _say_saved(session: Session, sink: Saver, options: LogOptions) -> None:
    verb = "line is" if sink.lost_lines == 1 else "lines are"
    lost = f", {sink.lost_lines:,} {verb} lost and marked there" if sink.lost_lines else ""
    session.diagnostics.note(
        f"saved {sink.lines} line{'s' * (sink.lines != 1)} ({sink.bytes_written} bytes) to {options.save}{lost}"
    )


def filtered(request: FetchLogsRequest, options: LogOptions) -> FetchLogsRequest:
    """The request with the filters of the options."""
    from iris_core.model.levels import LogLevel

    request.since_ms = options.since_ms
    request.until_ms = options.until_ms
    request.substring = options.substring
    request.regex = options.regex
    request.without = options.without
    if options.level:
        request.min_level = cast("Any", LogLevel[options.level.upper()].value)
    return request


def say_left_out(session: Session, options: LogOptions, account: Account) -> None:
    """Tells on standard error that lines are missing, how many, and how to get them; and how it was searched, if it matters."""
    from iris_core.cli.reads import now_ms

    for note in account.notes:
        session.diagnostics.note(note)
    late_ms = now_ms() - account.unshipped_since_ms
    if account.unshipped_since_ms and late_ms > UNSHIPPED_MS:
        session.diagnostics.note(f"the lines of the last {late_ms // 60_000} minutes are on the log store's disk alone")
    if not account.reasons:
        return
    searched = f"; {account.scanned:,} lines were searched" if options.is_filtered else ""
    why = f"({'; '.join(account.reasons)}{searched})"
    lines = f"{account.shown:,} line{'s are' if account.shown != 1 else ' is'} shown"
    if not account.more:
        session.diagnostics.note(f"{lines} {why}")
        return
    if account.matched > account.shown:
        total = f"{account.matched:,}" if account.exact else f"at least {account.matched:,}"
        lines = f"{account.shown:,} of {total} matching lines are shown"
    else:
        lines = f"{lines}, more may match"
    hint = "; --max-lines N shows more" + (", --no-tail the first ones" if options.tail else "")
    session.diagnostics.note(f"{lines} {why}{hint}")


def _follow(
    session: Session,
    options: LogOptions,
    subject: Subject,
    reader: LogReader | ContextReader,
    sink: Printer | Saver,
    standing: Standing,
    account: Account,
) -> None:
    from iris_core.cli.follow import Follower
    from iris_core.cli.log_context import ContextReader
    from iris_core.cli.pipeline import likely_cause

    def emit(lines: Iterable[Line]) -> None:
        sink.emit(map(reader.marked, lines) if isinstance(reader, ContextReader) else lines)

    follower = Follower(
        session.diagnostics,
        subject,
        reader,
        emit,
        several=standing.several,
        until_ms=options.until_ms,
        # With a filter silence says nothing, and whoever saw lines knows that they come.
        explain=lambda now: "" if options.is_filtered or account.shown else likely_cause(session, subject, now),
    )
    try:
        ended = follower.run(account.cursor)
    except KeyboardInterrupt:
        session.diagnostics.note(
            f"{subject.id} goes on; look again with: {session.program} {session.selector()}{subject_word(subject.id)} logs {subject.id} -f"
        )
        raise
    if not ended.ended:
        session.diagnostics.note(f"{subject.id} is {ended.label}; its lines from before --until are shown")
    elif not ended.succeeded:
        # Lines that stop tell nothing of why they do.
        session.diagnostics.note(f"{subject.id} has ended: {ended.label}{f', {ended.reason}' if ended.reason else ''}")


def subject_word(target: str) -> str:
    """The command group for an id."""
    if ":" in target:
        return "attempt"
    last = target.rpartition("/")[2]
    return "task" if last.isdigit() and target.count("/") > 2 else "job"
