"""A table of any number of live rows: it draws only the lines on the screen, from a store it does not copy.

The cursor is an id. After a new order the selected row stays on the same screen line; a row that went away stays as a
tombstone until the cursor leaves it. An untouched table, where nobody has chosen a row yet, keeps its cursor on the first
line, so that new rows are seen to arrive. Drawn lines are cached by what they depend on, and a flush redraws the lines whose
rows changed and no others (console §2.3a). Pages move without animation.

Columns are as wide as the rows that were seen need them; they only grow until the room is another one, so that nothing moves to and fro.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from textual.geometry import Region, Size
from textual.message import Message

from iris_core.live.columns import NOTHING, ColumnSpec, Tone
from iris_core.live.fitting import fit
from iris_tui.drawing import Run, padded, strip_of, width_of
from iris_tui.keymap import bindings
from iris_tui.scope import ActionHost
from iris_tui.widgets.line import Line, Painted
from iris_tui.widgets.row_texts import Pieces, RowTexts
from iris_tui.widgets.scrolled import Scrolled

if TYPE_CHECKING:
    from textual import events
    from textual.strip import Strip

    from iris_core.live.rows import ChangeSet, Row, RowStore
    from iris_tui.glyphs import Glyphs

GUTTER = 2
"""Cells left of the first column: cursor and mark."""
_SCREENS = 4
_WIDEST = 512
"""So wide a cell is asked for to learn what it needs."""
_MOST_MEASURED = 4096
"""Rows that are known to have been measured; beyond them all are forgotten, not what they needed."""


class Cells(Protocol):
    """What a table shows: its columns, and the texts of a row."""

    columns: Sequence[ColumnSpec[Any]]
    moving: frozenset[str]
    """Ids of the columns whose texts time alone changes. All other texts are as they are until the row is another version."""

    def cells(self, row: Row[Any], column: str, width: int, now_ms: int) -> list[Run]:
        """The cell's texts; they are cut and padded by the table."""
        ...

    def whole(self, row: Row[Any]) -> list[Run] | None:
        """The texts of a row that has no columns, None for one that has."""
        ...


class TableHeader(Line):
    """The column titles above a table."""

    def __init__(self) -> None:
        super().__init__()
        self.can_focus = False


