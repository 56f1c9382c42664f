"""Rows below rows: opening and closing them, the same in every list that is a tree.

A tree is a ListScreen with this for its base. What Enter does with a row that has nothing below it is the screen's to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from iris_core.live.wording import Tone
from iris_core.model.text import one_line
from iris_tui.drawing import Run, cut_middle, width_of
from iris_tui.list_screen import ListScreen, SpecCells

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from iris_core.live.columns import ColumnSpec
    from iris_core.live.rows import Row, RowStore
    from iris_tui.glyphs import Glyphs

INDENT: Final = 2


class TreeCells(SpecCells):
    """The cells of rows of several kinds: `columns` are the widths and titles, `specs` what stands in them, by kind and column.

    The first column is the tree: each row is set in by its depth, with a handle where it opens.
    """

    def __init__(
        self,
        columns: Sequence[ColumnSpec[Any]],
        specs: Mapping[str, Mapping[str, ColumnSpec[Any]]],
        glyphs: Glyphs,
        store: RowStore[Any],
    ) -> None:
        super().__init__(columns)
        self.moving = frozenset(spec.id for kind in specs.values() for spec in kind.values() if spec.moves)
        self._specs = specs
        self._glyphs = glyphs
        self._store = store

    def cells(self, row: Row[Any], column: str, width: int, now_ms: int) -> list[Run]:
        spec = self._specs[row.kind].get(column)
        if spec is None:
            return []
        text = one_line(spec.text(row.value, now_ms))
        tone = Tone.DIM if row.gone else spec.tone(row.value) if spec.tone is not None else Tone.PLAIN
        if column != self.columns[0].id:
            return [Run(text, tone)]
        glyphs = self._glyphs
        handle = (glyphs.opened if row.id in self._store.expanded else glyphs.closed) if row.expandable else " "
        runs = [Run(" " * (row.depth * INDENT)), Run(f"{handle} ", Tone.DIM)]
        return [*runs, Run(cut_middle(text, width - width_of(runs), glyphs.ellipsis), tone)]

    def sort_key(self, column: str, now_ms: int) -> Callable[[Row[Any]], Any] | None:
        """Siblings by a column; kinds that do not have it keep their natural order."""
        if super().sort_key(column, now_ms) is None:
            return None

        def key(row: Row[Any]) -> Any:
            spec = self._specs[row.kind].get(column)
            return spec.sort(row.value, now_ms) if spec is not None and spec.sort is not None else 0

        return key


class TreeRows(ListScreen):
    """Answers the scope "tree"."""

    def open_row(self, row: Row[Any]) -> None:
        """Show what is below a row; one that has nothing below it is entered."""
        if row.expandable:
            self.store.expand(row.id)
        else:
            self.enter_row(row)

    def close_row(self, row: Row[Any]) -> None:
        """Hide what is below a row."""
        self.store.expand(row.id, on=False)

    def enter_row(self, row: Row[Any]) -> None:
        """What Enter does with a row that has nothing below it."""

    def do_open(self) -> None:
        row = self.table.row
        if row is None:
            return
        self.table.touch()
        if row.id in self.store.expanded:
            self.close_row(row)
        else:
            self.open_row(row)
        if self.is_current:
            self.soon()

    def do_into(self) -> None:
        row = self.table.row
        if row is not None and row.id in self.store.expanded:
            self.table.do_down()
        else:
            self.do_open()

    def do_close(self) -> None:
        row = self.table.row
        if row is None:
            return
        if row.id in self.store.expanded:
            self.close_row(row)
            self.soon()
        elif row.parent:
            self.table.move_to(row.parent)
