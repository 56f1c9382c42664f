"""How one line of a log looks: its text made harmless, what stands before it, its tone, and what is marked in it.

Nothing here scrolls or fetches. Must never let a control sequence of a workload through that is no colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal

from rich.cells import cell_len

from iris_core.live.wording import FIRST_S, LAST_S, Tone
from iris_core.model.resources import format_age
from iris_core.model.text import counted_are, one_line
from iris_tui.drawing import Run, cut, padded
from iris_tui.widgets.line_view import safe_text

if TYPE_CHECKING:
    from rich.style import Style
    from rich.text import Text

    from iris_core.live.log_lines import LogLine
    from iris_core.live.log_query import LogSource
    from iris_core.model.regex import Compiled

Times = Literal["off", "UTC", "local", "relative"]
TIMES: Final[tuple[Times, ...]] = ("off", "UTC", "local", "relative")
LABEL_CELLS: Final = 16
LOADING: Final = "·"
_LEVELS: Final = {1: Tone.DIM, 3: Tone.WARN, 4: Tone.BAD, 5: Tone.BAD}
"""Tones of log levels; INFO and unknown ones are plain."""
_SOURCES: Final = (Tone.BUSY, Tone.GOOD, Tone.WARN, Tone.WAIT, Tone.PLAIN)


def letter(place: int) -> str:
    """What a source is called in the gutter: A, B, … Z, A1, …"""
    return chr(ord("A") + place % 26) + (str(place // 26) if place >= 26 else "")


class Gutter:
    """Who wrote a line: a letter per source where there are several, then what its key says beyond the source. Grows, never shrinks."""

    def __init__(self, sources: Sequence[LogSource]) -> None:
        self._sources = sources
        self._labels: dict[str, tuple[str, Tone]] = {}
        self.width = 0

    def runs(self, key: str) -> list[Run]:
        """The gutter of a line with that key, as wide as that of every other one."""
        known = self._labels.get(key)
        if known is None:
            known = self._labels[key] = self._label(key)
            self.width = max(self.width, min(cell_len(known[0]), LABEL_CELLS))
        if not self.width:
            return []
        return [Run(padded(known[0], self.width) + " ", known[1])]

    def look(self, keys: Sequence[str]) -> None:
        """These keys are about to be drawn."""
        for key in keys:
            self.runs(key)

    def _label(self, key: str) -> tuple[str, Tone]:
        found = [(len(one.key), place) for place, one in enumerate(self._sources) if key.startswith(one.key)]
        if not found:
            return ("", Tone.DIM) if len(self._sources) < 2 else (one_line(key), Tone.DIM)
        place = max(found)[1]
        rest = one_line(key.removeprefix(self._sources[place].key).lstrip("/:"))
        if len(self._sources) > 1:
            return f"{letter(place)} {rest}".rstrip(), _SOURCES[place % len(_SOURCES)]
        index = rest.partition(":")[0].rpartition("/")[2]
        shade = int(index) if index.isascii() and index.isdigit() else 0
        return rest, _SOURCES[shade % len(_SOURCES)]

    def legend(self) -> list[Run]:
        """Which letter is which source; nothing for one."""
        if len(self._sources) < 2:
            return []
        runs = []
        for place, source in enumerate(self._sources):
            runs.append(Run(f"{letter(place)} {one_line(source.title)}  ", _SOURCES[place % len(_SOURCES)]))
        return runs


def time_text(epoch_ms: int, times: Times, now_ms: int) -> str:
    """The time of a line as it stands before it, with a blank; "" if none is wanted."""
    if times == "off":
        return ""
    if times == "relative":
        return f"{format_age(max(now_ms - epoch_ms, 0)):>7} "
    seconds, ms = divmod(epoch_ms, 1000)
    if not FIRST_S <= seconds <= LAST_S:
        return f"{'-':>12} "
    moment = datetime.fromtimestamp(seconds, UTC if times == "UTC" else None)
    return f"{moment:%H:%M:%S}.{ms:03d} "


def plain_text(line: LogLine | None) -> str:
    """What is drawn of a line, before it is made harmless."""
    if line is None:
        return LOADING
    if line.gone:
        return "── this line is not kept any more ──"
    if line.gap:
        return f"── {counted_are(line.gap, 'line')} lost{': ' + line.text if line.text else ''} ──"
    head = "↳ " if line.part else ""
    if line.more:
        return (
            f"{head}{line.text}\x1b[0m …(+{line.more:,} B)"
            if "\x1b" in line.text
            else f"{head}{line.text} …(+{line.more:,} B)"
        )
    return head + line.text


def tone_of(line: LogLine | None) -> Tone:
    """The tone of a line where it has no colours of its own."""
    if line is None or line.gone or line.is_context:
        return Tone.DIM
    if line.gap:
        return Tone.WARN
    if line.source in ("iris", "setup"):
        return Tone.BUSY
    return _LEVELS.get(line.level, Tone.PLAIN)


def drawn(line: LogLine | None, marks: Sequence[tuple[Compiled | None, Style]]) -> Text:
    """The text of a line with its colours and what matches marked; nothing else that could steer a terminal."""
    text = safe_text(plain_text(line))
    if line is not None:
        for pattern, style in marks:
            if pattern is not None:
                for start, end in pattern.spans(text.plain):
                    text.stylize(style, start, end)
    return text


def shortened(runs: Sequence[Run], width: int) -> list[Run]:
    """What stands before a line, never more than half of the screen."""
    left, found = max(width // 2, 1), []
    for run in runs:
        text = cut(run.text, left)
        found.append(Run(text, run.tone))
        left -= cell_len(text)
        if left <= 0:
            break
    return found
