"""A procedure inside another one: `outcome = yield Inner("lab/", restart(…))`, and the engine sees one procedure.

So a rollout restarts each cluster by the very procedure that `cluster controller restart` runs, with its gate and its grants, and no
second way to restart anything exists. What the outer one may do is add to a gate (a question more, never one less), keep a mutation
back to do it later itself, and hold the run together while a controller is down. Must never answer a gate by itself.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection
from dataclasses import dataclass, field, replace

from iris_core.contracts import IrisError
from iris_core.procedures.events import (
    STOP,
    Cancelled,
    Event,
    Evidence,
    Gate,
    Mutation,
    Outcome,
    Procedure,
    Status,
    StepFailed,
    Value,
)
from iris_core.procedures.replay import JournalMismatch


@dataclass(slots=True, eq=False)
class Inner:
    """One procedure inside another. Yielded, it comes back as its outcome once it has ended.

    Attributes:
        prefix: Stands before the ids of all its events: `lab/`.
        procedure: The inner one, not yet begun.
        is_part: It is only a part of the outer one: it yields no outcome, and what it raises is raised at the yield. The failure of
            any other becomes its outcome, as the engine would have it.
        gate: What a gate asks in place of what the inner one asks; choices that it adds reach the inner one as "stop".
        keep: Ids of mutations that are not done but kept for later; the inner one takes them for done.
        hold_from: Id of the mutation from whose end on the run is not left until the inner one has ended.
        around: Lays something around what a mutation does.
        choice: What was last chosen at a gate of it.
        kept: The mutations that were kept, to be yielded as they are.
        came: What came back at its own yields, by the id of the event as it has it.
    """

    prefix: str
    procedure: Parts
    is_part: bool = False
    gate: Callable[[Gate], Gate] = lambda gate: gate
    keep: Collection[str] = ()
    hold_from: str = ""
    around: Callable[[Mutation], Mutation] = lambda mutation: mutation
    choice: str = ""
    kept: list[Mutation] = field(default_factory=list)
    came: dict[str, Value] = field(default_factory=dict)
    _holding: bool = False
    _choices: tuple[str, ...] = ()

    async def next(self, answer: Value, error: IrisError | None) -> Event | Inner | None:
        """Its next event, given what the last one came to; None if it has ended without an outcome."""
        try:
            if error is not None:
                return await self.procedure.athrow(error)
            return await self.procedure.asend(answer)
        except StopAsyncIteration:
            return None if self.is_part else Outcome(status=Status.FAILED, state="it ended without saying how")
        except IrisError as raised:
            if self.is_part or isinstance(raised, JournalMismatch):
                raise
            return _ended(raised)

    def outwards(self, event: Event) -> Event:
        """The event as the outer one yields it."""
        held = self._holding
        if isinstance(event, Mutation):
            self._holding = self._holding or (bool(self.hold_from) and event.id == self.hold_from)
            made = self.around(event)
            return replace(made, id=f"{self.prefix}{made.id}", gate=f"{self.prefix}{made.gate}", held=made.held or held)
        if isinstance(event, Gate):
            self._choices = event.choices
            event = self.gate(event)
        if isinstance(event, Evidence):
            event = replace(event, held=event.held or held)
        assert not isinstance(event, Outcome)
        return replace(event, id=f"{self.prefix}{event.id}")

    def inwards(self, choice: str) -> str:
        """A choice as the inner one knows it."""
        self.choice = choice
        return choice if choice in self._choices else STOP


Parts = AsyncGenerator[Event | Inner, Value]
"""A procedure that may yield others."""


async def flat(procedure: Parts) -> Procedure:
    """The procedure with all that is inside it, as one."""
    stack = [Inner("", procedure, is_part=True)]
    answer: Value = None
    error: IrisError | None = None
    try:
        while True:
            top = stack[-1]
            try:
                event = await top.next(answer, error)
            except IrisError as raised:
                stack.pop()
                if not stack:
                    raise
                answer, error = None, raised
                continue
            answer, error = None, None
            if isinstance(event, Inner):
                stack.append(event)
                continue
            if event is None or isinstance(event, Outcome):
                stack.pop()
                await top.procedure.aclose()
                if not stack:
                    if event is not None:
                        yield event
                    return
                answer = event
                continue
            if isinstance(event, Mutation) and event.id in top.keep:
                kept = top.outwards(event)  # and no further out: whoever yields it later stands just outside
                assert isinstance(kept, Mutation)
                top.kept.append(kept)
                continue
            shown: Event = event
            for inner in reversed(stack):
                shown = inner.outwards(shown)
            try:
                answer = yield shown
            except IrisError as raised:
                if isinstance(raised, StepFailed):
                    raised.step = event.id
                error = raised
            else:
                if isinstance(event, Gate):
                    for inner in stack:
                        answer = inner.inwards(answer)
                top.came[event.id] = answer
    finally:
        for inner in reversed(stack):
            await inner.procedure.aclose()


def _ended(error: IrisError) -> Outcome:
    """What the engine would say of a failure that a procedure does not handle."""
    if isinstance(error, Cancelled):
        return Outcome(status=Status.CANCELLED, state="cancelled; nothing was changed")
    if isinstance(error, StepFailed):
        status = Status.UNKNOWN if error.unknown else Status.FAILED
        return Outcome(status=status, state=f"{error.step}: {error.message}", next=error.hint)
    return Outcome(status=Status.FAILED, state=error.message, next=error.hint)
