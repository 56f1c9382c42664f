"""Workers: health, what each has and what of it is promised, why one takes no work; above them a line for each backend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from iris_core.live.columns import pick
from iris_core.live.feed import Feed
from iris_core.live.filters import WORKER_FIELDS, WORKER_WORDS, worker_row
from iris_core.live.rows import Row
from iris_core.live.watch import Selector
from iris_core.live.wording import Tone
from iris_core.live.worker_columns import WORKERS, attribute_text, health_of
from iris_core.model.errors import ModelError
from iris_core.model.quantities import format_cpu, format_size
from iris_core.model.text import counted, one_line
from iris_tui.actions import BY_ID
from iris_tui.drawing import Run
from iris_tui.keymap import bindings
from iris_tui.list_screen import ListScreen, Source, SpecCells
from iris_tui.widgets.line import Line
from screens import there

if TYPE_CHECKING:
    from textual.widget import Widget

    from iris_core.wire.gen.iris.v1.controller_pb2 import WatchRows
    from iris_core.wire.gen.iris.v1.watch_rows_pb2 import BackendRow
    from iris_tui.session import Session
    from iris_tui.widgets.virtual_table import Cells

COLUMNS: Final = (
    replace(WORKERS["worker_id"], min_width=24),
    *pick(
        WORKERS,
        (
            "health",
            "running",
            "cpu",
            "memory",
            "devices",
            "free_memory",
            "heard",
            "builds",
            "zone",
            "release",
            "address",
        ),
    ),
    replace(WORKERS["reason"], min_width=24),
)
_WORKERS, _BACKENDS = "workers", "backends"
_SELECTORS: Final = (Selector(_WORKERS, 3), Selector(_BACKENDS, 12))  # numbers of WatchKind
MOST_BACKENDS: Final = 3
"""Lines above the table; the page of the backends has them all."""


def backend_runs(row: BackendRow) -> list[Run]:
    """A backend in one line: what of it is up, promised, waiting and wrong."""
    status = row.status
    whole = status.workers_healthy == status.workers_total
    devices = ", ".join(
        f"{device.total - device.free}/{device.total} {device.variant or device.kind}" for device in status.devices
    )
    room = (
        f"cpu {format_cpu(status.committed.cpu_millicores)}/{format_cpu(status.total.cpu_millicores)}, "
        f"memory {format_size(status.committed.memory_bytes)}/{format_size(status.total.memory_bytes)}"
    )
    runs = [
        Run(f" {one_line(status.name or row.backend_id)} ({one_line(status.kind)})", Tone.DIM),
        Run(f"  {status.workers_healthy}/{status.workers_total} healthy", Tone.GOOD if whole else Tone.WARN),
        Run(f"  {room}{', ' + one_line(devices) if devices else ''}"),
        Run(f"  {counted(status.pending_tasks, 'task')} pending", Tone.WAIT if status.pending_tasks else Tone.DIM),
        Run(f", {status.running_tasks:,} running", Tone.BUSY if status.running_tasks else Tone.DIM),
    ]
    return [*runs, Run(f"  {one_line(status.detail)}", Tone.BAD)] if status.detail else runs


class WorkersScreen(ListScreen):
    """The workers of one cluster."""

    SCOPES: ClassVar[tuple[str, ...]] = ("workers", "list")
    BINDINGS = bindings("workers", "list")
    CSS_PATH = "workers.tcss"
    NOUN = "worker"
    TITLE = "Workers"
    FIELDS = WORKER_FIELDS
    WORDS = WORKER_WORDS
    MARKABLE = ("worker",)

    def __init__(self, session: Session) -> None:
        self.backends: dict[str, BackendRow] = {}
        super().__init__(session)
        self.lines = [Line(classes="backend") for _ in range(MOST_BACKENDS)]

    def make_source(self) -> Source:
        session = self.session
        return Feed(session.client, session.clock, _SELECTORS, self._rows, kinds=("worker",))

    def _rows(self, selector: str, rows: WatchRows) -> Iterable[Row[Any]]:
        if selector == _BACKENDS:
            for backend in rows.backends:
                self.backends[backend.backend_id] = backend
            for name in rows.removed:
                self.backends.pop(name, None)
            return []
        return [Row(worker.worker_id, "worker", worker, natural=worker.worker_id) for worker in rows.workers]

    def make_cells(self) -> Cells:
        return SpecCells(COLUMNS)

    def body(self) -> Iterable[Widget]:
        yield from self.lines
        yield from super().body()

    def filter_values(self, value: Any, now_ms: int) -> Any:
        return worker_row(value)

    def empty_words(self) -> tuple[str, ...]:
        return (
            "No worker has registered.",
            "Capacity (v c) shows whether machines are on their way; a local cluster starts its own: iris cluster start --local.",
        )

    def detail_runs(self, row: Row[Any]) -> list[Run]:
        worker = row.value
        word, tone = health_of(worker)
        runs = [Run(f" {one_line(row.id)}{' (gone)' if row.gone else ''}"), Run(f"  {word}", tone)]
        if worker.health_reason:
            runs.append(Run(f"  {one_line(worker.health_reason)}"))
        where = [attribute_text(worker.attributes[name]) for name in ("region", "zone") if name in worker.attributes]
        runs.append(Run(f"  {one_line(' '.join([*where, worker.address]))}", Tone.DIM))
        return runs

    def flush(self) -> None:
        super().flush()
        known = [self.backends[name] for name in sorted(self.backends)]
        for number, line in enumerate(self.lines):
            line.display = number < len(known)
            if number < len(known):
                more = len(known) - MOST_BACKENDS
                last = (
                    [Run(f"and {more} more, b shows all ", Tone.WARN)]
                    if number == MOST_BACKENDS - 1 and more > 0
                    else []
                )
                line.show(backend_runs(known[number]), last)

    # --- what the keys do --------------------------------------------------------------------------------------------

    def _worker(self) -> str:
        self.table.touch()
        if self.table.row is None:
            raise ModelError("there is no worker to choose here")
        return self.table.row.id

    def do_open(self) -> None:
        self.console.go("worker", self._worker())

    def do_tasks(self) -> None:
        there.show_there(self, [self._worker()])

    def do_machine_log(self) -> None:
        there.machine_log(self, self._worker())

    def do_preempt(self, text: str) -> None:
        names: Sequence[str] = text.split() or self.chosen_ids(("worker",))
        if not names:
            raise ModelError("preempt-worker works on workers", hint="choose one, or name it")
        where = names[0] if len(names) == 1 else counted(len(names), "worker")
        there.preempt_there(self, BY_ID["workers.preempt"], where, names)

    def do_backends(self) -> None:
        from iris_tui.pages import Lines, TextPage
        from screens.backend_words import describe

        async def load() -> Lines:
            return describe([self.backends[name] for name in sorted(self.backends)])

        command = f"iris-core {self.session.selector} rpc controller get-provider-status"
        self.app.push_screen(TextPage(self.session, "Backends", load, command=command))