class VirtualTable(ActionHost, Scrolled, Painted, can_focus=True, inherit_bindings=False):
    """Draws a RowStore. Call `flush` after the store changed, `tick` once a second, `reordered` after a new order."""

    DEFAULT_CSS = """
    VirtualTable { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; scrollbar-gutter: stable; }
    """
    SCOPES: ClassVar[tuple[str, ...]] = ("table",)
    BINDINGS = bindings("table")

    class Moved(Message):
        """The cursor is on another row, or the end of the rows came into view."""

        def __init__(self, table: VirtualTable, row_id: str, at_end: bool) -> None:
            super().__init__()
            self.table = table
            self.row_id = row_id
            self.at_end = at_end

        @property
        def control(self) -> VirtualTable:
            return self.table

    def __init__(self, store: RowStore[Any], view: Cells, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.store = store
        self.view = view
        self.glyphs = glyphs
        self.header = TableHeader()
        self.cursor_id = ""
        self.touched = False
        """Whether a row was chosen: by a key, a click, or an action."""
        self.leads = True
        """Whether the cursor that is drawn is the one of the screen: of two tables it is the one that had the keys last (`lead`)."""
        self.now_ms = 0
        self.sorted_by = ""
        self.reversed = False
        self.drawn = 0
        """Lines drawn anew so far: for tests of what a flush costs."""
        self._line = 0
        self._wanted = ""
        """The row that was chosen last: the cursor returns to it when a filter had hidden it."""
        self._fitted: list[tuple[ColumnSpec[Any], int]] = []
        self._fitted_for = -1
        self._texts = RowTexts(view, (), 0)
        self._needs: dict[str, int] = {}
        """Cells that the widest text seen takes, by column; 0 where nothing stands in it."""
        self._needs_of: tuple[ColumnSpec[Any], ...] = ()
        self._measured: dict[str, int] = {}
        """Version of each row that was measured."""
        self._measuring = False
        self._cache: OrderedDict[str, tuple[tuple[Any, ...], Pieces, Strip]] = OrderedDict()
        self._ahead: dict[str, tuple[tuple[Any, ...], Pieces]] = {}
        """Pieces that a tick has made already, and of what: to make them is half of what a line costs."""

    # --- data --------------------------------------------------------------------------------------------------------

    def flush(self, changes: ChangeSet) -> None:
        """Redraw the lines whose rows changed."""
        if not changes:
            return
        first = self.scroll_offset.y
        lines = self.store.visible_changes(changes.changed | changes.removed, first, self.size.height)
        if lines and not self._measure(self.store.order[line] for line in lines):
            self._redraw(lines)

    def tick(self, now_ms: int) -> None:
        """Time passed: redraw the lines whose texts depend on it."""
        self.now_ms = now_ms
        self._ahead.clear()
        self._fit()
        moved: list[int] = []
        first = self.scroll_offset.y
        for line, name in enumerate(self.store.order[first : first + self.size.height], first):
            entry = self._cache.get(name)
            row = self.store.get(name)
            if entry is None or row is None:
                continue
            made_of = self._made_of(row)
            same = entry[0][0] == made_of
            pieces = self._texts.moved(row, entry[1], now_ms) if same else self._texts.pieces(row, now_ms)
            if pieces != entry[1]:
                del self._cache[name]
                self._ahead[name] = (made_of, pieces)
                moved.append(line)
        self._redraw(moved)

    def _redraw(self, lines: Sequence[int]) -> None:
        """Draw these lines, from the top, anew. To ask for one costs as much as to draw it: neighbours are asked for at once."""
        top, width = self.scroll_offset.y, max(self.virtual_size.width, self.size.width)
        regions: list[Region] = []
        for line in lines:
            if regions and regions[-1].bottom == line - top:
                regions[-1] = regions[-1].grow((0, 0, 1, 0))
            else:
                regions.append(Region(0, line - top, width, 1))
        if regions:
            self.refresh(*regions)

    def reordered(self) -> None:
        """The store has a new order: keep the selected row where it is on the screen."""
        order = self.store.order
        self.virtual_size = Size(self.room, len(order))
        if self._wanted and self._wanted != self.cursor_id and (back := self.store.index(self._wanted)) >= 0:
            # The chosen row had been filtered out, and is here again.
            self._choose(self._wanted, back)
            self._keep_visible()
            self.refresh()
            return
        if not order:
            self._line = 0
            self._choose("", 0)
            self.refresh()
            return
        if not self.touched or not self.cursor_id:
            self._choose(order[0], 0)
            self._scroll_to_line(0)
        else:
            line = self.store.index(self.cursor_id)
            if line < 0:
                line = min(self._line, len(order) - 1)
                self._choose(order[line], line)
            else:
                shift = line - self._line
                self._line = line
                if shift:
                    self._scroll_to_line(self.scroll_offset.y + shift)
        self._keep_visible()
        self._measure_seen()
        self.refresh()

    @property
    def row(self) -> Row[Any] | None:
        """The row under the cursor."""
        return self.store.get(self.cursor_id) if self.cursor_id else None

    def touch(self) -> None:
        """From now on the cursor stays with its row: it was chosen."""
        self.touched = True
        self._wanted = self.cursor_id

    def move_to(self, name: str) -> bool:
        """Put the cursor on a row; False if it is not shown."""
        line = self.store.index(name)
        if line < 0:
            return False
        self.touch()
        self._go(line)
        return True

    def columns_shown(self) -> list[str]:
        """Ids of the columns that fit."""
        return [column.id for column, _ in self._fit()]

    def relayout(self) -> None:
        """Columns or sort marks changed."""
        if tuple(self.view.columns) != self._needs_of:
            self._forget_needs()
        self._fitted_for = -1
        self._cache.clear()
        self._ahead.clear()
        self.refresh()
        self._draw_header()

    # --- moving ------------------------------------------------------------------------------------------------------

    def do_up(self) -> None:
        self._go(self._line - 1)

    def do_down(self) -> None:
        self._go(self._line + 1)

    def do_page_up(self) -> None:
        self._page(-1)

    def do_page_down(self) -> None:
        self._page(1)

    def do_top(self) -> None:
        self._go(0)

    def do_bottom(self) -> None:
        self._go(len(self.store.order) - 1)

    def _page(self, direction: int) -> None:
        step = max(self.size.height - 1, 1) * direction
        offset = self.scroll_offset.y + step
        self._scroll_to_line(offset)
        self._go(self._line + step)

    def _go(self, line: int) -> None:
        self.touch()
        order = self.store.order
        if not order:
            return
        line = min(max(line, 0), len(order) - 1)
        before = self._line
        self._choose(order[line], line)
        self._wanted = order[line]
        self._keep_visible()
        self.refresh_line(before)
        self.refresh_line(line)

    def _choose(self, name: str, line: int) -> None:
        self._line = line
        changed = name != self.cursor_id
        self.cursor_id = name
        self.store.hold(name)
        at_end = line >= len(self.store.order) - 1
        if changed or at_end:
            self.post_message(self.Moved(self, name, at_end))

    def _keep_visible(self) -> None:
        height, top = self.size.height, self.scroll_offset.y
        if self._line < top:
            self._scroll_to_line(self._line)
        elif height and self._line >= top + height:
            self._scroll_to_line(self._line - height + 1)

    def _scroll_to_line(self, line: int) -> None:
        self.scroll_to(y=max(min(line, len(self.store.order) - self.size.height), 0), animate=False, force=True)

    def on_click(self, event: events.Click) -> None:
        line = self.scroll_offset.y + event.get_content_offset_capture(self).y
        if 0 <= line < len(self.store.order):
            self._go(line)

    def on_resize(self) -> None:
        self.virtual_size = Size(self.room, len(self.store.order))
        self._forget_needs()
        self.relayout()
        self._keep_visible()
        self._measure_seen()

    def on_focus(self) -> None:
        self.refresh_line(self._line)

    def on_blur(self) -> None:
        self.refresh_line(self._line)

    def lead(self, *, on: bool = True) -> None:
        """Draw the cursor as that of the screen, or only the line that it is on."""
        if on is not self.leads:
            self.leads = on
            self.refresh_line(self._line)

    # --- widths ------------------------------------------------------------------------------------------------------

    def _forget_needs(self) -> None:
        self._needs.clear()
        self._measured.clear()
        self._needs_of = tuple(self.view.columns)

    def _measure_seen(self) -> None:
        """Learn what the rows on the screen need."""
        self._measuring = False
        first = self.scroll_offset.y
        self._measure(self.store.order[first : first + self.size.height])

    def _measure(self, names: Iterable[str]) -> bool:
        """Learn what these rows need; whether the columns have other widths for it, and all was drawn anew."""
        if len(self._measured) > _MOST_MEASURED:
            self._measured.clear()
        # Of one width only, a column needs no measure once something stands in it.
        elastic = [
            column
            for column in self.view.columns
            if column.flex or column.max_width != column.min_width or (column.hide and not self._needs.get(column.id))
        ]
        grown = False
        for name in names:
            row = self.store.get(name)
            if row is None or self._measured.get(name) == row.version or self.view.whole(row) is not None:
                continue
            self._measured[name] = row.version
            for column in elastic:
                cell = self.view.cells(row, column.id, _WIDEST, self.now_ms)
                need = 0 if len(cell) == 1 and cell[0].text == NOTHING else width_of(cell)
                if need > self._needs.get(column.id, -1):
                    self._needs[column.id] = need
                    grown = True
        if not grown:
            return False
        before, self._fitted_for = self._fitted, -1
        if self._fit() == before:
            return False
        self.relayout()
        return True

    # --- drawing -----------------------------------------------------------------------------------------------------

    def _fit(self) -> list[tuple[ColumnSpec[Any], int]]:
        width = self.room
        if self._fitted_for != width:
            fitted = fit(self.view.columns, width - GUTTER, needs=self._needs or None, keep=self.sorted_by)
            if fitted != self._fitted:
                self._cache.clear()
                self._ahead.clear()
            self._fitted, self._fitted_for = fitted, width
            self._texts = RowTexts(self.view, fitted, width - GUTTER)
        return self._fitted

    def _draw_header(self) -> None:
        runs = [Run(" " * GUTTER)]
        for number, (column, width) in enumerate(self._fit()):
            title = column.title
            if column.id == self.sorted_by:
                title += self.glyphs.descending if self.reversed != column.falls else self.glyphs.ascending
            tone = Tone.BUSY if column.id == self.sorted_by else Tone.DIM
            runs.append(Run((" " if number else "") + padded(title, width, right=column.align == "right"), tone))
        self.header.show(runs)

    def _made_of(self, row: Row[Any]) -> tuple[Any, ...]:
        """What the pieces of a row's line are made of, but for the time."""
        return (row.version, row.gone, row.depth, row.context, row.id in self.store.expanded)

    def render_line(self, y: int) -> Strip:
        line = y + self.scroll_offset.y
        width = self.room
        order = self.store.order
        row = self.store.get(order[line]) if line < len(order) else None
        if row is None:
            return strip_of([], width, self.paint)
        at_cursor = row.id == self.cursor_id
        marked = row.id in self.store.marks
        look = self.paint
        made_of = self._made_of(row)
        key = (made_of, width, at_cursor and (self.leads, self.has_focus), marked, look.generation)
        entry = self._cache.get(row.id)
        if entry is not None and entry[0] == key:
            self._cache.move_to_end(row.id)
            return entry[2]
        self.drawn += 1
        if not self._measuring and self._measured.get(row.id) != row.version:
            # It came into view by scrolling.
            self._measuring = True
            self.call_later(self._measure_seen)
        self._fit()
        texts = self._texts
        ahead = self._ahead.pop(row.id, None)
        pieces = ahead[1] if ahead is not None and ahead[0] == made_of else texts.pieces(row, self.now_ms)
        gutter = [
            Run(self.glyphs.cursor if at_cursor and self.leads else " ", Tone.BUSY),
            Run(self.glyphs.mark if marked else " ", Tone.WARN),
        ]
        over = (look.cursor if self.has_focus else look.idle_cursor) if at_cursor else None
        runs = [run for piece in pieces for run in piece]
        shown = [Run(run.text, Tone.DIM) for run in runs] if row.gone or row.context else runs
        used = None if texts.used is None or self.view.whole(row) is not None else GUTTER + texts.used
        strip = strip_of([*gutter, *shown], width, look, over=over, used=used)
        self._cache[row.id] = (key, pieces, strip)
        while len(self._cache) > max(_SCREENS * self.size.height, 64):
            self._cache.popitem(last=False)
        return strip
