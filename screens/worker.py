"""Worker: one worker on one page: how it is, the tasks on it now, what it is, how it was loaded, its profiles; its log a key away.

One Watch brings the worker and the tasks on it; what the log store has is read every so often while its part is shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual.containers import Horizontal

from iris_core.live.columns import TASKS, pick
from iris_core.live.feed import Feed
from iris_core.live.filters import TASK_FIELDS, TASK_WORDS, task_row
from iris_core.live.polled import Polled
from iris_core.live.profile_columns import PROFILES
from iris_core.live.rows import Row
from iris_core.live.watch import Selector
from iris_core.live.wording import NOTHING, Tone, task_reason, task_tone
from iris_core.live.worker_columns import attribute_text, device_text, devices_text, free_memory, health_of, heard_text
from iris_core.live.worker_history import WorkerHistory, worker_history
from iris_core.model.errors import ModelError, shown
from iris_core.model.quantities import format_cpu, format_size
from iris_core.model.quoting import quote
from iris_core.model.states import task_label
from iris_core.model.text import one_line
from iris_tui import registry
from iris_tui.actions import BY_ID
from iris_tui.drawing import Run
from iris_tui.keymap import bindings
from iris_tui.list_screen import ListScreen, Source, SpecCells
from iris_tui.states import live_status
from iris_tui.tabbed import PartText, RowsPart, Tab, Tabbed, polled_status
from iris_tui.widgets.chart import Chart, Unit
from iris_tui.widgets.facts import Facts
from iris_tui.widgets.pane import Pane
from screens import there
from screens.closer import KINDS
from screens.jobs_target import Target, from_row
from screens.targets import TargetActions

if TYPE_CHECKING:
    from textual.widget import Widget

    from iris_core.wire.gen.iris.v1 import profiles_pb2
    from iris_core.wire.gen.iris.v1.controller_pb2 import WatchRows, WorkerStatus
    from iris_tui.glyphs import Glyphs
    from iris_tui.session import Session
    from iris_tui.widgets.virtual_table import Cells

_WORKER, _TASKS = "worker", "tasks"
_WATCH_TASKS, _WATCH_WORKERS = 2, 3  # numbers of WatchKind
_COLUMNS = ("task_id", "state", "attempt", "time", "failures", "preemptions", "memory", "memory_peak", "reason")
_PROFILE_COLUMNS = ("profile_id", "type", "format", "trigger", "captured_at", "duration_seconds", "size_bytes")
_LABEL: Final = 18
MOST_PROFILES: Final = 200


class LoadPane(Pane):
    """CPU, memory, tasks and accelerator of a machine over the last hours."""

    def __init__(self, glyphs: Glyphs) -> None:
        self.cpu = Chart("CPU", Unit.PERCENT, glyphs)
        self.memory = Chart("Memory", Unit.BYTES, glyphs)
        self.tasks = Chart("Running tasks", Unit.COUNT, glyphs)
        self.accelerator = Chart("Accelerator", Unit.PERCENT, glyphs)
        self.disk = Chart("Disk", Unit.BYTES, glyphs)
        super().__init__(
            Horizontal(self.cpu, self.memory, classes="charts"),
            Horizontal(self.tasks, self.accelerator, self.disk, classes="charts"),
        )

    def fill(self, found: WorkerHistory) -> None:
        """Show these."""
        self.cpu.show(found.cpu_pct)
        self.memory.show(found.memory, limit=float(found.memory_total) or None, limit_name="of")
        self.tasks.show(found.tasks)
        self.accelerator.display = len(found.accelerator_pct) > 0
        self.accelerator.show(found.accelerator_pct)
        self.disk.show(found.disk, limit=float(found.disk_total) or None, limit_name="of")


class WorkerScreen(Tabbed, ListScreen, TargetActions):
    """One worker, by its id."""

    SCOPES: ClassVar[tuple[str, ...]] = ("worker", "tabs", "target", "list")
    BINDINGS = bindings("worker", "tabs", "target", "list")
    CSS_PATH = "task.tcss"
    NOUN = "task"
    TITLE = "Tasks"
    FIELDS = TASK_FIELDS
    WORDS = TASK_WORDS
    MARKABLE = ("task",)
    OPEN = "worker.open"

    def __init__(self, session: Session, subject: str) -> None:
        """Raises ModelError: no worker can have such an id."""
        if not subject or subject.split() != [subject]:
            raise ModelError(f"{shown(subject)} is no worker's id")
        self.subject = subject
        self.worker: WorkerStatus | None = None
        super().__init__(session)
        self.facts = Facts(id="facts")
        self.history: Polled[WorkerHistory] = Polled(self._read_history, every_s=15)
        self.profiles: Polled[profiles_pb2.ListProfilesResponse] = Polled(self._read_profiles, every_s=30)
        self._changes = 0

    # --- the list of tasks -------------------------------------------------------------------------------------------

    def make_source(self) -> Source:
        there_now = f"worker={quote(self.subject)}"
        selectors = [Selector(_WORKER, _WATCH_WORKERS, there_now), Selector(_TASKS, _WATCH_TASKS, there_now)]
        return Feed(self.session.client, self.session.clock, selectors, self._rows, kinds=("task",))

    def _rows(self, selector: str, rows: WatchRows) -> Iterable[Row[Any]]:
        if selector == _WORKER:
            found = [worker for worker in rows.workers if worker.worker_id == self.subject]
            if found:
                self.worker = found[-1]
            elif self.subject in rows.removed:
                self.worker = None
            self._changes += 1
            return []
        return [
            Row(task.task_id, "task", task, task.job_id, (task.job_id, task.task_index))
            for task in rows.tasks
            if task.worker_id == self.subject
        ]

    def make_cells(self) -> Cells:
        return SpecCells(pick(TASKS, _COLUMNS))

    def filter_values(self, value: Any, now_ms: int) -> Any:
        return task_row(value, now_ms)

    def empty_words(self) -> tuple[str, ...]:
        if self.worker is None:
            return (
                f"There is no worker {one_line(self.subject)} now.",
                "Esc goes back; Workers (v w) has those that there are.",
            )
        return ("No task is on this worker now.",)

    def detail_runs(self, row: Row[Any]) -> list[Run]:
        task = row.value
        runs = [Run(f" {one_line(row.id)}{' (gone)' if row.gone else ''}")]
        runs.append(Run(f"  {task_label(task.state)}", task_tone(task.state)))
        reason = task_reason(task)
        return [*runs, Run(f"  {one_line(reason)}")] if reason else runs

    # --- building ----------------------------------------------------------------------------------------------------

    def body(self) -> Iterable[Widget]:
        list(super().body())
        glyphs = self.console.glyphs
        self.about = PartText(f"Worker {self.subject}")
        self.charts = LoadPane(glyphs)
        self.profile_rows = RowsPart(pick(PROFILES, _PROFILE_COLUMNS), "profile", glyphs)
        self.tabs = [
            Tab("Tasks", self.pane, self.table, lambda: None, opens=True),
            Tab("About", Pane(self.about), self.about, self._flush_about),
            Tab("Charts", self.charts, None, self._flush_charts, self.history),
            Tab(
                "Profiles", self.profile_rows, self.profile_rows.table, self._flush_profiles, self.profiles, opens=True
            ),
        ]
        yield self.facts
        yield self.make_bar()
        yield from self.panes()
        yield self.detail

    def title_text(self) -> str:
        return f"worker {one_line(self.subject)}"

    # --- live --------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        super().flush()
        self.flush_tabs()
        self.facts.show(self._facts())
        count = self.store.counts().total
        self.tabs[0].note = f"{count:,}" if count else ""

    def tick(self) -> None:
        super().tick()
        self.tick_part()

    def reload(self) -> None:
        super().reload()
        self.reload_tabs()

    def show_state(self) -> None:
        super().show_state()
        if self.shown_tab:
            self.detail.show(self.part_detail())

    def _facts(self) -> list[list[Run]]:
        worker = self.worker
        if worker is None:
            gone = "" if not self.source.loaded else "  is not there (any more)"
            return [[Run(one_line(self.subject)), Run(gone, Tone.WARN)]]
        word, tone = health_of(worker)
        attached = [] if worker.attached else [Run("  not attached", Tone.WARN)]
        leaving = [Run("  told to end, gets no new work", Tone.WARN)] if worker.stopping else []
        silent = heard_text(worker)
        heard = [Run(f"  silent for {silent}", tone)] if silent != NOTHING else []
        rows = [
            [Run(one_line(worker.worker_id)), Run(f"  {word}", tone), *attached, *leaving, *heard,
             Run(f"  {one_line(worker.address)}", Tone.DIM)],
            [
                Run("cpu ", Tone.DIM),
                Run(f"{format_cpu(worker.committed.cpu_millicores)} of {format_cpu(worker.total.cpu_millicores)}"),
                Run("  memory ", Tone.DIM),
                Run(f"{format_size(worker.committed.memory_bytes)} of {format_size(worker.total.memory_bytes)}"),
                Run(f" ({format_size(free_memory(worker))} free)", Tone.DIM),
                *([Run("  accelerators ", Tone.DIM), Run(devices_text(worker))] if worker.total.device.count else []),
                Run("  promised", Tone.DIM),
            ],
        ]  # fmt: skip
        if worker.health_reason:
            rows.append([Run(one_line(worker.health_reason), tone if tone is not Tone.GOOD else Tone.WARN)])
        return rows

    def _flush_about(self) -> None:
        pane, worker = self.tabs[1].pane, self.worker
        empty = () if worker is not None else self.empty_words()
        pane.set_status(
            live_status(
                self.session,
                self.link,
                what="worker",
                loaded=self.source.loaded,
                some=int(worker is not None),
                empty=empty,
            )
        )
        if worker is not None and self.fresh("about", self._changes):
            self.about.show(_about(worker))
        pane.update_title([Run("About"), Run(f"   iris-core {self.session.selector} cluster status", Tone.DIM)])

    def _flush_charts(self) -> None:
        found = self.history.value
        nothing = found is not None and not len(found.cpu_pct)
        empty = (
            ("Nothing was measured in the last six hours: workers measure their machine every 15 seconds.",)
            if nothing
            else ()
        )
        partial = "; ".join(found.notes) if found is not None else ""
        self.charts.set_status(polled_status(self, self.history, "measurements", empty=empty, partial=partial))
        if found is not None and self.fresh("charts", self.history.version):
            self.charts.fill(found)
        self.charts.update_title([Run("Charts"), Run("   of the last six hours", Tone.DIM)])

    def _flush_profiles(self) -> None:
        pane, found = self.profile_rows, self.profiles.value
        if found is not None and self.fresh("profiles", self.profiles.version):
            pane.fill([Row(record.profile_id, "profile", record) for record in found.profiles])
        empty: tuple[str, ...] = ()
        partial = ""
        if found is not None:
            empty = (
                ()
                if found.profiles
                else ("No profile of this worker is kept; they are for a week.", "T takes one now.")
            )
            capped = (f"the newest {len(found.profiles):,} are shown",) if found.capped else ()
            partial = "; ".join((*capped, *found.notes))
        pane.set_status(polled_status(self, self.profiles, "profiles", empty=empty, partial=partial))
        command = f"iris-core {self.session.selector} profile list -t {self._system_name()}"
        self.rows_title(self.tabs[3], pane, "profile", command)

    # --- reading -----------------------------------------------------------------------------------------------------

    def _system_name(self) -> str:
        return f"/system/worker/{self.subject}"

    async def _read_history(self) -> WorkerHistory:
        return await worker_history(self.session.client, self.subject, self.session.clock.now_ms())

    async def _read_profiles(self) -> profiles_pb2.ListProfilesResponse:
        from iris_core.wire.gen.iris.v1 import profiles_pb2

        request = profiles_pb2.ListProfilesRequest(source=self._system_name(), page_size=MOST_PROFILES)
        return await self.session.client.call(
            "ControllerService/ListProfiles", request, profiles_pb2.ListProfilesResponse, timeout_s=60.0
        )

    # --- what the keys do --------------------------------------------------------------------------------------------

    def chosen_target(self) -> Target | None:
        self.table.touch()
        row = self.table.row
        return from_row(row) if row is not None else None

    def do_open(self) -> None:
        tab = self.part
        if tab.name == "Profiles":
            row = self.profile_rows.table.row
            if row is not None:
                self.open_profile(row.id)
            return
        target = self.chosen_target()
        if target is not None:
            self.console.go("task", target.id)

    def do_process_log(self) -> None:
        if "logs" not in registry.SCREENS:
            raise ModelError("this console has no screen for the logs of processes")
        self.console.go("logs", self._system_name())

    def do_machine_log(self) -> None:
        there.machine_log(self, self.subject)

    def do_preempt_all(self) -> None:
        there.preempt_there(self, BY_ID["worker.preempt_all"], self.subject, [self.subject])

    def do_profile_worker(self, text: str) -> None:
        from iris_tui.gate import MenuScreen

        if self.session.read_only:
            raise ModelError("a profile slows its program down, and this console is read-only")
        known = [word for _, word, _ in KINDS]
        if text and text not in known:
            raise ModelError(f"no kind of profile {one_line(text)!r}", hint=f"one of {', '.join(known)}")
        if text:
            self._take_profile(self._system_name(), text)
            return
        menu = MenuScreen(
            f"Profile the worker {one_line(self.subject)}", list(KINDS), "it goes on; it is slower meanwhile"
        )
        self.app.push_screen(menu, lambda chosen: self._take_profile(self._system_name(), chosen) if chosen else None)

    def profiled(self) -> None:
        self.profiles.want()

    def view_state(self) -> dict[str, Any]:
        return {**super().view_state(), "part": self.part.name}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.restore_tab(state)


def _about(worker: WorkerStatus) -> list[tuple[str, Tone]]:
    """Everything that is known of it, a line each."""
    pairs = [
        ("Worker", worker.worker_id),
        ("Address", worker.address),
        ("Host", worker.hostname),
        ("Health", f"{health_of(worker)[0]}{': ' + worker.health_reason if worker.health_reason else ''}"),
        ("Failed builds", str(worker.build_failures) if worker.build_failures else ""),
        ("Running tasks", str(worker.running_tasks)),
        ("CPU", f"{format_cpu(worker.total.cpu_millicores)} cores"),
        ("Memory", format_size(worker.total.memory_bytes)),
        ("Disk", format_size(worker.total.disk_bytes) if worker.total.disk_bytes else ""),
        ("Accelerators", device_text(worker.total.device)),
        ("Version", worker.version),
        ("Release", worker.release),
        ("Process", f"{worker.pid}, boot {worker.boot_id}" if worker.pid else ""),
    ]
    lines = [(f"{label:<{_LABEL}}{one_line(text)}", Tone.PLAIN) for label, text in pairs if text]
    if worker.attributes:
        lines.append(("Attributes", Tone.DIM))
    for name, value in sorted(worker.attributes.items()):
        lines.append((f"  {one_line(name):<{_LABEL - 2}}{one_line(attribute_text(value))}", Tone.PLAIN))
    return lines
