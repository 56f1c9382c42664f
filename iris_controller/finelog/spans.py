"""The seqs of all lines of one log, told from the indexes alone: numbering ten million lines then takes no look at any of them.

Runs of segments and extents of write-ahead files say how many lines there are and from which seq to which; where a run has as many
lines as seqs, that is all there is to know, and of the others the column of seqs is read. Only for a log of one key that is not
filtered. Must never be used where a line has to be looked at, or put in order with those of another key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_controller.finelog.candidates import Candidates
from iris_controller.finelog.parts import PartsSeen
from iris_controller.finelog.reader import missing
from iris_controller.finelog.segmented import Segmented

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from iris_controller.finelog.query import Query
    from iris_controller.finelog.store import Store


def spans(store: Store, query: Query, low: int, high: int) -> Generator[Sequence[int] | None, None, list[str] | None]:
    """The seqs from `low` to `high - 1`, ascending, in pieces, and in the end what may be missing; None in between to give way.

    The end is None, and nothing was given before, where the lines have to be read: there is more than one key.
    """
    if query.filters_content or query.min_level or query.since_ms or query.until_ms or query.attempt_uid:
        return None
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
