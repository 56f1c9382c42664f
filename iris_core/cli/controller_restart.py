"""`cluster controller restart`: ships the tree around the working directory to a controller of this machine, step by step.

What is asked, approved, done and found is in a journal; a run that was killed goes on with `--resume`. The approval names the tree by
its hash, and the cluster's name is typed, or given with `--confirm`; without a terminal nothing is taken for a yes.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import secrets
import shlex
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from iris_core.cli import output
from iris_core.cli.options import Seconds
from iris_core.contracts import IrisError, UsageFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_core.cli.deployment import Deployment
    from iris_core.cli.session import Session
    from iris_core.procedures.approvals import Answer, Approver
    from iris_core.procedures.events import Gate, Outcome
    from iris_core.procedures.journal import Record
    from iris_core.procedures.restart import Target
    from iris_core.procedures.source_tree import SourceTree

NAME: Final = "restart"
CHECKPOINT_S: Final = 300


@click.command(short_help="Restart the controller of this machine into the tree that is here.")
@click.option("--skip-checkpoint", is_flag=True, help="Take no checkpoint: there is none to go back to then.")
@click.option(
    "--checkpoint-timeout",
    type=Seconds(1),
    default=CHECKPOINT_S,
    show_default=True,
    metavar="S",
    help="Wait at most so long for each checkpoint.",
)
@click.option("--confirm", metavar="CLUSTER", help="The name of the cluster, instead of being asked for it.")
@click.option(
    "--approve", multiple=True, metavar="STEP=TOKEN", help="Approve exactly what --dry-run showed under this token."
)
@click.option("--journal-dir", metavar="DIR", help="Where the journal is written. Default: $IRIS_JOURNAL_DIR.")
@click.option("--resume", metavar="ID", help="Go on with a restart that was killed.")
@click.option("--dry-run", is_flag=True, help="Look at everything, show what would be done, and change nothing.")
@click.pass_obj
def restart(
    session: Session,
    skip_checkpoint: bool,
    checkpoint_timeout: float,
    confirm: str | None,
    approve: tuple[str, ...],
    journal_dir: str | None,
    resume: str | None,
    dry_run: bool,
) -> int:
    """Restart the controller of this machine into the tree around the working directory: some seconds without a controller.

    Workers and tasks go on. The release is built and a checkpoint taken before anything is touched; a release that does not come up is
    replaced by the one before, unless it has changed the database. Exit code 1 whenever the new release does not run in the end.

    \b
    iris-core --config lab.yaml cluster controller restart --dry-run
    iris-core --config lab.yaml cluster controller restart --confirm lab
    """
    from iris_core.cli.deployment import deployment

    found = deployment(session)
    store = found.store()
    tokens = _tokens(approve)
    if confirm is not None and confirm != found.name:
        raise UsageFailed(
            f"nothing was changed: the name of the cluster is {found.name}", hint=f"--confirm {found.name}"
        )
    asked = confirm is None and not tokens and not dry_run
    if asked and (sys.stdin is None or not sys.stdin.isatty()):
        raise UsageFailed(
            f"restarting the controller of {found.name}: confirm it with the name of the cluster",
            hint=f"--confirm {found.name}",
        )
    approver = _Shown(session, confirm, tokens, dry_run=dry_run)
    options = {"skip_checkpoint": skip_checkpoint, "checkpoint_timeout_s": checkpoint_timeout}
    with contextlib.ExitStack() as stack:
        if dry_run:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="iris-dry-run-")))
        else:
            from iris_core.procedures.journal import journal_dir as place

            folder = place(journal_dir)
        outcome = asyncio.run(_run(session, found, store, approver, folder, resume, options))
    if outcome.exit_code == 0:
        prune_releases(session, found)
    output.line(outcome.state)
    for line in outcome.details:
        session.diagnostics.note(line)
    if outcome.next:
        session.diagnostics.note(f"next: {outcome.next}")
    return 0 if dry_run and str(outcome.status) == "stopped" else outcome.exit_code


def prune_releases(session: Session, found: Deployment) -> None:
    """Removes releases that nothing runs from and nobody goes back to; what was deployed last and before that stays."""
    from iris_core.cli.deployment import short
    from iris_core.procedures import record

    # The restart is done; room that is not made now is made by the next one.
    with contextlib.suppress(IrisError, OSError):
        standing = record.read(found.store()).record
        kept = (standing.image, standing.previous_image) if standing is not None else ()
        for release in found.prune(kept):
            session.diagnostics.note(f"removed release {short(release)}, from which nothing runs")


def _tokens(approve: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for word in approve:
        step, separator, token = word.partition("=")
        if not (step and separator and token):
            raise UsageFailed(f"--approve {word}: write it as STEP=TOKEN")
        found[step] = token
    return found


async def _run(
    session: Session,
    found: Deployment,
    store: Any,
    approver: Approver,
    folder: Path,
    resume: str | None,
    options: dict[str, Any],
) -> Outcome:
    from iris_core.live.clock import SystemClock
    from iris_core.procedures import journal
    from iris_core.procedures.engine import Engine
    from iris_core.procedures.restart import restart as procedure
    from iris_core.procedures.source_tree import freeze

    say = session.diagnostics.note
    if resume:
        opened = journal.Journal.open(journal.path_of(folder, resume))
    else:
        made = f"{NAME}-{found.name}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        opened = journal.Journal.create(journal.path_of(folder, made))
    with opened:
        arguments = {"cluster": found.name, **options}
        if resume and opened.records:
            arguments = dict(opened.records[0].get("arguments") or {})
            if arguments.get("cluster") != found.name:
                raise UsageFailed(f"{resume} is a restart of {arguments.get('cluster')}, not of {found.name}")
        account = getpass.getuser()
        target = target_of(session, found, store, opened.path.stem, account, lambda: freeze(Path.cwd()))
        engine = Engine(opened, approver, SystemClock(), account=account, watch=lambda record: _tell(session, record))
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, engine.cancel)
        say(f"procedure {opened.path.stem}, journal in {opened.path.parent}")
        return await engine.run(
            NAME,
            arguments,
            procedure(
                target,
                skip_checkpoint=bool(arguments["skip_checkpoint"]),
                checkpoint_timeout_s=float(arguments["checkpoint_timeout_s"]),
            ),
        )


def target_of(
    session: Session, found: Deployment, store: Any, procedure: str, account: str, tree: Callable[[], SourceTree]
) -> Target:
    """What a restart of this deployment works on; `procedure` holds the lock, `tree` freezes what is shipped."""
    from iris_core.procedures.lock import Holder
    from iris_core.procedures.restart import Target
    from iris_core.wire.gen.iris.v1 import checkpoints_pb2, controller_pb2

    def now_ms() -> int:
        return time.time_ns() // 1_000_000

    def running() -> dict[str, int]:
        said = session.client.call(
            "ControllerService/GetClusterStatus",
            controller_pb2.GetClusterStatusRequest(),
            controller_pb2.GetClusterStatusResponse,
            timeout_s=20.0,
        )
        return dict(said.tasks_by_state)

    def checkpoint(stop: bool, timeout_s: float) -> str:
        made = session.client.call(
            "ControllerService/BeginCheckpoint",
            checkpoints_pb2.BeginCheckpointRequest(stop=stop),
            checkpoints_pb2.BeginCheckpointResponse,
            timeout_s=timeout_s,
        )
        return made.checkpoint_path

    return Target(
        name=found.name,
        host=found.host,
        store=store,
        holder=Holder(procedure, account, socket.gethostname(), now_ms()),
        now_ms=now_ms,
        freeze=tree,
        build=lambda tree: found.built(tree, now_ms(), session),
        schema=found.host.schema,
        running=running,
        checkpoint=checkpoint,
        restore_hint=found.restore_hint,
        command=shlex.join([session.program, *session.argv]),
    )


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
        typed = await _typed(gate.name)
        return Answer(APPROVE, typed=typed) if typed else Answer(STOP, reason="nothing was typed")


async def _typed(name: str) -> str:
    """A line of the terminal. No thread waits for it: one could not be ended by Ctrl-C."""
    sys.stderr.write(f"Type the name of the cluster ({name}) to go on: ")
    sys.stderr.flush()
    loop, ready, handle = asyncio.get_running_loop(), asyncio.Event(), sys.stdin.fileno()
    loop.add_reader(handle, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(handle)
    return os.read(handle, 4096).decode(errors="replace").strip()
