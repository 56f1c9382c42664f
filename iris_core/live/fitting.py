"""How wide each column of a table is: by what stands in it, as far as there is room.

A column that is full of dashes leaves its room to the one beside it. What is needed is measured by whoever draws, over the rows that are
seen; without a measure the wishes of the columns alone decide. Pure. Must never make a column narrower than its minimum, unless all of
its texts are: one that cannot have it is hidden.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from iris_core.live.columns import ColumnSpec

Widths = dict[str, int]


def fit(
    columns: Sequence[ColumnSpec[Any]],
    width: int,
    *,
    gap: int = 1,
    needs: Mapping[str, int] | None = None,
    keep: str = "",
) -> list[tuple[ColumnSpec[Any], int]]:
    """Choose which columns fit into `width` cells and how wide each is, `gap` cells between them.

    Columns are hidden by descending `hide` until the rest fits at its minimum; then those of them that nothing stands in, as far as others
    would be cut for their sake. Of what is left, columns without a share of it get what they
    need first, up to their maximum, because a time or a state is no use when it is cut; then the flexible ones by share, as far as they need
    it; then those that need more than their maximum; the rest goes to the last flexible column.

    Args:
        needs: Cells of the widest text that is seen, by column, 0 = every row that is seen has nothing there, and one that is not in it is
            not known; None = nothing is known, and every column grows to its maximum.
        keep: The column that is hidden last, because the rows are sorted by it.
    """
    shown = list(columns)

    def needed() -> int:
        return sum(column.min_width for column in shown) + gap * max(len(shown) - 1, 0)

    while needed() > width:
        candidates = [column for column in shown if column.hide and column.id != keep]
        candidates = candidates or [column for column in shown if column.hide]
        if not candidates:
            break
        shown.remove(max(candidates, key=lambda column: column.hide))
    if needs is None:
        widths = {column.id: column.min_width for column in shown}
        spare = _grow([c for c in shown if not c.flex], widths, _most(shown), max(width - needed(), 0))
        flexible = [column for column in shown if column.flex]
        _share(flexible, widths, {column.id: column.max_width or width for column in flexible}, spare)
        return [(column, widths[column.id]) for column in shown]
    # A heading has a mark behind it where rows are sorted by it.
    heading = {c.id: min(len(c.title) + (c.sort is not None), c.max_width or width) for c in shown}
    wanted = {c.id: max(needs.get(c.id, 0), heading[c.id]) for c in shown}
    bounded = {column.id: min(wanted[column.id], column.max_width or width) for column in shown}

    def cut() -> bool:
        """Whether a column that has no share of what is left would not get what it needs."""
        least = (min(c.min_width, wanted[c.id]) if c.flex else max(c.min_width, bounded[c.id]) for c in shown)
        return sum(least) + gap * max(len(shown) - 1, 0) > width

    idle = [column for column in shown if column.hide and column.id != keep and needs.get(column.id) == 0]
    while idle and cut():
        column = max(idle, key=lambda column: column.hide)
        idle.remove(column)
        shown.remove(column)
    widths = {column.id: column.min_width for column in shown}
    spare = max(width - needed(), 0)
    flexible = [column for column in shown if column.flex]
    for column in flexible:
        # Its minimum is kept free for texts; where there are none, somebody else has a use for it.
        spare += max(widths[column.id] - wanted[column.id], 0)
        widths[column.id] = min(widths[column.id], wanted[column.id])
    spare = _grow([column for column in shown if not column.flex], widths, bounded, spare)
    spare = _share(flexible, widths, bounded, spare)
    spare = _grow(shown, widths, wanted, spare)
    _grow(
        [column for column in reversed(flexible) if not column.max_width], widths, dict.fromkeys(widths, width), spare
    )
    return [(column, widths[column.id]) for column in shown]


def _most(columns: Sequence[ColumnSpec[Any]]) -> Widths:
    return {column.id: column.max_width for column in columns}


def _grow(columns: Sequence[ColumnSpec[Any]], widths: Widths, upto: Mapping[str, int], spare: int) -> int:
    """Give each column what it lacks, the first ones first; what is left."""
    for column in columns:
        extra = min(max(upto[column.id] - widths[column.id], 0), spare)
        widths[column.id] += extra
        spare -= extra
    return spare


def _share(columns: Sequence[ColumnSpec[Any]], widths: Widths, upto: Mapping[str, int], spare: int) -> int:
    """Divide what there is by the columns' shares until each has what it lacks; what is left."""
    growing = [column for column in columns if widths[column.id] < upto[column.id]]
    while spare > 0 and growing:
        total = sum(column.flex for column in growing)
        given = 0
        for column in list(growing):
            room = upto[column.id] - widths[column.id]
            extra = min(max(spare * column.flex // total, 1), room, spare - given)
            widths[column.id] += extra
            given += extra
            if widths[column.id] >= upto[column.id]:
                growing.remove(column)
        spare -= given
    return spare
