"""Which jobs a controller's database has that one of an earlier moment has not: what going back to a checkpoint drops.

The same question is asked of a running controller, and of the file of one that hangs.
"""

from __future__ import annotations

from typing import Final

SHOWN_JOBS: Final = 5
PRIME: Final = 1_000_000_007
_CHANGED: Final = (
    "SELECT job_id, submitted_at_ms, submitted_at_ms > {at} AS made FROM jobs WHERE submitted_at_ms > {at} OR started_at_ms > {at}"
    " OR finished_at_ms > {at} OR job_id IN (SELECT job_id FROM tasks WHERE task_id IN (SELECT task_id FROM task_attempts"
    " WHERE created_at_ms > {at} OR started_at_ms > {at} OR finished_at_ms > {at}))"
)


def counted_after(epoch_ms: int) -> str:
    """SQL: one row of how many jobs were submitted after a moment, how many older ones changed, when the newest was submitted, and a
    number that stands for which older ones they are: where one left and another came, the counts are what they were.
    """
    # No two are submitted in the same millisecond; squares, as two that left may be as far apart as two that came.
    which = f"SUM((1 - made) * ((submitted_at_ms % {PRIME}) * (submitted_at_ms % {PRIME}) % {PRIME}))"
    return (
        "SELECT COALESCE(SUM(made), 0), COALESCE(SUM(1 - made), 0), COALESCE(MAX(made * submitted_at_ms), 0),"
        f" COALESCE({which}, 0)"
        f" FROM ({_CHANGED.format(at=int(epoch_ms))}) AS changed"
    )


def named_after(epoch_ms: int) -> str:
    """SQL: the ids of the first few of them."""
    changed = _CHANGED.format(at=int(epoch_ms))
    return f"SELECT job_id FROM ({changed}) AS changed ORDER BY made DESC, job_id LIMIT {SHOWN_JOBS}"
