"""What a second that passes costs a table, and that it leaves nothing behind: only the columns that say so move with time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from iris_core.live.rows import Changes, Row, RowStore
from iris_tui.registry import SCREENS
from iris_tui.tabbed import Tabbed
from iris_tui.widgets.pane import State
from iris_tui.widgets.virtual_table import VirtualTable
from tests.unit.console_world import SUBJECTS, console

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.unit.console_world import Rig

pytestmark = pytest.mark.asyncio

LATER_MS: Final = (1_000, 70_000, 4 * 3_600_000, 9 * 86_400_000)
"""Long enough after each other for every unit of an age."""
WIDTH: Final = 60


async def tables(rig: Rig) -> AsyncIterator[tuple[str, VirtualTable]]:
    """Every table of every screen with the rows of the sample, each while it is shown."""
    for name in SCREENS:
        screen = await rig.go(name, SUBJECTS.get(name, ""))
        if not isinstance(screen, Tabbed):
            for table in screen.query(VirtualTable):
                yield name, table
            continue
        for part, tab in enumerate(screen.tabs):
            if isinstance(tab.focus, VirtualTable):
                screen.show_tab(part)
                await rig.until(lambda: tab.pane.status.state is not State.LOADING)  # noqa: B023
                yield name, tab.focus


def lines(table: VirtualTable) -> list[Any]:
    """What the table shows, with its styles."""
    return [[(part.text, part.style) for part in table.render_line(y)] for y in range(table.size.height)]


async def test_what_moves_with_time_says_so_and_a_tick_shows_what_a_drawing_anew_does() -> None:
    moved: set[tuple[str, str]] = set()
    async with console(size=(200, 40)) as rig:
        async for name, table in tables(rig):
            view, now = table.view, rig.clock.now_ms()
            for row in table.store.rows.values():
                if view.whole(row) is not None:
                    continue
                for column in view.columns:
                    cells = view.cells(row, column.id, WIDTH, now)
                    if any(view.cells(row, column.id, WIDTH, now + later) != cells for later in LATER_MS):
                        assert column.id in view.moving, f"{name}: the column {column.id} moves and does not say so"
                        moved.add((name, column.id))
            lines(table)
            for later in LATER_MS:
                table.tick(now + later)
                shown = lines(table)
                table.relayout()
                assert shown == lines(table), f"{name} {later} ms later"
    assert moved >= {
        ("jobs", "age"), ("jobs", "time"), ("tasks", "age"), ("task", "started"), ("scheduler", "age"),
        ("capacity", "state"), ("capacity", "age"), ("endpoints", "age"), ("audit", "age"), ("profiles", "captured_at"),
        ("checkpoints", "age"),
    }  # fmt: skip


async def test_a_tick_asks_for_the_cells_that_move_and_for_no_others() -> None:
    async with console() as rig:
        screen = await rig.go("jobs", "")
        table, asked = screen.table, []
        cells = table.view.cells

        def counting(row: Row[Any], column: str, width: int, now_ms: int) -> Any:
            asked.append(column)
            return cells(row, column, width, now_ms)

        lines(table)
        table.view.cells = counting
        table.tick(table.now_ms + 1_000)
        assert set(asked) == {"age", "time"}
        assert len(asked) == 2 * min(len(table.store.order), table.size.height)


async def test_a_row_that_changed_before_a_tick_is_shown_as_it_is() -> None:
    """The tick comes before the flush that would redraw it."""
    async with console() as rig:
        screen = await rig.go("jobs", "")
        table, store = screen.table, screen.store
        lines(table)
        row = store.get(store.order[0])
        value = type(row.value)()
        value.CopyFrom(row.value)
        value.failure_count, value.error = 4321, "changed meanwhile"
        assert isinstance(store, RowStore)
        store.apply(Changes([Row(row.id, row.kind, value, row.parent, row.natural, row.section, row.expandable)]))
        table.tick(table.now_ms + 1_000)
        first = table.render_line(0).text
        assert "4321" in first and "changed meanwhile" in first
