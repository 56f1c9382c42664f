"""Jobs: the tree of jobs, their tasks and attempts, live; logs below it; cancel and complete behind the gate.

The tree is data in `iris_core.live.jobtree`; this file says how it looks and what the keys do. Rows are known by id all the way:
selection, marks and the targets of a change are never positions.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partialmethod
from typing import TYPE_CHECKING, Any, ClassVar

from iris_core.live.filters import JOB_FIELDS, JOB_WORDS, job_row
from iris_core.live.logs import LogView
from iris_core.model.errors import ModelError
from iris_core.model.filter import Filter, parse_filter
from iris_core.model.ids import JobId, parse_target
from iris_core.model.text import one_line
from iris_tui.actions import ACTIONS, BY_ID, Action
from iris_tui.drawing import counted
from iris_tui.keymap import bindings
from iris_tui.screen import ConsoleScreen
from iris_tui.threads import in_thread
from iris_tui.widgets.line import Line
from iris_tui.widgets.log_pane import LogPane
from iris_tui.widgets.pane import Pane
from iris_tui.widgets.prompt import Question
from iris_tui.widgets.virtual_table import VirtualTable
from screens import jobs_words
from screens.jobs_rows import JobRows
from screens.jobs_target import Target, from_row, from_text, log_source

if TYPE_CHECKING:
    from textual.widget import Widget

    from iris_core.live.jobtree import Value
    from iris_core.live.rows import ChangeSet, Row
    from iris_tui.app import IrisApp
    from iris_tui.session import Session

ORDER_S = 1.0
"""The order is computed at most this often, unless the operator asked for it."""
EAGER_S = 3.0
"""After a row was opened, what arrives below it is shown at once for this long."""
THREAD_ROWS = 20_000
"""From this many rows on the order is computed in a thread."""


class JobsScreen(ConsoleScreen):
    """One session's jobs."""

    SCOPE: ClassVar[str] = "jobs"
    BINDINGS = bindings("jobs")
    CSS_PATH = "jobs.tcss"

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.jobs = session.tree
        self.store = session.tree.store
        self.filter: Filter | None = None
        self._typed: Filter | None = None
        self._rows: JobRows | None = None
        self.table: VirtualTable = None  # type: ignore[assignment]
        self.pane: Pane = None  # type: ignore[assignment]
        self.detail = Line(id="detail")
        self._ordered_at = -1e9
        self._eager_until = -1e9
        self._urgent = True
        self._ordering = False
        self._filter_history: list[str] = []

    @property
    def console(self) -> IrisApp:
        """The app, by its own type."""
        from iris_tui.app import IrisApp

        app = self.app
        assert isinstance(app, IrisApp)
        return app

    def body(self) -> Iterable[Widget]:
        glyphs = self.console.glyphs
        self._rows = JobRows(glyphs, self.store)
        self.table = VirtualTable(self.store, self._rows, glyphs, id="jobs")
        self.table.now_ms = self.session.clock.now_ms()
        self.pane = Pane(self.table.header, self.table, id="jobs-pane")
        yield self.pane
        yield self.detail

    def on_mount(self) -> None:
        super().on_mount()
        self.table.take_focus()

    def title_text(self) -> str:
        return "jobs"

    # --- live --------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        tree, store, clock = self.jobs, self.store, self.session.clock
        changes = tree.take_changes()
        for name in tree.take_needs():
            self.run_worker(tree.load(name), name=f"load {one_line(name)}", group="load", exit_on_error=False)
        self.session.watch.select(tree.selectors())
        now = clock.monotonic()
        due = self._urgent or now - self._ordered_at >= ORDER_S or now < self._eager_until or not store.order
        if store.dirty and due and (self._urgent or not store.frozen):
            self._order(changes)
        self.table.flush(changes)
        for pane in self.query(LogPane):
            pane.flush()
        self._show_state()

    def tick(self) -> None:
        now_ms = self.session.clock.now_ms()
        self.table.tick(now_ms)
        if self.filter is not None and ("age" in self.filter.text or "time" in self.filter.text):
            self.store.dirty = True

    def _order(self, changes: ChangeSet) -> None:
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
        self.jobs.history.error = ""
        for pane in self.query(LogPane):
            pane.view.retry_now()

    def _show_state(self) -> None:
        self.pane.set_status(jobs_words.status(self.session, self.filter))
        self._title()
        self._detail()

    def _title(self) -> None:
        wrong = self.prompt.asks("/ filter") and self.prompt.has_class("-wrong")
        self.pane.update_title(*jobs_words.title(self.jobs, self.filter, wrong=wrong))

    def _detail(self) -> None:
        self.detail.show(jobs_words.detail(self.table.row))

    # --- the tree ----------------------------------------------------------------------------------------------------

    def _soon(self) -> None:
        """The operator did something: show its effect with the next flush."""
        self.store.dirty = True
        self._urgent = True
        self.flush_now()

    def do_open(self) -> None:
        row = self.table.row
        if row is None:
            return
        self.table.touch()
        if row.kind == "note":
            self.jobs.open(row.parent)
        elif row.kind == "attempt":
            self._open_logs(from_row(row))
            return
        elif row.id in self.store.expanded:
            self.jobs.close(row.id)
        else:
            self.jobs.open(row.id)
        self._eager_until = self.session.clock.monotonic() + EAGER_S
        self._soon()

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
            self.jobs.close(row.id)
            self._soon()
        elif row.parent:
            self.table.move_to(row.parent)

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
        self._soon()
        if not self.table.move_to(name) and self.filter is not None:
            self._set_filter("")
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
            self._detail()

    async def _older(self) -> None:
        if await self.jobs.load_history():
            self._urgent = True

    # --- filter, sort, marks -----------------------------------------------------------------------------------------

    def do_show(self, text: str) -> None:
        if text or self.filter is not None:
            self._set_filter(text)
        self.table.take_focus()

    def do_filter(self, text: str) -> None:
        if text:
            self._set_filter(text)
            return
        before = self.filter.text if self.filter is not None else ""
        self.prompt.ask(
            Question(
                "/ filter",
                self._submit_filter,
                check=self._parse,
                change=self._set_filter,
                cancel=lambda: self._submit_filter(before),
                history=self._filter_history,
            ),
            before,
        )

    @staticmethod
    def _parse(text: str) -> Filter:
        return parse_filter(text, JOB_FIELDS, default=JOB_WORDS)

    def _submit_filter(self, text: str) -> None:
        self.table.take_focus()
        self._set_filter(text)

    def _set_filter(self, text: str) -> None:
        wanted = self._parse(text.strip())
        if (self.filter.text if self.filter is not None else "") == wanted.text:
            return
        self.filter = None if wanted.is_empty else wanted
        clock = self.session.clock

        def match(row: Row[Value]) -> bool | None:
            value: Any = row.value
            return wanted.matches(job_row(value, clock.now_ms())) if row.kind == "job" else None

        self.store.set_filter(None if wanted.is_empty else match)
        self.jobs.restart_history(self.filter)
        self.store.hold("")
        self._soon()

    def do_unfilter(self) -> None:
        if self.filter is not None:
            self._set_filter("")

    def _sort(self, column: str) -> None:
        table = self.table
        if table.sorted_by != column:
            table.sorted_by, table.reversed = column, False
        elif not table.reversed:
            table.reversed = True
        else:
            table.sorted_by, table.reversed = "", False
        assert self._rows is not None
        clock = self.session.clock
        key = self._rows.sort_key(table.sorted_by, clock.now_ms) if table.sorted_by else None
        self.store.set_sort(key, reverse=table.reversed)
        table.relayout()
        self._soon()

    do_sort_name = partialmethod(_sort, "name")
    do_sort_state = partialmethod(_sort, "state")
    do_sort_tasks = partialmethod(_sort, "tasks")
    do_sort_age = partialmethod(_sort, "age")
    do_sort_time = partialmethod(_sort, "time")
    do_sort_failures = partialmethod(_sort, "failures")
    do_sort_preemptions = partialmethod(_sort, "preemptions")
    do_sort_reason = partialmethod(_sort, "reason")

    def do_reorder(self) -> None:
        self._soon()

    def do_mark(self) -> None:
        row = self.table.row
        if row is None or row.kind != "job":
            self.console.say("only jobs can be marked", severity="warning")
            return
        self.store.mark(row.id)
        self.table.do_down()
        self.table.refresh()

    def do_unmark(self) -> None:
        self.store.clear_marks()
        self.table.refresh()

    # --- looking closer ----------------------------------------------------------------------------------------------

    def _target(self, text: str) -> Target | None:
        """What an action is about: what was typed, else what is under the cursor. Raises ModelError."""
        if text:
            return from_text(text)
        self.table.touch()
        row = self.table.row
        if row is not None and row.kind == "note":
            row = self.store.get(row.parent)
        return from_row(row) if row is not None else None

    def do_logs(self, text: str) -> None:
        target = self._target(text)
        if target is not None:
            self._open_logs(target)

    def _open_logs(self, target: Target) -> None:
        source = log_source(self.session, target)
        for old in self.query(LogPane):
            old.remove()
        pane = LogPane(LogView(self.session.client, source, self.session.clock), self.session.clock, self.prompt)
        self.add_class("-logs")
        self.set_class(self.size.height < 30, "-logs-full")
        self.mount(pane, before=self.detail)

    def on_log_pane_closed(self, event: LogPane.Closed) -> None:
        event.stop()
        self.remove_class("-logs", "-logs-full")
        self.table.take_focus()

    def do_describe(self, text: str) -> None:
        self._page(self._target(text), "describe")

    def do_explain(self, text: str) -> None:
        self._page(self._target(text), "explain")

    def do_spec(self, text: str) -> None:
        self._page(self._target(text), "spec")

    def _page(self, target: Target | None, what: str) -> None:
        from iris_tui.pages import TextPage
        from screens import jobs_pages

        if target is None:
            return
        pages = {"spec": jobs_pages.spec, "describe": jobs_pages.describe, "explain": jobs_pages.explain}
        page = pages[what](self.session, target)
        self.app.push_screen(TextPage(self.session, page.title, page.load, command=page.command))

    # --- changing ----------------------------------------------------------------------------------------------------

    def do_menu(self) -> None:
        from iris_tui.gate import MenuScreen

        self.table.touch()
        row = self.table.row
        marked = sorted(self.store.marks)
        if not marked and (row is None or row.kind == "note"):
            return
        kind = "job" if marked else row.kind  # type: ignore[union-attr]
        title = counted(len(marked), "marked job") if marked else one_line(row.id)  # type: ignore[union-attr]
        entries = [
            (action.menu, action.id, action.title)
            for action in ACTIONS
            if action.menu and kind in action.kinds and not (action.mutates and self.session.read_only)
            and (not marked or action.mutates)
        ]  # fmt: skip
        note = "read-only: nothing can be changed from here" if self.session.read_only else ""
        if not self.session.read_only and kind != "job":
            note = "cancel and complete work on jobs; preempt and fail on the current attempt"
        self.app.push_screen(MenuScreen(title, entries, note), self._chosen)

    def _chosen(self, action_id: str | None) -> None:
        if action_id:
            self.perform_or_say(BY_ID[action_id])

    def do_cancel(self, text: str) -> None:
        self._change(BY_ID["jobs.cancel"], text)

    def do_complete(self, text: str) -> None:
        self._change(BY_ID["jobs.complete"], text)

    def do_preempt(self, text: str) -> None:
        self._kick(BY_ID["jobs.preempt"], text)

    def do_fail(self, text: str) -> None:
        self._kick(BY_ID["jobs.fail"], text)

    def _kick(self, action: Action, text: str) -> None:
        names = text.split()
        if not names:
            row = self.table.row
            if row is None or row.kind not in action.kinds:
                raise ModelError(f"{action.command} works on tasks and attempts", hint="choose one, or name it")
            names = [row.id]
        for name in names:
            if isinstance(parse_target(name), JobId):
                raise ModelError(f"{name} is a job", hint=f"name a task of it, such as {name}/0")
        from screens import jobs_kicks

        work = jobs_kicks.kick(self.console, self.session, action, names)
        self.run_worker(work, name=action.title, group="change", exit_on_error=False)

    def _change(self, action: Action, text: str) -> None:
        names = text.split() if text else sorted(self.store.marks)
        if not names:
            row = self.table.row
            if row is None or row.kind != "job":
                raise ModelError(f"{action.command} works on jobs", hint="choose a job, or name one")
            names = [row.id]
        for name in names:
            JobId.parse(name)
        from screens import jobs_changes

        work = jobs_changes.change(self.console, self.session, action, names)
        self.run_worker(work, name=action.title, group="change", exit_on_error=False)
