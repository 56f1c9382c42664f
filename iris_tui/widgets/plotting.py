"""The one place that knows plotext: it turns numbers into rows of characters, and nothing else.

plotext is slow to load and keeps its figure in global state that two threads must not share. So it is loaded in a thread once a
chart is to be drawn, its figure is used under a lock and cleared before each picture, and only its canvas is taken: axes, labels
and colours are ours, so that they have our units, our themes, and can be told from what a workload wrote. A machine on which it
cannot be loaded shows sparklines, and says why.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, Final

from iris_core.model.text import one_line
from iris_tui.threads import in_thread

Points = Sequence[tuple[float, float | None]]
"""x and y; None breaks the line."""

BLOCKS: Final = " ▁▂▃▄▅▆▇█"
ASCII_BLOCKS: Final = " .:-=+*#@"

_lock: Final = threading.Lock()
_figure: Any = None
_problem = ""


def _load() -> None:
    global _figure, _problem
    with _lock:
        if _figure is None and not _problem:
            try:
                import plotext
            except (ImportError, OSError) as error:
                _problem = one_line(str(error))
            else:
                _figure = plotext.figure


async def load() -> None:
    """Make it ready, off the loop. It never raises: `ready()` and `problem()` say how it went."""
    if _figure is None and not _problem:
        await asyncio.shield(in_thread(_load, name="load plotext"))


def ready() -> bool:
    """Whether pictures can be drawn."""
    return _figure is not None


def problem() -> str:
    """Why they cannot, for ever; "" = they can, or it is not known yet."""
    return _problem


def canvas(
    points: Points,
    *,
    width: int,
    height: int,
    x: tuple[float, float],
    y: tuple[float, float],
    ascii_only: bool = False,
    filled: bool = False,
) -> list[str]:
    """`height` rows of `width` cells with a line through the points, or with what is below it filled.

    x, y: the values at the edges; what lies beyond them is cut. Call it only when `ready()`.
    """
    known = [(at, value) for at, value in points if value is not None and (value or not filled)]
    if width < 1 or height < 1 or not known:
        return [" " * width] * height
    marker = "#" if ascii_only and filled else "*" if ascii_only else "braille"
    with _lock:
        figure = _figure
        figure.clear()
        figure.plot_size(width, height)
        figure.axes(False)
        figure.ruler("both").frequency(0)
        figure.ruler("x").lim(*x)
        figure.ruler("y").lim(*y)
        signal = figure.signal([at for at, _ in known], [value for _, value in known], marker=marker)
        if filled:
            signal.fillx()
        else:
            signal.lines()
            number, broken = 0, False
            for _, value in points:
                if value is None:
                    broken = True
                    continue
                if broken and number:
                    signal.line(number, False)
                number, broken = number + 1, False
        figure.draw(signal)
        text: str = figure.build().string(True)
        figure.clear()
    rows = text.split("\n")
    return [row.ljust(width)[:width] for row in rows[:height]] + [" " * width] * max(height - len(rows), 0)


def sparkline(points: Points, width: int, *, top: float, ascii_only: bool = False) -> str:
    """One row: the largest value of each cell's stretch of x as a block; blank where nothing is known. Needs no plotext."""
    known = [(at, value) for at, value in points if value is not None]
    if width < 1 or not known:
        return " " * max(width, 0)
    blocks = ASCII_BLOCKS if ascii_only else BLOCKS
    first, last = known[0][0], known[-1][0]
    cells: list[float | None] = [None] * width
    for at, value in known:
        cell = min(int((at - first) / (last - first) * width), width - 1) if last > first else width - 1
        cells[cell] = max(value, cells[cell] or 0.0)
    shown = []
    carried: float | None = None
    for highest in cells:
        carried = highest if highest is not None else carried
        if carried is None:
            shown.append(" ")
        else:
            level = round(carried / top * (len(blocks) - 1)) if top > 0 else 0
            shown.append(blocks[min(max(level, 1 if carried > 0 else 0), len(blocks) - 1)])
    return "".join(shown)
