"""Who holds the chips of each reservation now: all slices of its groups, an operator's own included, and which of them may go.

Chips of a slice are held from the request until the provider has it no longer. Must never decide who goes: that is `reservations`'.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from iris_controller.autoscaling.memory import is_busy, is_returning
from iris_controller.autoscaling.reservations import HeldSlice, Pool
from iris_controller.state.budgets import task_value
from iris_controller.state.slices import GOING, Lifecycle
from iris_core.model.bands import PriorityBand
from iris_core.model.states import ACTIVE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from iris_controller.autoscaling.groups import GroupState
    from iris_controller.state.model import Model
    from iris_controller.state.records import Attempt, Job
    from iris_controller.state.slices import Slice
    from iris_core.config.cluster import ClusterConfig
    from iris_core.config.scale_groups import ScaleGroup


def reserved_groups(config: ClusterConfig) -> dict[str, ScaleGroup]:
    """The groups that draw on a reservation, by name."""
    pools = config.autoscaler.reservations
    return {name: group for name, group in config.scale_groups.items() if group.reserved and group.quota_pool in pools}


def with_pools(
    states: Sequence[GroupState],
    groups: Mapping[str, ScaleGroup],
    chips: Mapping[str, int],
    slices: Iterable[Slice],
    asked_for: Iterable[str],
) -> list[GroupState]:
    """The states, those of `groups` with their reservation. `asked_for` are the groups of requests that have no row yet."""
    held: Counter[str] = Counter()
    draining: Counter[str] = Counter()
    for row in slices:
        group = groups.get(row.scale_group)
        if group is not None:
            held[group.quota_pool] += group.chips
            if row.lifecycle in GOING and comes_back(row):
                draining[group.quota_pool] += group.chips
    for name in asked_for:
        if name in groups:
            held[groups[name].quota_pool] += groups[name].chips
    pools = {name: Pool(name, count, held[name], draining[name]) for name, count in chips.items()}
    return [
        replace(state, pool=pools[groups[state.name].quota_pool]) if state.name in groups else state for state in states
    ]


def comes_back(row: Slice) -> bool:
    """Whether the machines of a slice that was given up are deleted; an operator's that failed is left to the operator."""
    return not (row.manual and row.lifecycle is Lifecycle.FAILED)


def held_slices(model: Model, groups: Mapping[str, ScaleGroup]) -> list[HeldSlice]:
    """The ready slices of the autoscaler's own in those groups that may go for other work.

    Not one with a member of a gang that runs elsewhere, too, and not one that is out of use for a moment. Of those with nothing to
    do, as many as the group's buffer has are kept for all but what may evict.
    """
    found = []
    spare: Counter[str] = Counter()
    for row in model.slices.values():
        group = groups.get(row.scale_group)
        if group is None or row.manual or row.lifecycle is not Lifecycle.READY:
            continue
        if is_returning(row, model):
            continue
        if is_busy(row, model):
            tenants = tenants_of(model, row)
            if tenants is None:
                continue
            rank, value, jobs = tenants
        else:
            spare[group.name] += 1
            kept = spare[group.name] <= group.buffer_slices
            rank, value, jobs = PriorityBand.BATCH.rank() if kept else 0, 0, ()
        found.append(HeldSlice(row.slice_id, group.name, group.quota_pool, group.chips, rank, value, jobs))
    return found


def tenants_of(model: Model, row: Slice) -> tuple[int, int, tuple[Job, ...]] | None:
    """The highest rank, the value and the jobs of the tasks on a slice; None = a gang among them runs elsewhere, too."""
    rank = value = 0
    jobs: dict[str, Job] = {}
    here: Counter[str] = Counter()
    for attempt in active_on(model, row):
        task, job = model.task(attempt.job_id, attempt.task_index), model.jobs.get(attempt.job_id)
        if task is None or job is None:
            return None
        rank = max(rank, task.band.rank())
        value += task_value(attempt.resources)
        jobs[job.job_id] = job
        here[job.job_id] += 1
    for job in jobs.values():
        if job.spec.group_by and here[job.job_id] != sum(job.counts[state] for state in ACTIVE):
            return None
    return rank, value, tuple(jobs.values())


def active_on(model: Model, row: Slice) -> list[Attempt]:
    """The attempts at work on a slice."""
    return [a for worker_id in row.worker_ids for a in model.attempts_on(worker_id) if a.state in ACTIVE]
