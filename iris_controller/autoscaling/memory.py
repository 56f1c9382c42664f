"""What is remembered of each scale group beside its row: rates, and the row's pauses as monotonic deadlines (DESIGN §5.16).

At boot a pause goes on for what is left of it by the wall clock, at most its full length; from then on that clock has no say. Also
puts together the state of every group for the planning. Must never write anything.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from iris_controller.autoscaling import backoff
from iris_controller.autoscaling.groups import GroupState
from iris_controller.autoscaling.pieces import at_once
from iris_controller.autoscaling.planning import IdleSlice
from iris_controller.autoscaling.rates import Rate
from iris_controller.state.slices import GOING, Lifecycle, ScalingGroup
from iris_core.config.scale_groups import ScaleGroup
from iris_core.model.resources import Resources
from iris_core.model.states import ACTIVE, WorkerHealth

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from iris_controller.autoscaling.pieces import Steps
    from iris_controller.autoscaling.sights import Sights
    from iris_controller.state.model import Model
    from iris_controller.state.slices import Slice

RETURN_S: Final = 60.0
"""So long a ready slice that is out of use for a moment counts as one that is about to take work."""


@dataclass(slots=True)
class GroupMemory:
    """One group's. Times in monotonic seconds."""

    up: Rate
    down: Rate
    backoff_until: float = 0.0
    quota_until: float = 0.0
    troubled_at: float = -1.0
    """When the latest failure was booked: a request from before it fails with it."""
    peak: int = 0
    attributes: Mapping[str, str | int | float] = field(default_factory=dict)


class Memory:
    """Of all groups; one that the configuration no longer has may keep no slice."""

    def __init__(self, groups: Mapping[str, ScaleGroup], model: Model, now: float, now_ms: int) -> None:
        self._groups = groups
        self._model = model
        self._known: dict[str, GroupMemory] = {}
        self._returning: dict[str, float] = {}
        """Since when a slice has been on its way back to use."""
        self._seen: dict[str, Resources] = {}
        at_once(self.look_at_workers())
        for name, row in model.scaling_groups.items():
            known = self.of(name, now)
            pause = min(max(row.backoff_until_ms - now_ms, 0), backoff.LONGEST_PAUSE_MS)
            block = min(max(row.quota_exceeded_until_ms - now_ms, 0), backoff.LONGEST_BLOCK_MS)
            known.backoff_until, known.quota_until = now + pause / 1000, now + block / 1000

    def of(self, name: str, now: float) -> GroupMemory:
        known = self._known.get(name)
        if known is None:
            group = self._groups.get(name) or ScaleGroup(name)
            known = GroupMemory(
                Rate(group.scale_up_rate_limit, now),
                Rate(group.scale_down_rate_limit, now),
                attributes=group.worker_attributes(),
            )
            self._known[name] = known
        return known

    def states(self, requesting: Iterable[str], now: float) -> list[GroupState]:
        """All groups, those of the configuration first. `requesting` has the group of every request under way."""
        model = self._model
        counts: Counter[tuple[str, Lifecycle]] = Counter()
        busy: Counter[str] = Counter()
        returning: Counter[str] = Counter()
        for slice_id in self._returning.keys() - model.slices.keys():
            del self._returning[slice_id]
        for row in model.slices.values():
            if row.manual:
                continue
            counts[row.scale_group, row.lifecycle] += 1
            if row.lifecycle is Lifecycle.READY and self._returns(row, now):
                returning[row.scale_group] += 1
            elif row.lifecycle is Lifecycle.READY and is_busy(row, model):
                busy[row.scale_group] += 1
        asked = Counter(requesting)
        left_over = sorted({row.scale_group for row in model.slices.values()} - set(self._groups))
        found = []
        for group in [*self._groups.values(), *(ScaleGroup(name) for name in left_over)]:
            known = self.of(group.name, now)
            row_of = model.scaling_groups.get(group.name) or ScalingGroup(group.name)
            found.append(
                GroupState(
                    group,
                    requesting=asked[group.name],
                    booting=counts[group.name, Lifecycle.BOOTING],
                    initializing=counts[group.name, Lifecycle.INITIALIZING],
                    ready=counts[group.name, Lifecycle.READY],
                    busy=busy[group.name],
                    returning=returning[group.name],
                    going=sum(counts[group.name, lifecycle] for lifecycle in GOING),
                    quota_left_ms=_left_ms(known.quota_until, now),
                    quota_reason=row_of.quota_reason,
                    backoff_left_ms=_left_ms(known.backoff_until, now),
                    failure_reason=row_of.failure_reason,
                    troubled=bool(row_of.consecutive_failures or row_of.quota_blocks),
                    up_left=known.up.left(now),
                    down_left=known.down.left(now),
                    seen=self._seen.get(group.name),
                    attributes=known.attributes,
                )
            )
        return found

    def _returns(self, row: Slice, now: float) -> bool:
        if not is_returning(row, self._model):
            self._returning.pop(row.slice_id, None)
            return False
        return now - self._returning.setdefault(row.slice_id, now) < RETURN_S

    def idle(self, sights: Sights, now: float) -> list[IdleSlice]:
        """The ready slices of the autoscaler's own that have nothing to do, with how long that is so."""
        found = []
        for row in self._model.slices.values():
            if row.manual or row.lifecycle is not Lifecycle.READY:
                continue
            free = not is_busy(row, self._model) and self._well(row)
            quiet = sights.quiet_ms(row.slice_id, free, now)
            if free:
                found.append(IdleSlice(row.slice_id, row.scale_group, quiet))
        return found

    def _well(self, row: Slice) -> bool:
        for worker_id in row.worker_ids:
            worker = self._model.workers.get(worker_id)
            if worker is None or worker.health is not WorkerHealth.HEALTHY:
                return False
        return bool(row.worker_ids)

    def look_at_workers(self) -> Steps[None]:
        """Finds the largest CPU and memory of each group's workers, which `states` tells from then on."""
        found: dict[str, Resources] = {}
        for worker in list(self._model.workers.values()):
            yield
            if not worker.scale_group or not worker.slice_id:
                continue
            known = found.get(worker.scale_group)
            total = worker.total
            if known is None:
                found[worker.scale_group] = total
            elif total.cpu_millicores > known.cpu_millicores or total.memory_bytes > known.memory_bytes:
                found[worker.scale_group] = Resources(
                    max(known.cpu_millicores, total.cpu_millicores), max(known.memory_bytes, total.memory_bytes)
                )
        self._seen = found


def is_busy(row: Slice, model: Model) -> bool:
    """Whether any attempt is on its workers, also one that is being set up or has not been confirmed to be over."""
    return any(model.by_worker.get(worker_id) for worker_id in row.worker_ids)


def is_returning(row: Slice, model: Model) -> bool:
    """Whether nothing is at work on its workers and all of them live, but some cannot take work yet: what was ended there has not
    been confirmed to be over, or they have not attached again."""
    waits = False
    for worker_id in row.worker_ids:
        worker = model.workers.get(worker_id)
        if worker is None or worker.health is WorkerHealth.DEAD or worker.excluded:
            return False
        for attempt in model.attempts_on(worker_id):
            if attempt.state in ACTIVE:
                return False
            waits = True
        waits = waits or not worker.placeable
    return waits


def _left_ms(until: float, now: float) -> int:
    return max(0, int((until - now) * 1000))
