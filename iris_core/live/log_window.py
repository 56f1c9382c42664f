"""The lines of a log that are held: one contiguous run, in the pages in which they came.

A page knows from which to which sequence number every matching line is in it, so that pages can be let go of at either end
and what is left still has exact edges to read on from. Texts are kept as far as they can be shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from iris_core.wire.gen.iris.v1.logs_pb2 import StoredLine

SHOWN_BYTES: Final = 4096
"""Characters of one line that are kept for showing."""
_LOOK_BACK: Final = 64
"""How many lines back the beginning of a partial line is looked for."""


@dataclass(slots=True)
class LogLine:
    """One line. `text` is cut at SHOWN_BYTES; `more` characters follow. `gap` > 0: that many lines are lost, `text` says why."""

    seq: int
    key: str
    attempt: int
    epoch_ms: int
    source: str
    level: int
    text: str
    more: int = 0
    partial: bool = False
    gap: int = 0


@dataclass(slots=True)
class Page:
    """`size` lines of the window: every matching line with lo <= seq <= hi. lo 0 = nothing older is kept."""

    lo: int
    hi: int
    size: int


@dataclass(slots=True)
class Window:
    """The lines and their pages, top to bottom, without a hole between them. `at_end`: nothing newer is known."""

    lines: list[LogLine] = field(default_factory=list)
    pages: list[Page] = field(default_factory=list)
    at_end: bool = False

    @classmethod
    def of(cls, entries: Iterable[StoredLine], lo: int, hi: int, *, at_end: bool) -> Window:
        """A window of one page."""
        lines = _folded(entries, [])
        return cls(lines, [Page(lo, hi, len(lines))], at_end)

    @property
    def at_start(self) -> bool:
        """Whether no older line is kept by the store."""
        return bool(self.pages) and self.pages[0].lo == 0

    def append(self, entries: Iterable[StoredLine], after: int, hi: int, page_lines: int) -> int:
        """Put what was read for `after` below; returns how many lines that made. Small answers share a page."""
        before = len(self.lines)
        _folded(entries, self.lines)
        added = len(self.lines) - before
        last = self.pages[-1]
        if last.size + added <= page_lines and last.hi == after:
            last.size += added
            last.hi = hi
        else:
            self.pages.append(Page(after + 1, hi, added))
        return added

    def prepend(self, entries: Iterable[StoredLine], lo: int, before: int) -> int:
        """Put what was read before `before` on top; returns how many lines that made."""
        page = _folded(entries, [])
        self._join(page)
        self.lines[:0] = page
        self.pages.insert(0, Page(lo, before - 1, len(page)))
        return len(page)

    def trim_top(self, most: int) -> int:
        """Let go of whole pages at the top beyond `most` lines; returns how many lines that were."""
        cut = 0
        while len(self.pages) > 1 and len(self.lines) - cut > most:
            cut += self.pages.pop(0).size
        del self.lines[:cut]
        return cut

    def trim_bottom(self, most: int) -> None:
        """Let go of whole pages at the bottom beyond `most` lines."""
        while len(self.pages) > 1 and len(self.lines) > most:
            size = self.pages.pop().size
            if size:
                del self.lines[-size:]
            self.at_end = False

    def _join(self, page: list[LogLine]) -> None:
        """A page put on top may end within lines whose rest begins the window."""
        for line in page:
            if not line.partial:
                continue
            stream = (line.key, line.attempt, line.source)
            for n, rest in enumerate(self.lines):
                if (rest.key, rest.attempt, rest.source) == stream:
                    line.more += len(rest.text) + rest.more
                    line.partial = rest.partial
                    del self.lines[n]
                    self._page_of(n).size -= 1
                    break

    def _page_of(self, number: int) -> Page:
        for page in self.pages:
            if number < page.size:
                return page
            number -= page.size
        return self.pages[-1]


def _folded(entries: Iterable[StoredLine], lines: list[LogLine]) -> list[LogLine]:
    """Append entries as lines; one that goes on a partial line of the same source is counted into it."""
    open_lines: dict[tuple[str, int, str], LogLine] = {}
    for line in reversed(lines[-_LOOK_BACK:]):
        open_lines.setdefault((line.key, line.attempt, line.source), line)
    for entry in entries:
        stream = (entry.key, entry.attempt_id, entry.source)
        known = open_lines.get(stream)
        if known is not None and known.partial:
            known.more += len(entry.data)
            known.partial = entry.partial
            continue
        line = LogLine(
            entry.seq, entry.key, entry.attempt_id, entry.epoch_ms, entry.source, entry.level,
            entry.data[:SHOWN_BYTES], max(len(entry.data) - SHOWN_BYTES, 0), entry.partial, entry.gap,
        )  # fmt: skip
        open_lines[stream] = line
        lines.append(line)
    return lines
