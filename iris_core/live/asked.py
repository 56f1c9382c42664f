"""What a job was submitted with, in words: where it may run, with whom, how long and how often. The command line and the console
show the same lines. Must never show what was left at its default, nor a value of the environment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_core.model.resources import format_duration
from iris_core.model.text import counted, one_line

if TYPE_CHECKING:
    from iris_core.wire.gen.iris.v1 import common_pb2
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

_DEFAULT_PREEMPTIONS = 100


def asked(request: pb.LaunchJobRequest) -> list[tuple[str, str]]:
    """Label and text of everything that was asked for beside command, resources and band; each text is one line."""
    from iris_core.wire.gen.iris.v1 import common_pb2 as common

    found: list[tuple[str, str]] = []
    if request.system_reason:
        found.append(("System reason", request.system_reason))
    if request.coscheduling.group_by:
        found.append(("Gang", f"all tasks at once, on workers of one {request.coscheduling.group_by}"))
    if request.processes_per_task > 1:
        found.append(("Processes", f"{request.processes_per_task} in each task"))
    if request.constraints:
        found.append(("Constraints", ", ".join(constraint_text(one) for one in request.constraints)))
    preempted = request.max_retries_preemption if request.HasField("max_retries_preemption") else _DEFAULT_PREEMPTIONS
    if request.max_retries_failure or preempted != _DEFAULT_PREEMPTIONS:
        found.append(("Retries", f"{request.max_retries_failure} after failures, {preempted} after preemptions"))
    if request.max_task_failures:
        found.append(("Outlives", counted(request.max_task_failures, "failed task")))
    if request.timeout_ms:
        found.append(("Time limit", f"{format_duration(request.timeout_ms)} per task"))
    if request.scheduling_timeout_ms:
        found.append(("Waits at most", f"{format_duration(request.scheduling_timeout_ms)} for workers"))
    if request.ports:
        found.append(("Ports", " ".join(request.ports)))
    if request.task_image:
        found.append(("Image", request.task_image))
    if request.container_profile > common.CONTAINER_PROFILE_DEFAULT:
        found.append(("Profile", _name(common.ContainerProfile, request.container_profile, "CONTAINER_PROFILE_")))
    if request.preemption_policy:
        policy = _name(common.JobPreemptionPolicy, request.preemption_policy, "JOB_PREEMPTION_POLICY_")
        found.append(("Retry of a task", policy))
    return [(label, one_line(text)) for label, text in found]


def constraint_text(message: common_pb2.Constraint) -> str:
    """A constraint as it is typed; one that this release does not understand, in the wire's own words."""
    from iris_core.model.constraints import Mode
    from iris_core.model.errors import ModelError
    from iris_core.wire.convert import constraint_from_wire

    try:
        constraint = constraint_from_wire(message)
    except ModelError:
        return str(message).replace("\n", " ").strip()
    return f"{constraint} (preferred)" if constraint.mode is Mode.PREFERRED else str(constraint)


def _name(enum: object, number: int, prefix: str) -> str:
    """An unknown number is shown as it is."""
    names: dict[int, str] = {value: name for name, value in enum.items()}  # type: ignore[attr-defined]
    return names.get(number, str(number)).removeprefix(prefix).lower().replace("_", "-")
