"""A screen that is a live list: filter, sort, marks, honest counts, and a place that is kept.

A concrete list says what its rows are, which columns they have, which fields a filter knows, and what its rows are called;
everything else is here, so that a key means the same in every list. Rows are known by id all the way: cursor, marks and the
targets of a change are never positions. An order is computed at most once a second unless the operator asked for it, in a
thread when there are many rows, and not at all while rows are marked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from iris_core.live.rows import ChangeSet, Row, RowStore
from iris_core.live.wording import Tone
from iris_core.model.errors import ModelError
from iris_core.model.filter import Field, FieldType, Filter, parse_filter
from iris_core.model.text import counted, one_line
from iris_tui.drawing import Run
from iris_tui.filter_suggester import FilterSuggester
from iris_tui.named_filters import NamedFilters
from iris_tui.row_menu import RowMenu
from iris_tui.screen import ConsoleScreen
from iris_tui.sorting import Sorting
from iris_tui.states import live_status
from iris_tui.threads import in_thread
from iris_tui.widgets.line import Line
from iris_tui.widgets.pane import Pane, State, Status
from iris_tui.widgets.prompt import Question
from iris_tui.widgets.virtual_table import VirtualTable

if TYPE_CHECKING:
    from textual.widget import Widget

    from iris_core.live.columns import ColumnSpec
    from iris_core.live.watch import LinkState, Watch
    from iris_tui.session import Session
    from iris_tui.widgets.virtual_table import Cells

ORDER_S: Final = 1.0
"""The order is computed at most this often, unless the operator asked for it."""
THREAD_ROWS: Final = 20_000
"""From this many rows on the order is computed in a thread."""


class Source(Protocol):
    """Where a list's rows come from: a `Feed`, or the session's tree of jobs."""

    store: RowStore[Any]

    @property
    def loaded(self) -> bool:
        """Whether the first snapshot is complete."""
        ...

    def take_changes(self) -> ChangeSet:
        """What changed since the last call."""
        ...


class SpecCells:
    """The cells of rows whose columns are column specs: text and tone come from the spec."""

    def __init__(self, columns: Sequence[ColumnSpec[Any]]) -> None:
        self.columns = columns
        self.moving = frozenset(column.id for column in columns if column.moves)
        self._by_id = {column.id: column for column in columns}

    def whole(self, row: Row[Any]) -> list[Run] | None:
        """No row is one text."""
        return None

    def cells(self, row: Row[Any], column: str, width: int, now_ms: int) -> list[Run]:
        """The texts of one cell; a row that is gone is dim."""
        spec = self._by_id[column]
        tone = Tone.DIM if row.gone else spec.tone(row.value) if spec.tone is not None else Tone.PLAIN
        return [Run(one_line(spec.text(row.value, now_ms)), tone)]

    def sort_key(self, column: str, now_ms: int) -> Callable[[Row[Any]], Any] | None:
        """The key to sort rows by a column, None if it has none."""
        spec = self._by_id.get(column)
        if spec is None or spec.sort is None:
            return None
        sort = spec.sort
        return lambda row: sort(row.value, now_ms)


class ListScreen(NamedFilters, Sorting, RowMenu, ConsoleScreen):
    """One list. Subclasses set the class attributes, and give `make_source`, `make_cells`, `filter_values` and, if a row is worth it,
    `detail_runs`; what can be done with a row is an action whose `kinds` names the row's kind."""

    SCOPES: ClassVar[tuple[str, ...]] = ("list",)
    NOUN: ClassVar[str] = "row"
    TITLE: ClassVar[str] = "Rows"
    FIELDS: ClassVar[Mapping[str, FieldType | Field]] = {}
    WORDS: ClassVar[Sequence[str]] = ()
    """Fields in which a bare word is looked for."""
    SORT: ClassVar[str] = ""
    """The column that it is sorted by until somebody chooses another."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.source = self.make_source()
        self.store: RowStore[Any] = self.source.store
        self.filter: Filter | None = None
        self.table: VirtualTable = None  # type: ignore[assignment]
        self.pane: Pane = None  # type: ignore[assignment]
        self.detail = Line(id="detail")
        self._cells: Cells = None  # type: ignore[assignment]
        self._ordered_at = -1e9
        self._urgent = True
        self._ordering = False
        self._wanted_cursor = ""
        self._rows_seen = False
        """Whether rows were shown once, and the cursor where it was left."""
        self._filter_history = session.saved.history(f"filter {self.NOUN}")

    # --- what a list is ----------------------------------------------------------------------------------------------

    def make_source(self) -> Source:
        """Where the rows come from."""
        raise NotImplementedError

    def make_cells(self) -> Cells:
        """The columns and cells."""
        raise NotImplementedError

    def filter_values(self, value: Any, now_ms: int) -> Any:
        """What a filter asks a row's value: a mapping or callable from field to value, as `Filter.matches` takes it."""
        raise NotImplementedError

    def all_here(self) -> bool:
        return self.source.loaded

    def match_row(self, row: Row[Any], wanted: Filter, now_ms: int) -> bool | None:
        """Whether a filter finds a row; None = it follows the row above it."""
        return wanted.matches(self.filter_values(row.value, now_ms)) if row.kind == self.store.kinds[0] else None

    def empty_words(self) -> tuple[str, ...]:
        """What a complete list without any row says, and what to do."""
        return (f"There are no {self.NOUN}s.",)

    def detail_runs(self, row: Row[Any]) -> list[Run]:
        """The line below the table: what the columns leave out about the selected row."""
        return [Run(f" {one_line(row.id)}{' (gone)' if row.gone else ''}")]

    def sort_key(self, column: str) -> Callable[[Row[Any]], Any] | None:
        """The key to sort by a column, None if that makes no sense."""
        cells = self._cells
        return cells.sort_key(column, self.session.clock.now_ms()) if isinstance(cells, SpecCells) else None

    def sortable(self) -> list[str]:
        """The columns that can be sorted by, in their order."""
        return [column.id for column in self._cells.columns if column.sort is not None]

    @property
    def subscription(self) -> Watch | None:
        """The subscription that is this screen's own, None if it lives on the session's."""
        return getattr(self.source, "watch", None)

    @property
    def link(self) -> LinkState:
        return self.subscription.state if self.subscription is not None else self.session.link

    # --- building ----------------------------------------------------------------------------------------------------

    def body(self) -> Iterable[Widget]:
        self._cells = self.make_cells()
        name = self.NOUN.replace(" ", "-")
        self.table = VirtualTable(self.store, self._cells, self.console.glyphs, id=name)
        self.table.now_ms = self.session.clock.now_ms()
        self.pane = Pane(self.table.header, self.table, id=f"{name}-pane")
        yield self.pane
        yield self.detail

    def on_mount(self) -> None:
        self.table.take_focus()
        if self.SORT:
            self.sort_by(self.SORT)
        if self.subscription is not None:
            self.run_worker(
                self.subscription.run(), name=f"{self.TITLE} subscription", group="watch", exit_on_error=False
            )

    def on_screen_suspend(self) -> None:
        if self.subscription is not None and self not in self.app.screen_stack:
            self.subscription.rest()

    def on_screen_resume(self) -> None:
        if self.subscription is not None:
            self.subscription.rest(on=False)

    def title_text(self) -> str:
        return self.TITLE.lower()

    # --- live --------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        changes = self.source.take_changes()
        if self.store.dirty and self.due() and (self._urgent or not self.store.frozen):
            self._order()
        self.table.flush(changes)
        if self._wanted_cursor and self.table.move_to(self._wanted_cursor):
            self._wanted_cursor = ""
        self._rows_seen = self._rows_seen or (self.source.loaded and self.is_ordered)
        self.show_state()

    def shows_content(self) -> bool:
        """A key that is about a row waits for the rows; where none can be had it does not."""
        return self._rows_seen or self.pane.status.state is State.ERROR

    @property
    def is_ordered(self) -> bool:
        """Whether what is shown is in the order, and of the filter, that is wanted: none is waited for."""
        return not self.store.dirty and not self._ordering

    def due(self) -> bool:
        """Whether a new order may be shown now."""
        waited = self.session.clock.monotonic() - self._ordered_at >= ORDER_S
        return self._urgent or waited or not self.store.order

    def tick(self) -> None:
        self.table.tick(self.session.clock.now_ms())
        if self.filter is not None and any(self._moves(word) for word in self.FIELDS if word in self.filter.text):
            self.store.dirty = True

    def _moves(self, field: str) -> bool:
        """Whether a field changes as time passes."""
        return self.FIELDS[field] is FieldType.DURATION

    def _order(self) -> None:
        store = self.store
        if self._ordering:
            return
        self._ordered_at = self.session.clock.monotonic()
        urgent, self._urgent = self._urgent, False
        if len(store.rows) <= THREAD_ROWS:
            store.reorder(force=urgent)
            self.table.reordered()
            return
        self._ordering = True
        store.dirty = False
        plan = store.plan()

        async def work() -> None:
            try:
                store.adopt(await in_thread(plan.order, name="order"))
                self.table.reordered()
            finally:
                self._ordering = False

        self.run_worker(work(), name="order rows", group="order", exit_on_error=False)

    def reload(self) -> None:
        """Try again what failed."""
        if self.subscription is not None:
            self.subscription.retry_now()

    def soon(self) -> None:
        """The operator did something: show its effect with the next flush."""
        self.store.dirty = True
        self._urgent = True
        self.flush_now()

    # --- what it says about itself -----------------------------------------------------------------------------------

    def show_state(self) -> None:
        """The pane's state, its title, and the line about the selected row."""
        self.pane.set_status(self.status())
        self.pane.update_title(*self.title_runs())
        self.detail.show(self.below_runs())

    def below_runs(self) -> list[Run]:
        """The line below the table."""
        row = self.table.row
        return self.detail_runs(row) if row is not None else []

    def status(self) -> Status:
        """How complete and how true the list is."""
        return live_status(
            self.session,
            self.link,
            what=f"{self.NOUN}s",
            loaded=self.source.loaded,
            some=len(self.store.rows),
            empty=self.nothing_words(),
            partial=self.partial_words(),
        )

    def nothing_words(self) -> tuple[str, ...]:
        """Why no row is shown; () if one is, or if that is not known yet."""
        if self.store.order or not self.is_ordered:
            return ()
        return self._no_match() if self.filter is not None else self.empty_words()

    def partial_words(self) -> str:
        """What is missing of the list, "" if nothing is."""
        return ""

    def _no_match(self) -> tuple[str, ...]:
        assert self.filter is not None
        total = self.store.counts().total
        return (
            f"None of {counted(total, self.NOUN)} matches {one_line(self.filter.text)}",
            f"{self._key('list.unfilter')} clears the filter, {self._key('list.filter')} changes it.",
        )

    def title_runs(self) -> tuple[list[Run], list[Run]]:
        """Both sides of the pane's title: the name with the filter, and counts."""
        store = self.store
        left = [Run(self.TITLE)]
        if self.filter is not None:
            left.append(Run(f"  / {one_line(self.filter.text)}", Tone.WARN))
        if self.prompt.asks("/ filter") and self.prompt.has_class("-wrong"):
            known = "still the last valid filter" if self.filter is not None else "still unfiltered"
            left.append(Run(f"  {known}", Tone.BAD))
        right: list[Run] = []
        if store.marks:
            hidden = store.hidden_marks()
            right.append(Run(f"{len(store.marks)} marked{f', {hidden} hidden' if hidden else ''}  ", Tone.WARN))
        if store.pending:
            sorts = self._key("list.reorder")
            right.append(Run(f"order kept, {store.pending:,} changes, {sorts} sorts  ", Tone.WARN))
        if self.source.loaded:
            right.append(Run(self.count_words(), Tone.DIM))
        return left, right

    def count_words(self) -> str:
        """How many are shown, match, and exist. Of a filter whose order is still being computed nothing is known."""
        counts = self.store.counts()
        if not self.store.answered:
            return f"filtering {counted(counts.total, self.NOUN)} …"
        closed = counts.matched - counts.shown
        under = f", {closed:,} under closed rows" if self.filter is not None and closed > 0 else ""
        some = f"{counts.matched:,} of " if self.filter is not None else ""
        return f"{some}{counted(counts.total, self.NOUN)}{under}"

    # --- filter ------------------------------------------------------------------------------------------------------

    def check_argument(self, argument: str) -> None:
        self._parse(argument)

    def accept(self, argument: str) -> None:
        if argument:
            self.set_filter(argument)
        self.table.take_focus()

    def do_filter(self, text: str) -> None:
        if text:
            self.set_filter(text)
            return
        before = self.filter.text if self.filter is not None else ""
        self.prompt.ask(
            Question(
                "/ filter",
                self._submit_filter,
                check=self._parse,
                change=self.set_filter,
                cancel=lambda: self._submit_filter(before),
                suggester=FilterSuggester(self.FIELDS),
                history=self._filter_history,
            ),
            before,
        )

    def _parse(self, text: str) -> Filter:
        return parse_filter(text, self.FIELDS, default=self.WORDS)

    def _submit_filter(self, text: str) -> None:
        self.table.take_focus()
        self.set_filter(text)

    def set_filter(self, text: str) -> None:
        """Show only what matches. Raises ModelError with the place of the fault; then nothing changes."""
        wanted = self._parse(text.strip())
        if (self.filter.text if self.filter is not None else "") == wanted.text:
            return
        self.filter = None if wanted.is_empty else wanted
        clock = self.session.clock

        def match(row: Row[Any]) -> bool | None:
            return self.match_row(row, wanted, clock.now_ms())

        self.store.set_filter(None if wanted.is_empty else match)
        self.filtered()
        self.soon()

    def filtered(self) -> None:
        """The filter is another one now."""

    def do_unfilter(self) -> None:
        if self.filter is not None:
            self.set_filter("")
        else:
            self.console.go_back()

    # --- how it was left ---------------------------------------------------------------------------------------------

    def view_state(self) -> dict[str, Any]:
        state: dict[str, Any] = {}
        if self.filter is not None:
            state["filter"] = self.filter.text
        if self.table.sorted_by:
            state["sort"] = self.table.sorted_by
            state["descending"] = self.table.reversed
        if self.table.touched and self.table.cursor_id:
            state["cursor"] = self.table.cursor_id
        return state

    def restore(self, state: dict[str, Any]) -> None:
        try:
            self.set_filter(str(state.get("filter", "")))
        except ModelError:
            self.set_filter("")
        column = str(state.get("sort", ""))
        self.sort_by(column if column in self.sortable() else "", reverse=bool(state.get("descending")))
        self._wanted_cursor = str(state.get("cursor", ""))
