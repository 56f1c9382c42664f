"""Query: one statement on the controller's database or on stats, events and logs; its answer as a list, and its rows as targets.

A statement runs once, when it is asked for, and can be ended; what it gave stays until another one gives something, and says how old it
is. The ids of marked rows go the same way as those of any list: planned by the server, confirmed, carried out once. Which column
holds them is chosen by the operator where it is not plain. Must never run a statement that nobody asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual.containers import Vertical

from iris_core.contracts import IrisError
from iris_core.live.faults import EARLIER, is_unknown
from iris_core.live.query_columns import ANY, column_specs, filter_fields, filter_values, row_ids
from iris_core.live.query_result import (
    CONTROLLER,
    DATABASES,
    TITLES,
    Result,
    ask,
    id_columns,
    kind_of,
)
from iris_core.live.rows import Changes, ChangeSet, Row, RowStore
from iris_core.live.wording import Tone
from iris_core.model.errors import ModelError
from iris_core.model.filter import Filter, parse_filter
from iris_core.model.resources import format_age, format_duration
from iris_core.model.text import counted, one_line
from iris_tui.drawing import Run
from iris_tui.keymap import bindings
from iris_tui.list_screen import ListScreen, SpecCells
from iris_tui.widgets.line import Line
from iris_tui.widgets.pane import State, Status
from screens.jobs_target import Target, from_text
from screens.query_acts import QueryActs
from screens.query_editor import SqlEditor
from screens.query_taking import QueryTaking
from screens.query_writing import QueryWriting

if TYPE_CHECKING:
    from textual.widget import Widget
    from textual.worker import Worker

    from iris_tui.session import Session
    from iris_tui.widgets.virtual_table import Cells

MOST_KEPT: Final = 4000
"""Characters of a statement that are kept when the screen is left."""


class QuerySource:
    """The rows of the last answer: `ListScreen`'s source."""

    def __init__(self) -> None:
        self.store: RowStore[Any] = RowStore(("row",))
        self.loaded = False

    def put(self, result: Result, column: int | None) -> RowStore[Any]:
        """Show these rows, known by the ids in that column."""
        self.store = RowStore(("row",))
        ids = row_ids(result, column)
        rows = [Row(name, "row", row, natural=at) for at, (name, row) in enumerate(zip(ids, result.rows, strict=True))]
        self.store.apply(Changes(rows))
        self.store.dirty = True
        self.loaded = True
        return self.store

    def take_changes(self) -> ChangeSet:
        """An answer never changes."""
        return ChangeSet()


