"""Which jobs a controller's database has that one of an earlier moment has not: what going back to a checkpoint drops.

The same question is asked of a running controller, and of the file of one that hangs.
"""

from __future__ import annotations

from typing import Final

SHOWN_JOBS: Final = 5
_CHANGED: Final = (
    "SELECT job_id, submitted_at_ms > {at} AS made FROM jobs WHERE submitted_at_ms > {at} OR started_at_ms > {at}"
    " OR finished_at_ms > {at} OR job_id IN (SELECT job_id FROM tasks WHERE task_id IN (SELECT task_id FROM task_attempts"
    " WHERE created_at_ms > {at} OR started_at_ms > {at} OR finished_at_ms > {at}))"
)


def changed_after(epoch_ms: int) -> str:
    """SQL: the jobs that were submitted (`made` 1) or changed (`made` 0) after a moment."""
    return _CHANGED.format(at=int(epoch_ms))
