"""The RPCs about machines: the autoscaler's status, slices made and deleted by an operator, and a machine's log.

An operator's slice is outside the autoscaler's care; deleting takes any slice. Must never call the provider but for what one call
asks, and never wait for a deletion: it is decided here and carried out by the autoscaler.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from iris_controller.autoscaling.hands import within
from iris_controller.rpc.autoscaler_view import fill, fill_kept, find_vm, slice_status, vm_status
from iris_controller.rpc.backends import BACKEND_ID
from iris_controller.rpc.errors import exhausted, invalid, not_found, precondition, unavailable
from iris_controller.rpc.once import remember
from iris_controller.state import slices
from iris_controller.state.slices import Lifecycle
from iris_core.contracts import MachinesFailed, QuotaExceeded, StockOut
from iris_core.model.errors import did_you_mean, shown
from iris_core.wire.gen.iris.v1 import autoscaler_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_controller.autoscaling.runner import Autoscaler
    from iris_controller.dry_run import Unasked
    from iris_controller.loop import ControllerLoop
    from iris_controller.rpc.call import Call
    from iris_controller.rpc.dispatch import Router
    from iris_controller.rpc.errors import RpcError
    from iris_controller.rpc.once import Once
    from iris_controller.state.overlay import Overlay
    from iris_core.config.cluster import ClusterConfig
    from iris_core.live.clock import Clock
    from iris_core.wire.gen.iris.v1 import common_pb2

LOG_LINES: Final = 200
MOST_LOG_LINES: Final = 10_000
LOGS_S: Final = 20.0
LARGE: Final = 200
"""Slices from which on telling of them would hold up the loop."""


class AutoscalerService:
    """`scaler` is set once there are machines to be had; until then, and where there are none, only the status answers, with what the
    state keeps. `unasked` where only a state is looked at."""

    def __init__(
        self,
        loop: ControllerLoop,
        config: ClusterConfig,
        once: Once,
        clock: Clock,
        revision: Callable[[], common_pb2.Revision],
        unasked: Unasked | None = None,
    ) -> None:
        self._unasked = unasked
        self._loop = loop
        self._model = loop.model
        self._config = config
        self._once = once
        self._clock = clock
        self._revision = revision
        self.scaler: Autoscaler | None = None

    def register(self, router: Router) -> None:
        router.add("ControllerService/GetAutoscalerStatus", self.status)
        router.add("ControllerService/CreateSlice", self.create)
        router.add("ControllerService/DeleteSlice", self.delete)
        router.add("ControllerService/GetVmLogs", self.vm_logs)

    async def status(self, request: pb.GetAutoscalerStatusRequest, call: Call) -> pb.GetAutoscalerStatusResponse:
        if request.backend_id not in ("", BACKEND_ID):
            raise not_found(
                request.backend_id,
                f"there is no backend {shown(request.backend_id)}",
                hint=f"the only one is {BACKEND_ID}",
            )
        answer = pb.GetAutoscalerStatusResponse(revision=self._revision())
        scaler, rows = self.scaler, list(self._model.slices.values())
        if scaler is None:
            answer.detail = self._none()
            tell = partial(fill_kept, answer, self._model, list(self._model.scaling_groups.values()), rows)
        else:
            tell = partial(fill, answer, scaler, self._model, scaler.states(), rows, self._loop.now_ms())
        if len(rows) > LARGE:
            await asyncio.to_thread(tell)
        else:
            tell()
        return answer

    def _none(self) -> str:
        if self._unasked is not None:
            return self._unasked.machines
        return f"this controller makes no machines on the platform {self._config.platform}"

    def _running(self) -> Autoscaler:
        if self.scaler is None:
            raise precondition(self._config.name, self._none(), code="no_machines")
        return self.scaler

    async def create(self, request: pb.CreateSliceRequest, call: Call) -> pb.CreateSliceResponse:
        scaler = self._running()
        groups = self._config.scale_groups
        group = groups.get(request.scale_group)
        if group is None:
            raise invalid(
                "scale_group",
                f"there is no scale group {shown(request.scale_group)}",
                hint=did_you_mean(request.scale_group, groups) or f"there are: {', '.join(sorted(groups)) or 'none'}",
            )
        if request.dry_run:
            return pb.CreateSliceResponse()

        async def work() -> pb.CreateSliceResponse:
            await call.recheck(self._loop)
            spec = scaler.spec(group, manual=True)
            answer = pb.CreateSliceResponse(slice_id=spec.slice_id, worker_ids=spec.worker_ids)

            def noted(o: Overlay) -> None:
                o.note("slice_created", spec.slice_id, call.identity.principal, group=group.name)
                remember(o, call, answer)

            try:
                await scaler.create_manual(spec, noted)
            except MachinesFailed as error:
                raise _refusal(group.name, error) from None
            return answer

        return await self._once.run(call, pb.CreateSliceResponse, work)

    async def delete(self, request: pb.DeleteSliceRequest, call: Call) -> pb.DeleteSliceResponse:
        scaler = self._running()
        if request.slice_id not in self._model.slices:
            # No near one is named: what is alike in generated names says nothing, and this deletes.
            raise not_found(
                request.slice_id,
                f"there is no slice {shown(request.slice_id)}",
                hint="see: iris cluster vm status",
            )

        def plan(o: Overlay, now_ms: int) -> pb.DeleteSliceResponse:
            row = o.slice(request.slice_id)
            if row is None:
                raise not_found(request.slice_id, f"slice {request.slice_id} is gone")
            if request.generation not in (0, row.updated_at_ms):
                raise precondition(
                    row.slice_id, f"slice {row.slice_id} has changed since it was looked at", code="replan"
                )
            answer = pb.DeleteSliceResponse(worker_ids=row.worker_ids, generation=row.updated_at_ms)
            answer.task_ids.extend(
                sorted({a.task_id for worker_id in row.worker_ids for a in o.attempts_on(worker_id)})
            )
            if request.dry_run:
                return answer
            if row.lifecycle is not Lifecycle.DRAINING:
                reason = f"deleted by {call.identity.principal}" + (f": {request.reason}" if request.reason else "")
                slices.give_up(o, row, Lifecycle.DRAINING, call.identity.principal, reason, now_ms)
                o.note("slice_deleted", row.slice_id, call.identity.principal, group=row.scale_group, reason=reason)
            remember(o, call, answer)
            return answer

        async def work() -> pb.DeleteSliceResponse:
            answer = await self._loop.submit("delete slice", call.guarded(plan))
            scaler.woken()
            return answer

        if request.dry_run:
            return await self._loop.submit("delete slice", plan)
        return await self._once.run(call, pb.DeleteSliceResponse, work)

    async def vm_logs(self, request: pb.GetVmLogsRequest, call: Call) -> pb.GetVmLogsResponse:
        scaler = self._running()
        found = find_vm(scaler, request.vm_id)
        if found is None:
            raise not_found(
                request.vm_id, f"there is no machine {shown(request.vm_id)}", hint="see: iris cluster vm status"
            )
        if request.max_lines < 0:
            raise invalid("max_lines", f"max_lines {request.max_lines} is negative")
        info, vm = found
        lines = min(request.max_lines or LOG_LINES, MOST_LOG_LINES)
        try:
            text = await within(self._clock, LOGS_S, f"the log of {vm.vm_id}", _listed(scaler, vm.vm_id, lines))
        except MachinesFailed as error:
            raise unavailable(f"the log of {vm.vm_id} cannot be read: {error.reason}") from None
        answer = pb.GetVmLogsResponse(vm=vm_status(vm, self._model), lines=text)
        row = self._model.slices.get(info.slice_id)
        if row is not None:
            answer.slice.CopyFrom(slice_status(scaler, row, self._model))
            del answer.slice.vms[:]
        return answer


async def _listed(scaler: Autoscaler, vm_id: str, lines: int) -> list[str]:
    return list(await scaler.machines.vm_logs(vm_id, lines))


def _refusal(group: str, error: MachinesFailed) -> RpcError:
    if isinstance(error, QuotaExceeded):
        return exhausted(f"no slice of {group}: quota exceeded: {error.reason}", code="quota_exceeded", subject=group)
    code = "stock_out" if isinstance(error, StockOut) else "machines_failed"
    if not error.retryable:
        return precondition(group, f"no slice of {group}: {error.reason}", code=code)
    return unavailable(f"no slice of {group}: {error.reason}", code=code, subject=group, retry_after_ms=10_000)
