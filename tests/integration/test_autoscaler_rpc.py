"""The autoscaler inside a real controller, over a scripted provider whose workers really attach."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from iris_controller.autoscaling.runner import Autoscaler
from iris_core.client import plans
from iris_core.client.context import sending
from iris_core.contracts import RpcFailed
from iris_core.live.clock import SystemClock
from iris_core.model.bands import PriorityBand
from iris_core.model.resources import Device, Resources
from iris_core.wire.convert import band_to_wire, resources_to_wire
from iris_core.wire.gen.iris.v1 import autoscaler_pb2 as pb
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2
from providers.fake.machines import FakeMachines, quota
from providers.fake.worker import FakeWorker, run_on
from tests.integration.controller_rig import Rig, launch_request, rig

if TYPE_CHECKING:
    from iris_core.contracts import SliceSpec

pytestmark = pytest.mark.asyncio

CONFIG = """
name: machines
platform: {manual: }
controller: {local: {host: 127.0.0.1, port: 0}}
worker_provider: {}
defaults: {autoscaler: {evaluation_interval: {milliseconds: 200}, scale_down_delay: {seconds: 1}}}
scale_groups:
  cpu: {num_vms: 1, max_slices: 2, resources: {cpu: 4, ram: 16GB, device_type: cpu, capacity_type: on-demand}}
"""
RESERVED = """
name: machines
platform: {manual: }
controller: {local: {host: 127.0.0.1, port: 0}}
worker_provider: {}
defaults: {autoscaler: {evaluation_interval: {milliseconds: 200}, reservations: {g: 8}}}
scale_groups:
  large: {num_vms: 1, max_slices: 1, quota_pool: g, resources: {cpu: 4, ram: 16GB, device_type: gpu, device_variant: A100, device_count: 8,
    capacity_type: reserved}}
  small: {num_vms: 1, max_slices: 2, quota_pool: g, resources: {cpu: 4, ram: 16GB, device_type: gpu, device_variant: H100, device_count: 4,
    capacity_type: reserved}}
"""


class Cluster:
    """A rig whose fleet is the autoscaler's."""

    def __init__(self, r: Rig) -> None:
        self.rig = r
        self.machines = FakeMachines(SystemClock())
        self.machines.on_ready = self._attach
        self.workers: dict[str, FakeWorker] = {}
        self._starting: list[asyncio.Task[FakeWorker]] = []
        controller = r.controller
        self.scaler = Autoscaler(
            controller.loop,
            self.machines,
            controller.options.config,
            controller.ticker.unplaced,
            controller.planned,
            SystemClock(),
        )
        controller.machine_calls.scaler = self.scaler
        controller.guard.spawn("autoscaler", self.scaler.run())

    def _attach(self, spec: SliceSpec) -> None:
        for worker_id in spec.worker_ids:
            device = resources_to_wire(spec.resources).device if spec.resources.device is not None else None
            worker = self.rig.worker(
                worker_id, run_on, slice_id=spec.slice_id, scale_group=spec.scale_group, device=device
            )
            self.workers[worker_id] = worker
            self._starting.append(asyncio.create_task(worker.__aenter__()))

    async def status(self) -> pb.GetAutoscalerStatusResponse:
        return await self.rig.call(
            "GetAutoscalerStatus", pb.GetAutoscalerStatusRequest(), pb.GetAutoscalerStatusResponse
        )

    async def until(self, what: str, **wanted: int) -> pb.ScaleGroupStatus:
        """Waits until the group has so many slices of each lifecycle."""
        async with asyncio.timeout(30):
            while True:
                group = (await self.status()).groups[0]
                if all(group.slice_state_counts[name] == count for name, count in wanted.items()):
                    return group
                await self.rig.controller.loop.next_commit(0.2)

    async def end(self) -> None:
        await asyncio.gather(*self._starting, return_exceptions=True)
        for worker in self.workers.values():
            await worker.__aexit__()


@asynccontextmanager
async def cluster(folder: Path, config: str = CONFIG) -> AsyncIterator[Cluster]:
    async with rig(folder, config) as r:
        found = Cluster(r)
        try:
            yield found
        finally:
            await found.end()


def job(name: str) -> controller_pb2.LaunchJobRequest:
    request = launch_request(name)
    request.resources.cpu_millicores = 3000
    return request


