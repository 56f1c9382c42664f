"""What stands around a line that matches: so many lines of its key on either side, and the whole traceback it is part of.

A line that is stored in parts is one entry of a log, and so is a Python traceback, however many lines it has: from its header over the
indented frames to the exception, and on through the ones it was chained to. Lines of the other streams of a task may stand in between and are not part of it. Plain functions
over lines that somebody else has read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_core.wire.gen.iris.v1 import logs_pb2

LOOK_LINES = 200
"""How far the rest of a traceback is looked for."""
NEAR_LINES = 16
"""So many lines before one, a line of a traceback of its own stream stands if it is part of one: other streams seldom print more."""
HEADER = "Traceback (most recent call last)"
_CHAIN = re.compile(
    r"^(During handling of the above exception, another exception occurred"
    r"|The above exception was the direct cause of the following exception):"
)


@dataclass(slots=True)
class _Stream:
    """One stream of one attempt: where in a traceback it is. `held` are lines that belong to it only if another one follows."""

    entry: int = -1
    in_frames: bool = False
    chained: bool = False
    held: list[int] = field(default_factory=list)

    line: int = -1
    """The entry of the long line that goes on here."""

    def end(self) -> None:
        self.entry, self.in_frames, self.chained, self.held = -1, False, False, []


def entries_of(lines: Sequence[logs_pb2.StoredLine]) -> list[int]:
    """For each line the number of the traceback, or of the long line, that it is part of; -1 = none."""
    found = [-1] * len(lines)
    streams: dict[tuple[str, str], _Stream] = {}
    count = 0
    for place, line in enumerate(lines):
        stream = streams.get((line.attempt_uid, line.source))
        text = line.data
        if stream is None and (line.partial or line.part or HEADER in text):
            stream = streams[line.attempt_uid, line.source] = _Stream()
        if stream is not None and (line.partial or line.part):
            if not line.part or stream.line < 0:
                stream.line, count = count, count + 1
            found[place] = stream.line
        elif HEADER in text and stream is not None:
            if stream.chained:
                for held in stream.held:
                    found[held] = stream.entry
            elif not stream.in_frames or not text[:1].isspace():
                stream.entry, count = count, count + 1
            stream.in_frames, stream.chained, stream.held = True, False, []
            found[place] = stream.entry
        elif stream is None or stream.entry < 0:
            continue
        elif stream.in_frames:
            found[place] = stream.entry
            stream.in_frames = not text or text[0].isspace()
        elif not text.strip() and len(stream.held) < 4:
            stream.held.append(place)
        elif _CHAIN.match(text):
            stream.held.append(place)
            stream.chained = True
        else:
            stream.end()
    return found


def may_be_entry(lines: Sequence[logs_pb2.StoredLine], place: int) -> bool:
    """Whether the line at `place` may be part of something longer, by the few lines before it. False only if it is not."""
    line = lines[place]
    return is_part(line) or any(
        HEADER in near.data or near.data[:1].isspace() for near in lines[max(0, place - NEAR_LINES) : place + 1]
    )


def around(
    lines: Sequence[logs_pb2.StoredLine], entries: Sequence[int], place: int, context: int, *, has_parts: bool = True
) -> set[int]:
    """The places that a hit at `place` brings, its own included: so many lines on either side, a long one with all its parts.

    `entries` is what `entries_of` found; without `has_parts` it is known that every line is whole.
    """
    if has_parts:
        chosen = _lines_beside(lines, entries, place, context)
    else:
        chosen = set(range(max(0, place - context), min(len(entries), place + context + 1)))
    if (entry := entries[place]) >= 0:
        low, high = max(0, place - LOOK_LINES), min(len(entries), place + LOOK_LINES + 1)
        chosen.update(other for other in range(low, high) if entries[other] == entry)
    return chosen


def _lines_beside(lines: Sequence[logs_pb2.StoredLine], entries: Sequence[int], place: int, context: int) -> set[int]:
    chosen = {place}
    for way in (range(place - 1, -1, -1), range(place + 1, len(lines))):
        long = {entries[place]} if is_part(lines[place]) else set()
        left = context
        for other in way:
            if not is_part(lines[other]):
                if left:
                    chosen.add(other)
                left -= left > 0
            elif entries[other] in long:
                chosen.add(other)
            elif left:
                long.add(entries[other])
                chosen.add(other)
                left -= 1
            elif not long:
                break
            if not left and not long:
                break
    return chosen


def is_part(line: logs_pb2.StoredLine) -> bool:
    """Whether it is a part of a line that is stored in several."""
    return line.partial or bool(line.part)


def parts_of_line(lines: Sequence[logs_pb2.StoredLine], entries: Sequence[int], place: int) -> list[int]:
    """The places of the parts of the line at `place`, `place` alone where it is stored whole: context stands around the whole of it."""
    if not is_part(lines[place]) or entries[place] < 0:
        return [place]
    return [other for other, entry in enumerate(entries) if entry == entries[place]]
