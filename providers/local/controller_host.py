"""A controller deployment on this machine: releases that lie here, a keeper process, and a state directory of its own.

What runs is known from the keeper's record by pid, start time and boot of the machine, and never from a pid alone. Workers, tasks and
log store outlive a stop; the next controller takes them over (DESIGN §7). Must never end a process that this deployment did not start.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from iris_core import programs
from iris_core.contracts import ControllerStatus, ControllerUnhealthy, IrisError, StagedRelease
from providers.local.cluster import ending, held
from providers.local.controller_keeper import RECORD, STOP_S, machine_boot
from providers.local.last_checkpoint import noted
from providers.local.processes import Known, kept_environment, read_record
from providers.said import as_error

LOG: Final = "controller.log"
BEGIN_S: Final = 30.0
STAGE_S: Final = 60.0
KEEPER_STOP_S: Final = STOP_S + 10.0
"""What a keeper may take to end, which kills its controller after `STOP_S`."""
KILLED_S: Final = 30.0
"""What a process may take to be gone once it was killed."""
HEALTH_S: Final = 5.0
"""For one answer."""
FIRST_LOOK_S: Final = 0.1
LAST_LOOK_S: Final = 2.0
FAILURES: Final = 3
"""A new controller that ended so often by itself will not come up."""
SHOWN_LINES: Final = 30
TAIL_BYTES: Final = 256 << 10
CHECK: Final = """
import importlib, importlib.util, marshal, pathlib, sys

def sweep():
    for path in pathlib.Path(sys.argv[1]).rglob("*.pyc"):
        try:
            marshal.loads(path.read_bytes()[16:])
        except (EOFError, ValueError, TypeError):
            path.unlink()

sweep()
for name in "iris_controller.serve", "iris_controller.worker.main", "iris_controller.finelog.main":
    if name == "iris_controller.serve" or importlib.util.find_spec(name.rpartition(".")[0]):
        importlib.import_module(name)
