"""What becomes of one slice, from what the provider says and which of its workers have attached (control-plane §3.7).

Must never act, and never call a slice ready by the provider's word alone: it is ready when every worker of it can be placed on.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from iris_controller.state.slices import GOING, Lifecycle
from iris_core.contracts import SliceState, VmState
from iris_core.model.quantities import format_duration
from iris_core.model.text import counted, counted_are

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_controller.state.slices import Slice
    from iris_core.contracts import SliceInfo

MISSES: Final = 2
"""So many listings in a row must leave out a slice before it is believed to be gone."""
UNKNOWN_MS: Final = 15 * 60_000
"""A provider that cannot say what a slice is for so long has lost it."""
ATTACH_MS: Final = 15 * 60_000
"""Workers of machines that run have so long to attach."""
PROBES: Final = 10
"""So many health probes of one worker fail in a row before its slice goes."""

_BROKEN: Final = frozenset({VmState.FAILED, VmState.TERMINATED, VmState.PREEMPTED})


@dataclass(frozen=True, slots=True)
class WorkerSight:
    """One expected worker of a slice. `dead` and `excluded` hold the reason, "" = it is not."""

    worker_id: str
    attached: bool = False
    placeable: bool = False
    dead: str = ""
    failed_probes: int = 0
    excluded: str = ""


@dataclass(frozen=True, slots=True)
class Sight:
    """What is known of a slice now. `info` None = not in the latest listing that could know it; times in ms."""

    workers: Sequence[WorkerSight]
    info: SliceInfo | None = None
    misses: int = 0
    """Listings in a row without it."""
    unknown_ms: int = 0
    running_ms: int = 0
    """Since its machines are known to run while workers are missing."""
    busy: bool = False
    """An attempt is on one of its workers, or has not been confirmed to be over."""


class Step(Enum):
    """What to do with the slice."""

    INITIALIZING = auto()
    READY = auto()
    FAIL = auto()
    """It never became ready: its machines go, and its group is charged a failure."""
    LOSE = auto()
    """It was ready and is broken, or taken back: its machines go."""
    REPLACE = auto()
    """It is ready and idle, and a worker of it gets no work any more: its machines go, and its group is charged a failure."""
    GONE = auto()
    """The provider has it no longer."""


def next_step(row: Slice, sight: Sight) -> tuple[Step, str] | None:
    """What to do and why; None = nothing now."""
    info = sight.info
    if row.lifecycle in GOING:
        return (Step.GONE, row.error_message) if info is None and sight.misses else None
    ready = row.lifecycle is Lifecycle.READY
    attached = sum(worker.attached for worker in sight.workers)
    if info is None:
        if sight.misses >= MISSES and not attached:
            return Step.GONE, "the provider no longer has it"
    elif info.state in (SliceState.FAILED, SliceState.PREEMPTED, SliceState.DELETING):
        return (Step.LOSE if ready else Step.FAIL), _said(info)
    elif info.state is SliceState.UNKNOWN and sight.unknown_ms >= UNKNOWN_MS:
        return (Step.LOSE if ready else Step.FAIL), f"its state is unknown for {format_duration(sight.unknown_ms)}"
    if ready:
        # An operator's slice is the operator's to judge, as long as the provider keeps it.
        return None if row.manual else _broken(sight)
    if sight.workers and all(worker.placeable for worker in sight.workers):
        return Step.READY, f"{len(sight.workers)} of {counted_are(len(sight.workers), 'worker')} healthy"
    return _on_the_way(row, sight, attached)


def _on_the_way(row: Slice, sight: Sight, attached: int) -> tuple[Step, str] | None:
    info = sight.info
    if info is not None:
        for vm in info.vms:
            if vm.state in _BROKEN:
                return Step.FAIL, f"machine {vm.vm_id} is {vm.state.name.lower()}: {vm.error or 'no reason given'}"
    for worker in sight.workers:
        if worker.dead:
            # It was there once. The provider may call the machine ready for ever, and work waits for the slice.
            return Step.FAIL, f"worker {worker.worker_id} is lost: {worker.dead}"
    runs = attached or (info is not None and info.state is SliceState.READY)
    if not runs:
        return None
    if sight.running_ms >= ATTACH_MS:
        return (
            Step.FAIL,
            f"{attached} of {counted(len(sight.workers), 'worker')} attached within {format_duration(ATTACH_MS)}",
        )
    if row.lifecycle is Lifecycle.BOOTING:
        return Step.INITIALIZING, f"{attached} of {counted_are(len(sight.workers), 'worker')} attached"
    return None


def _broken(sight: Sight) -> tuple[Step, str] | None:
    for worker in sight.workers:
        if worker.dead:
            return Step.LOSE, f"worker {worker.worker_id} is lost: {worker.dead}"
    for worker in sight.workers:
        if worker.failed_probes >= PROBES and not worker.attached:
            return Step.LOSE, f"worker {worker.worker_id} answered none of {worker.failed_probes} health probes"
    for worker in sight.workers:
        # What runs beside it does so well, and what was given to it before may prove that it can.
        if worker.excluded and not sight.busy:
            return Step.REPLACE, f"worker {worker.worker_id} {worker.excluded}"
    return None


def _said(info: SliceInfo) -> str:
    what = {
        SliceState.FAILED: "the provider could not make it",
        SliceState.PREEMPTED: "the provider took it back",
        SliceState.DELETING: "the provider is deleting it",
    }[info.state]
    return f"{what}: {info.error}" if info.error else what
