"""Reading the spool's segments back: where shipping stands in them, and which lines one of them holds.

Lines that should be there and are not are noticed here, and told of as a gap. Must never write, nor parse a line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from iris_controller.worker import batches, segments
from iris_controller.worker.batches import DAMAGED
from iris_controller.worker.config import now_ms
from iris_controller.worker.segments import Kind

if TYPE_CHECKING:
    from iris_controller.worker.batches import PushBuilder

Ranges = dict[bytes, tuple[int, int]]
"""By header of the producer: the first number, and the number after the last.

One range each is enough: what was delivered in between is below the producer's mark, and the store takes a gap from there on.
"""


@dataclass(slots=True)
class Cursor:
    """Where shipping reads. For each slot of this segment so far: header and next expected number; `before` is the same at
    the end of the segment before, so that lines missing in between are noticed."""

    segment: int
    offset: int
    slots: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    before: dict[int, tuple[bytes, int]] = field(default_factory=dict)


def follow(at: Cursor, record: segments.Record, push: PushBuilder | None) -> None:
    """Moves the cursor's slots over a record; lines of it, and what is missing before them, go into `push` if there is one."""
    if record.kind == Kind.OPEN:
        at.slots[record.slot] = at.before.get(record.slot, (record.payload, record.first))
    elif record.kind == Kind.CLOSE:
        at.slots.pop(record.slot, None)
    elif record.kind == Kind.LINES and record.slot in at.slots:
        head, expected = at.slots[record.slot]
        at.slots[record.slot] = head, max(expected, record.first + record.span)
        if push is not None:
            if record.first > expected:
                push.add(head, batches.gap(expected, record.first - expected, DAMAGED, now_ms()))
            push.add(head, record.payload)


def within(position: tuple[int, int], number: int, size: int) -> int:
    """How far into segment `number` a position is."""
    segment, offset = position
    return size if segment > number else offset if segment == number else 0


def ranges(fd: int, start: int, size: int, *, notes: bool = False) -> Ranges:
    """The lines of a segment whose records end after `start`; with `notes` also what it says of older losses."""
    heads: dict[int, bytes] = {}
    found: Ranges = {}
    for record in segments.read(fd, 0, size):
        if record.kind == Kind.OPEN:
            heads[record.slot] = record.payload
        elif record.kind == Kind.LINES and record.end > start and record.slot in heads:
            widen(found, heads[record.slot], record)
        elif record.kind == Kind.LOST and notes:
            widen(found, record.payload, record)
    return found


def widen(found: Ranges, head: bytes, record: segments.Record) -> None:
    """The numbers of a record are in the producer's range, too."""
    first, end = found.get(head, (record.first, 0))
    found[head] = min(first, record.first), max(end, record.first + record.span)
