"""Overview: the pulse of the cluster on one screen, what is wrong said first, charts below it, every line a way to more.

What the lines say is `iris_core.live.fleet`; this file puts them where they can be chosen, and draws what they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual.containers import Container

from iris_core.contracts import IrisError
from iris_core.live.feed import Feed
from iris_core.live.fleet import Pulse, pulse
from iris_core.live.fleet_history import MOST_ROWS, FleetHistory
from iris_core.live.rows import Changes, Row, RowStore
from iris_core.live.watch import Selector
from iris_core.live.watch_keys import each
from iris_core.live.wording import Tone
from iris_core.model.errors import ModelError
from iris_core.model.text import one_line
from iris_tui.drawing import Run, padded
from iris_tui.keymap import bindings
from iris_tui.live_screen import LiveScreen
from iris_tui.registry import SCREENS
from iris_tui.states import live_status
from iris_tui.widgets.chart import Chart, Unit, bar_runs
from iris_tui.widgets.line import Line
from iris_tui.widgets.pane import Pane
from iris_tui.widgets.virtual_table import VirtualTable

if TYPE_CHECKING:
    from textual import events
    from textual.widget import Widget

    from iris_core.live.columns import ColumnSpec
    from iris_tui.glyphs import Glyphs
    from iris_tui.session import Session

SCALE_GROUPS: Final = 7
CONTROLLER: Final = 13
FLEET: Final = 14
"""`WatchKind`'s numbers: the generated code is loaded with the connection and not with a screen."""

LABEL: Final = 12
SHORT_ROWS: Final = 34
NARROW: Final = 80
WIDE: Final = 160
HISTORY_S: Final = 20.0


def rows_of(selector: str, rows: Any) -> Iterable[Row[Any]]:
    """The rows of a message: the fleet and the controller under their own names, groups under `group/<name>`."""
    for field, name, value in each(rows):
        yield Row(f"group/{name}" if selector == "groups" else name, field, value)


class PulseFeed(Feed[Any]):
    """Groups have names of people's choice: they are kept apart from the two rows that are always there."""

    def row_id(self, selector: str, name: str) -> str:
        return f"group/{name}" if selector == "groups" else name


class PulseCells:
    """Lines as rows of a table: label, bar, text; troubles are whole sentences."""

    def __init__(self, glyphs: Glyphs) -> None:
        self.columns: Sequence[ColumnSpec[Any]] = ()
        self.glyphs = glyphs
        self.bar = 12
        """Cells of a bar."""

    def whole(self, row: Row[Pulse]) -> list[Run]:
        """Every row is one text."""
        line = row.value
        runs = [Run(text, tone) for text, tone in line.parts]
        if row.kind == "trouble":
            return runs
        bar = [*bar_runs(line.share, self.bar, self.glyphs), Run(" ")] if line.share is not None else []
        return [Run(padded(line.label, LABEL), Tone.DIM), *bar, *runs]

    def cells(self, row: Row[Any], column: str, width: int, now_ms: int) -> list[Run]:
        """There are no columns."""
        return []