sweep()
print(importlib.import_module("providers.local.controller_keeper").__file__)
"""
"""Loads what a deployment starts, and leaves its bytecode for them. What a full disk had cut short of that is removed, before and after."""


class LocalControllerHost:
    """Implements `ControllerHost` for the cluster of one file.

    Args:
        config: The cluster file that the controller is started with.
        state_dir: Its local state.
        find: The release of an id, None if there is no whole one.
    """

    def __init__(self, config: Path, state_dir: Path, find: Callable[[str], StagedRelease | None]) -> None:
        self._config = config.absolute()
        self.state_dir = state_dir
        self._find = find

    @property
    def log_file(self) -> Path:
        """What keeper and controllers write to their standard error."""
        return self.state_dir / LOG

    def stage(self, release: str) -> None:
        """See ControllerHost. It lies here already: it is proved that its interpreter loads it, and nothing else in its place."""
        found = self._release(release)
        try:
            done = programs.run(
                [found.python, "-c", CHECK, str(found.lib)],
                env={**kept_environment(found.lib), "PYTHONDONTWRITEBYTECODE": ""},
                timeout_s=STAGE_S,
                cwd="/",
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise IrisError(f"release {release[:12]} cannot be loaded: {error}") from error
        said = os.fsdecode(done.stderr).strip().splitlines()
        if done.returncode != 0:
            raise IrisError(f"release {release[:12]} cannot be loaded: {said[-1] if said else 'no reason was given'}")
        place = Path(os.fsdecode(done.stdout).strip())
        if not place.is_relative_to(found.lib):
            raise IrisError(f"{place} is in the way of release {release[:12]}")

    def start(self, release: str) -> None:
        """See ControllerHost. It returns once the keeper runs; `await_healthy` says how the controller does."""
        found = self._release(release)
        now = self.status()
        if now.running:
            raise IrisError(f"a controller runs already: {now.detail}", hint="stop it first")
        words = [found.python, "-m", "providers.local.controller_keeper", "--state-dir", str(self.state_dir)]
        words += ["--release", release, "--", "--config", str(self._config), "--state-dir", str(self.state_dir)]
        try:
            self.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise IrisError(f"the controller cannot be started in {self.state_dir}: {error}") from error
        self._begin(words, found.lib)

    def _begin(self, words: Sequence[str], lib: Path) -> None:
        """Begins the keeper, of this command line, with the modules of a release. Raises IrisError: it does not run."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            log = os.open(self.log_file, flags, 0o600)
            try:
                done = subprocess.run(
                    words,
                    env=kept_environment(lib),
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    timeout=BEGIN_S,
                    check=False,
                    start_new_session=True,
                )
            finally:
                os.close(log)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise IrisError(f"the controller cannot be started in {self.state_dir}: {error}") from error
        if done.returncode != 0:
            raise IrisError(
                f"the controller was not started: {self._last_words() or 'no reason was given'}",
                hint=f"see {self.log_file}",
            )

    def stop(self, kill_after_s: float | None = None) -> None:
        """See ControllerHost. Raises IrisError: it does not end, or it is not of this deployment."""
        record = self._record()
        keeper, controller = self._keeper(record), self._controller(record)
        for known in (keeper, controller):
            if known is None or not known.alive:
                continue
            known.signal(signal.SIGTERM)
            if kill_after_s is not None and not known.wait_gone(kill_after_s):
                # The keeper was told to stop, so that it starts no other one.
                found = self._controller(self._record())
                if found is not None:
                    found.signal(signal.SIGKILL)
            # A keeper kills a controller that hangs. One whose keeper is gone, and a keeper that hangs itself, nobody else ends.
            if not known.wait_gone(KEEPER_STOP_S if known is keeper else STOP_S):
                known.signal(signal.SIGKILL)
            if not known.wait_gone(KILLED_S):
                raise IrisError(
                    f"process {known.pid} was killed and has not ended", hint="it hangs in the kernel: look at its disk"
                )
        if held(self.state_dir):
            raise IrisError(
                f"another controller holds {self.state_dir}", hint="it was started by hand: end it where it was started"
            )

    def status(self) -> ControllerStatus:
        """See ControllerHost."""
        record = self._record()
        release = str(record.get("release", ""))
        keeper, controller = self._keeper(record), self._controller(record)
        child = record.get("controller") or {}
        failures = int(record.get("failures", 0))
        if keeper is None or not keeper.alive:
            if controller is not None and controller.alive:
                return ControllerStatus(True, "", controller.pid, "it is ending, its keeper is gone", release)
            if held(self.state_dir):
                return ControllerStatus(True, "", 0, f"{self.state_dir} is held by one that was started by hand")
            how = "it was stopped" if record.get("state") == "stopped" else "it does not run"
            detail = how if record else "it was never started here"
            boot, checkpoint = noted(self.state_dir)
            return ControllerStatus(False, "", 0, detail, release, ended_boot=boot, last_checkpoint=checkpoint)
        if record.get("state") == "waiting":
            last = str(record.get("last", ""))
            return ControllerStatus(True, "", 0, f"it ended {last} and is started again", release, failures=failures)
        if controller is None or not controller.alive or record.get("state") != "serving":
            pid = controller.pid if controller is not None else 0
            return ControllerStatus(True, "", pid, "it is starting", release, failures=failures)
        url, boot = str(child.get("url", "")), str(child.get("boot_id", ""))
        return ControllerStatus(True, url, controller.pid, f"it serves at {url}", release, boot, failures)

    def await_healthy(self, timeout_s: float = 120.0) -> ControllerStatus:
        """See ControllerHost."""
        deadline = time.monotonic() + timeout_s
        pause, said = FIRST_LOOK_S, "it does not answer"
        while True:
            status = self.status()
            if not status.running:
                raise self._unhealthy(f"the controller has ended: {status.detail}")
            if status.failures >= FAILURES:
                last = self._last_words()
                raise self._unhealthy(f"the controller ended {status.failures} times in a row: {last}")
            if status.url:
                said = _health(status.url)
                if not said:
                    return status
            if time.monotonic() >= deadline:
                raise self._unhealthy(f"the controller is not healthy after {timeout_s:g} s: {status.detail}, {said}")
            time.sleep(min(pause, max(deadline - time.monotonic(), 0.0)))
            pause = min(pause * 1.5, LAST_LOOK_S)

    def logs(self, lines: int) -> Sequence[str]:
        """See ControllerHost."""
        try:
            with self.log_file.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(size - TAIL_BYTES, 0))
                return list(deque(file.read().decode(errors="replace").splitlines(), maxlen=lines))
        except OSError:
            return []

    def schema(self, release: str) -> Sequence[str]:
        """See ControllerHost."""
        folder = self._release(release).lib / "iris_controller" / "store" / "migrations"
        return sorted(path.stem for path in folder.glob("*.sql"))

    def offline(self, release: str, words: Sequence[str], timeout_s: float = 600.0) -> str:
        """See ControllerHost."""
        found = self._release(release)
        try:
            done = programs.run(
                [found.python, "-m", "iris_controller.main", *words],
                env=kept_environment(found.lib),
                timeout_s=timeout_s,
                cwd="/",
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise IrisError(f"iris-controller {words[0]} was not done: {error}") from error
        if done.returncode != 0:
            raise as_error(
                done.stderr.decode(errors="replace"), f"iris-controller {words[0]} ended {ending(done.returncode)}"
            )
        return done.stdout.decode(errors="replace")

    # -----------------------------------------------------------------------------------------------------------------

    def _release(self, release: str) -> StagedRelease:
        found = self._find(release)
        if found is None:
            raise IrisError(f"there is no whole release {release[:12]} here", hint="build it")
        return found

    def _record(self) -> dict[str, Any]:
        record = read_record(self.state_dir / RECORD)
        return (
            record if record.get("machine_boot") in (None, machine_boot()) else {**record, "pid": 0, "controller": None}
        )

    @staticmethod
    def _keeper(record: dict[str, Any]) -> Known | None:
        return _known(record)

    @staticmethod
    def _controller(record: dict[str, Any]) -> Known | None:
        child = record.get("controller")
        return _known(child) if isinstance(child, dict) else None

    def _unhealthy(self, message: str) -> ControllerUnhealthy:
        return ControllerUnhealthy(message, hint=f"see {self.log_file}", lines=self.logs(SHOWN_LINES))

    def _last_words(self) -> str:
        """The last error that was written, else the last line."""
        lines = [line for line in self.logs(SHOWN_LINES) if line.strip()]
        said = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")] or lines
        return said[-1] if said else ""


def _known(record: dict[str, Any]) -> Known | None:
    with contextlib.suppress(KeyError, TypeError, ValueError):
        return Known(int(record["pid"]), int(record["start_time"])) if record["pid"] else None
    return None


def _health(url: str) -> str:
    """Why that controller is not healthy, "" if it is."""
    import http.client  # late: few who load this ask

    place = urlsplit(url)
    link = http.client.HTTPConnection(place.hostname or "", place.port, timeout=HEALTH_S)
    try:
        link.request("GET", "/health")
        answer = link.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException) as error:
        return f"it does not answer: {error}"
    finally:
        link.close()
    return "" if answer.status == 200 else f"/health answers {answer.status}"
