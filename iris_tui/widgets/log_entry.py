"""One line of a log whole, on a page: who wrote it and when, and its text; JSON is spelled out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from iris_core.live.wording import NOTHING, Tone, iso
from iris_core.model.levels import LogLevel
from iris_core.model.resources import format_age
from iris_core.model.text import one_line
from iris_tui.widgets.line_view import safe_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_core.wire.gen.iris.v1.logs_pb2 import ViewLine
    from iris_tui.pages import Lines

_LEVELS = frozenset(int(level) for level in LogLevel)
ROW_CHARACTERS = 4096
"""A longer text is cut into rows of so many: nothing is left out."""


def entry_lines(parts: Sequence[ViewLine], number: int, now_ms: int) -> Lines:
    """The rows of the page."""
    if not parts or parts[0].gone:
        return [("This line is not kept any more.", Tone.WARN)]
    first = parts[0].line
    text = "".join(part.line.data for part in parts)
    level = LogLevel(int(first.level)).label if int(first.level) in _LEVELS else str(first.level)
    facts = [
        ("Written by", one_line(first.key)),
        ("At", f"{iso(first.epoch_ms) or NOTHING}, {format_age(max(now_ms - first.epoch_ms, 0))} ago"),
        ("Stream", f"{one_line(first.source)}, level {level}"),
        ("Line", f"{number + 1:,} here, {first.number:,} of its producer, seq {first.seq:,}"),
        ("Size", f"{len(text.encode()):,} bytes" + (f" in {len(parts)} parts" if len(parts) > 1 else "")),
    ]
    rows = [(f"{label:<12}{value}", Tone.PLAIN) for label, value in facts]
    if parts[-1].line.partial:
        rows.append(("            The line goes on; ^s saves all of it.", Tone.WARN))
    return [*rows, ("", Tone.PLAIN), *((row, Tone.PLAIN) for row in _rows(text))]


def _rows(text: str) -> list[str]:
    pretty = _as_json(text)
    if pretty is not None:
        return pretty
    plain = safe_text(text).plain
    return [plain[at : at + ROW_CHARACTERS] for at in range(0, len(plain), ROW_CHARACTERS)] or [""]


def _as_json(text: str) -> list[str] | None:
    """The text with every member on a row of its own, if it is an object or a list, also one behind a prefix."""
    for mark in "{[":
        at = text.find(mark)
        if at < 0:
            continue
        try:
            value, end = json.JSONDecoder().raw_decode(text, at)
        except (ValueError, RecursionError):
            continue
        if text[end:].strip() or not value:
            continue
        head = [safe_text(text[:at]).plain] if text[:at].strip() else []
        return head + json.dumps(value, indent=2, ensure_ascii=True).splitlines()
    return None
