"""What the present fleet cannot take: the waiting work that asks for more machines (control-plane §3.2).

One entry per job, however many of its tasks wait: identical tasks are one bucket here as they are to the scheduler. Must never
count work that only waits for a setup slot, and never look at a single task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from iris_controller.scheduling.order import band_now, order_key
from iris_core.model.constraints import DEVICE_TYPE, Mode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_controller.state.model import Model
    from iris_controller.state.records import Job
    from iris_core.model.bands import PriorityBand
    from iris_core.model.constraints import Constraint
    from iris_core.model.resources import Resources


@dataclass(frozen=True, slots=True)
class Demand:
    """Tasks of one job that found no room. All of a gang's, which go together, or any number of alike ones."""

    job_id: str
    count: int
    resources: Resources
    required: tuple[Constraint, ...] = ()
    preferred: tuple[Constraint, ...] = ()
    group_by: str = ""
    """Of a gang: the attribute whose value its workers share; "" = no gang."""
    band: PriorityBand | None = None

    @property
    def gang(self) -> bool:
        return bool(self.group_by)


def demand_of(model: Model, unplaced: Iterable[tuple[str, bool]]) -> list[Demand]:
    """The demand, most important first. `unplaced` is the scheduler's word: (job id, waits for a setup slot alone)."""
    waiting = []
    for job_id, waits_for_slot in unplaced:
        job = model.jobs.get(job_id)
        count = len(model.pending.get(job_id, ()))
        if job is not None and count and not waits_for_slot:
            waiting.append((job, count, band_now(model, job)))
    waiting.sort(key=lambda item: (-item[2].rank(), order_key(item[0])))
    return [_demand(job, count, band) for job, count, band in waiting]


def demand_for(job: Job, count: int) -> Demand:
    """What so many tasks of the job would ask for."""
    return _demand(job, count, job.spec.band)


def _demand(job: Job, count: int, band: PriorityBand) -> Demand:
    spec = job.spec
    device = spec.resources.device
    wants_device = device is not None and device.count > 0
    kept = [c for c in spec.constraints if wants_device or c.key != DEVICE_TYPE or "cpu" not in c.values]
    return Demand(
        job_id=job.job_id,
        count=count,
        resources=spec.resources,
        required=tuple(c for c in kept if c.mode is Mode.REQUIRED),
        preferred=tuple(c for c in kept if c.mode is Mode.PREFERRED),
        group_by=spec.group_by,
        band=band,
    )