class QueryScreen(QueryActs, QueryWriting, QueryTaking, ListScreen):
    """See the module."""

    SCOPES: ClassVar[tuple[str, ...]] = ("query", "target", "list")
    BINDINGS = bindings("query", "target", "list")
    CSS_PATH = "query.tcss"
    NOUN = "row"
    TITLE = "Answer"
    MARKABLE = ("row",)

    source: QuerySource

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.editor = SqlEditor()
        self.result: Result | None = None
        self.column: int | None = None
        """The column whose ids actions are about, None = there is none, or it is not chosen."""
        self.took_s = 0.0
        self._sql_title = Line(id="sql-title")
        self._fields: dict[str, Any] = {}
        self._first = 0
        self._answered_ms = 0
        self._fault: IrisError | None = None
        self._fault_place = ""
        self._query_worker: Worker[None] | None = None
        self._began_s = 0.0
        self._wanted_view: dict[str, Any] = {}
        self.when_mounted(self.go_to_editor)

    # --- what a list is ----------------------------------------------------------------------------------------------

    def make_source(self) -> QuerySource:
        return QuerySource()

    def make_cells(self) -> Cells:
        return SpecCells(column_specs(self.result, self._first) if self.result is not None else [])

    def body(self) -> Iterable[Widget]:
        yield self._sql_title
        yield Vertical(self.editor, id="sql-box")
        yield from super().body()

    def title_text(self) -> str:
        return "query"

    def shows_content(self) -> bool:
        """There is a statement to write before there are rows; keys wait for the rows of an answer."""
        return self.result is None or not self.result.rows or self.asking or self._rows_seen

    def flush(self) -> None:
        super().flush()
        # A filtered list is to be ordered anew whenever the cursor moves: the order that was asked for is enough.
        self._rows_seen = self._rows_seen or not (self._urgent or self._ordering)

    def match_row(self, row: Row[Any], wanted: Filter, now_ms: int) -> bool | None:
        assert self.result is not None
        return wanted.matches(filter_values(self.result, self._fields)(row.value))

    def _parse(self, text: str) -> Filter:
        return parse_filter(text, self._fields or {ANY: filter_fields(Result("", "", (), ()))[ANY]}, default=[ANY])

    # --- running -----------------------------------------------------------------------------------------------------

    @property
    def asking(self) -> bool:
        """Whether a statement runs."""
        return self._query_worker is not None and not self._query_worker.is_finished

    def reload(self) -> None:
        """Run it again."""
        if self.editor.text.strip():
            self.do_run()

    def do_run(self) -> None:
        sql = self.editor.text.rstrip()
        if not sql.strip():
            raise ModelError(
                "there is no statement to run", hint=f"write one, or choose one with {self._key('query.templates')}"
            )
        history = self.session.saved.history(f"query {self.database}")
        if sql in history:
            history.remove(sql)
        history.append(sql)
        self._began_s = self.session.clock.monotonic()
        self._fault, self._fault_place = None, ""
        self._query_worker = self.run_worker(
            self._run(self.database, sql), name="query", group="query", exclusive=True, exit_on_error=False
        )
        self.flush_now()

    async def _run(self, database: str, sql: str) -> None:
        try:
            result = await ask(self.session.client, database, sql)
        except IrisError as error:
            self._failed(error)
            return
        except asyncio.CancelledError:
            self._failed(IrisError("ended before it was answered", hint=f"{self._key('query.run')} runs it again"))
            raise
        self.took_s = self.session.clock.monotonic() - self._began_s
        self._answered_ms = self.session.clock.now_ms()
        self.take(result)
        if result.rows:
            self.table.take_focus()

    def _failed(self, error: IrisError) -> None:
        self._fault = error
        position = getattr(error, "position", None)
        if position is not None:
            line, column = self.editor.show_fault(position)
            self._fault_place = f"line {line}, column {column}: "
        self.flush_now()

    def take(self, result: Result, *, cursor: str = "", marks: Iterable[str] = ()) -> None:
        """Show an answer. Sort and filter stay where its columns are those of the one before; `cursor` and `marks` are rows by their new
        ids, where those are known."""
        before = self.result
        same = before is not None and (before.names, before.database) == (result.names, result.database)
        state = self.view_state() if same else self._wanted_view
        self._wanted_view = {}
        candidates = id_columns(result)
        kept = self.column if same and self.column in candidates else None
        self.result = result
        self.column = kept if kept is not None else candidates[0] if len(candidates) == 1 else None
        self._first = self._first if same else 0
        self._fields = filter_fields(result)
        self.filter = None
        self._fill()
        list_state: dict[str, Any] = {
            key: state[key] for key in ("filter", "sort", "descending", "cursor") if key in state
        }
        super().restore(list_state | ({"cursor": cursor} if cursor else {}))
        for name in marks:
            self.store.mark(name, on=True)
        # Once they are shown no key waits any more.
        self._rows_seen = False
        self.flush_now()

    def _fill(self) -> None:
        """The rows and columns of the answer, anew."""
        assert self.result is not None
        table = self.table
        self.store = table.store = self.source.put(self.result, self.column)
        table.cursor_id, table.touched, table.sorted_by = "", False, ""
        self._show_columns()
        self.soon()

    def _show_columns(self) -> None:
        self._cells = self.make_cells()
        self.table.view = self._cells
        self.table.relayout()

    def do_stop(self) -> None:
        if not self.asking:
            raise ModelError("no statement runs")
        assert self._query_worker is not None
        self._query_worker.cancel()

    def do_unfilter(self) -> None:
        if self.asking:
            self.do_stop()
        else:
            super().do_unfilter()

    # --- writing -----------------------------------------------------------------------------------------------------

    def on_sql_editor_finished(self, event: SqlEditor.Finished) -> None:
        event.stop()
        self.do_run()

    def on_sql_editor_left(self, event: SqlEditor.Left) -> None:
        event.stop()
        if self.asking:
            self.do_stop()
        elif self.result is not None and self.result.rows:
            self.table.take_focus()
        else:
            self.console.go_back()

    def check_argument(self, argument: str) -> None:
        """A statement: what is wrong with it is the server's to say."""

    def accept(self, argument: str) -> None:
        if argument:
            self.editor.put(argument)
            self.do_run()

    # --- looking -----------------------------------------------------------------------------------------------------

    def do_right(self) -> None:
        if self.result is not None and self._first < len(self.result.names) - 1:
            self._first += 1
            self._show_columns()

    def do_left(self) -> None:
        if self._first:
            self._first -= 1
            self._show_columns()

    # --- what it says about itself -----------------------------------------------------------------------------------

    def show_state(self) -> None:
        place = f"{self._fault_place}{one_line(self._fault.message)}" if self._fault_place and self._fault else ""
        other = next(name for name in DATABASES if name != self.database)
        left = [Run(" SQL on "), Run(TITLES[self.database], Tone.BUSY)]
        if place:
            left.append(Run(f"   {self.console.glyphs.ascending} {place}", Tone.BAD))
        elif not self.session.offline:
            left.append(Run(f"   {self._key('query.database')} {TITLES[other]}", Tone.DIM))
        self._sql_title.show(left, [Run("Enter behind ; runs it too ", Tone.DIM)] if not place else [])
        super().show_state()

    def below_runs(self) -> list[Run]:
        # Why what is shown is not the answer: in the pane's title that is cut where it is narrow, and it stands nowhere else.
        fault = self._fault
        if self.result is not None and self.asking:
            return [Run(f" {self.pane.status.note}", Tone.WAIT)]
        if self.result is not None and fault is not None:
            return [Run(f" {one_line(fault.message)}", Tone.BAD), Run(f"  {one_line(fault.hint)}", Tone.DIM)]
        return super().below_runs()

    def empty_words(self) -> tuple[str, ...]:
        return ("The statement gives no rows.",)

    def status(self) -> Status:
        result, fault = self.result, self._fault
        if self.asking:
            passed = max(self.session.clock.monotonic() - self._began_s, 0.0)
            words = f"running for {format_duration(int(passed) * 1000)}, Esc ends it"
            if result is None:
                return Status(State.LOADING, "", (f"The statement is {words}.",))
            return Status(State.PARTIAL, f"{words}; below is the answer before")
        if fault is not None:
            words = one_line(fault.message)
            hint = one_line(fault.hint or (EARLIER if is_unknown(fault) else ""))
            if result is None:
                return Status(
                    State.ERROR,
                    "",
                    tuple(
                        filter(None, (f"{self._fault_place}{words}", hint, f"{self._key('query.run')} runs it again."))
                    ),
                )
            return Status(State.STALE, f"not answered: {words}; below is the answer before")
        if result is None:
            return Status(
                State.EMPTY,
                "",
                (
                    "Nothing was asked yet.",
                    f"{self._key('query.run')} runs the statement above, {self._key('query.templates')} offers some to start from.",
                ),
            )
        age_ms = max(self.session.clock.now_ms() - self._answered_ms, 0)
        if not self.session.offline and not self.link.current:
            return Status(State.STALE, f"STALE {format_age(age_ms)}: {self.link.detail}")
        if nothing := self.nothing_words():
            return Status(State.EMPTY, "", nothing)
        partial = "; ".join(one_line(words) for words in (result.capped, *result.notes) if words)
        return Status(State.PARTIAL, partial) if partial else Status(State.READY)

    def title_runs(self) -> tuple[list[Run], list[Run]]:
        left, right = super().title_runs()
        result = self.result
        if result is None:
            return left, right
        if self.editor.text.rstrip() != result.sql:
            left.append(Run("  of the statement before", Tone.WARN))
        left += self.act_runs()
        hidden = len(result.names) - len(self.table.columns_shown())
        if hidden > 0:
            right.insert(0, Run(f"{hidden} of {counted(len(result.names), 'column')} hidden, ←→  ", Tone.WARN))
        right.append(Run(f"  {format_duration(round(self.took_s * 1000))}", Tone.DIM))
        return left, right

    def detail_runs(self, row: Row[Any]) -> list[Run]:
        line = self.whole_pipe()
        if line:
            return [Run(f" All of them: {one_line(line)}", Tone.DIM)]
        return [
            Run(
                f" {self._key('query.row')} shows the whole row, {self._key('query.copy_what')} copies a cell or all of it",
                Tone.DIM,
            )
        ]

    # --- targets -----------------------------------------------------------------------------------------------------

    def chosen_target(self) -> Target | None:
        names = self.chosen_ids(("job", "task", "attempt"))
        return from_text(names[0]) if names else None

    def chosen_ids(self, kinds: Sequence[str]) -> list[str]:
        rows = [self.store.get(name) for name in sorted(self.store.marks) or [self.table.cursor_id]]
        cells = [self.id_of(row.value) for row in rows if row is not None]
        return [cell for cell in dict.fromkeys(cells) if kind_of(cell) in kinds]

    # --- how it was left ---------------------------------------------------------------------------------------------

    def view_state(self) -> dict[str, Any]:
        state = super().view_state()
        text = self.editor.text
        if text and len(text) <= MOST_KEPT:
            state["sql"] = text
        if self.database != CONTROLLER:
            state["database"] = self.database
        return state

    def restore(self, state: dict[str, Any]) -> None:
        if state.get("database") in DATABASES and not self.session.offline:
            self.database = str(state["database"])
        if self.result is None:
            if isinstance(state.get("sql"), str) and not self.editor.text:
                self.editor.put(state["sql"])
            self._wanted_view = state
        else:
            super().restore(state)
