"""What a LaunchJob request must be before it becomes a command: every rule that needs no state (control-plane §1.8)."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from datetime import date
from pathlib import PurePosixPath

from iris_controller.rpc.auth import Identity, Role
from iris_controller.rpc.errors import denied, invalid, precondition
from iris_controller.state.records import ChildrenPolicy, JobSpec
from iris_controller.store.seal import Seal
from iris_core.model.bands import PriorityBand, is_system_reason
from iris_core.model.constraints import canonical_key, check_well_known, device_constraints, merge_constraints
from iris_core.model.errors import ModelError
from iris_core.model.ids import JobId
from iris_core.model.resources import Resources
from iris_core.wire.convert import constraints_from_wire, resources_from_wire
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2

MAX_ARGV_BYTES = 1 << 20
MAX_ENV = 2_000
MAX_ENV_BYTES = 1 << 20
MAX_SCRIPTS = 1_000
MAX_SCRIPT_BYTES = 1 << 20
MAX_SUBMIT_BYTES = 4 << 20
"""Of the submitter's own command line, which names variables as well as the command."""
MAX_FILES = 1_000
MAX_FILE_BYTES = 16 << 20
MAX_INLINE_FILE = 10 * 1024
"""Work directory files larger than this are kept as blobs beside the bundles (control-plane §1.8)."""
MAX_PORTS = 100
"""More would leave a host without ports for the others: a request that no host can meet fails on one after the other."""
MAX_RETRIES = 10_000
MAX_MS = 365 * 24 * 3_600_000
DEFAULT_PREEMPTION_RETRIES = 100
MAX_CLIENT_AGE_DAYS = 14
MAX_TEXT = 512
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
PORT_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}")
SHA256 = re.compile(r"[0-9a-f]{64}")


CONTROL_FREE = re.compile(r"[!-~]{0,512}")
"""Printable ASCII without blanks."""
_ADMINS_PROFILES = frozenset({common_pb2.CONTAINER_PROFILE_DOCKER_ACCESS, common_pb2.CONTAINER_PROFILE_PRIVILEGED})


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
    asked = constraints_from_wire(request.constraints)
    for constraint in asked:
        check_well_known(constraint)
    constraints = merge_constraints(asked, device_constraints(resources))
    _check_command(request)
    _check_container(request, identity, resources)
    _check_reason(request)
    _check_environment(request)
    files = _files(request)
    band = _band(request)
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
    if not CONTROL_FREE.fullmatch(request.task_image):
        raise invalid("task_image", f"{request.task_image[:80]!r} is no name of an image")
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


def check_freshness(request: controller_pb2.LaunchJobRequest, job: JobId, build_date: str) -> None:
    """Raises FAILED_PRECONDITION for a root job from a client whose code is too old; an unknown date passes (§1.8)."""
    text = request.client_revision_date
    if not text or job.parent is not None:
        return
    try:
        client = date.fromisoformat(text)
    except ValueError:
        raise invalid("client_revision_date", f"{text[:40]!r} is no date", hint="write it as 2026-01-31") from None
    if not build_date:
        return
    age = (date.fromisoformat(build_date) - client).days
    if age > MAX_CLIENT_AGE_DAYS:
        raise precondition(
            str(job),
            f"this client's code is of {text}, {age} days older than the controller's; {MAX_CLIENT_AGE_DAYS} are allowed",
            code="client_too_old",
            hint="update the client and submit again",
        )


def take_blobs(request: controller_pb2.LaunchJobRequest) -> dict[str, bytes]:
    """Replaces the large work directory files of a request by references, in place; returns them by sha256. Raises RpcError."""
    files = request.entrypoint.workdir_files
    if len(files) > MAX_FILES or sum(map(len, files.values())) > MAX_FILE_BYTES:
        raise invalid("entrypoint.workdir_files", "more than 1000 files or 16 MiB; ship them in the bundle")
    blobs: dict[str, bytes] = {}
    for name in [name for name, data in files.items() if len(data) > MAX_INLINE_FILE]:
        blob_id = hashlib.sha256(files[name]).hexdigest()
        blobs[blob_id] = files[name]
        request.entrypoint.workdir_file_refs[name] = blob_id
        del files[name]
    return blobs


