"""A scale group, slice or machine described: everything that is known of it, each reason in full."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from iris_core.live.capacity_columns import AVAILABILITY, LIFECYCLE, is_told, machine_state
from iris_core.live.capacity_tree import Group, Slice
from iris_core.live.wording import NOTHING, Tone, age, resources_text, when
from iris_core.live.worker_columns import devices_text, health_of
from iris_core.model.quantities import format_duration
from iris_core.model.text import one_line

if TYPE_CHECKING:
    from iris_core.wire.gen.iris.v1.autoscaler_pb2 import ScaleGroupStatus
    from iris_tui.pages import Lines

_LABEL: Final = 18
_STATES: Final = ("requesting", "booting", "initializing", "ready", "draining", "failed")


def describe(value: Any, now_ms: int, *, offline: bool = False) -> Lines:
    """The lines of its page; `offline`: it is of a checkpoint."""
    pairs = (
        _group(value, now_ms, "not in a checkpoint" if offline else "not known: no autoscaler told of this group")
        if isinstance(value, Group)
        else _slice(value, now_ms)
        if isinstance(value, Slice)
        else (_machine(value))
    )
    return [(f"{label:<{_LABEL}}{one_line(text)}", tone) for label, text, tone in pairs if text]


def _pair(label: str, text: str, tone: Tone = Tone.PLAIN) -> tuple[str, str, Tone]:
    return label, text, tone


def _until(moment_ms: int, now_ms: int) -> str:
    if not moment_ms:
        return ""
    left = moment_ms - now_ms
    return f"{when(moment_ms)} UTC" + (f", in {format_duration(left)}" if left > 0 else ", over")


def _told(status: ScaleGroupStatus) -> Iterator[tuple[str, str, Tone]]:
    """What only an autoscaler knows of a group's size."""
    machines = "1 machine" if status.num_vms == 1 else f"{status.num_vms} machines"
    yield _pair(
        "Slices of", f"{machines}, {status.accelerator or 'cpu'}{', preemptible' if status.preemptible else ''}"
    )
    if status.resources.cpu_millicores:
        yield _pair("Each machine", resources_text(status.resources))
    yield _pair("Zone", status.zone)
    yield _pair("Slices", f"{status.current_slices} now, {status.target_slices} wanted, at most {status.max_slices}")
    yield _pair("Kept to spare", str(status.buffer_slices))


def _group(group: Group, now_ms: int, absent: str) -> Iterator[tuple[str, str, Tone]]:
    """`absent` is said in the place of what nobody told."""
    status, told = group.status, is_told(group.status)
    yield _pair("Scale group", status.name)
    if told:
        yield from _told(status)
    else:
        yield _pair("Slices of", absent, Tone.DIM)
        yield _pair("Slices", f"{status.current_slices} now")
        yield _pair("Wanted, at most", absent, Tone.DIM)
    counts = [f"{status.slice_state_counts[name]} {name}" for name in _STATES if status.slice_state_counts[name]]
    yield _pair("By state", ", ".join(counts))
    if told:
        yield _pair("Demand", f"{status.demand}, at most {status.peak_demand} since the controller started")
    else:
        yield _pair("Demand", absent, Tone.DIM)
    yield _pair("Running tasks", str(group.running))
    tone = AVAILABILITY.get(status.availability, Tone.PLAIN)
    if told:
        yield _pair("Availability", status.availability.replace("_", " "), tone)
    else:
        yield _pair("Availability", absent, Tone.DIM)
    yield _pair("Because", status.availability_reason, tone)
    yield _pair("Blocked until", _until(status.blocked_until_ms, now_ms), Tone.BAD)
    if status.consecutive_failures:
        yield _pair("Failures in a row", str(status.consecutive_failures), Tone.BAD)
    yield _pair("Last failure", status.failure_reason, Tone.BAD)
    yield _pair("Backoff until", _until(status.backoff_until_ms, now_ms), Tone.BAD)
    yield _pair("Quota", status.quota_reason, Tone.BAD)
    yield _pair("Quota until", _until(status.quota_exceeded_until_ms, now_ms), Tone.BAD)
    decision = f"{status.decision}: {status.decision_reason}" if status.decision_reason else status.decision
    yield _pair("Last decision", decision)
    yield _pair("Scaled up", age(status.last_scale_up_ms, now_ms) + " ago" if status.last_scale_up_ms else "")
    yield _pair("Scaled down", age(status.last_scale_down_ms, now_ms) + " ago" if status.last_scale_down_ms else "")
    yield _pair(
        "Idle slices go", f"after {format_duration(status.idle_threshold_ms)}" if status.idle_threshold_ms else ""
    )
    yield _pair("Quota pool", f"{status.quota_pool}, tier {status.allocation_tier}" if status.quota_pool else "")


def _slice(item: Slice, now_ms: int) -> Iterator[tuple[str, str, Tone]]:
    status = item.status
    yield _pair("Slice", status.slice_id)
    yield _pair("Scale group", status.scale_group)
    yield _pair("State", status.lifecycle, LIFECYCLE.get(status.lifecycle, Tone.PLAIN))
    yield _pair("Error", status.error, Tone.BAD)
    yield _pair("Made", f"{age(status.created_at_ms, now_ms)} ago{', by an operator' if status.manual else ''}")
    yield _pair("Running tasks", str(item.running))
    yield _pair("Idle for", age(item.idle_since_ms, now_ms) if item.idle_since_ms else "")
    for vm in status.vms:
        attached = "" if vm.attached else ", not attached"
        error = f": {vm.error}" if vm.error else ""
        yield _pair("Machine", f"{vm.vm_id or NOTHING}  worker {vm.worker_id or NOTHING}  {vm.state}{attached}{error}",
                    Tone.BAD if vm.error else Tone.PLAIN)  # fmt: skip


def _machine(machine: Any) -> Iterator[tuple[str, str, Tone]]:
    status, worker = machine.status, machine.worker
    state, tone = machine_state(machine)
    yield _pair("Machine", status.vm_id)
    yield _pair("Slice", machine.slice_id)
    yield _pair("State", status.state)
    yield _pair("Error", status.error, Tone.BAD)
    yield _pair("Address", status.address)
    yield _pair("Worker", status.worker_id or "none has registered yet")
    if worker is not None:
        yield _pair("Health", state, tone if health_of(worker)[1] is tone else health_of(worker)[1])
        yield _pair("Because", worker.health_reason, Tone.WARN)
        yield _pair("Running tasks", str(worker.running_tasks))
        yield _pair("Accelerators", devices_text(worker))
