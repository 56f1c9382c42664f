"""How far a procedure is, read from its journal: for `status`, for the wizard that reopens at the same step, for whoever follows.

Reading changes nothing and needs no lock. The journal is the only source, so what is shown is what a resume would go on from.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from iris_core.procedures import journal

if TYPE_CHECKING:
    from pathlib import Path

    from iris_core.live.clock import Clock
    from iris_core.procedures.journal import Record

POLL_S: Final = 0.2


@dataclass(slots=True)
class Progress:
    """What a journal says.

    Attributes:
        step: The heading that was reached last.
        asked: The gate that waits for an answer, as it was journalled; None if none does.
        running: Id of the mutation that was begun and has no end, "" if none is.
        evidence: What was gathered, by event; of evidence under way the reports so far.
        done: Titles of the mutations that took effect, in order.
        approvals: Who approved what, when (epoch ms), and why.
        status, state, next: Its end, "" before.
    """

    procedure: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    started_by: str = ""
    started_ms: int = 0
    changed_ms: int = 0
    step: str = ""
    asked: Record | None = None
    running: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)
    reports: dict[str, list[Any]] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    approvals: list[Record] = field(default_factory=list)
    status: str = ""
    state: str = ""
    next: str = ""
    _titles: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, records: list[Record]) -> Progress:
        """Fold a journal."""
        progress = cls()
        for record in records:
            progress.take(record)
        return progress

    def take(self, record: Record) -> None:
        """One more line."""
        self.changed_ms = int(record["at_ms"])
        name = str(record.get("event", ""))
        match record["type"]:
            case "started":
                self.procedure, self.arguments = record["procedure"], record["arguments"]
                self.started_by, self.started_ms = record["by"], int(record["at_ms"])
            case "step":
                self.step = record["title"]
            case "gathering":
                self.reports[name] = []
            case "progress":
                self.reports.setdefault(name, []).append(record["value"])
            case "gathered":
                self.evidence[name] = record["value"]
            case "asked":
                self.asked = record
            case "answered" | "answered_again":
                self.asked = None
                self.approvals.append(record)
            case "intent":
                self.running = name
                self._titles[name] = record["title"]
            case "done":
                self.running = ""
                self.done.append(self._titles.get(name, name))
            case "not_done":
                self.running = ""
            case "failed":
                self.running = ""
                self.failed.append(f"{name}: {record['message']}")
            case "ended":
                self.asked = None
                self.status, self.state, self.next = record["status"], record["state"], record["next"]
            case _:
                pass


async def follow(path: Path, clock: Clock) -> AsyncIterator[Record]:
    """Every line, then new ones as they come, until the procedure ends. Raises IrisError as `journal.read` does."""
    at = 0
    while True:
        records, at = journal.read_from(path, at)
        for record in records:
            yield record
            if record["type"] == "ended":
                return
        await clock.sleep(POLL_S)
