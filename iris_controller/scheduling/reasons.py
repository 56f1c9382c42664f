"""Why a shape's tasks wait, in one short line that stays the same while its cause does (control-plane §2.9).

The line goes to every watcher of every job that waits for it, so it names the step that stopped the search and what was asked for,
and leaves out figures that change with each task that starts or ends. Must never guess: it is made only after a search
over all workers found nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_controller.scheduling.snapshot import BUILDING_LIMIT
from iris_core.model.quantities import format_cpu, format_size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_controller.scheduling.shape import Shape
    from iris_controller.scheduling.snapshot import Fleet
    from iris_controller.state.budgets import Budget


JOB_RESTS: Final = "waiting for the next cycle: as many tasks of this job as may be were placed in this one"


def reason_for(shape: Shape, fleet: Fleet) -> str:
    """The first of these that holds: no workers, none healthy, constraints, size, setup slots, capacity."""
    if not fleet.attached:
        return "no workers attached"
    if not fleet.usable:
        return _none_usable(fleet)
    if not shape.group.members:
        return _no_match(shape, fleet)
    return _too_small(shape) or _busy(shape, fleet)


def over_budget(budget: Budget) -> str:
    """What a reason adds for work that waits in BATCH because its user spends too much."""
    return f" (as batch: {budget.user_id} is over the budget of {budget.limit})"


def _none_usable(fleet: Fleet) -> str:
    if fleet.excluded:
        return f"{_workers(fleet.excluded)} excluded after failing to stage, no other is healthy"
    return f"no healthy worker ({fleet.attached} attached)"


def _no_match(shape: Shape, fleet: Fleet) -> str:
    """Names the constraints that no usable worker meets, or, when each is met by some, all of them."""
    required = shape.group.required
    unmet = [c for c in required if not fleet.meets(c)]
    names = " ".join(str(c) for c in unmet or required)
    both = "" if unmet or len(required) < 2 else " together"
    return f"no worker matches {names}{both} ({_workers(fleet.usable)})"


def _too_small(shape: Shape) -> str:
    """What is asked for that even an idle worker does not have; empty when one has it all."""
    totals = shape.group.totals
    count = _workers(len(shape.group.members))
    most_cpu = max(total.cpu_millicores for total in totals)
    if shape.cpu > most_cpu:
        return f"needs {_cores(shape.cpu)}, the largest of {count} has {format_cpu(most_cpu)}"
    most_memory = max(total.memory_bytes for total in totals)
    if shape.memory > most_memory:
        return f"needs {_size(shape.memory)} of memory, the largest of {count} has {_size(most_memory)}"
    if shape.device is not None:
        liked = [device.count for total in totals if (device := total.device) is not None and shape.likes(device)]
        wanted = _devices(shape.device)
        if not liked:
            return f"needs {wanted}, none of {count} has any"
        if shape.devices > max(liked):
            return f"needs {wanted}, the most on one worker is {max(liked)}"
    if any(
        shape.cpu <= total.cpu_millicores
        and shape.memory <= total.memory_bytes
        and (
            shape.device is None
            or (total.device is not None and shape.likes(total.device) and shape.devices <= total.device.count)
        )
        for total in totals
    ):
        return ""
    return f"no worker has {_asked(shape)} together ({count})"


def _busy(shape: Shape, fleet: Fleet) -> str:
    if any(fleet.nodes[worker_id].resting for worker_id in shape.waits_for_slot):
        return "waiting for the next cycle: workers with room were given as many tasks in this one as they may"
    if shape.waits_for_slot:
        return f"waiting for a setup slot: workers with room already set up {BUILDING_LIMIT} tasks each"
    return f"waiting for capacity: {_asked(shape)} free on none of {_workers(len(shape.group.members))}"


def _asked(shape: Shape) -> str:
    parts = [_cores(shape.cpu)] if shape.cpu else []
    if shape.memory:
        parts.append(_size(shape.memory))
    if shape.device is not None:
        parts.append(_devices(shape.device))
    return _join(parts) or "nothing"


def _join(parts: Iterable[str]) -> str:
    *rest, last = list(parts) or [""]
    return f"{', '.join(rest)} and {last}" if rest else last


def _cores(millicores: int) -> str:
    return f"{format_cpu(millicores)} {'core' if millicores == 1000 else 'cores'}"


def _size(size: int) -> str:
    return format_size(size, exact=True)


def _devices(device: tuple[str, str, int]) -> str:
    kind, variant, count = device
    return f"{count} {variant or kind.upper()}{' ' + kind.upper() if variant else ''}{'' if count == 1 else 's'}"


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"
