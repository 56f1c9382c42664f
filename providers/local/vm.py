"""One machine of a local slice: a worker process and the supervisor that keeps it (DESIGN §7 "Local workers").

Both are found through the records that they keep in the machine's folder, so it makes no difference which controller started
them. A machine whose supervisor died while its worker lives gets another supervisor; one that lost both is gone for good, like
a machine that lost its power, and whatever of its attempts still runs is ended. Must never signal a process that is not proven
to be the recorded one.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from iris_core.contracts import VmInfo, VmState
from providers.local.processes import Known, kept_environment, read_record, spawn_detached, start_time

log = logging.getLogger("iris.local")

END_S: Final = 30.0
"""What a supervisor may take to give its worker's attempts their grace."""
HURRY_S: Final = 12.0
"""A supervisor in a hurry gives its worker 5 s and then sweeps; killed before that, it would leave both behind."""

STARTED: Final = "started.json"
"""Names a supervisor from its first moment: our controller may be killed, and followed by another, before it names itself."""

Sweep = Callable[[Path], object]
"""Ends what is left of the attempts of the worker with that folder. Blocks for some seconds at most."""


def recorded(path: Path) -> Known | None:
    """The live process that a record names."""
    record = read_record(path)
    try:
        known = Known(int(record["pid"]), int(record["start_time"]))
    except (KeyError, TypeError, ValueError):
        return None
    return known if known.alive else None


class LocalVm:
    """`tend` keeps it, `end` takes it down, each about once a second and one at a time."""

    def __init__(self, folder: Path, worker_id: str, words: tuple[str, ...], sweep: Sweep) -> None:
        self.folder = folder
        self.worker_id = worker_id
        self.words = words
        """The options of `iris-worker` beside controller, id and folder."""
        self.lost = ""
        """Why this machine is gone for good, "" = it is not."""
        self.hurried = False
        """It did not end within its grace, or nobody waited for it."""
        self._sweep = sweep
        self._child: subprocess.Popen[bytes] | None = None
        self._orphaned = False
        self._replacing = False
        self._ending: Known | None = None
        self._asked_at = 0.0

    @property
    def supervisor(self) -> Known | None:
        """The live supervisor, also one that has not written its record yet."""
        known = recorded(self.folder / "supervisor.json") or recorded(self.folder / STARTED)
        if known is not None or self._child is None or self._child.poll() is not None:
            return known
        started = start_time(self._child.pid)
        return None if started is None else Known(self._child.pid, started)

    @property
    def worker(self) -> Known | None:
        """The live worker."""
        return recorded(self.folder / "worker.json")

    @property
    def alive(self) -> bool:
        return self.supervisor is not None or self.worker is not None

    @property
    def was_started(self) -> bool:
        """Whether any controller ever started it."""
        return (self.folder / "supervisor.log").exists()

    def info(self, *, deleting: bool) -> VmInfo:
        """What is known of it now."""
        worker = self.worker
        port = read_record(self.folder / "worker.json").get("health_port", 0) if worker is not None else 0
        return VmInfo(
            vm_id=self.worker_id,
            worker_id=self.worker_id,
            address=f"127.0.0.1:{port}" if port else "",
            state=self._state(worker, deleting),
            error=self.lost,
        )

    def _state(self, worker: Known | None, deleting: bool) -> VmState:
        supervisor = self.supervisor
        if deleting:
            return VmState.TERMINATED if supervisor is None and worker is None else VmState.STOPPING
        if self.lost:
            return VmState.FAILED
        if supervisor is None:
            return VmState.UNHEALTHY if self.was_started else VmState.BOOTING
        return VmState.INITIALIZING if worker is None else VmState.READY

    def start(self, url: str) -> None:
        """Starts a supervisor, which takes over a worker that lives. Raises OSError."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        argv = [sys.executable, "-m", "iris_controller.worker.main", "supervise"]
        argv += ["--controller", url, "--worker-id", self.worker_id, "--cache-dir", str(self.folder), *self.words]
        self._child = spawn_detached(argv, self.folder / "supervisor.log", kept_environment())
        record = {"pid": self._child.pid, "start_time": start_time(self._child.pid)}
        with contextlib.suppress(OSError):  # a second net: it is our child as long as we live
            (self.folder / STARTED).write_text(json.dumps(record))

    def tend(self, url: str) -> None:
        """Sees to it that a supervisor keeps it that serves `url`, or finds that it is lost. Raises OSError."""
        if self.lost:
            return
        if (supervisor := self.supervisor) is not None:
            self._orphaned = False
            self._check_controller(supervisor, url)
        elif self.worker is not None:
            if self._orphaned:
                log.warning("the supervisor of %s is gone: starting another for its worker", self.worker_id)
                self.start(url)
            # Only at the second look: whoever is killing both must be able to finish.
            self._orphaned = not self._orphaned
        elif self._replacing:
            self._replacing = False
            self.start(url)
        else:
            self._lose()

    def _check_controller(self, supervisor: Known, url: str) -> None:
        serves = str(read_record(self.folder / "supervisor.json").get("controller", ""))
        if not serves or serves == url:
            self._replacing = False
        elif not self._replacing:
            # Its worker would dial that address for ever.
            self._replacing = True
            log.warning(
                "worker %s serves %s, this is %s: ending it and its tasks to start it anew", self.worker_id, serves, url
            )
            supervisor.signal(signal.SIGTERM)

    def _lose(self) -> None:
        code = self._child.returncode if self._child is not None else None
        if code is None or code < 0:
            self.lost = "its worker and the supervisor are gone"
        else:
            said = tail([self.folder / "supervisor.log"], 1)
            self.lost = f"its supervisor ended with code {code}{': ' + said[0] if said else ''}"
        log.warning("machine %s is lost: %s", self.worker_id, self.lost)
        self._sweep(self.folder)

    def end(self, *, hurry: bool = False) -> bool:
        """One step of taking it down: TERM; after the grace TERM again, which cuts that of its attempts short; at
        last KILL. Returns whether it is gone.
        """
        target = self.supervisor or self.worker
        if target is None:
            self._sweep(self.folder)
            return True
        now = time.monotonic()
        if self._ending != target:
            self._ending, self._asked_at, self.hurried = target, now, False
            target.ask_to_end()
        elif not self.hurried:
            if hurry or now - self._asked_at >= END_S:
                self._asked_at, self.hurried = now, True
                target.ask_to_end()
        elif now - self._asked_at >= HURRY_S:
            for known in (self.supervisor, self.worker):
                if known is not None:
                    known.signal(signal.SIGKILL)
        return False

    def remove(self) -> None:
        """Forgets it, and what it kept on disk."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def log_tail(self, lines: int) -> list[str]:
        """The last lines that its worker, or before there was one its supervisor, printed."""
        said = tail([self.folder / "worker.log.1", self.folder / "worker.log"], lines)
        return said or tail([self.folder / "supervisor.log"], lines)


def tail(paths: list[Path], lines: int) -> list[str]:
    """The last lines of files that follow each other; one that is absent is empty."""
    found: deque[str] = deque(maxlen=max(lines, 0))
    for path in paths:
        try:
            with path.open(encoding="utf-8", errors="replace") as file:
                found.extend(line.rstrip("\n") for line in file)
        except OSError:
            continue
    return list(found)
