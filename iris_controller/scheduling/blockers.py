"""Which workers come nearest to a request, how much each lacks to the byte, and which tasks hold it.

Only workers that would do when idle are named: ending the tasks told of really makes room. Must never choose victims; that is
`preemption`'s.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from iris_controller.scheduling.funnel import CPU, MEMORY, SLOTS, held_by
from iris_core.model.constraints import canonical
from iris_core.model.states import DISPATCHED, TERMINAL

if TYPE_CHECKING:
    from iris_controller.scheduling.funnel import Funnel, Judged
    from iris_controller.state.records import Attempt

MAX_BLOCKED: Final = 5
MAX_HOLDERS: Final = 3


@dataclass(frozen=True, slots=True)
class Holder:
    """A task that holds what is missing. `ended`: its attempt is over and its worker has yet to confirm it."""

    task_id: str
    held: int
    ended: bool


@dataclass(frozen=True, slots=True)
class Blocked:
    """A worker that has room for it but for one resource. Amounts are in the step's unit.

    `holders` hold most of it, the largest first; `others` is how many more hold some.
    """

    worker_id: str
    step: str
    missing: int
    holders: tuple[Holder, ...]
    others: int


def blockers(judged: Judged, funnel: Funnel) -> tuple[Blocked, ...]:
    """The workers that lack least, nearest first; of a gang, those of the group that lacks fewest. None when it fits, or when
    no group could take it whole."""
    view, asked = judged.view, judged.asked
    group = funnel.groups[0] if funnel.groups else None
    if asked.group_by:
        if group is None or not group.missing or group.capable < asked.size:
            return ()
    elif funnel.fits:
        return ()
    near: list[tuple[int, float, str, str, int]] = []
    for w, (worker, able, failures) in enumerate(zip(view.workers, judged.capable, judged.failures, strict=True)):
        if not able or not failures or not judged.requirements[0].passes[w]:
            continue
        if group is not None and str(canonical(worker.attributes.get(asked.group_by, ""))) != group.value:
            continue
        # What an idle worker has and this one has not is held by somebody.
        lacking = judged.requirements[judged.first[w]]
        assert lacking.free is not None
        missing = lacking.needed - lacking.free[w]
        near.append((failures, missing / max(lacking.needed, 1), worker.worker_id, lacking.name, missing))
    chosen = heapq.nsmallest(MAX_BLOCKED, near)
    on: dict[str, list[Attempt]] = {worker_id: [] for _, _, worker_id, _, _ in chosen}
    if on:
        for attempt in view.attempts:
            if attempt.worker_id in on:
                on[attempt.worker_id].append(attempt)
    return tuple(_blocked(worker_id, step, missing, on[worker_id]) for _, _, worker_id, step, missing in chosen)


def _blocked(worker_id: str, step: str, missing: int, attempts: list[Attempt]) -> Blocked:
    holders = [
        Holder(attempt.task_id, held, attempt.state in TERMINAL)
        for attempt in attempts
        if (held := _held(attempt, step))
    ]
    holders.sort(key=lambda holder: (-holder.held, holder.task_id))
    return Blocked(worker_id, step, missing, tuple(holders[:MAX_HOLDERS]), max(0, len(holders) - MAX_HOLDERS))


def _held(attempt: Attempt, step: str) -> int:
    if step == SLOTS:
        return int(attempt.state in DISPATCHED)
    cpu, memory, gpu, tpu, _ = held_by(attempt)
    return {CPU: cpu, MEMORY: memory, "gpu": gpu, "tpu": tpu}[step]
