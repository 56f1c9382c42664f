"""What the Jobs screen says about itself: what is missing of the list, and the line about the selected row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from iris_core.live.jobtree import HISTORY
from iris_core.live.wording import Tone
from iris_core.model.text import one_line
from iris_tui.drawing import Run
from screens.jobs_rows import reason_of, state_of

if TYPE_CHECKING:
    from iris_core.live.jobtree import JobTree
    from iris_core.live.rows import Row
    from iris_tui.session import Session

OLDER: Final = "  (older: as it was read from the database, not followed)"
"""What is said of a row that ended too long ago to be watched."""


def partial(tree: JobTree) -> str:
    """What is missing of the list, "" if nothing is."""
    if tree.history.error:
        return f"older jobs not loaded: {tree.history.error}; ^r tries again"
    return "loading older jobs" if tree.history.loading else ""


def empty(session: Session) -> tuple[str, ...]:
    """What a cluster without jobs says, and what to do."""
    return (
        "No jobs yet.",
        f"Submit one: iris-core {session.selector} job run -- python3 -c \"print('hello')\"",
    )


def detail(row: Row[Any] | None) -> list[Run]:
    """The selected row's whole id, state and reason."""
    if row is None or row.kind == "note":
        return []
    text, tone = state_of(row)
    gone = " (gone)" if row.gone else ""
    runs = [Run(f" {one_line(row.id)}{gone}"), Run(f"  {text}", tone)]
    if row.section == HISTORY and row.kind == "job":
        runs.append(Run(OLDER, Tone.DIM))
    reason = reason_of(row)
    if reason:
        runs.append(Run(f"  {one_line(reason)}", Tone.PLAIN))
    return runs
