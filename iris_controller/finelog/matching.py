"""Which rows of a batch match what is searched for in the text of a line, decided for the whole batch at once.

Arrow's kernels do it. Their regex engine is RE2, the engine that checks every pattern, and a differential test holds the two equal.
A plain text is searched for as a quoted pattern, which is more than twice as quick as Arrow's own search for one. What that engine
refuses, because it counts a pattern's memory a little differently, is matched line by line by the one that accepted it.

Means what `Query.content_test` says of one line. Must never look at anything but the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_controller.finelog.query import Query
    from iris_core.wire.gen.iris.v1 import logs_pb2


def matches(query: Query, batch: Any) -> Any:
    """A mask (`pyarrow.BooleanArray`) of the rows of a `RecordBatch` that match.

    It has the column `data`, and `part` and `seam` unless no row is a part of a line.
    """
    masks = []
    if text := query.substring:
        masks.append(_matches(batch, quoted(text), text.__contains__))
    if (regex := query.regex) is not None:
        masks.append(_matches(batch, regex.pattern, regex.search))
    if not masks:
        return pa.repeat(True, batch.num_rows)
    return masks[0] if len(masks) == 1 else pc.and_(*masks)


def _matches(batch: Any, pattern: str, test: Callable[[str], bool]) -> Any:
    found = _search(batch.column("data"), pattern, test)
    if "seam" not in batch.schema.names or batch.column("seam").null_count == batch.num_rows:
        return found
    is_part = pc.greater(batch.column("part"), 0)
    return pc.or_(found, pc.and_(is_part, _search(batch.column("seam"), pattern, test)))


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


def _search(texts: Any, pattern: str, test: Callable[[str], bool]) -> Any:
    """Whether each of the texts matches; NULL does not."""
    try:
        mask = pc.match_substring_regex(texts, pattern)
    except pa.ArrowInvalid:
        mask = pa.array([text is not None and test(text) for text in texts.to_pylist()], pa.bool_())
    return pc.fill_null(mask, False) if mask.null_count else mask
