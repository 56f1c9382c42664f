"""The state of a pane that shows live rows, in words: from how the connection stands and what has arrived.

One rule for every screen, so that STALE means the same everywhere: data once shown is never taken away, it only ages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_core.live.watch import Link
from iris_core.model.resources import format_age
from iris_core.model.text import one_line
from iris_tui.widgets.pane import State, Status

if TYPE_CHECKING:
    from iris_core.live.watch import LinkState
    from iris_tui.session import Session


def live_status(
    session: Session,
    link: LinkState,
    *,
    what: str,
    loaded: bool,
    some: int,
    empty: tuple[str, ...] = (),
    partial: str = "",
) -> Status:
    """How complete and how true a live pane is.

    Args:
        what: What it shows, in the plural: "jobs".
        loaded: Whether its first snapshot is complete.
        some: How many rows are known.
        empty: The words for a complete pane without rows, what is so and what to do; () = it has content.
        partial: What is missing of it, "" if nothing is.
    """
    if not loaded and not some:
        if link.link is Link.REFUSED:
            words = f"{one_line(session.title)} does not show the {what}: {link.detail}"
            return Status(
                State.ERROR, "", (words, "It is asked again by itself; ^r asks now. Other screens go on as they are.")
            )
        if link.link in (Link.RECONNECTING, Link.DENIED):
            words = "Not allowed to see" if link.link is Link.DENIED else "Cannot reach"
            where = session.client.url
            again = "It is tried again by itself, for as long as the console is open. ^r tries now, q quits."
            way_out = (f"{one_line(session.way_out)}.",) if session.way_out and link.unreached else ()
            login = "If the token has expired: put a new one into $IRIS_TOKEN and start the console again."
            return Status(
                State.ERROR,
                "",
                (
                    f"{words} {one_line(session.name)}{' at ' + where if where else ''}: {link.detail}",
                    again,
                    *way_out,
                    *((login,) if link.unknown else ()),
                ),
            )
        return Status(State.LOADING, "", (f"Loading the {what} of {one_line(session.name)} …",))
    if not link.current:
        age = format_age(int((link.age_s or 0) * 1000))
        return Status(State.STALE, f"STALE {age}: {link.detail}")
    if not loaded:
        return Status(State.PARTIAL, f"loading, {some:,} so far")
    if empty:
        return Status(State.EMPTY, "", empty)
    if partial:
        return Status(State.PARTIAL, partial)
    return Status(State.READY)
