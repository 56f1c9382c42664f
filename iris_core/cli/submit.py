"""From the options of `job run` to a job on the controller: the request, the bundle, the name.

Everything that can be wrong with what was typed is found before anything is sent. Nothing of the submitter's
environment travels unless `-e` names it (DESIGN §5.13). Must never follow the job.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from iris_core.cli.placement import band_of, check_places, check_replicas, constraints_of, group_of, places_of
from iris_core.cli.setup_steps import PROJECT_FILE, check_sync
from iris_core.client.calls import NotReached
from iris_core.config.places import LOCAL
from iris_core.config.revision import revision_date
from iris_core.contracts import ConnectFailed, RpcFailed, UsageFailed
from iris_core.model.errors import ModelError, did_you_mean, shown
from iris_core.model.ids import JobId, TaskId, check_component
from iris_core.model.quantities import format_size, parse_cpu, parse_size
from iris_core.sdk.spec import CHILDREN, EXISTING
from iris_core.sdk.submission import owner_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from iris_core.cli.run_options import RunOptions
    from iris_core.cli.session import Session
    from iris_core.contracts import Client
    from iris_core.wire.gen.iris.v1 import common_pb2
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
    from iris_core.workspace.bundle import Bundle
    from iris_core.workspace.tree import Workspace

EXTRA_MEMORY: Final = 4_000_000_000
EXTRA_DISK: Final = 10_000_000_000
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._@+-]")


def build(options: RunOptions, argv: Sequence[str], program: str) -> pb.LaunchJobRequest:
    """The request, without bundle and setup steps. Raises UsageFailed, ModelError."""
    from iris_core.model.redact import redact_argv
    from iris_core.wire.gen.iris.v1 import common_pb2
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    request = pb.LaunchJobRequest(name=str(_job_id(options)))
    request.entrypoint.run_command.argv.extend(encodable(options.command))
    for name, value in options.env_vars:
        request.environment.env_vars[env_name(name)] = encodable([value])[0]
    resources = request.resources
    resources.cpu_millicores = parse_cpu(options.cpu, field="--cpu")
    resources.memory_bytes = parse_size(options.memory, field="--memory")
    resources.disk_bytes = parse_size(options.disk, field="--disk")
    machines = _devices(options, request)
    _check_extra(options, resources)
    check_sync(options)
    check_replicas(options, machines)
    request.replicas = options.replicas if options.replicas is not None else machines
    _place(options, request, machines)
    _limits(options, request)
    request.ports.extend(options.ports)
    request.task_image = options.task_image
    if options.processes_per_task > 1:
        gpus = resources.device.count if resources.device.kind == "gpu" else 0
        if not gpus or gpus % options.processes_per_task:
            raise UsageFailed(
                f"--processes-per-task {options.processes_per_task} cannot share {gpus} GPUs evenly",
                hint="it divides the number that --gpu asks for",
            )
        request.processes_per_task = options.processes_per_task
    request.container_profile = _profile(options.container_profile)
    request.client_revision_date = revision_date()
    request.submit_argv.extend(encodable(redact_argv([program, *argv])))
    # Inside a task the bundle is its own, and what its job was set up with does for this one.
    request.inherit_workspace = JobId.parse(request.name).parent is not None and not _names_setup(options)
    request.existing_job_policy = EXISTING[options.existing_job]  # type: ignore[assignment]
    if options.job_name is None and options.existing_job == "replace":
        # A made-up name must never take the place of an older job that happens to have it.
        request.existing_job_policy = common_pb2.EXISTING_JOB_POLICY_ERROR
    return request


def _place(options: RunOptions, request: pb.LaunchJobRequest, machines: int) -> None:
    """Fills in where it may run, with whom, and in which band."""
    from iris_core.wire.convert import constraint_to_wire

    resources = request.resources
    asked = constraints_of(options, resources.cpu_millicores, resources.memory_bytes)
    request.constraints.extend(constraint_to_wire(constraint) for constraint in asked)
    group_by = group_of(options, machines, request.replicas)
    if group_by:
        request.coscheduling.group_by = group_by
    request.priority_band = band_of(options).value  # type: ignore[assignment]
    request.system_reason = options.system_reason


def _limits(options: RunOptions, request: pb.LaunchJobRequest) -> None:
    """Fills in how often and how long."""

    def given(value: int | None, otherwise: int) -> int:
        return otherwise if value is None else value

    request.max_retries_failure = given(options.max_retries_failure, options.max_retries)
    request.max_task_failures = given(options.max_task_failures, options.max_retries)
    if options.max_retries_preemption is not None:
        request.max_retries_preemption = options.max_retries_preemption
    request.timeout_ms = round(options.timeout_s * 1000)
    request.scheduling_timeout_ms = round(options.scheduling_timeout_s * 1000)
    if options.preemption_policy:
        request.preemption_policy = CHILDREN[options.preemption_policy]  # type: ignore[assignment]


def _profile(text: str) -> common_pb2.ContainerProfile:
    """The profile of that name, in any case, with or without `CONTAINER_PROFILE_`; unspecified is the default."""
    from iris_core.wire.gen.iris.v1 import common_pb2

    prefix = "CONTAINER_PROFILE_"
    numbers = {
        name.removeprefix(prefix).lower(): number for name, number in common_pb2.ContainerProfile.items() if number
    }
    name = text.strip().upper().removeprefix(prefix).replace("-", "_").lower()
    if name not in numbers:
        near = did_you_mean(name, numbers)
        raise UsageFailed(f"no container profile {shown(text)}", hint=near or f"one of {', '.join(numbers)}")
    if name == "default":
        return common_pb2.CONTAINER_PROFILE_UNSPECIFIED
    return cast("common_pb2.ContainerProfile", numbers[name])


def _names_setup(options: RunOptions) -> bool:
    return bool(options.no_sync or options.sync_packages or options.extras)


def add_environment(session: Session, request: pb.LaunchJobRequest, variables: Mapping[str, str]) -> None:
    """Puts a workspace's own environment beneath what `-e` named, and says so. Raises UsageFailed."""
    added = [name for name in variables if env_name(name) not in request.environment.env_vars]
    for name in added:
        request.environment.env_vars[name] = encodable([variables[name]])[0]
    if added:
        session.diagnostics.note(f"environment from {PROJECT_FILE}: {', '.join(sorted(added))}")


