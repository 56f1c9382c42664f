"""Local workers: one `iris-worker supervise` per worker, in sessions of their own (DESIGN §7 "Local workers").

They outlive the controller and are adopted by the next one through the record that each supervisor keeps. Must never end a
process that is not proven to be the recorded supervisor.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from providers.local.processes import Known, read_record, spawn_detached, start_time

log = logging.getLogger("iris.local")

KEPT_ENVIRONMENT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE")
RESTART_S = 1.0
HURRY_S = 12.0
"""A supervisor in a hurry gives its worker 5 s and then sweeps; killed before that, it would leave both behind."""


def kept_environment() -> dict[str, str]:
    """What a daemon of ours inherits: no shell's secrets, and no module from the working directory."""
    kept = {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ}
    return kept | {"PYTHONSAFEPATH": "1"}


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """One worker to keep: its id, and the options of `iris-worker` beside controller, id and cache directory."""

    worker_id: str
    options: tuple[str, ...]


class LocalWorkers:
    """Keeps the planned workers running while it is polled; `stop` ends them."""

    def __init__(self, folder: Path, controller_url: str, plans: Sequence[WorkerPlan]) -> None:
        self._folder = folder
        self._url = controller_url
        self._plans = plans
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._not_before: dict[str, float] = {}
        self._ending: dict[str, Known] = {}

    def supervisor(self, worker_id: str) -> Known | None:
        """The live supervisor of a worker, by its record."""
        return self._recorded(worker_id)[0]

    def _recorded(self, worker_id: str) -> tuple[Known | None, str]:
        """The live supervisor, and the controller that it serves."""
        record = read_record(self._folder / worker_id / "supervisor.json")
        try:
            known = Known(int(record["pid"]), int(record["start_time"]))
        except (KeyError, TypeError, ValueError):
            return None, ""
        return (known, str(record.get("controller", ""))) if known.alive else (None, "")

    def poll(self) -> None:
        """Starts what is missing. Blocks only for forks; call it off the loop about once a second."""
        for plan in self._plans:
            child = self._children.get(plan.worker_id)
            if child is not None and child.poll() is None:
                continue
            if child is not None:
                log.warning("supervisor of %s ended with %d", plan.worker_id, child.returncode)
                del self._children[plan.worker_id]
                self._not_before[plan.worker_id] = time.monotonic() + RESTART_S
            known, url = self._recorded(plan.worker_id)
            if known is not None:
                if url and url != self._url:
                    self._replace(plan.worker_id, known, url)
                continue
            if time.monotonic() < self._not_before.get(plan.worker_id, 0.0):
                continue
            try:
                self._children[plan.worker_id] = self._start(plan)
            except OSError as error:
                log.error("worker %s cannot be started: %s", plan.worker_id, error)
                self._not_before[plan.worker_id] = time.monotonic() + RESTART_S

    def _replace(self, worker_id: str, known: Known, url: str) -> None:
        """Ends a supervisor that serves a controller elsewhere: its worker would dial that address for ever."""
        if self._ending.get(worker_id) != known:
            self._ending[worker_id] = known
            log.warning(
                "worker %s serves %s, this is %s: ending it and its tasks to start it anew", worker_id, url, self._url
            )
            known.signal(signal.SIGTERM)

    def _start(self, plan: WorkerPlan) -> subprocess.Popen[bytes]:
        cache = self._folder / plan.worker_id
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        argv = [
            sys.executable,
            "-m",
            "iris_controller.worker.main",
            "supervise",
            "--controller",
            self._url,
            "--worker-id",
            plan.worker_id,
            "--cache-dir",
            str(cache),
            *plan.options,
        ]
        return spawn_detached(argv, cache / "supervisor.log", kept_environment())

    def stop(self, grace_s: float, hurry: Callable[[], bool] = lambda: False) -> list[str]:
        """TERM to every supervisor, which ends its worker and tasks; KILL after the grace, or when `hurry` says so.

        Returns who had to be killed. Blocks; call it off the loop.
        """
        found = {p.worker_id: known for p in self._plans if (known := self.supervisor(p.worker_id)) is not None}
        for worker_id, child in self._children.items():
            if worker_id not in found and child.poll() is None:
                started = start_time(child.pid)
                if started is not None:
                    found[worker_id] = Known(child.pid, started)
        for known in found.values():
            known.signal(signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while any(known.alive for known in found.values()) and time.monotonic() < deadline and not hurry():
            for child in self._children.values():
                child.poll()
            time.sleep(0.05)
        killed = [worker_id for worker_id, known in found.items() if known.alive]
        for worker_id in killed:
            self._kill(worker_id, found[worker_id])
        for child in self._children.values():
            child.wait()
        return killed

    def _kill(self, worker_id: str, supervisor: Known) -> None:
        """A second TERM makes a supervisor end its worker's attempts at once; KILL is for one that does not even do that."""
        supervisor.signal(signal.SIGTERM)
        if not supervisor.wait_gone(HURRY_S):
            supervisor.signal(signal.SIGKILL)
            supervisor.wait_gone(HURRY_S)
