"""What the journal of a procedure may hold: which lines, with which fields, and in which order those of one event come.

Whoever goes on with a procedure does what its journal says was not done. A journal that another version wrote, or a hand, may say anything;
so all of it is held against the rules here before the first line is acted on. Must never guess: a line that is not understood ends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from iris_core.procedures.events import Status
from iris_core.procedures.journal import CHANGED, JournalBroken

if TYPE_CHECKING:
    from pathlib import Path

    from iris_core.procedures.journal import Record

FORMAT: Final = 2
"""In the first line. The first format has none, and no digests."""
NEWER: Final = "go on with the version that wrote it"

_TEXT, _NUMBER, _FLAG, _LIST, _MAP, _ANY = str, int, bool, list, dict, object
_REFUSAL: Final[dict[str, type]] = {"event": _TEXT, "message": _TEXT}
_ANSWER: Final[dict[str, type]] = {"event": _TEXT, "choice": _TEXT, "token": _TEXT}
_FIELDS: Final[dict[str, dict[str, type]]] = {
    "started": {"procedure": _TEXT, "arguments": _MAP},
    "resumed": {},
    "step": {"event": _TEXT, "title": _TEXT},
    "gathering": {"event": _TEXT, "title": _TEXT},
    "progress": {"event": _TEXT, "value": _ANY},
    "gathered": {"event": _TEXT, "value": _ANY},
    "asked": {"event": _TEXT, "title": _TEXT, "grants": _LIST, "effects": _LIST, "choices": _LIST, "token": _TEXT},
    "refused": _REFUSAL,
    "answered": _ANSWER,
    "answered_again": _ANSWER,
    "intent": {"event": _TEXT, "title": _TEXT, "grant": _TEXT},
    "done": {"event": _TEXT, "value": _ANY},
    "not_done": {"event": _TEXT},
    "failed": {**_REFUSAL, "unknown": _FLAG, "untouched": _FLAG},
    "cancelled": {"event": _TEXT},
    "ended": {"status": _TEXT, "state": _TEXT, "next": _TEXT, "details": _LIST},
}
_STATUSES: Final = frozenset(str(status) for status in Status)
_ENDS: Final = frozenset({"step", "gathered", "done", "failed", "cancelled"})
"""After these an event has no line."""
_GATHERS: Final = frozenset({"gathering", "progress", "gathered", "failed", "cancelled"})
_AFTER: Final[dict[str, frozenset[str]]] = {
    "": frozenset({"step", "gathering", "asked", "intent", "failed", "cancelled"}),
    "gathering": _GATHERS,
    "progress": _GATHERS,
    "asked": frozenset({"asked", "refused", "answered", "answered_again", "cancelled"}),
    "refused": frozenset({"asked", "answered", "answered_again"}),
    "answered": frozenset({"asked"}),
    "answered_again": frozenset({"asked"}),
    "intent": frozenset({"done", "failed", "not_done"}),
    "not_done": frozenset({"intent", "failed", "cancelled"}),
    **{end: frozenset() for end in _ENDS},
}
"""What may be the next line of an event, by its last one."""


def check(path: Path, records: Sequence[Record]) -> None:
    """Raises JournalBroken, with the first line that is not what a procedure of this version writes. No lines are fine."""
    last: dict[str, str] = {}
    for number, record in enumerate(records, 1):
        fault, hint = _fault(number, record, last)
        if fault:
            raise JournalBroken(f"{path}, line {number}: {fault}", hint=hint)


def _fault(number: int, record: Record, last: dict[str, str]) -> tuple[str, str]:
    """What is wrong with a line, "" if nothing is, and what to do about it: another version may know better, or somebody changed it."""
    kind = str(record["type"])
    fields = _FIELDS.get(kind)
    if fields is None:
        return f"a line of type {kind[:40]!r}, which this version does not know", NEWER
    for name, wanted in {"at_ms": _NUMBER, "by": _TEXT, **fields}.items():
        if name not in record or not _is(record[name], wanted):
            return f"{name!r} of a line of type {kind!r} is missing, or is none", CHANGED
    if number == 1 and kind != "started":
        return f"a line of type {kind!r}, and it has to be 'started'", CHANGED
    if number != 1 and kind == "started":
        return "it is begun twice", CHANGED
    if kind == "started":
        found = record.get("format", 1)
        if found not in range(1, FORMAT + 1):
            return f"it is of format {found!r}, and this version knows {FORMAT}", NEWER
        return "", ""
    if kind == "ended" and record["status"] not in _STATUSES:
        return f"it ended with {record['status'][:40]!r}, which this version does not know", NEWER
    if last.get("") == "ended":
        return "a line after the end", CHANGED
    if kind in ("resumed", "ended"):
        last[""] = kind
        return "", ""
    name = str(record["event"])
    before = last.get(name, "") if name else ""
    if not name or kind not in _AFTER[before]:
        return f"{kind!r} of {name[:80]!r} cannot come after {before or 'nothing'!r}", CHANGED
    last[name] = kind
    return "", ""


def _is(value: Any, wanted: type) -> bool:
    return isinstance(value, wanted) and not (wanted is int and isinstance(value, bool))
