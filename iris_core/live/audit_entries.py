"""The controller's audit lines as entries: `event=… entity=… trigger=… k=v …` taken apart, with the columns and filter fields of their list.

An entry says all that it says in its own line, so it can be read when what it is about is gone. A line that was cut is read as far as it
goes. Nothing here looks anything up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from iris_core.live.columns import ColumnSpec, age, when
from iris_core.live.wording import NOTHING, Tone, iso, or_nothing
from iris_core.model.filter import Field, FieldType
from iris_core.model.text import one_line

CHANGE: Final = "operator_change"
"""The event of what an operator did by command, console or program."""
SOURCE: Final = "/system/controller"
PATTERN: Final = r"\bevent=[a-z][a-z0-9_]* entity="
"""By which an audit line is known in the controller's log."""
CHANGES: Final = rf"\bevent={CHANGE} entity="

_START: Final = re.compile(r"\bevent=(?=[a-z])")
_PART: Final = re.compile(r'([a-z][a-z0-9_]*)=("(?:[^"\\]|\\.)*"|\S*)\s*')
_COUNTS: Final = {"job_ids": "job", "task_ids": "task", "worker_ids": "worker"}
_HEAD: Final = ("event", "entity", "trigger")

if TYPE_CHECKING:
    Values = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One entry. `seq` is that of its line in the log, `fields` all that the line says, in its order."""

    seq: int
    epoch_ms: int
    fields: dict[str, str]

    def get(self, name: str) -> str:
        """What the line says under a name, "" if nothing."""
        value = self.fields.get(name, "")
        return "" if value == "-" else value

    @property
    def action(self) -> str:
        """What happened: the RPC of an operator's change, else the event."""
        return self.get("method") or self.get("event")

    @property
    def targets(self) -> str:
        """What it is about, with how many where there are several."""
        names = self.get("targets") or self.get("entity")
        count = self.get("target_count")
        first = names.split(",")[0] if "," in names else names
        return f"{first} and {int(count) - 1:,} more" if count.isdigit() and int(count) > 1 else names

    @property
    def outcome(self) -> str:
        """What it came to, as far as the line says."""
        said = [
            f"{int(value):,} {noun}{'' if value == '1' else 's'}"
            for name, noun in _COUNTS.items()
            if (value := self.get(name)).isdigit()
        ]
        said += [f"{self.get(name)}" for name in ("state", "outcome", "error") if self.get(name)]
        return ", ".join(said)


def parse(text: str, seq: int = 0, epoch_ms: int = 0) -> AuditEntry | None:
    """The entry of a line of the controller's log, None for a line that is none."""
    begin = _START.search(text)
    if begin is None:
        return None
    fields: dict[str, str] = {}
    at = begin.start()
    while (part := _PART.match(text, at)) is not None:
        fields.setdefault(part[1], _value(part[2]))
        at = part.end()
    return AuditEntry(seq, epoch_ms, fields) if all(name in fields for name in _HEAD) else None


def _value(word: str) -> str:
    if not word.startswith('"'):
        return word
    try:
        return str(json.loads(word))
    except ValueError:
        return word


def _column(**fields: Any) -> ColumnSpec[Any]:
    return ColumnSpec(**fields)


def _text(name: str, title: str, of: Callable[[AuditEntry], str], **more: Any) -> ColumnSpec[AuditEntry]:
    return _column(
        id=name, title=title, value=lambda row: of(row) or None, text=lambda row, _: or_nothing(of(row)),
        sort=lambda row, _: of(row), **more,
    )  # fmt: skip


def _tone(entry: AuditEntry) -> Tone:
    return Tone.PLAIN if entry.get("event") == CHANGE else Tone.DIM


