"""`--watch`: a listing printed once, then the rows that change, as they change.

Rows are appended, never redrawn: what scrolls by can be piped and kept. Must end quietly on an interrupt.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from iris_core.cli import output
from iris_core.cli.reads import Patience, now_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_core.cli.session import Session
    from iris_core.cli.tables import Listing

R = TypeVar("R")

EVERY_S: Final = 1.0


def watch(
    session: Session, listing: Listing[Any], read: Callable[[], Sequence[Any]], how: output.Format, *, headers: bool
) -> NoReturn:
    """Prints until it is interrupted. JSON becomes JSON lines, because an array would never end."""
    session.require_live("there is nothing to watch")
    how = "jsonl" if how == "json" else how
    patience = Patience(session.diagnostics, "what is listed goes on")
    known: dict[str, bytes] = {}
    first = True
    while True:
        rows = list(patience.ask(read))
        changed = [row for row in rows if known.get(listing.name(row)) != row.SerializeToString(deterministic=True)]
        known = {listing.name(row): row.SerializeToString(deterministic=True) for row in rows}
        if changed or first:
            output.write(listing.text(changed, how, now_ms(), headers=headers and first))
        first = False
        # Nothing to write is still a chance to notice that the reader has gone.
        output.flush()
        time.sleep(EVERY_S)
