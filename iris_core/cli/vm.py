"""`cluster vm`: scale groups, their slices and machines, and what a machine logged (cli-auth-logs §1.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from iris_core.cli import output
from iris_core.cli.lazy import Lazy, LazyGroup
from iris_core.cli.options import Whole, output_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iris_core.cli.session import Session
    from iris_core.wire.gen.iris.v1 import autoscaler_pb2 as pb

COMMANDS = {
    "status": Lazy("iris_core.cli.vm:status", "Show the scale groups, their slices and machines."),
    "logs": Lazy("iris_core.cli.vm:logs", "Print what a machine logged."),
}
_UP = ("requesting", "booting", "initializing", "failed", "draining")


@click.group(cls=LazyGroup, table=COMMANDS)
def vm() -> None:
    """Look at the machines that the autoscaler makes."""


@click.command(short_help=COMMANDS["status"].help)
@click.option("--scale-group", default="", metavar="GROUP", help="Only this one.")
@output_option("table", "json")
@click.pass_obj
def status(session: Session, scale_group: str, how: output.Format) -> None:
    """Show the scale groups, what waits for them and what holds them back, with their slices and machines.

    \b
    cluster vm status --scale-group tpu-v5e-16
    """
    from iris_core.cli import describing, reads
    from iris_core.contracts import UsageFailed
    from iris_core.model.errors import did_you_mean
    from iris_core.wire.gen.iris.v1 import autoscaler_pb2 as pb

    found = session.client.call(
        "ControllerService/GetAutoscalerStatus", pb.GetAutoscalerStatusRequest(), pb.GetAutoscalerStatusResponse
    )
    if scale_group:
        names = [group.name for group in found.groups]
        if scale_group not in names:
            near = did_you_mean(scale_group, names)
            there = f"there are: {', '.join(names)}" if names else found.detail
            raise UsageFailed(f"there is no scale group {scale_group}", hint=near or there)
        kept = pb.GetAutoscalerStatusResponse()
        kept.CopyFrom(found)
        del kept.groups[:]
        kept.groups.extend(group for group in found.groups if group.name == scale_group)
        found = kept
    if how == "json":
        output.line(output.as_json(describing.as_object(found)))
        return
    output.write("".join(f"{line}\n" for line in _lines(found, reads.now_ms())))
    if found.detail:
        session.diagnostics.note(found.detail)


@click.command(short_help=COMMANDS["logs"].help)
@click.argument("vm_id", metavar="VM")
@click.option("--max-lines", type=Whole(1, 10_000), default=200, show_default=True, help="Of its end.")
@click.pass_obj
def logs(session: Session, vm_id: str, max_lines: int) -> None:
    """Print what a machine logged while it started and since, named by its own id or its worker's."""
    from iris_core.model.text import one_line
    from iris_core.wire.gen.iris.v1 import autoscaler_pb2 as pb

    request = pb.GetVmLogsRequest(vm_id=vm_id, max_lines=max_lines)
    found = session.client.call("ControllerService/GetVmLogs", request, pb.GetVmLogsResponse)
    machine = found.vm
    head = f"{machine.vm_id} is {machine.state}, worker {machine.worker_id or 'unknown'}"
    attached = "attached" if machine.attached else "not attached"
    session.diagnostics.note(f"{head}, {attached}{': ' + machine.error if machine.error else ''}")
    output.write("".join(f"{one_line(line)}\n" for line in found.lines))


def _lines(found: pb.GetAutoscalerStatusResponse, now_ms: int) -> Iterator[str]:
    from iris_core.live.capacity_columns import is_told
    from iris_core.live.columns import age
    from iris_core.live.wording import NOTHING
    from iris_core.model.text import counted, one_line

    for position, group in enumerate(found.groups):
        if position:
            yield ""
        told = is_told(group)
        yield one_line(_head(group) if told else group.name)
        counts = group.slice_state_counts
        live = sum(counts[name] for name in ("requesting", "booting", "initializing", "ready"))
        moving = "".join(f", {counts[name]} {name}" for name in _UP if counts[name])
        yield f"  slices        {counts['ready']} of {live} ready, at most {group.max_slices if told else NOTHING}{moving}"
        buffer = f", {group.buffer_slices} kept to spare" if group.buffer_slices else ""
        yield (
            f"  demand        {group.demand} (peak {group.peak_demand}){buffer}"
            if told
            else f"  demand        {NOTHING}"
        )
        why = f": {group.availability_reason}" if group.availability_reason else ""
        yield f"  availability  {one_line(group.availability + why) or NOTHING}"
        if group.blocked_until_ms:
            yield f"  blocked for   {age(now_ms, group.blocked_until_ms)}"
        if group.consecutive_failures or group.failure_reason:
            yield f"  failures      {group.consecutive_failures} in a row: {one_line(group.failure_reason)}"
        if group.decision:
            yield f"  decision      {one_line(f'{group.decision}: {group.decision_reason}')}"
        for item in group.slices:
            yield from _slice(item, now_ms)
    if found.groups:
        yield ""
    if found.enabled:
        when = f"{age(found.last_evaluation_ms, now_ms)} ago" if found.last_evaluation_ms else "not yet"
        yield f"Last evaluation: {when}, {counted(found.current_demand, 'task')} without room"


def _head(group: pb.ScaleGroupStatus) -> str:
    kind = group.accelerator or "cpu"
    machines = f"{group.num_vms} machines a slice" if group.num_vms > 1 else "1 machine a slice"
    zone = f", {group.zone}" if group.zone else ""
    return f"{group.name}: {kind}, {machines}{zone}{', preemptible' if group.preemptible else ''}"


def _slice(item: pb.SliceStatus, now_ms: int) -> Iterator[str]:
    from iris_core.live.columns import age
    from iris_core.model.quantities import format_duration
    from iris_core.model.text import one_line

    does = "busy" if item.busy else f"idle for {format_duration(item.idle_ms)}" if item.idle_ms else ""
    parts = [item.lifecycle, does, f"made {age(item.created_at_ms, now_ms)} ago", "by an operator" * item.manual]
    error = f": {item.error}" if item.error else ""
    yield f"  {item.slice_id}  {one_line(', '.join(part for part in parts if part) + error)}"
    for machine in item.vms:
        name = machine.vm_id or machine.worker_id
        attached = "" if machine.attached else ", not attached"
        address = f" at {machine.address}" if machine.address else ""
        error = f": {machine.error}" if machine.error else ""
        yield f"    {name}  {one_line(machine.state + attached + address + error)}"
