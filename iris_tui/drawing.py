"""From texts with a tone to strips of the line API: cut to a width by whole characters, padded, never read as markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.segment import Segment
from textual.strip import Strip

from iris_core.live.wording import Tone
from iris_core.model.text import truncate_cells

if TYPE_CHECKING:
    from rich.style import Style

    from iris_tui.themes import Paint

_WORD = re.compile(r"\S+\s*|\s+")


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


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Exactly `width` cells."""
    shown = cut(text, width)
    blank = " " * max(width - cell_len(shown), 0)
    return blank + shown if right else shown + blank


def wrapped(text: str, width: int, hang: int = 0) -> list[str]:
    """The rows of a text that is broken behind blanks, and inside a word only where that is wider than a row by itself.

    Joined they are the text: a row keeps the blanks behind its last word, which may stand out of it. Rows after the first one have
    `hang` cells less.
    """
    rows: list[str] = []
    row, used, room = "", 0, width
    for word in _WORD.findall(text):
        wide = cell_len(word.rstrip())
        if row and used + wide > room:
            if row.isspace() and wide > width - hang:
                # It will be broken anyway: it begins where the blanks leave it.
                word, row, used = row + word, "", 0
                wide = cell_len(word.rstrip())
            else:
                rows.append(row)
                row, used, room = "", 0, width - hang
        if wide > room:
            *full, word = _chopped(word, room, width - hang)
            rows += full
            room = width - hang
        row, used = row + word, used + cell_len(word)
    return [*rows, row] if row or not rows else rows


def _chopped(word: str, first: int, rest: int) -> list[str]:
    """A long word in pieces of whole characters: the first of at most `first` cells, the others of `rest`; blanks stay with the last."""
    letters = word.rstrip()
    begin = chop_cells(letters, first)[0]
    pieces = [begin, *chop_cells(letters[len(begin) :], rest)]
    pieces[-1] += word[len(letters) :]
    return pieces


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


def joined(runs: Iterable[Run]) -> list[Run]:
    """The same texts in as few runs as there are tones in a row. Beyond ASCII a text stays by itself: behind another one it may join with
    that, and take other room."""
    result: list[Run] = []
    said, tone = "", Tone.PLAIN
    for run in runs:
        if run.tone is tone and run.text.isascii():
            said += run.text
            continue
        if said:
            result.append(Run(said, tone))
        said, tone = run
    if said:
        result.append(Run(said, tone))
    return result


def strip_of(
    runs: Sequence[Run], width: int, paint: Paint, *, over: Style | None = None, used: int | None = None
) -> Strip:
    """A line of exactly `width` cells. `over` is laid over the tones (a cursor, a title).

    `used` is how many cells the runs take, where it is known that they fit; without it they are measured, and cut.
    """
    base = paint.base + over if over is not None else paint.base
    if used is None:
        runs = cut_runs(runs, width)
        used = width_of(runs)
    # Whatever is done with a line later is done with each segment.
    segments = [
        Segment(text, base if tone is Tone.PLAIN else base + paint.tones[tone])
        for text, tone in joined([*runs, Run(" " * (width - used))])
    ]
    return Strip(segments, width)
