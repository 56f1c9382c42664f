"""ListBackends and GetProviderStatus: what executes the work, what it offers, and which machines do not (control-plane §9).

A cluster whose own workers execute has one backend. Everything is counted when somebody asks: copied between two batches, summed up in a
thread. Must never decide whether something fits.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from iris_controller.rpc.views import health_reason
from iris_controller.scheduling.waiting import queue, reasons
from iris_core.model.bands import PriorityBand
from iris_core.model.states import WorkerHealth
from iris_core.model.text import counted
from iris_core.wire.convert import HEALTH, value_to_wire
from iris_core.wire.gen.iris.v1 import backends_pb2, common_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from iris_controller.loop import ControllerLoop
    from iris_controller.rpc.call import Call
    from iris_controller.rpc.dispatch import Router
    from iris_controller.state.model import Model
    from iris_controller.state.records import Attempt, Worker
    from iris_core.config.cluster import ClusterConfig

BACKEND_ID: Final = "default"
"""The one backend of a cluster whose file has no `backends`."""
KIND: Final = "worker_daemon"
CAPABILITIES: Final = ("exec", "logs", "process_status")
ROUTING: Final = ("device-type", "device-variant", "preemptible", "region", "zone")
"""Attributes that say where work can go at all (control-plane §2.5)."""
LISTED: Final = 100
"""Scheduling events, problems, and values of one attribute in an answer."""

DeviceKey = tuple[str, str]
Machine = tuple["Worker", int, int, int]
"""A worker with the millicores, bytes and devices that its unfinished attempts hold."""
Held = dict[str, dict[PriorityBand, int]]
"""Devices that tasks hold, by worker and band."""


@dataclass(slots=True)
class _Sums:
    """What the healthy ones of some workers offer."""

    total: list[int] = field(default_factory=lambda: [0, 0, 0])
    """Millicores, bytes of memory and of disk."""
    committed: list[int] = field(default_factory=lambda: [0, 0])
    devices: dict[DeviceKey, list[int]] = field(default_factory=dict)
    """Total and held."""
    bands: Counter[tuple[DeviceKey, PriorityBand]] = field(default_factory=Counter)
    workers: int = 0
    healthy: int = 0
    slices: set[str] = field(default_factory=set)

    def add(self, machine: Machine, held: Held) -> None:
        worker, millicores, memory, devices = machine
        self.workers += 1
        if worker.slice_id:
            self.slices.add(worker.slice_id)
        if not _works(worker):
            return
        self.healthy += 1
        total = worker.total
        self.total[0] += total.cpu_millicores
        self.total[1] += total.memory_bytes
        self.total[2] += total.disk_bytes
        self.committed[0] += millicores
        self.committed[1] += memory
        if total.device is None:
            return
        key = (total.device.kind, total.device.variant)
        amounts = self.devices.setdefault(key, [0, 0])
        amounts[0] += total.device.count
        amounts[1] += devices
        for band, count in held.get(worker.worker_id, {}).items():
            self.bands[(key, band)] += count

    def availability(self) -> list[backends_pb2.DeviceAvailability]:
        return [
            backends_pb2.DeviceAvailability(
                kind=kind,
                variant=variant,
                total=total,
                free=max(0, total - held),
                held_by_band={band.label: count for (key, band), count in self.bands.items() if key == (kind, variant)},
            )
            for (kind, variant), (total, held) in sorted(self.devices.items())
        ]


class BackendService:
    """See the module."""

    def __init__(
        self, loop: ControllerLoop, config: ClusterConfig, revision: Callable[[], common_pb2.Revision]
    ) -> None:
        self._loop = loop
        self._model = loop.model
        self._config = config
        self._revision = revision

    def register(self, router: Router) -> None:
        router.add("ControllerService/ListBackends", self.list_backends)
        router.add("ControllerService/GetProviderStatus", self.get_provider_status)

    async def list_backends(
        self, request: backends_pb2.ListBackendsRequest, call: Call
    ) -> backends_pb2.ListBackendsResponse:
        now_ms = self._loop.now_ms()
        return backends_pb2.ListBackendsResponse(backends=[await self.backend()], observed_at_ms=now_ms)

    async def get_provider_status(
        self, request: backends_pb2.GetProviderStatusRequest, call: Call
    ) -> backends_pb2.GetProviderStatusResponse:
        return await self.provider(self._revision())

    async def backend(self) -> backends_pb2.BackendStatus:
        """The one backend, as of now."""
        machines, attempts = _snapshot(self._model)
        backend = backends_pb2.BackendStatus(
            backend_id=BACKEND_ID,
            name=self._config.name,
            kind=KIND,
            capabilities=CAPABILITIES,
            pending_tasks=sum(map(len, self._model.pending.values())),
            running_tasks=self._model.tally.running_total,
        )
        groups = {worker.scale_group for worker, *_ in machines} | self._config.scale_groups.keys()
        backend.scale_groups.extend(sorted(groups - {""}))
        await asyncio.to_thread(_fill_backend, backend, self._model, machines, attempts)
        return backend

    async def provider(self, revision: common_pb2.Revision | None = None) -> backends_pb2.GetProviderStatusResponse:
        """The condition of its machines, as of now."""
        machines, attempts = _snapshot(self._model)
        response = backends_pb2.GetProviderStatusResponse(
            backend_id=BACKEND_ID, kind=KIND, platform=self._config.platform, revision=revision
        )
        by_reason = [
            (reason, len(found), sum(bucket.count for bucket in found), found[0].job.job_id)
            for reason, found in reasons(self._model, queue(self._model)).items()
        ]
        by_reason.sort(key=lambda event: (-event[2], event[0]))
        for reason, jobs, tasks, example in by_reason[:LISTED]:
            response.scheduling_events.add(reason=reason, jobs=jobs, tasks=tasks, example_job_id=example)
        response.capped = len(by_reason) > LISTED
        await asyncio.to_thread(_fill_capacity, response, self._model, machines, attempts)
        return response


def _snapshot(model: Model) -> tuple[list[Machine], list[Attempt]]:
    """Every worker with its use, and every unfinished attempt; must run between two batches."""
    machines: list[Machine] = []
    for worker_id, worker in model.workers.items():
        usage = model.usage_of(worker_id)
        machines.append((worker, usage.cpu_millicores, usage.memory_bytes, usage.gpu + usage.tpu))
    return machines, list(model.attempts.values())


def _holders(model: Model, attempts: Iterable[Attempt]) -> Held:
    """Who holds devices. May run beside the loop: it looks tasks up one by one."""
    held: Held = {}
    for attempt in attempts:
        device = attempt.resources.device
        if device is None:
            continue
        task, job = model.task(attempt.job_id, attempt.task_index), model.jobs.get(attempt.job_id)
        if task is not None:
            band = task.band
        elif job is not None:
            band = job.spec.band.resolve(None)
        else:
            continue
        bands = held.setdefault(attempt.worker_id, {})
        bands[band] = bands.get(band, 0) + device.count
    return held


def _fill_backend(
    backend: backends_pb2.BackendStatus, model: Model, machines: Sequence[Machine], attempts: Iterable[Attempt]
) -> None:
    sums, held = _Sums(), _holders(model, attempts)
    values: dict[str, set[str | int | float]] = {}
    for machine in machines:
        sums.add(machine, held)
        worker = machine[0]
        if _works(worker):
            for key in ROUTING:
                if key in worker.attributes:
                    values.setdefault(key, set()).add(worker.attributes[key])
    backend.workers_total, backend.workers_healthy = sums.workers, sums.healthy
    backend.total.CopyFrom(_amount(*sums.total))
    backend.committed.CopyFrom(_amount(*sums.committed))
    backend.devices.extend(sums.availability())
    for key, found in values.items():
        backend.attributes[key].values.extend(value_to_wire(value) for value in sorted(found, key=str)[:LISTED])
    out = sums.workers - sums.healthy
    if not sums.workers:
        backend.detail = "there are no workers"
    elif out:
        who = f"{out} of {counted(sums.workers, 'worker')} {'takes' if out == 1 else 'take'} no work"
        backend.detail = f"{who}; see: iris rpc controller get-provider-status"


def _fill_capacity(
    response: backends_pb2.GetProviderStatusResponse,
    model: Model,
    machines: Iterable[Machine],
    attempts: Iterable[Attempt],
) -> None:
    held = _holders(model, attempts)
    groups: dict[str, _Sums] = {}
    problems: list[Worker] = []
    for machine in machines:
        worker = machine[0]
        if worker.scale_group not in groups:
            groups[worker.scale_group] = _Sums()
        groups[worker.scale_group].add(machine, held)
        if not _works(worker):
            problems.append(worker)
    for name, sums in sorted(groups.items()):
        response.capacity.add(
            scale_group=name,
            slices=len(sums.slices),
            workers_total=sums.workers,
            workers_healthy=sums.healthy,
            total=_amount(*sums.total),
            committed=_amount(*sums.committed),
            devices=sums.availability(),
        )
    problems.sort(key=lambda worker: (-_WORST.index(worker.health), worker.worker_id))
    for worker in problems[:LISTED]:
        response.problems.add(
            worker_id=worker.worker_id, health=HEALTH[worker.health], reason=health_reason(model, worker)
        )
    response.problems_total = len(problems)
    response.capped |= len(problems) > LISTED


_WORST: Final = (WorkerHealth.HEALTHY, WorkerHealth.DEGRADED, WorkerHealth.DEAD)


def _works(worker: Worker) -> bool:
    """Whether it takes work."""
    return worker.health is WorkerHealth.HEALTHY and worker.placeable and not worker.excluded


def _amount(cpu_millicores: int, memory_bytes: int, disk_bytes: int = 0) -> common_pb2.Resources:
    return common_pb2.Resources(cpu_millicores=cpu_millicores, memory_bytes=memory_bytes, disk_bytes=disk_bytes)
