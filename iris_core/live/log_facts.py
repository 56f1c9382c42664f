"""What the log store says of a view and of a find, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from iris_core.model.text import one_line

if TYPE_CHECKING:
    from iris_core.wire.gen.iris.v1 import logs_pb2


@dataclass(frozen=True, slots=True)
class Hit:
    """What a find came to: the line, the how-manieth hit it is (from 1) of how many, and whether it began anew at the other end.

    `complete`: all lines were searched, so `total` is exact.
    """

    number: int
    ordinal: int
    total: int
    complete: bool
    wrapped: bool = False


@dataclass(slots=True)
class Facts:
    """What the store says of the view.

    Attributes:
        lines: Numbered so far; `hits` of them match, the others stand around them.
        scanned: How many were looked at.
        searched: Share of what is stored that was searched, 0 to 1.
        complete: Everything that was stored when the view was opened is in it.
        capped: Why lines that match may be missing, "" = none are.
        notes: What a reader should know of how it was searched.
        unshipped_since_ms: When the oldest row was stored that is on the store's disk alone, 0 = none, or nothing is shipped.
    """

    lines: int = 0
    hits: int = 0
    scanned: int = 0
    searched: float = 1.0
    complete: bool = False
    capped: str = ""
    notes: tuple[str, ...] = ()
    unshipped_since_ms: int = 0


def facts_of(state: logs_pb2.LogViewState) -> Facts:
    """The facts of an answer; words are made harmless."""
    return Facts(
        state.lines,
        state.hits,
        state.scanned,
        1.0 if state.complete else min(state.scanned_to / max(state.last_seq, 1), 1.0),
        state.complete,
        one_line(state.capped_reason) if state.capped else "",
        tuple(one_line(note) for note in state.notes),
        state.unshipped_since_ms,
    )
