"""The embedded cluster: a controller of our own on this machine, with its workers, for as long as whoever started it
lives.

The controller runs in a session of its own, so a Ctrl-C in the terminal reaches only us and tasks get their grace
(field case C20); the kernel ends it when we die. It is started again when it dies, on the same port. `stop` ends
everything: TERM, grace, KILL. Must never leave a process behind, whatever ends it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iris_core.contracts import IrisError
from providers.local.processes import Known, kept_environment, read_record, start_time
from providers.local.vm import STARTED

START_S: Final = 60.0
STOP_S: Final = 75.0
"""What the controller may take to end workers, log store and itself."""
LEFTOVER_S: Final = 15.0
RESTARTS: Final = 3
RESTART_WINDOW_S: Final = 60.0
POLL_S: Final = 0.2
PR_SET_PDEATHSIG: Final = 1

NEEDED: Final = (
    "starlette",
    "uvicorn",
    "uvloop",
    "httpcore",
    "websockets",
    "prometheus_client",
    "psutil",
    "zstandard",
    "grpc_health",
    "grpc_reflection",
    "pyarrow",
    "duckdb",
    "packaging",
)
"""Modules of the `controller` extra without which it cannot start."""

CONFIG: Final = """\
name: local
platform:
  local:
worker_provider: {{}}
scale_groups:
  local:
    num_vms: 1
    buffer_slices: {workers}
    max_slices: {workers}
    resources:
      device_type: cpu
      capacity_type: on-demand
"""


@dataclass(frozen=True, slots=True)
class Running:
    """The controller that serves now."""

    url: str
    pid: int
    start: int
    boot_id: str


def check_installed() -> None:
    """Raises IrisError when the packages of the controller are not installed, with the command that installs them."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise IrisError(
            f"the controller's packages are not installed (missing: {', '.join(missing)})",
            hint="install them with: pip install 'iris-ops[controller]'",
        )


