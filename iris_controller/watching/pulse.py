"""The two rows of one: the controller's own condition, and the pulse of the fleet.

Both are put together from what others keep or count anyway. Must never wait for a log store that does not answer: what it said last is
told meanwhile, and nothing before its first word.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from iris_controller.autoscaling.groups import BLOCKED
from iris_controller.rpc.cluster import by_state
from iris_controller.rpc.views import leaving
from iris_controller.scheduling.funnel import FleetView
from iris_controller.scheduling.never import Candidate, Judgements, may_never_fit
from iris_controller.scheduling.order import serving
from iris_controller.watching.source import apart
from iris_core.model.bands import BANDS, PriorityBand
from iris_core.model.states import JOB_TERMINAL, WorkerHealth
from iris_core.wire.convert import HEALTH, band_to_wire
from iris_core.wire.gen.iris.v1 import common_pb2, pipeline_pb2, watch_rows_pb2

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from iris_controller.autoscaling.runner import Autoscaler
    from iris_controller.loop import ControllerLoop
    from iris_controller.rpc.cluster import About
    from iris_controller.state.model import Model
    from iris_controller.state.records import Job, Worker
    from iris_core.wire.gen.iris.v1 import backends_pb2

STORE_EVERY_S: Final = 5.0
"""How often the log store is asked how it is."""
FIRST_WORD_S: Final = 0.2
OLD_S: Final = 15.0
"""What the log store said longer ago, because nobody watched meanwhile, is no word on how it is now."""
JUDGED_S: Final = 5.0
"""So long it is believed what could never run: it takes a look at all workers to know."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the controller's row is put together from, besides the loop.

    own         this process
    lag         how late the loop is
    checkpoint  how the checkpoints stand
    store       asks the log store how it is; never raises
    shippers    how lines get away, by worker; "" is the controller itself
    watchers    how many streams are open
    background  the work that goes on for as long as the process lives
    """

    own: Callable[[], common_pb2.ProcessInfo]
    lag: Callable[[], watch_rows_pb2.LoopLag]
    checkpoint: Callable[[], watch_rows_pb2.CheckpointCondition]
    store: Callable[[], Awaitable[pipeline_pb2.StoreHealth]]
    shippers: Callable[[], Mapping[str, pipeline_pb2.ShipperHealth]]
    watchers: Callable[[], int]
    background: Callable[[], list[watch_rows_pb2.BackgroundTask]] = list


class ControllerCondition:
    """Looks at this process."""

    def __init__(self, loop: ControllerLoop, about: About, asked: Asked) -> None:
        self._loop = loop
        self._about = about
        self._asked = asked
        self._store = pipeline_pb2.StoreHealth()
        self._store_at = float("-inf")
        self._asking: asyncio.Task[pipeline_pb2.StoreHealth] | None = None

    async def look(self, task_ids: frozenset[str]) -> list[watch_rows_pb2.ControllerRow]:
        loop, about, asked = self._loop, self._about, self._asked
        await self._ask_store()
        model, stats, problems = loop.model, loop.stats, about.problems()
        waiting, lost = about.rows()
        late_worker, late_ms = _latest(asked.shippers())
        return [
            watch_rows_pb2.ControllerRow(
                controller_id="controller",
                cluster=about.cluster,
                process=asked.own(),
                started_at_ms=about.started_at_ms,
                state_dir=about.state_dir,
                lag=asked.lag(),
                queued_commands=loop.depth,
                writing_commands=loop.in_hand,
                watchers=asked.watchers(),
                attached_workers=sum(worker.attached for worker in model.workers.values()),
                last_plan_ms=stats.last_plan_ms,
                last_commit_ms=stats.last_commit_ms,
                batches=stats.batches,
                commands=stats.commands,
                failed_commits=stats.failed_commits,
                store_error=stats.store_error,
                checkpoint=asked.checkpoint(),
                store=self._store,
                shipping_lag_ms=late_ms,
                shipping_lag_worker=late_worker,
                stats_rows_waiting=waiting,
                stats_rows_lost=lost,
                ready=not problems,
                problems=problems,
                jobs=len(model.jobs),
                tasks=sum(map(len, model.tasks.values())),
                attempts=len(model.attempts),
                workers=len(model.workers),
                slices=len(model.slices),
                endpoints=len(model.endpoints),
                observed_at_ms=loop.now_ms(),
                background=asked.background(),
            )
        ]

    async def _ask_store(self) -> None:
        """Takes over what the store said; waits a moment for its first word, also after a while in which it was not asked."""
        now = time.monotonic()
        is_old = now - self._store_at > OLD_S
        if self._asking is None and now - self._store_at >= STORE_EVERY_S:
            self._asking = asyncio.ensure_future(self._asked.store())
            if is_old:
                await asyncio.wait({self._asking}, timeout=FIRST_WORD_S)
        if is_old:
            self._store = pipeline_pb2.StoreHealth()
        if self._asking is not None and self._asking.done():
            self._store, self._store_at, self._asking = self._asking.result(), now, None


def _latest(shippers: Mapping[str, pipeline_pb2.ShipperHealth]) -> tuple[str, int]:
    """Who is furthest behind with its lines, and how far."""
    name = max(shippers, key=lambda name: (shippers[name].lag_ms, name), default="")
    late_ms = shippers[name].lag_ms if name in shippers else 0
    return (name if late_ms else ""), late_ms


class Fleet:
    """Looks at the whole cluster in numbers."""

    def __init__(
        self,
        model: Model,
        since: Callable[[str], int],
        ends: Callable[[], watch_rows_pb2.HourOfEnds],
        backend: Callable[[], Awaitable[backends_pb2.BackendStatus]],
        scaler: Callable[[], Autoscaler | None],
    ) -> None:
        self._model = model
        self._since = since
        self._ends = ends
        self._backend = backend
        self._scaler = scaler
        self._judged = Judgements()
        self._judged_at = float("-inf")

    async def look(self, task_ids: frozenset[str]) -> list[watch_rows_pb2.FleetRow]:
        model = self._model
        row = watch_rows_pb2.FleetRow(
            fleet_id="fleet",
            pending=pending_by_band(model, self._since),
            ends=self._ends(),
            autoscaler=autoscaler_summary(model, self._scaler()),
        )
        jobs, workers = list(model.jobs.values()), list(model.workers.values())
        running = [dict(buckets) for buckets in model.tally.running.values()]
        size = len(jobs) + len(workers) + sum(map(len, running))
        await apart(size, _fill_fleet, row, model, jobs, workers, running)
        backend = await self._backend()
        row.total.CopyFrom(backend.total)
        row.committed.CopyFrom(backend.committed)
        row.devices.extend(backend.devices)
        await self._judge(row)
        return [row]

    async def _judge(self, row: watch_rows_pb2.FleetRow) -> None:
        """Says what waits in vain. Work that waits for its turn alone is not looked at."""
        model = self._model
        candidates = [
            Candidate(model.jobs[served.job_id], len(model.pending[served.job_id]), reason)
            for served in serving(model)
            if may_never_fit(reason := model.reasons.get(served.job_id, ""))
        ]
        if not candidates:
            return
        if time.monotonic() - self._judged_at >= JUDGED_S:
            self._judged_at = time.monotonic()
            self._judged.forget()
        scaler = self._scaler()
        states = scaler.states() if scaler is not None else []
        # Whatever the size: it holds each request against all workers.
        found = await asyncio.to_thread(self._judged.of, candidates, FleetView.of(model), states, model.obtained.copy())
        if found.first is not None:
            row.never_fits.CopyFrom(
                watch_rows_pb2.NeverFits(
                    tasks=found.tasks,
                    jobs=found.jobs,
                    job_id=found.first.job.job_id,
                    reason=found.first.reason,
                    unjudged=found.unjudged,
                )
            )


def _fill_fleet(
    row: watch_rows_pb2.FleetRow,
    model: Model,
    jobs: Sequence[Job],
    workers: Sequence[Worker],
    running: Iterable[dict[tuple[PriorityBand, str], int]],
) -> None:
    """May run beside the loop: slices are looked up one by one."""
    job_states, task_states = by_state(jobs)
    row.jobs_by_state.update(job_states)
    row.tasks_by_state.update(task_states)
    row.users = len({job.user_id for job in jobs if job.state not in JOB_TERMINAL})
    row.running.extend(running_by_band(running))
    health = Counter(worker.health for worker in workers)
    row.workers.extend(
        watch_rows_pb2.WorkersByHealth(health=HEALTH[state], count=health[state])
        for state in WorkerHealth
        if health[state]
    )
    row.workers_total = len(workers)
    row.workers_leaving = sum(bool(leaving(model, worker)) for worker in workers)
    row.workers_excluded = sum(
        worker.excluded and worker.health is WorkerHealth.HEALTHY and not leaving(model, worker) for worker in workers
    )


def pending_by_band(model: Model, since: Callable[[str], int]) -> list[watch_rows_pb2.BandPending]:
    """What waits in each band in which something does, highest first."""
    found: dict[PriorityBand, watch_rows_pb2.BandPending] = {}
    for job_id, _, band, _ in serving(model):
        row = found.get(band)
        if row is None:
            row = found[band] = watch_rows_pb2.BandPending(band=band_to_wire(band))
        row.tasks += len(model.pending[job_id])
        row.buckets += 1
        oldest = since(job_id)
        if not row.pending_since_ms or oldest < row.pending_since_ms:
            row.pending_since_ms, row.job_id = oldest, job_id
    return [found[band] for band in BANDS if band in found]


def running_by_band(running: Iterable[dict[tuple[PriorityBand, str], int]]) -> list[watch_rows_pb2.BandRunning]:
    """What runs in each band in which something does, highest first; `running` has each job's tasks by band and worker."""
    sums: Counter[PriorityBand] = Counter()
    for buckets in running:
        for (band, _), count in buckets.items():
            sums[band] += count
    return [watch_rows_pb2.BandRunning(band=band_to_wire(b), tasks=sums[b]) for b in BANDS if sums[b]]


def autoscaler_summary(model: Model, scaler: Autoscaler | None) -> watch_rows_pb2.AutoscalerSummary:
    """The autoscaler in numbers; of a cluster that makes no machines, its slices."""
    row = watch_rows_pb2.AutoscalerSummary(
        enabled=scaler is not None,
        slices_by_lifecycle=Counter(str(row.lifecycle) for row in model.slices.values()),
    )
    if scaler is not None:
        states = scaler.states()
        row.detail = scaler.fault or scaler.problem
        row.current_demand = sum(demand.count for demand in scaler.last.demands)
        row.last_evaluation_ms = scaler.last.at_ms
        row.groups = len(states)
        row.groups_blocked = sum(state.availability in BLOCKED for state in states)
    return row
