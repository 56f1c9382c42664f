"""Deadlines of live work: scheduling and execution timeouts.

A deadline is stored as wall time and runs as monotonic time: when it becomes known (commit or boot) what remains is
clamp(deadline - now, 0, original), and from then on the wall clock has no say (DESIGN §5.16).
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable

from iris_controller.loop import Committed, ControllerLoop
from iris_controller.state import kernel
from iris_controller.state.records import Attempt, Job
from iris_core.model.states import TERMINAL


class Timers:
    """Arms timers from committed batches and posts what expires."""

    def __init__(self, loop: ControllerLoop, clock: Callable[[], float] = time.monotonic) -> None:
        self._loop = loop
        self._clock = clock
        self._heap: list[tuple[float, str, str, int]] = []
        self._armed: set[tuple[str, str, int]] = set()
        self._wake = asyncio.Event()
        now_ms = loop.now_ms()
        for job in loop.model.jobs.values():
            self._arm_job(job, now_ms)
        for attempt in loop.model.attempts.values():
            self._arm_attempt(attempt, now_ms)
        loop.on_commit(self._committed)

    def _committed(self, batch: Committed) -> None:
        for job_id in batch.changes.new_jobs:
            job = self._loop.model.jobs.get(job_id)
            if job is not None:
                self._arm_job(job, batch.now_ms)
        for attempt in batch.changes.attempts.values():
            self._arm_attempt(attempt, batch.now_ms)

    def _arm_job(self, job: Job, now_ms: int) -> None:
        if job.scheduling_deadline_ms is None or job.job_id not in self._loop.model.pending:
            return
        original = job.spec.scheduling_timeout_ms
        self._arm("scheduling", job.job_id, job.submitted_at_ms, job.scheduling_deadline_ms - now_ms, original)

    def _arm_attempt(self, attempt: Attempt, now_ms: int) -> None:
        if attempt.started_at_ms is None or attempt.finished_at_ms is not None or attempt.state in TERMINAL:
            return
        job = self._loop.model.jobs.get(attempt.job_id)
        if job is None or not job.spec.timeout_ms:
            return
        original = job.spec.timeout_ms
        self._arm("execution", attempt.uid, 0, attempt.started_at_ms + original - now_ms, original)

    def _arm(self, kind: str, key: str, incarnation: int, remaining_ms: int, original_ms: int) -> None:
        name = (kind, key, incarnation)
        if name in self._armed:
            return
        self._armed.add(name)
        remaining = min(max(remaining_ms, 0), original_ms) / 1000
        heapq.heappush(self._heap, (self._clock() + remaining, *name))
        self._wake.set()

    async def run(self) -> None:
        """Runs for ever."""
        while True:
            self._wake.clear()
            wait = self._heap[0][0] - self._clock() if self._heap else None
            if wait is None or wait > 0:
                try:
                    async with asyncio.timeout(wait):
                        await self._wake.wait()
                except TimeoutError:
                    pass
                continue
            _, kind, key, incarnation = heapq.heappop(self._heap)
            self._armed.discard((kind, key, incarnation))
            if kind == "execution":
                self._loop.post("execution timeout", lambda o, ms, uid=key: kernel.time_out(o, uid, ms))  # type: ignore[misc]
            else:
                job = self._loop.model.jobs.get(key)
                if job is not None and job.submitted_at_ms == incarnation:
                    self._loop.post(
                        "scheduling timeout",
                        lambda o, ms, job_id=key: kernel.expire_scheduling(o, job_id, ms),  # type: ignore[misc]
                    )
