"""The few characters that are not plain text, with an ASCII spelling for terminals that cannot show the others."""

from __future__ import annotations

import locale
import os
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Glyphs:
    """What is drawn for: a closed and an open row, the cursor, a mark, sort directions, the parts of a task bar, a rule."""

    closed: str
    opened: str
    cursor: str
    mark: str
    ascending: str
    descending: str
    done: str
    failed: str
    running: str
    starting: str
    pending: str
    rule: str
    ellipsis: str


UNICODE: Final = Glyphs("▸", "▾", "▌", "●", "▲", "▼", "█", "▚", "▒", "░", "·", "─", "…")
ASCII: Final = Glyphs("+", "-", ">", "*", "^", "v", "#", "!", "=", "~", ".", "-", "~")


def chosen(setting: str = "auto") -> Glyphs:
    """What is settled (`unicode`, `ascii`), or what this terminal can show."""
    return {"unicode": UNICODE, "ascii": ASCII}.get(setting) or choose()


def choose() -> Glyphs:
    """What this terminal can show: Unicode unless its encoding is not UTF-8 or it is the bare Linux console."""
    encoding = locale.getpreferredencoding(False).lower().replace("-", "")
    return UNICODE if encoding == "utf8" and os.environ.get("TERM") not in ("linux", "dumb") else ASCII
