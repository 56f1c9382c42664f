"""Job: one job on one page: what it does now, why it fares badly, its tasks with the failing rank on top, and all else known of it.

One Watch brings the job, its tasks and its child jobs; what the log store has is read every so often while its part is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from iris_core.live.columns import JOBS, TASKS, exit_text, pick
from iris_core.live.event_columns import EVENTS
from iris_core.live.filters import TASK_FIELDS, TASK_WORDS, task_row
from iris_core.live.job_feed import JobFeed, trouble
from iris_core.live.polled import Polled
from iris_core.live.rows import Row
from iris_core.live.wording import Tone, task_reason, task_tone
from iris_core.model.errors import ModelError
from iris_core.model.ids import JobId
from iris_core.model.states import JOB_TERMINAL, TERMINAL, task_label
from iris_core.model.text import counted, one_line
from iris_tui.actions import BY_ID, Action
from iris_tui.drawing import Run
from iris_tui.keymap import bindings
from iris_tui.list_screen import ListScreen, Source, SpecCells
from iris_tui.states import live_status
from iris_tui.tabbed import PartText, RowsPart, Tab, Tabbed, polled_status
from iris_tui.widgets.facts import Facts
from iris_tui.widgets.pane import Pane, State, Status
from screens import causes, jobs_words
from screens.event_part import EVENT_RANK, event_columns, event_detail, event_rows, fill_events_state
from screens.job_parts import UsagePane, job_facts, request_lines
from screens.job_reads import JobReads
from screens.jobs_target import Target, from_text
from screens.targets import TargetActions

if TYPE_CHECKING:
    from textual.widget import Widget

    from iris_core.live.columns import ColumnSpec
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
    from iris_tui.session import Session
    from iris_tui.widgets.virtual_table import Cells

_COLUMNS = ("exit", "attempt", "time", "failures", "preemptions", "memory", "memory_peak", "worker")
_CHILD_COLUMNS = ("job_id", "state", "tasks", "age", "time", "failures", "preemptions", "reason")
_EVENT_COLUMNS = ("attempt", "type", "source", "action", "count")
_TASKS_PART: Final = 0
_FAILURES_PART: Final = 1
_CHILDREN_PART: Final = 2
_OF_THE_JOB: Final = ("target.cancel", "target.complete")

RANK: Final[ColumnSpec[Any]] = replace(
    TASKS["task_id"], id="rank", title="RANK", min_width=5, max_width=7, flex=0, align="right",
    text=lambda task, _: str(task.task_index), sort=lambda task, _: task.task_index,
)  # fmt: skip

STATE: Final[ColumnSpec[Any]] = replace(TASKS["state"], max_width=14)
"""Wide enough for `cosched_failed`."""


class JobScreen(Tabbed, ListScreen, TargetActions):
    """One job, by its id."""

    SCOPES: ClassVar[tuple[str, ...]] = ("job", "tabs", "target", "list")
    BINDINGS = bindings("job", "tabs", "target", "list")
    CSS_PATH = "job.tcss"
    NOUN = "task"
    TITLE = "Tasks"
    FIELDS = TASK_FIELDS
    WORDS = TASK_WORDS
    MARKABLE = ("task",)
    OPEN = "job.open"

    def __init__(self, session: Session, subject: str) -> None:
        """Raises ModelError: the subject is no job's id."""
        JobId.parse(subject)
        self.subject = subject
        self.feed = JobFeed(session.client, session.clock, subject)
        super().__init__(session)
        self.facts = Facts(id="facts")
        self.reads = JobReads(session, self.feed, subject)

    # --- the list of tasks -------------------------------------------------------------------------------------------

    def make_source(self) -> Source:
        return self.feed

    def make_cells(self) -> Cells:
        return SpecCells([RANK, STATE, *pick(TASKS, _COLUMNS), replace(TASKS["reason"], min_width=28)])

    def filter_values(self, value: Any, now_ms: int) -> Any:
        return task_row(value, now_ms)

    def sort_by(self, column: str, *, reverse: bool = False) -> None:
        super().sort_by(column, reverse=reverse)
        if not self.table.sorted_by:
            self.store.set_sort(lambda row: trouble(row.value))

    def detail_runs(self, row: Row[Any]) -> list[Run]:
        task = row.value
        runs = [Run(f" {one_line(row.id)}{' (gone)' if row.gone else ''}")]
        runs.append(Run(f"  {task_label(task.state)}", task_tone(task.state)))
        if int(task.state) in TERMINAL and task.HasField("exit_code"):
            runs.append(Run(f"  exit {exit_text(task.exit_code, task.error)}"))
        reason = task_reason(task)
        return [*runs, Run(f"  {one_line(reason)}")] if reason else runs

    def empty_words(self) -> tuple[str, ...]:
        return ("This job has no tasks yet.",)

    def status(self) -> Status:
        if self.job is None and self.feed.loaded and self.reads.found.fault and not self.store.rows:
            return Status(
                State.ERROR,
                "",
                (f"{one_line(self.subject)}: {self.reads.found.fault}", "^r tries again, Esc goes back."),
            )
        return super().status()

    # --- building ----------------------------------------------------------------------------------------------------

    def body(self) -> Iterable[Widget]:
        list(super().body())
        glyphs = self.console.glyphs
        self.failures = PartText(f"Failures {self.subject}")
        self.child_rows = RowsPart(pick(JOBS, _CHILD_COLUMNS), "job", glyphs, store=self.feed.children)
        self.request_text = PartText(f"Request {self.subject}")
        self.charts = UsagePane(glyphs)
        self.event_rows = RowsPart([EVENTS["time"], EVENT_RANK, *event_columns(_EVENT_COLUMNS)], "event", glyphs)
        self.tabs = [
            Tab("Tasks", self.pane, self.table, self._flush_tasks, opens=True),
            Tab("Failures", Pane(self.failures), self.failures, self._flush_failures),
            Tab(
                "Children",
                self.child_rows,
                self.child_rows.table,
                self._flush_children,
                None,
                jobs_words.detail,
                opens=True,
            ),
            Tab("Request", Pane(self.request_text), self.request_text, self._flush_request, self.reads.found),
            Tab("Charts", self.charts, None, self._flush_charts, self.reads.usage),
            Tab(
                "Events",
                self.event_rows,
                self.event_rows.table,
                self._flush_events,
                self.reads.events,
                event_detail,
                opens=True,
            ),
        ]
        yield self.facts
        yield self.make_bar()
        yield from self.panes()
        yield self.detail

    def on_mount(self) -> None:
        self.store.set_sort(lambda row: trouble(row.value))
        for table in (self.child_rows.table, self.event_rows.table):
            table.now_ms = self.session.clock.now_ms()

    def title_text(self) -> str:
        return f"job {one_line(self.subject)}"

    @property
    def job(self) -> pb.JobStatus | None:
        """The job, None until something is known of it."""
        return self.reads.job

    # --- live --------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        self._read(self.reads.found, "job")
        if self.reads.suspects:
            self._read(self.reads.cause, "root cause")
        super().flush()
        self.flush_tabs()
        self._tell()

    def _read(self, polled: Polled[Any], what: str) -> None:
        clock = self.session.clock
        if polled.due(clock.monotonic()):
            work = polled.read(clock.monotonic(), clock.now_ms())
            self.run_worker(work, name=f"read the {what}", group=what, exit_on_error=False)

    def tick(self) -> None:
        super().tick()
        self.tick_part()
        self.reads.look()

    def _tell(self) -> None:
        job = self.job
        if job is None:
            self.facts.show([[Run(one_line(self.subject))]])
            return
        cause = self.reads.cause.value
        callout = causes.headline(self.reads.suspects[0], cause) if self.reads.suspects else ""
        rows = job_facts(job, self.console.glyphs, self.session.clock.now_ms(), callout)
        if cause is not None and cause.last_line and self.reads.suspects:
            rows.append([Run("its log ", Tone.DIM), Run(cause.last_line, Tone.BAD)])
        self.facts.show(rows[: self.most_facts()])
        bad = self.tabs[_FAILURES_PART]
        bad.opens = bool(self.reads.suspects)
        bad.tone, bad.note = (Tone.BAD, f"{len(self.reads.suspects):,}") if self.reads.suspects else (Tone.PLAIN, "")
        children = len(self.feed.children.rows)
        self.tabs[_CHILDREN_PART].note = f"{children:,}" if children else ""

    def reload(self) -> None:
        super().reload()
        self.reads.found.want()
        self.reads.cause.want()
        self.reload_tabs()

    def show_state(self) -> None:
        super().show_state()
        if self.shown_tab != _TASKS_PART:
            self.detail.show(self.part_detail())

    # --- the other parts ---------------------------------------------------------------------------------------------

    def _flush_tasks(self) -> None:
        """The list does so by itself."""

    def _flush_failures(self) -> None:
        pane = self.tabs[1].pane
        empty = () if self.reads.suspects else ("No task of this job has failed.",)
        if not self.feed.loaded and not self.reads.suspects:
            pane.set_status(live_status(self.session, self.link, what="tasks", loaded=False, some=0))
        elif empty or not self.link.current:
            pane.set_status(
                live_status(self.session, self.link, what="tasks", loaded=True, some=len(self.store.rows), empty=empty)
            )
        else:
            pane.set_status(polled_status(self, self.reads.cause, "log of the rank that failed first"))
        if self.fresh("failures", self.reads.cause.version, self.reads.blamed):
            self.failures.show(causes.failure_lines(self.reads.suspects, self.reads.cause.value))
        pane.update_title([Run("Failures", Tone.PLAIN), Run(f"   {self._command('task describe')}", Tone.DIM)])

    def _command(self, what: str) -> str:
        first = self.reads.suspects[0].task_id if self.reads.suspects else f"{self.subject}/0"
        return f"iris-core {self.session.selector} {what} {one_line(first)}"

    def _flush_children(self) -> None:
        pane, store = self.child_rows, self.feed.children
        changes = self.feed.take_child_changes()
        if store.dirty:
            store.reorder(force=True)
            pane.table.reordered()
        pane.table.flush(changes)
        empty = () if store.order else ("This job has no child jobs that the controller still holds.",)
        pane.set_status(
            live_status(
                self.session, self.link, what="child jobs", loaded=self.feed.loaded, some=len(store.rows), empty=empty
            )
        )
        at = f"iris-core {self.session.selector} job list --prefix {one_line(self.subject)}/"
        self.rows_title(self.tabs[_CHILDREN_PART], pane, "child job", at)

    def _flush_request(self) -> None:
        pane = self.tabs[3].pane
        pane.set_status(polled_status(self, self.reads.found, "request"))
        if self.reads.found.value is not None and self.fresh("request", self.reads.found.version):
            self.request_text.show(request_lines(self.reads.found.value, self.session.selector))
        pane.update_title([Run("Request")])

    def _flush_charts(self) -> None:
        usage, job = self.reads.usage.value, self.job
        nothing = usage is not None and not len(usage.cpu) and not len(usage.memory)
        empty = (
            ("Nothing was measured: workers look at a running task every 15 seconds.",) if nothing else ()
        )  # fmt: skip
        partial = "; ".join(usage.notes) if usage is not None else ""
        self.charts.set_status(polled_status(self, self.reads.usage, "measurements", empty=empty, partial=partial))
        if usage is not None and job is not None and self.fresh("charts", self.reads.usage.version):
            self.charts.fill(usage, job.resources)
        of = f", the most of {counted(usage.tasks, 'task')}" if usage is not None and usage.tasks > 1 else ""
        self.charts.update_title([Run(f"Charts{of}")])

    def _flush_events(self) -> None:
        pane, found = self.event_rows, self.reads.events.value
        if found is not None and self.fresh("events", self.reads.events.version):
            pane.fill(event_rows(found.events))
        fill_events_state(self, pane, self.reads.events)
        self.rows_title(self.tabs[5], pane, "event", "")

    # --- what an action is about -------------------------------------------------------------------------------------

    def chosen_target(self) -> Target | None:
        if self.shown_tab == _TASKS_PART:
            self.table.touch()
            row = self.table.row
            if row is not None:
                return from_text(row.id)
        if self.shown_tab == _CHILDREN_PART and self.child_rows.table.row is not None:
            return from_text(self.child_rows.table.row.id)
        return from_text(self.subject)

    def chosen_ids(self, kinds: Sequence[str]) -> list[str]:
        if self.shown_tab == _TASKS_PART and tuple(kinds) != ("job",):
            return super().chosen_ids(kinds)
        target = self.chosen_target() if self.shown_tab == _CHILDREN_PART else from_text(self.subject)
        return [target.id] if target is not None and "job" in kinds else []

    def menu_entries(self, kind: str, *, marked: bool) -> list[Action]:
        entries = super().menu_entries(kind, marked=marked)
        if kind != "task" or self.session.read_only or self._ended(self.subject):
            return entries
        # Alive as far as the job is, whatever the task under the cursor is.
        of_job = [
            replace(BY_ID[name], title=f"{BY_ID[name].title} (the whole job)", alive=False) for name in _OF_THE_JOB
        ]
        return [*entries, *of_job]

    def do_menu(self) -> None:
        if self.shown_tab == _TASKS_PART and self.table.row is not None:
            super().do_menu()
            return
        target = self.chosen_target()
        if target is not None:
            self.show_menu(one_line(target.id), "job", ended=self._ended(target.id))

    def _ended(self, job_id: str) -> bool:
        """Whether this job, or that child of it, is known to have ended."""
        child = self.child_rows.table.row if self.shown_tab == _CHILDREN_PART else None
        job = child.value if child is not None and child.id == job_id else self.job
        return job is not None and int(job.state) in JOB_TERMINAL

    def perform(self, action: Action, argument: str) -> None:
        of_list = action.scope == "list" and action.name not in ("menu", "unfilter")
        if of_list and self.shown_tab != _TASKS_PART:
            self.show_tab(_TASKS_PART)
        super().perform(action, argument)

    def do_open(self) -> None:
        if self.part is self.tabs[_FAILURES_PART]:
            if not self.reads.suspects:
                raise ModelError("no task of this job has failed")
            self.console.go("task", self.reads.suspects[0].task_id)
            return
        event = self.event_rows.table.row if self.part.name == "Events" else None
        target = self.chosen_target() if event is None else from_text(event.value.task_id)
        if target is not None and target.id != self.subject:
            self.console.go(target.kind, target.id)

    def do_unfilter(self) -> None:
        if self.filter is not None and self.shown_tab == _TASKS_PART:
            self.set_filter("")
        else:
            self.console.go_back()

    # --- how it was left ---------------------------------------------------------------------------------------------

    def view_state(self) -> dict[str, Any]:
        return {**super().view_state(), "part": self.part.name}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.restore_tab(state)
