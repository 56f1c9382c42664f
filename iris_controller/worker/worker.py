"""Puts a worker together, runs it, and takes it apart again: the order of things at start and at the end.

Start: the cache directory is locked, what an earlier worker left running is ended, its spool and its untold ends are taken over,
and only then is the controller dialled. End: attempts get their grace, lines and ends are delivered as far as somebody takes them;
the rest stays on disk for the next start.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import secrets
import signal
from typing import TYPE_CHECKING, Any

from iris_controller import release
from iris_controller.audit import audit
from iris_controller.process_info import own_process
from iris_controller.stats.client import StatsClient
from iris_controller.worker import attach, cgroups, health, outcome, records, staging, status
from iris_controller.worker.agent import Agent, missing
from iris_controller.worker.answers import Answers
from iris_controller.worker.attempt import Host
from iris_controller.worker.bundles import Bundles
from iris_controller.worker.config import EXIT_IDLE, EXIT_OK, EXIT_REJECTED, GRACE_S, hostname, now_ms, reason
from iris_controller.worker.measuring import EVERY_S, Measuring
from iris_controller.worker.profiling import answering
from iris_controller.worker.profiling.periodic import Periodic
from iris_controller.worker.profiling.taking import Profiler
from iris_controller.worker.rows import RowPush
from iris_controller.worker.ship import Shipper
from iris_controller.worker.spool import Spool
from iris_controller.worker.sweep import sweep
from iris_controller.worker.table import ProcessTable
from iris_core.wire.gen.iris.v1 import common_pb2, worker_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from iris_controller.worker.attempt import Attempt
    from iris_controller.worker.config import WorkerConfig
    from iris_controller.worker.ownlog import SpoolHandler
    from iris_controller.worker.profiling.taking import Taken, Target
    from iris_controller.worker.records import AttemptRecord

_log = logging.getLogger("iris.worker")

_FLUSH_S = 5.0
_TOLD_S = 2.0
_POLL_S = 1.0
_ROWS_S = 1.0


class CannotRun(Exception):
    """The worker cannot start; the message is for the operator."""


class Worker:
    """One worker process. `run` gives its exit code."""

    def __init__(self, config: WorkerConfig, log: SpoolHandler) -> None:
        self._config = config
        self._log = log
        self.boot_id = secrets.token_hex(8)
        self._agent = Agent(self._wake)
        self._spool = Spool(config.cache_dir / "spool", config.spool_bytes)
        self._shipper = Shipper(self._spool, config.token_file)
        self._spool.on_data = self._shipper.wake
        self._records = records.Records(config.cache_dir)
        self._table = ProcessTable()
        self._row_push = RowPush(config.token_file)
        self._stats = StatsClient(self._row_push, self.boot_id)
        self._measuring = Measuring(config, self._stats)
        self._profiler = Profiler()
        self._periodic = Periodic(self._profiler, self._profiled, self._captured)
        self._cgroups: cgroups.Cgroups | None = None
        self._attachment: attach.Attachment | None = None
        self._lock = -1
        self._outputs_policy = worker_pb2.TaskOutputsPolicy()
        self._health_port = 0
        self._signals = 0
        self._asked_to_stop = asyncio.Event()

    def _wake(self) -> None:
        if self._attachment is not None:
            self._attachment.wake()

    # Start --------------------------------------------------------------------------------------------------------

    def _prepare(self) -> list[AttemptRecord]:
        """Everything before the loop does anything. Returns what an earlier worker left. Raises CannotRun."""
        cache = self._config.cache_dir
        try:
            cache.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.chmod(cache, 0o700)
            self._lock = os.open(cache / "worker.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._records.prepare()
        except BlockingIOError:
            holder = records.recorded_process(cache / "worker.json")
            told = f" (process {holder[0]})" if holder else ""
            raise CannotRun(f"another worker{told} uses {cache}: end it, or give --cache-dir another folder") from None
        except OSError as error:
            raise CannotRun(f"cannot use {cache}: {reason(error)}") from None
        self._record_itself()
        left = self._records.load()
        if left:
            sweep([record for record in left])
        if self._config.cgroups:
            self._cgroups = cgroups.detect(cache, own_pids=frozenset({os.getpid(), os.getppid()}))
        if self._cgroups is not None:
            self._cgroups.tidy()
        return left

    def _record_itself(self) -> None:
        """`health_port` is 0 until it listens."""
        known = {"worker_id": self._config.worker_id, "worker_boot": self.boot_id, "health_port": self._health_port}
        try:
            records.write_private(self._config.cache_dir / "worker.json", records.process_identity() | known)
        except OSError as error:
            _log.warning("cannot write worker.json: %s", reason(error))

    def _take_over(self, left: list[AttemptRecord]) -> list[worker_pb2.Observation]:
        """Closes the lines of attempts that died with the last worker, and gives the ends that are still to be told."""
        lines: dict[str, int] = {}
        ended = {record.uid for record in left if record.end}
        try:
            orphans = self._spool.recover()
        except OSError as error:
            raise CannotRun(f"cannot read the spool: {error}") from None
        for producer in orphans:
            uid = producer.identity.attempt_uid
            if uid and uid not in ended:
                self._spool.append_gap(producer, 1, "the worker was killed; it may be more, or none", now_ms())
                lines[uid] = producer.next
            self._spool.close(producer)
        told = []
        for record in left:
            if record.end:
                told.append(worker_pb2.Observation.FromString(record.end))
            else:
                lost = missing(record.uid, "the worker was restarted: its attempts ended with it")
                # Killed between the last line and the record of the end: all its lines are in the spool.
                written = lines.get(record.uid, self._spool.closed.get(record.uid))
                if written is not None:
                    lost.log_lines = written
                told.append(lost)
        return told

    async def run(self) -> int:
        """Runs until it is told to end. Raises CannotRun."""
        left = self._prepare()
        told = self._take_over(left)
        config = self._config
        key = f"/system/worker/{config.worker_id}"
        self._log.ship(self._spool, self._spool.open(self.boot_id, key))
        host = Host(
            worker_id=config.worker_id,
            boot_id=self.boot_id,
            controller=config.controller,
            cache_dir=config.cache_dir,
            environ=dict(os.environ),
            spool=self._spool,
            records=self._records,
            bundles=Bundles(config.cache_dir / "bundles", attach.fetcher(config.controller, config.token_file)),
            cgroups=self._cgroups,
            table=self._table,
            changed=self._changed,
            outputs_policy=lambda: self._outputs_policy,
        )
        self._agent.start(host, told)
        try:
            server, self._health_port = await health.serve(config.health_port, self._health)
        except OSError as error:
            raise CannotRun(f"cannot listen on 127.0.0.1:{config.health_port}: {reason(error)}") from None
        audit(
            "worker_started", config.worker_id, "process", boot=self.boot_id, pid=os.getpid(),
            enforcement=self._enforcement, left=len(left),
        )  # fmt: skip
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._signalled)
        self._record_itself()
        self._measuring.address = f"127.0.0.1:{self._health_port}"
        self._attachment = attach.Attachment(
            config.controller,
            config.token_file,
            self._agent,
            hello=self._hello,
            heartbeat=self._heartbeat,
            answer=Answers(config.worker_id, self._agent, self._profiler, self._own_status),
            welcomed=self._welcomed,
        )
        self._stats.start()
        server_tasks = [
            _guarded("clean attempts", self._agent.clean),
            _guarded("remove stray folders", lambda: self._remove_strays({record.uid for record in left})),
            _guarded("ship lines", self._shipper.run),
            _guarded("poll memory", self._poll),
            _guarded("measure", lambda: self._measuring.run(self._agent.attempts)),
            _guarded("periodic profiles", self._periodic.run),
        ]
        try:
            return await self._until_end()
        finally:
            server.close()
            for task in server_tasks:
                task.cancel()
            await asyncio.gather(*server_tasks, return_exceptions=True)
            await self._stats.close(_ROWS_S)
            self._spool.shut()
            if self._cgroups is not None:
                self._cgroups.close()
            (config.cache_dir / "worker.json").unlink(missing_ok=True)

    async def _remove_strays(self, known: set[str]) -> None:
        """Folders of attempts that nobody remembers."""
        work = self._config.cache_dir / "work"
        names = await asyncio.to_thread(lambda: os.listdir(work) if work.is_dir() else [])
        for name in set(names) - known - set(self._agent.attempts):
            try:
                await asyncio.to_thread(staging.remove, work / name)
            except OSError as error:
                _log.warning("cannot remove %s: %s", work / name, reason(error))

    # While it runs ------------------------------------------------------------------------------------------------

    async def _until_end(self) -> int:
        assert self._attachment is not None
        attached = _guarded("attach", self._attachment.run)
        asked = asyncio.create_task(self._asked_to_stop.wait(), name="signals")
        idle = asyncio.create_task(self._idle(), name="idle")
        await asyncio.wait({attached, asked, idle}, return_when=asyncio.FIRST_COMPLETED)
        code = EXIT_OK
        if attached.done() and isinstance(error := attached.exception(), attach.Rejected):
            _log.error("the controller rejects this worker: %s", error)
            code = EXIT_REJECTED
        elif idle.done() and not asked.done():
            code = EXIT_IDLE
        audit("worker_stopping", self._config.worker_id, "signal" if asked.done() else "process", code=code)
        await self._end()
        for task in (attached, asked, idle):
            task.cancel()
        await asyncio.gather(attached, asked, idle, return_exceptions=True)
        return code

    async def _end(self) -> None:
        assert self._attachment is not None
        self._attachment.say_stopping()
        await self._agent.close(GRACE_S if self._signals < 2 else 0.0)
        self._log.store()
        try:
            if self._attachment.attached:
                async with asyncio.timeout(_FLUSH_S):
                    await self._shipper.shipped()
                async with asyncio.timeout(_TOLD_S):
                    await self._agent.all_told()
                    await self._agent.cleaned()
        except TimeoutError:
            _log.warning("ended with lines or ends undelivered: they stay in %s", self._config.cache_dir)

    def _signalled(self) -> None:
        self._signals += 1
        self._asked_to_stop.set()
        if self._signals > 1:
            _log.warning("asked again: attempts are killed without further grace")
            for attempt in self._agent.attempts.values():
                if not attempt.done:
                    attempt.stop(outcome.worker_stopping(), 0.0)

    def _changed(self, attempt: Attempt) -> None:
        self._agent.changed(attempt)
        if attempt.done:
            self._measuring.ended(attempt)

    async def _idle(self) -> None:
        """Returns when it had no attempt and no controller for the configured time."""
        assert self._attachment is not None
        limit = self._config.idle_exit_s
        loop = asyncio.get_running_loop()
        since = loop.time()
        while True:
            await asyncio.sleep(min(max(limit / 10, 0.05), 5.0))
            if self._attachment.attached or not self._agent.idle:
                since = loop.time()
            elif limit and loop.time() - since >= limit:
                _log.warning("no task and no controller for %d s: ending", int(limit))
                return

    async def _poll(self) -> None:
        """Memory limits where no control group holds them."""
        while True:
            await asyncio.sleep(_POLL_S)
            polled = [found for found in self._agent.attempts.values() if found.running and not found.processes.cgroup]
            for attempt in polled:
                await attempt.processes.pids()
                held = attempt.processes.polled_now
                if attempt.memory_limit and held > attempt.memory_limit:
                    attempt.stop(outcome.over_limit(attempt.memory_limit, held), 0.0)

    # What it says of itself ---------------------------------------------------------------------------------------

    @property
    def _enforcement(self) -> str:
        return "cgroup" if self._cgroups is not None else "polled"

    def _health(self) -> dict[str, Any]:
        return {
            "status": "ok",
            "worker_id": self._config.worker_id,
            "boot_id": self.boot_id,
            "pid": os.getpid(),
            "attached": self._attachment is not None and self._attachment.attached,
            "attempts": sum(not attempt.done for attempt in self._agent.attempts.values()),
        }

    def _welcomed(self, welcome: worker_pb2.Welcome) -> None:
        self._outputs_policy = welcome.task_outputs
        self._periodic.interval_s = welcome.profile_interval_ms / 1000
        self._measuring.interval_s = welcome.stats_interval_ms / 1000 or EVERY_S
        targets = attach.log_targets(welcome.log_addresses, self._config.controller)
        self._shipper.reach(targets)
        self._row_push.addresses = targets

    def _hello(self) -> worker_pb2.WorkerHello:
        config = self._config
        hello = worker_pb2.WorkerHello(
            worker_id=config.worker_id,
            boot_id=self.boot_id,
            pid=os.getpid(),
            hostname=hostname(),
            address=f"127.0.0.1:{self._health_port}",
            total=common_pb2.Resources(cpu_millicores=config.cpu, memory_bytes=config.memory, disk_bytes=config.disk),
            cpu_count=os.cpu_count() or 1,
            version=release.version(),
            release=release.release(),
            slice_id=config.slice_id,
            scale_group=config.scale_group,
        )
        if config.device is not None:
            device = config.device
            hello.total.device.CopyFrom(common_pb2.Device(kind=device.kind, variant=device.variant, count=device.count))
        for name, value in config.attributes.items():
            match value:
                case int():
                    hello.attributes[name].integer = value
                case float():
                    hello.attributes[name].number = value
                case str():
                    hello.attributes[name].text = value
        return hello

    def _heartbeat(self) -> worker_pb2.WorkerHeartbeat:
        memory, cpu = status.host_usage()
        return worker_pb2.WorkerHeartbeat(
            healthy=True,
            memory_used_bytes=memory,
            cpu_millicores=cpu,
            shipper=self._shipper.health(),
            usage=self._measuring.news(),
        )

    def _profiled(self) -> list[Target]:
        """What the periodic loop looks at: the running attempts."""
        running = [found for found in self._agent.attempts.values() if found.running]
        return [answering.of_attempt(attempt, self._config.worker_id) for attempt in running]

    def _captured(self, taken: Taken) -> None:
        assert self._attachment is not None
        if not self._attachment.attached:
            return  # the next round sees what it looks like then
        if not self._attachment.capture(worker_pb2.ProfileCapture(record=taken.record, data=taken.data)):
            _log.warning("a periodic profile is lost: the controller does not take them in as fast as they come")

    def _own_status(self) -> common_pb2.ProcessInfo:
        info = own_process(f"/system/worker/{self._config.worker_id}", self.boot_id)
        info.details["enforcement"] = self._enforcement
        info.details["attempts"] = str(len(self._agent.attempts))
        info.details["spool_bytes"] = str(self._spool.size)
        info.details["stats_rows_waiting"] = str(self._stats.waiting_rows)
        info.details["stats_rows_lost"] = str(self._stats.lost_rows)
        if self._asked_to_stop.is_set():
            info.details["stopping"] = "true"
        return info


def _guarded(name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
    """A background task that is started again when it breaks: a fault in one must not end the attempts."""

    async def run() -> None:
        while True:
            try:
                return await work()
            except attach.Rejected:
                raise
            except Exception:
                _log.exception("%s broke: starting it again", name)
                await asyncio.sleep(1.0)

    return asyncio.create_task(run(), name=name)
