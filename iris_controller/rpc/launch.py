"""What a LaunchJob request must be before it becomes a command: every rule that needs no state (control-plane §1.8)."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from iris_controller.rpc.auth import Identity, Role
from iris_controller.rpc.errors import denied, invalid
from iris_controller.state.records import ChildrenPolicy, JobSpec
from iris_controller.store.seal import Seal
from iris_core.model.bands import PriorityBand
from iris_core.model.constraints import canonical_key, device_constraints, merge_constraints
from iris_core.model.errors import ModelError
from iris_core.model.ids import JobId
from iris_core.wire.convert import constraint_from_wire, resources_from_wire
from iris_core.wire.gen.iris.v1 import controller_pb2

MAX_ARGV_BYTES = 1 << 20
MAX_ENV = 2_000
MAX_ENV_BYTES = 1 << 20
MAX_FILES = 1_000
MAX_FILE_BYTES = 16 << 20
MAX_RETRIES = 10_000
MAX_MS = 365 * 24 * 3_600_000
DEFAULT_PREEMPTION_RETRIES = 100
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
PORT_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}")
SHA256 = re.compile(r"[0-9a-f]{64}")


def job_of(request: controller_pb2.LaunchJobRequest, identity: Identity) -> JobId:
    """The id the job gets. A user's root job is theirs whatever they wrote; a task submits below its own job only."""
    try:
        job = JobId.parse(request.name)
    except ModelError as error:
        raise invalid("name", f"job id: {error.message}", position=error.position, hint=error.hint) from None
    if identity.task is not None:
        identity.require_scope(str(job))
        if str(job) == identity.task.job_id:
            raise denied(f"a task may not launch its own job {job}", subject=str(job), code="outside_subtree")
    elif identity.role is Role.USER:
        if job.parent is None:
            job = JobId.parse(f"/{identity.user_id}/{job.name}")
        else:
            identity.require_owner(job.user, str(job))
    return job


def spec_of(
    request: controller_pb2.LaunchJobRequest, job: JobId, identity: Identity, seal: Seal
) -> tuple[JobSpec, dict[str, bytes]]:
    """The checked spec, its request sealed, and the work directory files apart. Raises RpcError or ModelError."""
    resources = resources_from_wire(request.resources)
    resources.check_request()
    constraints = merge_constraints(
        [constraint_from_wire(c) for c in request.constraints], device_constraints(resources)
    )
    _check_command(request)
    _check_environment(request)
    files = _files(request)
    band = _band(request, identity)
    preemptions = (
        request.max_retries_preemption if request.HasField("max_retries_preemption") else DEFAULT_PREEMPTION_RETRIES
    )
    for field, value, most in (
        ("max_retries_failure", request.max_retries_failure, MAX_RETRIES),
        ("max_retries_preemption", preemptions, MAX_RETRIES),
        ("max_task_failures", request.max_task_failures, 1_000_000),
        ("timeout_ms", request.timeout_ms, MAX_MS),
        ("scheduling_timeout_ms", request.scheduling_timeout_ms, MAX_MS),
    ):
        if not 0 <= value <= most:
            raise invalid(field, f"{field} {value} is outside 0..{most}")
    if request.bundle_id and not SHA256.fullmatch(request.bundle_id):
        raise invalid("bundle_id", "bundle_id is not a sha256 in hex")
    try:
        children = ChildrenPolicy(request.preemption_policy)
    except ValueError:
        raise invalid("preemption_policy", f"preemption policy {request.preemption_policy} is unknown") from None
    if not 0 <= request.existing_job_policy <= 3:
        raise invalid("existing_job_policy", f"existing job policy {request.existing_job_policy} is unknown")
    kept = seal.seal_request(request)
    kept.name = str(job)
    kept.request_id = ""
    for name in files:
        kept.entrypoint.workdir_files[name] = b""
    spec = JobSpec(
        resources=resources,
        constraints=constraints,
        band=band,
        max_retries_failure=request.max_retries_failure,
        max_retries_preemption=preemptions,
        max_task_failures=request.max_task_failures,
        timeout_ms=request.timeout_ms,
        scheduling_timeout_ms=request.scheduling_timeout_ms,
        children_policy=children,
        has_setup=bool(request.environment.setup_scripts),
        bundle_id=request.bundle_id,
        request=kept.SerializeToString(deterministic=True),
        has_files=bool(files),
        group_by=_group_by(request),
    )
    return spec, files


def _group_by(request: controller_pb2.LaunchJobRequest) -> str:
    """The attribute that the workers of a gang share; "" without coscheduling."""
    if not request.HasField("coscheduling"):
        return ""
    key = request.coscheduling.group_by
    if not key:
        raise invalid(
            "coscheduling.group_by", "a gang needs the attribute that its workers share", hint="such as tpu-name"
        )
    try:
        return canonical_key(key)
    except ModelError as error:
        raise invalid("coscheduling.group_by", error.message, position=error.position, hint=error.hint) from None


def _check_command(request: controller_pb2.LaunchJobRequest) -> None:
    argv = request.entrypoint.run_command.argv
    if not argv or not argv[0]:
        raise invalid("entrypoint.run_command.argv", "there is no command to run", hint="put it after --")
    if sum(len(word.encode()) for word in argv) > MAX_ARGV_BYTES:
        raise invalid("entrypoint.run_command.argv", "the command line is longer than 1 MiB")
    if any("\0" in word for word in argv):
        raise invalid("entrypoint.run_command.argv", "the command line contains a NUL character")
    for name in request.ports:
        if not PORT_NAME.fullmatch(name):
            raise invalid("ports", f"port name {name!r} is not letters, digits and _")


def _check_environment(request: controller_pb2.LaunchJobRequest) -> None:
    variables = request.environment.env_vars
    if len(variables) > MAX_ENV:
        raise invalid("environment.env_vars", f"{len(variables)} variables, at most {MAX_ENV} are allowed")
    for name, value in variables.items():
        if not ENV_NAME.fullmatch(name):
            hint = "write -e KEY VALUE, two words" if "=" in name else ""
            raise invalid("environment.env_vars", f"{name[:80]!r} is no name of an environment variable", hint=hint)
        if "\0" in value:
            raise invalid("environment.env_vars", f"the value of {name} contains a NUL character")
    if sum(len(n) + len(v.encode()) for n, v in variables.items()) > MAX_ENV_BYTES:
        raise invalid("environment.env_vars", "the environment is larger than 1 MiB")


def _files(request: controller_pb2.LaunchJobRequest) -> dict[str, bytes]:
    files = {name: bytes(data) for name, data in request.entrypoint.workdir_files.items()}
    if len(files) > MAX_FILES or sum(map(len, files.values())) > MAX_FILE_BYTES:
        raise invalid("entrypoint.workdir_files", "more than 1000 files or 16 MiB; ship them in the bundle")
    for name in files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or str(path) != name or name in {"", "."} or "\0" in name:
            raise invalid("entrypoint.workdir_files", f"{name[:80]!r} is not a plain relative path")
    return files


def _band(request: controller_pb2.LaunchJobRequest, identity: Identity) -> PriorityBand:
    try:
        band = PriorityBand(request.priority_band)
    except ValueError:
        raise invalid("priority_band", f"priority band {request.priority_band} is unknown") from None
    if band in (PriorityBand.SYSTEM, PriorityBand.PRODUCTION) and identity.role is not Role.ADMIN:
        raise denied(f"band {band.label} needs an admin", code="band_denied")
    return band
