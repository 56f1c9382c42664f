"""What lays the whole screen out anew, which draws most of it: counted, because it is what the console spends its time on."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from iris_tui.widgets.log_lines import LogLines
from tests.unit.test_console_app import Rig, console
from tests.unit.test_console_log_pane import JOB, RANK0, logs_screen, writing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.screen import Screen
    from textual.strip import Strip


@contextmanager
def layouts(rig: Rig) -> Iterator[list[str]]:
    """The layouts of the screen that is shown, as they happen."""
    screen = rig.app.screen
    seen: list[str] = []

    def laid_out(of: Screen[object]) -> None:
        seen.append(type(of).__name__)

    screen.screen_layout_refresh_signal.subscribe(screen, laid_out, immediate=True)
    try:
        yield seen
    finally:
        screen.screen_layout_refresh_signal.unsubscribe(screen)


@pytest.mark.asyncio
async def test_a_log_that_grows_moves_nothing_but_its_scrollbar() -> None:
    async with console(writing(200)) as rig:
        pane = await logs_screen(rig, JOB)
        await rig.until(lambda: "step 199" in rig.screen_text() and pane.view.pipeline.account.known)
        # What the opening asked for is laid out before another line is drawn.
        rig.client.log(RANK0, "one more")
        await rig.until(lambda: "one more" in rig.screen_text())
        with layouts(rig) as seen:
            for number in range(5):
                rig.client.log(RANK0, f"more {number}")
                await rig.until(lambda: f"more {number}" in rig.screen_text())  # noqa: B023
            assert seen == []
        assert pane.lines.vertical_scrollbar.window_virtual_size == 206


@pytest.mark.asyncio
async def test_the_scrollbar_goes_where_all_lines_fit_and_comes_again() -> None:
    async with console(writing(200)) as rig:
        pane = await logs_screen(rig, JOB)
        await rig.until(lambda: pane.lines.show_vertical_scrollbar)
        rig.app.run_command("grep step 7$")
        await rig.until(lambda: pane.view.count == 1 and not pane.lines.show_vertical_scrollbar)
        assert not pane.lines.vertical_scrollbar.display
        rig.app.run_command("grep step .")
        await rig.until(lambda: pane.view.count == 200 and pane.lines.show_vertical_scrollbar)
        assert pane.lines.vertical_scrollbar.display


@pytest.mark.asyncio
async def test_the_end_of_a_log_is_in_the_first_picture_that_has_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[int]] = []
    render = LogLines.render_line

    def looked(lines: LogLines, y: int) -> Strip:
        strip = render(lines, y)
        if lines.view.loaded and not y:
            seen.append([row.number for row in lines.rows()])
        return strip

    monkeypatch.setattr(LogLines, "render_line", looked)
    async with console(writing(200)) as rig:
        await rig.row(JOB)
        await rig.keys("l")
        await rig.until(lambda: "step 199" in rig.screen_text())
    assert seen and all(rows and rows[-1] == 199 for rows in seen)


@pytest.mark.asyncio
async def test_typing_lays_nothing_out_anew_while_the_text_is_right() -> None:
    async with console(writing(200)) as rig:
        pane = await logs_screen(rig, JOB)
        await rig.until(lambda: pane.view.pipeline.account.known)
        await rig.keys("slash")
        # What the opening asked for is laid out before the next character is drawn.
        await rig.keys("s")
        await rig.until(lambda: "/ find s" in rig.screen_text())
        with layouts(rig) as seen:
            await rig.keys(*"tep")
            await rig.until(lambda: "/ find step" in rig.screen_text())
            assert seen == []
