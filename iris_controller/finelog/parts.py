"""Long lines, which are stored in parts: how they are counted, and what a search over parts cannot find.

A part is searched together with its seam, the text on both sides of where it is joined on, so a match of up to `SEAM` characters is
found wherever it lies. A pattern that may need more is looked for in each part alone, and whoever asks is told so, once such a part
was looked at. Must never say so without a part.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iris_controller.finelog.line import Line
    from iris_controller.finelog.query import Query
    from iris_core.wire.gen.iris.v1 import logs_pb2

SEAM = 4096
NOTE = (
    f"long lines are stored in parts of 256 KiB; a match of this pattern may need more than the {SEAM:,} characters"
    " that are seen across two parts, so it was looked for in each part alone"
)

_REPEAT = re.compile(r"\{([0-9]+)(,?)([0-9]*)\}")


def needs_more(pattern: str) -> bool:
    """Whether a match may be longer than `SEAM` characters, or depends on where the line begins or ends. True when in doubt."""
    plain = re.sub(r"\\[^bBAzQC]", "x", pattern, flags=re.DOTALL)
    if "\\" in plain:
        return True
    outside = re.sub(r"\[\^?\]?[^\]]*\]", "x", plain)
    if re.search(r"[*+^$]", outside):
        return True
    longest = len(outside)
    for low, comma, high in _REPEAT.findall(outside):
        if comma and not high:
            return True
        longest *= max(1, int(high or low))
    return longest > SEAM


class LineCount:
    """How many lines there are among entries of which some are parts; those of one stream must come in order, or against it.

    Takes memory for each stream that has parts.
    """

    def __init__(self) -> None:
        self.lines = 0
        self._heads: dict[tuple[str, str, str], int] = {}

    def take(self, line: Line | logs_pb2.StoredLine) -> None:
        """One more entry; it counts unless another part of its line did."""
        if line.part or line.partial:
            if self.holds(line):
                return
            self._heads[line.key, line.attempt_uid, line.source] = _head(line)
        self.lines += 1

    def holds(self, line: Line | logs_pb2.StoredLine) -> bool:
        """Whether it is a part of the line of its stream that was counted last."""
        if not (line.part or line.partial):
            return False
        return self._heads.get((line.key, line.attempt_uid, line.source)) == _head(line)


def _head(line: Line | logs_pb2.StoredLine) -> int:
    """The number of part 0 of its line."""
    return line.number - (line.back or line.part)


class PartsSeen:
    """Whether the reader of `query` has to be told."""

    def __init__(self, query: Query) -> None:
        self.is_wanted = any(one is not None and needs_more(one.pattern) for one in (query.regex, query.without))
        """Whether it matters if there are parts: while it does, call `saw_part` for one that is searched."""
        self.notes: list[str] = []

    def saw_part(self) -> None:
        """A part of a line that is not all of it is searched."""
        self.notes.append(NOTE)
        self.is_wanted = False
