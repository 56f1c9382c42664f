"""Who has a data folder, and where its server answers: a lock that dies with its holder, and a file for those who look for it.

Must never leave an endpoint file that names a server which is not ready yet.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from iris_controller.finelog.disk import write_atomically
from iris_controller.finelog.opening import StoreUnusable

if TYPE_CHECKING:
    from types import TracebackType


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A running server. `start_time` is the kernel's, in clock ticks since boot: with the pid it names one process for good."""

    host: str
    port: int
    pid: int
    start_time: int
    started_ms: int
    boot_id: str
    release: str

    def write(self, path: Path) -> None:
        """For its owner alone, whole or not at all. Raises OSError."""
        write_atomically(path, json.dumps(asdict(self)).encode() + b"\n")


def process_start_time(pid: int | str = "self") -> int:
    """When a process started, in clock ticks since the machine booted. Raises OSError: there is none."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    # The name of the program stands in parentheses and may hold anything.
    return int(stat.rpartition(")")[2].split()[19])


class FolderLock:
    """Keeps others off a data folder while it is open: use it in a `with` statement.

    Raises StoreUnusable naming the holder, OSError.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "lock"
        self._descriptor = -1

    def __enter__(self) -> FolderLock:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = self._holder()
            os.close(self._descriptor)
            raise StoreUnusable(
                f"{self._path.parent} is in use by another finelog ({holder})",
                hint="stop that one first, or give another --data-dir",
            ) from None
        me = {"pid": os.getpid(), "host": socket.gethostname(), "started_ms": time.time_ns() // 1_000_000}
        # It is held all the same when the disk is full.
        with suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, json.dumps(me).encode() + b"\n", 0)
        return self

    def _holder(self) -> str:
        with suppress(OSError, ValueError, KeyError, TypeError):
            told = json.loads(os.pread(self._descriptor, 4096, 0))
            since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(told["started_ms"] / 1000))
            return f"pid {int(told['pid'])} on {str(told['host'])[:64]!s}, since {since}"
        return "who it is cannot be read"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)
