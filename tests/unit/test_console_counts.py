"""What a flush of the console costs with a hundred thousand rows, counted and not timed: rows touched, and lines drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from iris_core.live.rows import Changes, Row, RowStore
from iris_core.wire.gen.iris.v1 import common_pb2 as common
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from iris_tui.app import IrisApp
from iris_tui.glyphs import UNICODE
from iris_tui.session import Session
from providers.fake.clock import FakeClock
from providers.fake.samples import sample
from screens.jobs import JobsScreen
from tests.unit.console_waits import until

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.strip import Strip

    from iris_core.contracts import AsyncClient
    from iris_tui.widgets.virtual_table import VirtualTable

ROWS = 100_000
CHANGED = 1_000
A_ROW = 6
"""How often one row may be looked at for one change to it."""
PAGE = 2_000


class Counted(dict[str, Any]):
    """Rows by id that count how often one of them is looked at."""

    touched = 0

    def __getitem__(self, key: str) -> Any:
        self.touched += 1
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.touched += 1
        return super().get(key, default)

    def __iter__(self) -> Any:
        self.touched += len(self)
        return super().__iter__()

    def values(self) -> Any:
        self.touched += len(self)
        return super().values()

    def items(self) -> Any:
        self.touched += len(self)
        return super().items()


class Lines:
    """The lines that a table is asked for from now on."""

    def __init__(self, table: VirtualTable) -> None:
        self.asked: list[int] = []
        render = table.render_line

        def counting(y: int) -> Strip:
            self.asked.append(y)
            return render(y)

        table.render_line = counting  # type: ignore[method-assign]


def name(number: int) -> str:
    return f"/many/job-{number:06}"


def rows(numbers: Iterable[int], failures: int = 0) -> pb.WatchRows:
    found = pb.WatchRows(selector_id="jobs")
    for number in numbers:
        # Far in the future, so that they are on top and their ages stand still.
        at_ms = 1 << 42
        found.jobs.add(
            job_id=name(number),
            name=name(number).rpartition("/")[2],
            state=common.JOB_STATE_RUNNING,
            submitted_at_ms=at_ms - number,
            started_at_ms=at_ms,
            failure_count=failures,
            incarnation=at_ms,
        )
    return found


def text(app: IrisApp) -> str:
    """What is on the screen."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


@pytest.mark.asyncio
async def test_a_flush_touches_the_rows_that_changed_and_draws_the_lines_that_show_them() -> None:
    clock = FakeClock()
    client = sample(clock)

    async def connect() -> AsyncClient:
        return client

    app = IrisApp(Session("lab", connect, clock), glyphs=UNICODE)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(app, pilot, lambda: app.console_screen is not None and app.session.role)
        screen = app.console_screen
        assert isinstance(screen, JobsScreen)
        tree, table, store = screen.jobs, screen.table, screen.store
        await until(app, pilot, lambda: tree.loaded)
        for first in range(0, ROWS, PAGE):
            tree.apply("jobs", rows(range(first, first + PAGE)))
        clock.advance(2)
        await until(app, pilot, lambda: len(store.order) > ROWS and not store.dirty)
        await until(app, pilot, lambda: name(0) in text(app))
        table.tick(clock.now_ms())
        await pilot.pause()
        top = store.order[: table.size.height]
        assert top[:30] == [name(number) for number in range(30)]

        counted = store.rows = Counted(store.rows)
        lines = Lines(table)
        drawn = table.drawn
        screen.flush_now()
        await pilot.pause()
        assert (table.drawn - drawn, lines.asked) == (0, []), "nothing has changed"
        assert counted.touched < 10 * table.size.height

        shown = [3, 4, 11, 20]
        hidden = range(ROWS - CHANGED + len(shown), ROWS)
        counted.touched = 0
        tree.apply("jobs", rows([*shown, *hidden], failures=7))
        screen.flush_now()
        await pilot.pause()
        assert table.drawn - drawn == len(shown)
        assert sorted(lines.asked) == shown
        assert counted.touched <= A_ROW * CHANGED + 10 * table.size.height
        at = next(line for line in text(app).splitlines() if name(3) in line)
        assert " 7 " in at, "and they show it"

        lines.asked.clear()
        drawn = table.drawn
        await pilot.press("down")
        await pilot.pause()
        assert table.drawn - drawn == 2 and set(lines.asked) == {0, 1}, "the line that the cursor left, and its new one"


def test_a_batch_looks_at_no_other_rows_with_a_filter_and_a_sort_either() -> None:
    store: RowStore[int] = RowStore(("row",))
    store.apply(Changes([Row(str(number), "row", number) for number in range(ROWS)]))
    store.set_filter(lambda row: row.value % 2 == 0)
    store.set_sort(lambda row: -row.value)
    store.reorder()
    counted = store.rows = Counted(store.rows)
    changed = store.apply(Changes([Row(str(number), "row", number + 2) for number in range(CHANGED)], ["5", "7"]))
    store.visible_changes(changed.changed, 0, 50)
    assert counted.touched <= A_ROW * CHANGED
    assert store.dirty, "which the next order shows"
