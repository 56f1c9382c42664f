"""From a JobSpec to a request and a bundle: the owner, the workspace, the setup steps.

Must never open a connection.
"""

from __future__ import annotations

import getpass
import re
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING

from iris_core.contracts import UsageFailed
from iris_core.model.errors import ModelError
from iris_core.model.ids import JobId, TaskId, check_owner, owner_from_login
from iris_core.sdk.spec import JobSpec, job_id, request_of
from iris_core.workspace.setup import sync_script

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
    from iris_core.workspace.bundle import Bundle

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._@+-]")


def prepare(spec: JobSpec, environ: Mapping[str, str]) -> tuple[pb.LaunchJobRequest, Bundle | None]:
    """The request and what travels with it. Reads the workspace. Raises IrisError."""
    try:
        return _prepared(spec, environ)
    except ModelError as error:
        raise UsageFailed(error.message, hint=error.hint) from None


def _prepared(spec: JobSpec, environ: Mapping[str, str]) -> tuple[pb.LaunchJobRequest, Bundle | None]:
    parent = parent_of(environ) if not spec.user else None
    name = spec.name or made_up_name(spec)
    request = request_of(spec, job_id(name, owner_of(spec.user or None, environ), parent))
    if not spec.name and spec.existing == "replace":
        # A made-up name must never take the place of an older job that happens to have it.
        request.existing_job_policy = 1  # type: ignore[assignment]
    environment = spec.environment
    if spec.workspace is None:
        if environment.sync_packages or environment.extras:
            raise UsageFailed("there is no workspace to sync", hint="give the job a workspace")
        request.environment.setup_scripts.extend(environment.setup_scripts or ())
        inherits = environment.setup_scripts is None
        request.inherit_workspace = inherits and JobId.parse(request.name).parent is not None
        return request, None
    from iris_core.workspace.bundle import pack
    from iris_core.workspace.tree import scan

    workspace = scan(Path(spec.workspace))
    if environment.setup_scripts is not None:
        if environment.sync_packages or environment.extras:
            raise UsageFailed("setup_scripts and sync_packages exclude each other", hint="give one of them")
        request.environment.setup_scripts.extend(environment.setup_scripts)
    elif any(entry.name == "pyproject.toml" for entry in workspace.entries):
        request.environment.setup_scripts.append(sync_script(environment.sync_packages, environment.extras))
    elif environment.sync_packages or environment.extras:
        raise UsageFailed(f"there is no pyproject.toml in {workspace.root} to sync")
    return request, pack(workspace)


def parent_of(environ: Mapping[str, str]) -> JobId | None:
    """Inside a task: its job."""
    task = environ.get("IRIS_TASK_ID", "")
    return TaskId.parse(task.partition(":")[0]).job if task else None


def owner_of(user: str | None, environ: Mapping[str, str]) -> str:
    """Who owns a new root job. Raises UsageFailed, ModelError."""
    if user is not None:
        return check_owner(user)
    named = environ.get("IRIS_USER", "")
    if named:
        return check_owner(named)
    try:
        return owner_from_login(getpass.getuser())
    except (KeyError, OSError, ImportError):
        raise UsageFailed("this user has no login name", hint="name the user, or set $IRIS_USER") from None


def made_up_name(spec: JobSpec) -> str:
    """`iris-run-<stem of the first *.py, else job>-<UTC date-time>-<4 hex>`: unique without asking."""
    script = next((word for word in spec.command if word.endswith(".py") and len(word) > 3), "")
    stem = _NOT_IN_NAMES.sub("_", Path(script).stem)[:64] or "job"
    return f"iris-run-{stem}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
