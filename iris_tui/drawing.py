"""From texts with a tone to strips of the line API: cut to a width by whole characters, padded, never read as markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual.strip import Strip

from iris_core.live.wording import Tone
from iris_core.model.text import truncate_cells

if TYPE_CHECKING:
    from rich.style import Style

    from iris_tui.themes import Paint


class Run(NamedTuple):
    """A text in one tone."""

    text: str
    tone: Tone = Tone.PLAIN


def cut(text: str, width: int) -> str:
    """At most `width` cells of a text, whole characters only, ending in an ellipsis where something was left out."""
    if len(text) <= width and text.isascii() and text.isprintable():
        return text
    shown = truncate_cells(text, width)
    return shown if cell_len(shown) <= width else set_cell_size(shown, width)


def cut_middle(text: str, width: int, ellipsis: str) -> str:
    """At most `width` cells of a name; where it is too long its end stays, which tells generated names apart."""
    if len(text) <= width or not text.isascii() or width < 12:
        return cut(text, width)
    tail = min(7, width // 3)
    return f"{text[: width - tail - len(ellipsis)]}{ellipsis}{text[-tail:]}"


def counted(number: int, what: str) -> str:
    """`1 job`, `2,000 jobs`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Exactly `width` cells."""
    shown = cut(text, width)
    blank = " " * max(width - cell_len(shown), 0)
    return blank + shown if right else shown + blank


def cut_runs(runs: Iterable[Run], width: int) -> list[Run]:
    """The runs as far as they fit into `width` cells."""
    result: list[Run] = []
    left = width
    for run in runs:
        if left <= 0:
            break
        text = cut(run.text, left)
        if text:
            result.append(Run(text, run.tone))
            left -= cell_len(text)
    return result


def width_of(runs: Iterable[Run]) -> int:
    """Cells that the runs take."""
    return sum(cell_len(run.text) for run in runs)


def strip_of(runs: Sequence[Run], width: int, paint: Paint, *, over: Style | None = None) -> Strip:
    """A line of exactly `width` cells. `over` is laid over the tones (a cursor, a title)."""
    base = paint.base + over if over is not None else paint.base
    segments: list[Segment] = []
    used = 0
    for run in cut_runs(runs, width):
        style = base if run.tone is Tone.PLAIN else base + paint.tones[run.tone]
        segments.append(Segment(run.text, style))
        used += cell_len(run.text)
    if used < width:
        segments.append(Segment(" " * (width - used), base))
    return Strip(segments, width)
