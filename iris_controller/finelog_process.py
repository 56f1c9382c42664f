"""The controller's own finelog: found alive and adopted, or started, and started again when it dies.

It runs in a session of its own and outlives the controller; the next controller adopts it by pid, start time and socket, and
replaces one of another release (DESIGN §7). Must never hold the controller up: while it is down, workers spool.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import subprocess
import sys
from pathlib import Path

from iris_controller import release
from providers.local.processes import Known, read_record, spawn_detached
from providers.local.workers import kept_environment

log = logging.getLogger("iris.finelog")

POLL_S = 0.5
START_S = 20.0
STOP_S = 15.0
BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 5.0)


class FinelogProcess:
    """Keeps one finelog on `folder`. `address` is `host:port`, "" while it does not serve."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._endpoint = folder / "endpoint.json"
        self._child: subprocess.Popen[bytes] | None = None
        self._known: Known | None = None
        self.address = ""
        self.release = ""

    def current(self) -> str:
        return self.address

    @property
    def started_here(self) -> bool:
        """Whether this process started it, rather than adopting one."""
        return self._child is not None

    async def start(self) -> None:
        """Adopts or starts it. Raises nothing: a store that does not start is a problem that `run` goes on with."""
        if not await asyncio.to_thread(self._adopt, True):
            await self._launch()

    async def run(self) -> None:
        """Watches it for ever."""
        failures = 0
        while True:
            if self._known is not None and await asyncio.to_thread(self._alive):
                failures = 0
                await asyncio.sleep(POLL_S)
                continue
            if self._known is not None:
                log.error("finelog (pid %d) ended; starting it again", self._known.pid)
            self._known, self.address = None, ""
            await asyncio.sleep(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
            failures += 1
            if not await asyncio.to_thread(self._adopt, True):
                await self._launch()

    async def stop(self) -> bool:
        """TERM, so that it flushes and syncs, then KILL. Returns whether it ended by itself."""
        known = self._known
        self.address = ""
        if known is None:
            return True
        known.signal(signal.SIGTERM)
        gone = await asyncio.to_thread(known.wait_gone, STOP_S)
        if not gone:
            known.signal(signal.SIGKILL)
        if self._child is not None:
            await asyncio.to_thread(self._child.wait)
        return gone

    def problem(self) -> str:
        """What `/readyz` says, "" when it serves."""
        return "" if self.address else "the log store is not serving; workers keep their lines meanwhile"

    def _alive(self) -> bool:
        if self._child is not None and self._child.poll() is not None:
            return False
        return self._known is not None and self._known.alive

    def _adopt(self, replace: bool) -> bool:
        record = read_record(self._endpoint)
        try:
            known = Known(int(record["pid"]), int(record["start_time"]))
            address = join(str(record["host"]), int(record["port"]))
            other = str(record.get("release", ""))
        except (KeyError, TypeError, ValueError):
            return False
        if not known.alive:
            return False
        if replace and other != release.release():
            log.info("replacing finelog of release %s", other or "unknown")
            known.signal(signal.SIGTERM)
            if not known.wait_gone(STOP_S):
                known.signal(signal.SIGKILL)
                known.wait_gone(STOP_S)
            return False
        try:
            with socket.create_connection((str(record["host"]), int(record["port"])), timeout=2.0):
                pass
        except OSError:
            return False
        self._known, self.address, self.release = known, address, other
        return True

    async def _launch(self) -> None:
        try:
            self._child = await asyncio.to_thread(self._spawn)
        except OSError as error:
            log.error("finelog cannot be started: %s", error)
            return
        deadline = asyncio.get_running_loop().time() + START_S
        while asyncio.get_running_loop().time() < deadline:
            if self._child.poll() is not None:
                log.error("finelog ended at once with %d; see %s", self._child.returncode, self._folder / "finelog.log")
                return
            if await asyncio.to_thread(self._adopt, False) and self._known is not None and self._known.pid == self._child.pid:
                return
            await asyncio.sleep(0.02)
        log.error("finelog did not serve within %.0f s", START_S)

    def _spawn(self) -> subprocess.Popen[bytes]:
        argv = [
            sys.executable,
            "-m",
            "iris_controller.finelog.main",
            "serve",
            "--data-dir",
            str(self._folder / "data"),
            "--endpoint-file",
            str(self._endpoint),
            "--release",
            release.release(),
        ]
        return spawn_detached(argv, self._folder / "finelog.log", kept_environment())


def join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
