"""Log lines on their way to a reader: parts joined, several tasks put in the order of time, each line formatted.

The store gives lines in the order they reached it. Ranks that ran side by side reach it a little out of step, so a
line waits until nothing earlier can be expected, and lines of one task keep their order whatever its clock does. Must
never fetch anything.
"""

from __future__ import annotations

import heapq
from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from iris_core.model.text import strip_to_sgr, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from iris_core.wire.gen.iris.v1.logs_pb2 import StoredLine

MAX_JOINED_BYTES: Final = 64 * 1024 * 1024
"""A line longer than this is given out in pieces after all."""


@dataclass(slots=True)
class Line:
    """A whole line: `data` as text, `raw` its bytes where they differ. `gap` > 0: so many lines are lost, `data` says
    why.
    """

    seq: int
    key: str
    epoch_ms: int
    source: str
    data: str
    raw: bytes
    level: int
    attempt_uid: str
    attempt: int
    number: int
    gap: int
    goes_on: bool = False
    """The next line of this key continues it: it was too long to be held."""
    is_context: bool = False
    """It does not match by itself: it stands around one that does."""
    breaks: bool = False
    """Lines before it are left out."""
    unended: bool = False
    """It is the last of its stream, which ended without a line end."""

    @property
    def task(self) -> str:
        """The task's id; the key itself where it names none."""
        return self.key.rpartition(":")[0] or self.key

    @property
    def bytes(self) -> bytes:
        """What was written, without the line end."""
        return self.raw or self.data.encode("utf-8", "surrogatepass")


class Joiner:
    """Puts the parts of a long line together again, per source of each attempt."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str, str], tuple[Line, list[StoredLine], int, float]] = {}

    def push(self, entry: StoredLine, now: float = 0.0) -> Line | None:
        """The line that this entry completes, if it does. `now` is when the part came (`overdue`)."""
        name = (entry.key, entry.attempt_uid, entry.source)
        held = self._open.pop(name, None) if not entry.gap else None
        if held is None:
            first, parts, size, since = _line(entry), [entry], len(entry.data), now
        else:
            first, parts, size, since = held[0], [*held[1], entry], held[2] + len(entry.data), held[3]
        if entry.partial and not entry.gap and size < MAX_JOINED_BYTES:
            self._open[name] = (first, parts, size, since)
            return None
        whole = _joined(first, parts)
        whole.goes_on = entry.partial and not entry.gap
        return whole

    @property
    def waiting(self) -> bool:
        """Whether a line waits for its end."""
        return bool(self._open)

    def last_parts(self) -> list[StoredLine]:
        """Of each line that waits for its end, the last part."""
        return [parts[-1] for _, parts, _, _ in self._open.values()]

    def overdue(self, before: float = float("inf")) -> Iterator[Line]:
        """Unfinished lines whose first part came before that time: somebody is watching a progress bar."""
        for name in [name for name, held in self._open.items() if held[3] <= before]:
            first, parts, _, _ = self._open.pop(name)
            yield _joined(first, parts)


def _line(entry: StoredLine) -> Line:
    return Line(
        entry.seq, entry.key, entry.epoch_ms, entry.source, entry.data, entry.raw, entry.level, entry.attempt_uid,
        entry.attempt_id, entry.number, entry.gap, unended=entry.unended,
    )  # fmt: skip


def _joined(first: Line, parts: list[StoredLine]) -> Line:
    if len(parts) > 1:
        if any(part.raw for part in parts):
            first.raw = b"".join(part.raw or part.data.encode("utf-8", "surrogatepass") for part in parts)
        first.data = "".join(part.data for part in parts)
        first.unended = parts[-1].unended
    return first


class TimeOrder:
    """Lines by time, stable: the same lines always come out in the same order.

    A line's place is its time, but never before an earlier line of its own key. `arrived` and the `before` of `take`
    are any one clock.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, str, int, float, Line]] = []
        self._latest: dict[str, int] = {}

    def push(self, line: Line, arrived: float = 0.0) -> None:
        """Lines of one key must come in their own order."""
        place = max(line.epoch_ms, self._latest.get(line.key, 0))
        self._latest[line.key] = place
        heapq.heappush(self._heap, (place, line.key, line.seq, arrived, line))

    def take_arrived(self, before: float) -> Iterator[Line]:
        """The earliest lines, as long as they came before that moment."""
        while self._heap and self._heap[0][3] <= before:
            yield heapq.heappop(self._heap)[4]

    def take_until(self, place_ms: int) -> Iterator[Line]:
        """The lines up to that time."""
        while self._heap and self._heap[0][0] <= place_ms:
            yield heapq.heappop(self._heap)[4]

    def take_all(self) -> list[Line]:
        """Every line that is left."""
        return [heapq.heappop(self._heap)[4] for _ in range(len(self._heap))]

    @property
    def waiting(self) -> bool:
        """Whether a line is held."""
        return bool(self._heap)

    @property
    def latest_ms(self) -> int:
        """The latest place given out or held."""
        return max(self._latest.values(), default=0)


def ordered(entries: Iterable[StoredLine]) -> list[Line]:
    """All lines of an answer: joined, and by time."""
    joiner, order = Joiner(), TimeOrder()
    for entry in sorted(entries, key=lambda entry: entry.seq):
        line = joiner.push(entry)
        if line is not None:
            order.push(line)
    for line in joiner.overdue():
        order.push(line)
    return order.take_all()


def clock_text(epoch_ms: int) -> str:
    """`HH:MM:SS` in UTC."""
    seconds = epoch_ms // 1000 % 86_400
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def task_line(line: Line) -> str:
    """`[HH:MM:SS] task=<id> attempt=<n> | <text>`, harmless for a terminal; the workload's colours stay.

    With context, lines around a hit have `-` for `|`, and `--` stands where lines are left out.
    """
    mark = "-" if line.is_context else "|"
    shown = f"[{clock_text(line.epoch_ms)}] task={visible(line.task)} attempt={line.attempt} {mark} {_text(line)}\n"
    return f"--\n{shown}" if line.breaks else shown


def process_line(line: Line) -> str:
    """`[HH:MM:SS] text`."""
    return f"[{clock_text(line.epoch_ms)}] {_text(line)}\n"


def _text(line: Line) -> str:
    if line.gap:
        return f"[{line.gap} line{'s' * (line.gap != 1)} lost: {visible(line.data)}]"
    return strip_to_sgr(line.data)


def line_object(line: Line) -> dict[str, object]:
    """A line as JSON modes show it: the text as it was written, its bytes in base64 where they are not that text."""
    from iris_core.live.columns import iso
    from iris_core.model.levels import LogLevel

    fields: dict[str, object] = {
        "seq": line.seq,
        "time": iso(line.epoch_ms),
        "epoch_ms": line.epoch_ms,
        "key": line.key,
        "task": line.task,
        "attempt": line.attempt,
        "attempt_uid": line.attempt_uid,
        "number": line.number,
        "source": line.source,
        "level": LogLevel(line.level).label if line.level in LogLevel._value2member_map_ else str(line.level),
        "text": line.data,
    }
    if line.raw:
        fields["raw_base64"] = b64encode(line.raw).decode()
    if line.gap:
        fields["gap"] = line.gap
    if line.unended:
        fields["unended"] = True
    if line.is_context:
        fields["context"] = True
    return fields
