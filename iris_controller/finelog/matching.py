"""Which rows of a batch match what is searched for in the text of a line, decided for the whole batch at once.

Where every match holds a certain text, that is looked for first, in all lines at once, as they lie one behind the other in memory. The
few lines that hold it are matched by Arrow's kernel, or all lines are. Its engine is RE2, the engine that checks every pattern, and a
differential test holds the two equal. What that engine refuses, because it counts a pattern's memory a little differently, is
matched line by line by the one that accepted it.

Means what `Query.content_test` says of one line. Must never let a pattern near an engine that backtracks.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from iris_controller.finelog.literals import longest_literal
from iris_controller.finelog.memory import finder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_controller.finelog.query import Query
    from iris_core.wire.gen.iris.v1 import logs_pb2


SHORTEST = 3
"""Characters of a text that is worth looking for first."""
FEW = 8
"""So many lines, and one in `SHARE`, may hold it; if more do, all are matched."""
SHARE = 16


def matches(query: Query, batch: Any) -> Any:
    """A mask (`pyarrow.BooleanArray`) of the rows of a `RecordBatch` that match.

    It has the column `data`, and `part` and `seam` unless no row is a part of a line.
    """
    masks = []
    if text := query.substring:
        masks.append(_matches(batch, _Search(text, "", text.__contains__)))
    if (regex := query.regex) is not None:
        masks.append(_matches(batch, _Search(longest_literal(regex.pattern), regex.pattern, regex.search)))
    if (without := query.without) is not None:
        found = _matches(batch, _Search(longest_literal(without.pattern), without.pattern, without.search))
        masks.append(pc.invert(found))
    if not masks:
        return pa.repeat(True, batch.num_rows)
    return reduce(pc.and_, masks)


def _matches(batch: Any, search: _Search) -> Any:
    found = search.mask(batch.column("data"))
    if "seam" not in batch.schema.names or batch.column("seam").null_count == batch.num_rows:
        return found
    is_part = pc.greater(batch.column("part"), 0)
    return pc.or_(found, pc.and_(is_part, search.mask(pc.fill_null(batch.column("seam"), ""))))


def matching_lines(query: Query, lines: Sequence[logs_pb2.LogEntry]) -> list[bool]:
    """Whether each of some lines that are not in a segment yet matches."""
    columns: dict[str, Any] = {"data": [line.data for line in lines]}
    if any(line.part for line in lines):
        columns["part"] = [line.part for line in lines]
        columns["seam"] = [line.seam for line in lines]
    found: list[bool] = matches(query, pa.record_batch(columns)).to_pylist()
    return found


def quoted(text: str) -> str:
    """The pattern that matches `text` and nothing else."""
    return "".join(
        "\\x00" if sign == "\0" else f"\\{sign}" if sign.isascii() and not (sign.isalnum() or sign == "_") else sign
        for sign in text
    )


class _Search:
    """Every match holds `literal`; without a `pattern` it is all that is searched for. `test` says the same of one text."""

    def __init__(self, literal: str, pattern: str, test: Callable[[str], bool]) -> None:
        self._literal = literal
        self._pattern = pattern
        self._test = test

    def mask(self, texts: Any) -> Any:
        """Whether each of the texts, none of which is NULL, matches."""
        rows = _holding(texts, self._literal) if len(self._literal) >= SHORTEST else None
        if rows is None:
            return self._match(texts)
        if self._pattern and rows:
            places = pa.array(rows, pa.uint64())
            rows = places.filter(self._match(texts.take(places))).to_pylist()
        return _mask_of(rows, len(texts))

    def _match(self, texts: Any) -> Any:
        try:
            return pc.match_substring_regex(texts, self._pattern or quoted(self._literal))
        except pa.ArrowInvalid:
            return pa.array(map(self._test, texts.to_pylist()), pa.bool_())


def _mask_of(rows: list[int], count: int) -> Any:
    """A mask of `count` rows with those set."""
    if not rows:
        return pa.repeat(False, count)
    bits = bytearray((count + 7) // 8)
    for row in rows:
        bits[row >> 3] |= 1 << (row & 7)
    return pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(bits)])


def _holding(texts: Any, literal: str) -> list[int] | None:
    """The places of the texts that hold the literal, ascending; None if they are many."""
    _, ends, data = texts.buffers()
    if not len(texts) or data is None:
        return []
    offsets = memoryview(ends).cast("i")[texts.offset : texts.offset + len(texts) + 1]
    needle = literal.encode()
    find = finder(data, needle, offsets[-1])
    most = FEW + len(texts) // SHARE
    found: list[int] = []
    at = find(offsets[0])
    while at >= 0:
        place = bisect_right(offsets, at) - 1
        following = offsets[place + 1]
        if at + len(needle) <= following:
            found.append(place)
            if len(found) > most:
                return None
            at = find(following)
        else:
            at = find(at + 1)
    return found
