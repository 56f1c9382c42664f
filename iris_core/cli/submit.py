"""From the options of `job run` to a job on the controller: the request, the bundle, the name.

Everything that can be wrong with what was typed is found before anything is sent. Nothing of the submitter's
environment travels unless `-e` names it (DESIGN §5.13). Must never follow the job.
"""

from __future__ import annotations

import getpass
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iris_core.client.calls import NotReached
from iris_core.contracts import ConnectFailed, RpcFailed, UsageFailed
from iris_core.model.errors import ModelError, shown
from iris_core.model.ids import JobId, TaskId, check_component, check_owner, owner_from_login
from iris_core.model.quantities import format_size, parse_cpu, parse_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_core.cli.session import Session
    from iris_core.contracts import Client
    from iris_core.wire.gen.iris.v1 import common_pb2
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
    from iris_core.workspace.bundle import Bundle
    from iris_core.workspace.tree import Workspace

UV_SYNC: Final = "uv sync --all-packages --no-dev"
"""The setup step of a workspace with a pyproject.toml."""
EXTRA_MEMORY: Final = 4_000_000_000
EXTRA_DISK: Final = 10_000_000_000
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._@+-]")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the options of `job run` said."""

    command: Sequence[str]
    env_vars: Sequence[tuple[str, str]]
    cpu: str
    memory: str
    disk: str
    gpu: str
    tpu: str
    enable_extra_resources: bool
    replicas: int | None
    max_retries: int
    timeout_s: float
    job_name: str | None
    user: str | None
    no_sync: bool


def build(options: RunOptions, argv: Sequence[str], program: str) -> pb.LaunchJobRequest:
    """The request, without bundle and setup steps. Raises UsageFailed, ModelError."""
    from iris_core.model.redact import redact_argv
    from iris_core.wire.gen.iris.v1 import common_pb2
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    request = pb.LaunchJobRequest(name=str(_job_id(options)))
    request.entrypoint.run_command.argv.extend(_encodable(options.command))
    for name, value in options.env_vars:
        request.environment.env_vars[_env_name(name)] = _encodable([value])[0]
    resources = request.resources
    resources.cpu_millicores = parse_cpu(options.cpu, field="--cpu")
    resources.memory_bytes = parse_size(options.memory, field="--memory")
    resources.disk_bytes = parse_size(options.disk, field="--disk")
    slices = _devices(options, request)
    _check_extra(options, resources)
    request.replicas = options.replicas if options.replicas is not None else slices
    request.max_retries_failure = options.max_retries
    request.max_task_failures = options.max_retries
    request.timeout_ms = round(options.timeout_s * 1000)
    request.submit_argv.extend(_encodable(redact_argv([program, *argv])))
    if options.job_name is None:
        # A made-up name must never take the place of an older job that happens to have it.
        request.existing_job_policy = common_pb2.EXISTING_JOB_POLICY_ERROR
    return request


def _encodable(words: Sequence[str]) -> list[str]:
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise UsageFailed(f"{word[:60]!a} is not UTF-8 text") from None
        if "\0" in word:
            raise UsageFailed(f"{shown(word)} has a NUL character")
    return list(words)


def _env_name(name: str) -> str:
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
    return JobId.parse(f"/{_owner(options.user)}/{name}")


def _owner(user: str | None) -> str:
    if user is not None:
        return check_owner(user)
    named = os.environ.get("IRIS_USER", "")
    if named:
        return check_owner(named)
    try:
        return owner_from_login(getpass.getuser())
    except (KeyError, OSError, ImportError):
        raise UsageFailed("this user has no login name", hint="give --user, or set $IRIS_USER") from None


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
