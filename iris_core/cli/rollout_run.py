"""`rollout run|resume|abort`: one run of a rollout, on a terminal or without one.

A gate that nobody answers leaves the rollout where it is, with the token that would answer it: that is how it runs without a terminal.
Ctrl-C leaves it at the next point at which nothing is half done, and says how to go on. Must never take silence for an answer.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iris_core.cli import output
from iris_core.cli.diagnostics import PipeClosed
from iris_core.cli.options import output_option
from iris_core.cli.procedure_options import checkpoint_timeout_option, tokens_of
from iris_core.cli.rollout_options import (
    answer_options,
    clusters_option,
    folder_of,
    journal_option,
    shipping_of,
    shipping_options,
)
from iris_core.contracts import IrisError, UsageFailed

if TYPE_CHECKING:
    from iris_core.cli.rollout_runs import Run
    from iris_core.cli.session import Session
    from iris_core.procedures.events import Outcome
    from iris_core.procedures.journal import Record


@click.command(short_help="Ship the tree that is here to the clusters, one after the other.")
@clusters_option
@shipping_options
@checkpoint_timeout_option
@answer_options
@journal_option
@output_option("table", "jsonl")
@click.pass_obj
def run(
    session: Session,
    clusters: str | None,
    upstream: str,
    no_fetch: bool,
    checks_command: str,
    checkpoint_timeout: float,
    confirm: tuple[str, ...],
    approve: tuple[str, ...],
    journal_dir: str | None,
    how: output.Format,
) -> int:
    """Ship the tree around the working directory to the clusters, one after the other.

    All are looked at, then the tree is approved by its hash. Each cluster is asked for by its name, restarted, and watched for five minutes,
    which nothing shortens; then the next one is asked for. The first failure ends it. Exit code 0 when all run the tree, 2 when a gate
    waits for an answer: the line that answers it is printed.

    \b
    iris-core rollout run --clusters lab,h1
    """
    from iris_core.cli import rollout_fleet, rollout_runs

    tokens = tokens_of(approve, "GATE")
    shipping = shipping_of(upstream, no_fetch, checks_command)
    wanted = rollout_fleet.scope(session, clusters)
    begun = rollout_runs.begin(
        session, folder_of(journal_dir), wanted, shipping, Path.cwd(), checkpoint_timeout_s=checkpoint_timeout
    )
    return _drive(session, begun, tokens, confirm, journal_dir, how)


@click.command(short_help="Go on with a rollout that was left or killed.")
@click.argument("procedure", metavar="[ID]", required=False)
@answer_options
@journal_option
@output_option("table", "jsonl")
@click.pass_obj
def resume(
    session: Session,
    procedure: str | None,
    confirm: tuple[str, ...],
    approve: tuple[str, ...],
    journal_dir: str | None,
    how: output.Format,
) -> int:
    """Go on with a rollout that was left or killed, also one of another account: what was done is not done again.

    A watch that was cut off begins anew, and one that had failed already stays failed. Approvals of another account, or of more than a quarter of an hour ago, are asked for again.

    \b
    iris-core rollout resume
    iris-core rollout resume rollout-20260101-120000-ab12 --approve lab/restart=0123456789ab
    """
    from iris_core.cli import rollout_runs

    tokens = tokens_of(approve, "GATE")
    one = rollout_runs.chosen(folder_of(journal_dir), procedure)
    return _drive(session, rollout_runs.go_on(session, one), tokens, confirm, journal_dir, how)


@click.command(short_help="End a rollout, and put right what it had begun.")
@click.argument("procedure", metavar="[ID]", required=False)
@answer_options
@journal_option
@output_option("table", "jsonl")
@click.pass_obj
def abort(
    session: Session,
    procedure: str | None,
    confirm: tuple[str, ...],
    approve: tuple[str, ...],
    journal_dir: str | None,
    how: output.Format,
) -> int:
    """End a rollout that was left or killed: what it had begun is put right, its locks are given back, and the state that is left is said.

    \b
    iris-core rollout abort
    """
    from iris_core.cli import rollout_runs

    tokens = tokens_of(approve, "GATE")
    one = rollout_runs.chosen(folder_of(journal_dir), procedure)
    if one.ended:
        raise IrisError(f"{one.id} has ended: {one.progress.state}")
    return _drive(session, rollout_runs.go_on(session, one), tokens, confirm, journal_dir, how, end=True)


def _drive(
    session: Session,
    begun: Run,
    tokens: dict[str, str],
    confirm: tuple[str, ...],
    journal_dir: str | None,
    how: output.Format,
    *,
    end: bool = False,
) -> int:
    from iris_core.cli.rollout_answers import LineApprover, terminal_reader
    from iris_core.procedures.approvals import Unanswered
    from iris_core.procedures.events import Suspended

    say = session.diagnostics.note
    where = f" --journal-dir {shlex.quote(journal_dir)}" if journal_dir else ""
    again = f"{session.program} rollout resume {begun.id}{where}"
    approver = LineApprover(tokens, confirm, again, say, terminal_reader())
    with begun.journal:
        try:
            outcome = asyncio.run(_run(session, begun, approver, how, end=end))
        except Suspended:
            _say_left(session, begun, again)
            return 130
        except PipeClosed:
            _say_left(session, begun, again)
            raise
        except Unanswered as error:
            if how == "jsonl":
                output.flush()
            failed = UsageFailed(error.message, hint=error.hint)
            raise failed from error
    _prune(session, begun, outcome)
    if how == "table":
        output.line(outcome.state)
    for line in outcome.details:
        say(line)
    if outcome.next:
        say(f"next: {outcome.next}")
    say(f"report: {session.program} rollout report {begun.id}{where}")
    return 0 if end and str(outcome.status) == "cancelled" else outcome.exit_code


async def _run(session: Session, begun: Run, approver: Any, how: output.Format, *, end: bool) -> Outcome:
    from iris_core import programs
    from iris_core.cli.driving import on_end
    from iris_core.procedures import telling

    say = session.diagnostics.note

    def watch(record: Record) -> None:
        if how == "jsonl":
            output.line(output.as_json_line(record))
            output.flush()
            return
        for line in telling.words(record):
            say(line)

    engine = begun.engine(approver, watch)
    interrupts = 0

    def leave() -> None:
        nonlocal interrupts
        interrupts += 1
        if interrupts > 1:
            # As a kill would: the journal has every line that matters on the disk.
            programs.end_all()
            os._exit(130)
        say("leaving at the next point at which nothing is half done; Ctrl-C again leaves at once")
        engine.suspend()

    on_end(leave)
    say(f"{begun.id}, journal in {begun.journal.path.parent}")
    if end:
        engine.cancel()
    return await begun.drive(engine)


def _say_left(session: Session, begun: Run, again: str) -> None:
    """Where it stands, what runs there, and the one command that goes on."""
    from iris_core.cli.rollout_runs import Known
    from iris_core.procedures import rollout_report

    one = Known(begun.id, begun.journal.path, begun.journal.records, driven=False)
    for name in one.clusters:
        runs = rollout_report.runs(one.records, name)
        session.diagnostics.note(
            f"{name}: {rollout_report.standing(one.records, name)}" + (f", runs {runs[:12]}" if runs else "")
        )
    session.diagnostics.note(f"left at: {one.progress.step or 'the beginning'}")
    session.diagnostics.note(f"next: {again}")


def _prune(session: Session, begun: Run, outcome: Outcome) -> None:
    """Makes room where every cluster runs the tree."""
    if outcome.exit_code:
        return
    from iris_core.cli.controller_restart import prune_releases
    from iris_core.cli.rollout_fleet import reached_all

    for one in reached_all(session, begun.arguments["clusters"]):
        prune_releases(one.session, one.found)
