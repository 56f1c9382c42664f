"""What the autoscaler knows, as messages. Must never change anything, and never ask the provider."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from iris_controller.autoscaling.groups import BLOCKED
from iris_controller.autoscaling.memory import is_busy
from iris_controller.autoscaling.planning import aim
from iris_controller.state.slices import GOING, Lifecycle, ScalingGroup
from iris_core.contracts import VmState
from iris_core.model.resources import Resources
from iris_core.wire.convert import band_to_wire, resources_to_wire
from iris_core.wire.gen.iris.v1 import autoscaler_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from iris_controller.autoscaling.demand import Demand
    from iris_controller.autoscaling.groups import GroupState
    from iris_controller.autoscaling.runner import Autoscaler
    from iris_controller.state.model import Model
    from iris_controller.state.slices import Slice
    from iris_core.contracts import SliceInfo, VmInfo

ENTRIES: Final = 500
"""So many entries of the latest routing are told, the most important ones."""


def fill(
    answer: pb.GetAutoscalerStatusResponse,
    scaler: Autoscaler,
    model: Model,
    states: Sequence[GroupState],
    slices: Sequence[Slice],
    now_ms: int,
) -> None:
    """The whole status, as of the latest evaluation where it is a decision, and as of now where it is a state.

    May run beside the loop: it goes through nothing but what it was given, and looks the rest up one by one.
    """
    last = scaler.last
    answer.enabled = True
    answer.detail = scaler.fault or scaler.problem
    answer.last_evaluation_ms = last.at_ms
    answer.current_demand = sum(demand.count for demand in last.demands)
    placed = by_group(slices)
    for state in states:
        rows = placed.get(state.name, [])
        status = group_status(scaler, state, rows, model, now_ms)
        status.slices.extend(slice_status(scaler, row, model) for row in rows)
        answer.groups.append(status)
    answer.recent_actions.extend(actions(scaler))
    _routing(answer.last_routing_decision, scaler)


def fill_kept(
    answer: pb.GetAutoscalerStatusResponse, model: Model, groups: Iterable[ScalingGroup], slices: Sequence[Slice]
) -> None:
    """The status where nothing makes machines: what the state keeps of them. May run beside the loop, as `fill`."""
    answer.groups.extend(kept_groups(groups, slices))
    placed = by_group(slices)
    for status in answer.groups:
        status.slices.extend(slice_status(None, row, model) for row in placed.get(status.name, ()))


def by_group(slices: Iterable[Slice]) -> dict[str, list[Slice]]:
    """The slices of each scale group that has any, oldest first."""
    found: dict[str, list[Slice]] = {}
    for row in sorted(slices, key=lambda row: (row.created_at_ms, row.slice_id)):
        found.setdefault(row.scale_group, []).append(row)
    return found


def kept_groups(groups: Iterable[ScalingGroup], slices: Iterable[Slice]) -> list[pb.ScaleGroupStatus]:
    """What the state alone says of scale groups: those that ever grew or failed, or have a slice.

    Their availability is empty, which says that nothing an autoscaler or a cluster file would know is told: no limit, no demand.
    """
    placed = by_group(slices)
    known = {group.name: group for group in groups}
    found = []
    for name in sorted(known.keys() | placed.keys()):
        rows = placed.get(name, [])
        status = pb.ScaleGroupStatus(
            name=name,
            slice_state_counts=Counter(str(row.lifecycle) for row in rows),
            current_slices=sum(not row.manual and row.lifecycle not in GOING for row in rows),
        )
        kept = known.get(name)
        if kept is not None:
            status.consecutive_failures = kept.consecutive_failures
            status.backoff_until_ms = kept.backoff_until_ms
            status.quota_reason = kept.quota_reason
            status.quota_exceeded_until_ms = kept.quota_exceeded_until_ms
            status.failure_reason = kept.failure_reason
            status.last_scale_up_ms = kept.last_scale_up_ms
            status.last_scale_down_ms = kept.last_scale_down_ms
        found.append(status)
    return found


def slice_status(scaler: Autoscaler | None, row: Slice, model: Model) -> pb.SliceStatus:
    """One slice with its machines."""
    info = scaler.sights.infos.get(row.slice_id) if scaler is not None else None
    busy = is_busy(row, model)
    found = pb.SliceStatus(
        slice_id=row.slice_id,
        scale_group=row.scale_group,
        lifecycle=str(row.lifecycle),
        created_at_ms=row.created_at_ms,
        error=row.error_message or (info.error if info is not None else ""),
        manual=row.manual,
        generation=row.updated_at_ms,
        busy=busy,
        idle_ms=scaler.idle_ms(row.slice_id) if scaler is not None and not busy else 0,
    )
    found.vms.extend(vm_status(vm, model) for vm in (info.vms if info is not None else ()))
    known = {vm.worker_id for vm in found.vms}
    for worker_id in row.worker_ids:
        worker = model.workers.get(worker_id)
        if worker_id not in known:
            state = VmState.REQUESTING if worker is None else VmState.READY if worker.attached else VmState.UNHEALTHY
            found.vms.add(
                worker_id=worker_id,
                state=state.name.lower(),
                address=worker.address if worker is not None else "",
                attached=worker is not None and worker.attached,
            )
    return found


def vm_status(vm: VmInfo, model: Model) -> pb.VmStatus:
    """One machine, and whether its worker is attached."""
    worker = model.workers.get(vm.worker_id)
    return pb.VmStatus(
        vm_id=vm.vm_id,
        worker_id=vm.worker_id,
        address=vm.address or (worker.address if worker is not None else ""),
        state=vm.state.name.lower(),
        error=vm.error,
        attached=worker is not None and worker.attached,
    )


def find_vm(scaler: Autoscaler, vm_id: str) -> tuple[SliceInfo, VmInfo] | None:
    """The machine of that id, or of the worker of that id."""
    for info in scaler.sights.infos.values():
        for vm in info.vms:
            if vm_id in (vm.vm_id, vm.worker_id):
                return info, vm
    return None


def actions(scaler: Autoscaler) -> list[pb.AutoscalerAction]:
    """The latest decisions, newest last."""
    return [
        pb.AutoscalerAction(
            at_ms=a.at_ms,
            action=a.action,
            entity=a.entity,
            scale_group=a.group,
            status=a.status,
            reason=a.reason,
            action_id=str(a.number),
        )
        for a in scaler.actions.all()
    ]


def group_status(
    scaler: Autoscaler, state: GroupState, rows: Sequence[Slice], model: Model, now_ms: int
) -> pb.ScaleGroupStatus:
    """One scale group with the slices `rows`, which it counts and does not tell of."""
    group = state.group
    kept = model.scaling_groups.get(group.name) or ScalingGroup(group.name)
    decision, routing = scaler.last.plan.decisions.get(group.name), scaler.last.plan.routing
    demand = routing.required.get(group.name, 0) + routing.unserved.get(group.name, 0)
    blocked = max(state.quota_left_ms, state.backoff_left_ms) if state.availability in BLOCKED else 0
    counts = Counter(str(row.lifecycle) for row in rows)
    counts.update({str(lifecycle): 0 for lifecycle in Lifecycle})
    counts["requesting"] = state.requesting
    return pb.ScaleGroupStatus(
        name=group.name,
        accelerator=str(group.device) if group.device is not None else "",
        num_vms=group.num_vms,
        buffer_slices=group.buffer_slices,
        max_slices=group.max_slices,
        priority=group.priority,
        quota_pool=group.quota_pool,
        allocation_tier=group.allocation_tier,
        zone=group.zone,
        demand=demand,
        peak_demand=max(demand, scaler.peak(group.name)),
        availability=str(state.availability),
        availability_reason=state.standing,
        blocked_until_ms=now_ms + blocked if blocked else 0,
        decision=decision.word if decision is not None else "",
        decision_reason=decision.reason if decision is not None else "",
        slice_state_counts=counts,
        consecutive_failures=kept.consecutive_failures,
        backoff_until_ms=kept.backoff_until_ms,
        quota_reason=kept.quota_reason,
        quota_exceeded_until_ms=kept.quota_exceeded_until_ms,
        failure_reason=kept.failure_reason,
        last_scale_up_ms=kept.last_scale_up_ms,
        last_scale_down_ms=kept.last_scale_down_ms,
        idle_threshold_ms=scaler.config.autoscaler.scale_down_delay_ms,
        resources=resources_to_wire(group.resources(Resources())),
        preemptible=group.preemptible,
        current_slices=state.live,
        target_slices=aim(state, routing),
    )


def _routing(message: pb.RoutingDecision, scaler: Autoscaler) -> None:
    plan = scaler.last.plan
    for launch in plan.launches:
        message.group_to_launch[launch.group] = launch.count
    for name, decision in plan.decisions.items():
        message.group_reasons[name] = decision.reason
    routed, unmet = plan.routing.routed, plan.routing.unmet
    message.entries_capped = len(routed) > ENTRIES or len(unmet) > ENTRIES
    message.routed_entries.extend(
        _entry(entry.demand, entry.count, scale_group=entry.group) for entry in routed[:ENTRIES]
    )
    message.unmet_entries.extend(
        _entry(entry.demand, entry.count, code=entry.code, reason=entry.reason) for entry in unmet[:ENTRIES]
    )


def _entry(demand: Demand, count: int, scale_group: str = "", code: str = "", reason: str = "") -> pb.RoutedDemand:
    found = pb.RoutedDemand(
        job_id=demand.job_id, count=count, gang=demand.gang, scale_group=scale_group, code=code, reason=reason
    )
    if demand.band is not None:
        found.band = band_to_wire(demand.band)
    return found
