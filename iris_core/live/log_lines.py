"""A line of a log as it is shown, and the pages of a view that are held: a bounded part of any number of lines.

Lines are cut to what can be shown when they arrive; how much more there is stays as a number. The page that was looked at longest ago
goes first, so a view of ten million lines takes what a few screens take. Control characters are left alone here and made harmless where
a line is drawn.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_core.wire.gen.iris.v1.logs_pb2 import ViewLine

SHOWN_CHARACTERS: Final = 4096
"""Characters of one line that are kept for showing."""
PAGE: Final = 256
MAX_PAGES: Final = 64
MAX_TEXT: Final = 24 << 20
"""Characters that are held at most, whatever the pages."""


@dataclass(slots=True)
class LogLine:
    """One line, or one stored part of a very long one (`part` > 0 goes on what came before).

    `text` is cut at SHOWN_CHARACTERS and `more` bytes follow. `gap` > 0: that many lines are lost, `text` says why. `is_context`: it is
    only here because of a neighbour; `breaks`: lines before it are left out; `gone`: it cannot be read any more.
    """

    seq: int
    key: str = ""
    attempt: int = 0
    epoch_ms: int = 0
    source: str = ""
    level: int = 0
    text: str = ""
    more: int = 0
    part: int = 0
    partial: bool = False
    gap: int = 0
    is_context: bool = False
    breaks: bool = False
    gone: bool = False


def line_of(found: ViewLine) -> LogLine:
    """What is kept of a line that was read."""
    line = found.line
    if found.gone:
        return LogLine(line.seq, gone=True)
    data = line.data
    text = data[:SHOWN_CHARACTERS]
    more = 0
    if len(text) < len(data):
        more = len(data) - len(text) if data.isascii() else len(data[SHOWN_CHARACTERS:].encode())
    return LogLine(
        line.seq, line.key, line.attempt_id, line.epoch_ms, line.source, line.level, text, more, line.part, line.partial,
        line.gap, found.is_context, found.breaks,
    )  # fmt: skip


class Pages:
    """The pages of one view. A page is filled from its first line on."""

    def __init__(self) -> None:
        self._pages: OrderedDict[int, list[LogLine]] = OrderedDict()
        self._sizes: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._pages)

    def line(self, number: int) -> LogLine | None:
        """The line with that number; None if it is not here."""
        page = self._pages.get(number // PAGE)
        at = number % PAGE
        return page[at] if page is not None and at < len(page) else None

    def filled(self, page: int) -> int:
        """How many lines of a page are here."""
        return len(self._pages.get(page, ()))

    def touch(self, page: int) -> None:
        """Somebody looks at it."""
        if page in self._pages:
            self._pages.move_to_end(page)

    def put(self, lines: Iterable[ViewLine]) -> None:
        """Lines that were read, ascending; what does not go on what is here, or is here, is left out."""
        for found in lines:
            number = found.number
            page = self._pages.get(number // PAGE)
            if page is None:
                if number % PAGE:
                    continue
                page = self._pages[number // PAGE] = []
            if len(page) == number % PAGE:
                line = line_of(found)
                page.append(line)
                self._sizes[number // PAGE] = self._sizes.get(number // PAGE, 0) + len(line.text)
        while len(self._pages) > MAX_PAGES or (len(self._pages) > 4 and sum(self._sizes.values()) > MAX_TEXT):
            oldest, _ = self._pages.popitem(last=False)
            self._sizes.pop(oldest, None)

    def last(self) -> tuple[int, LogLine] | None:
        """The line with the highest number that is here."""
        if not self._pages:
            return None
        page = max(number for number, lines in self._pages.items() if lines)
        return page * PAGE + len(self._pages[page]) - 1, self._pages[page][-1]
