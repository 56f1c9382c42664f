"""Users & budgets: what each user may spend, spends and runs; who spends most is first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from iris_core.live.columns import pick
from iris_core.live.feed import Feed
from iris_core.live.rows import Row
from iris_core.live.user_columns import USERS, spends_text
from iris_core.live.watch import Selector
from iris_core.live.watch_filters import ROW_FILTERS
from iris_core.live.wording import Tone
from iris_core.model.bands import band_label
from iris_core.model.errors import ModelError
from iris_core.model.quoting import quote
from iris_core.model.text import counted, one_line
from iris_tui.actions import BY_ID
from iris_tui.drawing import Run
from iris_tui.keymap import bindings
from iris_tui.list_screen import ListScreen, Source, SpecCells

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_core.wire.gen.iris.v1.controller_pb2 import WatchRows
    from iris_tui.widgets.virtual_table import Cells

_WATCH_USERS: Final = 10  # WatchKind.WATCH_KIND_USERS
COLUMNS: Final = (
    *pick(USERS, ("user", "spent", "limit", "utilisation")),
    replace(USERS["max_band"], min_width=11),
    replace(USERS["effective_band"], min_width=11),
    *pick(USERS, ("active", "running", "jobs", "role", "updated")),
)


def _rows(_selector: str, rows: WatchRows) -> Iterable[Row[Any]]:
    return [Row(user.user_id, "user", user, natural=user.user_id) for user in rows.users]


class UsersScreen(ListScreen):
    """All users who have a budget of their own, spend, or own unfinished jobs."""

    SCOPES: ClassVar[tuple[str, ...]] = ("users", "list")
    BINDINGS = bindings("users", "list")
    CSS_PATH = "lists.tcss"
    NOUN = "user"
    TITLE = "Users & budgets"
    FIELDS = ROW_FILTERS["users"].fields
    WORDS = ROW_FILTERS["users"].words
    MARKABLE = ()
    SORT = "spent"

    def make_source(self) -> Source:
        session = self.session
        return Feed(session.client, session.clock, [Selector("users", _WATCH_USERS)], _rows, kinds=("user",))

    def make_cells(self) -> Cells:
        return SpecCells(COLUMNS)

    def filter_values(self, value: Any, now_ms: int) -> Any:
        return ROW_FILTERS["users"].row(value, now_ms)

    def empty_words(self) -> tuple[str, ...]:
        none = "No user has a budget of their own, spends, or owns a job that has not ended."
        if self.session.offline:
            return (none, "The defaults of the cluster held for all of them.")
        return (
            none,
            ":set-budget USER LIMIT [BAND] gives one a budget; the defaults of the cluster hold for all others.",
        )

    def detail_runs(self, row: Row[Any]) -> list[Run]:
        user = row.value
        budget, tasks = user.budget, user.summary.tasks_by_state
        states = ", ".join(f"{count:,} {state}" for state, count in sorted(tasks.items()) if count)
        runs = [
            Run(f" {one_line(row.id)}{' (gone)' if row.gone else ''}"),
            Run(f"  {spends_text(budget)}"),
            Run(f"  interactive work is served as {band_label(budget.effective_band)}", Tone.DIM),
        ]
        if not budget.updated_at_ms:
            runs.append(Run("  by the defaults", Tone.DIM))
        if states:
            runs.append(Run(f"  {counted(user.active_tasks, 'task')}: {states}", Tone.DIM))
        return runs

    # --- what the keys do --------------------------------------------------------------------------------------------

    def do_open(self) -> None:
        self.table.touch()
        row = self.table.row
        if row is not None:
            self.console.go("jobs", f"user={quote(row.id)}")

    def do_set_budget(self, text: str) -> None:
        from screens.budget_form import BudgetForm, parse_budget

        if text:
            user_id, limit, band = parse_budget(text)
            self._set(user_id, limit, band)
            return
        row = self.table.row
        if row is None:
            raise ModelError("set-budget works on users", hint="choose one, or :set-budget USER LIMIT [BAND]")

        def chosen(answer: tuple[int, int] | None) -> None:
            if answer is not None:
                self._set(row.id, *answer)

        self.app.push_screen(BudgetForm(row.id, row.value.budget), chosen)

    def _set(self, user_id: str, limit: int, band: int) -> None:
        from iris_tui import changes

        action = BY_ID["users.set_budget"]
        changes.start(
            self.console, self.session, action, [user_id], limit=limit, max_band=band, band=band_label(band)
        )  # fmt: skip
