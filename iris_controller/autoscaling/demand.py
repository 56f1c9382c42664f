"""What the present fleet cannot take: the waiting work that asks for more machines (control-plane §3.2).

One entry per job, however many of its tasks wait: identical tasks are one bucket here as they are to the scheduler. Must never
count work that only waits for a setup slot, and never look at a single task.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING

from iris_controller.autoscaling.pieces import at_once
from iris_controller.scheduling.order import band_now, order_key
from iris_controller.scheduling.preemption import Claim
from iris_controller.state.budgets import budget_user
from iris_core.model.bands import PriorityBand
from iris_core.model.constraints import (
    AVAILABILITY,
    DEVICE_TYPE,
    REGION,
    ZONE,
    Constraint,
    Mode,
    Op,
    device_constraints,
)
from iris_core.model.resources import Device, Resources
from iris_core.model.tpu import is_tpu

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_controller.autoscaling.pieces import Steps
    from iris_controller.state.availability import Obtained
    from iris_controller.state.model import Model
    from iris_controller.state.records import Job, JobSpec


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
    size: int = 0
    """Of a gang: its members, those that have succeeded included."""
    band: PriorityBand | None = None
    claim: Claim | None = None
    """On whose behalf others may be asked to go; None = nobody is."""
    probe: bool = False
    """One slice, to see whether the accelerator can be had."""

    @property
    def gang(self) -> bool:
        return bool(self.group_by)


def demand_of(model: Model, unplaced: Iterable[tuple[str, bool]]) -> list[Demand]:
    """The demand, most important first. `unplaced` is the scheduler's word: (job id, waits for a setup slot alone)."""
    return at_once(demand_in_steps(model, unplaced))


def demand_in_steps(model: Model, unplaced: Iterable[tuple[str, bool]]) -> Steps[list[Demand]]:
    """The same, with a step for each job. A job that changes meanwhile is told of as it was or as it is."""
    waiting = []
    # Thousands of jobs of a few users: what is a user's is looked up once, and so is on whose behalf they ask.
    bands: dict[tuple[str, PriorityBand], PriorityBand] = {}
    claims: dict[tuple[str, PriorityBand, PriorityBand, str | None], Claim] = {}
    for job_id, waits_for_slot in list(unplaced):
        job = model.jobs.get(job_id)
        count = len(model.pending.get(job_id, ()))
        if job is not None and count and not waits_for_slot:
            asker = budget_user(job), job.spec.band
            band = bands.get(asker)
            if band is None:
                band = bands[asker] = band_now(model, job)
            waiting.append((-band.rank(), order_key(job), job, count, band))
        yield
    waiting.sort(key=itemgetter(0, 1))
    found: dict[tuple[Constraint, ...] | str, Demand] = {}
    for _, _, job, count, band in waiting:
        key = budget_user(job), job.spec.band, band, job.parent_job_id
        claim = claims.get(key)
        if claim is None:
            claim = claims[key] = claim_of(job, band)
        for demand in reserved(_asked(job.spec, job.job_id, count, job.num_tasks, band, claim), model.obtained):
            # One slice shows for all who ask that the accelerator can be had there.
            found.setdefault(demand.required if demand.probe else job.job_id, demand)
        yield
    return list(found.values())


def reserved(demand: Demand, obtained: Obtained) -> list[Demand]:
    """What work with `--reserve` asks for (control-plane §3.8): machines in a zone where the accelerator has been obtained, and until
    there is one, a single slice of it where the work may run. The slice holds nothing: idle, it goes as any other."""
    work, probes = probed(demand, obtained)
    return probes or [work]


def probed(demand: Demand, obtained: Obtained) -> tuple[Demand, list[Demand]]:
    """The work without its markers, kept to the zones of those that are obtained, and a probe for each that is not: while there is a
    probe, no machine is made for the work itself."""
    markers = demand.required and [c for c in demand.required if c.key.startswith(AVAILABILITY) and c.op is Op.EXISTS]
    if not markers:
        return demand, []
    others = tuple(c for c in demand.required if c not in markers)
    places = tuple(c for c in others if c.key in (REGION, ZONE))
    probes: list[Demand] = []
    for marker in markers:
        variant = marker.key.removeprefix(AVAILABILITY)
        zones = obtained.zones(variant)
        if zones:
            others += (Constraint(ZONE, Op.IN if len(zones) > 1 else Op.EQ, tuple(zones)),)
        else:
            wanted = Resources(device=Device("tpu" if is_tpu(variant) else "gpu", variant, 1))
            # A machine outside every zone is evidence of none: it would be made again and again in vain.
            required = (*device_constraints(wanted), *places, Constraint(ZONE, Op.EXISTS, ()))
            probes.append(Demand(demand.job_id, 1, wanted, required, band=demand.band, probe=True))
    return replace(demand, required=others), probes


def claim_of(job: Job, band: PriorityBand) -> Claim:
    """What the job's tasks may take, served in `band`: as the scheduler has it."""
    requested = job.spec.band.resolve(None)
    user = budget_user(job) if requested is PriorityBand.INTERACTIVE else ""
    return Claim(band, requested, user, job.parent_job_id or "")


def demand_for(job: Job, count: int) -> Demand:
    """What so many tasks of the job would ask for."""
    return _asked(job.spec, job.job_id, count, job.num_tasks, job.spec.band)


def demand_of_spec(spec: JobSpec, tasks: int) -> Demand:
    """What so many tasks of a job that is not there yet would ask for."""
    return _asked(spec, "", tasks, tasks, spec.band)


def _asked(spec: JobSpec, job_id: str, count: int, size: int, band: PriorityBand, claim: Claim | None = None) -> Demand:
    required: tuple[Constraint, ...] = ()
    preferred: tuple[Constraint, ...] = ()
    if spec.constraints:
        device = spec.resources.device
        wants_device = device is not None and device.count > 0
        kept = [c for c in spec.constraints if wants_device or c.key != DEVICE_TYPE or "cpu" not in c.values]
        required = tuple([c for c in kept if c.mode is Mode.REQUIRED])
        preferred = tuple([c for c in kept if c.mode is Mode.PREFERRED])
    return Demand(job_id, count, spec.resources, required, preferred, spec.group_by, size, band, claim)
