"""Which rows of a row group are wanted before anybody looks at their text: by seq, key, attempt, time and level.

Column by column, and a column is only tested where the bounds of a run do not tell already that all of its rows pass.
Must never look at a text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from iris_controller.finelog.index import GAP_BIT, is_inside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iris_controller.finelog.query import Query
    from iris_controller.finelog.runs import Run


@dataclass(slots=True)
class Piece:
    """Neighbouring rows of a row group, and what has to be tested of each of them."""

    start: int
    rows: int
    by_seq: bool
    by_owner: bool
    by_bounds: bool
    has_gaps: bool


def pieces_of(query: Query, runs: list[Run], low: int, high: int) -> Iterator[Piece]:
    """The rows of some runs of one row group; neighbours are taken together."""
    piece: Piece | None = None
    for run in runs:
        following = Piece(
            run.start,
            run.rows,
            run.first_seq < low or run.last_seq >= high,
            not run.is_owned(query),
            not is_inside(query, run.earliest_ms, run.latest_ms, run.levels),
            bool(run.levels & GAP_BIT),
        )
        if piece is None:
            piece = following
        elif piece.start + piece.rows == following.start:
            piece = Piece(
                piece.start,
                piece.rows + following.rows,
                piece.by_seq or following.by_seq,
                piece.by_owner or following.by_owner,
                piece.by_bounds or following.by_bounds,
                piece.has_gaps or following.has_gaps,
            )
        else:
            yield piece
            piece = following
    if piece is not None:
        yield piece


def tested(pieces: list[Piece]) -> set[str]:
    """The columns by which rows are left out before their text is looked at."""
    columns: set[str] = set()
    if any(piece.by_owner for piece in pieces):
        columns |= {"seq", "incarnation", "attempt_uid"}
    if any(piece.by_bounds for piece in pieces):
        columns |= {"seq", "epoch_ms", "level"}
    if any(piece.by_seq for piece in pieces):
        columns.add("seq")
    return columns


def masks(query: Query, piece: Piece, rows: Any, low: int, high: int) -> tuple[Any, Any]:
    """Which rows are wanted by seq, key and attempt, and which of them pass the bounds as well; None is all of them."""
    mask = seq_mask(rows, low, high) if piece.by_seq else None
    if piece.by_owner:
        mask = both(mask, owner_mask(query, rows))
    return mask, both(mask, _bounds_mask(query, rows)) if piece.by_bounds else mask


def seq_mask(rows: Any, low: int, high: int) -> Any:
    """Which rows have a seq from `low` to `high - 1`."""
    seqs = rows.column("seq")
    return pc.and_(pc.greater_equal(seqs, low), pc.less(seqs, high))


def owner_mask(query: Query, rows: Any) -> Any:
    """Which rows are of an incarnation and attempt that are asked for."""
    mask = pc.greater_equal(rows.column("incarnation"), query.min_incarnation)
    if query.attempt_uid:
        mask = pc.and_(mask, pc.equal(rows.column("attempt_uid"), query.attempt_uid))
    return mask


def time_mask(query: Query, rows: Any) -> Any:
    """Which rows are of a time that is asked for; None is all of them."""
    mask = None
    times = rows.column("epoch_ms")
    if query.since_ms:
        mask = pc.greater(times, query.since_ms)
    if query.until_ms:
        mask = both(mask, pc.less(times, query.until_ms))
    return mask


def _bounds_mask(query: Query, rows: Any) -> Any:
    mask = time_mask(query, rows)
    if query.min_level:
        levels = rows.column("level")
        passes = pc.greater_equal(levels, query.min_level)
        mask = both(mask, passes if query.states_level else pc.or_(pc.equal(levels, 0), passes))
    return mask


def both(one: Any, other: Any) -> Any:
    """Which rows pass two masks; None is all of them."""
    if one is None or other is None:
        return other if one is None else one
    return pc.and_(one, other)
