"""What one cycle may place at most: tasks of one job, and tasks on one worker (DESIGN §5.6).

Unlimited unless configured: fairness comes from the order. Where a cap is set, a job or a worker that has had its share rests until the
next cycle, and says so. The number of the cycle comes from outside; must never read a clock.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Caps:
    """0 = unlimited. Gangs are placed whole: a job's cap does not count for them."""

    tasks_per_job: int = 0
    tasks_per_worker: int = 0


UNCAPPED: Final = Caps()


class Cycle:
    """What has been placed in the current cycle, as far as a cap counts it."""

    def __init__(self, caps: Caps) -> None:
        self.caps = caps
        self._number = 0
        self._jobs: Counter[str] = Counter()
        self._workers: Counter[str] = Counter()
        self._before: tuple[Counter[str], Counter[str]] = Counter(), Counter()

    def begin(self, number: int, dropped: bool) -> tuple[set[str], set[str]]:
        """A slice begins, in the cycle of this number; `dropped`: what the last one placed has not come to be.

        Returns the jobs and the workers that may be able to take more now.
        """
        jobs, workers = set(self._jobs), set(self._workers)
        if number != self._number:
            self._jobs, self._workers = Counter(), Counter()
        elif dropped:
            self._jobs, self._workers = self._before
        else:
            jobs, workers = set(), set()
        self._number = number
        self._before = Counter(self._jobs), Counter(self._workers)
        return jobs, workers

    def left(self, job_id: str) -> int:
        """How many tasks of the job may still be placed in this cycle; only where there is a cap."""
        return max(0, self.caps.tasks_per_job - self._jobs[job_id])

    def job_rests(self, job_id: str) -> bool:
        return bool(self.caps.tasks_per_job) and not self.left(job_id)

    def worker_rests(self, worker_id: str) -> bool:
        return 0 < self.caps.tasks_per_worker <= self._workers[worker_id]

    def count_tasks(self, job_id: str, count: int) -> None:
        if self.caps.tasks_per_job:
            self._jobs[job_id] += count

    def count_worker(self, worker_id: str) -> bool:
        """One task more on the worker. Returns whether it rests now."""
        self._workers[worker_id] += 1
        return self.worker_rests(worker_id)

    @property
    def anything_rests(self) -> bool:
        return any(map(self.job_rests, self._jobs)) or any(map(self.worker_rests, self._workers))