def inherited(spec: JobSpec, parent: JobSpec) -> JobSpec:
    """The spec of a child job: its parent's environment lies beneath its own, and where it asked for that, its parent's bundle
    and setup scripts are in the place of those it left out (control-plane §4.3). Sealed values stay sealed."""
    request = controller_pb2.LaunchJobRequest.FromString(spec.request)
    above = controller_pb2.LaunchJobRequest.FromString(parent.request)
    own = request.environment.env_vars
    missing = [name for name in above.environment.env_vars if name not in own]
    for name in missing:
        own[name] = above.environment.env_vars[name]
    bundle_id, has_setup = spec.bundle_id, spec.has_setup
    if request.inherit_workspace and not bundle_id:
        bundle_id = request.bundle_id = parent.bundle_id
    if request.inherit_workspace and not has_setup:
        request.environment.setup_scripts.extend(above.environment.setup_scripts)
        has_setup = parent.has_setup
    return replace(
        spec, request=request.SerializeToString(deterministic=True), bundle_id=bundle_id, has_setup=has_setup
    )


def _check_container(request: controller_pb2.LaunchJobRequest, identity: Identity, resources: Resources) -> None:
    """Who may ask for which profile (control-plane §1.8): the reach of a container is an admin's to widen."""
    profile = request.container_profile
    if profile not in common_pb2.ContainerProfile.values():
        raise invalid("container_profile", f"container profile {profile} is unknown")
    name = common_pb2.ContainerProfile.Name(profile).removeprefix("CONTAINER_PROFILE_").lower()
    if profile in _ADMINS_PROFILES and identity.role is not Role.ADMIN:
        raise denied(f"container profile {name} needs an admin", code="container_profile_denied")
    copies = request.processes_per_task
    if copies and copies != 1 and (copies < 0 or not resources.gpu_count or resources.gpu_count % copies):
        raise invalid(
            "processes_per_task",
            f"{copies} processes cannot share {resources.gpu_count} GPUs",
            hint="give each as many",
        )
    if profile == common_pb2.CONTAINER_PROFILE_GVISOR and resources.device is not None:
        raise invalid(
            "container_profile", f"container profile {name} has no accelerators", hint="leave one of them out"
        )


def _check_reason(request: controller_pb2.LaunchJobRequest) -> None:
    reason = request.system_reason
    if not reason:
        return
    if request.priority_band != common_pb2.PRIORITY_BAND_SYSTEM:
        raise invalid("system_reason", "a system reason goes with the band system")
    if len(reason) > MAX_TEXT or not is_system_reason(reason):
        raise invalid("system_reason", f"system reason {reason[:80]!r} does not name hero, finelog or iris")


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
    if sum(len(word.encode()) for word in request.submit_argv) > MAX_SUBMIT_BYTES:
        raise invalid("submit_argv", "the submitter's command line is longer than 4 MiB")
    if len(request.ports) > MAX_PORTS:
        raise invalid("ports", f"{len(request.ports)} ports, at most {MAX_PORTS} are allowed")
    for name in request.ports:
        if not PORT_NAME.fullmatch(name):
            raise invalid("ports", f"port name {name!r} is not letters, digits and _")
    taken: dict[str, str] = {}
    for name in request.ports:
        # Each gets a variable of its name in upper case.
        variable = name.upper()
        if variable in taken:
            both = f"{taken[variable]!r} and {name!r}" if taken[variable] != name else f"{name!r}, asked for twice,"
            raise invalid("ports", f"the ports {both} would share IRIS_PORT_{variable}", hint="name each port once")
        taken[variable] = name


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
    scripts = request.environment.setup_scripts
    if len(scripts) > MAX_SCRIPTS or sum(len(script.encode()) for script in scripts) > MAX_SCRIPT_BYTES:
        raise invalid(
            "environment.setup_scripts",
            f"more than {MAX_SCRIPTS} setup steps, or 1 MiB of them",
            hint="put a script into the bundle and run that",
        )
    if any("\0" in script for script in scripts):
        raise invalid("environment.setup_scripts", "a setup step contains a NUL character")


def _files(request: controller_pb2.LaunchJobRequest) -> dict[str, bytes]:
    files = {name: bytes(data) for name, data in request.entrypoint.workdir_files.items()}
    references = request.entrypoint.workdir_file_refs
    if len(files) + len(references) > MAX_FILES:
        raise invalid("entrypoint.workdir_file_refs", "more than 1000 files; ship them in the bundle")
    for name, blob_id in references.items():
        if name in files:
            raise invalid("entrypoint.workdir_file_refs", f"{name[:80]!r} is given twice")
        if not SHA256.fullmatch(blob_id):
            raise invalid("entrypoint.workdir_file_refs", f"{name[:80]!r} refers to what is no sha256 in hex")
    for name in (*files, *references):
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or str(path) != name or name in {"", "."} or "\0" in name:
            raise invalid("entrypoint.workdir_files", f"{name[:80]!r} is not a plain relative path")
    return files


def _band(request: controller_pb2.LaunchJobRequest) -> PriorityBand:
    try:
        return PriorityBand(request.priority_band)
    except ValueError:
        raise invalid("priority_band", f"priority band {request.priority_band} is unknown") from None
