"""An autoscaler on a standing clock: the real runner, planner and kernel, the scripted provider, workers that attach when told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from iris_controller.autoscaling.groups import GroupState
from iris_controller.autoscaling.runner import Autoscaler
from iris_controller.commits import Committed
from iris_controller.state import availability, kernel
from iris_core.config.cluster import ClusterConfig
from iris_core.config.scale_groups import AutoscalerConfig, ScaleGroup
from iris_core.model.resources import Device, Resources
from iris_core.model.states import WorkerHealth
from providers.fake.clock import FakeClock
from providers.fake.machines import FakeMachines
from tests.unit.kernel_world import GB, World, healthy_worker

if TYPE_CHECKING:
    from iris_controller.state.model import Model
    from iris_controller.state.overlay import Overlay
    from iris_core.contracts import SliceSpec

T = TypeVar("T")


def group(name: str = "cpu", **values: Any) -> ScaleGroup:
    """Machines of 4 cores and 16 GB unless it says otherwise."""
    given: dict[str, Any] = {"cpu_millicores": 4000, "memory_bytes": 16 * GB, "max_slices": 4}
    return ScaleGroup(name, **(given | values))


def tpu_group(name: str = "tpu", num_vms: int = 4, **values: Any) -> ScaleGroup:
    return group(name, num_vms=num_vms, device=Device("tpu", f"v5litepod-{num_vms * 4}", 4), **values)


def state(scale_group: ScaleGroup | None = None, **values: Any) -> GroupState:
    return GroupState(scale_group or group(), **values)


class WorldQueue:
    """The controller's queue over a `World`: a command is a batch, and is committed at once."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.model: Model = world.model
        self._listeners: list[Callable[[Committed], None]] = []
        self._n = 0

    def now_ms(self) -> int:
        return self.world.now_ms

    def on_commit(self, listener: Callable[[Committed], None]) -> None:
        self._listeners.append(listener)

    def post(self, name: str, plan: Callable[[Overlay, int], T]) -> asyncio.Future[T]:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self.world.batch() as o:
            done.set_result(plan(o, self.world.now_ms))
        self.tell()
        return done

    def tell(self) -> None:
        self._n += 1
        for listener in self._listeners:
            listener(Committed(self._n, self.world.changes, self.world.now_ms))


class AutoscalerWorld:
    """One cluster. Jobs and workers through `world`, slices through `machines`, time through `pass_time`."""

    def __init__(
        self,
        *groups: ScaleGroup,
        delay_ms: int = 600_000,
        interval_ms: int = 10_000,
        reservations: dict[str, int] | None = None,
        attach: bool = True,
        world: World | None = None,
        machines: FakeMachines | None = None,
        clock: FakeClock | None = None,
    ) -> None:
        self.world = world or World()
        self.clock = clock or FakeClock(self.world.now_ms)
        self.machines = machines or FakeMachines(self.clock)
        self.config = ClusterConfig(
            "test",
            "test",
            scale_groups={g.name: g for g in groups},
            autoscaler=AutoscalerConfig(interval_ms, delay_ms, reservations or {}),
        )
        self.queue = WorldQueue(self.world)
        if attach:
            self.machines.on_ready = self.attach
        self.asked: list[str] = []
        self.well: Callable[[str], bool] = lambda _address: False
        self.scaler = Autoscaler(
            self.queue, self.machines, self.config, self._unplaced, self._settle, self.clock, self._ask, self._mint
        )

    def _mint(self, name: str) -> str:
        return f"{name}-{self.world.uid()[-8:]}"

    async def _settle(self) -> None:
        self.world.plan()
        self.queue.tell()

    async def _ask(self, address: str) -> bool:
        self.asked.append(address)
        return self.well(address)

    def _unplaced(self) -> Iterable[tuple[str, bool]]:
        return self.world.planner.unplaced()

    def attach(self, spec: SliceSpec) -> None:
        """All workers of a slice attach and are healthy."""
        for worker_id in spec.worker_ids:
            self.attach_worker(spec, worker_id)

    def attach_worker(self, spec: SliceSpec, worker_id: str) -> None:
        asked = spec.resources
        worker = healthy_worker(
            worker_id,
            slice_id=spec.slice_id,
            scale_group=spec.scale_group,
            attributes=dict(spec.attributes) | {"tpu-name": spec.slice_id},
        )
        total = Resources(asked.cpu_millicores or 4000, asked.memory_bytes or 16 * GB, 0, asked.device)
        with self.world.batch() as o:
            o.workers[worker_id] = worker
            o.set_worker(worker, total=total)
            availability.mark(o, worker_id, None)

    def lose_worker(self, worker_id: str, reason: str = "no message for 50 s") -> None:
        """What the liveness of workers does when one is dead."""
        with self.world.batch() as o:
            worker = o.worker(worker_id)
            assert worker is not None
            o.set_worker(worker, health=WorkerHealth.DEAD, health_reason=reason, attached=False, placeable=False)
            kernel.worker_lost(o, worker_id, reason, self.world.now_ms)
        self.queue.tell()

    async def look(self, times: int = 1) -> None:
        """Evaluates, letting calls to the provider that need no time finish in between."""
        for _ in range(times):
            await self.scaler.evaluate()
            await calm()

    async def pass_time(self, seconds: float, step: float = 10.0) -> None:
        """Lets time pass in steps, with an evaluation after each."""
        while seconds > 0:
            self.clock.advance(min(step, seconds))
            self.world.now_ms += int(min(step, seconds) * 1000)
            seconds -= step
            await calm()
            await self.look()

    def lifecycles(self) -> dict[str, str]:
        return {row.slice_id: str(row.lifecycle) for row in self.world.model.slices.values()}

    def count(self, lifecycle: str = "ready") -> int:
        return sum(word == lifecycle for word in self.lifecycles().values())

    def said(self, action: str, status: str = "") -> list[str]:
        return [a.reason for a in self.scaler.actions.all() if a.action == action and status in ("", a.status)]


async def calm() -> None:
    """Until tasks that wait for nothing but each other have run."""
    for _ in range(20):
        await asyncio.sleep(0)
