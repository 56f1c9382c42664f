"""What the Overview and the Controller screen share: lines that are chosen and lead on, and charts below them.

A screen says what it watches, which lines that makes, and which samples its charts have; the lines keep their ids, so that the cursor
stays with a line while others come and go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual.containers import Container

from iris_core.live.feed import Feed
from iris_core.live.rows import Changes, Row, RowStore
from iris_core.live.watch_keys import each
from iris_core.live.wording import Tone
from iris_core.model.errors import ModelError
from iris_core.model.text import one_line
from iris_tui.drawing import Run, padded
from iris_tui.live_screen import LiveScreen
from iris_tui.registry import SCREENS
from iris_tui.states import live_status
from iris_tui.widgets.chart import Chart, bar_runs
from iris_tui.widgets.line import Line
from iris_tui.widgets.pane import Pane, State
from iris_tui.widgets.virtual_table import VirtualTable

if TYPE_CHECKING:
    from textual import events
    from textual.widget import Widget

    from iris_core.live.columns import ColumnSpec
    from iris_core.live.fleet import Pulse
    from iris_core.live.samples import Samples
    from iris_tui.glyphs import Glyphs
    from iris_tui.session import Session

SCALE_GROUPS: Final = 7
CONTROLLER: Final = 13
FLEET: Final = 14
"""`WatchKind`'s numbers: the generated code is loaded with the connection and not with a screen."""

LABEL: Final = 12
TINY_ROWS: Final = 16
SHORT_ROWS: Final = 34
NARROW: Final = 80
WIDE: Final = 160
CHART_ROWS: Final = 16
"""Rows that charts get at least where they are drawn large, with everything that is no line."""


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
        self.moving: frozenset[str] = frozenset()
        self.glyphs = glyphs
        self.bar = 12
        """Cells of a bar."""

    def whole(self, row: Row[Pulse]) -> list[Run]:
        """Every row is one text."""
        line = row.value
        runs = [Run(text, tone) for text, tone in line.parts]
        if row.section == 0:
            return runs
        bar = [*bar_runs(line.share, self.bar, self.glyphs), Run(" ")] if line.share is not None else []
        return [Run(padded(line.label, LABEL), Tone.DIM), *bar, *runs]

    def cells(self, row: Row[Any], column: str, width: int, now_ms: int) -> list[Run]:
        """There are no columns."""
        return []


class PulseScreen(LiveScreen):
    """Subclasses give `make_feed`, `make_charts`, `lines`, `remember`, `stop_watching` and `samples`."""

    CSS_PATH = "pulse.tcss"
    KIND: ClassVar[str] = "line"
    """What a row is to the menu of actions."""
    TITLE: ClassVar[str] = ""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.store: RowStore[Pulse] = RowStore((self.KIND,))
        self.table: VirtualTable = None  # type: ignore[assignment]
        self.pane: Pane = None  # type: ignore[assignment]
        self.detail = Line(id="pulse-detail")
        self.charts: list[Chart] = []
        self._cells: PulseCells = None  # type: ignore[assignment]
        self._said: dict[str, Pulse] = {}
        self._said_at = -1
        self._watching = False
        self._wanted_cursor = ""

    def make_charts(self, glyphs: Glyphs) -> Iterable[Chart]:
        """The charts, at most six; those from the fifth on are shown where there is much room."""
        raise NotImplementedError

    def lines(self, now_ms: int) -> list[Pulse]:
        """All lines, in their order."""
        raise NotImplementedError

    def remember(self, now_ms: int) -> bool:
        """Take samples of what was heard; False if nothing is known."""
        raise NotImplementedError

    def begin_watching(self) -> None:
        """From now on it is known how things are."""

    def stop_watching(self, now_ms: int) -> None:
        """From now on it is not known any more."""
        raise NotImplementedError

    def samples(self) -> Sequence[Samples]:
        """Those of each chart."""
        raise NotImplementedError

    def empty_words(self) -> tuple[str, ...]:
        """What is said where nothing is sent."""
        raise NotImplementedError

    def partial_words(self) -> str:
        """What is missing of what is shown, "" if nothing is."""
        return ""

    # --- building ----------------------------------------------------------------------------------------------------

    def title_text(self) -> str:
        return self.TITLE.lower()

    def body(self) -> Iterable[Widget]:
        glyphs = self.console.glyphs
        self._cells = PulseCells(glyphs)
        self.table = VirtualTable(self.store, self._cells, glyphs, id="pulse")
        self.charts = list(self.make_charts(glyphs))
        for chart in self.charts[4:]:
            chart.add_class("wide")
        self.pane = Pane(self.table, Container(*self.charts, id="charts"))
        yield self.pane
        yield self.detail

    def on_mount(self) -> None:
        self.table.take_focus()

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.height < SHORT_ROWS or event.size.width < NARROW, "-short")
        self.set_class(event.size.height < TINY_ROWS, "-tiny")
        self.set_class(event.size.width >= WIDE and event.size.height >= SHORT_ROWS, "-wide")
        self._cells.bar = 12 if event.size.width < 100 else 24
        self._make_room()
        self.table.relayout()

    def _make_room(self) -> None:
        """Where charts are large, the table takes what its lines need."""
        room = max(self.size.height - CHART_ROWS, 6)
        self.table.styles.height = None if self.has_class("-short") else min(max(len(self._said), 1), room)

    # --- live --------------------------------------------------------------------------------------------------------

    def shows_content(self) -> bool:
        return bool(self._said) or self.feed.loaded or self.pane.status.state is State.ERROR

    def flush(self) -> None:
        changes = self.feed.take_changes()
        now_ms = self.session.clock.now_ms()
        if changes or now_ms // 1000 != self._said_at:
            self._said_at = now_ms // 1000
            self._say(now_ms)
        self._remember(now_ms)
        self._show()

    def on_screen_suspend(self) -> None:
        if self not in self.app.screen_stack:
            self._stop()

    def _stop(self) -> None:
        if self._watching:
            self._watching = False
            self.stop_watching(self.session.clock.now_ms())

    def _remember(self, now_ms: int) -> None:
        if not self.link.fresh or not self.remember(now_ms):
            self._stop()
        elif not self._watching:
            self._watching = True
            self.begin_watching()

    def _say(self, now_ms: int) -> None:
        """Put the lines that differ into the store, in their order."""
        lines = self.lines(now_ms)
        known, self._said = self._said, {line.id: line for line in lines}
        moved = list(known) != list(self._said)
        sentences = next((place for place, line in enumerate(lines) if line.label), len(lines))
        upserts = [
            Row(line.id, self.KIND, line, natural=place, section=int(place >= sentences))
            for place, line in enumerate(lines)
            if moved or known[line.id] != line
        ]
        changes = self.store.apply(Changes(upserts, [name for name in known if name not in self._said]))
        if moved:
            # A sentence that is not so any more goes, also from under the cursor.
            self.store.hold("")
            self.store.reorder(force=True)
            self.table.reordered()
            self._make_room()
        self.table.flush(changes)

    def _show(self) -> None:
        status = live_status(
            self.session,
            self.link,
            what=self.TITLE.lower(),
            loaded=self.feed.loaded,
            some=len(self.feed.store.rows),
            empty=() if self._said else self.empty_words(),
            partial=self.partial_words(),
        )
        self.pane.set_status(status)
        self.pane.update_title([Run(self.TITLE)])
        for chart, series in zip(self.charts, self.samples(), strict=True):
            if chart.display:
                chart.show(series)
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
