"""The embedded cluster of this user: the record that `cluster start --local` leaves for the commands of other shells.

A process id alone is no proof, because the kernel gives numbers away again; the record holds the start time too, and
only a process that matches both counts as running (DESIGN §5.21). Must never start or signal anything.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from iris_core.config.places import local_cluster_dir
from iris_core.contracts import ConnectFailed

if TYPE_CHECKING:
    from pathlib import Path

HOW_TO_START = "start one with `iris-core cluster start --local`"


@dataclass(frozen=True, slots=True)
class LocalEndpoint:
    """Where the embedded cluster listens and who runs it."""

    url: str
    pid: int
    start: int
    """Start of that process in clock ticks since boot."""
    boot_id: str
    """Of the controller."""
    keeper_pid: int = 0
    """The process that starts the controller again when it dies, 0 = none."""
    keeper_start: int = 0


def endpoint_file() -> Path:
    """Where the record is."""
    return local_cluster_dir() / "endpoint.json"


def process_start(pid: int) -> int | None:
    """When that process started, in clock ticks since boot; None if there is no such process (a zombie is none)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return None if fields[0] in (b"Z", b"X") else int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def write_endpoint(endpoint: LocalEndpoint) -> None:
    """Leaves the record, whole or not at all, readable by this user alone."""
    path = endpoint_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    scratch = path.with_name(f".endpoint.{os.getpid()}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "w") as file:
        json.dump(asdict(endpoint), file)
    scratch.replace(path)


def remove_endpoint(pid: int) -> None:
    """Takes the record away if it is that process's own."""
    found = _read()
    if found is not None and found.pid == pid:
        with contextlib.suppress(OSError):
            endpoint_file().unlink()


def _read() -> LocalEndpoint | None:
    try:
        fields = json.loads(endpoint_file().read_bytes())
        keeper = int(fields.get("keeper_pid", 0)), int(fields.get("keeper_start", 0))
        return LocalEndpoint(
            str(fields["url"]), int(fields["pid"]), int(fields["start"]), str(fields["boot_id"]), *keeper
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def running_endpoint() -> LocalEndpoint | None:
    """The running local cluster, None if there is none: no record, or its processes are gone. Between the death of a
    controller and its next start its keeper lives on, and so does the cluster.
    """
    found = _read()
    if found is None:
        return None
    kept = found.keeper_pid > 0 and process_start(found.keeper_pid) == found.keeper_start
    return found if kept or process_start(found.pid) == found.start else None


def require_endpoint() -> LocalEndpoint:
    """The running local cluster. Raises ConnectFailed, with how to start one."""
    found = running_endpoint()
    if found is None:
        raise ConnectFailed("the local cluster is not running", hint=HOW_TO_START)
    return found
