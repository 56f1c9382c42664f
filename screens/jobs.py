"""Jobs: the tree of jobs, their tasks and attempts, live; logs below it; changes behind the gate.

The tree is data in `iris_core.live.jobtree`; this file says how it looks and what the keys do, beyond what every list does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partialmethod
from typing import TYPE_CHECKING, Any, ClassVar

from iris_core.live.filters import JOB_FIELDS, JOB_WORDS, job_row
from iris_core.live.log_view import LogView
from iris_core.model.text import one_line
from iris_tui.drawing import Run
from iris_tui.keymap import bindings
from iris_tui.list_screen import ListScreen, Source
from iris_tui.tree_rows import TreeRows
from iris_tui.widgets.log_pane import LogPane
from screens import jobs_words
from screens.jobs_rows import JobRows
from screens.jobs_target import Target, from_row, log_source
from screens.targets import TargetActions

if TYPE_CHECKING:
    from iris_core.live.rows import Row
    from iris_tui.session import Session
    from iris_tui.widgets.virtual_table import Cells, VirtualTable

EAGER_S = 3.0
"""After a row was opened, what arrives below it is shown at once for this long."""


class JobsScreen(TreeRows, TargetActions):
    """One session's jobs."""

    SCOPES: ClassVar[tuple[str, ...]] = ("jobs", "tree", "target", "list")
    BINDINGS = bindings("jobs", "tree", "target", "list")
    CSS_PATH = "jobs.tcss"
    NOUN = "job"
    TITLE = "Jobs"
    FIELDS = JOB_FIELDS
    WORDS = JOB_WORDS
    MARKABLE = ("job",)

    def __init__(self, session: Session) -> None:
        self.jobs = session.tree
        super().__init__(session)
        self._rows: JobRows | None = None
        self._eager_until = -1e9
        self._logs: LogPane | None = None

    def make_source(self) -> Source:
        return self.jobs

    def make_cells(self) -> Cells:
        self._rows = JobRows(self.console.glyphs, self.store)
        return self._rows

    def filter_values(self, value: Any, now_ms: int) -> Any:
        return job_row(value, now_ms)

    def sort_key(self, column: str) -> Callable[[Row[Any]], Any] | None:
        assert self._rows is not None
        return self._rows.sort_key(column, self.session.clock.now_ms) if column in self.sortable() else None

    def empty_words(self) -> tuple[str, ...]:
        return jobs_words.empty(self.session)

    def partial_words(self) -> str:
        return jobs_words.partial(self.jobs)

    def count_words(self) -> str:
        """As everywhere; of older ones those that were read, and whether there may be more of them."""
        history = self.jobs.history
        so_far = "" if history.exhausted else " so far"
        return super().count_words() + (f" ({history.rows:,} older{so_far})" if history.rows else "")

    def detail_runs(self, row: Row[Any]) -> list[Run]:
        return jobs_words.detail(row)

    # --- live --------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        tree = self.jobs
        for name in tree.take_needs():
            self.run_worker(tree.load(name), name=f"load {one_line(name)}", group="load", exit_on_error=False)
        self.session.watch.select(tree.selectors())
        super().flush()
        if self._logs is not None and self._logs.is_mounted:
            self._logs.flush()

    def due(self) -> bool:
        return super().due() or self.session.clock.monotonic() < self._eager_until

    def reload(self) -> None:
        self.jobs.history.error = ""
        if self._logs is not None:
            self._logs.retry()

    # --- the tree ----------------------------------------------------------------------------------------------------

    def open_row(self, row: Row[Any]) -> None:
        if row.kind == "attempt":
            self.open_logs(from_row(row))
            return
        self.jobs.open(row.parent if row.kind == "note" else row.id)
        self._eager_until = self.session.clock.monotonic() + EAGER_S

    def close_row(self, row: Row[Any]) -> None:
        self.jobs.close(row.id)
        self._eager_until = self.session.clock.monotonic() + EAGER_S

    def show_row(self, name: str) -> None:
        """Put the cursor on a row, opening what is above it and lifting a filter that hides it."""
        row = self.store.get(name)
        if row is None:
            self.console.say(f"{one_line(name)} is not there any more", severity="warning")
            return
        parent = self.store.get(row.parent)
        while parent is not None:
            self.store.expand(parent.id)
            parent = self.store.get(parent.parent)
        self.soon()
        if not self.table.move_to(name) and self.filter is not None:
            self.set_filter("")
            self.table.move_to(name)
        self.table.take_focus()

    def on_virtual_table_moved(self, event: VirtualTable.Moved) -> None:
        event.stop()
        history = self.jobs.history
        if (
            event.at_end
            and self.table.touched
            and self.jobs.loaded
            and not (history.exhausted or history.loading or history.error)
        ):
            self.run_worker(self._older(), name="older jobs", group="history", exit_on_error=False)
        if self.is_current:
            self.show_state()

    async def _older(self) -> None:
        if await self.jobs.load_history():
            self._urgent = True

    def filtered(self) -> None:
        self.jobs.restart_history(self.filter)

    do_sort_name = partialmethod(ListScreen.turn_sort, "name")
    do_sort_state = partialmethod(ListScreen.turn_sort, "state")
    do_sort_tasks = partialmethod(ListScreen.turn_sort, "tasks")
    do_sort_age = partialmethod(ListScreen.turn_sort, "age")
    do_sort_time = partialmethod(ListScreen.turn_sort, "time")
    do_sort_failures = partialmethod(ListScreen.turn_sort, "failures")
    do_sort_preemptions = partialmethod(ListScreen.turn_sort, "preemptions")
    do_sort_reason = partialmethod(ListScreen.turn_sort, "reason")

    # --- what an action is about -------------------------------------------------------------------------------------

    def chosen_target(self) -> Target | None:
        self.table.touch()
        row = self.table.row
        if row is not None and row.kind == "note":
            row = self.store.get(row.parent)
        return from_row(row) if row is not None else None

    def menu_note(self, kind: str) -> str:
        return "" if kind == "job" else "cancel and complete work on jobs; preempt and fail on the current attempt"

    # --- logs below the table ----------------------------------------------------------------------------------------

    def open_logs(self, target: Target) -> None:
        source = log_source(self.session, target)
        self._close_logs()
        view = LogView(self.session.client, source, self.session.clock)
        self._logs = LogPane(view, self.session.clock, self.prompt)
        self.add_class("-logs")
        self.set_class(self.size.height < 30, "-logs-full")
        self.mount(self._logs, before=self.detail)

    def shows_content(self) -> bool:
        return super().shows_content() and (self._logs is None or self._logs.entered)

    def _close_logs(self) -> None:
        if self._logs is not None:
            self._logs.remove()
            self._logs = None

    def on_log_pane_closed(self, event: LogPane.Closed) -> None:
        event.stop()
        self._close_logs()
        self.remove_class("-logs", "-logs-full")
        self.table.take_focus()
