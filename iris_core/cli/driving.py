"""One procedure of one cluster on the command line: its journal, its gate, its end.

What is asked, approved, done and found is in a journal; a run that was killed goes on with its id. The approval is the cluster's name,
typed or given, or the token of exactly what a dry run showed; without a terminal nothing is taken for a yes.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from iris_core.cli import output
from iris_core.cli.procedure_options import tokens_of
from iris_core.cli.terminal_line import typed_line
from iris_core.contracts import UsageFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_core.cli.session import Session
    from iris_core.procedures.approvals import Answer, Approver
    from iris_core.procedures.events import Gate, Outcome, Procedure
    from iris_core.procedures.journal import Record

    Make = Callable[[str, dict[str, Any], str, str], Procedure]
    """Of the procedure's name and arguments, its id, and the account that drives it."""

STOPPED: Final = "stopped"


@dataclass(frozen=True, slots=True)
class Asked:
    """How the gate is answered, and where the journal is.

    Attributes:
        confirm: The name of the cluster, None = it is asked for.
        approve: STEP=TOKEN of what is approved exactly as it was shown.
        journal_dir: Where the journal is written, None = the default.
        resume: The id of a run to go on with.
        dry_run: Look at everything, and change nothing.
    """

    confirm: str | None = None
    approve: tuple[str, ...] = ()
    journal_dir: str | None = None
    resume: str | None = None
    dry_run: bool = False


def drive(
    session: Session, cluster: str, doing: str, name: str, arguments: dict[str, Any], asked: Asked, make: Make, known: tuple[str, ...]
) -> Outcome:  # fmt: skip
    """Runs the procedure to its end and says what that is. `doing` is what happens, for a question; a run that is resumed may be any of
    `known`. Raises UsageFailed, IrisError."""
    tokens = tokens_of(asked.approve, "STEP")
    if asked.confirm is not None and asked.confirm != cluster:
        raise UsageFailed(f"nothing was changed: the name of the cluster is {cluster}", hint=f"--confirm {cluster}")
    typed = asked.confirm is None and not tokens and not asked.dry_run
    if typed and (sys.stdin is None or not sys.stdin.isatty()):
        raise UsageFailed(f"{doing}: confirm it with the name of the cluster", hint=f"--confirm {cluster}")
    approver = _Shown(session, asked.confirm, tokens, dry_run=asked.dry_run)
    with contextlib.ExitStack() as stack:
        if asked.dry_run:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="iris-dry-run-")))
        else:
            from iris_core.procedures.journal import journal_dir

            folder = journal_dir(asked.journal_dir)
        arguments = {"cluster": cluster, **arguments}
        kept = "" if asked.dry_run else f", journal in {folder}"
        outcome = asyncio.run(_run(session, name, arguments, approver, folder, asked.resume, make, known, kept))
    output.line(outcome.state)
    for line in outcome.details:
        session.diagnostics.note(line)
    if outcome.next:
        session.diagnostics.note(f"next: {outcome.next}")
    return outcome


async def _run(
    session: Session,
    name: str,
    arguments: dict[str, Any],
    approver: Approver,
    folder: Path,
    resume: str | None,
    make: Make,
    known: tuple[str, ...],
    kept: str,
) -> Outcome:
    """`kept` says where the journal stays, "" where it goes with its folder."""
    from iris_core.live.clock import SystemClock
    from iris_core.procedures import journal
    from iris_core.procedures.approvals import account as driver
    from iris_core.procedures.engine import Engine
    from iris_core.procedures.grammar import check
    from iris_core.procedures.replay import unfit

    if resume:
        opened = journal.Journal.open(journal.path_of(folder, resume))
    else:
        made = f"{name}-{arguments['cluster']}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        opened = journal.Journal.create(journal.path_of(folder, made))
    with opened:
        if resume and opened.records:
            check(opened.path, opened.records)
            cluster, first = arguments["cluster"], opened.records[0]
            name, arguments = str(first["procedure"]), dict(first["arguments"])
            if name not in known or arguments.get("cluster") != cluster:
                raise UsageFailed(f"{resume} is a {name} of {arguments.get('cluster')}, not one of {cluster}")
        account = driver()
        try:
            procedure = make(name, arguments, opened.path.stem, account)
        except (KeyError, TypeError, ValueError) as error:
            if not (resume and opened.records):
                raise
            raise unfit(resume, error) from error
        engine = Engine(opened, approver, SystemClock(), account=account, watch=lambda record: _tell(session, record))

        def end() -> None:
            session.diagnostics.note("ending: what was begun is seen to its end first")
            engine.cancel()

        on_end(end)
        session.diagnostics.note(f"procedure {opened.path.stem}{kept}")
        return await engine.run(name, arguments, procedure)


def on_end(call: Callable[[], None]) -> None:
    """Calls that in place of ending at once when this process is told to end, or when its terminal goes away: a controller may be down.

    Under `nohup` a terminal that goes away is still ignored.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, call)


def _tell(session: Session, record: Record) -> None:
    """One line of the journal, as it is written."""
    from iris_core.model.text import one_line

    say = session.diagnostics.note
    kind = record["type"]
    if kind in ("step", "gathering", "intent"):
        say(one_line(f"{record['title']}{'' if kind == 'step' else ' …'}"))
    elif kind in ("failed", "refused"):
        say(one_line(f"{kind}: {record['message']}"))
    elif kind == "progress" and isinstance(record["value"], dict):
        for line in record["value"].get("lines", ()):
            say(f"  {one_line(str(line))}")


class _Shown:
    """Shows a gate, and answers it with what was given on the command line, else with what is typed."""

    def __init__(self, session: Session, confirm: str | None, tokens: dict[str, str], *, dry_run: bool) -> None:
        self._say = session.diagnostics.note
        self._confirm = confirm
        self._tokens = tokens
        self._dry_run = dry_run

    async def ask(self, gate: Gate) -> Answer:
        from iris_core.model.text import one_line
        from iris_core.procedures.approvals import Answer, GivenTokens
        from iris_core.procedures.events import APPROVE, STOP

        self._say(one_line(gate.title))
        for line in (*gate.effects, *gate.undo):
            self._say(f"  {one_line(line)}")
        if self._dry_run:
            self._say(f"approve exactly this with: --approve {gate.id}={gate.token()}")
            return Answer(STOP, reason="a dry run")
        if self._tokens:
            answer = await GivenTokens(self._tokens).ask(gate)
            if answer.choice == STOP:
                self._say(one_line(answer.reason))
            return answer
        if self._confirm is not None:
            return Answer(APPROVE, typed=self._confirm)
        typed = (await typed_line(f"Type the name of the cluster ({gate.name}) to go on: ")).strip()
        return Answer(APPROVE, typed=typed) if typed else Answer(STOP, reason="nothing was typed")
