"""Processes of ours that outlive whoever started them: recorded by pid and start time, adopted, never confused with another.

A pid alone says nothing: the kernel gives it to somebody else (field case C06). Must never signal a process whose start time is not
the recorded one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

KEPT_ENVIRONMENT: Final = (
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE",
    # Where the object store is, how it is reached, and where the identity for it lies.
    "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "STORAGE_EMULATOR_HOST",
    "CLOUDSDK_CONFIG", "CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
)  # fmt: skip


def kept_environment(lib: Path | None = None) -> dict[str, str]:
    """What a daemon of ours inherits: no shell's secrets, and no module from the working directory.

    A process that runs from a release starts its children from the same one; `lib` names another release's folder of modules. It writes no
    bytecode beside the modules: what a full disk cuts short there, Python takes for whole, and that release never loads again.
    """
    kept = {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ}
    own = str(Path(__file__).absolute().parents[2])
    if lib is not None:
        kept["PYTHONPATH"] = str(lib)
    elif own in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        kept["PYTHONPATH"] = own
    if "PYTHONPATH" in kept:
        kept["PYTHONDONTWRITEBYTECODE"] = "1"
    return kept | {"PYTHONSAFEPATH": "1"}


def start_time(pid: int) -> int | None:
    """The kernel's start time of a live process in clock ticks since boot; None when there is none or it is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def alive(pid: int, started: int) -> bool:
    """Whether exactly that process is alive."""
    return start_time(pid) == started


def read_record(path: Path) -> dict[str, Any]:
    """A JSON record; empty when it is absent or torn."""
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


@dataclass(frozen=True, slots=True)
class Known:
    """A process by pid and start time."""

    pid: int
    started: int

    @property
    def alive(self) -> bool:
        return alive(self.pid, self.started)

    def signal(self, number: int) -> None:
        """Signals it, unless it is gone or another process has its pid."""
        try:
            handle = os.pidfd_open(self.pid)
        except OSError:
            return
        try:
            if self.alive:
                signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return
        finally:
            os.close(handle)

    def ask_to_end(self) -> None:
        """TERM, and CONT with it: a process that was stopped hears nothing until it goes on, and what it runs runs on meanwhile."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)

    def wait_gone(self, timeout_s: float) -> bool:
        """Waits until it is gone. Blocks; call it off the loop."""
        deadline = time.monotonic() + timeout_s
        while self.alive:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        return True


def spawn_detached(argv: Sequence[str], log_path: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Starts a process in a session of its own, its output appended to `log_path` (0600)."""
    handle = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=handle,
            start_new_session=True,
            env=environment,
            cwd="/",
        )
    finally:
        os.close(handle)
