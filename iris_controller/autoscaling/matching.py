"""Whether a scale group could ever serve a request, and which part of the request stands in the way.

A group answers with what it promises of every worker, corrected by what its workers turned out to have. Must never look at how
many slices there are: that is the routing's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_core.model.constraints import REGION, TPU_NAME, TPU_TOPOLOGY, TPU_WORKER_ID, ZONE, Constraint, Op
from iris_core.model.errors import did_you_mean
from iris_core.model.quantities import format_cpu, format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_controller.autoscaling.demand import Demand
    from iris_controller.autoscaling.groups import GroupState

NO_GROUP: Final = "no_matching_group"
TOO_SMALL: Final = "insufficient_resources"
NO_GANG: Final = "coschedule_mismatch"
TIER: Final = "tier_blocked"
FULL: Final = "no_capacity"

UNLIMITED: Final = 1 << 62
_SHORT: Final = 8
"""Most characters of a size that is told to the byte."""
_OF_A_SLICE: Final = frozenset({TPU_NAME, TPU_WORKER_ID, TPU_TOPOLOGY})
"""What TPU workers say of themselves and a group cannot promise a value of."""

Capacity = tuple[int, int, int]
"""Of one machine: millicores, bytes, devices of the wanted kind."""


def unmet(demand: Demand, state: GroupState) -> tuple[Constraint, ...]:
    """The required constraints that no worker of the group would satisfy."""
    attributes = state.attributes
    tpu = state.group.device is not None and state.group.device.kind == "tpu"
    return tuple(
        c
        for c in demand.required
        if not c.matches(attributes) and not (tpu and c.key in _OF_A_SLICE and c.op is Op.EXISTS)
    )


def unmet_wishes(demand: Demand, state: GroupState) -> int:
    """How many of the preferred constraints its workers would not satisfy."""
    return sum(not c.matches(state.attributes) for c in demand.preferred)


def capacity(demand: Demand, state: GroupState) -> Capacity:
    """What one idle machine offers for this demand. What the file leaves open counts as unlimited until a worker was seen."""
    group, seen = state.group, state.seen
    cpu = group.cpu_millicores or UNLIMITED
    memory = group.memory_bytes or UNLIMITED
    if seen is not None:
        cpu, memory = seen.cpu_millicores, seen.memory_bytes
    device, wanted = group.device, demand.resources.device
    devices = 0
    if device is not None and (wanted is None or device.is_like(wanted)):
        devices = device.count
    return cpu, memory, devices


def fits(demand: Demand, room: Capacity) -> int:
    """How many of the tasks fit into that much of one machine."""
    cpu, memory, devices = room
    asked = demand.resources
    most = demand.count
    if asked.cpu_millicores:
        most = min(most, max(0, cpu) // asked.cpu_millicores)
    if asked.memory_bytes:
        most = min(most, max(0, memory) // asked.memory_bytes)
    if asked.device is not None and asked.device.count > 0:
        most = min(most, max(0, devices) // asked.device.count)
    return most


def gang_problem(demand: Demand, state: GroupState) -> str:
    """Why a slice of the group is no home for the gang; empty when it is one."""
    group = state.group
    if group.num_vms not in (demand.count, demand.size):
        machines = "1 machine" if group.num_vms == 1 else f"{group.num_vms} machines"
        return f"{group.name} has {machines} in a slice"
    tpu = group.device is not None and group.device.kind == "tpu"
    if demand.group_by not in state.attributes and not (tpu and demand.group_by in _OF_A_SLICE):
        return f"{group.name} has no attribute {demand.group_by}"
    return ""


def never(demand: Demand, states: Sequence[GroupState]) -> tuple[str, str]:
    """Code and reason when no group could ever serve the demand, however empty; ("", "") when one could."""
    matching = [state for state in states if not unmet(demand, state)]
    if not matching:
        return NO_GROUP, _no_group(demand, states)
    if demand.gang:
        problems = [gang_problem(demand, state) for state in matching]
        if all(problems):
            return NO_GANG, f"no scale group has slices for a gang of {demand.count}: {'; '.join(problems)}"
        matching = [state for state, problem in zip(matching, problems, strict=True) if not problem]
    if not any(fits(demand, capacity(demand, state)) for state in matching):
        return TOO_SMALL, f"asks for {_asked(demand)}; {'; '.join(_has(demand, state) for state in matching)}"
    return "", ""


def _no_group(demand: Demand, states: Sequence[GroupState]) -> str:
    if not states:
        return "no scale groups are configured"
    alone = [c for c in demand.required if all(c in unmet(demand, state) for state in states)]
    if not alone:
        wanted = " ".join(str(c) for c in demand.required)
        return f"no scale group has {wanted} together"
    return f"no scale group has {' '.join(str(c) for c in alone)}{_near(alone, states)}"


def _near(constraints: Sequence[Constraint], states: Sequence[GroupState]) -> str:
    for c in constraints:
        if c.key not in (ZONE, REGION) or c.op not in (Op.EQ, Op.IN):
            continue
        known = sorted({str(v) for s in states if (v := s.attributes.get(c.key)) is not None})
        for value in c.values:
            near = did_you_mean(str(value), known)
            if near:
                return f"; {near}"
        if known:
            return f"; {c.key}s are {', '.join(known)}"
    return ""


def _size(size: int) -> str:
    """As it was written, where that is short; else rounded: what a machine was found to have is no round number."""
    exact = format_size(size, exact=True)
    return exact if len(exact) <= _SHORT else format_size(size)


def _cores(millicores: int) -> str:
    return format_cpu(millicores) + (" core" if millicores == 1000 else " cores")


def _asked(demand: Demand) -> str:
    asked = demand.resources
    parts = [_cores(asked.cpu_millicores)] if asked.cpu_millicores else []
    if asked.memory_bytes:
        parts.append(_size(asked.memory_bytes))
    if asked.device is not None and asked.device.count > 0:
        parts.append(str(asked.device))
    return ", ".join(parts) or "nothing"


def _has(demand: Demand, state: GroupState) -> str:
    cpu, memory, devices = capacity(demand, state)
    parts = [_cores(cpu)] if cpu != UNLIMITED else []
    if memory != UNLIMITED:
        parts.append(_size(memory))
    if demand.resources.device is not None:
        parts.append(f"{devices} of the devices" if devices else "none of the devices")
    return f"a machine of {state.name} has {', '.join(parts) or 'what it needs'}"
