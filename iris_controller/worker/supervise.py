"""Keeps one worker running, and leaves no process of its attempts behind when it dies.

Light on purpose: it lives as long as its host and loads neither the wire nor a loop. It holds no state but `supervisor.json`; a
worker that outlived an earlier supervisor is taken over as it is, with its tasks. Every worker death is followed by a sweep before
anything else, because a process attempt cannot be adopted and must not run beside its successor.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, BinaryIO

from iris_controller.worker import procs, records
from iris_controller.worker.config import EXIT_FAILED, EXIT_IDLE, EXIT_OK, EXIT_REJECTED, GRACE_S, WorkerConfig, reason
from iris_controller.worker.sweep import sweep

if TYPE_CHECKING:
    from pathlib import Path

_FIRST_BACKOFF_S = 0.1
_LAST_BACKOFF_S = 10.0
_STEADY_S = 5.0
"""A worker that lived this long started well: the next one starts at once."""
_END_S = GRACE_S + 15.0
_LOG_BYTES = 4 * 1024 * 1024


def supervise(config: WorkerConfig) -> int:
    """Runs until told to end, or until the worker says that nobody needs it. Returns the exit code."""
    cache = config.cache_dir
    try:
        os.setsid()
    except PermissionError:
        pass  # it leads a group or a session already
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(cache, 0o700)
        lock = os.open(cache / "supervisor.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        identity = records.process_identity() | {"worker_id": config.worker_id, "controller": config.controller}
        records.write_private(cache / "supervisor.json", identity)
    except BlockingIOError:
        holder = records.recorded_process(cache / "supervisor.json")
        return _fail(f"another supervisor{f' (process {holder[0]})' if holder else ''} keeps the worker of {cache}")
    except OSError as error:
        return _fail(f"cannot use {cache}: {reason(error)}")
    try:
        return _Supervisor(config).run()
    finally:
        (cache / "supervisor.json").unlink(missing_ok=True)
        os.close(lock)


class _Supervisor:
    def __init__(self, config: WorkerConfig) -> None:
        self._config = config
        self._records = records.Records(config.cache_dir)
        self._worker: tuple[int, int] | None = None
        self._popen: subprocess.Popen[bytes] | None = None
        self._asked = 0
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    def run(self) -> int:
        signal.set_wakeup_fd(self._wake_write)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        backoff = _FIRST_BACKOFF_S
        healthy = time.monotonic()
        while True:
            self._worker = records.recorded_process(self._config.cache_dir / "worker.json")
            if self._worker is None and not self._try_start():
                self._sleep(1.0)
                if self._told_to_end():
                    return EXIT_OK
                continue
            began = time.monotonic()
            code = self._wait()
            self._clean()
            if self._told_to_end():
                return EXIT_OK
            if code in {EXIT_REJECTED, EXIT_IDLE}:
                return EXIT_OK if code == EXIT_IDLE else EXIT_FAILED
            now = time.monotonic()
            if now - began >= _STEADY_S:
                backoff, healthy = _FIRST_BACKOFF_S, now
            elif self._config.idle_exit_s and now - healthy >= self._config.idle_exit_s:
                return _fail("the worker cannot start (see worker.log)")
            _say(f"the worker ended ({'taken over' if code is None else f'code {code}'}): starting it again")
            self._sleep(backoff)
            if self._told_to_end():
                return EXIT_OK
            backoff = min(backoff * 2, _LAST_BACKOFF_S)

    def _try_start(self) -> bool:
        try:
            if self._in_use():
                # A living worker without its record: its attempts are not to be swept away under it.
                return False
            self._clean()
            self._start()
        except OSError as error:
            _say(f"cannot start the worker: {reason(error)}")
            return False
        return True

    def _in_use(self) -> bool:
        """Somebody holds the lock that every worker holds."""
        fd = os.open(self._config.cache_dir / "worker.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def _start(self) -> None:
        words = [*self._config.words]
        if "--idle-exit" not in words:
            words += ["--idle-exit", str(self._config.idle_exit_s)]
        with _log_file(self._config.cache_dir / "worker.log") as log:
            self._popen = subprocess.Popen(
                [sys.executable, "-P", "-m", "iris_controller.worker.main", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._worker = (self._popen.pid, procs.start_of(self._popen.pid))

    def _wait(self) -> int | None:
        """Until the worker has ended. Returns its exit code; None if it was not our child."""
        assert self._worker is not None
        pid, start = self._worker
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return None
        told = 0
        deadline = float("inf")
        try:
            while procs.same(pid, start):
                if told < self._asked:
                    told = self._asked
                    deadline = time.monotonic() + (_END_S if told == 1 else 5.0)
                    signal.pidfd_send_signal(handle, signal.SIGTERM)
                    # A worker that was stopped hears of it only so; its tasks would run on beside those that replace them.
                    signal.pidfd_send_signal(handle, signal.SIGCONT)
                if time.monotonic() >= deadline:
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    deadline = float("inf")
                self._pause([handle], min(deadline - time.monotonic(), 3600.0))
        except ProcessLookupError:
            pass
        finally:
            os.close(handle)
        return self._popen.wait() if self._popen is not None and self._popen.pid == pid else None

    def _clean(self) -> None:
        left = self._records.load()
        running = [record for record in left if not record.end]
        if running:
            stuck = sweep(running)
            _say(
                f"ended what {len(running)} attempt{'s' * (len(running) != 1)} of the last worker left"
                + (f", {len(stuck)} stuck" if stuck else "")
            )

    def _told_to_end(self) -> bool:
        return self._asked > 0

    def _signalled(self, *_: object) -> None:
        self._asked += 1

    def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._asked and (left := until - time.monotonic()) > 0:
            self._pause([], left)

    def _pause(self, handles: list[int], seconds: float) -> None:
        ready, _, _ = select.select([*handles, self._wake_read], [], [], max(0.0, seconds))
        if self._wake_read in ready:
            try:
                os.read(self._wake_read, 4096)
            except BlockingIOError:
                pass


def _log_file(path: Path) -> BinaryIO:
    """What the worker prints itself; the file before it is kept when it has grown."""
    if path.exists() and path.stat().st_size > _LOG_BYTES:
        os.replace(path, path.with_name(path.name + ".1"))
    return open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600))


def _say(text: str) -> None:
    try:
        sys.stderr.write(f"iris-worker supervise: {text}\n")
        sys.stderr.flush()
    except OSError:
        pass


def _fail(text: str) -> int:
    _say(f"Error: {text}")
    return EXIT_FAILED
