"""One attempt from the order to its end: stage, setup steps, command, what is left over, last line, outcome.

It decides nothing about retries and talks to nobody: it tells `Host.changed` what it observes. Two rules hold on every path: the
end is told only when no process of the attempt is left and its output was read to the end, and whatever went wrong becomes an
outcome, because an attempt that ends without one would hold its capacity for ever.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from iris_controller.worker import environment, fan_out, outcome, outputs, ports, procs, staging
from iris_controller.worker.archive import Refused
from iris_controller.worker.bundles import Bundles, CannotFetch
from iris_controller.worker.config import GRACE_S, now_ms, reason
from iris_controller.worker.disk_room import NoRoom
from iris_controller.worker.output import Output
from iris_controller.worker.process import NOT_EXECUTABLE, CannotStart, Child, Exit, ProcessSet, resolve, spawn
from iris_controller.worker.records import AttemptRecord
from iris_core.model.quantities import format_size
from iris_core.wire.gen.iris.v1 import common_pb2, worker_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from iris_controller.worker.cgroups import Cgroups
    from iris_controller.worker.outcome import Outcome
    from iris_controller.worker.records import Records
    from iris_controller.worker.spool import Spool
    from iris_controller.worker.table import ProcessTable

_log = logging.getLogger("iris.worker.attempt")

LEFTOVER_S = 1.0
"""Between TERM and KILL for what the main process left behind."""
DRAIN_S = 5.0
_STUCK_S = 10.0
_NAMES = frozenset({errno.ELOOP, errno.ENAMETOOLONG})
"""Faults of the names that a job gave, which no other machine would take either."""


@dataclass(frozen=True, slots=True)
class Host:
    """What every attempt of this worker shares."""

    worker_id: str
    boot_id: str
    controller: str
    cache_dir: Path
    environ: Mapping[str, str]
    spool: Spool
    records: Records
    bundles: Bundles
    cgroups: Cgroups | None
    table: ProcessTable
    changed: Callable[[Attempt], None]
    outputs_policy: Callable[[], worker_pb2.TaskOutputsPolicy]
    """The newest that the controller told."""


class _End(Exception):
    def __init__(self, result: Outcome) -> None:
        super().__init__(result.error)
        self.result = result


class Attempt:
    """See the module. `observation` is always the latest; its `seq` belongs to the agent."""

    def __init__(self, host: Host, uid: str, spec: worker_pb2.RunSpec, task: worker_pb2.RunTask) -> None:
        self.uid = uid
        self.key = f"{task.task_id}:{task.attempt_id}"
        self.observation = worker_pb2.Observation(attempt_uid=uid, state=common_pb2.TASK_STATE_ASSIGNED)
        self.done = False
        self.env: dict[str, str] = {}
        self.folders = staging.Folders(host.cache_dir / "work" / uid)
        self.processes = ProcessSet(uid, None, host.table)
        self.memory_limit = spec.resources.memory_bytes
        self.incarnation = spec.incarnation
        self._host = host
        self._spec = spec
        self._task = task
        self._output = Output(host.spool, host.spool.open(uid, self.key, uid, spec.incarnation))
        self._record = AttemptRecord(uid, self.key, spec.incarnation, host.boot_id, procs.machine_boot())
        self._ports: ports.Reservation | None = None
        self._stop: Outcome | None = None
        self._stopping: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._kill_at = 0.0
        self._acted = False
        self._commanded = False
        self._max_rss = 0

    @property
    def running(self) -> bool:
        """Its command is running: commands can be run beside it."""
        return not self.done and self.observation.state == common_pb2.TASK_STATE_RUNNING

    def stop(self, result: Outcome, grace_s: float = GRACE_S) -> None:
        """Ends it: TERM, `grace_s`, KILL. A second call can only shorten the grace; the first reason stays."""
        kill_at = asyncio.get_running_loop().time() + grace_s
        if self._stop is None:
            self._stop, self._kill_at = result, kill_at
            self._stopping.set_result(None)
        else:
            self._kill_at = min(self._kill_at, kill_at)

    async def run(self) -> None:
        """Runs it to its end. Never raises."""
        try:
            result = await self._live()
        except _End as end:
            result = end.result
        except Exception as error:
            _log.exception("attempt %s of %s broke", self.uid, self.key)
            result = outcome.machine_fault(f"the worker failed: {type(error).__name__}: {error}")
        try:
            await self._clear()
        except Exception:
            _log.exception("the processes of attempt %s could not be ended", self.uid)
        await self._finish(result, await self._save_outputs(result))

    # The way there ------------------------------------------------------------------------------------------------

    async def _live(self) -> Outcome:
        scripts = list(self._spec.environment.setup_scripts)
        if scripts or self._spec.bundle_id or self._spec.entrypoint.workdir_file_refs:
            self._observe(common_pb2.TASK_STATE_BUILDING)
        await self._stage(scripts)
        self.env = environment.build(self._host.environ, self._spec.environment.env_vars, self._ours())
        for step, script in enumerate(scripts, 1):
            await self._setup(step, len(scripts), script)
        workdir = self.folders.workdir
        if scripts and (workdir / ".venv" / "bin").is_dir():
            self.env = environment.activate(self.env, str(workdir))
        return await self._command()

    async def _stage(self, scripts: list[str]) -> None:
        what = "bundle" if self._spec.bundle_id else "work directory"
        try:
            names = [name for name in self._spec.ports if environment.port_variable(name) not in self._job_env]
            self._ports = ports.reserve(names)
            bundle = None
            if self._spec.bundle_id:
                bundle = await self._unless_stopped(self._host.bundles.get(self._spec.bundle_id))
            blobs = {
                name: await self._unless_stopped(self._host.bundles.get(blob_id))
                for name, blob_id in self._spec.entrypoint.workdir_file_refs.items()
            }
            await asyncio.to_thread(self._prepare, bundle, blobs, scripts)
        except Refused as error:
            raise _End(outcome.refused(str(error))) from None
        except NoRoom as error:
            blame = outcome.refused if error.room.is_the_jobs else outcome.machine_fault
            raise _End(blame(f"cannot stage the {what}: {error}")) from None
        except (CannotFetch, ports.NoPort) as error:
            if isinstance(error, CannotFetch) and error.gone:
                # One job whose bundle is gone must not have one machine after the other excluded.
                raise _End(outcome.refused(f"cannot stage the {what}: {error}; submit the job again")) from None
            raise _End(outcome.machine_fault(f"cannot stage the {what}: {error}")) from None
        except OSError as error:
            _log.warning("cannot stage the %s of %s: %s (%s)", what, self.key, reason(error), error.filename)
            blame = outcome.refused if error.errno in _NAMES else outcome.machine_fault
            raise _End(blame(f"cannot stage the {what}: {reason(error)}")) from None
        self._check_stop()

    def _prepare(self, bundle: Path | None, blobs: Mapping[str, Path], scripts: list[str]) -> None:
        host = self._host
        files = {**self._spec.entrypoint.workdir_files, **{name: path.read_bytes() for name, path in blobs.items()}}
        staging.stage(self.folders, bundle, files, scripts, self._spec.resources.disk_bytes)
        if host.cgroups is not None:
            self._record.cgroup = f"{host.cgroups.root}/{self.uid}"
        host.records.write(self._record)
        if host.cgroups is not None:
            self.processes.cgroup = host.cgroups.create(self.uid, self.memory_limit)

    @property
    def _job_env(self) -> Mapping[str, str]:
        return self._spec.environment.env_vars

    def _ours(self) -> dict[str, str]:
        held = self._ports.numbers if self._ports is not None else {}
        return {
            "IRIS_TASK_ID": self.key,
            "IRIS_NUM_TASKS": str(self._spec.num_tasks),
            "IRIS_TASK_INDEX": str(self._task.task_index),
            "IRIS_ATTEMPT_ID": str(self._task.attempt_id),
            procs.MARKER: self.uid,
            "IRIS_JOB_ID": self._spec.job_id,
            "IRIS_WORKER_ID": self._host.worker_id,
            "IRIS_WORKDIR": str(self.folders.workdir),
            "IRIS_OUTPUT_DIR": str(self.folders.output),
            "IRIS_CONTROLLER_URL": self._host.controller,
            "IRIS_TOKEN": self._task.token,
            **{environment.port_variable(name): str(number) for name, number in held.items()},
        }

    async def _setup(self, step: int, steps: int, script: str) -> None:
        self._check_stop()
        self._output.write("setup", f"[iris setup] step {step}/{steps}")
        try:
            # This machine's own, wherever the job's PATH leads: without it the machine is at fault, and never the job.
            bash = resolve(["bash"], {"PATH": environment.machine_path(self._host.environ)}, self.folders.workdir)
            ended = await self._process([bash, str(self.folders.script(step))], ("setup",))
        except CannotStart as error:
            text = f"cannot run setup step {step}/{steps}: {error}"
            if error.exit_code == NOT_EXECUTABLE:
                # It can be run, but not with variables of that size, nor in a directory that an earlier step removed.
                raise _End(outcome.not_started(text, NOT_EXECUTABLE)) from None
            raise _End(outcome.machine_fault(text)) from None
        # What a step leaves running belongs to the attempt and may serve its command; its output is read on.
        self._output.catch_up()
        if self._acted and self._stop is not None:
            raise _End(replace(self._stop, exit_code=ended.code))
        if ended.code != 0:
            oom_kills = self.processes.cgroup.oom_kills() if self.processes.cgroup is not None else 0
            if oom_kills:
                raise _End(self._ended(ended))
            folders = self.env["PATH"].split(":")
            uv_missing = not any(os.access(os.path.join(folder, "uv"), os.X_OK) for folder in folders)
            raise _End(
                outcome.setup_failed(ended, step, steps, script, uv_missing=uv_missing, worker_id=self._host.worker_id)
            )

    async def _command(self) -> Outcome:
        self._check_stop()
        argv = list(self._spec.entrypoint.run_command.argv)
        if not argv:
            return outcome.not_started("the command is empty", 127)
        copies = self._spec.processes_per_task
        if copies > 1:
            argv = fan_out.command(copies, self._spec.resources.device.count, argv)
        try:
            ended = await self._process(argv, ("stdout", "stderr"), main=True)
        except CannotStart as error:
            if error.exit_code is None:
                return outcome.machine_fault(str(error))
            return outcome.not_started(str(error), error.exit_code)
        return self._ended(ended)

    def _ended(self, ended: Exit) -> Outcome:
        if self._acted and self._stop is not None:
            return replace(self._stop, exit_code=ended.code)
        group = self.processes.cgroup
        oom_kills = group.oom_kills() if group is not None and ended.code else 0
        peak = self.memory_peak if oom_kills else 0
        return outcome.ended(ended, oom_kills=oom_kills, limit=self.memory_limit, peak=peak)

    # Processes ----------------------------------------------------------------------------------------------------

    async def _process(self, argv: Sequence[str], sources: tuple[str, ...], *, main: bool = False) -> Exit:
        """Runs one process to its end, or ends it when the attempt is stopped. Raises CannotStart."""
        fds = [self._output.pipe(source) for source in sources]
        try:
            child = spawn(
                argv,
                env=self.env,
                cwd=self.folders.workdir,
                stdout=fds[0],
                stderr=fds[-1],
                cgroup=self.processes.cgroup,
            )
        finally:
            for fd in fds:
                os.close(fd)
        self.processes.lead(child)
        self._record.pid, self._record.start, self._record.session = child.pid, child.start, child.pid
        self._write_record()
        limit_ms = self._task.timeout_remaining_ms if main else 0
        timer = None
        if main:
            self._observe(common_pb2.TASK_STATE_RUNNING, pid=child.pid, started_at_ms=now_ms())
        if limit_ms > 0:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(limit_ms / 1000, lambda: self.stop(outcome.timed_out(limit_ms)))
        try:
            ended = await self._until_exit(child)
        finally:
            if timer is not None:
                timer.cancel()
        self._max_rss = max(self._max_rss, ended.max_rss)
        self._commanded = main
        return ended

    async def _until_exit(self, child: Child) -> Exit:
        either: set[asyncio.Future[Any]] = {child.exited, self._stopping}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not child.exited.done():
            self._acted = True
            await self.processes.signal(signal.SIGTERM)
            loop = asyncio.get_running_loop()
            while not child.exited.done():
                left = self._kill_at - loop.time()
                if left <= 0:
                    await self.processes.signal(signal.SIGKILL)
                    left = 0.05
                await asyncio.wait({child.exited}, timeout=min(left, 0.1))
        return child.exited.result()

    async def _clear(self) -> None:
        """Ends what is left of the attempt: TERM, a grace (what is left of the one that was asked for), KILL."""
        if not self._record.pid or await self.processes.empty():
            return
        loop = asyncio.get_running_loop()
        if not self._acted:
            await self.processes.signal(signal.SIGTERM)
        until = loop.time() + LEFTOVER_S
        pause = 0.002
        warn_at = max(until, self._kill_at) + _STUCK_S
        while not await self.processes.empty():
            now = loop.time()
            if now >= (self._kill_at if self._acted else until):
                await self.processes.signal(signal.SIGKILL)
            if now >= warn_at:
                _log.error("attempt %s (%s): processes do not end: %s", self.uid, self.key, await self.processes.pids())
                warn_at = now + 60
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.05)

    @property
    def memory_peak(self) -> int:
        """The most memory it held, in bytes, as far as is known."""
        group = self.processes.cgroup
        return (group.memory_peak() if group is not None else 0) or max(self.processes.polled_peak, self._max_rss)

    # Telling ------------------------------------------------------------------------------------------------------

    async def _unless_stopped(self, work: Coroutine[Any, Any, Path]) -> Path:
        task = asyncio.ensure_future(work)
        either: set[asyncio.Future[Any]] = {task, self._stopping}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            self._check_stop()
        return await task

    def _check_stop(self) -> None:
        if self._stop is not None:
            raise _End(self._stop)

    def _observe(self, state: int, **fields: int) -> None:
        self.observation = worker_pb2.Observation(
            attempt_uid=self.uid,
            state=state,  # type: ignore[arg-type]
            started_at_ms=fields.get("started_at_ms", self.observation.started_at_ms),
            pid=fields.get("pid", self.observation.pid),
        )
        self._host.changed(self)

    async def _save_outputs(self, result: Outcome) -> common_pb2.TaskOutputs | None:
        """None unless the command ended by itself: what a stopped task left is not complete."""
        if self._acted or not self._commanded:
            return None
        saved = await outputs.save(self.uid, self.folders.output, self._host.outputs_policy(), self._stopping)
        if saved.status != outputs.EMPTY:
            entries = "1 entry" if saved.entries == 1 else f"{saved.entries:,} entries"
            told = f"{entries}, {format_size(saved.total_bytes)}, kept at {saved.url}"
            self._output.write("iris", f"[iris outputs] {saved.error or told}")
        return saved

    async def _finish(self, result: Outcome, saved: common_pb2.TaskOutputs | None) -> None:
        if not await self._output.drained(DRAIN_S):
            _log.warning("%s: a process outside of the attempt holds its output open", self.key)
        self._output.close()
        peak = self.memory_peak
        if self.processes.cgroup is not None:
            self.processes.cgroup.remove()
        if self._ports is not None:
            self._ports.release()
        self.observation = worker_pb2.Observation(
            attempt_uid=self.uid,
            state=result.state,  # type: ignore[arg-type]
            exit_code=result.exit_code,
            error=outcome.cut(result.error),
            failure_kind=result.kind,  # type: ignore[arg-type]
            started_at_ms=self.observation.started_at_ms,
            finished_at_ms=now_ms(),
            memory_peak_bytes=peak,
            log_lines=self._output.lines,
            pid=self.observation.pid,
            outputs=saved,
        )
        self._record.end = self.observation.SerializeToString()
        self._write_record()
        self.done = True
        self._host.changed(self)

    def _write_record(self) -> None:
        try:
            self._host.records.write(self._record)
        except OSError as error:
            # The record only helps a later worker; this one goes on without it.
            _log.warning("cannot write the record of attempt %s: %s", self.uid, reason(error))
