"""What the console remembers of a cluster from one day to the next: where it was left, how each list looked, what was typed, named filters.

One small JSON file per cluster in the state folder, readable by this user alone and written whole or not at all. It is a comfort and
never a duty: a file that is torn, too large or from another release is as good as none, and one that cannot be written is a word at
most. Must never hold a row, a name of which nobody typed, or anything of the cluster's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from iris_core.config.places import state_home

if TYPE_CHECKING:
    from pathlib import Path

VERSION: Final = 1
MOST_BYTES: Final = 128 * 1024
MOST_LINES: Final = 50
"""Of one history."""
MOST_LINE: Final = 500
"""Characters of a line of a history, of a name and of a filter; a longer one is not kept."""
MOST_NAMED: Final = 50
"""Named filters of one list."""


@dataclass(slots=True)
class Saved:
    """What is remembered of one cluster; without a path nothing is.

    Attributes:
        screen: The screen that was shown last, "" if none is known.
        subject: The id that it was about.
        views: How each screen looked, by its name: what `ConsoleScreen.view_state` gave.
        histories: What was typed, oldest first, by what was asked.
        filters: Named filters, by what the list is of.
    """

    path: Path | None = None
    screen: str = ""
    subject: str = ""
    views: dict[str, dict[str, Any]] = field(default_factory=dict)
    histories: dict[str, list[str]] = field(default_factory=dict)
    filters: dict[str, dict[str, str]] = field(default_factory=dict)

    def history(self, asked: str) -> list[str]:
        """The answers to a question; what is put into this list is remembered."""
        return self.histories.setdefault(asked, [])

    def named(self, noun: str) -> dict[str, str]:
        """The named filters of a list, in the order in which they were named."""
        return self.filters.setdefault(noun, {})

    def write(self) -> str:
        """Write the file. Returns what is wrong, "" if it is written or nothing is to be."""
        if self.path is None:
            return ""
        text = self._text()
        scratch = self.path.with_name(f".{self.path.name[:80]}.{os.getpid()}")
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with open(descriptor, "w") as file:
                file.write(text)
            scratch.replace(self.path)
        except OSError as error:
            return f"cannot write {self.path}: {(error.strerror or str(error)).lower()}"
        return ""

    def _text(self) -> str:
        """The file's text; what has no room is left out, the most replaceable first."""
        histories = {asked: _lines(lines) for asked, lines in self.histories.items() if lines}
        known: dict[str, Any] = {
            "version": VERSION,
            "filters": {noun: names for noun, names in self.filters.items() if names},
            "screen": self.screen,
            "subject": self.subject,
            "views": self.views,
            "histories": histories,
        }
        for left_out in ("", "histories", "views", "subject"):
            known.pop(left_out, None)
            text = json.dumps(known, ensure_ascii=True)
            if len(text) <= MOST_BYTES:
                return text
        return json.dumps({"version": VERSION})


def saved_file(cluster: str) -> Path:
    """Where a cluster's file is."""
    return state_home() / "console" / f"{quote(cluster, safe='')[:200]}.json"


def load_saved(cluster: str) -> Saved:
    """What is remembered of a cluster. Never fails."""
    path = saved_file(cluster)
    saved = Saved(path)
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        known = json.loads(data) if len(data) <= MOST_BYTES else {}
    except (OSError, ValueError, RecursionError):
        return saved
    if not isinstance(known, dict) or known.get("version") != VERSION:
        return saved
    saved.screen, saved.subject = _text(known.get("screen")), _text(known.get("subject"))
    for name, view in _mapping(known.get("views")).items():
        if isinstance(view, dict):
            saved.views[name] = view
    for asked, lines in _mapping(known.get("histories")).items():
        if isinstance(lines, list):
            saved.histories[asked] = _lines(lines)
    for noun, names in _mapping(known.get("filters")).items():
        kept = {name: text for name, text in _mapping(names).items() if _text(name) and _text(text)}
        saved.filters[noun] = dict(list(kept.items())[:MOST_NAMED])
    return saved


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= MOST_LINE else ""


def _lines(lines: list[Any]) -> list[str]:
    return [line for line in lines if _text(line)][-MOST_LINES:]