class OverviewScreen(LiveScreen):
    """One cluster's pulse."""

    SCOPES: ClassVar[tuple[str, ...]] = ("overview",)
    BINDINGS = bindings("overview")
    CSS_PATH = "overview.tcss"

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.history = FleetHistory()
        self.store: RowStore[Pulse] = RowStore(("trouble", "line"))
        self.table: VirtualTable = None  # type: ignore[assignment]
        self.pane: Pane = None  # type: ignore[assignment]
        self.detail = Line(id="overview-detail")
        self.charts: list[Chart] = []
        self._cells: PulseCells = None  # type: ignore[assignment]
        self._lines: dict[str, Pulse] = {}
        self._said_at = -1
        self._watching = False
        self._asked_at = -1e9
        self._asking = False
        self._wanted_cursor = ""

    def make_feed(self) -> Feed[Any]:
        session = self.session
        selectors = [Selector("fleet", FLEET), Selector("controller", CONTROLLER), Selector("groups", SCALE_GROUPS)]
        return PulseFeed(
            session.client, session.clock, selectors, rows_of, kinds=("fleet", "controller", "scale_groups")
        )

    def title_text(self) -> str:
        return "overview"

    # --- building ----------------------------------------------------------------------------------------------------

    def body(self) -> Iterable[Widget]:
        glyphs = self.console.glyphs
        self._cells = PulseCells(glyphs)
        self.table = VirtualTable(self.store, self._cells, glyphs, id="pulse")
        self.charts = [
            Chart("waiting tasks", Unit.COUNT, glyphs),
            Chart("oldest wait", Unit.MS, glyphs),
            Chart("running tasks", Unit.COUNT, glyphs),
            Chart("failures a minute", Unit.COUNT, glyphs, filled=True),
            Chart("cores held", Unit.PERCENT, glyphs),
            Chart("accelerators held", Unit.PERCENT, glyphs),
        ]
        for chart in self.charts[4:]:
            chart.add_class("wide")
        self.pane = Pane(self.table, Container(*self.charts, id="charts"), id="overview-pane")
        yield self.pane
        yield self.detail

    def on_mount(self) -> None:
        super().on_mount()
        self.table.take_focus()

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.height < SHORT_ROWS or event.size.width < NARROW, "-short")
        self.set_class(event.size.width >= WIDE and event.size.height >= SHORT_ROWS, "-wide")
        self._cells.bar = 12 if event.size.width < 100 else 24
        self._said_at = -1
        self.table.relayout()

    # --- live --------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        changes = self.feed.take_changes()
        now_ms = self.session.clock.now_ms()
        if changes or now_ms // 1000 != self._said_at:
            self._said_at = now_ms // 1000
            self._say(now_ms)
        self._remember(now_ms)
        self._show()

    def on_screen_suspend(self) -> None:
        super().on_screen_suspend()
        if self not in self.app.screen_stack:
            self._stop_watching()

    def _stop_watching(self) -> None:
        if self._watching:
            self._watching = False
            self.history.gap(self.session.clock.now_ms())

    def _say(self, now_ms: int) -> None:
        """Put the lines that differ into the store, in their order."""
        groups = [row.value for row in self.feed.store.rows.values() if row.kind == "scale_groups" and not row.gone]
        lines = pulse(self.value("fleet"), self.value("controller"), groups, now_ms)
        known, self._lines = self._lines, {line.id: line for line in lines}
        upserts = [
            Row(line.id, "line" if line.label or line.id.startswith("pending/") else "trouble", line, natural=place)
            for place, line in enumerate(lines)
            if known.get(line.id) != line or list(known) != list(self._lines)
        ]
        changes = self.store.apply(Changes(upserts, [name for name in known if name not in self._lines]))
        if changes.added or changes.removed or list(known) != list(self._lines):
            self.store.reorder(force=True)
            self.table.reordered()
            if not self.has_class("-short"):
                self.table.styles.height = min(len(lines), max(self.size.height - 16, 6))
            else:
                self.table.styles.height = None
        self.table.flush(changes)

    def _remember(self, now_ms: int) -> None:
        fleet = self.value("fleet")
        if fleet is None or not self.link.fresh:
            self._stop_watching()
            return
        if not self._watching:
            self._watching = True
            self._ask_history()
        self.history.take(fleet, now_ms)

    def _ask_history(self) -> None:
        now = self.session.clock.monotonic()
        if not self._asking and now - self._asked_at >= HISTORY_S:
            self._asked_at = now
            self._asking = True
            self.run_worker(self._load_history(), name="history of the cluster", group="history", exit_on_error=False)

    async def _load_history(self) -> None:
        """What the log store has of the time before; without it the charts begin now, which is no fault."""
        from iris_core.wire.gen.iris.v1 import stats_pb2 as pb

        request = pb.QueryRequest(sql=self.history.sql(self.session.clock.now_ms()), max_rows=MOST_ROWS)
        try:
            self.history.fill(await self.session.client.call("StatsService/Query", request, pb.QueryResponse))
        except (IrisError, ValueError):
            return
        finally:
            self._asking = False

    def _show(self) -> None:
        loaded = self.feed.loaded
        known = self.value("fleet") is not None or self.value("controller") is not None
        empty = (
            ()
            if known
            else (
                "The controller sends no pulse.",
                "One of an older release cannot; :jobs and :workers show what it has.",
            )
        )
        self.pane.set_status(
            live_status(
                self.session, self.link, what="pulse", loaded=loaded, some=len(self.feed.store.rows), empty=empty
            )
        )
        self.pane.update_title([Run("Overview")])
        history = self.history
        samples = (
            history.waiting,
            history.wait_ms,
            history.running,
            history.failures,
            history.cpu_pct,
            history.devices_pct,
        )
        for chart, series in zip(self.charts, samples, strict=True):
            if chart.display:
                chart.show(series, words="nothing measured yet")
        if self._wanted_cursor and self.table.move_to(self._wanted_cursor):
            self._wanted_cursor = ""
        row = self.table.row
        self.detail.show(self._way(row.value) if row is not None else [])

    def _way(self, line: Pulse) -> list[Run]:
        """Where Enter leads."""
        if line.screen not in SCREENS:
            return []
        said = f" Enter shows {SCREENS[line.screen].title.lower()} {one_line(line.argument)}".rstrip()
        return [Run(said, Tone.DIM)]

    # --- doing -------------------------------------------------------------------------------------------------------

    def do_open(self) -> None:
        self.table.touch()
        row = self.table.row
        if row is None or row.value.screen not in SCREENS:
            return
        line = row.value
        try:
            self.console.go(line.screen, line.argument)
        except ModelError:
            # That screen does not know the filter: the whole list is still nearer than nothing.
            self.console.go(line.screen)

    def do_times(self) -> None:
        for chart in self.charts:
            chart.local = not chart.local
            chart.refresh()

    def do_close(self) -> None:
        self.console.go_back()

    # --- how it was left ---------------------------------------------------------------------------------------------

    def view_state(self) -> dict[str, Any]:
        return {"cursor": self.table.cursor_id} if self.table.touched and self.table.cursor_id else {}

    def restore(self, state: dict[str, Any]) -> None:
        self._wanted_cursor = str(state.get("cursor", ""))
