"""How many tasks of each root job are in which state, and how long the oldest have waited: `iris.task_state` (cli-auth-logs §3.9).

Counts of jobs are kept by the kernel; ages come from the tasks that wait and the attempts that have not begun. `Waits` remembers when a
task came back to the queue, which no record says. Pure, over records that are handed in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iris_core.model.states import DISPATCHED, JOB_TERMINAL, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from iris_controller.state.changes import Changes
    from iris_controller.state.records import Attempt, Job, Task

Key = tuple[str, int]
Row = dict[str, Any]
_COUNTED = {
    "pending": TaskState.PENDING,
    "assigned": TaskState.ASSIGNED,
    "building": TaskState.BUILDING,
    "running": TaskState.RUNNING,
}


class Waits:
    """Since when tasks wait that have waited before; `known` is what the state says of them at boot."""

    def __init__(self, known: Mapping[Key, int]) -> None:
        self._since = dict(known)

    def note(self, changes: Changes, now_ms: int) -> None:
        """Takes in a committed batch."""
        for job_id in changes.deleted_jobs:
            for key in [key for key in self._since if key[0] == job_id]:
                del self._since[key]
        for key, task in changes.tasks.items():
            if task.state is TaskState.PENDING and task.attempt_number >= 0:
                self._since.setdefault(key, now_ms)
            else:
                self._since.pop(key, None)

    def since(self, task: Task) -> int:
        """When the task began to wait, in epoch ms."""
        return self._since.get((task.job_id, task.index), task.submitted_at_ms)


def rows(
    jobs: Iterable[Job], pending: Iterable[Task], attempts: Iterable[Attempt], waits: Waits, now_ms: int
) -> list[Row]:
    """One row for each root job with an unfinished task, and always one for the whole cluster under "".

    `jobs` may hold ended ones, `pending` are the waiting tasks, `attempts` the unfinished ones. Ages are null where nothing waits.
    """
    roots: dict[str, str] = {}
    found: dict[str, Row] = {"": _empty("", now_ms)}
    incarnations: dict[str, int] = {}
    for job in jobs:
        if job.state in JOB_TERMINAL:
            continue
        roots[job.job_id] = job.root_job_id
        incarnations[job.root_job_id] = job.root_submitted_ms
        for name in (job.root_job_id, ""):
            row = found.get(name)
            if row is None:
                row = found[name] = _empty(name, now_ms)
            for column, state in _COUNTED.items():
                row[column] += job.counts[state]
    for task in pending:
        _oldest(found, roots.get(task.job_id), "oldest_pending_age_ms", now_ms - waits.since(task))
    for attempt in attempts:
        if attempt.state in DISPATCHED:
            _oldest(found, roots.get(attempt.job_id), "oldest_building_age_ms", now_ms - attempt.created_at_ms)
    for name, incarnation in incarnations.items():
        found[name]["incarnation"] = incarnation
    return [row for name, row in found.items() if not name or any(row[column] for column in _COUNTED)]


def _empty(root: str, now_ms: int) -> Row:
    return {"root_job_id": root, "ts": now_ms, **dict.fromkeys(_COUNTED, 0)}


def _oldest(found: dict[str, Row], root: str | None, column: str, age_ms: int) -> None:
    if root is None:
        return
    for name in (root, ""):
        row = found[name]
        row[column] = max(row.get(column) or 0, age_ms, 0)
