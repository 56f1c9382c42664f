"""Task: one task on one page: what it holds now, its attempts, what was decided about it, its profiles, endpoints and outputs.

An attempt's id opens the page of its task with the cursor on it. Two marked attempts are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from iris_core.live.attempt_feed import AttemptFeed
from iris_core.live.columns import ATTEMPTS, ColumnSpec, age, pick
from iris_core.live.endpoint_columns import ENDPOINTS
from iris_core.live.profile_columns import PROFILES
from iris_core.live.rows import Row
from iris_core.live.wording import NOTHING, Tone, attempt_reason, iso, outputs_text, task_tone, when
from iris_core.model.filter import Field, FieldType
from iris_core.model.ids import AttemptId
from iris_core.model.states import TERMINAL, TaskState, label, task_label
from iris_core.model.text import counted, one_line, visible
from iris_tui.drawing import Run
from iris_tui.keymap import bindings
from iris_tui.list_screen import ListScreen, Source, SpecCells
from iris_tui.tabbed import PartText, RowsPart, Tab, Tabbed, polled_status
from iris_tui.widgets.facts import Facts
from iris_tui.widgets.pane import Pane, State, Status
from screens.comparing import needs_task
from screens.event_part import event_columns, event_detail, event_rows, fill_events_state
from screens.job_parts import UsagePane, task_facts
from screens.jobs_target import Target, from_text
from screens.targets import TargetActions
from screens.task_reads import TaskReads

if TYPE_CHECKING:
    from textual.widget import Widget

    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
    from iris_tui.pages import Lines
    from iris_tui.session import Session
    from iris_tui.widgets.virtual_table import Cells

_ATTEMPTS_PART: Final = 0
_PROFILES_PART: Final = 3
_EVENT_COLUMNS = ("time", "attempt", "type", "source", "action", "count")
_PROFILE_COLUMNS = (
    "profile_id",
    "attempt",
    "type",
    "format",
    "trigger",
    "captured_at",
    "duration_seconds",
    "size_bytes",
)
_ENDPOINT_COLUMNS = ("name", "address", "access", "age", "lease", "proxy_path")

STARTED: Final[ColumnSpec[Any]] = ColumnSpec(
    id="started", title="STARTED", min_width=6, max_width=7, align="right", hide=4,
    value=lambda attempt: iso(attempt.started_at_ms),
    text=lambda attempt, now: age(attempt.started_at_ms, now), moves=True,
    sort=lambda attempt, _: -attempt.started_at_ms,
)  # fmt: skip
FIELDS: Final[dict[str, FieldType | Field]] = {
    "attempt": FieldType.NUMBER,
    "state": Field(FieldType.WORD, tuple(label(state) for state in TaskState if state)),
    "worker": FieldType.TEXT,
    "reason": FieldType.TEXT,
    "exit": FieldType.NUMBER,
}


class TaskScreen(Tabbed, ListScreen, TargetActions):
    """One task, by its id or that of one of its attempts."""

    SCOPES: ClassVar[tuple[str, ...]] = ("task", "tabs", "target", "list")
    BINDINGS = bindings("task", "tabs", "target", "list")
    CSS_PATH = "task.tcss"
    NOUN = "attempt"
    TITLE = "Attempts"
    FIELDS = FIELDS
    WORDS = ("state", "worker", "reason")
    MARKABLE = ("attempt",)
    OPEN = "task.open"

    def __init__(self, session: Session, subject: str) -> None:
        """Raises ModelError: the subject is no task's or attempt's id."""
        self.subject = subject
        self.task_id = needs_task(subject)
        self.feed = AttemptFeed(session.client, session.clock, self.task_id)
        super().__init__(session)
        if isinstance(from_text(subject).attempt_number, int):
            self._wanted_cursor = AttemptId.parse(subject).text
        self.facts = Facts(id="facts")
        self.reads = TaskReads(session, self.feed, self.task_id)
        self._seen = 0
        self._taken = 0

    # --- the list of attempts ----------------------------------------------------------------------------------------

    def make_source(self) -> Source:
        return self.feed

    def make_cells(self) -> Cells:
        return SpecCells(
            [
                ATTEMPTS["attempt"],
                *pick(ATTEMPTS, ("state", "exit", "charge")),
                STARTED,
                *pick(ATTEMPTS, ("time", "worker", "memory_peak")),
                replace(ATTEMPTS["reason"], min_width=28),
                replace(ATTEMPTS["uid"], hide=9),
            ]
        )

    def filter_values(self, value: Any, now_ms: int) -> Any:
        return {
            "attempt": value.attempt_id,
            "state": task_label(value.state),
            "worker": value.worker_id or None,
            "reason": attempt_reason(value) or None,
            "exit": value.exit_code if value.HasField("exit_code") else None,
        }.__getitem__

    def empty_words(self) -> tuple[str, ...]:
        return ("No attempt yet: the task was not placed on a worker.", "w explains why it waits.")

    def detail_runs(self, row: Row[Any]) -> list[Run]:
        attempt = row.value
        runs = [Run(f" {one_line(row.id)}{' (current)' if attempt.current else ''}")]
        runs.append(Run(f"  {task_label(attempt.state)}", task_tone(attempt.state)))
        if attempt.HasField("log_lines"):
            runs.append(Run(f"  {counted(attempt.log_lines, 'log line')}", Tone.DIM))
        reason = attempt_reason(attempt)
        return [*runs, Run(f"  {one_line(reason)}")] if reason else runs

    def status(self) -> Status:
        if not self.feed.known and self.reads.found.fault and self.link.current:
            return Status(
                State.ERROR,
                "",
                (f"{one_line(self.task_id)}: {self.reads.found.fault}", "^r tries again, Esc goes back."),
            )
        if self.feed.known and self.reads.found.fault and self.link.current:
            return polled_status(self, self.reads.found, "attempts")
        return super().status()

    # --- building ----------------------------------------------------------------------------------------------------

    def body(self) -> Iterable[Widget]:
        list(super().body())
        glyphs = self.console.glyphs
        self.event_rows = RowsPart(event_columns(_EVENT_COLUMNS), "event", glyphs)
        self.charts = UsagePane(glyphs)
        self.profile_rows = RowsPart(pick(PROFILES, _PROFILE_COLUMNS), "profile", glyphs)
        self.endpoint_rows = RowsPart(pick(ENDPOINTS, _ENDPOINT_COLUMNS), "endpoint", glyphs)
        self.more = PartText(f"Task {self.task_id}")
        self.tabs = [
            Tab("Attempts", self.pane, self.table, self._flush_attempts, opens=True),
            Tab("Events", self.event_rows, self.event_rows.table, self._flush_events, self.reads.events, event_detail),
            Tab("Charts", self.charts, None, self._flush_charts, self.reads.usage),
            Tab(
                "Profiles",
                self.profile_rows,
                self.profile_rows.table,
                self._flush_profiles,
                self.reads.profiles,
                opens=True,
            ),
            Tab(
                "Endpoints",
                self.endpoint_rows,
                self.endpoint_rows.table,
                self._flush_endpoints,
                self.reads.endpoints,
                _endpoint_detail,
            ),
            Tab("Outputs", Pane(self.more), self.more, self._flush_more, self.reads.said),
        ]
        yield self.facts
        yield self.make_bar()
        yield from self.panes()
        yield self.detail

    def title_text(self) -> str:
        return f"task {one_line(self.task_id)}"

    # --- live --------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        feed, clock = self.feed, self.session.clock
        if feed.seen != self._seen:
            self._seen = feed.seen
            self.reads.found.want()
        if self.reads.found.due(clock.monotonic()) and (self.link.current or not self.reads.found.loaded):
            work = self.reads.found.read(clock.monotonic(), clock.now_ms())
            self.run_worker(work, name="read the task", group="task", exit_on_error=False)
        if self.reads.found.value is not None and self.reads.found.version != self._taken:
            self._taken = self.reads.found.version
            feed.put(self.reads.found.value)
            self._urgent = True
        super().flush()
        self.flush_tabs()
        task = feed.task
        if task is None:
            self.facts.show([[Run(one_line(self.task_id))]])
        else:
            self.facts.show(task_facts(task, self._resources, clock.now_ms())[: self.most_facts()])
        count = len(self.store.rows)
        self.tabs[_ATTEMPTS_PART].note = f"{count:,}" if count else ""

    def tick(self) -> None:
        super().tick()
        self.tick_part()

    @property
    def _resources(self) -> Any:
        from iris_core.wire.gen.iris.v1 import common_pb2

        return self.reads.found.value.resources if self.reads.found.value is not None else common_pb2.Resources()

    def reload(self) -> None:
        super().reload()
        self.reads.found.want()
        self.reload_tabs()

    def show_state(self) -> None:
        super().show_state()
        if self.shown_tab != _ATTEMPTS_PART:
            self.detail.show(self.part_detail())

    # --- the parts ---------------------------------------------------------------------------------------------------

    def _flush_attempts(self) -> None:
        """The list does so by itself."""

    def _command(self, words: str) -> str:
        return f"iris-core {self.session.selector} {words} {one_line(self.task_id)}"

    def _flush_events(self) -> None:
        pane, found = self.event_rows, self.reads.events.value
        if found is not None and self.fresh("events", self.reads.events.version):
            pane.fill(event_rows(found.events))
        fill_events_state(self, pane, self.reads.events)
        self.rows_title(self.tabs[1], pane, "event", self._command("task events"))

    def _flush_charts(self) -> None:
        usage = self.reads.usage.value
        nothing = usage is not None and not len(usage.cpu) and not len(usage.memory)
        empty = ("Nothing was measured: workers look at a running task every 15 seconds.",) if nothing else ()
        partial = "; ".join(usage.notes) if usage is not None else ""
        self.charts.set_status(polled_status(self, self.reads.usage, "measurements", empty=empty, partial=partial))
        if usage is not None and self.fresh("charts", self.reads.usage.version):
            self.charts.fill(usage, self._resources)
        self.charts.update_title([Run("Charts"), Run("   over all attempts", Tone.DIM)])

    def _flush_profiles(self) -> None:
        pane, found = self.profile_rows, self.reads.profiles.value
        if found is not None and self.fresh("profiles", self.reads.profiles.version):
            pane.fill([Row(record.profile_id, "profile", record) for record in found.profiles])
        empty: tuple[str, ...] = ()
        partial = ""
        if found is not None:
            empty = (
                ()
                if found.profiles
                else ("No profile of this task is kept; they are for a week.", "x t takes one now.")
            )
            capped = (f"the newest {len(found.profiles):,} are shown",) if found.capped else ()
            partial = "; ".join((*capped, *found.notes))
        pane.set_status(polled_status(self, self.reads.profiles, "profiles", empty=empty, partial=partial))
        self.rows_title(self.tabs[_PROFILES_PART], pane, "profile", self._command("profile list -t"))

    def _flush_endpoints(self) -> None:
        pane, found = self.endpoint_rows, self.reads.endpoints.value
        if found is not None and self.fresh("endpoints", self.reads.endpoints.version):
            pane.fill([Row(one.endpoint_id or one.name, "endpoint", one) for one in found])
        empty = ("This task serves nothing under a name now.",) if found is not None and not found else ()
        pane.set_status(polled_status(self, self.reads.endpoints, "endpoints", empty=empty))
        prefix = f"iris-core {self.session.selector} endpoints list {one_line(from_text(self.task_id).job)}"
        self.rows_title(self.tabs[4], pane, "endpoint", prefix)

    def _flush_more(self) -> None:
        pane = self.tabs[5].pane
        status = polled_status(self, self.reads.said, "outputs")
        if status.state is State.ERROR and self.feed.known:
            status = Status(State.PARTIAL, f"without what the task says of itself: {self.reads.said.fault}")
        pane.set_status(status)
        if self.fresh("more", self.reads.said.version, str(self.feed.store.rows.keys()) + str(self._taken)):
            self.more.show(_more_lines([row.value for row in self.store.rows.values()], self.reads.said.value or ""))
        pane.update_title([Run("Outputs, and what the task says of itself")])

    # --- what an action is about -------------------------------------------------------------------------------------

    def chosen_target(self) -> Target | None:
        if self.shown_tab == _ATTEMPTS_PART:
            self.table.touch()
            row = self.table.row
            if row is not None:
                return from_text(row.id)
        return from_text(self.task_id)

    def chosen_ids(self, kinds: Sequence[str]) -> list[str]:
        if self.shown_tab == _ATTEMPTS_PART and self.store.order and "attempt" in kinds:
            return super().chosen_ids(kinds)
        return [self.task_id] if "task" in kinds else []

    def do_menu(self) -> None:
        if self.shown_tab == _ATTEMPTS_PART and self.table.row is not None:
            super().do_menu()
        else:
            task = self.feed.task
            ended = task is not None and int(task.state) in TERMINAL
            self.show_menu(one_line(self.task_id), "task", ended=ended)

    def do_open(self) -> None:
        if self.shown_tab == _PROFILES_PART:
            row = self.profile_rows.table.row
            if row is not None:
                self.open_profile(row.id)
            return
        target = self.chosen_target()
        if target is not None and self.shown_tab == _ATTEMPTS_PART:
            self.open_logs(target)

    def profiled(self) -> None:
        self.reads.profiles.want()
        self.show_tab(_PROFILES_PART)


def _endpoint_detail(row: Row[Any]) -> list[Run]:
    one = row.value
    return [
        Run(f" {one_line(one.name)}"),
        Run(f"  {one_line(one.address)}"),
        Run(f"  {one_line(one.proxy_path)}", Tone.DIM),
    ]


def _more_lines(attempts: Sequence[pb.AttemptStatus], said: str) -> Lines:
    """What the task says of itself in full, and of each attempt what became of its outputs, the newest first."""
    lines: list[tuple[str, Tone]] = []
    if said:
        lines.append(("Says", Tone.BUSY))
        lines += [(f"  {visible(line)}", Tone.PLAIN) for line in said.splitlines()]
        lines.append(("", Tone.PLAIN))
    for one in sorted(attempts, key=lambda one: -one.attempt_id):
        lines.append(
            (f"Attempt {one.attempt_id}{' (current)' if one.current else ''}  {one_line(one.attempt_uid)}", Tone.BUSY)
        )
        kept = outputs_text(one.outputs) if one.HasField("outputs") else ""
        nothing = "nothing is kept: it did not end by itself" if one.finished_at_ms else "kept when it ends by itself"
        lines.append((f"  outputs   {one_line(kept) or nothing}", Tone.PLAIN if kept else Tone.DIM))
        if one.outputs.url:
            lines.append(
                (
                    f"            iris-core attempt outputs {one_line(one.task_id)}:{one.attempt_id} --save FILE",
                    Tone.DIM,
                )
            )
        created, started, ended = (when(ms) for ms in (one.created_at_ms, one.started_at_ms, one.finished_at_ms))
        lines.append((f"  created {created}  started {started}  ended {ended}  (UTC)", Tone.PLAIN))
        count = f"{one.log_lines:,}" if one.HasField("log_lines") else NOTHING
        ended_as = f"  ended as {one_line(one.terminal_reason)}" if one.terminal_reason else ""
        lines.append((f"  log lines {count}{ended_as}", Tone.PLAIN))
    return lines
