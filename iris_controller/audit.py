"""Audit lines: `event=<action> entity=<id> trigger=<who or what> k=v …`, one per change, in the log (DESIGN §4).

They are found by substring (`process logs --substring event=job_cancelled`), so no value may ever contain something that looks
like a field: what is not plain is quoted as a JSON string in which `=` is escaped too. Must never raise for a value, whatever it
holds, and never write more than one line.
"""

from __future__ import annotations

import json
import logging
import re
from functools import lru_cache

_log = logging.getLogger("iris.audit")

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_PLAIN = re.compile(r"[A-Za-z0-9_./:@+%,\[\]-]+")
_LIMIT = 1000

Value = str | int | float | bool | None
"""What a field may hold."""


def audit(action: str, entity: str, trigger: str, /, **fields: Value) -> None:
    """Writes one line about `action` on `entity`, done because of `trigger` (a user, `scheduler`, `worker/w1`, a timer).

    Raises ValueError if `action` or the name of a field is not a plain lower-case word: those are ours, never a caller's.
    """
    _log.info("%s", format_line(action, entity, trigger, fields))


def format_line(action: str, entity: str, trigger: str, fields: dict[str, Value] | None = None) -> str:
    """The line that `audit` writes."""
    parts = [f"event={_word(action)}", f"entity={_value(entity)}", f"trigger={_value(trigger)}"]
    for name, value in (fields or {}).items():
        if name in {"event", "entity", "trigger"}:
            raise ValueError(f"an audit line has one {name} only")
        parts.append(f"{_word(name)}={_value(value)}")
    return " ".join(parts)


@lru_cache(maxsize=1024)
def _word(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name for an audit field")
    return name


def _value(value: Value) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
    text = str(value)
    if len(text) > _LIMIT:
        text = f"{text[:_LIMIT]}… ({len(text)} characters)"
    if text != "-" and _PLAIN.fullmatch(text):
        return text
    return json.dumps(text).replace("=", "\\u003d")
