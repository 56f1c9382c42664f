"""Where all lines of some logs stand, told without looking at a text: numbering millions of lines then takes no reading of them.

Of one log, runs of segments and extents of write-ahead files say how many lines there are and from which seq to which; where a run has
as many lines as seqs, that is all there is to know, and of the others the column of seqs is read. Of several, keys and times are read
as well, by which they are put in order. Must never be used where a line's text, level or time decides whether it is meant.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

from iris_controller.finelog.candidates import Candidates
from iris_controller.finelog.parts import PartsSeen
from iris_controller.finelog.reader import missing
from iris_controller.finelog.segmented import Segmented

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from iris_controller.finelog.query import Query
    from iris_controller.finelog.store import Store
    from iris_core.wire.gen.iris.v1 import logs_pb2


PIECE = 20_000


class Place(NamedTuple):
    """What the order of lines is made from."""

    seq: int
    key: str
    epoch_ms: int
    partial: bool = False
    part: int = 0
    attempt_uid: str = ""
    source: str = ""


def is_whole(query: Query) -> bool:
    """Whether every line of the logs is meant, whatever it says."""
    return not (query.filters_content or query.min_level or query.since_ms or query.until_ms or query.attempt_uid)


def places(store: Store, query: Query, low: int, high: int) -> Generator[list[Place], None, list[str]]:
    """The places of the lines of several logs from seq `low` to `high - 1`, ascending by seq, in pieces; in the end what may be missing."""
    view = store.view()
    try:
        segmented = Segmented(store, view, query, low, high, 1)
        candidates = Candidates(store, view.files, query, low, high, PartsSeen(query))
        for rows in segmented.places(PIECE):
            yield list(map(Place._make, rows))
        piece: list[Place] = []
        for candidate in candidates.oldest_first():
            for found in candidates.read(candidate) if candidate is not None else ():
                if found.batch is not None:
                    piece += _of_batch(found.batch, found.first_seq, low, high)
            if len(piece) >= PIECE:
                yield piece
                piece = []
        yield piece
        return missing(store, query, low, high - 1) + list(segmented.faults) + list(candidates.faults)
    finally:
        view.release()


def _of_batch(batch: logs_pb2.LogBatch, first_seq: int, low: int, high: int) -> list[Place]:
    start, stop = max(0, low - first_seq), max(0, min(len(batch.entries), high - first_seq))
    entries = batch.entries[start:stop]
    seqs = range(first_seq + start, first_seq + stop)
    if not any(entry.partial or entry.part for entry in entries):
        return list(map(Place, seqs, repeat(batch.key), [entry.epoch_ms for entry in entries]))
    uid = batch.attempt_uid
    return [
        Place(seq, batch.key, one.epoch_ms, one.partial, one.part, uid, one.source)
        for seq, one in zip(seqs, entries, strict=True)
    ]


def spans(store: Store, query: Query, low: int, high: int) -> Generator[Sequence[int] | None, None, list[str] | None]:
    """The seqs from `low` to `high - 1`, ascending, in pieces, and in the end what may be missing; None in between to give way.

    The end is None, and nothing was given before, where the lines have to be read: there is more than one key.
    """
    view = store.view()
    try:
        segmented = Segmented(store, view, query, low, high, 1)
        candidates = Candidates(store, view.files, query, low, high, PartsSeen(query))
        if len(segmented.keys() | candidates.keys()) > 1:
            return None
        yield from segmented.seqs()
        for candidate in candidates.oldest_first():
            if candidate is not None:
                extent = candidate.extent
                yield range(max(extent.first_seq, low), min(extent.last_seq + 1, high))
        return missing(store, query, low, high - 1) + list(segmented.faults) + list(candidates.faults)
    finally:
        view.release()
