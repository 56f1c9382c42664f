"""The rollouts of a journal folder: which there are, how they stand, and one run of one of them.

Command line and console begin and go on with a rollout here, so that what one began the other goes on with. What a rollout is about is in
the first line of its journal, and a run that goes on takes it from there, never from the words of its own command line.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from iris_core.cli import rollout_fleet
from iris_core.cli.rollout_fleet import Scope, Shipping, fleet
from iris_core.contracts import IrisError, UsageFailed
from iris_core.live.clock import SystemClock
from iris_core.model.redact import redact_text
from iris_core.model.resources import format_age
from iris_core.model.text import one_line
from iris_core.procedures import grammar, journal, rollout_report, rollout_scope
from iris_core.procedures.approvals import account
from iris_core.procedures.engine import Engine
from iris_core.procedures.progress import Progress
from iris_core.procedures.replay import unfit
from iris_core.procedures.rollout import CHECKPOINT_S, NAME, is_older, rollout

if TYPE_CHECKING:
    from iris_core.cli.session import Session
    from iris_core.live.clock import Clock
    from iris_core.procedures.approvals import Approver
    from iris_core.procedures.events import Outcome
    from iris_core.procedures.journal import Journal, Record
    from iris_core.procedures.rollout import Fleet

PREFIX: Final = "rollout-"


@dataclass(frozen=True, slots=True)
class Known:
    """A rollout of the folder: its id, its lines, and whether somebody drives it now."""

    id: str
    path: Path
    records: list[Record]
    driven: bool

    @property
    def progress(self) -> Progress:
        """How far it is."""
        return Progress.of(self.records)

    @property
    def clusters(self) -> list[str]:
        """Those that it names, in order."""
        return rollout_report.clusters(self.records)

    @property
    def ended(self) -> bool:
        """Whether it came to its end."""
        return any(record["type"] == "ended" for record in self.records)

    @property
    def changed_something(self) -> bool:
        """Whether it began to change anything."""
        return any(record["type"] == "intent" for record in self.records)

    def state(self) -> str:
        """Its end, or what it is at."""
        progress = self.progress
        if self.ended:
            return progress.status
        if progress.asked is not None:
            return f"waits at {progress.asked['event']}" + ("" if self.driven else ", left")
        return "goes on" if self.driven else "left"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A journal of the folder that says nothing, and why, in one line with its path."""

    id: str
    path: Path
    why: str


@dataclass(frozen=True, slots=True)
class Listing:
    """All rollouts of a folder, the newest first, and the journals of which nothing can be said."""

    known: list[Known]
    unreadable: list[Unreadable]


def find(folder: Path, procedure: str) -> Known:
    """The rollout of that id. Raises IrisError: there is none, it is another procedure, or its lines are not what a rollout writes."""
    path = journal.path_of(folder, procedure)
    return _known(path, journal.read(path))


def _known(path: Path, records: list[Record]) -> Known:
    """The rollout of these lines. Raises as `find`."""
    grammar.check(path, records)
    if not records or records[0]["procedure"] != NAME:
        raise IrisError(f"{path.stem} is no rollout", hint="rollout status lists them")
    found = Known(path.stem, path, records, journal.is_driven(path))
    try:
        found.state()
        rollout_report.markdown(path.stem, records)  # reads all that anything shows of it
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, OSError) as error:
        raise journal.JournalBroken(
            f"{path}: {type(error).__name__}: {error}: not what a rollout writes",
            hint="it was changed from outside, or another version wrote it; a person must look",
        ) from error
    return found


def listing(folder: Path) -> Listing:
    """The rollouts of the folder, and what cannot be read of it. A journal without a line is one that was begun this moment."""
    found, unreadable = [], []
    for path in folder.glob(f"{PREFIX}*{journal.SUFFIX}"):
        try:
            if records := journal.read(path):
                found.append(_known(path, records))
        except IrisError as error:
            words = error.message if str(path) in error.message else f"{path}: {error.message}"
            unreadable.append(Unreadable(path.stem, path, one_line(words)))
    found.sort(key=lambda one: int(one.records[0]["at_ms"]), reverse=True)
    return Listing(found, sorted(unreadable, key=lambda one: one.id, reverse=True))


def chosen(folder: Path, procedure: str | None) -> Known:
    """The rollout of that id; without one the only one that has not ended, else the newest. Raises IrisError, UsageFailed."""
    if procedure is not None:
        return find(folder, procedure)
    there = listing(folder)
    all_of_them = there.known
    if not all_of_them and there.unreadable:
        raise journal.JournalBroken(
            there.unreadable[0].why, hint="a person must look; rollout status lists all of them"
        )
    if not all_of_them:
        raise IrisError(f"there is no rollout in {folder}", hint="begin one: rollout run")
    open_ones = [one for one in all_of_them if not one.ended and one.changed_something] or [
        one for one in all_of_them if not one.ended
    ]
    if len(open_ones) > 1:
        raise UsageFailed(
            f"{len(open_ones)} rollouts have not ended: {', '.join(one.id for one in open_ones)}", hint="name one"
        )
    return open_ones[0] if open_ones else all_of_them[0]


