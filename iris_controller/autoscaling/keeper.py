"""Each slice from the provider's word to its row and back: adopted, ready, failed, given up, deleted, forgotten.

What becomes of a slice is `lifecycle`'s to say; here it is written through the controller's queue, against the row as it is then, and
the machines of what was given up are deleted once the work there is over. Must never make a slice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_controller.autoscaling import backoff
from iris_controller.autoscaling.actions import Outcome
from iris_controller.autoscaling.hands import DELETE_S, Hands, within
from iris_controller.autoscaling.holdings import comes_back
from iris_controller.autoscaling.lifecycle import Step, next_step
from iris_controller.autoscaling.replacements import Replacements
from iris_controller.autoscaling.specs import is_manual, workers_of
from iris_controller.scheduling.order import band_now
from iris_controller.state import making_way, slices
from iris_controller.state.slices import GOING, Lifecycle, ScalingGroup, Slice
from iris_core.contracts import MachinesFailed, SliceInfo, SliceState
from iris_core.model.states import WorkerHealth

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from iris_controller.autoscaling.actions import ActionLog
    from iris_controller.autoscaling.failures import Failures
    from iris_controller.autoscaling.memory import Memory
    from iris_controller.autoscaling.planning import Retire
    from iris_controller.autoscaling.queue import Queue
    from iris_controller.autoscaling.reservations import MakeWay
    from iris_controller.autoscaling.sights import Sights
    from iris_controller.scheduling.preemption import Claim
    from iris_controller.state.overlay import Overlay
    from iris_core.config.cluster import ClusterConfig
    from iris_core.contracts import Machines
    from iris_core.live.clock import Clock

GRACE_S: Final = 30.0
"""So long the work on a slice that is given up has to end before its machines go."""
DELETE_AGAIN_S: Final = 60.0
_NEVER: Final = -1e9


class Keeper:
    """See the module. `look_again` asks for a new list of slices soon."""

    def __init__(
        self,
        loop: Queue,
        machines: Machines,
        config: ClusterConfig,
        clock: Clock,
        sights: Sights,
        memory: Memory,
        actions: ActionLog,
        failures: Failures,
        hands: Hands,
        look_again: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._model = loop.model
        self._machines = machines
        self._config = config
        self._clock = clock
        self._sights = sights
        self._memory = memory
        self._actions = actions
        self._failures = failures
        self._hands = hands
        self._look_again = look_again
        self.made_at: dict[str, float] = {}
        """When this process had each slice made, in monotonic seconds."""
        self._deleted_at: dict[str, float] = {}
        self._replacements = Replacements()

    async def adopt(self, requesting: Collection[str]) -> None:
        """Slices of this cluster that the state does not know: made by an earlier controller that died before it wrote so."""
        found = [
            info
            for info in self._sights.infos.values()
            if info.slice_id not in self._model.slices
            and info.slice_id not in requesting
            and info.slice_id not in self.made_at
            and info.state is not SliceState.DELETING
        ]
        if not found:
            return

        def plan(o: Overlay, now_ms: int) -> list[Slice]:
            return [self._put_unknown(o, info, now_ms) for info in found if o.slice(info.slice_id) is None]

        for row in await self._loop.post("adopt slices", plan):
            self._sights.know(row.slice_id, self._clock.monotonic())
            self._actions.say("adopted", row.slice_id, row.scale_group, "completed", "the provider has it")

    def _put_unknown(self, o: Overlay, info: SliceInfo, now_ms: int) -> Slice:
        group = self._config.scale_groups.get(info.scale_group)
        row = Slice(
            info.slice_id,
            info.scale_group,
            Lifecycle.BOOTING,
            workers_of(info, group.num_vms if group is not None else len(info.vms)),
            info.created_at_ms or now_ms,
            manual=is_manual(info.labels, self._config.label_prefix),
            updated_at_ms=now_ms,
        )
        o.slices[row.slice_id] = row
        return row

    async def advance(self, now: float) -> None:
        steps: list[tuple[Slice, Step, str]] = []
        for row in self._model.slices.values():
            if self._sights.unremarkable(row, self._model):
                continue
            found = next_step(row, self._sights.sight(row, self._model, now))
            if found is not None:
                steps.append((row, *found))
        steps = self._one_at_a_time(steps, now)
        if not steps:
            return

        def plan(o: Overlay, now_ms: int) -> list[tuple[Slice, Step, str]]:
            done = []
            for row, step, reason in steps:
                if o.slice(row.slice_id) == row and (step is not Step.REPLACE or slices.is_spent(o, row)):
                    self._step(o, row, step, reason, now, now_ms)
                    done.append((row, step, reason))
            return done

        for row, step, reason in await self._loop.post("slices", plan):
            self._stepped(row, step, reason)

    def _one_at_a_time(self, steps: list[tuple[Slice, Step, str]], now: float) -> list[tuple[Slice, Step, str]]:
        """Leaves one slice of a group to be replaced: none while another one comes or goes, nor soon after a failure of the group that
        no slice which became ready has made good, nor soon after the one before (`replacements`).

        What all machines fail at, a fault of the network for example, must not take a whole fleet down at once.
        """
        moving = {
            row.scale_group
            for row in self._model.slices.values()
            if row.lifecycle is not Lifecycle.READY and not row.manual
        }
        left = []
        for row, step, reason in steps:
            if step is Step.REPLACE:
                name = row.scale_group
                if name in moving or self._failures.is_recent(name, now) or not self._replacements.may(name, now):
                    continue
                moving.add(row.scale_group)
            left.append((row, step, reason))
        return left

    def _step(self, o: Overlay, row: Slice, step: Step, reason: str, now: float, now_ms: int) -> None:
        name = row.scale_group
        match step:
            case Step.INITIALIZING:
                slices.change_slice(o, row, now_ms, lifecycle=Lifecycle.INITIALIZING)
            case Step.READY:
                slices.change_slice(o, row, now_ms, lifecycle=Lifecycle.READY, error_message="")
                o.note("slice_ready", row.slice_id, "autoscaler", group=name, workers=len(row.worker_ids))
                known = o.scaling_group(name)
                if known is not None and not row.manual:
                    o.scaling_groups[name] = backoff.became_ready(known, now_ms)
            case Step.FAIL | Step.LOSE | Step.REPLACE:
                failed = step is Step.FAIL or row.manual
                slices.give_up(o, row, Lifecycle.FAILED if failed else Lifecycle.DRAINING, "autoscaler", reason, now_ms)
                if step is not Step.LOSE and not row.manual:
                    began = self.made_at.get(row.slice_id, now) if step is Step.FAIL else now
                    self._failures.book(o, name, began, now, reason, now_ms)
            case Step.GONE:
                slices.forget(o, row, "autoscaler", reason, now_ms)
                if row.lifecycle in (Lifecycle.BOOTING, Lifecycle.INITIALIZING) and not row.manual:
                    self._failures.book(o, name, self.made_at.get(row.slice_id, now), now, reason, now_ms)

    def _outcome(self, row: Slice, step: Step, reason: str) -> Outcome | None:
        """What the step means for the request that made the slice; None = nothing."""
        made = self.made_at.get(row.slice_id)
        latency_ms = int((self._clock.monotonic() - made) * 1000) if made is not None else None
        count = len(row.worker_ids)
        if step is Step.READY:
            return Outcome(row.scale_group, "ready", "", count, latency_ms)
        on_the_way = row.lifecycle in (Lifecycle.BOOTING, Lifecycle.INITIALIZING)
        if step is Step.INITIALIZING or (step is Step.GONE and row.lifecycle in GOING):
            return None
        info = self._sights.infos.get(row.slice_id)
        taken_back = info is not None and info.state is SliceState.PREEMPTED
        return Outcome(
            row.scale_group, "preempted" if taken_back else "error", reason, count, latency_ms if on_the_way else None
        )

    def _stepped(self, row: Slice, step: Step, reason: str) -> None:
        name = row.scale_group
        outcome = self._outcome(row, step, reason)
        if outcome is not None:
            self._actions.on_outcome(outcome)
        match step:
            case Step.READY:
                if not row.manual:
                    self._memory.of(name, self._clock.monotonic()).backoff_until = 0.0
                self._actions.say("slice_ready", row.slice_id, name, "completed", reason)
            case Step.FAIL:
                self._actions.say("slice_failed", row.slice_id, name, "failed", reason)
                self._failures.say(name)
            case Step.LOSE:
                self._actions.say("worker_failed", row.slice_id, name, "failed", reason)
            case Step.REPLACE:
                self._replacements.note(name, self._clock.monotonic())
                self._actions.say("worker_failed", row.slice_id, name, "failed", f"{reason}; its slice is replaced")
                self._failures.say(name)
            case Step.GONE:
                self.made_at.pop(row.slice_id, None)
                for worker_id in row.worker_ids:
                    self._sights.failed_probes.pop(worker_id, None)
                if row.lifecycle in GOING:
                    self._actions.say("scale_down", row.slice_id, name, "completed", reason)
                else:
                    self._actions.say("slice_failed", row.slice_id, name, "failed", reason)
                    self._failures.say(name)

    async def retire(self, wanted: Sequence[Retire], now: float) -> None:
        """Gives up idle slices, those that are idle still."""

        def give_up(o: Overlay, now_ms: int) -> list[str]:
            done = []
            for item in wanted:
                row = o.slice(item.slice_id)
                if row is None or row.lifecycle is not Lifecycle.READY or not slices.idle(o, row):
                    continue
                slices.give_up(o, row, Lifecycle.DRAINING, "autoscaler", item.reason, now_ms)
                known = o.scaling_group(row.scale_group) or ScalingGroup(row.scale_group)
                o.scaling_groups[known.name] = slices.scaled_down(known, now_ms)
                done.append(row.slice_id)
            return done

        given_up = await self._loop.post("scale down", give_up)
        for item in wanted:
            if item.slice_id in given_up:
                self._memory.of(item.group, now).down.take(1)
                self._actions.say("scale_down", item.slice_id, item.group, "pending", item.reason)
        self._sights.keep(self._model.slices, now)
        self.delete(now)

    async def make_way(self, wanted: Sequence[MakeWay], now: float) -> None:
        """Gives up slices for more important work of the same reservation, where that is as it was when it was planned."""
        going = {row.slice_id for row in self._model.slices.values() if row.lifecycle in GOING}
        for item in wanted:
            claim = item.demand.claim
            if claim is None:
                continue

            def give_up(o: Overlay, now_ms: int, item: MakeWay = item, claim: Claim = claim) -> list[Slice]:
                job = o.job(item.demand.job_id)
                rows = (self._model.slices | o.slices).values()
                more = any(row is not None and row.lifecycle in GOING and row.slice_id not in going for row in rows)
                if job is None or more or band_now(self._model, job) is not claim.band:
                    # Chips that nobody knew of are on their way back, or it is not worth as much any more: the next look will tell.
                    return []
                ids = [held.slice_id for held in item.slices]
                return making_way.make_way(o, ids, job.job_id, claim.band, claim.may_take, item.pool, now_ms)

            for row in await self._loop.post("reservation", give_up):
                going.add(row.slice_id)
                self._actions.say("scale_down", row.slice_id, row.scale_group, "pending", row.error_message)
        self._sights.keep(self._model.slices, now)
        self.delete(now)

    def delete(self, now: float) -> None:
        """Has the machines of slices that were given up deleted, once what ran there is over or had its time."""
        for row in self._model.slices.values():
            if row.lifecycle not in GOING or not comes_back(row):
                continue
            busy = self._unconfirmed(row) and self._sights.going_s(row.slice_id, now) < GRACE_S
            if busy or now - self._deleted_at.get(row.slice_id, _NEVER) < DELETE_AGAIN_S:
                continue
            slice_id, group = row.slice_id, row.scale_group
            self._hands.start(f"delete {slice_id}", lambda s=slice_id, g=group: self._end(s, g))  # type: ignore[misc]
        for slice_id in [key for key in self._deleted_at if key not in self._model.slices]:
            del self._deleted_at[slice_id]

    def _unconfirmed(self, row: Slice) -> bool:
        model = self._model
        return any(
            model.by_worker.get(worker_id)
            for worker_id in row.worker_ids
            if worker_id in model.workers and model.workers[worker_id].health is not WorkerHealth.DEAD
        )

    async def _end(self, slice_id: str, group: str) -> None:
        try:
            await within(self._clock, DELETE_S, "the request to delete", self._machines.delete(slice_id))
        except MachinesFailed as error:
            self._actions.say("scale_down", slice_id, group, "failed", error.reason)
        self._deleted_at[slice_id] = self._clock.monotonic()
        self._look_again()
