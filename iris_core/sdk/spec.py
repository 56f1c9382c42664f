"""What a job is to be, as Python values, and the request that says so.

Numbers are in the units people write (`memory="2GB"`, seconds); nothing of the submitter's own environment travels unless it is named
(DESIGN §5.13). Must never open a connection or read a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from iris_core.config.revision import revision_date
from iris_core.contracts import UsageFailed
from iris_core.model.bands import parse_band
from iris_core.model.constraints import parse_constraint
from iris_core.model.ids import JobId, check_component
from iris_core.model.quantities import parse_cpu, parse_size
from iris_core.model.resources import parse_gpu_spec, parse_tpu_specs, tpu_device
from iris_core.wire.convert import constraint_to_wire

if TYPE_CHECKING:
    from pathlib import Path

    from iris_core.model.resources import Device
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

Existing = Literal["replace", "error", "keep", "recreate"]
EXISTING: Mapping[str, int] = {"replace": 0, "error": 1, "keep": 2, "recreate": 3}
CHILDREN: Mapping[str, int] = {"": 0, "terminate-children": 1, "preserve-children": 2}


@dataclass(frozen=True, slots=True)
class ResourceSpec:
    """What one task needs. `cpu` in cores; sizes as text ("2GB", "512MiB") or bytes; `gpu` like "H100x8", `tpu` like "v5litepod-16"."""

    cpu: float | str = 0.1
    memory: str | int = "1GB"
    disk: str | int = "5GB"
    gpu: str = ""
    tpu: str = ""


@dataclass(frozen=True, slots=True)
class EnvironmentSpec:
    """Variables, and what is done before the command starts.

    Attributes:
        env_vars: Variables of every task.
        sync_packages: Of a uv workspace, install only these packages; empty = all.
        extras: Extras of the project to install.
        setup_scripts: Shell scripts that run instead of the default `uv sync`, in order, each in a fresh shell; `[]` = nothing is
            set up; None = `uv sync` where the workspace has a pyproject.toml.
    """

    env_vars: Mapping[str, str] = field(default_factory=dict)
    sync_packages: Sequence[str] = ()
    extras: Sequence[str] = ()
    setup_scripts: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job.

    Attributes:
        command: The command line of every task.
        name: Its last name component; "" = made up from the command and the time. Below a task it becomes a child of its job.
        user: The owner; "" = who submits.
        workspace: A folder whose files travel along; None = none, or inside a task those of its own job.
        replicas: Tasks; None = what the accelerator means (machines of a TPU slice), else 1.
        group_by: Makes the tasks a gang: placed together on workers that share the value of this attribute.
        constraints: Like `region=us-central1`, `!tpu-name`; all must hold.
        priority: A band: system, production, interactive, batch; "" = its parent's, else interactive.
        timeout_s: Longest run of each task, 0 = no limit. `scheduling_timeout_s`: longest wait for a place.
        existing: What happens when a job of this name exists: `replace` a finished one, `error`, `keep` a running one, `recreate`.
        children: What becomes of child jobs when a task is tried again: `terminate-children`, `preserve-children`, "" = by size.
    """

    command: Sequence[str]
    name: str = ""
    user: str = ""
    resources: ResourceSpec = field(default_factory=ResourceSpec)
    environment: EnvironmentSpec = field(default_factory=EnvironmentSpec)
    workspace: Path | str | None = None
    replicas: int | None = None
    group_by: str = ""
    constraints: Sequence[str] = ()
    priority: str = ""
    system_reason: str = ""
    max_retries_failure: int = 0
    max_retries_preemption: int | None = None
    max_task_failures: int = 0
    timeout_s: float = 0
    scheduling_timeout_s: float = 0
    ports: Sequence[str] = ()
    task_image: str = ""
    existing: Existing = "replace"
    children: str = ""


def request_of(spec: JobSpec, job: JobId) -> pb.LaunchJobRequest:
    """The request for a job of that id, without bundle and setup. Raises ModelError, UsageFailed."""
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    if isinstance(spec.command, str) or not spec.command:
        raise UsageFailed("the command is a list of words", hint='write ["python", "train.py"]')
    resources = spec.resources
    request = pb.LaunchJobRequest(name=str(job), ports=list(spec.ports), task_image=spec.task_image)
    request.entrypoint.run_command.argv.extend(spec.command)
    request.environment.env_vars.update(spec.environment.env_vars)
    request.resources.cpu_millicores = parse_cpu(str(resources.cpu), field="cpu")
    request.resources.memory_bytes = _size(resources.memory, "memory")
    request.resources.disk_bytes = _size(resources.disk, "disk")
    device, machines = _device(resources)
    if device is not None:
        request.resources.device.kind = device.kind
        request.resources.device.variant = device.variant
        request.resources.device.count = device.count
    request.replicas = machines if spec.replicas is None else spec.replicas
    group_by = spec.group_by or ("tpu-name" if machines > 1 else "")
    if group_by:
        request.coscheduling.group_by = group_by
    request.constraints.extend(constraint_to_wire(parse_constraint(text)) for text in spec.constraints)
    if spec.priority:
        request.priority_band = parse_band(spec.priority).value  # type: ignore[assignment]
    request.system_reason = spec.system_reason
    request.max_retries_failure = spec.max_retries_failure
    if spec.max_retries_preemption is not None:
        request.max_retries_preemption = spec.max_retries_preemption
    request.max_task_failures = spec.max_task_failures
    request.timeout_ms = round(spec.timeout_s * 1000)
    request.scheduling_timeout_ms = round(spec.scheduling_timeout_s * 1000)
    request.existing_job_policy = _named(EXISTING, spec.existing, "existing")  # type: ignore[assignment]
    request.preemption_policy = _named(CHILDREN, spec.children, "children")  # type: ignore[assignment]
    request.client_revision_date = revision_date()
    return request


def job_id(name: str, owner: str, parent: JobId | None) -> JobId:
    """The id of a job called `name`. Raises ModelError."""
    if name.startswith("/"):
        return JobId.parse(name)
    check_component(name, what="job name", field="name")
    return parent.child(name) if parent is not None else JobId.parse(f"/{owner}/{name}")


def _size(value: str | int, name: str) -> int:
    return value if isinstance(value, int) else parse_size(value, field=name)


def _device(resources: ResourceSpec) -> tuple[Device | None, int]:
    """The accelerators of one task, and how many tasks they mean."""
    if resources.gpu and resources.tpu:
        raise UsageFailed("gpu and tpu exclude each other")
    if resources.gpu:
        return parse_gpu_spec(resources.gpu), 1
    if resources.tpu:
        chosen = parse_tpu_specs(resources.tpu)[0]
        return tpu_device(chosen), chosen.vm_count
    return None, 1


def _named(words: Mapping[str, int], word: str, what: str) -> int:
    if word not in words:
        raise UsageFailed(f"{what} {word!r} is unknown", hint=f"one of {', '.join(w for w in words if w)}")
    return words[word]
