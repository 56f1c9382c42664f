"""Between the wire's messages and the model's values. A value the model refuses raises ModelError naming the field."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from iris_core.model.bands import PriorityBand
from iris_core.model.constraints import MAX_CONSTRAINTS, Constraint, Mode, Op
from iris_core.model.errors import ModelError, shown
from iris_core.model.resources import Device, Resources
from iris_core.model.states import JobState, TaskState, WorkerHealth
from iris_core.wire.gen.iris.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

HEALTH = {
    WorkerHealth.HEALTHY: common_pb2.WORKER_HEALTH_HEALTHY,
    WorkerHealth.DEGRADED: common_pb2.WORKER_HEALTH_DEGRADED,
    WorkerHealth.DEAD: common_pb2.WORKER_HEALTH_DEAD,
}


def job_state_to_wire(state: JobState) -> common_pb2.JobState:
    return cast("common_pb2.JobState", int(state))


def task_state_to_wire(state: TaskState) -> common_pb2.TaskState:
    return cast("common_pb2.TaskState", int(state))


def band_to_wire(band: PriorityBand) -> common_pb2.PriorityBand:
    """The band work runs in: INHERIT that was never resolved shows as the default."""
    return cast("common_pb2.PriorityBand", int(band or PriorityBand.INTERACTIVE))


def resources_from_wire(message: common_pb2.Resources) -> Resources:
    device: Device | None = None
    if message.HasField("device") and message.device.count:
        kind = message.device.kind
        if kind == "gpu":
            device = Device("gpu", message.device.variant, message.device.count)
        elif kind == "tpu":
            device = Device("tpu", message.device.variant, message.device.count)
        else:
            raise ModelError(f"device kind {kind!r} is neither gpu nor tpu", field="resources.device.kind")
    return Resources(message.cpu_millicores, message.memory_bytes, message.disk_bytes, device)


def resources_to_wire(resources: Resources) -> common_pb2.Resources:
    message = common_pb2.Resources(
        cpu_millicores=resources.cpu_millicores, memory_bytes=resources.memory_bytes, disk_bytes=resources.disk_bytes
    )
    if resources.device is not None:
        device = resources.device
        message.device.CopyFrom(common_pb2.Device(kind=device.kind, variant=device.variant, count=device.count))
    return message


def value_from_wire(message: common_pb2.AttributeValue, of: str) -> str | int | float:
    """Raises ModelError, which says what it is a value `of`."""
    kind = message.WhichOneof("value")
    if kind == "integer":
        return message.integer
    if kind == "number":
        return message.number
    if kind is None:
        raise ModelError(
            f"{of} has a value that is neither text nor a number", field="value", hint="set text, integer or number"
        )
    return message.text


def value_to_wire(value: str | int | float) -> common_pb2.AttributeValue:
    if isinstance(value, int):
        return common_pb2.AttributeValue(integer=value)
    if isinstance(value, float):
        return common_pb2.AttributeValue(number=value)
    return common_pb2.AttributeValue(text=value)


def constraints_from_wire(messages: Sequence[common_pb2.Constraint]) -> list[Constraint]:
    """All constraints of one request. Raises ModelError, also where there are more than one may have."""
    if len(messages) > MAX_CONSTRAINTS:
        raise ModelError(
            f"{len(messages)} constraints, at most {MAX_CONSTRAINTS} are allowed",
            field="constraints",
            hint="several values of one attribute are one constraint, as region=eu,us",
        )
    return [constraint_from_wire(message) for message in messages]


def constraint_from_wire(message: common_pb2.Constraint) -> Constraint:
    try:
        op = Op(message.op)
    except ValueError:
        raise ModelError(
            f"the constraint on {shown(message.key)} has the unknown operator {message.op}",
            field="constraints",
            hint=f"one of {', '.join(known.name for known in Op)}",
        ) from None
    try:
        mode = Mode(message.mode or common_pb2.CONSTRAINT_MODE_REQUIRED)
    except ValueError:
        raise ModelError(
            f"the constraint on {shown(message.key)} has the unknown mode {message.mode}",
            field="constraints",
            hint=f"one of {', '.join(known.name for known in Mode)}",
        ) from None
    of = f"the constraint on {shown(message.key)}"
    return Constraint(message.key, op, tuple(value_from_wire(v, of) for v in message.values), mode)


def constraint_to_wire(constraint: Constraint) -> common_pb2.Constraint:
    return common_pb2.Constraint(
        key=constraint.key,
        op=cast("common_pb2.ConstraintOp", constraint.op.value),
        values=[value_to_wire(v) for v in constraint.values],
        mode=cast("common_pb2.ConstraintMode", constraint.mode.value),
    )
