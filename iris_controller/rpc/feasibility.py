"""Whether any scale group, or any worker that is there, could ever run what is submitted (control-plane §3.3 `job_feasibility`).

An answer is kept for a short while by the shape of the request, so that many submissions of one shape cost one look at the fleet.
Like `known_attributes` this only ever warns: machines may be configured tomorrow.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Final

from iris_controller.autoscaling.demand import demand_of_spec, probed
from iris_controller.autoscaling.groups import GroupState
from iris_controller.autoscaling.verdict import job_feasibility
from iris_core.model.constraints import AVAILABILITY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_controller.autoscaling.demand import Demand
    from iris_controller.state.model import Model
    from iris_controller.state.records import JobSpec, Worker
    from iris_core.config.scale_groups import ScaleGroup

KEPT: Final = 256
KEPT_S: Final = 10.0


class Feasibility:
    """See the module."""

    def __init__(self, model: Model, groups: Iterable[ScaleGroup], clock: Callable[[], float] = time.monotonic) -> None:
        self._model = model
        self._states = [GroupState(group) for group in groups if group.max_slices]
        self._clock = clock
        self._kept: OrderedDict[object, tuple[float, str]] = OrderedDict()

    def doubts(self, spec: JobSpec, tasks: int) -> list[str]:
        """One line when neither a scale group nor the workers could ever host it; none where there are no scale groups."""
        if not self._states:
            return []
        key = (spec.resources, spec.constraints, spec.group_by, spec.group_by and tasks)
        known = self._kept.get(key)
        now = self._clock()
        if known is None or now - known[0] > KEPT_S:
            known = self._kept[key] = (now, self._doubt(demand_of_spec(spec, tasks)))
            self._kept.move_to_end(key)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return [known[1]] if known[1] else []

    def _doubt(self, demand: Demand) -> str:
        work, probes = probed(demand, self._model.obtained)
        reason = job_feasibility(work, self._states, probes)
        return f"nothing here could run it: {reason}" if reason and not self._has_workers(demand) else ""

    def _has_workers(self, demand: Demand) -> bool:
        """Whether the workers that are there, all of them idle, could host one task, or the whole gang."""
        hosts = (worker for worker in self._model.workers.values() if _hosts(worker, demand))
        if not demand.gang:
            return next(hosts, None) is not None
        # Workers that have no such attribute share nothing.
        places = Counter(w.attributes[demand.group_by] for w in hosts if demand.group_by in w.attributes)
        return max(places.values(), default=0) >= demand.count


def _hosts(worker: Worker, demand: Demand) -> bool:
    asked, total = demand.resources, worker.total
    device = asked.device
    return (
        asked.cpu_millicores <= total.cpu_millicores
        and asked.memory_bytes <= total.memory_bytes
        and (
            device is None
            or device.count <= 0
            or (total.device is not None and total.device.is_like(device) and device.count <= total.device.count)
        )
        and all(c.matches(worker.attributes) for c in demand.required if not c.key.startswith(AVAILABILITY))
    )