class EmbeddedCluster:
    """`start`, then `supervise` until it is time to `stop`. `note` is told what happens."""

    def __init__(self, state_dir: Path, workers: int, *, note: Callable[[str], None] = lambda _: None) -> None:
        self._state_dir = state_dir
        self._workers = workers
        self._note = note
        self._child: subprocess.Popen[bytes] | None = None
        self._deaths: list[float] = []
        self._port = 0
        self.running: Running | None = None

    @property
    def log_file(self) -> Path:
        """What the controller writes to its own standard error."""
        return self._state_dir / "controller.log"

    def start(self) -> Running:
        """Starts the controller and waits until it serves. Raises IrisError: it did not; the reason is the
        controller's own.
        """
        check_installed()
        try:
            self._state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            config = self._state_dir / "cluster.yaml"
            config.write_text(CONFIG.format(workers=self._workers))
        except OSError as error:
            raise IrisError(f"cannot write to {self._state_dir}: {(error.strerror or str(error)).lower()}") from None
        read_end, write_end = os.pipe()
        try:
            self._child = self._spawn(config, write_end)
        finally:
            os.close(write_end)
        try:
            note = self._await_ready(read_end)
        except BaseException:
            self._end_child(signal.SIGTERM, 10.0)
            raise
        finally:
            os.close(read_end)
        url, pid = str(note["url"]), int(str(note["pid"]))
        self._port = int(url.rpartition(":")[2])
        self.running = Running(url, pid, start_time(pid) or 0, str(note["boot_id"]))
        return self.running

    def _spawn(self, config: Path, ready: int) -> subprocess.Popen[bytes]:
        command = [
            *(sys.executable, "-m", "iris_controller.main", "serve", "--config", str(config)),
            *("--state-dir", str(self._state_dir), "--host", "127.0.0.1", "--port", str(self._port)),
            *("--embedded", "--ready-fd", str(ready)),
        ]
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        log = os.open(self.log_file, flags, 0o600)
        parent = os.getpid()
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=kept_environment(),
                cwd="/",
                pass_fds=(ready,),
                start_new_session=True,
                # Called between fork and exec of a program with one thread: nothing but two system calls.
                preexec_fn=die_with(parent, ctypes.CDLL(None, use_errno=True)),  # noqa: PLW1509
            )
        finally:
            os.close(log)

    def _await_ready(self, ready: int) -> dict[str, object]:
        assert self._child is not None
        deadline = time.monotonic() + START_S
        data = b""
        while not data.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0:
                raise IrisError(f"the controller did not serve within {START_S:.0f} s", hint=f"see {self.log_file}")
            if not select.select([ready], [], [], min(left, 0.5))[0]:
                continue
            part = os.read(ready, 4096)
            if not part:
                self._child.wait()
                raise IrisError(f"the controller did not start: {self._last_words()}", hint=f"see {self.log_file}")
            data += part
        note = json.loads(data)
        assert isinstance(note, dict)
        return note

    def _last_words(self) -> str:
        """What the controller said last, without the mark of an error."""
        with contextlib.suppress(OSError):
            lines = self.log_file.read_text(errors="replace").splitlines()[-50:]
            said = [line for line in lines if line.startswith("Error: ")] or [line for line in lines if line.strip()]
            if said:
                return said[-1].removeprefix("Error: ")
        return f"exit code {self._child.returncode if self._child else '?'}"

    def poll(self) -> bool:
        """Looks after the controller; returns whether another one serves since the last look. Raises IrisError: it
        keeps dying.
        """
        child = self._child
        if child is None or child.poll() is None:
            return False
        now = time.monotonic()
        self._deaths = [moment for moment in self._deaths if now - moment < RESTART_WINDOW_S] + [now]
        how = ending(child.returncode)
        if len(self._deaths) > RESTARTS:
            raise IrisError(
                f"the controller ended {len(self._deaths)} times within {RESTART_WINDOW_S:.0f} s, last {how}: {self._last_words()}",
                hint=f"see {self.log_file}",
            )
        self._note(f"the controller ended {how}; starting it again (workers and tasks go on)")
        self.start()
        return True

    def supervise(self, stopping: Callable[[], bool], changed: Callable[[Running], None]) -> None:
        """Looks after the cluster until `stopping`; `changed` is told of another controller. Raises IrisError: it
        keeps dying.
        """
        while not stopping():
            if self.poll() and self.running is not None:
                changed(self.running)
            time.sleep(POLL_S)

    def stop(self, hurry: Callable[[], bool] = lambda: False) -> list[str]:
        """Ends controller, workers, tasks and log store, and returns what had to be killed. `hurry` cuts the tasks'
        grace short.
        """
        killed = []
        child = self._child
        if child is not None and child.poll() is None:
            child.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + STOP_S
            hurried = False
            while child.poll() is None and time.monotonic() < deadline:
                if hurry() and not hurried:
                    hurried = True
                    child.send_signal(signal.SIGTERM)
                time.sleep(0.05)
            if child.poll() is None:
                child.kill()
                child.wait()
                killed.append("the controller")
        self._child = None
        return killed + end_leftovers(self._state_dir)

    def _end_child(self, number: int, grace_s: float) -> None:
        child = self._child
        if child is None:
            return
        if child.poll() is None:
            child.send_signal(number)
            try:
                child.wait(grace_s)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self._child = None
        end_leftovers(self._state_dir)


def die_with(parent: int, libc: ctypes.CDLL) -> Callable[[], None]:
    """What the child does before it becomes the controller: asks for TERM when its parent dies, even by KILL."""

    def ask() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return ask


def held(state_dir: Path) -> bool:
    """Whether a living controller has the lock of the state directory."""
    try:
        handle = os.open(state_dir / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return False


def ending(code: int) -> str:
    """How a process ended, by its return code."""
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


def end_leftovers(state_dir: Path) -> list[str]:
    """Ends supervisors and log store that a controller which died left behind; returns who had to be killed.

    Nothing is ended while a controller holds the state directory: ours is gone by now, so they are another's.
    """
    if held(state_dir):
        return []
    found: dict[str, Known] = {}
    supervisors = [path for name in ("supervisor.json", STARTED) for path in state_dir.glob(f"workers/*/{name}")]
    for path in [*supervisors, state_dir / "finelog" / "endpoint.json"]:
        record = read_record(path)
        with contextlib.suppress(KeyError, TypeError, ValueError):
            known = Known(int(record["pid"]), int(record["start_time"]))
            if known.alive:
                found[f"worker {path.parent.name}" if path in supervisors else "the log store"] = known
    killed = []
    for known in found.values():
        known.signal(signal.SIGTERM)
    deadline = time.monotonic() + LEFTOVER_S
    for name, known in found.items():
        if not known.wait_gone(max(deadline - time.monotonic(), 0.1)):
            known.signal(signal.SIGTERM)
            if not known.wait_gone(5.0):
                known.signal(signal.SIGKILL)
                known.wait_gone(5.0)
            killed.append(name)
    return killed
