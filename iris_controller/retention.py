"""Removes what has been over for long enough, now and then and a little at a time, so that neither the database nor the list of
workers grows for ever (control-plane §2.1).

Jobs go by the stored time of their end, workers by the monotonic time of their silence. Each batch is one command in the loop's
queue and small, so that nobody waits long behind it. Must never remove anything by itself: `state.retention` does.
"""

from __future__ import annotations

import logging
import sqlite3
from functools import partial
from typing import TYPE_CHECKING, Final

from iris_controller.rpc.errors import RpcError
from iris_controller.state.retention import EndedTree, prune_jobs, prune_part, prune_worker
from iris_core.live.clock import SystemClock
from iris_core.model.states import WorkerHealth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from iris_controller.loop import ControllerLoop
    from iris_controller.state.overlay import Overlay
    from iris_controller.store.reads import Readers
    from iris_core.config.retention import Retention
    from iris_core.live.clock import Clock

log = logging.getLogger("iris.retention")

BATCH_JOBS: Final = 50
BATCH_TASKS: Final = 200
"""A task takes a row, its attempts and a dozen index entries along: more at once would be felt by whoever waits behind."""
BATCH_WORKERS: Final = 100
PAGE_JOBS: Final = 5_000
FIRST_S: Final = 60.0
"""After the start, when there is more urgent work."""

EXPIRED: Final = """
  SELECT j.job_id, j.submitted_at_ms, j.finished_at_ms,
    (SELECT sum(k.num_tasks) FROM jobs k WHERE k.root_job_id = j.job_id) AS tasks,
    (SELECT count(*) FROM jobs k WHERE k.root_job_id = j.job_id) AS jobs
  FROM jobs j
  WHERE j.parent_job_id IS NULL AND j.finished_at_ms < ?1 AND (j.finished_at_ms, j.submitted_at_ms) > (?2, ?3)
    AND NOT EXISTS (
      SELECT 1 FROM jobs k WHERE k.root_job_id = j.job_id AND (k.finished_at_ms IS NULL OR k.finished_at_ms >= ?1))
  ORDER BY j.finished_at_ms, j.submitted_at_ms LIMIT ?4
"""
TREE: Final = "SELECT job_id, num_tasks FROM jobs WHERE root_job_id = ? ORDER BY depth DESC, submitted_at_ms"


