"""Rows below rows: opening and closing them, the same in every list that is a tree.

A tree is a ListScreen with this for its base. What Enter does with a row that has nothing below it is the screen's to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iris_tui.list_screen import ListScreen

if TYPE_CHECKING:
    from iris_core.live.rows import Row


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
