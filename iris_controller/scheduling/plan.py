"""The planner: which pending task goes to which worker, in slices that can be stopped and continued at any point.

It keeps no position in its work. What it keeps are answers that stay true until something changes: which shapes found no room, which
workers each search has ruled out, and whose turn it is. Every slice therefore begins at the most important work that may fit, and a plan
that was dropped with its batch costs nothing but its time. Must never change the model beyond draining the marks it left
for the planner, read a clock, or draw a random number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_controller.scheduling.changelog import ChangeLog
from iris_controller.scheduling.cycle import UNCAPPED, Caps, Cycle
from iris_controller.scheduling.displacing import Displacer
from iris_controller.scheduling.gangs import GangKey, GangShape
from iris_controller.scheduling.order import order_key
from iris_controller.scheduling.pausing import OutOfBudget
from iris_controller.scheduling.plans import Assignment, GangPlacement, Plan
from iris_controller.scheduling.reasons import JOB_RESTS, over_budget, reason_for
from iris_controller.scheduling.shape import Shape, ShapeKey, shape_key
from iris_controller.scheduling.snapshot import Fleet
from iris_controller.scheduling.turns import Bucket, Turns, User
from iris_controller.state.budgets import budget_user, task_value
from iris_controller.state.model import Model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from iris_controller.scheduling.pausing import Budget
    from iris_controller.state.records import Job

MAX_ASSIGNMENTS: Final = 1_000
"""Most assignments in one slice (DESIGN §4)."""

_BUDGET_EVERY: Final = 32
"""Placements between two looks at the budget."""


class Planner:
    """Plans for one model, slice by slice.

    A slice must be applied or dropped as a whole, and what else was committed applied to the model, before the next is asked for:
    each one starts from what the model says then.
    """

    def __init__(self, caps: Caps = UNCAPPED) -> None:
        self._caps = caps
        self._reset(Model())

    def _reset(self, model: Model) -> None:
        self._model = model
        self._fleet = Fleet()
        self._turns = Turns()
        self._cycle = Cycle(self._caps)
        self._shapes: dict[ShapeKey | GangKey, Shape] = {}
        self._buckets: dict[str, Bucket] = {}
        self._log: list[str] = []
        """Workers that may have got room, oldest first; `_log_start` is the position of the first."""
        self._log_start = 0
        self._woken = 0
        """Position in the log up to which closed shapes have been woken."""
        self._touched = ChangeLog()
        """Workers on which anything changed, for gangs and for evictions."""
        self._displacer = Displacer(model, self._fleet.nodes, self._touched)
        self._charged: dict[str, None] = {}
        self._taken: dict[str, int] = {}
        self._spenders: dict[str, None] = {}
        self._saying: dict[str, str] = {}
        """The reasons of this slice; when the next begins, those of the last."""
        self._last = Plan()
        self._last_number = -1
        """Attempt number, before, of the first task that the last slice assigned."""

    def plan(
        self,
        model: Model,
        max_assignments: int = MAX_ASSIGNMENTS,
        budget: Callable[[], bool] = lambda: True,
        cycle: int = 0,
    ) -> Plan:
        """The next slice: at most `max_assignments`, and no more once `budget` says False. `cycle` is the number of the current one.

        The first call with a model, and one with another model, reads all of it; later ones cost what has changed since.
        """
        self._take_in(model, cycle)
        plan = Plan()
        while (bucket := self._turns.first()) is not None:
            if plan.size >= max_assignments or not budget():
                plan.done = False
                break
            try:
                if isinstance(bucket.line.shape, GangShape):
                    self._serve_gang(model, bucket, bucket.line.shape, plan, budget)
                else:
                    self._serve(model, bucket, plan, max_assignments, budget)
            except OutOfBudget:
                plan.done = False
                break
        plan.reasons = self._saying
        plan.resting = self._cycle.anything_rests
        if plan.done:
            # Every search has ended and knows all of it.
            self._log_start = self._now
            self._log.clear()
        self._last = plan
        first = plan.first()
        if first is not None:
            self._last_number = model.tasks[first[0]][first[1]].attempt_number
        return plan

    def unplaced(self) -> Iterator[tuple[str, bool]]:
        """The jobs whose pending tasks found no room when last tried, and whether that is for want of a setup slot alone.

        In no order. What has not been tried yet is not among them: it may fit.
        """
        for bucket in self._buckets.values():
            if not bucket.line.shape.open:
                yield bucket.job_id, bool(bucket.line.shape.waits_for_slot)

    # What has changed ----------------------------------------------------------------------------------------

    def _take_in(self, model: Model, cycle: int) -> None:
        if model is not self._model:
            self._reset(model)
            workers: set[str] = set(model.workers)
            jobs: set[str] = set(model.pending)
            users: set[str] = set()
            self._cycle.begin(cycle, dropped=False)
        else:
            workers = model.unplanned_workers.union(self._charged)
            jobs = model.unplanned_jobs.union(self._taken, self._saying)
            users = model.unplanned_users.union(self._spenders)
            dropped = self._was_dropped(model)
            self._turns.begin(dropped, self._last.done)
            rested_jobs, rested_workers = self._cycle.begin(cycle, dropped)
            jobs |= rested_jobs
            self._rouse(rested_workers)
        model.unplanned_workers.clear()
        model.unplanned_jobs.clear()
        model.unplanned_users.clear()
        self._charged.clear()
        self._taken.clear()
        self._spenders.clear()
        self._saying = {}
        self._take_in_workers(model, workers)
        for user_id in sorted(users):
            self._take_in_user(model, user_id)
        come: list[Job] = []
        for job_id in jobs:
            job = model.jobs.get(job_id)
            if job is None or not model.pending.get(job_id) or (job_id, job.submitted_at_ms) in model.sealed_elsewhere:
                self._forget(job_id)
            else:
                come.append(job)
        for job in sorted(come, key=lambda each: each.priority_insertion):
            self._sync(model, job)
        self._turns.sweep()

    def _rouse(self, workers: set[str]) -> None:
        """Workers that had their share of a cycle may take more."""
        for worker_id in sorted(workers):
            node = self._fleet.nodes.get(worker_id)
            if node is not None and node.resting and not self._cycle.worker_rests(worker_id):
                node.resting = False
                self._log.append(worker_id)
                self._touched.add((worker_id,))

    def _was_dropped(self, model: Model) -> bool:
        """Whether the last slice has not come to be."""
        first = self._last.first()
        if first is None:
            return False
        task = model.task(*first)
        return task is not None and task.attempt_number == self._last_number

    def _take_in_workers(self, model: Model, workers: set[str]) -> None:
        version = self._fleet.version
        for worker_id in sorted(workers):
            row = model.workers.get(worker_id)
            if row is None:
                self._fleet.drop(worker_id)
            elif self._fleet.put(row, model.usage_of(worker_id)):
                self._log.append(worker_id)
        if len(self._log) > 2 * len(self._fleet.nodes) + 1_000:
            self._log_start += len(self._log)
            self._log.clear()
        self._touched.trim(2 * len(self._fleet.nodes) + 1_000)
        self._touched.add(workers)
        self._displacer.begin(workers, self._turns.ranks())
        self._wake(version != self._fleet.version)

    @property
    def _now(self) -> int:
        return self._log_start + len(self._log)

    def _wake(self, fleet_changed: bool) -> None:
        """Opens the closed shapes that the latest changes may have made room or another reason for."""
        new = self._log[max(0, self._woken - self._log_start) :] if self._woken >= self._log_start else None
        self._woken = now = self._now
        if not fleet_changed and new is not None and not new and not self._displacer.hopeful:
            return
        nodes = [self._fleet.nodes[w] for w in new if w in self._fleet.nodes] if new is not None else []
        cpu = max((n.cpu for n in nodes), default=-1)
        memory = max((n.memory for n in nodes), default=-1)
        devices = max((n.devices for n in nodes), default=-1)
        for shape in self._shapes.values():
            if shape.open:
                continue
            fits = shape.cpu <= cpu and shape.memory <= memory and shape.devices <= devices
            if fleet_changed or new is None or fits or (new and not shape.waits_for_slot.isdisjoint(new)):
                self._open(shape)
            else:
                shape.seen = now
                if self._displacer.may_help(shape):
                    self._open(shape)

    def _open(self, shape: Shape) -> None:
        shape.reopen()
        for line in shape.lines.values():
            self._turns.offer(line)

    def _user(self, model: Model, user_id: str) -> User:
        user = self._turns.users.get(user_id)
        if user is None:
            user = self._turns.users[user_id] = User(model.budget_of(user_id), model.spent.get(user_id, 0))
        return user

    def _take_in_user(self, model: Model, user_id: str) -> None:
        user = self._turns.users.get(user_id)
        if user is not None:
            for bucket in self._turns.spends(user, model.budget_of(user_id), model.spent.get(user_id, 0)):
                self._reconsider(bucket)

    def _sync(self, model: Model, job: Job) -> None:
        """Makes the bucket of a job with pending tasks agree with the model."""
        job_id = job.job_id
        if self._cycle.job_rests(job_id) and not job.spec.group_by:
            self._forget(job_id)
            if model.reasons.get(job_id, "") != JOB_RESTS:
                self._saying[job_id] = JOB_RESTS
            return
        key, asked = order_key(job), _asked(job, len(model.pending[job_id]))
        bucket = self._buckets.get(job_id)
        if bucket is not None and (bucket.key != key or bucket.line.shape is not self._shapes.get(asked)):
            self._forget(job_id)
            bucket = None
        if bucket is None:
            value, band = task_value(job.spec.resources), job.spec.band.resolve(None)
            user = self._user(model, budget_user(job))
            bucket = self._buckets[job_id] = self._turns.add(job_id, key, value, band, user, self._shape(asked))
        bucket.reason = model.reasons.get(job_id, "")
        self._reconsider(bucket)

    def _reconsider(self, bucket: Bucket) -> None:
        """A bucket came, or is served in another band: where others of its shape found no room it may have somebody to evict."""
        shape = bucket.line.shape
        if not shape.open and self._displacer.any_below(bucket.line.lane.seat.band):
            self._open(shape)
        self._tell(bucket)

    def _shape(self, key: ShapeKey | GangKey) -> Shape:
        shape = self._shapes.get(key)
        if shape is None:
            asked = key[0] if len(key) == 3 else key
            group = self._fleet.group(asked[3], asked[2] is not None)
            group.shapes += 1
            shape = self._shapes[key] = GangShape(key, group) if len(key) == 3 else Shape(key, group)
        return shape

    def _forget(self, job_id: str) -> None:
        bucket = self._buckets.pop(job_id, None)
        if bucket is None:
            return
        shape = bucket.line.shape
        self._turns.remove(bucket)
        if not shape.size:
            shape.reopen()
            del self._shapes[shape.gang_key if isinstance(shape, GangShape) else shape.key]
            self._fleet.release(shape.constraints, shape.device is not None)

    # Placing -------------------------------------------------------------------------------------------------

    def _serve(
        self, model: Model, bucket: Bucket, plan: Plan, max_assignments: int, budget: Callable[[], bool]
    ) -> None:
        """Places tasks of a bucket until they, its turn, the workers, the slice or the budget are used up."""
        nodes = self._fleet.nodes
        shape = bucket.line.shape
        if shape.seen < self._log_start:
            shape.restart(self._now)
        if shape.seen < self._now:
            shape.hear(dict.fromkeys(self._log[shape.seen - self._log_start :]), self._now)
        job_id, band = bucket.job_id, bucket.line.lane.seat.band
        waiting = model.pending[job_id]
        taken = self._taken.get(job_id, 0)
        room = min(len(waiting) - taken, max_assignments - plan.size, self._turns.run(bucket))
        if self._caps.tasks_per_job:
            room = min(room, self._cycle.left(job_id))
        placed = 0
        node = None
        while placed < room:
            node = shape.find(nodes)
            if node is None:
                break
            shape.charge(node)
            worker_id = node.worker_id
            self._charged[worker_id] = None
            if self._caps.tasks_per_worker:
                node.resting = self._cycle.count_worker(worker_id)
            plan.assignments.append(Assignment(job_id, waiting[-1 - taken - placed], worker_id, band))
            placed += 1
            if placed % _BUDGET_EVERY == 0 and not budget():
                break
        if placed:
            self._touched.add(assignment.worker_id for assignment in plan.assignments[-placed:])
            self._cycle.count_tasks(job_id, placed)
            self._served(model, bucket, placed, plan)
        else:
            self._evict_or_close(model, bucket, plan, budget)

    def _served(self, model: Model, bucket: Bucket, placed: int, plan: Plan) -> None:
        job_id = bucket.job_id
        plan.size += placed
        taken = self._taken[job_id] = self._taken.get(job_id, 0) + placed
        self._spenders[bucket.line.lane.user.budget.user_id] = None
        for moved in self._turns.served(bucket, placed):
            self._reconsider(moved)
        if taken == len(model.pending[job_id]):
            self._forget(job_id)
        elif self._cycle.job_rests(job_id):
            self._forget(job_id)
            self._saying[job_id] = JOB_RESTS

    def _serve_gang(self, model: Model, bucket: Bucket, shape: GangShape, plan: Plan, budget: Budget) -> None:
        """Places the gang whole, or in the place of others, or says why it waits."""
        nodes = self._fleet.nodes
        shape.listen(self._touched)
        found = shape.search.choose(nodes, budget)
        if found is None:
            self._evict_or_close(model, bucket, plan, budget)
            return
        value, workers = found
        places = list(zip(reversed(model.pending[bucket.job_id]), workers, strict=True))
        plan.gangs.append(GangPlacement(bucket.job_id, places, bucket.line.lane.seat.band, value))
        self._charge(shape, workers)
        self._served(model, bucket, len(places), plan)

    def _evict_or_close(self, model: Model, bucket: Bucket, plan: Plan, budget: Budget) -> None:
        """Nothing has room: one task of the bucket, or its gang, comes in the place of work of lower bands, or the shape waits."""
        shape = bucket.line.shape
        found = self._displacer.find(bucket, self._taken, budget)
        if found is None:
            self._close(shape)
            return
        bucket, eviction = found
        plan.evictions.append(eviction)
        self._charge(shape, [worker_id for _, worker_id in eviction.places])
        self._charge_nothing({model.attempts[uid].worker_id for _, _, uid in eviction.victims})
        if not isinstance(shape, GangShape):
            self._cycle.count_tasks(eviction.job_id, 1)
        self._served(model, bucket, len(eviction.places), plan)

    def _charge(self, shape: Shape, workers: list[str]) -> None:
        for worker_id in workers:
            node = self._fleet.nodes[worker_id]
            shape.charge(node)
            if self._caps.tasks_per_worker:
                node.resting = self._cycle.count_worker(worker_id)
        self._charge_nothing(workers)

    def _charge_nothing(self, workers: Iterable[str]) -> None:
        """Something has changed on the workers, and has to be undone should the slice not come to be."""
        self._charged.update(dict.fromkeys(workers))
        self._touched.add(workers)

    # Reasons -------------------------------------------------------------------------------------------------

    def _close(self, shape: Shape) -> None:
        """Nothing fitted: says so for every bucket of the shape, unless that was said before."""
        shape.close()
        resting = bool(self._caps.tasks_per_worker) and any(
            self._fleet.nodes[worker_id].resting for worker_id in shape.waits_for_slot
        )
        cause = (self._fleet.version, shape.group.version, bool(shape.waits_for_slot) + resting)
        whom: Iterable[Bucket] = shape.untold
        if shape.reason_for != cause or isinstance(shape, GangShape):
            before, shape.reason = shape.reason, _explained(shape, self._fleet)
            shape.reason_for = cause
            if shape.reason != before:
                whom = [bucket for line in shape.lines.values() for _, _, bucket in line.buckets]
        for bucket in whom:
            if bucket.live:
                self._tell(bucket)
        shape.untold.clear()

    def _tell(self, bucket: Bucket) -> None:
        """Says why a bucket waits, now or when its shape has been tried, if that is not what the model says."""
        line = bucket.line
        if line.shape.open:
            line.shape.untold[bucket] = None
            return
        reason = line.shape.reason
        if line.lane.demoted:
            reason += over_budget(line.lane.user.budget)
        if bucket.reason != reason:
            bucket.reason = self._saying[bucket.job_id] = reason


def _asked(job: Job, pending: int) -> ShapeKey | GangKey:
    key = shape_key(job.spec)
    return (key, job.spec.group_by, pending) if job.spec.group_by else key


def _explained(shape: Shape, fleet: Fleet) -> str:
    return shape.explain(fleet) if isinstance(shape, GangShape) else reason_for(shape, fleet)
