"""The process that keeps a controller running on this machine: starts it again when it dies, and ends it when it is told to.

It runs from the same release as its controller, in a session of its own, and writes down in the state directory who it is, which
release that is, and how its controller stands. A controller that ends with exit code 0 was told to, and is not started again. When this
process dies, its controller drains and ends. Must never load the controller's packages: it has to outlive what is wrong with them.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from providers.local.cluster import die_with, ending
from providers.local.processes import kept_environment, start_time

RECORD: Final = "controller.json"
LOCK: Final = "controller-keeper.lock"
BACKOFF_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
SETTLED_S: Final = 60.0
"""A controller that served so long has not failed to start; its death counts as the first."""
STOP_S: Final = 75.0
AGAIN_S: Final = 1.0
"""Between two tries to write a record for which there was no room."""
READY_BYTES: Final = 4096


def machine_boot() -> str:
    """Which boot of this machine this is: pids and start times say nothing about another one."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@dataclass(slots=True)
class Keeper:
    """Keeps one controller on a state directory, until `run` returns."""

    state_dir: Path
    release: str
    words: list[str]
    """Of `iris-controller serve`."""
    _asked: int = 0
    _deaths: int = 0
    _unwritten: tuple[str, dict[str, object]] | None = None
    """What the record should say, and does not yet."""

    def write(self, state: str, **more: object) -> None:
        """Writes the record, whole or not at all."""
        note = {
            "pid": os.getpid(),
            "start_time": start_time(os.getpid()),
            "machine_boot": machine_boot(),
            "release": self.release,
            "state": state,
            "failures": self._deaths,
            **more,
        }
        scratch = self.state_dir / f".{RECORD}.{os.getpid()}"
        with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
            json.dump(note, file)
        scratch.replace(self.state_dir / RECORD)

    def run(self) -> int:
        """Until the controller has ended on request. Returns the exit code."""
        reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writing)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._told)
        while True:
            began = time.monotonic()
            code = self._one(reading)
            if self._asked or code == 0:
                self._record("stopped", last=ending(code))
                return 0
            self._deaths = 1 if time.monotonic() - began > SETTLED_S else self._deaths + 1
            pause = BACKOFF_S[min(self._deaths, len(BACKOFF_S)) - 1]
            sys.stderr.write(f"the controller ended {ending(code)}; starting it again in {pause:g} s\n")
            self._record("waiting", last=ending(code))
            if self._pause(reading, pause):
                self._record("stopped", last=ending(code))
                return 0

    def _told(self, _number: int, _frame: object) -> None:
        self._asked += 1

    def _record(self, state: str, **more: object) -> None:
        """A record that cannot be written is worth no controller; it is tried again while that runs."""
        said = self._unwritten == (state, more)
        try:
            self.write(state, **more)
            self._unwritten = None
        except OSError as error:
            self._unwritten = (state, more)
            if not said:
                sys.stderr.write(f"{self.state_dir / RECORD}: {error.strerror}\n")

    def _pause(self, wakeup: int, seconds: float) -> bool:
        """Returns early, and true, when it is told to end."""
        deadline = time.monotonic() + seconds
        while not self._asked and (left := deadline - time.monotonic()) > 0:
            self._wait([wakeup], left)
        return self._asked > 0

    @staticmethod
    def _wait(handles: list[int], seconds: float | None) -> list[int]:
        ready = select.select(handles, [], [], seconds)[0]
        if handles[0] in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(handles[0], 64)
        return ready

    def _one(self, wakeup: int) -> int:
        """One controller from start to end. Returns its exit code."""
        reading, writing = os.pipe()
        command = [sys.executable, "-m", "iris_controller.main", "serve", *self.words, "--ready-fd", str(writing)]
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                env=kept_environment(),
                cwd="/",
                pass_fds=(writing,),
                # Called between fork and exec of a program with one thread: nothing but two system calls.
                preexec_fn=die_with(os.getpid(), ctypes.CDLL(None, use_errno=True)),  # noqa: PLW1509
            )
        except OSError as error:
            os.close(reading)
            sys.stderr.write(f"the controller cannot be started: {error.strerror}\n")
            return 1
        finally:
            os.close(writing)
        self._record("starting", controller={"pid": child.pid, "start_time": start_time(child.pid)})
        pidfd = os.pidfd_open(child.pid)
        try:
            return self._attend(child, pidfd, reading, wakeup)
        finally:
            os.close(pidfd)
            os.close(reading)

    def _attend(self, child: subprocess.Popen[bytes], pidfd: int, reading: int, wakeup: int) -> int:
        told, said, deadline = 0, b"", float("inf")
        handles = [wakeup, pidfd, reading]
        while True:
            if told < self._asked:
                told = self._asked
                deadline = min(deadline, time.monotonic() + STOP_S)
                signal.pidfd_send_signal(pidfd, signal.SIGTERM)
            left = deadline - time.monotonic()
            if left <= 0:
                child.kill()
                deadline = float("inf")
                continue
            wait_s = left if self._unwritten is None else min(left, AGAIN_S)
            ready = self._wait(handles, wait_s if wait_s < float("inf") else None)
            if pidfd in ready:
                return child.wait()
            if not ready and self._unwritten is not None:
                self._record(self._unwritten[0], **self._unwritten[1])
            if reading in ready:
                part = os.read(reading, READY_BYTES)
                said += part
                if not part or said.endswith(b"\n"):
                    handles.remove(reading)
                    self._serves(said, child)

    def _serves(self, said: bytes, child: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            note = json.loads(said)
            self._record(
                "serving",
                controller={
                    "pid": child.pid,
                    "start_time": start_time(child.pid),
                    "url": str(note["url"]),
                    "boot_id": str(note["boot_id"]),
                },
            )


def begun(keeper: Keeper) -> bool:
    """Takes the state directory for a keeper and writes its first record; false, and a line, where another has it."""
    try:
        handle = os.open(keeper.state_dir / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        keeper.write("starting")
    except OSError as error:
        why = "another start has taken it" if isinstance(error, BlockingIOError) else error.strerror
        sys.stderr.write(f"Error: the state directory {keeper.state_dir} cannot be used: {why}\n")
        return False
    return True


def notify() -> None:
    """Tells systemd, if that is who started this, that the record is written (sd_notify(3))."""
    place = os.environ.pop("NOTIFY_SOCKET", "")
    if not place:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        link.connect("\0" + place[1:] if place.startswith("@") else place)
        link.send(b"READY=1")


def main(argv: list[str] | None = None) -> int:
    """Goes into the background, unless told otherwise, once the state directory is held and the record is written. Exit code 1: it is held by another."""
    parser = argparse.ArgumentParser(prog="controller-keeper")
    parser.add_argument("--state-dir", required=True)
    parser.add_argument("--release", required=True)
    parser.add_argument("--foreground", action="store_true", help="stay the process that was started: systemd keeps it")
    parser.add_argument("words", nargs="*")
    options = parser.parse_args(argv)
    keeper = Keeper(Path(options.state_dir), options.release, options.words)
    if options.foreground:
        if not begun(keeper):
            return 1
        notify()
        return keeper.run()
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        with os.fdopen(reading, "rb") as told:
            os._exit(0 if told.read() == b"ok" else 1)
    os.close(reading)
    os.setsid()
    if not begun(keeper):
        return 1
    os.write(writing, b"ok")
    os.close(writing)
    return keeper.run()


if __name__ == "__main__":
    raise SystemExit(main())
