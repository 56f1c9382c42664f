"""What a procedure can yield, and what it gets back.

A procedure is written like a script: `facts = yield Evidence(...)`, `yield Gate(...)`, `yield Mutation(...)`. Everything it learns
of the world comes back through a yield and is journalled, so that it can be run again from its beginning and be at the same
point, without looking or acting twice. It must therefore be deterministic: no clock, no I/O, no randomness of its own. A failure of
what it asked for is raised at the yield as `StepFailed`, to be handled like any exception.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from iris_core.contracts import IrisError

Value = Any
"""JSON: what is journalled and comes back at a yield."""

Report = Callable[[Value], None]
"""Tells of progress while evidence is gathered: a sample, a line. It is journalled and shown, and never comes back."""

STOP: Final = "stop"
APPROVE: Final = "approve"


class StepFailed(IrisError):
    """Evidence could not be had, or a mutation did not succeed: raised at the yield. `step` is the event's id.

    `unknown` says that nobody knows whether the mutation took effect, and `untouched` that it certainly did not begin.
    """

    def __init__(self, step: str, message: str, *, unknown: bool = False, untouched: bool = False) -> None:
        super().__init__(message)
        self.step = step
        self.unknown = unknown
        self.untouched = untouched


class NotStarted(IrisError):
    """Raised by a mutation's `do` before anything was touched: the object is as it was."""


class Cancelled(IrisError):
    """Somebody asked for an end: raised at the next yield, where the procedure may still put things right."""


class Suspended(IrisError):
    """The run was told to leave the procedure where it is: it never reaches the procedure, and a later run goes on."""


class World(StrEnum):
    """What a look at the world says about a mutation that was begun and not seen to end."""

    DONE = "done"
    NOT_DONE = "not_done"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Grant:
    """The exact thing that a gate allows and a mutation does: the verb, the object, and the generation it had.

    `generation` "" means that the object has none, or that the mutation is to undo another one of the same gate.
    """

    verb: str
    kind: str
    id: str
    generation: str = ""

    @property
    def words(self) -> str:
        """`restart controller lab`."""
        return f"{self.verb} {self.kind} {self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A heading: what follows belongs to it. Comes back as None."""

    id: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Something to be looked at; comes back as what `gather` returned. It must change nothing.

    A run that is resumed in the middle of it gathers it from the beginning: a watch of five minutes is never shortened. Where what was
    seen before counts nevertheless, `resumed` gathers it, given what each run that was cut off had reported, the oldest first.
    `held` says that this is no safe point to be left at: what came before it has left the world half done.
    """

    id: str
    title: str
    gather: Callable[[Report], Awaitable[Value]]
    timeout_s: float = 60.0
    held: bool = False
    resumed: Callable[[Report, list[list[Value]]], Awaitable[Value]] | None = None

    def gathering(self, report: Report, earlier: list[list[Value]]) -> Awaitable[Value]:
        """The gathering, after what earlier runs had reported of it."""
        return self.gather(report) if self.resumed is None else self.resumed(report, earlier)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A question to a person; comes back as the choice. "stop" is always among the choices, and silence is no answer.

    Attributes:
        grants: What is allowed by approving, exactly; nothing else is.
        tier: 3 = the name has to be typed (`name`).
        effects: What happens on approval, one line each.
        undo: What can be undone afterwards and how; what cannot.
        command: The command line that does the same.
        approving: The choices that approve; the others do not.
        evidence: What the answer rests on (a tree's hash, counts): part of the token.
    """

    id: str
    title: str
    grants: tuple[Grant, ...] = ()
    tier: int = 3
    name: str = ""
    effects: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    command: str = ""
    choices: tuple[str, ...] = (APPROVE, STOP)
    approving: tuple[str, ...] = (APPROVE,)
    evidence: Value = None

    def token(self) -> str:
        """Twelve digits that stand for exactly this question: an approval given beforehand names them, and is void for another."""
        parts = [
            self.id, self.name, [[g.verb, g.kind, g.id, g.generation] for g in self.grants], list(self.effects), self.evidence,
        ]  # fmt: skip
        text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """Something that changes the world; comes back as what `do` returned.

    Attributes:
        grant: Must be among the grants of the approved gate `gate`, and is used up by this.
        do: Does it. Raises NotStarted if it certainly did nothing, another IrisError if it failed.
        look: Says whether it has been done, by looking; asked after a crash or a time-out, in place of doing it again.
        result: What comes back when `look` found it done.
        generation: What the object's generation is now; compared with the grant's right before.
        held: As of Evidence: the run is not left before it.
    """

    id: str
    title: str
    gate: str
    grant: Grant
    do: Callable[[], Awaitable[Value]]
    look: Callable[[], Awaitable[World]]
    result: Callable[[], Awaitable[Value]] | None = None
    generation: Callable[[], Awaitable[str]] | None = None
    timeout_s: float = 600.0
    held: bool = False


class Status(StrEnum):
    """How a procedure ended."""

    DONE = "done"
    STOPPED = "stopped"
    """A person chose to stop at a gate; nothing is half done."""
    FAILED = "failed"
    ROLLED_BACK = "rolled_back"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"
    """Nobody knows whether a mutation took effect: a person has to look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end. `state` says in one line how the world was left, `next` what to do."""

    status: Status
    state: str
    next: str = ""
    details: tuple[str, ...] = field(default=())

    @property
    def exit_code(self) -> int:
        """0 if it was done, else 1."""
        return 0 if self.status is Status.DONE else 1


Event = Step | Evidence | Gate | Mutation | Outcome
Procedure = AsyncGenerator[Event, Value]
