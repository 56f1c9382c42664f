"""The texts of a table's lines, in pieces: what time moves stands apart from what only another version of the row changes.

A tick makes the moving pieces anew and keeps the others as they are: most of a line is not looked at again while nothing happens. In a
piece that may be kept neighbours of one tone are one text, because whatever is done with a line later is done with each of its texts.
Must never be used for other columns or widths than it was made for.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeAlias

from iris_tui.drawing import Run, cut_runs, joined, width_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_core.live.columns import ColumnSpec
    from iris_core.live.rows import Row
    from iris_tui.widgets.virtual_table import Cells

Pieces: TypeAlias = list[list[Run]]
"""The texts of a line, from left to right."""


class RowTexts:
    """The texts of rows for columns of these widths, a blank between them, in `room` cells.

    Attributes:
        used: Cells of every line that has columns; None where the columns are wider than the room, and lines have to be cut.
    """

    def __init__(self, view: Cells, fitted: Sequence[tuple[ColumnSpec[Any], int]], room: int) -> None:
        self._view = view
        self._fitted = fitted
        moves = [column.id in view.moving for column, _ in fitted]
        self._parts = [(moving, list(places)) for moving, places in groupby(range(len(fitted)), moves.__getitem__)]
        """Which columns a piece is of, and whether they move."""
        used = sum(width for _, width in fitted) + max(len(fitted) - 1, 0)
        self.used = used if used <= room else None

    def pieces(self, row: Row[Any], now_ms: int) -> Pieces:
        """All of a line."""
        whole = self._view.whole(row)
        return [whole] if whole is not None else [self._piece(row, places, now_ms) for _, places in self._parts]

    def moved(self, row: Row[Any], pieces: Pieces, now_ms: int) -> Pieces:
        """The same for a row of which nothing has changed but the time since `pieces` were made."""
        whole = self._view.whole(row)
        if whole is not None:
            return [whole]
        return [
            self._piece(row, places, now_ms) if moving else piece
            for (moving, places), piece in zip(self._parts, pieces, strict=True)
        ]

    def _piece(self, row: Row[Any], places: Sequence[int], now_ms: int) -> list[Run]:
        runs: list[Run] = []
        for place in places:
            column, width = self._fitted[place]
            cell = cut_runs(self._view.cells(row, column.id, width, now_ms), width)
            blank = Run(" " * (width - width_of(cell)))
            if place:
                runs.append(Run(" "))
            runs += [blank, *cell] if column.align == "right" else [*cell, blank]
        # Where a line is cut, it is cut as if nothing had been joined.
        return joined(runs) if self.used is not None else runs
