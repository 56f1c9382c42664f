"""Since when a job's waiting tasks wait, kept as tasks come back to the queue, so that nobody has to look at all of them.

No row of a task says when it came back: at boot the ends of the last attempts do, and then every batch. Must never look at a clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_core.model.states import TaskState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_controller.commits import Committed
    from iris_controller.state.model import Model


class Queued:
    """See the module. `known` are the tasks that wait again at boot (`store.waits.requeued`)."""

    def __init__(self, model: Model, known: Mapping[tuple[str, int], int]) -> None:
        self._model = model
        self._again: dict[str, dict[int, int]] = {}
        """Waiting tasks that have had an attempt, by job and index: since when."""
        for (job_id, index), since in known.items():
            self._again.setdefault(job_id, {})[index] = since

    def note(self, batch: Committed) -> None:
        """Takes in a committed batch."""
        for job_id in batch.changes.finished:
            self._again.pop(job_id, None)
        for (job_id, index), task in batch.changes.tasks.items():
            if task.attempt_number < 0:
                continue
            of_job = self._again.get(job_id)
            if task.state is TaskState.PENDING:
                if of_job is None:
                    if job_id not in self._model.tasks:
                        continue
                    of_job = self._again[job_id] = {}
                of_job.setdefault(index, batch.now_ms)
            elif of_job is not None:
                of_job.pop(index, None)
                if not of_job:
                    del self._again[job_id]

    def since(self, job_id: str) -> int:
        """Since when the job's oldest waiting task waits, in epoch ms; 0 = none does."""
        waiting = self._model.pending.get(job_id)
        if not waiting:
            return 0
        of_job = self._again.get(job_id)
        if of_job is None or len(of_job) < len(waiting):
            # One of them has never had an attempt.
            return self._model.jobs[job_id].submitted_at_ms
        return min(of_job.values())