AUDIT: Final[dict[str, ColumnSpec[AuditEntry]]] = {
    spec.id: spec
    for spec in (
        _column(
            id="time", title="TIME", min_width=19, max_width=19, hide=3,
            value=lambda row: iso(row.epoch_ms),
            text=lambda row, _: when(row.epoch_ms),
            sort=lambda row, _: row.seq,
        ),
        _column(
            id="age", title="AGE", min_width=4, max_width=7, align="right",
            value=lambda row: iso(row.epoch_ms),
            text=lambda row, now_ms: age(row.epoch_ms, now_ms), moves=True,
            sort=lambda row, _: -row.seq,
        ),
        _text("who", "WHO", lambda row: row.get("trigger"), min_width=8, max_width=14),
        _text("interface", "BY", lambda row: row.get("interface"), min_width=7, max_width=8, hide=5),
        _text("action", "ACTION", lambda row: row.action, min_width=14, max_width=20, tone=_tone),
        _text("targets", "TARGETS", lambda row: row.targets, min_width=16, flex=3),
        _text("outcome", "CAME TO", lambda row: row.outcome, min_width=8, max_width=12, hide=4),
        _text("reason", "REASON", lambda row: row.get("reason"), min_width=8, flex=2, hide=2),
        _text("command", "COMMAND", lambda row: row.get("command"), min_width=12, flex=2, hide=6),
    )
}  # fmt: skip

AUDIT_FIELDS: Final[dict[str, FieldType | Field]] = {
    "event": FieldType.TEXT,
    "who": FieldType.TEXT,
    "by": FieldType.TEXT,
    "action": FieldType.TEXT,
    "target": FieldType.TEXT,
    "reason": FieldType.TEXT,
    "command": FieldType.TEXT,
    "peer": FieldType.TEXT,
    "line": FieldType.TEXT,
    "count": FieldType.NUMBER,
    "age": FieldType.DURATION,
    "time": FieldType.TIME,
}
"""`line` is everything that an entry says."""
AUDIT_WORDS: Final = ("line",)

_VALUES: Final[dict[str, Callable[[AuditEntry, int], object]]] = {
    "event": lambda row, _: row.get("event"),
    "who": lambda row, _: row.get("trigger"),
    "by": lambda row, _: row.get("interface") or None,
    "action": lambda row, _: row.action,
    "target": lambda row, _: row.get("targets") or row.get("entity"),
    "reason": lambda row, _: row.get("reason") or None,
    "command": lambda row, _: row.get("command") or None,
    "peer": lambda row, _: row.get("peer") or None,
    "line": lambda row, _: " ".join(f"{name}={value}" for name, value in row.fields.items()),
    "count": lambda row, _: int(count) if (count := row.get("target_count")).isdigit() else None,
    "age": lambda row, now_ms: now_ms - row.epoch_ms,
    "time": lambda row, _: row.epoch_ms,
}


def audit_row(entry: AuditEntry, now_ms: int) -> Values:
    """An entry's answers to a filter's fields."""
    return lambda name: _VALUES[name](entry, now_ms)


_NAMES: Final = {
    "event": "Event", "entity": "About", "trigger": "Who", "interface": "By way of", "command": "Command line", "reason": "Reason",
    "pasted": "Pasted", "method": "RPC", "targets": "Targets", "target_count": "Targets in all", "planned": "Under a plan",
    "via": "Known by", "peer": "From", "request_id": "Request", "client_context": "Client context",
}  # fmt: skip


def entry_lines(entry: AuditEntry) -> list[tuple[str, Tone]]:
    """The whole entry for a page: every field by its name, the targets one a line, and the line itself."""
    lines = [(f"{'Time':<16}{when(entry.epoch_ms)}", Tone.PLAIN)]
    for name, value in entry.fields.items():
        title = _NAMES.get(name, name)
        values = value.split(",") if name == "targets" else [value]
        for at, one in enumerate(values):
            lines.append((f"{title if not at else '':<15} {one_line(one) or NOTHING}", Tone.PLAIN))
    named, count = len(entry.get("targets").split(",")), entry.get("target_count")
    if count.isdigit() and int(count) > named:
        lines.append((f"{'':<15} … and {int(count) - named:,} more that the line does not name", Tone.DIM))
    return lines
