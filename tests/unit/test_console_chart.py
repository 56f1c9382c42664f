"""Charts: what is drawn where, in which words, how often, and in how much room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.app import App

from iris_core.live.samples import Samples
from iris_core.live.wording import Tone
from iris_tui.glyphs import ASCII, UNICODE
from iris_tui.widgets import plotting
from iris_tui.widgets.chart import Chart, Unit, bar_runs, nice_top, unit_text

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from iris_tui.glyphs import Glyphs

START = 1_767_322_800_000  # 2026-01-02 03:00:00 UTC
GB = 10**9


class ChartApp(App[None]):
    def __init__(self, *charts: Chart) -> None:
        super().__init__()
        self.charts = charts

    def compose(self) -> ComposeResult:
        yield from self.charts


def memory(glyphs: Glyphs = UNICODE) -> Chart:
    return Chart("memory", Unit.BYTES, glyphs)


def rising(count: int = 61) -> Samples:
    return Samples((START + number * 60_000, number * GB / 10) for number in range(count))


# --- samples ---------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.one_of(st.none(), st.floats(0, 1e6))), max_size=300), st.integers(4, 40)
)
def test_samples_are_bounded_in_order_and_keep_the_peak(steps: list[tuple[int, float | None]], most: int) -> None:
    samples, at = Samples(most=most), 0
    for step, value in steps:
        at += step
        samples.add(at, value)
    points = samples.points
    assert len(points) <= most
    assert [point.at_ms for point in points] == sorted(point.at_ms for point in points)
    values = [value for _, value in steps if value is not None]
    kept = [point.value for point in points if point.value is not None]
    assert max(values, default=None) == max(kept, default=None)


def test_history_goes_before_what_was_watched() -> None:
    samples = Samples([(1000, 5.0)])
    version = samples.version
    samples.put_before([(500, 2.0), (1000, 9.0), (100, 1.0)])
    assert [tuple(point) for point in samples.points] == [(100, 1.0), (500, 2.0), (1000, 5.0)]
    assert samples.version != version


# --- words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        (Unit.BYTES, 1.5 * GB, "1.5GB"),
        (Unit.PERCENT, 40.4, "40%"),
        (Unit.CORES, 3.25, "3.25"),
        (Unit.COUNT, 12_000, "12,000"),
        (Unit.MS, 0.25, "0.25ms"),
        (Unit.MS, 90_000, "1m30s"),
    ],
)
def test_values_have_their_unit(unit: Unit, value: float, text: str) -> None:
    assert unit_text(unit, value) == text


@given(st.sampled_from(list(Unit)), st.floats(0, 1e15))
def test_the_top_of_an_axis_is_never_below_the_highest_value(unit: Unit, highest: float) -> None:
    assert nice_top(unit, highest) >= highest * (1 - 1e-9)


@given(st.floats(0, 3), st.integers(0, 60))
def test_a_bar_fills_its_width_and_shows_what_is_not_nothing(share: float, width: int) -> None:
    full, rest = bar_runs(share, width, UNICODE)
    assert len(full.text) + len(rest.text) == width
    assert bool(full.text) == (share > 0 and width > 0)


# --- the widget ------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_a_chart_has_its_value_its_limit_its_axis_and_its_times() -> None:
    chart = memory()
    async with ChartApp(chart).run_test(size=(60, 12)) as pilot:
        await plotting.load()
        chart.show(rising(), limit=7 * GB, limit_name="request")
        await pilot.pause()
        lines = chart.text.split("\n")
        assert lines[0].startswith(" memory  6GB request 7GB")
        assert lines[1].lstrip().startswith("8GB│")
        assert lines[-2].lstrip().startswith("0B│")
        limit = next(line for line in lines if line.lstrip().startswith("7GB│"))
        assert limit.count("╌") > 30
        assert lines[-1].split() == ["03:00", "03:30", "04:00", "UTC"]
        assert max(cell_len(line) for line in lines) == 60
        dots = [line.rfind("⠁") + line.rfind("⡠") for line in lines[1:-1]]
        assert any(dot > 0 for dot in dots) or "⢀" in chart.text


@pytest.mark.asyncio
async def test_what_is_above_the_limit_is_bad_and_stands_above_the_line() -> None:
    chart = memory()
    async with ChartApp(chart).run_test(size=(60, 12)) as pilot:
        await plotting.load()
        chart.show(rising(), limit=3 * GB)
        await pilot.pause()
        rows = chart._picture()
        assert rows[0][1].tone is Tone.BAD
        bad = [
            number
            for number, row in enumerate(rows)
            if any(run.tone is Tone.BAD and run.text.strip() for run in row[2:])
        ]
        line = next(number for number, row in enumerate(rows) if any("╌" in run.text for run in row))
        assert bad
        assert max(bad) < line


@pytest.mark.asyncio
async def test_a_stretch_of_which_nothing_is_known_is_a_gap() -> None:
    chart = memory()
    async with ChartApp(chart).run_test(size=(60, 12)) as pilot:
        await plotting.load()
        flat = [(START + number * 60_000, 5.0 * GB) for number in range(60)]
        chart.show(Samples([*flat[:20], (flat[20][0], None), *flat[40:]]))
        await pilot.pause()
        line = next(
            line for line in chart.text.split("\n")[1:] if "⠤" in line or "⠒" in line or "⠉" in line or "⣀" in line
        )
        assert " " * 15 in line.partition("│")[2].strip()


@pytest.mark.asyncio
async def test_a_picture_is_made_once_per_change() -> None:
    chart, samples = memory(), rising()
    async with ChartApp(chart).run_test(size=(60, 12)) as pilot:
        await plotting.load()
        chart.show(samples)
        await pilot.pause()
        drawn = chart.drawn
        for _ in range(5):
            chart.show(samples)
            chart.refresh()
            await pilot.pause()
        assert chart.drawn == drawn
        samples.add(START + 4_000_000, 1.0)
        chart.show(samples)
        await pilot.pause()
        assert chart.drawn == drawn + 1


@pytest.mark.asyncio
@pytest.mark.parametrize(("size", "rows"), [((60, 1), 1), ((24, 10), 3), ((60, 3), 3)])
async def test_with_little_room_it_is_a_sparkline(size: tuple[int, int], rows: int) -> None:
    chart = memory()
    async with ChartApp(chart).run_test(size=size) as pilot:
        chart.show(rising(), limit=8 * GB)
        await pilot.pause()
        lines = chart.text.split("\n")
        assert len(lines) == rows
        assert "memory" in lines[0]
        assert "6GB/8GB" in lines[0]
        assert any("▁" in line and "▄" in line for line in lines)


@pytest.mark.asyncio
async def test_in_ascii_nothing_else_is_drawn() -> None:
    charts = memory(ASCII), Chart("failures", Unit.COUNT, ASCII, filled=True)
    async with ChartApp(*charts).run_test(size=(60, 24)) as pilot:
        await plotting.load()
        charts[0].show(rising(), limit=3 * GB)
        charts[1].show(Samples([(START, 1.0), (START + 60_000, 4.0)]))
        await pilot.pause()
        assert "*" in charts[0].text
        assert "#" in charts[1].text
        assert all(chart.text.isascii() for chart in charts)


@pytest.mark.asyncio
async def test_without_plotext_it_says_so_and_draws_a_sparkline(monkeypatch: pytest.MonkeyPatch) -> None:
    chart = memory()
    monkeypatch.setattr(plotting, "_figure", None)
    monkeypatch.setattr(plotting, "_problem", "kernel.so was not built")
    async with ChartApp(chart).run_test(size=(60, 12)) as pilot:
        chart.show(rising())
        await pilot.pause()
        assert "▁" in chart.text
        assert "no larger chart: kernel.so was not built" in chart.text


@pytest.mark.asyncio
async def test_without_samples_it_says_what_is_so() -> None:
    chart = memory()
    async with ChartApp(chart).run_test(size=(60, 12)) as pilot:
        chart.show(Samples(), words="the task has ended")
        await pilot.pause()
        assert chart.text.startswith(" memory  the task has ended")