async def test_work_brings_a_slice_and_its_end_takes_it_away(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        await c.rig.call("LaunchJob", job("/u/a"), controller_pb2.LaunchJobResponse)
        await c.rig.until_state("/u/a", common_pb2.JOB_STATE_RUNNING)
        group = await c.until("ready", ready=1)
        assert group.slices[0].busy and group.slices[0].vms[0].attached
        assert group.last_scale_up_ms and group.peak_demand == 1
        done = await c.status()
        assert [(a.action, a.status) for a in done.recent_actions] == [
            ("scale_up", "pending"),
            ("scale_up", "completed"),
            ("slice_ready", "completed"),
        ]
        assert done.enabled and done.last_evaluation_ms and not done.detail
        rows = await _query(c.rig, "SELECT slice_id, lifecycle, worker_ids FROM slices WHERE lifecycle='ready'")
        assert len(rows) == 1 and "-w-0" in rows[0]
        await c.rig.cancel("/u/a")
        await c.until("gone", ready=0, draining=0)
        assert not c.machines.alive and not c.rig.controller.model.slices
        assert not [w for w in c.rig.controller.model.workers.values() if w.slice_id]


async def test_a_quota_shows_in_the_status_and_in_the_query_of_the_manual(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        c.machines.script("cpu", [quota("Quota 'CPUS' exceeded")])
        await c.rig.call("LaunchJob", job("/u/a"), controller_pb2.LaunchJobResponse)
        async with asyncio.timeout(60):
            while not (group := (await c.status()).groups[0]).quota_reason:
                await c.rig.controller.loop.next_commit(0.2)
        assert (group.quota_reason, group.availability) == ("Quota 'CPUS' exceeded", "quota_exceeded")
        assert group.blocked_until_ms >= group.quota_exceeded_until_ms - 2_000
        rows = await _query(
            c.rig,
            "SELECT name, consecutive_failures, quota_reason FROM scaling_groups"
            " WHERE consecutive_failures > 0 OR quota_reason != ''",
        )
        assert rows == ['["cpu", 0, "Quota \'CPUS\' exceeded"]']
        async with asyncio.timeout(60):
            while not (unmet := (await c.status()).last_routing_decision.unmet_entries):
                await c.rig.controller.loop.next_commit(0.2)
        assert (unmet[0].job_id, unmet[0].code) == ("/u/a", "no_capacity")
        assert "Quota 'CPUS' exceeded" in unmet[0].reason


async def test_slices_of_a_reservation_make_way_for_a_higher_band(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "iris.audit")

    def wants(name: str, variant: str, count: int, band: PriorityBand) -> controller_pb2.LaunchJobRequest:
        request = launch_request(name, priority_band=band_to_wire(band))
        request.resources.CopyFrom(resources_to_wire(Resources(100, 1 << 20, 0, Device("gpu", variant, count))))
        return request

    async with cluster(tmp_path, RESERVED) as c:
        low = [wants(f"/u/low{n}", "H100", 4, PriorityBand.BATCH) for n in (1, 2)]
        for request in low:
            await c.rig.call("LaunchJob", request, controller_pb2.LaunchJobResponse)
            await c.rig.until_state(request.name, common_pb2.JOB_STATE_RUNNING)
        high = wants("/u/high", "A100", 8, PriorityBand.PRODUCTION)
        await c.rig.call("LaunchJob", high, controller_pb2.LaunchJobResponse)
        await c.rig.until_state("/u/high", common_pb2.JOB_STATE_RUNNING)
        assert c.machines.alive == [c.machines.created[2].slice_id] and len(c.machines.deleted) == 2
        async with asyncio.timeout(60):
            while len(unmet := (await c.status()).last_routing_decision.unmet_entries) < 2:
                await c.rig.controller.loop.next_commit(0.2)
        assert {(entry.code, entry.reason) for entry in unmet} == {
            ("reservation_short", "small: pool g: 0 of 8 chips free, 4 needed")
        }
        status = await c.status()
        assert {group.name: group.decision for group in status.groups}["small"] == "blocked"
        assert "reservation_short" in {action.action for action in status.recent_actions}
    said = "Preempted by /u/high (production over batch): its slice goes to the reservation g"
    assert caplog.text.count("event=task_preempted ") == 2 and caplog.text.count(said) == 2


async def test_an_operator_makes_and_deletes_a_slice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "iris.audit")
    async with cluster(tmp_path) as c:
        with pytest.raises(RpcFailed, match="no scale group 'cpus'") as caught:
            await c.rig.call("CreateSlice", pb.CreateSliceRequest(scale_group="cpus"), pb.CreateSliceResponse)
        assert caught.value.status == "INVALID_ARGUMENT" and "did you mean 'cpu'" in caught.value.hint
        request = pb.CreateSliceRequest(scale_group="cpu", request_id="once")
        made = await c.rig.call("CreateSlice", request, pb.CreateSliceResponse)
        again = await c.rig.call("CreateSlice", request, pb.CreateSliceResponse)
        assert again.slice_id == made.slice_id and len(c.machines.created) == 1
        group = await c.until("ready", ready=1)
        assert group.slices[0].manual and group.slices[0].slice_id == made.slice_id
        await c.rig.call("LaunchJob", job("/u/a"), controller_pb2.LaunchJobResponse)
        await c.rig.until_state("/u/a", common_pb2.JOB_STATE_RUNNING)
        assert len(c.machines.created) == 1, "the operator's slice takes the work"

        name = made.slice_id
        with pytest.raises(RpcFailed, match="confirmed with the name of the cluster, machines"):
            await _delete(c, slice_id=name)
        with pytest.raises(RpcFailed, match="there is no slice") as gone:
            await _delete(c, slice_id=f"{name[:-1]}x", confirm="machines")
        assert gone.value.hint == "see: iris cluster vm status", "no other slice is offered for deletion"
        planned = await _delete(c, slice_id=name, dry_run=True)
        assert list(planned.task_ids) == ["/u/a/0"] and list(planned.worker_ids) == list(made.worker_ids)
        with pytest.raises(RpcFailed, match="has changed") as changed:
            await _delete(c, slice_id=name, confirm="machines", generation=planned.generation - 1)
        assert changed.value.code == "replan"
        await _delete(c, slice_id=name, confirm="machines", generation=planned.generation)
        async with asyncio.timeout(30):
            while name in c.rig.controller.model.slices:
                await c.rig.controller.loop.next_commit(0.2)
        moved = await c.rig.until("/u/a", lambda status: status.preemption_count == 1)
        assert moved.state != common_pb2.JOB_STATE_FAILED
        await c.rig.until_state("/u/a", common_pb2.JOB_STATE_RUNNING)
        assert len(c.machines.created) == 2, "the work it lost brings one of the autoscaler's own"
    for event in ("slice_created", "slice_ready", "slice_deleted", "slice_pruned"):
        assert caplog.text.count(f"event={event} entity={name} ") == 1, event


async def test_a_machines_log_is_found_by_its_worker(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        await c.rig.call("LaunchJob", job("/u/a"), controller_pb2.LaunchJobResponse)
        group = await c.until("ready", ready=1)
        worker_id = f"{group.slices[0].slice_id}-w-0"
        found = await c.rig.call("GetVmLogs", pb.GetVmLogsRequest(vm_id=worker_id), pb.GetVmLogsResponse)
        assert list(found.lines) == [f"{worker_id} booted"] and found.vm.attached
        assert found.slice.slice_id == group.slices[0].slice_id
        with pytest.raises(RpcFailed, match="no machine 'vm-9'"):
            await c.rig.call("GetVmLogs", pb.GetVmLogsRequest(vm_id="vm-9"), pb.GetVmLogsResponse)


async def test_without_machines_the_status_says_so_and_nothing_is_made(tmp_path: Path) -> None:
    async with rig(tmp_path, CONFIG) as r:
        status = await r.call("GetAutoscalerStatus", pb.GetAutoscalerStatusRequest(), pb.GetAutoscalerStatusResponse)
        assert not status.enabled and "makes no machines on the platform manual" in status.detail
        with pytest.raises(RpcFailed, match="makes no machines"):
            await r.call("CreateSlice", pb.CreateSliceRequest(scale_group="cpu"), pb.CreateSliceResponse)


async def _delete(c: Cluster, **fields: object) -> pb.DeleteSliceResponse:
    request = pb.DeleteSliceRequest(**fields)  # type: ignore[arg-type]
    if request.dry_run or not request.confirm:
        return await c.rig.call("DeleteSlice", request, pb.DeleteSliceResponse)
    plan = await plans.make(c.rig.client, "ControllerService/DeleteSlice", [request])
    assert plan.tier == 3
    with sending(plan_token=plan.token):
        return await c.rig.call("DeleteSlice", request, pb.DeleteSliceResponse)


async def _query(r: Rig, sql: str) -> list[str]:
    request = controller_pb2.ExecuteRawQueryRequest(sql=sql)
    return list((await r.call("ExecuteRawQuery", request, controller_pb2.ExecuteRawQueryResponse)).rows)
