"""What has been approved, and how much of it has not been used: each grant is good for one mutation, under the gate that named it.

Must never let anything through that no approved gate names; whether an approval is still fresh enough is a question of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from iris_core.contracts import IrisError
from iris_core.procedures.events import Gate, Grant, Mutation

UNUSED_FOR_MS: Final = 15 * 60_000
"""After a resume, an approval that is older than this and not used up is asked for again."""


class Unapproved(IrisError):
    """A procedure tried to change what no approved gate names: a fault of the procedure, and nothing was done."""


@dataclass(slots=True)
class Approval:
    """One gate that was approved: by whom, when (epoch ms), in which run of the procedure, and what of it is not used up."""

    gate: Gate
    by: str
    at_ms: int
    run: int
    unused: set[Grant] = field(default_factory=set)

    def is_stale(self, account: str, now_ms: int, run: int) -> bool:
        """Whether it has to be asked for again: it is of an earlier run, and of another account or too long ago."""
        return self.run != run and (self.by != account or abs(now_ms - self.at_ms) > UNUSED_FOR_MS)

    def rest(self) -> Gate:
        """The question once more, for what of it has not been done."""
        left = tuple(grant for grant in self.gate.grants if grant in self.unused)
        said = f"{self.by} approved this before; left of it: {', '.join(grant.words for grant in left)}"
        return replace(self.gate, title=f"Go on: {self.gate.title}", grants=left, effects=(said, *self.gate.effects))


class Approvals:
    """The approvals of one procedure, by gate."""

    def __init__(self) -> None:
        self._approvals: dict[str, Approval] = {}

    def note(self, gate: Gate, choice: str, by: str, at_ms: int, run: int) -> None:
        """A gate was answered. A choice that does not approve takes back what was approved before."""
        if choice in gate.approving:
            self._approvals[gate.id] = Approval(gate, by, at_ms, run, set(gate.grants))
        else:
            self._approvals.pop(gate.id, None)

    def of(self, event: Mutation) -> Approval:
        """The approval that names this mutation and has not been used. Raises Unapproved."""
        approval = self._approvals.get(event.gate)
        if approval is None:
            raise Unapproved(f"{event.id}: nobody approved {event.gate}, so nothing was done")
        if event.grant not in approval.gate.grants:
            raise Unapproved(f"{event.id}: {event.gate} does not name {event.grant.words}, so nothing was done")
        if event.grant not in approval.unused:
            raise Unapproved(f"{event.id}: the approval of {event.grant.words} has been used, so nothing was done")
        return approval

    def use(self, event: Mutation) -> None:
        """The grant of this mutation is used up. Raises Unapproved."""
        self.of(event).unused.discard(event.grant)

    def begun(self, event: Mutation) -> bool:
        """Whether anything else has been done under the gate of this mutation, whose own grant is used."""
        approval = self._approvals[event.gate]
        return bool(set(approval.gate.grants) - approval.unused - {event.grant})

    def renewed(self, old: Approval) -> None:
        """What was left of an approval was approved again, under the question that names all of it."""
        self._approvals[old.gate.id] = replace(self._approvals[old.gate.id], gate=old.gate)
