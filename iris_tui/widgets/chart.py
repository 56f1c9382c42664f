"""Charts: a number over time with its limit, drawn by the line API; a sparkline where there is little room; bars of a share.

A chart is drawn anew when its samples, its size or its theme changed and at no other time. Names are one line and literal.
What a colour says, a word or a place says too: a value above its limit stands above the dashed line, and the title names both.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from rich.cells import cell_len

from iris_core.live.samples import Samples
from iris_core.live.wording import Tone
from iris_core.model.resources import format_duration, format_size
from iris_core.model.text import one_line
from iris_tui.drawing import Run, cut, cut_runs, padded, strip_of, width_of
from iris_tui.glyphs import ASCII
from iris_tui.widgets import plotting
from iris_tui.widgets.line import Painted

if TYPE_CHECKING:
    from textual.strip import Strip

    from iris_tui.glyphs import Glyphs

LEAST_ROWS: Final = 5
"""Below this height, or LEAST_CELLS wide, a sparkline is drawn."""
LEAST_CELLS: Final = 30
LEAST_SPAN_MS: Final = 60_000
_MIDDLE_ROWS: Final = 7
_STEPS: Final = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
DAY_MS: Final = 86_400_000


class Unit(StrEnum):
    """What a chart counts: things, bytes, a percentage (0 to 100 and beyond), cores, or milliseconds."""

    COUNT = "count"
    BYTES = "bytes"
    PERCENT = "percent"
    CORES = "cores"
    MS = "ms"


def unit_text(unit: Unit, value: float) -> str:
    """A value as it is written beside an axis: `1.5GB`, `40%`, `3.2`, `1,200`, `850ms`."""
    if unit is Unit.BYTES:
        return format_size(int(value))
    if unit is Unit.PERCENT:
        return f"{value:.0f}%"
    if unit is Unit.MS:
        return f"{value:.3g}ms" if value < 1000 else format_duration(int(value))
    if value == int(value) or value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def nice_top(unit: Unit, highest: float) -> float:
    """The value at the upper edge: round, and not below `highest`."""
    if unit is Unit.PERCENT and highest <= 100:
        return 100.0
    if highest < 1e-9:
        return 1.0
    scale = 10.0 ** math.floor(math.log10(highest))
    top = next(scale * step for step in _STEPS if scale * step >= highest * (1 - 1e-9))
    return max(math.ceil(top), 1.0) if unit is Unit.COUNT else top


def bar_runs(share: float, width: int, glyphs: Glyphs, tone: Tone = Tone.BUSY) -> list[Run]:
    """A bar that is full up to `share` (0 to 1; beyond it is full); something that is not nothing gets a cell."""
    full = min(max(round(share * width), 1 if share > 0 else 0), width)
    return [Run(glyphs.done * full, tone), Run(glyphs.pending * (width - full), Tone.DIM)]


class Chart(Painted):
    """One number over time. Call `show` with its samples as often as you like.

    Args:
        title: What it is, in a word or two.
        unit: What its values count. Cores are cores, not millicores.
        glyphs: What the terminal can show.
        filled: Columns instead of a line, for counts per stretch of time.
    """

    DEFAULT_CSS = """
    Chart { height: 1fr; min-height: 1; width: 1fr; }
    """

    def __init__(self, title: str, unit: Unit, glyphs: Glyphs, *, filled: bool = False, id: str | None = None) -> None:
        super().__init__(id=id)
        self.heading = one_line(title)
        self.unit = unit
        self.local = False
        """Whether times are those of this machine's zone, else UTC."""
        self.drawn = 0
        """Pictures made so far: for tests of what a flush costs."""
        self._ascii = glyphs is ASCII or glyphs.rule == "-"
        self._filled = filled
        self._samples = Samples()
        self._limit: float | None = None
        self._limit_name = ""
        self._words = ""
        self._shown: tuple[Any, ...] = ()
        self._rows: list[list[Run]] = []
        self._rows_for: tuple[Any, ...] = ()

    def show(self, samples: Samples, *, limit: float | None = None, limit_name: str = "limit", words: str = "") -> None:
        """Show these samples; nothing is drawn if they are the same.

        Args:
            limit: Where the dashed line is: what was asked for, or what there is.
            limit_name: What that is called in the title: "request".
            words: What is said while there is no sample.
        """
        shown = (id(samples), samples.version, limit, limit_name, words)
        if shown != self._shown:
            self._shown = shown
            self._samples, self._limit, self._limit_name, self._words = samples, limit, limit_name, words
            self.refresh()

    def on_mount(self) -> None:
        if not plotting.ready():
            self.run_worker(self._load(), name="load charts", group="plotting", exit_on_error=False)

    async def _load(self) -> None:
        await plotting.load()
        self.refresh()

    @property
    def text(self) -> str:
        """What is shown, line by line, for tests and plain output."""
        return "\n".join("".join(run.text for run in row) for row in self._picture())

    def render_line(self, y: int) -> Strip:
        rows = self._picture()
        return strip_of(rows[y] if y < len(rows) else [], self.size.width, self.paint)

    # --- the picture -------------------------------------------------------------------------------------------------

    def _picture(self) -> list[list[Run]]:
        width, height = self.size.width, self.size.height
        wanted = (self._shown, width, height, plotting.ready(), plotting.problem(), self.local)
        if wanted != self._rows_for:
            self._rows_for = wanted
            self.drawn += 1
            self._rows = self._draw(width, height) if width > 0 and height > 0 else []
        return self._rows

    def _draw(self, width: int, height: int) -> list[list[Run]]:
        samples = self._samples
        last = samples.last
        if last is None:
            return [
                self._beside(
                    [Run(f" {self.heading}"), Run(f"  {self._words or 'nothing measured yet'}", Tone.DIM)], [], width
                )
            ]
        values = [sample.value for sample in samples.points if sample.value is not None]
        top = nice_top(self.unit, max(*values, self._limit or 0.0, 0.0))
        small = height < LEAST_ROWS or width < LEAST_CELLS
        if small or not plotting.ready():
            return self._small(width, height, top, last.value or 0.0)
        return [self._title(last.value or 0.0, max(values), width), *self._plot(width, height - 1, top)]

    def _title(self, value: float, highest: float, width: int) -> list[Run]:
        now = unit_text(self.unit, value)
        left = [Run(f" {self.heading}  "), Run(now, self._tone(value))]
        if self._limit is not None:
            left.append(Run(f" {self._limit_name} {unit_text(self.unit, self._limit)}", Tone.DIM))
        most = unit_text(self.unit, highest)
        right = [Run(f"most {most} ", Tone.DIM)] if most != now else []
        return self._beside(left, right, width)

    def _tone(self, value: float) -> Tone:
        return Tone.BAD if self._limit is not None and value > self._limit else Tone.BUSY

    def _beside(self, left: list[Run], right: list[Run], width: int) -> list[Run]:
        room = width - width_of(right)
        if room <= width_of(left):
            return cut_runs(left, width)
        return [*left, Run(" " * (room - width_of(left))), *right]

    def _small(self, width: int, height: int, top: float, value: float) -> list[list[Run]]:
        """Name, sparkline and the newest value, in one line or two."""
        now = unit_text(self.unit, value)
        if self._limit is not None:
            now += f"/{unit_text(self.unit, self._limit)}"
        why = plotting.problem()
        if height == 1:
            name = cut(f" {self.heading} ", max(width // 3, 8))
            spark = max(width - cell_len(name) - cell_len(now) - 2, 0)
            return [[Run(name), *self._spark(spark, top), Run(f" {now} ", self._tone(value))]]
        title = self._beside([Run(f" {self.heading}  "), Run(now, self._tone(value))], [], width)
        rows = [title, [Run(" "), *self._spark(max(width - 2, 0), top)]]
        if height > 2:
            rows.append(self._times(width, 1))
        if why and height > 3:
            rows.append([Run(cut(f" no larger chart: {why}", width), Tone.DIM)])
        return rows

    def _spark(self, width: int, top: float) -> list[Run]:
        return [Run(plotting.sparkline(self._samples.points, width, top=top, ascii_only=self._ascii), Tone.BUSY)]

    def _plot(self, width: int, height: int, top: float) -> list[list[Run]]:
        rows = height - 1  # the last one has the times
        labels = {0: unit_text(self.unit, top), rows - 1: unit_text(self.unit, 0)}
        if rows >= _MIDDLE_ROWS and rows % 2:
            labels[rows // 2] = unit_text(self.unit, top / 2)
        limit_row = -1
        if self._limit is not None:
            limit_row = round((1 - self._limit / top) * (rows - 1))
            labels[limit_row] = unit_text(self.unit, self._limit)
        side = max(cell_len(label) for label in labels.values()) + 1
        room = width - side - 2
        first, last = self._span()
        drawn = plotting.canvas(
            self._samples.points, width=room, height=rows, x=(first, last), y=(0.0, top), ascii_only=self._ascii, filled=self._filled
        )  # fmt: skip
        bar, dash = ("|", "-") if self._ascii else ("│", "╌")
        picture = []
        for number, row in enumerate(drawn):
            tone = Tone.BUSY
            if number == limit_row:
                row = row.replace(" ", dash)
                tone = Tone.WARN
            elif number < limit_row:
                tone = Tone.BAD
            label = Run(
                padded(labels.get(number, ""), side, right=True), Tone.WARN if number == limit_row else Tone.DIM
            )
            picture.append([label, Run(bar, Tone.DIM), Run(row, tone)])
        picture.append(self._times(width, side + 1))
        return picture

    def _span(self) -> tuple[float, float]:
        """The times at both edges."""
        points = self._samples.points
        first, last = points[0].at_ms, points[-1].at_ms
        return float(min(first, last - LEAST_SPAN_MS)), float(last)

    def _times(self, width: int, indent: int) -> list[Run]:
        """The first and the last time, and the middle one if there is room."""
        first, last = self._span()
        form = "%m-%d %H:%M" if last - first > DAY_MS else "%H:%M" if last - first > LEAST_SPAN_MS * 10 else "%H:%M:%S"
        zone = None if self.local else UTC

        def written(at_ms: float) -> str:
            return datetime.fromtimestamp(at_ms / 1000, zone).strftime(form)

        start, middle, end = written(first), written((first + last) / 2), written(last) + ("" if self.local else " UTC")
        room = width - indent - 1
        if room < cell_len(end) + cell_len(start) + 2:
            return [Run(" " * indent), Run(cut(end, max(room, 0)), Tone.DIM)]
        if room < cell_len(start) + cell_len(middle) + cell_len(end) + 8:
            middle = ""
        text = start + " " * ((room - len(middle)) // 2 - len(start)) + middle
        return [Run(" " * indent), Run(text + " " * (room - len(text) - len(end)) + end, Tone.DIM)]
