"""Reads what stands around the hits of a view, key by key, in windows, so that hits that lie close cost one read together.

Context is counted in lines: where a neighbour is stored in parts, as much more is read. Of texts only so much is kept as tells a
traceback. A hit whose surroundings reach the end of what is stored is looked at again when there is more. Must never decide what belongs to a
hit: `context` does.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from iris_controller.finelog.context import (
    LOOK_LINES,
    NEAR_LINES,
    around,
    entries_of,
    is_part,
    may_be_entry,
    parts_of_line,
)
from iris_controller.finelog.numbers import BREAKS, CONTEXT
from iris_controller.finelog.query import Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from iris_controller.finelog.query import Query
    from iris_core.wire.gen.iris.v1 import logs_pb2

    Read = Callable[[Query], Generator[None, None, logs_pb2.FetchLogsResponse]]

WINDOW_LINES = 1000
NEAR_WINDOW = 64
"""Lines from a hit on that are read at once, so that the next one may be among them."""
MOST_PARTS = 1000
"""So many entries more than lines are wanted are read on either side: long neighbours of 256 MiB together."""
HELD_TEXT = 4096
"""Characters of a line that are kept: those in which a traceback begins."""


@dataclass(slots=True)
class _Key:
    """Up to where lines of a key are in the view, and the hits whose surroundings were cut short."""

    last_seq: int = 0
    open: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Stretch:
    """Entries that join each other, and whether there are no more on that side."""

    lines: list[logs_pb2.StoredLine] = field(default_factory=list)
    is_all: bool = False

    def wants(self, count: int) -> int:
        """How many more entries to read for so many whole lines."""
        if len(self.lines) >= count + MOST_PARTS:
            return 0
        missing = count - sum(not line.partial for line in self.lines)
        # The last line that is missing may have many parts: not one read for each of them.
        return max(missing, WINDOW_LINES) if missing > 0 and self.lines else max(0, missing)


def _shortened(line: logs_pb2.StoredLine) -> logs_pb2.StoredLine:
    line.ClearField("raw")
    if is_part(line):
        line.ClearField("data")
    elif len(line.data) > HELD_TEXT:
        line.data = line.data[:HELD_TEXT]
    return line


def _following(window: list[logs_pb2.StoredLine]) -> list[int]:
    """For each entry how many lines end behind it."""
    found = [0] * len(window)
    count = 0
    for place in range(len(window) - 1, -1, -1):
        found[place] = count
        count += not window[place].partial
    return found


class Surroundings:
    """`context` lines on either side; `base` gives the bounds of the view, `read` one answer in slices."""

    def __init__(self, base: Query, context: int, read: Read) -> None:
        self._base = replace(base.ignoring_content, cursor=0, before=0, min_level=0, since_ms=0, until_ms=0, tail=False)
        self._context = context
        self._read = read
        self._keys: dict[str, _Key] = {}

    def of(
        self, hits: Iterable[logs_pb2.StoredLine], upto: int
    ) -> Generator[None, None, list[tuple[logs_pb2.StoredLine, int]]]:
        """The hits, all those up to the seq `upto`, with their surroundings up to there: lines and flags, in the order of seq."""
        by_key: dict[str, list[int]] = {key: list(known.open) for key, known in self._keys.items() if known.open}
        fresh: set[int] = set()
        for hit in hits:
            by_key.setdefault(hit.key, []).append(hit.seq)
            fresh.add(hit.seq)
        found: list[tuple[logs_pb2.StoredLine, int]] = []
        for key, seqs in by_key.items():
            found += yield from self._of_key(key, seqs, fresh, upto)
        found.sort(key=lambda item: item[0].seq)
        return found

    def _of_key(
        self, key: str, seqs: list[int], fresh: set[int], upto: int
    ) -> Generator[None, None, list[tuple[logs_pb2.StoredLine, int]]]:
        known = self._keys.setdefault(key, _Key())
        known.open = []
        query = replace(self._base, scope=Scope(key))
        found: list[tuple[logs_pb2.StoredLine, int]] = []
        at = 0
        while at < len(seqs):
            first = seqs[at]
            # Most hits are no part of anything: then few lines are read.
            reach = max(self._context + 1, NEAR_LINES)
            before, after = yield from self._window(query, first, upto, reach, NEAR_WINDOW)
            window = [*before.lines, *after.lines]
            hit = len(before.lines)
            if hit < len(window) and window[hit].seq == first and may_be_entry(window, hit):
                reach = self._context + LOOK_LINES
                before, after = yield from self._window(query, first, upto, reach, WINDOW_LINES)
                window = [*before.lines, *after.lines]
            is_end = after.is_all
            has_parts = any(map(is_part, window))
            following = _following(window)
            places = {line.seq: place for place, line in enumerate(window)}
            entries = entries_of(window)
            chosen: set[int] = set()
            began = at
            while at < len(seqs):
                place = places.get(seqs[at])
                if place is None:
                    # Beyond the window, or (the first) removed meanwhile.
                    at += at == began
                    break
                if at > began and (
                    (following[place] < reach and not is_end)
                    or (reach < self._context + LOOK_LINES and may_be_entry(window, place))
                ):
                    break
                parts = parts_of_line(window, entries, place)
                fresh.update(window[part].seq for part in parts)
                brought: set[int] = set()
                for part in {parts[0], parts[-1]}:
                    brought |= around(window, entries, part, self._context, has_parts=has_parts)
                chosen |= brought
                goes_on = window[-1].partial and len(window) - 1 in brought
                if following[parts[-1]] < self._context or goes_on or entries[-1] == entries[place] >= 0:
                    known.open.append(seqs[at])
                at += 1
            found += self._flagged(known, window, sorted(chosen), fresh, is_whole=before.is_all)
        return found

    def _window(
        self, query: Query, first: int, upto: int, reach: int, lines: int
    ) -> Generator[None, None, tuple[_Stretch, _Stretch]]:
        """What stands before the line with the seq `first`, and from it on."""
        before, after = _Stretch(), _Stretch()
        place = first
        while not before.is_all and (more := before.wants(reach)):
            answer = yield from self._read(replace(query, before=place, tail=True, max_lines=more))
            before.lines[:0] = map(_shortened, answer.entries)
            place = answer.from_seq
            before.is_all = not place
        place = first - 1
        while not after.is_all and (more := after.wants(max(lines, 2 * reach + 1))):
            answer = yield from self._read(replace(query, cursor=place, before=upto + 1, max_lines=more))
            after.lines += map(_shortened, answer.entries)
            after.is_all = answer.cursor >= upto or answer.cursor <= place
            place = answer.cursor
        return before, after

    def _flagged(
        self,
        known: _Key,
        window: list[logs_pb2.StoredLine],
        chosen: list[int],
        fresh: set[int],
        *,
        is_whole: bool,
    ) -> Generator[tuple[logs_pb2.StoredLine, int]]:
        """Those of `chosen` that are not in the view yet. `is_whole`: the window begins with the first line of the key."""
        for place in chosen:
            line = window[place]
            if line.seq <= known.last_seq:
                continue
            flags = 0 if line.seq in fresh else CONTEXT
            if (known.last_seq and (window[place - 1].seq if place else 0) > known.last_seq) or (
                known.last_seq and not place and not is_whole
            ):
                flags |= BREAKS
            known.last_seq = line.seq
            yield line, flags
