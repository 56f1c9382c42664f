"""Deadlines of live work: scheduling and execution timeouts.

A deadline is stored as wall time and runs as monotonic time: when it becomes known (commit or boot) what remains is
clamp(deadline - now, 0, original), and from then on the wall clock has no say (DESIGN §5.16).
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from functools import partial

from iris_controller.loop import Committed, ControllerLoop
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
        self._clock = clock
        self._heap: list[tuple[float, Name]] = []
        self._armed: set[Name] = set()
        """What in the heap still counts."""
        self._wake = asyncio.Event()
        now_ms = loop.now_ms()
        for job in loop.model.jobs.values():
            self._arm_job(job, now_ms)
        for attempt in loop.model.attempts.values():
            self._arm_attempt(attempt, now_ms)
        loop.on_commit(self._committed)

    @property
    def waiting(self) -> int:
        """Entries held, of ended work too."""
        return len(self._heap)

    def _committed(self, batch: Committed) -> None:
        jobs = self._loop.model.jobs
        for job_id in batch.changes.new_jobs:
            job = jobs.get(job_id)
            if job is not None:
                self._arm_job(job, batch.now_ms)
        for job_id in batch.changes.jobs:
            job = jobs.get(job_id)
            if job is not None and job.scheduling_deadline_ms is not None and job.state in JOB_TERMINAL:
                self._armed.discard(("scheduling", job_id, job.submitted_at_ms))
        for attempt in batch.changes.attempts.values():
            self._arm_attempt(attempt, batch.now_ms)
        if len(self._heap) > 2 * len(self._armed) + 1_000:
            self._heap = [entry for entry in self._heap if entry[1] in self._armed]
            heapq.heapify(self._heap)

    def _arm_job(self, job: Job, now_ms: int) -> None:
        if job.scheduling_deadline_ms is None or job.scheduling_expired or job.state in JOB_TERMINAL:
            return
        original = job.spec.scheduling_timeout_ms
        name = ("scheduling", job.job_id, job.submitted_at_ms)
        self._arm(name, job.scheduling_deadline_ms - now_ms, original)

    def _arm_attempt(self, attempt: Attempt, now_ms: int) -> None:
        name = ("execution", attempt.uid, 0)
        if attempt.started_at_ms is None or attempt.finished_at_ms is not None or attempt.state in TERMINAL:
            self._armed.discard(name)
            return
        job = self._loop.model.jobs.get(attempt.job_id)
        if job is None or not job.spec.timeout_ms:
            return
        original = job.spec.timeout_ms
        self._arm(name, attempt.started_at_ms + original - now_ms, original)

    def _arm(self, name: Name, remaining_ms: int, original_ms: int) -> None:
        if name in self._armed:
            return
        self._armed.add(name)
        remaining = min(max(remaining_ms, 0), original_ms) / 1000
        heapq.heappush(self._heap, (self._clock() + remaining, name))
        self._wake.set()

    async def run(self) -> None:
        """Runs for ever."""
        while True:
            self._wake.clear()
            self.fire()
            wait = self._heap[0][0] - self._clock() if self._heap else None
            try:
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def fire(self) -> int:
        """Posts everything that is due. Returns how much."""
        fired = 0
        while self._heap and self._heap[0][0] <= self._clock():
            name = heapq.heappop(self._heap)[1]
            if name not in self._armed:
                continue
            self._armed.discard(name)
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