def check_cluster(session: Session, options: RunOptions) -> None:
    """Finds the controller, and checks regions and zones where a cluster file says which there are. Raises UsageFailed, ConnectFailed."""
    _ = session.target
    named = session.named if session.named != LOCAL and not session.controller_url else ""
    if not (options.regions or options.zone) or not (session.config or named):
        return
    from iris_core.config.cluster import find_cluster, load_config

    groups = load_config(Path(session.config) if session.config else find_cluster(named)).scale_groups
    check_places(options, *places_of((group.region, group.zone) for group in groups.values()))


def encodable(words: Sequence[str]) -> list[str]:
    """The words, which can be sent. Raises UsageFailed."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise UsageFailed(f"{word[:60]!a} is not UTF-8 text") from None
        if "\0" in word:
            raise UsageFailed(f"{shown(word)} has a NUL character")
    return list(words)


def env_name(name: str) -> str:
    """The name, which a job may set. Raises UsageFailed."""
    if "=" in name:
        key, _, _value = name.partition("=")
        raise UsageFailed(f"-e takes two words: write -e {shown(key)[1:-1]} VALUE instead of NAME=VALUE")
    if not _ENV_NAME.fullmatch(name):
        raise UsageFailed(f"-e {shown(name)} is not the name of an environment variable")
    if name.startswith("IRIS_") and not name.startswith("IRIS_PORT_"):
        raise UsageFailed(
            f"-e {name} is set by Iris itself", hint="of the names with IRIS_ only IRIS_PORT_<NAME> may be given"
        )
    return name


def _devices(options: RunOptions, request: pb.LaunchJobRequest) -> int:
    """Fills in the accelerators; returns how many tasks they mean when --replicas is not given."""
    from iris_core.model.constraints import device_constraints
    from iris_core.model.resources import Resources, parse_gpu_spec, parse_tpu_specs, tpu_device
    from iris_core.wire.convert import constraint_to_wire

    if options.gpu and options.tpu:
        raise UsageFailed("--gpu and --tpu exclude each other", hint="give one of them")
    alternatives: tuple[str, ...] = ()
    tasks = 1
    if options.gpu:
        device = parse_gpu_spec(options.gpu)
    elif options.tpu:
        specs = parse_tpu_specs(options.tpu)
        device, tasks = tpu_device(specs[0]), specs[0].vm_count
        alternatives = tuple(spec.name for spec in specs)
    else:
        return 1
    request.resources.device.kind = device.kind
    request.resources.device.variant = device.variant
    request.resources.device.count = device.count
    if len(alternatives) > 1:
        request.constraints.extend(
            constraint_to_wire(constraint) for constraint in device_constraints(Resources(device=device), alternatives)
        )
    return tasks


def _check_extra(options: RunOptions, resources: common_pb2.Resources) -> None:
    if options.enable_extra_resources:
        return
    for asked, name in (
        (bool(options.gpu), "--gpu"),
        (bool(options.tpu), "--tpu"),
        (resources.memory_bytes >= EXTRA_MEMORY, f"--memory of {format_size(EXTRA_MEMORY)} or more"),
        (resources.disk_bytes >= EXTRA_DISK, f"--disk of {format_size(EXTRA_DISK)} or more"),
    ):
        if asked:
            raise UsageFailed(
                f"{name} needs --enable-extra-resources", hint="it is a safety catch: add the flag if you mean it"
            )


def _job_id(options: RunOptions) -> JobId:
    name = options.job_name
    if name is not None:
        check_component(name, what="job name", field="--job-name")
    else:
        name = default_name(options.command, time.gmtime())
    parent = os.environ.get("IRIS_TASK_ID", "")
    if parent and options.user is None:
        # Inside a task: its job is the parent.
        try:
            return TaskId.parse(parent.partition(":")[0]).job.child(name)
        except ModelError as error:
            if error.field == "name":
                raise
            raise UsageFailed(f"$IRIS_TASK_ID is not a task: {error.message}") from None
    return JobId.parse(f"/{owner_of(options.user, os.environ)}/{name}")


def default_name(command: Sequence[str], when: time.struct_time) -> str:
    """`iris-run-<stem of the first *.py, else job>-<UTC date-time>` (cli-auth-logs §1.2)."""
    script = next((word for word in command if word.endswith(".py") and len(word) > 3), "")
    stem = _NOT_IN_NAMES.sub("_", Path(script).stem)[:64] or "job"
    return f"iris-run-{stem}-{time.strftime('%Y%m%d-%H%M%S', when)}"


def prepare_bundle(session: Session, folder: Path) -> tuple[Bundle, Workspace]:
    """Looks at the working directory, says what will travel, and zips it. Raises IrisError."""
    from iris_core.workspace.bundle import pack
    from iris_core.workspace.tree import scan

    workspace = scan(folder)
    said = session.diagnostics
    for left in workspace.left_out:
        said.warn(f"the bundle leaves out {left.name}: {left.reason}")
    files = f"{len(workspace.entries)} file{'s' * (len(workspace.entries) != 1)}"
    below = workspace.git and not folder.samefile(workspace.root)
    inside = f"{workspace.root}{', where the command starts' if below else ''}"
    where = inside if workspace.git else f"{workspace.root} (no git repository: everything below it)"
    said.note(f"bundle: {files}, {format_size(workspace.size_bytes)} from {where}")
    return pack(workspace), workspace


def store_bundle(session: Session, bundle: Bundle) -> None:
    """Sends the bundle unless the controller has it. Raises IrisError."""
    from iris_core.cli.reads import Patience
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    client = session.client
    known = client.call(
        "ControllerService/StatBundle", pb.StatBundleRequest(bundle_id=bundle.bundle_id), pb.StatBundleResponse
    )
    if not known.exists:
        # Storing the same content twice is harmless, so a broken connection is no reason to give up.
        request = pb.PutBundleRequest(bundle_id=bundle.bundle_id, data=bundle.data)
        Patience(session.diagnostics, "nothing was submitted yet").ask(
            lambda: client.call("ControllerService/PutBundle", request, pb.PutBundleResponse, timeout_s=120.0)
        )
    session.diagnostics.note(
        f"bundle {bundle.bundle_id[:12]}: {format_size(len(bundle.data))} zipped, {'already stored' if known.exists else 'sent'}"
    )


def launch(client: Client, request: pb.LaunchJobRequest, *, named: bool) -> pb.LaunchJobResponse:
    """Submits. A made-up name that is taken gets a number. Raises IrisError."""
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    base = request.name
    number = 1
    while True:
        request.request_id = os.urandom(16).hex()
        try:
            return client.call("ControllerService/LaunchJob", request, pb.LaunchJobResponse, timeout_s=150.0)
        except NotReached:
            raise
        except ConnectFailed as error:
            error.hint = error.hint or (
                f"whether {request.name} was submitted is not known; look with: job describe {request.name}"
            )
            raise
        except RpcFailed as error:
            if named or error.status != "ALREADY_EXISTS" or number >= 20:
                raise
            number += 1
            request.name = f"{base}-{number}"
