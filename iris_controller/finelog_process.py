"""The controller's own finelog: found alive and adopted, or started, and started again when it dies.

It runs in a session of its own and outlives the controller; the next controller adopts it by pid, start time and socket, and
replaces one of another release (DESIGN §7). Must never hold the controller up: while it is down, workers spool.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import signal
import subprocess
import sys
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from iris_controller import release
from iris_controller.finelog.shipping import reclaim
from providers.local.processes import Known, kept_environment, read_record, spawn_detached, start_time

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger("iris.finelog")

POLL_S = 0.5
START_S = 20.0
STOP_S = 15.0
PROBE_S = 10.0
"""An answer that takes longer is none."""
PROBE_EVERY_S = 10.0
SILENT_PROBES = 3
HUNG_STOP_S = 2.0
BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 5.0)


class FinelogProcess:
    """Keeps one finelog on `folder`, with more options of its command. `address` is `host:port`, "" while it does not serve."""

    def __init__(self, folder: Path, options: Sequence[str] = ()) -> None:
        self._folder = folder
        self._options = tuple(options)
        self._endpoint = folder / "endpoint.json"
        self._child: subprocess.Popen[bytes] | None = None
        self._known: Known | None = None
        self.address = ""
        self.release = ""

    @cached_property
    def _release(self) -> str:
        """Not before it is asked for: reading all of our code takes a tenth of a second, and a checkpoint starts no log store."""
        # One that was started with other options is another one.
        told = hashlib.sha256("\0".join(self._options).encode()).hexdigest()[:8] if self._options else ""
        return release.release() + (f"+{told}" if told else "")

    def current(self) -> str:
        return self.address

    def take_over(self) -> None:
        """The next start takes its place in the object store from whoever took it since. Blocks. Raises OSError."""
        if any(option.startswith("--remote=") for option in self._options):
            reclaim.ask(self._folder / "data")

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
        failures, silent = 0, 0
        clock = asyncio.get_running_loop().time
        probe_at = clock() + PROBE_EVERY_S
        while True:
            if self._known is not None and await asyncio.to_thread(self._alive):
                failures = 0
                if clock() >= probe_at:
                    silent = 0 if await asyncio.to_thread(self._answers, self.address) else silent + 1
                    probe_at = clock() + PROBE_EVERY_S
                if silent >= SILENT_PROBES:
                    log.error("finelog (pid %d) does not answer; ending it", self._known.pid)
                    silent = 0
                    await asyncio.to_thread(self._end, self._known, HUNG_STOP_S)
                await asyncio.sleep(min(POLL_S, PROBE_EVERY_S))
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
        known, self.address = self._known, ""
        if known is None and self._child is not None and self._child.poll() is None:
            started = start_time(self._child.pid)
            known = Known(self._child.pid, started) if started is not None else None
        return known is None or await asyncio.to_thread(self._end, known, STOP_S)

    def _end(self, known: Known, grace_s: float) -> bool:
        """Blocks. Returns whether TERM was enough."""
        known.signal(signal.SIGTERM)
        gone = known.wait_gone(grace_s)
        if not gone:
            known.signal(signal.SIGKILL)
            known.wait_gone(STOP_S)
        if self._child is not None and self._child.pid == known.pid:
            self._child.wait()
        return gone

    @staticmethod
    def _answers(address: str) -> bool:
        """Whether a log store serves there. Blocks for at most `PROBE_S`."""
        # Of the `controller` extra, which whoever only reads a checkpoint does without.
        from grpc_health.v1 import health_pb2, health_pb2_grpc

        with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            try:
                answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=PROBE_S, wait_for_ready=True)
            except grpc.RpcError:
                return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

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
        if replace and reclaim.is_asked(self._folder / "data"):
            log.info("finelog is started again, to take the place in the object store over")
            self._end(known, STOP_S)
            return False
        if replace and other != self._release:
            log.info("replacing finelog of release %s", other or "unknown")
            self._end(known, STOP_S)
            return False
        if not self._answers(address):
            if replace:
                # Two on one folder are worse than none: what was acknowledged is on disk, the rest is still with the workers.
                log.error("finelog (pid %d) is alive and does not answer; replacing it", known.pid)
                self._end(known, HUNG_STOP_S)
            return False
        self._known, self.address, self.release = known, address, other
        return True

    async def _launch(self) -> None:
        if self._child is None or self._child.poll() is not None:
            try:
                # On the loop: a cancellation in between must not lose sight of the child.
                self._child = self._spawn()
            except OSError as error:
                log.error("finelog cannot be started: %s", error)
                return
        deadline = asyncio.get_running_loop().time() + START_S
        while asyncio.get_running_loop().time() < deadline:
            if self._child.poll() is not None:
                log.error("finelog ended at once with %d; see %s", self._child.returncode, self._folder / "finelog.log")
                return
            if (
                await asyncio.to_thread(self._adopt, False)
                and self._known is not None
                and self._known.pid == self._child.pid
            ):
                return
            await asyncio.sleep(0.02)
        # It may have much to recover: it is waited for, never started twice.
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
            self._release,
            *self._options,
        ]
        return spawn_detached(argv, self._folder / "finelog.log", kept_environment())


def join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
