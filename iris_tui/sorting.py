"""By which column a list is sorted, and which way: by a key, by `:sort`, or from column to column.

A base of `ListScreen`. What a column is sorted by is the list's to say; asked for again the order turns around, and then goes back to how
the rows come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from iris_core.model.errors import ModelError, did_you_mean
from iris_core.model.text import one_line

if TYPE_CHECKING:
    from iris_core.live.rows import Row, RowStore
    from iris_tui.screen import ConsoleScreen
    from iris_tui.widgets.virtual_table import VirtualTable

    Base = ConsoleScreen
else:
    Base = object


class Sorting(Base):
    """Mix into a list, before the screen class."""

    store: RowStore[Any]
    table: VirtualTable

    def sort_key(self, column: str) -> Callable[[Row[Any]], Any] | None:
        """The key to sort by a column, None if that makes no sense."""
        raise NotImplementedError

    def sortable(self) -> list[str]:
        """The columns that can be sorted by, in their order."""
        raise NotImplementedError

    def soon(self) -> None:
        """Show the effect with the next flush."""
        raise NotImplementedError

    def _key(self, action_id: str) -> str:
        """The key of an action as a person reads it."""
        raise NotImplementedError

    def sort_by(self, column: str, *, reverse: bool = False) -> None:
        """Sort by a column; "" = as the rows come."""
        table = self.table
        key = self.sort_key(column) if column else None
        table.sorted_by, table.reversed = (column, reverse) if key is not None else ("", False)
        self.store.set_sort(key, reverse=table.reversed)
        table.relayout()
        self.soon()

    def turn_sort(self, column: str) -> None:
        """Sort by a column; asked again, the other way round; asked once more, as the rows come."""
        table = self.table
        if table.sorted_by != column:
            self.sort_by(column)
        elif not table.reversed:
            self.sort_by(column, reverse=True)
        else:
            self.sort_by("")

    def do_sort(self, text: str) -> None:
        column, _, way = text.partition(" ")
        if column and column not in self.sortable():
            known = self.sortable()
            raise ModelError(
                f"no column {one_line(column)!r} to sort by",
                hint=did_you_mean(column, known) or f"one of {', '.join(known)}",
            )
        if way not in ("", "desc", "asc"):
            raise ModelError(f"sort {column} asc or desc, not {one_line(way)!r}")
        falls = any(known.id == column and known.falls for known in self.table.view.columns)
        # What was said is about the values, whichever of them the column puts first by itself.
        self.sort_by(column, reverse=bool(way) and (way == "desc") != falls)

    def _step_sort(self, by: int) -> None:
        columns = ["", *self.sortable()]
        at = columns.index(self.table.sorted_by) if self.table.sorted_by in columns else 0
        self.sort_by(columns[(at + by) % len(columns)])

    def do_sort_right(self) -> None:
        self._step_sort(1)

    def do_sort_left(self) -> None:
        self._step_sort(-1)

    def do_reverse(self) -> None:
        if self.table.sorted_by:
            self.sort_by(self.table.sorted_by, reverse=not self.table.reversed)
        else:
            self.console.say(f"no column is sorted by; {self._key('list.sort_right')} chooses one", severity="warning")

    def do_reorder(self) -> None:
        self.soon()
