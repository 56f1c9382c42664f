"""What the journal of a procedure holds of its earlier runs, handed out event by event as the procedure comes to each again.

The order is held to: a procedure that comes to another event than the journal has is another version, and nothing of it may be done.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from iris_core.contracts import IrisError
from iris_core.procedures.events import Outcome, Status, StepFailed

if TYPE_CHECKING:
    from iris_core.procedures.events import Gate, Value
    from iris_core.procedures.journal import Record


class JournalMismatch(IrisError):
    """The procedure does not do what the journal says it did: another version wrote it."""


def unfit(name: str, error: Exception) -> JournalMismatch:
    """What is raised where a journal's values are not those that this version wants."""
    return JournalMismatch(
        f"{name} holds what cannot be gone on from: {error!r}", hint="go on with the version that wrote it"
    )


class Replay:
    """The past of one procedure. Lines that are written while it runs are not part of it.

    Attributes:
        run: The number of the run that the next event belongs to, 1 = the first; each line that is handed out has its own as `run`.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self.run = 0
        self._past: dict[str, list[Record]] = {}
        self._seen: set[str] = set()
        for record in records:
            if record["type"] in ("started", "resumed"):
                self.run += 1
            name = record.get("event")
            if isinstance(name, str):
                self._past.setdefault(name, []).append({**record, "run": self.run})
        self._order = list(self._past)

    def of(self, name: str) -> list[Record]:
        """The lines about the event that the procedure has come to, none if no run came so far. Raises JournalMismatch."""
        if name in self._seen:
            raise JournalMismatch(f"two events of the procedure are called {name}")
        if len(self._seen) < len(self._order) and self._order[len(self._seen)] != name:
            raise JournalMismatch(
                f"the journal has {self._order[len(self._seen)]} where the procedure has {name}",
                hint="go on with the version that began it",
            )
        self._seen.add(name)
        return self._past.get(name, [])


def reported(past: Iterable[Record]) -> list[list[Value]]:
    """What each run told while it gathered something, by the lines about that; the oldest first."""
    runs: list[list[Value]] = []
    for record in past:
        if record["type"] == "gathering":
            runs.append([])
        elif record["type"] == "progress":
            runs[-1].append(record["value"])
    return runs


def as_asked(gate: Gate) -> dict[str, Any]:
    """A question as a line of type `asked` has it."""
    return {
        "event": gate.id,
        "title": gate.title,
        "tier": gate.tier,
        "name": gate.name,
        "grants": [[grant.verb, grant.kind, grant.id, grant.generation] for grant in gate.grants],
        "effects": list(gate.effects),
        "undo": list(gate.undo),
        "command": gate.command,
        "choices": list(gate.choices),
        "evidence": gate.evidence,
        "token": gate.token(),
    }


def failure_of(record: Record) -> StepFailed:
    """What is raised for a line of type `failed`."""
    error = StepFailed(
        str(record["event"]),
        str(record["message"]),
        unknown=bool(record["unknown"]),
        untouched=bool(record["untouched"]),
    )
    error.hint = str(record.get("hint", ""))
    return error


def outcome_of(record: Record) -> Outcome:
    """The end that a line of type `ended` says."""
    return Outcome(
        status=Status(record["status"]), state=record["state"], next=record["next"], details=tuple(record["details"])
    )
