"""A job as it would be if something about it were different; nothing is submitted or changed.

Must never check what only a submit may refuse: an answer to "what if" is useful also to somebody who may not do it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from iris_controller.rpc.errors import invalid
from iris_controller.scheduling.funnel import device_text
from iris_core.model.bands import PriorityBand
from iris_core.model.constraints import (
    DEVICE_TYPE,
    DEVICE_VARIANT,
    canonical_key,
    device_constraints,
    merge_constraints,
)
from iris_core.model.errors import did_you_mean
from iris_core.model.quantities import format_cpu, format_size
from iris_core.wire.convert import constraints_from_wire, resources_from_wire
from iris_core.wire.gen.iris.v1 import common_pb2

if TYPE_CHECKING:
    from iris_controller.state.records import Job, JobSpec
    from iris_core.model.constraints import Constraint
    from iris_core.wire.gen.iris.v1 import explain_pb2


def thought(job: Job, what_if: explain_pb2.WhatIf) -> tuple[Job, list[str]]:
    """The job with those changes, and the changes in words. Raises RpcError, ModelError."""
    words: list[str] = []
    spec = _resources(job.spec, what_if, words)
    spec = _constraints(spec, what_if, words)
    try:
        band = PriorityBand(what_if.priority_band)
    except ValueError:
        raise invalid("what_if.priority_band", f"priority band {what_if.priority_band} is unknown") from None
    if band is not PriorityBand.INHERIT:
        spec = replace(spec, band=band)
        words.append(f"band {band.label}")
    if what_if.replicas < 0:
        raise invalid("what_if.replicas", f"replicas {what_if.replicas} is negative")
    if what_if.replicas:
        words.append(f"replicas {what_if.replicas}")
    return replace(job, spec=spec, num_tasks=what_if.replicas or job.num_tasks), words


def _resources(spec: JobSpec, what_if: explain_pb2.WhatIf, words: list[str]) -> JobSpec:
    amounts = spec.resources
    if what_if.HasField("cpu_millicores"):
        amounts = replace(amounts, cpu_millicores=what_if.cpu_millicores)
        words.append(f"cpu {format_cpu(what_if.cpu_millicores)}")
    if what_if.HasField("memory_bytes"):
        amounts = replace(amounts, memory_bytes=what_if.memory_bytes)
        words.append(f"memory {format_size(what_if.memory_bytes, exact=True)}")
    constraints = spec.constraints
    if what_if.HasField("device"):
        device = resources_from_wire(common_pb2.Resources(device=what_if.device)).device
        amounts = replace(amounts, device=device)
        words.append(device_text(device) if device is not None else "no accelerators")
        kept = [c for c in constraints if c.key not in (DEVICE_TYPE, DEVICE_VARIANT)]
        constraints = merge_constraints(kept, device_constraints(amounts))
    amounts.check_request()
    return replace(spec, resources=amounts, constraints=constraints)


def _constraints(spec: JobSpec, what_if: explain_pb2.WhatIf, words: list[str]) -> JobSpec:
    new: list[Constraint] = constraints_from_wire(what_if.constraints)
    dropped = {canonical_key(key) for key in what_if.without}
    known = {c.key for c in spec.constraints}
    for key in sorted(dropped - known):
        hint = did_you_mean(key, sorted(known)) or (f"it has {', '.join(sorted(known))}" if known else "")
        raise invalid("what_if.without", f"there is no constraint on {key} to drop", hint=hint)
    words += [f"without {key}" for key in sorted(dropped)]
    words += [str(c) for c in new]
    gone = dropped | {c.key for c in new}
    return replace(spec, constraints=(*(c for c in spec.constraints if c.key not in gone), *new))
