"""The peaks of attempts that are over while their job goes on: Watch shows such tasks from memory, where attempts are not kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_core.model.states import NON_TERMINAL, JobState

if TYPE_CHECKING:
    import sqlite3

_UNFINISHED = (JobState.PENDING, JobState.BUILDING, JobState.RUNNING)


def peaks(connection: sqlite3.Connection) -> dict[str, dict[str, int]]:
    """In bytes, by job id and attempt uid; attempts without one are left out."""
    jobs = ", ".join(str(int(state)) for state in _UNFINISHED)
    tasks = ", ".join(str(int(state)) for state in sorted(NON_TERMINAL))
    rows = connection.execute(
        "SELECT t.job_id, a.attempt_uid, a.memory_peak_bytes FROM jobs j JOIN tasks t ON t.job_id = j.job_id"
        " JOIN task_attempts a ON a.task_id = t.task_id AND a.attempt_id = t.current_attempt_id"
        f" WHERE j.state IN ({jobs}) AND t.state NOT IN ({tasks}) AND a.memory_peak_bytes > 0"
    )
    found: dict[str, dict[str, int]] = {}
    for job_id, uid, peak in rows:
        found.setdefault(job_id, {})[uid] = peak
    return found
