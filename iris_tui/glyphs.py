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


_COERCED: Final = ("C.UTF-8", "C.utf8", "UTF-8")

UNICODE: Final = Glyphs("▸", "▾", "▌", "●", "▲", "▼", "█", "▚", "▒", "░", "·", "─", "…")
ASCII: Final = Glyphs("+", "-", ">", "*", "^", "v", "#", "!", "=", "~", ".", "-", "~")


def chosen(setting: str = "auto") -> Glyphs:
    """What is settled (`unicode`, `ascii`), or what this terminal can show."""
    return {"unicode": UNICODE, "ascii": ASCII}.get(setting) or choose()


def choose() -> Glyphs:
    """What this terminal can show: Unicode unless its encoding is not UTF-8 or it is the bare Linux console.

    Python turns the locale C into UTF-8 for itself, and says so in LC_CTYPE; whoever set it meant the terminal.
    """
    encoding = locale.getpreferredencoding(False).lower().replace("-", "")
    settled = os.environ.get("LC_ALL") or os.environ.get("LANG", "")
    if os.environ.get("LC_CTYPE", "") not in ("", "C", "POSIX", *_COERCED):
        settled = os.environ.get("LC_ALL", "")
    bare = settled in ("C", "POSIX") or os.environ.get("TERM") in ("linux", "dumb")
    return ASCII if bare or encoding != "utf8" else UNICODE
