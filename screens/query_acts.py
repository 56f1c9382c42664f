"""From the rows of an answer to a change: which column holds the ids, what each row is, and the command line that does the same.

A part of `screens.query`. A change goes the one way of all changes (`iris_tui.changes`); nothing is sent from here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from iris_core.live.query_columns import row_ids
from iris_core.live.query_result import distinct, id_columns, kind_of, pipe_line
from iris_core.live.wording import Tone
from iris_core.model.errors import ModelError, did_you_mean
from iris_core.model.text import counted, one_line
from iris_tui.actions import BY_ID, Action
from iris_tui.drawing import Run
from screens.targets import TargetActions

if TYPE_CHECKING:
    from iris_core.live.query_result import Result
    from screens.query import QueryScreen

_KEYS: Final = "abcdefghilmnoprstuvwyz"
PIPED: Final = frozenset({"cancel", "preempt", "fail"})
"""Actions whose command reads ids from its input."""


class QueryActs(TargetActions):
    """Mix into the Query screen, behind the list."""

    result: Result | None
    column: int | None

    @property
    def _query(self) -> QueryScreen:
        return cast("QueryScreen", self)

    def id_of(self, values: Sequence[Any]) -> str:
        """The id in a row, "" if it has none. Raises ModelError: several columns hold ids, and none is chosen."""
        result = self.result
        if result is None:
            return ""
        if self.column is None:
            if len(found := id_columns(result)) > 1:
                names = ", ".join(one_line(result.names[at]) for at in found)
                raise ModelError(f"several columns hold ids: {names}", hint="A chooses the one that is meant")
            return ""
        cell = values[self.column]
        return cell if isinstance(cell, str) else ""

    def act_runs(self) -> list[Run]:
        """What actions are about, for the title."""
        result = self.result
        if result is None:
            return []
        if self.column is not None:
            return [Run(f"  acts on {one_line(result.names[self.column])}", Tone.DIM)]
        return [Run("  acts on: A chooses", Tone.WARN)] if len(id_columns(result)) > 1 else []

    # --- which column ------------------------------------------------------------------------------------------------

    def do_column(self, name: str) -> None:
        result = self.result
        if result is None:
            raise ModelError("there is no answer to choose a column of", hint="run the statement first")
        if not name:
            self.choose_column(lambda: None)
            return
        names = distinct(result.names)
        if name not in names:
            raise ModelError(
                f"no column {one_line(name)!r}", hint=did_you_mean(name, names) or f"one of {', '.join(names)}"
            )
        self._take_column(names.index(name))

    def choose_column(self, then: Callable[[], None]) -> None:
        """Ask which column is meant, and go on once it is chosen."""
        from iris_tui.gate import MenuScreen

        query, result = self._query, self.result
        assert result is not None
        found = id_columns(result)
        if not found:
            raise ModelError("no column holds ids", hint="select task_id or job_id")
        entries = [
            (
                _KEYS[at],
                str(number),
                f"{one_line(result.names[number])}   such as {one_line(str(self._sample(number)))}",
            )
            for at, number in enumerate(found[: len(_KEYS)])
        ]

        def chosen(number: str | None) -> None:
            if number:
                self._take_column(int(number))
                if query.shows_content():
                    then()
                else:
                    # The rows are filled anew; where drawing is slow they come a little later.
                    query.when_settled(then)

        self._query.app.push_screen(MenuScreen("Which ids are meant?", entries), chosen)

    def _sample(self, column: int) -> Any:
        assert self.result is not None
        return next((row[column] for row in self.result.rows if row[column] is not None), "")

    def _take_column(self, column: int) -> None:
        query, result = self._query, self.result
        assert result is not None
        # The rows are known by other ids from now on, and stay chosen and marked.
        before, names = query.store, row_ids(result, column)

        def renamed(name: str) -> str:
            row = before.get(name)
            return names[row.natural] if row is not None else ""

        cursor = renamed(query.table.cursor_id) if query.table.touched else ""
        marks = list(filter(None, map(renamed, before.marks)))
        self.column = column
        query.take(result, cursor=cursor, marks=marks)

    # --- the menu ----------------------------------------------------------------------------------------------------

    def do_menu(self) -> None:
        query = self._query
        query.table.touch()
        rows = [row for name in query.store.marks if (row := query.store.get(name)) is not None]
        if not rows and query.table.row is not None:
            rows = [query.table.row]
        if not rows:
            return
        if self.column is None and self.result is not None and len(id_columns(self.result)) > 1:
            self.choose_column(self.do_menu)
            return
        ids = [self.id_of(row.value) for row in rows]
        kind = next((found for name in ids if (found := kind_of(name))), "row")
        marked = bool(query.store.marks)
        query.show_menu(
            counted(len(rows), "marked row") if marked else one_line(ids[0]) or "this row", kind, marked=marked
        )

    def do_copy_what(self) -> None:
        """Ask what of the row is to be copied."""
        from iris_tui.gate import MenuScreen

        query = self._query
        pairs = query._pairs()
        entries = [("r", "row", "the whole row, as JSON")]
        keys = [key for key in _KEYS if key != "r"]
        entries += [
            (keys[at] if at < len(keys) else "", str(at), f"{one_line(name)}   {one_line(str(value))[:40]}")
            for at, (name, value) in enumerate(pairs)
        ]

        def chosen(what: str | None) -> None:
            if what:
                query.do_copy_cell(None if what == "row" else int(what))

        query.app.push_screen(MenuScreen("Copy which cell?", entries), chosen)

    # --- changing ----------------------------------------------------------------------------------------------------

    def _ids(self) -> list[str]:
        """All ids of the answer, each once."""
        result, column = self.result, self.column
        if result is None or column is None:
            return []
        return list(dict.fromkeys(row[column] for row in result.rows if kind_of(row[column])))

    def pipe_of(self, action: Action) -> str:
        """The command line that does it to all rows: from the statement to the ids to the action; "" where there is none."""
        result, column = self.result, self.column
        ids = self._ids()
        if result is None or column is None or not ids or action.name not in PIPED or "{" in result.sql:
            return ""
        noun = kind_of(ids[0])
        if noun not in action.kinds:
            return ""
        return pipe_line(result, column, f"{noun} {action.command}", self._query.session.selector)

    def whole_pipe(self) -> str:
        """The line below the answer, for what its ids can be asked."""
        ids = self._ids()
        name = "cancel" if ids and kind_of(ids[0]) == "job" else "preempt"
        return self.pipe_of(BY_ID[f"target.{name}"])

    def _make_change(self, action: Action, names: Sequence[str]) -> None:
        result = self.result
        line = (
            self.pipe_of(action) if result is not None and not result.capped and set(names) == set(self._ids()) else ""
        )
        super()._make_change(replace(action, cli=line) if line else action, names)