class Pruner:
    """See the module. `silent_ms` says how long a worker has not been heard of."""

    def __init__(
        self,
        loop: ControllerLoop,
        readers: Readers,
        retention: Retention,
        silent_ms: Callable[[str], int],
        clock: Clock | None = None,
    ) -> None:
        self._loop = loop
        self._readers = readers
        self._retention = retention
        self._silent_ms = silent_ms
        self._clock = clock or SystemClock()

    async def run(self) -> None:
        """For ever."""
        interval = self._retention.prune_interval_ms / 1000
        await self._clock.sleep(min(interval, FIRST_S))
        while True:
            try:
                await self.prune()
            except (RpcError, sqlite3.Error) as error:
                log.warning("what is over for long was not removed, and will be later: %s", error)
            await self._clock.sleep(interval)

    async def prune(self) -> tuple[int, int]:
        """One look. Returns how many trees of jobs and how many workers went. Raises RpcError or sqlite3.Error."""
        return await self._jobs(), await self._workers()

    async def _jobs(self) -> int:
        if not self._retention.job_ms:
            return 0
        before_ms = self._loop.now_ms() - self._retention.job_ms
        removed, after = 0, (-1, -1)
        while True:
            rows = await self._readers.run(partial(_expired, before_ms, after))
            trees = [EndedTree(row["job_id"], row["submitted_at_ms"], row["tasks"], row["jobs"]) for row in rows]
            for batch in _batches(tree for tree in trees if not _is_large(tree)):
                removed += await self._loop.submit("prune jobs", partial(_plan_jobs, batch))
            for tree in filter(_is_large, trees):
                removed += await self._large(tree)
            if len(rows) < PAGE_JOBS:
                return removed
            after = (rows[-1]["finished_at_ms"], rows[-1]["submitted_at_ms"])

    async def _large(self, tree: EndedTree) -> int:
        """Takes a tree apart from below: tasks, then jobs, the root last. What a kill leaves of it goes the next time."""
        jobs = await self._readers.run(partial(_jobs_of, tree.job_id))
        for tasks in _task_parts(jobs):
            if not await self._loop.submit("prune tasks", partial(_plan_part, tree, tasks, ())):
                return 0
        below = [job_id for job_id, _ in jobs if job_id != tree.job_id]
        for first in range(0, len(below), BATCH_JOBS):
            part = below[first : first + BATCH_JOBS]
            if not await self._loop.submit("prune jobs", partial(_plan_part, tree, (), part)):
                return 0
        return await self._loop.submit("prune jobs", partial(_plan_jobs, [tree]))

    async def _workers(self) -> int:
        if not self._retention.worker_ms:
            return 0
        gone = [
            worker.worker_id
            for worker in self._loop.model.workers.values()
            if worker.health is WorkerHealth.DEAD and self._is_silent(worker.worker_id)
        ]
        removed = 0
        for first in range(0, len(gone), BATCH_WORKERS):
            batch = gone[first : first + BATCH_WORKERS]
            removed += await self._loop.submit("prune workers", partial(self._plan_workers, batch))
        return removed

    def _is_silent(self, worker_id: str) -> bool:
        return self._silent_ms(worker_id) >= self._retention.worker_ms

    def _plan_workers(self, worker_ids: Sequence[str], o: Overlay, _now_ms: int) -> int:
        return sum(self._is_silent(worker_id) and prune_worker(o, worker_id) for worker_id in worker_ids)


def _expired(before_ms: int, after: tuple[int, int], db: sqlite3.Connection) -> list[sqlite3.Row]:
    return db.execute(EXPIRED, (before_ms, *after, PAGE_JOBS)).fetchall()


def _plan_jobs(trees: Sequence[EndedTree], o: Overlay, _now_ms: int) -> int:
    return prune_jobs(o, trees)


def _plan_part(
    tree: EndedTree, tasks: Sequence[tuple[str, int]], job_ids: Sequence[str], o: Overlay, _now_ms: int
) -> bool:
    return prune_part(o, tree, tasks, job_ids)


def _jobs_of(root: str, db: sqlite3.Connection) -> list[tuple[str, int]]:
    """The jobs of a tree with their numbers of tasks, deepest first."""
    return [(row["job_id"], row["num_tasks"]) for row in db.execute(TREE, (root,))]


def _is_large(tree: EndedTree) -> bool:
    return tree.tasks > BATCH_TASKS or tree.jobs > BATCH_JOBS


def _task_parts(jobs: Iterable[tuple[str, int]]) -> Iterator[list[tuple[str, int]]]:
    """Up to which index the tasks of which jobs go, a batch at a time."""
    part: list[tuple[str, int]] = []
    room = BATCH_TASKS
    for job_id, tasks in jobs:
        gone = 0
        while gone < tasks:
            taken = min(room, tasks - gone)
            gone += taken
            room -= taken
            part.append((job_id, gone))
            if not room:
                yield part
                part, room = [], BATCH_TASKS
    if part:
        yield part


def _batches(trees: Iterable[EndedTree]) -> Iterator[list[EndedTree]]:
    """Small trees, as many as may go at once."""
    batch: list[EndedTree] = []
    tasks = jobs = 0
    for tree in trees:
        if batch and (jobs + tree.jobs > BATCH_JOBS or tasks + tree.tasks > BATCH_TASKS):
            yield batch
            batch, tasks, jobs = [], 0, 0
        batch.append(tree)
        tasks += tree.tasks
        jobs += tree.jobs
    if batch:
        yield batch
