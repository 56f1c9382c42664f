"""The autoscaler at work: it looks, has the pure parts decide, writes what they decided, and has the hands carry it out.

Every change of state is a command in the controller's one queue, and is checked again there against the row as it is then. No
call to the provider is waited for: an evaluation begins and ends within what the queue takes (targets R19). It evaluates every
`evaluation_interval`, and at once when work is found that nothing can take, or a slice changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from iris_controller.autoscaling import backoff, planning
from iris_controller.autoscaling.actions import ActionLog, Outcome
from iris_controller.autoscaling.coming import by_job, coming
from iris_controller.autoscaling.demand import Demand, demand_in_steps
from iris_controller.autoscaling.failures import Failures
from iris_controller.autoscaling.groups import GroupState
from iris_controller.autoscaling.hands import CREATE_S, LIST_S, Hands, within
from iris_controller.autoscaling.holdings import held_slices, reserved_groups, with_pools
from iris_controller.autoscaling.keeper import Keeper
from iris_controller.autoscaling.memory import Memory
from iris_controller.autoscaling.pieces import in_pieces
from iris_controller.autoscaling.planning import Plan
from iris_controller.autoscaling.probes import healthy, probe
from iris_controller.autoscaling.rates import Rate
from iris_controller.autoscaling.reservations import SHORT
from iris_controller.autoscaling.routing import Routing
from iris_controller.autoscaling.sights import Sights
from iris_controller.autoscaling.specs import new_slice_id, slice_spec, workers_of
from iris_controller.state.slices import Lifecycle, ScalingGroup, Slice
from iris_core.contracts import MachinesFailed, QuotaExceeded, SliceInfo, StockOut
from iris_core.model.states import WorkerHealth

if TYPE_CHECKING:
    from iris_controller.autoscaling.queue import Queue
    from iris_controller.commits import Committed
    from iris_controller.state.overlay import Overlay
    from iris_core.config.cluster import ClusterConfig
    from iris_core.config.scale_groups import ScaleGroup
    from iris_core.contracts import Machines, SliceSpec
    from iris_core.live.clock import Clock

log = logging.getLogger("iris.autoscaler")

CREATES_PER_MINUTE: Final = 60
GAP_S: Final = 0.5
"""Least time between two evaluations."""
DEMAND_S: Final = 0.0007
"""The same for each waiting job: one takes some 35 µs, so that a long queue costs a twentieth of it at most."""
WATCH_S: Final = 2.0
"""How often the provider is asked while something of its comes or goes."""
PROBE_EVERY_S: Final = 9.5
"""However often it evaluates: a worker whose stream closed is declared dead long before enough probes have failed."""
NEVER: Final = -1e9
LARGE: Final = 1_000
"""Entries of demand times groups, and slices that may go, from which on planning would hold up the loop."""


@dataclass(slots=True)
class Evaluation:
    """The latest one, for whoever asks."""

    at_ms: int = 0
    demands: list[Demand] = field(default_factory=list)
    states: list[GroupState] = field(default_factory=list)
    plan: Plan = field(default_factory=lambda: Plan(Routing()))


class Autoscaler:
    """See the module. `unplaced` is the scheduler's word on what found no room; `settle` waits until it has looked."""

    def __init__(
        self,
        loop: Queue,
        machines: Machines,
        config: ClusterConfig,
        unplaced: Callable[[], Iterable[tuple[str, bool]]],
        settle: Callable[[], Awaitable[None]],
        clock: Clock,
        ask: Callable[[str], Awaitable[bool]] = healthy,
        mint: Callable[[str], str] = new_slice_id,
    ) -> None:
        self._loop = loop
        self._model = loop.model
        self.machines = machines
        self.config = config
        self._groups = config.scale_groups
        self._unplaced = unplaced
        self._settle = settle
        self._clock = clock
        self._ask = ask
        self._mint = mint
        self.sights = Sights()
        self.memory = Memory(self._groups, loop.model, clock.monotonic(), loop.now_ms())
        self.actions = ActionLog(loop.now_ms)
        self.last = Evaluation()
        self.problem = ""
        """Why the provider's slices are not known as of now."""
        self.fault = ""
        """What went wrong in the latest evaluation by a fault of ours."""
        self._hands = Hands(self._hand_done)
        self._requesting: dict[str, tuple[str, bool]] = {}
        """Slices that were asked for and not answered yet: their groups by id, and whether they are an operator's."""
        self._reserved = reserved_groups(config)
        self._creates = Rate(CREATES_PER_MINUTE, clock.monotonic())
        self._listed_at = NEVER
        self._probed_at = NEVER
        self._failures = Failures(loop.model, self.memory, self.actions, clock)
        self._keeper = Keeper(
            loop,
            machines,
            config,
            clock,
            self.sights,
            self.memory,
            self.actions,
            self._failures,
            self._hands,
            self._look_again,
        )
        self._wake = asyncio.Event()
        loop.on_commit(self._committed)

    # Waking -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Runs for ever."""
        try:
            while True:
                self._wake.clear()
                await self._try()
                gap = max(GAP_S, DEMAND_S * len(self.last.demands))
                await self._clock.sleep(gap)
                await self._until_woken(max(0.0, self._next_look() - gap))
        finally:
            await self.close()

    async def _try(self) -> None:
        """One evaluation; a fault of ours is said, and the next one is tried in its time."""
        try:
            await self.evaluate()
        except Exception as fault:
            if not self.fault:
                log.exception("an evaluation failed")
            self.fault = f"an evaluation failed: {type(fault).__name__}: {fault}"
        else:
            self.fault = ""

    async def close(self) -> None:
        """Gives up every call to the provider that is under way."""
        await self._hands.close()

    async def _until_woken(self, seconds: float) -> None:
        timer = asyncio.ensure_future(self._clock.sleep(seconds))
        woken = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait({timer, woken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            woken.cancel()

    def _next_look(self) -> float:
        interval = self.config.autoscaler.evaluation_interval_ms / 1000
        moving = any(row.lifecycle is not Lifecycle.READY for row in self._model.slices.values())
        return min(interval, WATCH_S) if moving else interval

    def _committed(self, batch: Committed) -> None:
        changes = batch.changes
        model = self._model
        for worker_id in changes.dispatch:
            worker = model.workers.get(worker_id)
            if worker is not None and worker.slice_id:
                self.sights.touch(worker.slice_id)
        # Without groups nothing can be made for those who wait: the queue is looked at in its time, not with every change of it.
        wake = bool((batch.reasons and self._groups) or changes.slices)
        for worker_id in changes.workers if not wake else ():
            worker = model.workers.get(worker_id)
            row = model.slices.get(worker.slice_id) if worker is not None else None
            if worker is not None and row is not None:
                ready = row.lifecycle is Lifecycle.READY
                spent = worker.health is WorkerHealth.DEAD or worker.excluded
                wake = wake or (spent if ready else worker.attached)
        if wake:
            self._wake.set()

    def _look_again(self) -> None:
        self._listed_at = NEVER

    def _hand_done(self, name: str, error: BaseException | None) -> None:
        if error is not None:
            log.error("%s failed", name, exc_info=error)
        self._wake.set()

    # One evaluation -----------------------------------------------------------------------------------------

    async def evaluate(self) -> None:
        """Looks, and does what there is to do now."""
        now = self._clock.monotonic()
        self.sights.keep(self._model.slices, now)
        self._look(now)
        if self.sights.listed:
            await self._keeper.adopt(self._requesting)
        await asyncio.sleep(0)
        await self._keeper.advance(now)
        self._keeper.delete(now)
        await asyncio.sleep(0)
        if self.sights.listed:
            await self._settle()
            await self._plan(self._clock.monotonic())

    def _look(self, now: float) -> None:
        """Has the provider asked which slices there are, when that is due; nobody waits for the answer."""
        if now - self._listed_at >= self._next_look() - 0.001 and not self._hands.busy("list"):
            self._listed_at = now
            self._hands.start("list", self._list)

    async def _list(self) -> None:
        began = self._clock.monotonic()
        try:
            infos = await within(self._clock, LIST_S, "the provider's list of slices", self.machines.list())
        except MachinesFailed as error:
            if not self.problem:
                log.warning("the slices cannot be listed: %s", error)
            self.problem = str(error)
            return
        self.problem = ""
        self.sights.take(infos, self._model.slices, began, self._clock.monotonic())
        if self._clock.monotonic() - self._probed_at >= PROBE_EVERY_S:
            self._probed_at = self._clock.monotonic()
            await self._probe()

    async def _probe(self) -> None:
        """Asks the workers of ready slices that have no stream; a worker that has one is reachable by that."""
        addresses: dict[str, str] = {}
        for row in self._model.slices.values():
            if row.lifecycle is not Lifecycle.READY or row.manual:
                continue
            for worker_id in row.worker_ids:
                worker = self._model.workers.get(worker_id)
                if worker is not None and worker.attached:
                    self.sights.failed_probes.pop(worker_id, None)
                    continue
                address = self.sights.address(row.slice_id, worker_id) or (worker.address if worker is not None else "")
                if address and self.machines.reachable(address):
                    addresses[worker_id] = address
        for worker_id, well in (await probe(addresses, self._ask)).items():
            failed = self.sights.failed_probes
            failed[worker_id] = 0 if well else failed.get(worker_id, 0) + 1

    # Making -------------------------------------------------------------------------------------------------

    async def _plan(self, now: float) -> None:
        demands = await in_pieces(demand_in_steps(self._model, self._unplaced()))
        await in_pieces(self.memory.look_at_workers())
        await asyncio.sleep(0)
        states = self._states(now)
        held = held_slices(self._model, self._reserved) if self._reserved else ()
        decide = partial(
            planning.plan,
            demands,
            states,
            self.memory.idle(self.sights, now),
            held=held,
            creates_left=self._creates.left(now),
            idle_threshold_ms=self.config.autoscaler.scale_down_delay_ms,
        )
        # Values in, plan out: a large one is worked out beside the loop.
        large = len(demands) * (len(states) + len(held)) > LARGE
        plan = await asyncio.to_thread(decide) if large else decide()
        self.last = Evaluation(self._loop.now_ms(), demands, states, plan)
        for name, count in plan.routing.required.items():
            memory = self.memory.of(name, now)
            memory.peak = max(memory.peak, count)
        short = {(SHORT, name): reason for name, reason in plan.routing.short.items()}
        self.actions.stand({(d.action, d.group): d.reason for d in plan.deferred} | short)
        for launch in plan.launches:
            self.memory.of(launch.group, now).up.take(launch.count)
            self._creates.take(launch.count)
            for _ in range(launch.count):
                self._launch(self._groups[launch.group], launch.reason)
        await self._foretell(plan, states)
        if plan.routing.making_way:
            await self._keeper.make_way(plan.routing.making_way, now)
        if plan.retires:
            await self._keeper.retire(plan.retires, now)

    async def _foretell(self, plan: Plan, states: Iterable[GroupState]) -> None:
        """Has the pending reasons say which slices are on their way, and for whom."""
        known, routing = self._model.coming, plan.routing
        lines = by_job(routing, coming(self._model.slices.values(), states, plan.launches)) if routing.routed else {}
        changed = {
            job_id: lines.get(job_id, "")
            for job_id in lines.keys() | known.keys()
            if lines.get(job_id, "") != known.get(job_id, "") and (job_id in known or job_id in self._model.pending)
        }
        if changed:
            await self._loop.post("slices on their way", lambda o, _: o.coming.update(changed))

    def _launch(self, group: ScaleGroup, reason: str) -> None:
        spec = self.spec(group)
        self._requesting[spec.slice_id] = group.name, False
        self.actions.say("scale_up", spec.slice_id, group.name, "pending", reason)
        self._hands.start(f"create {spec.slice_id}", lambda: self._create(spec))

    def spec(self, group: ScaleGroup, *, manual: bool = False) -> SliceSpec:
        """The request for one more slice of the group, under a new name."""
        platform, prefix = self.config.platform, self.config.label_prefix
        return slice_spec(group, self._mint(group.name), platform, prefix, manual=manual)

    async def _create(self, spec: SliceSpec) -> None:
        began = self._clock.monotonic()
        name = spec.scale_group
        try:
            info = await within(self._clock, CREATE_S, "the request for a slice", self.machines.create(spec))
            await self._record(spec, info, manual=False)
            self.actions.say("scale_up", spec.slice_id, name, "completed", "the provider makes it")
        except MachinesFailed as error:
            await self._refused(spec, error, began)
        finally:
            self._requesting.pop(spec.slice_id, None)

    async def _record(
        self,
        spec: SliceSpec,
        info: SliceInfo,
        *,
        manual: bool,
        noted: Callable[[Overlay], None] = lambda _: None,
    ) -> None:
        def plan(o: Overlay, now_ms: int) -> None:
            row = Slice(
                spec.slice_id,
                spec.scale_group,
                Lifecycle.BOOTING,
                workers_of(info, spec.num_vms),
                info.created_at_ms or now_ms,
                manual=manual,
                updated_at_ms=now_ms,
            )
            o.slices[row.slice_id] = row
            known = o.scaling_group(spec.scale_group) or ScalingGroup(spec.scale_group)
            if not manual:
                o.scaling_groups[known.name] = backoff.accepted(known, now_ms)
            noted(o)

        self._keeper.made_at[spec.slice_id] = self._clock.monotonic()
        try:
            await self._loop.post("slice asked for", plan)
        except BaseException:
            # The provider has it: what is not known as made here is adopted from its list.
            del self._keeper.made_at[spec.slice_id]
            raise
        self.sights.know(spec.slice_id, self._clock.monotonic())
        if not manual:
            self.memory.of(spec.scale_group, self._clock.monotonic()).quota_until = 0.0

    async def _refused(self, spec: SliceSpec, error: MachinesFailed, began: float) -> None:
        name, reason = spec.scale_group, error.reason
        now = self._clock.monotonic()
        booked = await self._loop.post(
            "slice refused", lambda o, now_ms: self._failures.book(o, name, began, now, reason, now_ms, error)
        )
        self.actions.say("scale_up", spec.slice_id, name, "failed", reason)
        kind: Literal["stockout", "error"] = "stockout" if isinstance(error, StockOut) else "error"
        self.actions.on_outcome(Outcome(name, kind, reason, spec.num_vms, int((now - began) * 1000)))
        if not booked:
            return
        if isinstance(error, QuotaExceeded):
            self.actions.say("quota_exceeded", name, name, "completed", reason)
        else:
            self._failures.say(name)

    # For others ---------------------------------------------------------------------------------------------

    async def create_manual(self, spec: SliceSpec, noted: Callable[[Overlay], None] = lambda _: None) -> None:
        """Has a slice of `spec(…, manual=True)` made, which is not counted and not ended here. `noted` is told of the batch
        that writes it. Raises MachinesFailed.
        """
        self._requesting[spec.slice_id] = spec.scale_group, True
        try:
            info = await within(self._clock, CREATE_S, "the request for a slice", self.machines.create(spec))
            await self._record(spec, info, manual=True, noted=noted)
        finally:
            self._requesting.pop(spec.slice_id, None)
        self.actions.say("scale_up", spec.slice_id, spec.scale_group, "completed", "asked for by an operator")

    def woken(self) -> None:
        """Something was changed that the autoscaler should look at now."""
        self._wake.set()

    def states(self) -> list[GroupState]:
        """Every group as of now."""
        return self._states(self._clock.monotonic())

    def idle_ms(self, slice_id: str) -> int:
        """For how long a slice has been idle, 0 = it is not."""
        since = self.sights.idle_since(slice_id)
        return int((self._clock.monotonic() - since) * 1000) if since is not None else 0

    def peak(self, group: str) -> int:
        """The most slices that demand has filled at once since this process began."""
        return self.memory.of(group, self._clock.monotonic()).peak

    def _states(self, now: float) -> list[GroupState]:
        asked = self._requesting.values()
        states = self.memory.states([group for group, manual in asked if not manual], now)
        if not self._reserved:
            return states
        rows = self._model.slices
        unknown = [group for slice_id, (group, _) in self._requesting.items() if slice_id not in rows]
        return with_pools(states, self._reserved, self.config.autoscaler.reservations, rows.values(), unknown)
