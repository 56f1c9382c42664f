"""One controller process from boot to shutdown: the parts are put together here and nowhere else.

Boot: lock, integrity, migrations, model, log store, inner servers, public port, local workers. Shutdown is staged, each stage
with a deadline: no new connections, no new commands, drain the queue, end the streams, close the store (DESIGN §4).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import resource
import secrets
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as aio_health  # type: ignore[attr-defined]
from grpc_reflection.v1alpha import reflection

from iris_controller import logs, release
from iris_controller.finelog.client import LogShipper, ShippingHandler
from iris_controller.finelog_process import FinelogProcess
from iris_controller.guarded import Guard
from iris_controller.http.app import create_app
from iris_controller.http.metrics import Metrics
from iris_controller.http.port import Link, PublicPort
from iris_controller.http.server import HttpServer
from iris_controller.loop import ControllerLoop
from iris_controller.options import DEFAULT_PORT, ServeOptions
from iris_controller.rpc.attach import WorkerSessions
from iris_controller.rpc.auth import Authenticator
from iris_controller.rpc.bundles import Bundles
from iris_controller.rpc.cluster import About, ClusterService
from iris_controller.rpc.dispatch import SERVER_OPTIONS, Router
from iris_controller.rpc.jobs import JobService
from iris_controller.rpc.once import Once
from iris_controller.rpc.query import QueryService
from iris_controller.rpc.run_spec import RunSpecs
from iris_controller.rpc.session import Dispatch
from iris_controller.rpc.tasks import TaskService
from iris_controller.state.model import Model
from iris_controller.store.database import StateDir, StateDirError, check_integrity, migrate
from iris_controller.store.load import load_model
from iris_controller.store.reads import Readers
from iris_controller.store.seal import Seal
from iris_controller.store.writer import Writer
from iris_controller.ticker import SchedulerTicker
from iris_controller.timers import Timers
from iris_controller.watch import WatchHub
from iris_core.auth.keys import load_or_create_key
from iris_core.auth.tokens import KeySet, TokenSigner
from iris_core.contracts import IrisError
from iris_core.model.resources import Resources
from iris_core.model.states import ACTIVE
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2, logs_pb2, worker_pb2
from providers.local.workers import LocalWorkers, WorkerPlan
from providers.objects import open_store

log = logging.getLogger("iris.controller")

DRAIN_S = 10.0
STREAMS_S = 2.0
MUTATIONS_S = 5.0
SHIP_S = 2.0
WORKERS_POLL_S = 1.0
EMBEDDED_GRACE_S = 20.0
GC_THRESHOLDS = (20_000, 20, 50)
"""The model is large and lives long: collecting it every 700 allocations would cost more than the work does."""


class BootFailed(IrisError):
    """The controller cannot start; the text says why and what to do."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Controller:
    """A running controller. `start`, then `wait`, then `stop`."""

    def __init__(self, options: ServeOptions) -> None:
        self.options = options
        self.boot_id = secrets.token_hex(8)
        self.guard = Guard()
        self.state = StateDir(options.state_dir)
        self.finelog = FinelogProcess(self.state.finelog)
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._opened: list[Callable[[], None]] = []
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
        sys.setswitchinterval(0.0005)
        raise_descriptor_limit()
        gc.set_threshold(*GC_THRESHOLDS)
        self.state.acquire()
        self._opened.append(self.state.release)
        writer, model = self._open_store()
        self._opened.append(writer.close)
        writer.start()
        gc.collect()
        gc.freeze()
        readers = Readers(self.state.database)
        self._opened.append(readers.close)
        key = load_or_create_key(self.state.path / "signing.key")
        try:
            seal = Seal.from_file(self.state.path / "env.key")
        except (OSError, ValueError) as error:
            raise BootFailed(f"the key {self.state.path / 'env.key'} cannot be used: {error}") from error
        signer = TokenSigner(key)
        self.model, self.writer, self.readers = model, writer, readers
        self.ticker = SchedulerTicker(model)
        self.loop = ControllerLoop(model, writer, self.ticker)
        authenticator = Authenticator(
            KeySet(key.public), options.config.trusted_cidrs, options.config.admin_users, self._is_current
        )
        metrics = Metrics()
        self.router = Router(authenticator, self._peer_of, metrics.observe)
        self._services(seal, signer)
        await self._servers(authenticator, metrics)
        await self.finelog.start()
        self._logging()
        self._background()
        self._announce()

    def _open_store(self) -> tuple[Writer, Model]:
        path = self.state.database
        try:
            if self.options.fresh:
                aside = self.state.set_aside()
                if aside is not None:
                    log.warning("starting fresh; the previous state was moved to %s", aside)
            check_integrity(path)
            writer = Writer(path)
        except (OSError, sqlite3.Error) as error:
            raise StateDirError(f"the state file {path} cannot be opened: {error}") from error
        try:
            applied = migrate(writer.connection, now_ms())
            if applied:
                log.info("applied migrations %s", ", ".join(applied))
            return writer, load_model(writer.connection)
        except IrisError:
            writer.close()
            raise
        except Exception as error:
            writer.close()
            log.debug("loading failed", exc_info=error)
            raise StateDirError(
                f"the state in {path} cannot be read: {type(error).__name__}: {error}",
                hint="it was not touched; start the release that wrote it, or start anew with --fresh (which moves it aside)",
            ) from error

    def _is_current(self, uid: str) -> bool:
        attempt = self.model.attempts.get(uid)
        return attempt is not None and attempt.state in ACTIVE

    # The router, the HTTP side and the services exist before the port and the hub that they ask.

    def _peer_of(self, inner: str) -> str | None:
        return self.port.peer_of(inner)

    def _link_of(self, inner: str) -> Link | None:
        return self.port.link_of(inner)

    def _revision(self) -> common_pb2.Revision:
        return self.hub.revision()

    def _services(self, seal: Seal, signer: TokenSigner) -> None:
        options = self.options
        remote = options.config.remote_state_dir or options.state_dir.absolute().as_uri()
        self.bundles = Bundles(open_store(f"{remote.rstrip('/')}/bundles"))
        specs = RunSpecs(self.readers, seal, options.config.task_env)
        self.sessions = WorkerSessions(
            self.loop,
            Dispatch(
                run_spec=specs.of,
                token=lambda job, uid: signer.task_token(job.user_id, job.root_job_id, job.job_id, uid),
                log_addresses=lambda: [self.finelog.address] if self.finelog.address else [],
                controller_boot_id=self.boot_id,
                cluster=options.config.name,
                dead_after_s=options.dead_after_s,
            ),
        )
        once = Once(self.readers)
        tasks = TaskService(self.loop, self.readers, self.sessions, once, self._revision)
        self.hub = WatchHub(
            self.loop, self.boot_id, worker_age_ms=self.sessions.age_ms, finished_tasks=tasks.finished_tasks
        )
        self.started_at_ms = now_ms()
        about = About(
            cluster=options.config.name,
            boot_id=self.boot_id,
            started_at_ms=self.started_at_ms,
            state_dir=str(options.state_dir),
            problems=self.problems,
            finelog_release=lambda: self.finelog.release,
        )
        JobService(self.loop, self.readers, seal, self.bundles, once, self.hub.revision).register(self.router)
        tasks.register(self.router)
        self.bundles.register(self.router)
        ClusterService(self.loop, self.sessions, tasks, about, self.hub.revision).register(self.router)
        QueryService(self.state.database).register(self.router)
        self.router.add("ControllerService/Watch", self.hub.watch)
        self.router.add("WorkerService/Attach", self.sessions.attach)
        self.router.add_raw("LogService", self.finelog.current)
        self.timers = Timers(self.loop)

    def _logging(self) -> None:
        self.shipper = LogShipper(self.finelog.current, "/system/controller", self.boot_id)
        self.shipper.start()
        self.log_handler = ShippingHandler(self.shipper)
        logs.configure(shipping=self.log_handler)

    async def _servers(self, authenticator: Authenticator, metrics: Metrics) -> None:
        options = self.options
        self.grpc_server = grpc.aio.server(options=SERVER_OPTIONS)
        self.grpc_server.add_generic_rpc_handlers(self.router.grpc_handlers())
        self.health = aio_health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self.grpc_server)
        names = [
            d.full_name
            for module in (controller_pb2, worker_pb2, logs_pb2)
            for d in module.DESCRIPTOR.services_by_name.values()
        ]
        reflection.enable_server_reflection([*names, health.SERVICE_NAME, reflection.SERVICE_NAME], self.grpc_server)
        grpc_port = self.grpc_server.add_insecure_port("127.0.0.1:0")
        await self.grpc_server.start()
        app = create_app(
            self.router,
            authenticator,
            self._link_of,
            problems=self.problems,
            metrics=metrics,
            allowed_hosts=options.config.allowed_hosts,
        )
        self.http = HttpServer(app)
        http_target = self.http.bind()
        port = options.port
        if port is None:
            port = options.config.controller_port or (0 if options.embedded else DEFAULT_PORT)
        self.port = PublicPort(options.host, port, f"127.0.0.1:{grpc_port}", http_target)
        try:
            await self.http.start()
            await self.port.start()
        except OSError as error:
            raise BootFailed(
                f"cannot listen: {error.strerror or error}",
                hint="choose another with --port, or stop what holds it",
            ) from error
        await self.health.set("", health_pb2.HealthCheckResponse.SERVING)

    def _background(self) -> None:
        self.guard.spawn("loop", self.loop.run()).add_done_callback(self._loop_ended)
        self.guard.spawn("timers", self.timers.run())
        self.guard.spawn("finelog", self.finelog.run())
        self.guard.spawn("liveness", self._liveness())
        self.workers = self._local_workers()
        if self.workers is not None:
            self.guard.spawn("local workers", self._keep_workers(self.workers))

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

    def _local_workers(self) -> LocalWorkers | None:
        plans: list[WorkerPlan] = []
        for worker in self.options.config.local_workers():
            group = worker.group
            words = ["--slice-id", worker.slice_id, "--scale-group", group.name]
            offered = group.resources(Resources())
            if group.cpu_millicores is not None:
                words += ["--cpu", f"{offered.cpu_millicores}m"]
            if group.memory_bytes is not None:
                words += ["--memory", str(offered.memory_bytes)]
            if group.disk_bytes is not None:
                words += ["--disk", str(offered.disk_bytes)]
            device = group.device
            if device is not None and device.kind == "gpu":
                words += ["--gpu", f"{device.variant}x{device.count}" if device.variant else str(device.count)]
            elif device is not None:
                words += ["--tpu", device.variant]
            for key, value in group.attributes.items():
                words += ["--attribute", f"{key}={value}"]
            plans.append(WorkerPlan(worker.worker_id, tuple(words)))
        if not plans:
            return None
        return LocalWorkers(self.state.workers, self.port.url, plans)

    # Running ------------------------------------------------------------------------------------------------

    async def _liveness(self) -> None:
        interval = self.options.dead_after_s / 10
        while True:
            await asyncio.sleep(interval)
            self.sessions.assess_all()

    @staticmethod
    async def _keep_workers(workers: LocalWorkers) -> None:
        while True:
            await asyncio.to_thread(workers.poll)
            await asyncio.sleep(WORKERS_POLL_S)

    def problems(self) -> list[str]:
        """What keeps this controller from being ready."""
        found = self.guard.problems()
        if self.loop.stats.store_error:
            found.append(f"the state store refuses writes: {self.loop.stats.store_error}")
        if self.finelog.problem():
            found.append(self.finelog.problem())
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
        with contextlib.suppress(Exception):
            await self.health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
        if self.options.embedded and self.workers is not None:
            await self._end_workers(self.workers)
        self.guard.expect_endings()
        self.loop.close()
        await self._drain()
        self.port.stop_listening()
        self.sessions.close()
        self.hub.close()
        await self.grpc_server.stop(STREAMS_S)
        await self.http.stop()
        await self.port.close(0.5)
        self.loop.abandon("the controller is shutting down")
        try:
            await asyncio.wait_for(self.router.close(), MUTATIONS_S)
        except TimeoutError:
            log.warning("requests are still under way at shutdown")
        logging.getLogger().removeHandler(self.log_handler)
        await self.shipper.close(SHIP_S)
        await self.guard.close(5.0)
        if self.options.embedded:
            await self.finelog.stop()
        self.readers.close()
        await asyncio.to_thread(self.writer.close)
        self.state.release()
        log.info("stopped")

    async def _drain(self) -> None:
        deadline = time.monotonic() + DRAIN_S
        while self.loop.depth and time.monotonic() < deadline:
            await self.loop.next_commit(0.2)

    async def _end_workers(self, workers: LocalWorkers) -> None:
        running = sum(1 for a in self.model.attempts.values() if a.state in ACTIVE)
        if running:
            log.info("waiting up to %.0f s for %d tasks to end", EMBEDDED_GRACE_S, running)
        await self.guard.end("local workers")
        ending = asyncio.create_task(asyncio.to_thread(workers.stop, EMBEDDED_GRACE_S, self._hurry.is_set))
        killed = await ending
        if killed:
            log.warning("killed %s; what its tasks had not written is lost", ", ".join(killed))


def raise_descriptor_limit() -> None:
    """Every connection takes three descriptors; the usual soft limit of 1,024 would refuse the 300th worker or watcher."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def default_state_dir() -> Path:
    """Where an unconfigured controller keeps its state."""
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home) / "iris" / "controller"


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
