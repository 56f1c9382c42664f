"""What workers measured of attempts, and attempts say of themselves, as far as it is shown beside their state.

A reading is no decision: it is not stored, and a controller that starts has the next ones within seconds. Peaks of attempts that are
over come from the state, and are kept here for the tasks of jobs that Watch shows from memory. Must never change the model.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from iris_core.model.states import ACTIVE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from iris_controller.commits import Committed
    from iris_controller.state.model import Model
    from iris_core.wire.gen.iris.v1 import controller_pb2, worker_pb2

MAX_PEAKS = 200_000

Key = tuple[str, int]


class Readings:
    """See the module. `peaks` are those of ended attempts that are current in unfinished jobs, by uid for each job."""

    def __init__(self, model: Model, peaks: Mapping[str, Mapping[str, int]]) -> None:
        self._model = model
        self._now: dict[str, worker_pb2.AttemptUsage] = {}
        self._said: dict[str, str] = {}
        """What attempts that run say of themselves."""
        self._peaks: OrderedDict[str, dict[str, int]] = OrderedDict((job, dict(found)) for job, found in peaks.items())
        self._count = sum(map(len, self._peaks.values()))

    def take(self, worker_id: str, usage: Iterable[worker_pb2.AttemptUsage]) -> list[Key]:
        """What a worker says of its attempts; what is not its own is left out. Returns the tasks that were measured."""
        touched = []
        for one in usage:
            attempt = self._model.attempts.get(one.attempt_uid)
            if attempt is not None and attempt.worker_id == worker_id and attempt.state in ACTIVE:
                self._now[attempt.uid] = one
                touched.append((attempt.job_id, attempt.task_index))
        return touched

    def say(self, uid: str, summary: str) -> list[Key]:
        """What an attempt says of itself. Returns its task, if it runs."""
        attempt = self._model.attempts.get(uid)
        if attempt is None or attempt.state not in ACTIVE:
            return []
        self._said[uid] = summary
        return [(attempt.job_id, attempt.task_index)]

    def note(self, batch: Committed) -> None:
        """Follows the state: what is over has no current use, and its peak for good."""
        changes = batch.changes
        for uid, attempt in changes.attempts.items():
            if attempt.state in ACTIVE:
                continue
            last = self._now.pop(uid, None)
            self._said.pop(uid, None)
            peak = max(attempt.memory_peak_bytes, last.memory_peak_bytes if last is not None else 0)
            if peak:
                of_job = self._peaks.setdefault(attempt.job_id, {})
                self._count += uid not in of_job
                of_job[uid] = max(peak, of_job.get(uid, 0))
        for job_id in changes.removed_jobs | changes.deleted_jobs:
            self._drop(job_id)
        while self._count > MAX_PEAKS and len(self._peaks) > 1:
            # What has ended is shown from the database soon enough.
            ended = (job_id for job_id in self._peaks if job_id in self._model.terminal)
            self._drop(next(ended, None) or next(iter(self._peaks)))

    def _drop(self, job_id: str) -> None:
        self._count -= len(self._peaks.pop(job_id, ()))

    def onto(self, status: controller_pb2.TaskStatus) -> None:
        """Adds what is known of the task's current attempt."""
        uid = status.attempt_uid
        said = self._said.get(uid)
        if said:
            status.status_md = said
        now, of_job = self._now.get(uid), self._peaks.get(status.job_id)
        if now is None and of_job is None:
            return
        peak = of_job.get(uid, 0) if of_job is not None else 0
        if now is not None:
            status.memory_bytes = now.memory_bytes
            status.cpu_millicores = now.cpu_millicores
            peak = max(peak, now.memory_peak_bytes)
        status.memory_peak_bytes = max(status.memory_peak_bytes, peak)

    def onto_attempt(self, status: controller_pb2.AttemptStatus) -> None:
        """Adds the peak so far of an attempt that runs."""
        now = self._now.get(status.attempt_uid)
        if now is not None:
            status.memory_peak_bytes = max(status.memory_peak_bytes, now.memory_peak_bytes)
