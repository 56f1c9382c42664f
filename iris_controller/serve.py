"""One controller process from boot to shutdown: the parts are put together here and nowhere else.

Boot: lock, integrity, migrations, model, log store, inner servers, public port, local machines. Shutdown is staged, each stage
with a deadline: no new connections, no new commands, drain the queue, end the streams, close the store (DESIGN §4).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import signal
import time
from collections.abc import Callable

from iris_controller import interpreter, logs, release, starting, task_outputs
from iris_controller.autoscaling.runner import Autoscaler
from iris_controller.boot import open_state
from iris_controller.budget_tiers import apply_config
from iris_controller.checkpoint.keeping import Keeping
from iris_controller.checkpoint.served import note_served
from iris_controller.finelog.client import LogShipper, ShippingHandler
from iris_controller.finelog_process import FinelogProcess
from iris_controller.guarded import Guard
from iris_controller.http.log_server import LogServerHealth
from iris_controller.http.metrics import Metrics
from iris_controller.http.proxy_socket import Proxy
from iris_controller.http.proxy_target import Targets
from iris_controller.local_fleet import LocalFleet
from iris_controller.loop import ControllerLoop
from iris_controller.loop_lag import LoopLag
from iris_controller.options import ServeOptions
from iris_controller.places import LOG_SERVER
from iris_controller.probation import Probation
from iris_controller.retention import Pruner
from iris_controller.rpc.auth import Authenticator
from iris_controller.rpc.dispatch import Router
from iris_controller.scheduling.cycle import Caps
from iris_controller.servers import Servers
from iris_controller.services import Services
from iris_controller.stats.client import StatsClient
from iris_controller.stats.producers import Producers
from iris_controller.stats.push import StorePush
from iris_controller.stats.spool import open_spool
from iris_controller.store.database import StateDir
from iris_controller.store.peaks import peaks
from iris_controller.store.waits import requeued
from iris_controller.ticker import SchedulerTicker
from iris_controller.timers import Timers
from iris_core.live.clock import SystemClock
from iris_core.model.namespaces import TASK_EVENT
from iris_core.model.states import ACTIVE

log = logging.getLogger("iris.controller")

DRAIN_S = 10.0
MUTATIONS_S = 5.0
SHIP_S = 2.0
PLANNED_S = 2.0


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Controller:
    """A running controller. `start`, then `wait`, then `stop`."""

    def __init__(self, options: ServeOptions) -> None:
        self.options = options
        self.boot_id = secrets.token_hex(8)
        self.guard = Guard()
        self.state = StateDir(options.state_dir)
        self.servers = Servers(options)
        self.finelog = FinelogProcess(self.state.finelog, options.finelog_options)
        self.lag = LoopLag()
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._opened: list[Callable[[], None]] = []
        self.probation: Probation | None = None
        self._proving: asyncio.Task[None] | None = None
        self.fleet = LocalFleet(options, self.guard)
        self.failed = False
        """The loop ended by itself; nothing can be done but start anew."""

    # Boot ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Raises IrisError; what was opened until then is closed again."""
        try:
            await self._start()
        except BaseException:
            await self.guard.close(1.0)
            if self.finelog.started_here:
                await asyncio.shield(self.finelog.stop())
            for close in reversed(self._opened):
                with contextlib.suppress(Exception):
                    close()
            raise

    async def _start(self) -> None:
        options = self.options
        interpreter.set_up()
        interpreter.raise_descriptor_limit()
        self.state.acquire()
        self._opened.append(self.state.release)
        start = await starting.settle(options, self.state, self.finelog, now_ms())
        remote, deployed = start.remote, start.deployed
        if start.is_on_probation:
            self.probation = Probation(remote, deployed, SystemClock(), lambda: self.sessions.count)
        opened = open_state(options, self.state, now_ms(), self._opened)
        self.model, self.writer, self.readers = opened.model, opened.writer, opened.readers
        config = options.config
        caps = Caps(config.max_tasks_per_job_per_cycle, config.max_tasks_per_worker_per_cycle)
        self.ticker = SchedulerTicker(self.model, caps)
        self.loop = ControllerLoop(self.model, self.writer, self.ticker)
        self.ticker.wake = self.loop.wake
        if self.probation is not None:
            await self.loop.hold(self.probation.why)
        apply_config(options.config, self.loop)
        self.timers = Timers(self.loop)
        authenticator = Authenticator(
            opened.keys, options.config.trusted_cidrs, options.config.admin_users, self._is_current
        )
        metrics = Metrics()
        self.router = Router(authenticator, metrics.observe, config.name)
        self.stats_push = StorePush(self.finelog.current)
        spool = await asyncio.to_thread(open_spool, self.state.path / "stats")
        self.stats = StatsClient(self.stats_push, self.boot_id, spool=spool, kept=(TASK_EVENT,))
        waits, known_peaks = await self.readers.run(requeued), await self.readers.run(peaks)
        self.producers = Producers(
            self.loop, self.stats, config.name, self.boot_id, config.scale_groups, metrics, waits
        )
        services = Services(
            options,
            opened,
            self.loop,
            self.finelog,
            self.boot_id,
            now_ms(),
            self.problems,
            known_peaks,
            self.stats.write,
            lambda: (self.stats.waiting_rows, self.stats.lost_rows),
            requeued=waits,
            lag=self.lag.read,
        )
        services.register(self.router)
        self.keeping = Keeping(
            options,
            self.state,
            opened,
            self.loop,
            services.once,
            remote,
            self._stop_acting,
            self.request_stop,
            self.boot_id,
        )
        self._opened.append(self.keeping.let_go)
        self.keeping.register(self.router)
        services.checkpoint = self.keeping.condition
        services.background = self.guard.condition
        self.sessions, self.hub = services.sessions, services.hub
        self.pipeline, self.query = services.pipeline, services.query
        self.profiles, self.asking = services.profiles, services.asking
        self.task_status = services.task_status
        if self.probation is not None:
            self.router.refuse = self.probation.refuse
            self.sessions.hush()
        self.leases, self.machine_calls = services.leases, services.autoscaler
        proxy = Proxy(
            Targets(authenticator, opened.keys, services.places.at),
            {LOG_SERVER: LogServerHealth(self.finelog.current).answer},
        )
        await self.servers.start(
            self.router, authenticator, self.problems, metrics, proxy, lambda: self.probation is not None
        )
        self.port = self.servers.port
        await self.finelog.start()
        self._logging()
        self._background()
        if self.probation is None:
            await self._act(deployed)
            self._announce()
            return
        self._announce()
        self._proving = asyncio.create_task(self._prove(self.probation, deployed), name="probation")
        self._proving.add_done_callback(self._proved)

    async def _prove(self, probation: Probation, deployed: str) -> None:
        """Until the deployment is committed, then goes on with what waited."""
        await probation.run()
        self.probation, self.router.refuse = None, None
        self.sessions.speak()
        self.loop.resume()
        await self._act(deployed)

    def _proved(self, done: asyncio.Task[None]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            log.error("the end of the probation failed", exc_info=error)
            self.failed = True
            self.request_stop()

    def _is_current(self, uid: str) -> bool:
        attempt = self.model.attempts.get(uid)
        return attempt is not None and attempt.state in ACTIVE

    def _logging(self) -> None:
        self.shipper = LogShipper(self.finelog.current, "/system/controller", self.boot_id)
        self.shipper.start()
        self.pipeline.own = self.shipper.health
        self.log_handler = ShippingHandler(self.shipper)
        logs.configure(shipping=self.log_handler)

    def _background(self) -> None:
        self.stats.start()
        self.guard.spawn("task events", self.producers.tell_events())
        self.guard.spawn("task states", self.producers.tell_states())
        self.guard.spawn("rpc metrics", self.producers.tell_metrics())
        self.guard.spawn("loop", self.loop.run()).add_done_callback(self._loop_ended)
        self.guard.spawn("loop lag", self.lag.run())
        self.guard.spawn("timers", self.timers.run())
        self.guard.spawn("leases", self.leases.run())
        self.guard.spawn("queries", self.query.run())
        self.guard.spawn("finelog", self.finelog.run())
        if not self.options.dry_run:
            self.guard.spawn("liveness", self._liveness())

    async def _act(self, deployed: str) -> None:
        """What changes the world outside, or the state by itself."""
        if deployed:
            await asyncio.to_thread(note_served, self.state.path, deployed)
        if not self.options.dry_run:
            pruner = Pruner(self.loop, self.readers, self.options.config.retention, self.sessions.health.age_ms)
            self.guard.spawn("retention", pruner.run())
            for name, work in self.profiles.background():
                self.guard.spawn(name, work)
            told = task_outputs.policy(self.options.config, self.options.remote_state_dir)
            self.guard.spawn("task outputs", task_outputs.Expiry(told, now_ms).run())
        self.guard.spawn("checkpoints", self.keeping.run())
        await self._machines()

    def _loop_ended(self, _: asyncio.Task[None]) -> None:
        """Without its loop a controller can only read; a new process is better than that."""
        if self._stopping.is_set():
            return
        self.failed = True
        self.loop.abandon("the controller has stopped by a fault and is shutting down")
        self.request_stop()

    def _announce(self) -> None:
        log.info("serving cluster %s at %s (state %s)", self.options.config.name, self.port.url, self.state.path)
        if self.options.ready_fd >= 0:
            note = {"url": self.port.url, "pid": os.getpid(), "boot_id": self.boot_id}
            try:
                os.write(self.options.ready_fd, json.dumps(note).encode() + b"\n")
                os.close(self.options.ready_fd)
            except OSError as error:
                log.warning("nobody reads that the controller is ready: %s", error.strerror)

    async def _machines(self) -> None:
        if self.options.dry_run:
            return
        if self.options.embedded:
            self._opened.append(self.fleet.kill)
        machines = await self.fleet.begin(self.state.path, self.port.url)
        if machines is None:
            return
        self.autoscaler = Autoscaler(
            self.loop, machines, self.options.config, self.ticker.unplaced, self.planned, SystemClock()
        )
        self.autoscaler.actions.on_outcome = self.producers.provisioned
        self.machine_calls.scaler = self.autoscaler
        self.guard.spawn("autoscaler", self.autoscaler.run())

    async def planned(self) -> None:
        """Waits until the scheduler has looked at what is pending, or for what it may take where that never ends."""
        deadline = time.monotonic() + PLANNED_S
        while self.ticker.wanted() and time.monotonic() < deadline:
            await self.loop.next_commit(0.2)

    async def _stop_acting(self) -> None:
        """Another controller has taken over: machines and old rows are its business."""
        for name in ("autoscaler", "retention"):
            await self.guard.end(name)

    # Running ------------------------------------------------------------------------------------------------

    async def _liveness(self) -> None:
        interval = self.options.dead_after_s / 10
        while True:
            await asyncio.sleep(interval)
            self.sessions.health.assess_all()

    def problems(self) -> list[str]:
        """What keeps this controller from being ready."""
        found = [self.probation.problem()] if self.probation is not None else []
        found += self.guard.problems()
        if self.loop.stats.store_error:
            found.append(f"the state store refuses writes: {self.loop.stats.store_error}")
        if self.finelog.problem():
            found.append(self.finelog.problem())
        found += self.keeping.problems() if self.probation is None else []
        if self.machine_calls.scaler is not None and self.machine_calls.scaler.fault:
            found.append(f"the autoscaler: {self.machine_calls.scaler.fault}")
        if self._stopping.is_set():
            found.append("shutting down")
        return found

    def request_stop(self) -> None:
        """First call: drain and stop. Second: do not wait for tasks."""
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()

    async def wait(self) -> None:
        await self._stopping.wait()

    # Shutdown -----------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        log.info("shutting down")
        self.ticker.pause()
        if self._proving is not None:
            self._proving.cancel()
            await asyncio.wait([self._proving])
        await self.guard.end("autoscaler")
        with contextlib.suppress(Exception):
            await self.servers.say_not_serving()
        if self.options.embedded:
            running = sum(1 for a in self.model.attempts.values() if a.state in ACTIVE)
            await self.fleet.end(running, self._hurry.is_set)
        self.guard.expect_endings()
        self.loop.close()
        await self._drain()
        self.servers.stop_listening()
        self.sessions.close()
        self.hub.close()
        await self.servers.end_streams()
        self.loop.abandon("the controller is shutting down")
        try:
            await asyncio.wait_for(self.router.close(), MUTATIONS_S)
        except TimeoutError:
            log.warning("requests are still under way at shutdown")
        await self.keeping.close()
        logging.getLogger().removeHandler(self.log_handler)
        await self._end_stats()
        await self.shipper.close(SHIP_S)
        await self.pipeline.close()
        await self.asking.close()
        await self.guard.close(5.0)
        if self.options.embedded or self.options.dry_run:
            await self.finelog.stop()
        self.readers.close()
        await asyncio.to_thread(self.writer.close)
        self.state.release()
        log.info("stopped")

    async def _end_stats(self) -> None:
        """What is not told yet is told; events that finelog does not take now wait on disk for the next controller."""
        await self.guard.end("task events")
        await asyncio.to_thread(self.producers.tell_rest)
        self.task_status.flush()
        await self.stats.close(SHIP_S)
        await self.stats_push.close()

    async def _drain(self) -> None:
        deadline = time.monotonic() + DRAIN_S
        while self.loop.depth and time.monotonic() < deadline:
            await self.loop.next_commit(0.2)


async def _serve(options: ServeOptions) -> int:
    controller = Controller(options)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, controller.request_stop)
    booting = asyncio.create_task(controller.start())
    stopping = asyncio.create_task(controller.wait())
    await asyncio.wait({booting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not booting.done():
        log.info("told to stop while starting")
        booting.cancel()
    try:
        await booting
    except asyncio.CancelledError:
        return 0
    finally:
        stopping.cancel()
    await controller.wait()
    await controller.stop()
    return 1 if controller.failed else 0


def run(options: ServeOptions) -> int:
    """Serves until SIGTERM or SIGINT; returns the exit code. Raises IrisError when it cannot start."""
    import uvloop

    logs.configure()
    log.info("controller %s (release %s) starting", release.version(), release.release())
    return uvloop.run(_serve(options))
