"""What the controller writes into the stats tables, and when: events after commits, counts and metrics every half minute.

A committed batch is only put aside where it is announced; it is told in a thread, and in a burst with pauses, so that placing ten
thousand tasks is not slowed by talking about it. Must never hold up the loop, and never change anything.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import TYPE_CHECKING

from iris_controller.stats import provisioning, task_state
from iris_controller.stats.task_events import TaskEvents
from iris_controller.stats.telltale import RpcMetrics
from iris_core.model.namespaces import PROVISIONING, TASK_EVENT, TASK_STATE, TELLTALE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from iris_controller.autoscaling.actions import Outcome
    from iris_controller.commits import Committed
    from iris_controller.http.metrics import Metrics
    from iris_controller.loop import ControllerLoop
    from iris_controller.state.records import Attempt, Job, Task
    from iris_controller.stats.client import StatsClient
    from iris_core.config.scale_groups import ScaleGroup

log = logging.getLogger("iris.stats")

STATE_EVERY_S = 30.0
METRICS_EVERY_S = 30.0
GATHER_S = 0.1
SLICE_ROWS = 500
"""So many changed rows are told at once."""
REST = 6.0
"""In a burst, how much longer it rests than it works: a seventh of a core at most."""
BACKLOG_ROWS = 2_000
"""Below this there is no burst."""


class Producers:
    """See the module. Listens from the moment it is made."""

    def __init__(
        self,
        loop: ControllerLoop,
        stats: StatsClient,
        cluster: str,
        boot_id: str,
        groups: Mapping[str, ScaleGroup],
        metrics: Metrics,
        requeued: Mapping[task_state.Key, int],
    ) -> None:
        self._loop = loop
        self._model = loop.model
        self._stats = stats
        self._groups = groups
        self._metrics = metrics
        self._events = TaskEvents(cluster, loop.model.attempts.values())
        self._waits = task_state.Waits(requeued)
        self._rpc = RpcMetrics("/system/controller", cluster, boot_id)
        self._batches: deque[tuple[Committed, dict[str, Job]]] = deque()
        self._put_aside = 0
        self._told = 0
        """Changed rows; the one counts on the loop, the other where they are told."""
        self._wake = asyncio.Event()
        loop.on_commit(self._committed)

    def _committed(self, batch: Committed) -> None:
        changes = batch.changes
        count = len(changes.attempts) + len(changes.tasks)
        if not count and not changes.deleted_jobs:
            return
        jobs = self._model.jobs
        self._batches.append((batch, {job_id: jobs[job_id] for job_id in changes.jobs if job_id in jobs}))
        self._put_aside += count
        self._wake.set()

    def provisioned(self, outcome: Outcome) -> None:
        """Tells how a request for a slice ended."""
        self._stats.write(PROVISIONING, provisioning.row(outcome, self._groups.get(outcome.group), self._loop.now_ms()))

    # Events -------------------------------------------------------------------------------------------------

    async def tell_events(self) -> None:
        """For ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(GATHER_S)
            while self._batches:
                spent = await asyncio.to_thread(self._tell_slice)
                if self._put_aside - self._told > BACKLOG_ROWS:
                    await asyncio.sleep(REST * spent)

    def _tell_slice(self) -> float:
        """Blocks. Returns the processor time it took, in seconds."""
        began = time.thread_time()
        enough = self._told + SLICE_ROWS
        while self._batches and self._told < enough:
            batch, jobs = self._batches.popleft()
            self._told += len(batch.changes.attempts) + len(batch.changes.tasks)
            try:
                self._waits.note(batch.changes, batch.now_ms)
                self._stats.write_all(TASK_EVENT, self._events.of(batch.changes, jobs, batch.now_ms))
            except Exception:
                log.exception("a batch cannot be told as events")
        return time.thread_time() - began

    def tell_rest(self) -> None:
        """What has not been told yet, at once. Blocks; for the end."""
        while self._batches:
            self._tell_slice()

    # Every half minute --------------------------------------------------------------------------------------

    async def tell_states(self) -> None:
        """For ever; the first time at once."""
        while True:
            model = self._model
            # Copies of the containers; the records in them never change.
            jobs, attempts = list(model.jobs.values()), list(model.attempts.values())
            pending = [
                (model.tasks[job_id].copy(), waiting.copy())
                for job_id, waiting in model.pending.items()
                if job_id in model.tasks
            ]
            await self._tell(self._tell_state, jobs, pending, attempts)
            await asyncio.sleep(STATE_EVERY_S)

    async def tell_metrics(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(METRICS_EVERY_S)
            await self._tell(self._tell_metrics)

    @staticmethod
    async def _tell(work: Callable[..., None], *values: object) -> None:
        try:
            await asyncio.to_thread(work, *values)
        except Exception:
            log.exception("a reading failed")

    def _tell_state(
        self, jobs: list[Job], pending: list[tuple[list[Task], list[int]]], attempts: list[Attempt]
    ) -> None:
        waiting = [tasks[index] for tasks, indices in pending for index in indices]
        now_ms = self._loop.now_ms()
        self._stats.write_all(TASK_STATE, task_state.rows(jobs, waiting, attempts, self._waits, now_ms))

    def _tell_metrics(self) -> None:
        self._stats.write_all(TELLTALE, self._rpc.rows(self._metrics.registry.collect(), self._loop.now_ms()))
