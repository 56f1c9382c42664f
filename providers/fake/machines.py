"""`Machines` without machines: slices that come, fail, hang and go as a test has scripted them, on a clock of the test's.

What happens to a request is taken from a script per scale group, one `Outcome` a request, the last one for ever. Nothing here
moves by itself but by the clock: `FakeClock.advance` makes slices ready, failed or gone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from iris_core.contracts import MachinesFailed, QuotaExceeded, SliceInfo, SliceState, StockOut, VmInfo, VmState

if TYPE_CHECKING:
    from iris_core.contracts import SliceSpec
    from iris_core.live.clock import Clock


@dataclass(frozen=True, slots=True)
class Outcome:
    """What becomes of one request. Times in seconds.

    answer_s    until `create` returns or raises
    ready_s     from then until the slice is READY, or fails
    error       `create` raises this
    fails       the slice becomes FAILED instead of READY, with this text
    vms         so many machines come; None = all
    hangs       `create` never returns, and nothing was made
    delete_s    from `delete` until it is gone; None = never
    """

    answer_s: float = 0.0
    ready_s: float = 0.0
    error: MachinesFailed | None = None
    fails: str = ""
    vms: int | None = None
    hangs: bool = False
    delete_s: float | None = 0.0


def quota(reason: str = "Quota 'TPUS' exceeded. Limit: 8.0 in region eu") -> Outcome:
    """The request is refused for want of quota."""
    return Outcome(error=QuotaExceeded(reason))


def stock_out(reason: str = "There is no more capacity in the zone") -> Outcome:
    """The request is refused for want of machines."""
    return Outcome(error=StockOut(reason))


@dataclass(slots=True)
class _Slice:
    spec: SliceSpec
    outcome: Outcome
    made_at: float
    created_at_ms: int
    forced: SliceState | None = None
    error: str = ""
    deleted_at: float | None = None


class FakeMachines:
    """See the module. `created` and `deleted` are the requests in their order, refused ones included."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._slices: dict[str, _Slice] = {}
        self._scripts: dict[str, deque[Outcome]] = {}
        self._foreign: dict[str, SliceInfo] = {}
        self.created: list[SliceSpec] = []
        self.deleted: list[str] = []
        self.list_error: MachinesFailed | None = None
        """`list` raises this while it is set."""
        self.list_hangs = False
        self.delete_error: MachinesFailed | None = None
        self.reached: Callable[[str], bool] = lambda _address: False
        self.on_ready: Callable[[SliceSpec], None] = lambda _spec: None
        """Told of each slice when it is first seen READY."""
        self._told: set[str] = set()

    # The script ---------------------------------------------------------------------------------------------

    def script(self, group: str, outcomes: Iterable[Outcome]) -> None:
        """What becomes of the next requests for that group; the last one for all after it."""
        self._scripts[group] = deque(outcomes)

    def preempt(self, slice_id: str, *, vanish: bool = False) -> None:
        """The provider takes a slice back; `vanish` = it is not even listed any more."""
        if vanish:
            del self._slices[slice_id]
        else:
            self._slices[slice_id].forced = SliceState.PREEMPTED

    def force(self, slice_id: str, state: SliceState, error: str = "") -> None:
        """From now on the slice is in that state."""
        self._slices[slice_id].forced = state
        self._slices[slice_id].error = error

    def appear(self, info: SliceInfo) -> None:
        """A slice that nobody asked for here is listed."""
        self._foreign[info.slice_id] = info

    @property
    def alive(self) -> list[str]:
        """Slices that still cost something, those that are being deleted included."""
        return [item.slice_id for item in self._infos()]

    # Machines -----------------------------------------------------------------------------------------------

    async def create(self, spec: SliceSpec) -> SliceInfo:
        self.created.append(spec)
        script = self._scripts.get(spec.scale_group) or deque([Outcome()])
        outcome = script.popleft() if len(script) > 1 else script[0]
        if outcome.hangs:
            await asyncio.get_running_loop().create_future()
        if outcome.answer_s:
            await self._clock.sleep(outcome.answer_s)
        if outcome.error is not None:
            raise outcome.error
        if spec.slice_id not in self._slices:
            self._slices[spec.slice_id] = _Slice(spec, outcome, self._clock.monotonic(), self._clock.now_ms())
        return self._info(self._slices[spec.slice_id])

    async def list(self) -> Sequence[SliceInfo]:
        if self.list_hangs:
            await asyncio.get_running_loop().create_future()
        if self.list_error is not None:
            raise self.list_error
        return self._infos()

    async def describe(self, slice_id: str) -> SliceInfo | None:
        return next((info for info in self._infos() if info.slice_id == slice_id), None)

    async def delete(self, slice_id: str) -> None:
        self.deleted.append(slice_id)
        if self.delete_error is not None:
            raise self.delete_error
        self._foreign.pop(slice_id, None)
        item = self._slices.get(slice_id)
        if item is not None and item.deleted_at is None:
            item.deleted_at = self._clock.monotonic()

    async def vm_logs(self, vm_id: str, lines: int) -> Sequence[str]:
        if not any(vm.vm_id == vm_id for info in self._infos() for vm in info.vms):
            raise MachinesFailed(f"there is no machine {vm_id}", retryable=False)
        return [f"{vm_id} booted"][-lines:]

    def reachable(self, address: str) -> bool:
        return self.reached(address)

    def _infos(self) -> Sequence[SliceInfo]:
        now = self._clock.monotonic()
        gone = [
            slice_id
            for slice_id, item in self._slices.items()
            if item.deleted_at is not None
            and item.outcome.delete_s is not None
            and now >= item.deleted_at + item.outcome.delete_s
        ]
        for slice_id in gone:
            del self._slices[slice_id]
        return [*(self._info(item) for item in self._slices.values()), *self._foreign.values()]

    def _info(self, item: _Slice) -> SliceInfo:
        spec, outcome = item.spec, item.outcome
        ready = self._clock.monotonic() >= item.made_at + outcome.ready_s
        state, error = SliceState.CREATING, item.error
        if item.deleted_at is not None:
            state = SliceState.DELETING
        elif item.forced is not None:
            state = item.forced
        elif ready and outcome.fails:
            state, error = SliceState.FAILED, outcome.fails
        elif ready:
            state = SliceState.READY
        if state is SliceState.READY and spec.slice_id not in self._told:
            self._told.add(spec.slice_id)
            self.on_ready(spec)
        count = spec.num_vms if outcome.vms is None else outcome.vms
        info = SliceInfo(spec.slice_id, spec.scale_group, state, (), item.created_at_ms, dict(spec.labels), error)
        if not ready:
            return info
        vms = tuple(VmInfo(worker_id, worker_id, "", VmState.READY) for worker_id in spec.worker_ids[:count])
        return replace(info, vms=vms)
