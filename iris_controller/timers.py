"""Deadlines of live work: scheduling and execution timeouts.

A deadline is stored as wall time and runs as monotonic time: when it becomes known (commit or boot) what remains is
clamp(deadline - now, 0, original), and from then on the wall clock has no say (DESIGN §5.16).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from iris_controller.commits import Committed
from iris_controller.deadlines import Deadlines
from iris_controller.loop import ControllerLoop
from iris_controller.state import kernel
from iris_controller.state.overlay import Overlay
from iris_controller.state.records import Attempt, Job
from iris_core.model.states import JOB_TERMINAL, TERMINAL

Name = tuple[str, str, int]
"""Kind, job id or attempt uid, incarnation."""


class Timers:
    """Arms timers from committed batches and posts what expires."""

    def __init__(self, loop: ControllerLoop, clock: Callable[[], float] = time.monotonic) -> None:
        self._loop = loop
        self._deadlines: Deadlines[Name] = Deadlines(clock)
        now_ms = loop.now_ms()
        for job in loop.model.jobs.values():
            self._arm_job(job, now_ms)
        for attempt in loop.model.attempts.values():
            self._arm_attempt(attempt, now_ms)
        loop.on_commit(self._committed)

    @property
    def waiting(self) -> int:
        """Entries held, of ended work too."""
        return self._deadlines.held

    def _committed(self, batch: Committed) -> None:
        jobs = self._loop.model.jobs
        for job_id in batch.changes.new_jobs:
            job = jobs.get(job_id)
            if job is not None:
                self._arm_job(job, batch.now_ms)
        for job_id in batch.changes.jobs:
            job = jobs.get(job_id)
            if job is not None and job.scheduling_deadline_ms is not None and job.state in JOB_TERMINAL:
                self._deadlines.disarm(("scheduling", job_id, job.submitted_at_ms))
        for attempt in batch.changes.attempts.values():
            self._arm_attempt(attempt, batch.now_ms)

    def _arm_job(self, job: Job, now_ms: int) -> None:
        if job.scheduling_deadline_ms is None or job.scheduling_expired or job.state in JOB_TERMINAL:
            return
        original = job.spec.scheduling_timeout_ms
        name = ("scheduling", job.job_id, job.submitted_at_ms)
        self._arm(name, job.scheduling_deadline_ms - now_ms, original)

    def _arm_attempt(self, attempt: Attempt, now_ms: int) -> None:
        name = ("execution", attempt.uid, 0)
        if attempt.started_at_ms is None or attempt.finished_at_ms is not None or attempt.state in TERMINAL:
            self._deadlines.disarm(name)
            return
        job = self._loop.model.jobs.get(attempt.job_id)
        if job is None or not job.spec.timeout_ms:
            return
        original = job.spec.timeout_ms
        self._arm(name, attempt.started_at_ms + original - now_ms, original)

    def _arm(self, name: Name, remaining_ms: int, original_ms: int) -> None:
        if name not in self._deadlines:
            self._deadlines.arm(name, min(max(remaining_ms, 0), original_ms) / 1000)

    async def run(self) -> None:
        """Runs for ever."""
        await self._deadlines.run(self.fire)

    def fire(self) -> int:
        """Posts everything that is due. Returns how much."""
        fired = 0
        for name in self._deadlines.due():
            self._deadlines.disarm(name)
            kind, key, incarnation = name
            if kind == "execution":
                self._loop.post("execution timeout", partial(_time_out, key))
            elif self._is_current(key, incarnation):
                self._loop.post("scheduling timeout", partial(_expire, key, incarnation))
            else:
                continue
            fired += 1
        return fired

    def _is_current(self, job_id: str, incarnation: int) -> bool:
        job = self._loop.model.jobs.get(job_id)
        return job is not None and job.submitted_at_ms == incarnation


def _time_out(attempt_uid: str, o: Overlay, now_ms: int) -> None:
    kernel.time_out(o, attempt_uid, now_ms)


def _expire(job_id: str, incarnation: int, o: Overlay, now_ms: int) -> None:
    """The name may have been given to another job while the command waited."""
    job = o.job(job_id)
    if job is not None and job.submitted_at_ms == incarnation:
        kernel.expire_scheduling(o, job_id, now_ms)
