"""Since when the tasks wait that have waited before: the end of their last attempt, which no row of theirs says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_controller.store.load import LIVE
from iris_core.model.states import TaskState

if TYPE_CHECKING:
    import sqlite3


def requeued(connection: sqlite3.Connection) -> dict[tuple[str, int], int]:
    """By job id and task index, in epoch ms; of an attempt whose end nobody confirmed, its beginning."""
    # By way of the jobs: no index leads to the tasks that wait among millions that have ended.
    rows = connection.execute(
        "SELECT t.job_id, t.task_index, coalesce(a.finished_at_ms, a.created_at_ms)"
        f" FROM jobs j JOIN tasks t ON t.job_id = j.job_id AND j.state IN ({', '.join(str(int(s)) for s in LIVE)})"
        " JOIN task_attempts a ON a.task_id = t.task_id AND a.attempt_id = t.current_attempt_id WHERE t.state = ?",
        (int(TaskState.PENDING),),
    )
    return {(job_id, index): since for job_id, index, since in rows}
