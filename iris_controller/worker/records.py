"""What a worker writes down about its attempts and itself, so that whoever comes after it can tell what is still alive.

`attempts/<uid>.json` is there from before the spawn until the controller has acknowledged the end; it also holds that end, so
that a task which finished just before the worker was killed is reported as what it was and never run again. Not synced to the
platter: after a power loss nothing recorded is alive. Must never hold a token or a variable's value.
"""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from iris_controller.worker import procs

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(slots=True)
class AttemptRecord:
    """One attempt. `pid` and `start` are 0 until its first process runs; `end` is the serialised final Observation."""

    uid: str
    key: str
    incarnation: int
    worker_boot: str
    machine_boot: str
    cgroup: str = ""
    pid: int = 0
    start: int = 0
    session: int = 0
    end: bytes = b""


_FIELDS = ("uid", "key", "incarnation", "worker_boot", "machine_boot", "cgroup", "pid", "start", "session")


class Records:
    """The folder of attempt records below a cache directory."""

    def __init__(self, cache_dir: Path) -> None:
        self._folder = cache_dir / "attempts"

    def prepare(self) -> None:
        """Makes the folder. Raises OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def write(self, record: AttemptRecord) -> None:
        """Stores the record. Raises OSError."""
        end = base64.b64encode(record.end).decode("ascii")
        data = json.dumps({name: getattr(record, name) for name in _FIELDS} | {"end": end}).encode()
        # In place and in one write: a torn record still names its attempt by the file's name, which is all that cleaning needs.
        fd = os.open(self._path(record.uid), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if os.pwrite(fd, data, 0) != len(data):
                raise OSError(28, os.strerror(28))
            os.ftruncate(fd, len(data))
        finally:
            os.close(fd)

    def remove(self, uid: str) -> None:
        """Forgets the attempt."""
        try:
            os.unlink(self._path(uid))
        except OSError:
            pass  # gone already, or the folder is: either way there is nothing left to forget

    def load(self) -> list[AttemptRecord]:
        """Every recorded attempt; one that can not be read comes back with its uid alone."""
        try:
            names = sorted(name for name in os.listdir(self._folder) if name.endswith(".json"))
        except OSError:
            return []
        return [self._read(name.removesuffix(".json")) for name in names]

    def _path(self, uid: str) -> str:
        return f"{self._folder}/{uid}.json"

    def _read(self, uid: str) -> AttemptRecord:
        bare = AttemptRecord(uid, "", 0, "", procs.machine_boot())
        try:
            with open(self._path(uid), "rb") as file:
                got: dict[str, Any] = json.loads(file.read())
            return AttemptRecord(
                uid=uid,
                key=str(got["key"]),
                incarnation=int(got["incarnation"]),
                worker_boot=str(got["worker_boot"]),
                machine_boot=str(got["machine_boot"]),
                cgroup=str(got["cgroup"]),
                pid=int(got["pid"]),
                start=int(got["start"]),
                session=int(got["session"]),
                end=base64.b64decode(got["end"]),
            )
        except (OSError, ValueError, KeyError, TypeError):
            return bare


def write_private(path: Path, data: dict[str, Any]) -> None:
    """Replaces a JSON file at once, mode 0600. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def process_identity() -> dict[str, Any]:
    """What the calling process is recognised by later: pid, start time, session and the boot they belong to."""
    pid = os.getpid()
    return {"pid": pid, "start_time": procs.start_of(pid), "session": os.getsid(0), "boot_id": procs.machine_boot()}


def recorded_process(path: Path) -> tuple[int, int] | None:
    """The living process (pid, start time) that a file of `process_identity` names, or None."""
    try:
        got = json.loads(path.read_bytes())
        pid, start = int(got["pid"]), int(got["start_time"])
        boot = str(got["boot_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (pid, start) if boot == procs.machine_boot() and start and procs.same(pid, start) else None
