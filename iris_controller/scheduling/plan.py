"""The planner: which pending task goes to which worker, in slices that can be stopped and continued at any point.

It keeps no pass and no position in one. What it keeps are answers that stay true until something changes: which shapes found no
room, and which workers each search has ruled out. Every slice therefore begins at the most important work that may fit, and a plan
that was dropped with its batch costs nothing but its time. Must never change the model beyond draining the marks it left
for the planner, read a clock, or draw a random number.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from iris_controller.scheduling.order import OrderKey, order_key
from iris_controller.scheduling.reasons import reason_for
from iris_controller.scheduling.shape import Shape, ShapeKey, shape_key
from iris_controller.scheduling.snapshot import Fleet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_controller.state.model import Model
    from iris_controller.state.records import Job

MAX_ASSIGNMENTS: Final = 1_000
"""Most assignments in one slice (DESIGN §4)."""

GANG_WAITS: Final = "gangs are not placed yet"

_BUDGET_EVERY: Final = 32
"""Placements between two looks at the budget."""


@dataclass(slots=True)
class Plan:
    """One slice. `assignments` are (job id, task index, worker id), most important first, for `kernel.assign` in that order.

    `reasons` are the lines that changed, for `Model.reasons` where the job still has pending tasks. One that is not there when the
    next slice is planned is said again. `done` says that nothing more fits now.
    """

    assignments: list[tuple[str, int, str]] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    done: bool = True


class _Bucket:
    """The pending tasks of one job incarnation."""

    __slots__ = ("job_id", "key", "reason", "shape")

    def __init__(self, job: Job, key: OrderKey, shape: Shape) -> None:
        self.job_id = job.job_id
        self.key = key
        self.shape = shape
        self.reason = ""


class Planner:
    """Plans for one model, slice by slice.

    A slice must be applied or dropped, and what else was committed applied to the model, before the next is asked for: each one
    starts from what the model says then.
    """

    def __init__(self) -> None:
        self._model: Model | None = None
        self._reset()

    def _reset(self) -> None:
        self._fleet = Fleet()
        self._shapes: dict[ShapeKey, Shape] = {}
        self._buckets: dict[str, _Bucket] = {}
        self._queue: list[tuple[OrderKey, int, Shape]] = []
        """Shapes that may find room, by their first bucket; an entry may be out of date."""
        self._entries = 0
        self._log: list[str] = []
        """Workers that may have got room, oldest first; `_log_start` is the position of the first."""
        self._log_start = 0
        self._woken = 0
        """Position in the log up to which exhausted shapes have been woken."""
        self._charged: dict[str, None] = {}
        self._taken: dict[str, int] = {}
        self._saying: dict[str, str] = {}
        """The reasons of this slice; when the next begins, those of the last."""

    def plan(
        self,
        model: Model,
        max_assignments: int = MAX_ASSIGNMENTS,
        budget: Callable[[], bool] = lambda: True,
    ) -> Plan:
        """The next slice: at most `max_assignments`, and no more once `budget` says False.

        The first call with a model, and one with another model, reads all of it; later ones cost what has changed since.
        """
        self._take_in(model)
        plan = Plan()
        while self._queue:
            if len(plan.assignments) >= max_assignments or not budget():
                plan.done = False
                break
            shape = self._first()
            if shape is None:
                break
            self._serve(model, shape, plan, max_assignments, budget)
        plan.reasons = self._saying
        return plan

    # What has changed ----------------------------------------------------------------------------------------

    def _take_in(self, model: Model) -> None:
        if model is not self._model:
            self._reset()
            self._model = model
            model.unplanned_workers.clear()
            model.unplanned_jobs.clear()
            workers: set[str] = set(model.workers)
            jobs: set[str] = set(model.pending)
        else:
            workers = {w for w, row in model.workers.items() if self._is_new(w, row)}
            workers.update(self._charged, model.unplanned_workers)
            workers.update(self._fleet.nodes.keys() - model.workers.keys())
            jobs = model.unplanned_jobs.union(self._taken, self._saying)
            model.unplanned_workers.clear()
            model.unplanned_jobs.clear()
        self._charged.clear()
        self._taken.clear()
        self._saying = {}
        fleet = self._fleet.version
        for worker_id in sorted(workers):
            row = model.workers.get(worker_id)
            if row is None:
                self._fleet.drop(worker_id)
            elif self._fleet.put(row, model.usage_of(worker_id)):
                self._log.append(worker_id)
        if len(self._log) > 2 * len(self._fleet.nodes) + 1_000:
            self._log_start += len(self._log)
            self._log.clear()
        self._wake(fleet != self._fleet.version)
        for job_id in jobs:
            self._sync(model, job_id)

    def _is_new(self, worker_id: str, row: object) -> bool:
        node = self._fleet.nodes.get(worker_id)
        return node is None or node.worker is not row

    @property
    def _now(self) -> int:
        return self._log_start + len(self._log)

    def _wake(self, fleet_changed: bool) -> None:
        """Puts the exhausted shapes back into the queue that the latest changes may have made room or another reason for."""
        new = self._log[max(0, self._woken - self._log_start) :] if self._woken >= self._log_start else None
        self._woken = self._now
        if not fleet_changed and new is not None and not new:
            return
        nodes = [self._fleet.nodes[w] for w in new if w in self._fleet.nodes] if new is not None else []
        cpu = max((n.cpu for n in nodes), default=-1)
        memory = max((n.memory for n in nodes), default=-1)
        devices = max((n.devices for n in nodes), default=-1)
        for shape in self._shapes.values():
            if not shape.exhausted:
                continue
            wanted = shape.device[2] if shape.device is not None else 0
            fits = shape.cpu <= cpu and shape.memory <= memory and wanted <= devices if nodes else False
            if fleet_changed or new is None or fits or not shape.waits_for_slot.isdisjoint(new):
                self._enqueue(shape)

    def _sync(self, model: Model, job_id: str) -> None:
        """Makes the bucket of a job agree with the model."""
        bucket = self._buckets.get(job_id)
        job = model.jobs.get(job_id)
        if job is None or not model.pending.get(job_id):
            if bucket is not None:
                self._forget(bucket)
            return
        if job.spec.group_by:
            if bucket is not None:
                self._forget(bucket)
            if model.reasons.get(job_id, "") != GANG_WAITS:
                self._saying[job_id] = GANG_WAITS
            return
        key = order_key(job)
        if bucket is not None and bucket.key != key:
            self._forget(bucket)
            bucket = None
        if bucket is None:
            shape = self._shape(job)
            bucket = self._buckets[job_id] = _Bucket(job, key, shape)
            shape.size += 1
            heapq.heappush(shape.buckets, (key, job_id))
            if not shape.exhausted or shape.queued is not None:
                self._enqueue(shape)
        bucket.reason = model.reasons.get(job_id, "")
        shape = bucket.shape
        if bucket.reason == shape.reason:
            return
        if shape.exhausted and shape.queued is None:
            self._say(bucket)
        else:
            shape.untold[job_id] = None

    def _shape(self, job: Job) -> Shape:
        key = shape_key(job.spec)
        shape = self._shapes.get(key)
        if shape is None:
            group = self._fleet.group(key[3], key[2] is not None)
            group.shapes += 1
            shape = self._shapes[key] = Shape(key, group)
        return shape

    def _forget(self, bucket: _Bucket) -> None:
        del self._buckets[bucket.job_id]
        shape = bucket.shape
        shape.size -= 1
        if not shape.size:
            shape.queued = None
            del self._shapes[shape.key]
            self._fleet.release(shape.constraints, shape.device is not None)

    # The queue -----------------------------------------------------------------------------------------------

    def _top(self, shape: Shape) -> _Bucket | None:
        """The most important bucket of a shape that is still there and has tasks left in this slice."""
        while shape.buckets:
            key, job_id = shape.buckets[0]
            bucket = self._buckets.get(job_id)
            if bucket is not None and bucket.key == key and bucket.shape is shape:
                return bucket
            heapq.heappop(shape.buckets)
        return None

    def _enqueue(self, shape: Shape) -> None:
        bucket = self._top(shape)
        if bucket is None or (shape.queued is not None and shape.queued[0] == bucket.key):
            return
        self._entries += 1
        shape.queued = (bucket.key, self._entries)
        heapq.heappush(self._queue, (bucket.key, self._entries, shape))

    def _first(self) -> Shape | None:
        """Takes the shape with the most important bucket out of the queue."""
        while self._queue:
            key, entry, shape = heapq.heappop(self._queue)
            if shape.queued != (key, entry):
                continue
            shape.queued = None
            bucket = self._top(shape)
            if bucket is not None and bucket.key == key:
                return shape
            self._enqueue(shape)
        return None

    # Placing -------------------------------------------------------------------------------------------------

    def _serve(self, model: Model, shape: Shape, plan: Plan, max_assignments: int, budget: Callable[[], bool]) -> None:
        """Places the tasks of a shape's first bucket until they, the workers, the slice or the budget are used up."""
        nodes = self._fleet.nodes
        if shape.seen < self._log_start:
            shape.restart(nodes, self._now)
        elif shape.seen < self._now:
            shape.hear(dict.fromkeys(self._log[shape.seen - self._log_start :]), self._now)
        bucket = self._top(shape)
        assert bucket is not None
        job_id = bucket.job_id
        waiting = model.pending[job_id]
        taken = self._taken.get(job_id, 0)
        room = min(len(waiting) - taken, max_assignments - len(plan.assignments))
        placed = 0
        exhausted = False
        while placed < room:
            node = shape.find(nodes)
            if node is None:
                exhausted = True
                break
            shape.charge(node)
            worker_id = node.worker.worker_id
            self._charged[worker_id] = None
            plan.assignments.append((job_id, waiting[-1 - taken - placed], worker_id))
            placed += 1
            if placed % _BUDGET_EVERY == 0 and not budget():
                break
        if placed:
            self._taken[job_id] = taken + placed
        if exhausted:
            self._explain(shape)
            return
        shape.exhausted = False
        if taken + placed == len(waiting):
            self._forget(bucket)
        if shape.size:
            self._enqueue(shape)

    # Reasons -------------------------------------------------------------------------------------------------

    def _explain(self, shape: Shape) -> None:
        """Nothing fitted: says so for every bucket of the shape, unless that was said before."""
        shape.exhausted = True
        shape.waits_for_slot &= shape.group.members.keys()
        cause = (self._fleet.version, shape.group.version, bool(shape.waits_for_slot))
        whom: Iterable[str] = shape.untold
        if shape.reason_for != cause:
            before, shape.reason = shape.reason, reason_for(shape, self._fleet)
            shape.reason_for = cause
            if shape.reason != before:
                whom = [job_id for _, job_id in shape.buckets]
        for job_id in whom:
            bucket = self._buckets.get(job_id)
            if bucket is not None and bucket.shape is shape and bucket.reason != shape.reason:
                self._say(bucket)
        shape.untold.clear()

    def _say(self, bucket: _Bucket) -> None:
        bucket.reason = bucket.shape.reason
        self._saying[bucket.job_id] = bucket.reason