def require_none_open(folder: Path, names: Sequence[str], now_ms: int) -> list[Unreadable]:
    """Raises IrisError: a rollout of one of these clusters was begun, has changed something, and has not ended.

    Comes back with the journals that may be about one of them, too: nothing can be said of those.
    """
    there = listing(folder)
    for one in there.known:
        shared = [name for name in names if name in one.clusters]
        if one.ended or not one.changed_something or not shared:
            continue
        age = format_age(max(now_ms - int(one.records[0]["at_ms"]), 0))
        how = "is driven by another process" if one.driven else "was left"
        hint = (
            f"watch it: rollout status {one.id}"
            if one.driven
            else f"go on with it: rollout resume {one.id}; or end it: rollout abort {one.id}"
        )
        raise IrisError(
            f"{shared[0]} is in rollout {one.id}, which {one.progress.started_by} began {age} ago and which {how}",
            hint=hint,
        )
    return there.unreadable


@dataclass(slots=True)
class Run:
    """One run of a rollout. Close its journal when it is over."""

    journal: Journal
    arguments: dict[str, Any]
    session: Session
    account: str

    @property
    def id(self) -> str:
        """Of the procedure."""
        return self.journal.path.stem

    def engine(self, approver: Approver, watch: Callable[[Record], None] = lambda record: None) -> Engine:
        """What drives it."""
        return Engine(self.journal, approver, SystemClock(), account=self.account, watch=watch)

    def watch_clock(self) -> Clock:
        """That of the watch alone: the machine's own, unless a program of the tests handed in another one."""
        return self.session.clock or SystemClock()

    async def drive(self, engine: Engine) -> Outcome:
        """Runs it to its end, or until it is left. Raises what `Engine.run` does, UsageFailed."""
        try:
            made = await asyncio.to_thread(self._fleet)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if not self.journal.records:
                raise
            raise unfit(self.id, error) from error
        return await engine.run(NAME, self.arguments, rollout(made))

    def _fleet(self) -> Fleet:
        said = self.arguments
        known = candidates_of(self.session, said)
        made = fleet(
            self.session,
            Scope(rollout_scope.named(known, said["clusters"]), bool(said["named"])),
            Shipping(said["upstream"], bool(said["fetch"]), said["checks_command"]),
            Path(said["folder"]),
            self.watch_clock(),
            procedure=self.id,
            account=self.account,
            owner=said["owner"],
            checkpoint_timeout_s=float(said["checkpoint_timeout_s"]),
        )
        return replace(made, older=is_older(self.journal.records))


def candidates_of(session: Session, arguments: dict[str, Any]) -> list[rollout_scope.Candidate]:
    """The clusters that a journal can name, found as the run that began it found them."""
    from iris_core.cli.rollout_fleet import candidates

    session.config = arguments["config"]
    session.cluster = ""
    return candidates(session)


def listed(session: Session) -> tuple[list[rollout_scope.Candidate], str]:
    """The clusters in the order of a rollout that names none, each with why it cannot be taken; and what kept them from being read."""
    try:
        known = rollout_scope.ordered(rollout_fleet.candidates(session))
    except IrisError as error:
        return [], error.message
    found = []
    for candidate in known:
        try:
            rollout_scope.check([candidate])
            rollout_fleet.reached_all(session, [candidate.name])
        except IrisError as error:
            refusal = candidate.refusal or error.message.removeprefix(f"{candidate.name}: ")
            candidate = replace(candidate, refusal=refusal)
        found.append(candidate)
    return found, ""


def begin(
    session: Session, folder: Path, scope: Scope, shipping: Shipping, tree: Path, *, checkpoint_timeout_s: float = CHECKPOINT_S,
    who: str = "",
) -> Run:  # fmt: skip
    """A new rollout: its journal is made, and nothing is looked at yet. Raises IrisError, UsageFailed."""
    import os

    from iris_core.sdk.submission import owner_of

    if redact_text(shipping.checks_command) != shipping.checks_command:
        raise UsageFailed(
            "the checks command has what looks like a secret, and would stand in the journal",
            hint="put it in the environment, and name the variable",
        )
    # One that cannot be read may be about these clusters: their locks would say so.
    for one in require_none_open(folder, scope.names, time.time_ns() // 1_000_000):
        session.diagnostics.warn(f"{one.why}; what that rollout left is not known")
    arguments = {
        "clusters": scope.names,
        "named": scope.named,
        "config": str(Path(session.config).absolute()) if session.config else "",
        "folder": str(tree.absolute()),
        "upstream": shipping.upstream,
        "fetch": shipping.fetch,
        "checks_command": shipping.checks_command,
        "checkpoint_timeout_s": checkpoint_timeout_s,
        "owner": owner_of(None, os.environ),
    }
    made = f"{PREFIX}{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
    return Run(journal.Journal.create(journal.path_of(folder, made)), arguments, session, who or account())


def go_on(session: Session, one: Known, who: str = "") -> Run:
    """Another run of a rollout that has not ended. Raises JournalHeld, JournalBroken, IrisError."""
    opened = journal.Journal.open(one.path)
    try:
        grammar.check(one.path, opened.records)
        arguments = dict(opened.records[0]["arguments"])
    except BaseException as error:
        opened.close()
        if not isinstance(error, IndexError):
            raise
        raise IrisError(f"{one.id} has nothing to go on with", hint="begin anew: rollout run") from None
    return Run(opened, arguments, session, who or account())
