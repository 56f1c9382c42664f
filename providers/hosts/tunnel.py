"""A way to a controller that listens on its own host's loopback: one `ssh -L`, open as long as whoever opened it lives.

The remote end says a word once the port is open here, and waits for the end of its standard input, so that no tunnel outlives its owner, not
even one that was killed. Must never ask anything, or be left behind.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Final

from providers.hosts.ssh import ATTEMPTS, FIRST_PAUSE_S, MAX_STDERR, HostUnreachable, explain, options

if TYPE_CHECKING:
    from iris_core.config.ssh import SshHost

READY: Final = b"iris-tunnel-ready"
REMOTE: Final = f"echo {READY.decode()} && exec cat >/dev/null"
OPEN_S: Final = 60.0
END_S: Final = 5.0
PORTS: Final = 5
"""Another program may take a port between its being found free and being used."""


class SshTunnel:
    """An open tunnel. `url` is where the controller is reached on this machine."""

    def __init__(self, host: SshHost, port: int, there: str = "127.0.0.1") -> None:
        """Opens it. Raises HostUnreachable: no connection, in one line."""
        self.host = host
        self._place = f"{there}:{port}"
        self._said = bytearray()
        self._reading = threading.Lock()
        for attempt in range(1, PORTS + 1):
            local = _free_port()
            self.url = f"http://127.0.0.1:{local}"
            if self._open(local, last=attempt == PORTS):
                return

    def _open(self, local: int, *, last: bool) -> bool:
        argv = [
            *options(self.host, level="INFO"), "-o", "ControlPath=none", "-o", "ExitOnForwardFailure=yes",
            "-L", f"127.0.0.1:{local}:{self._place}", "--", self.host.host, REMOTE,
        ]  # fmt: skip
        self._said.clear()
        try:
            # A session of its own: Ctrl-C is for the command, which closes this.
            self._child = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
            )
        except FileNotFoundError:
            raise HostUnreachable("the program ssh is not installed here", hint="install openssh-client") from None
        except OSError as error:
            raise HostUnreachable(f"ssh cannot be started: {error.strerror}") from error
        self._reader = threading.Thread(target=self._drain, name="ssh tunnel", daemon=True)
        self._reader.start()
        limit = self.host.connect_timeout_s + OPEN_S
        ready = self._await_ready(limit)
        if ready:
            return True
        self.close()
        said = self._said.decode(errors="replace")
        if ready is None:
            raise HostUnreachable(f"ssh {self.host.label}: no tunnel within {limit:g} s", hint="is the host up?")
        if "cannot listen to port" in said.lower() and not last:
            return False
        raise explain(self.host.label, said, fallback=f"it ended with exit code {self._child.returncode}")

    def _await_ready(self, limit_s: float) -> bool | None:
        """Whether the word came: false = it never will, None = not within the limit."""
        assert self._child.stdout is not None
        handle, deadline, said = self._child.stdout.fileno(), time.monotonic() + limit_s, b""
        while READY not in said:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            if select.select([handle], [], [], left)[0]:
                piece = os.read(handle, 4096)  # a login shell may say something first
                if not piece:
                    # Its exit code is wanted; one that does not end by itself is ended.
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        self._child.wait(END_S)
                    return False
                said = (said + piece)[-4096:]
        return True

    def _drain(self) -> None:
        assert self._child.stderr is not None
        with contextlib.suppress(OSError, ValueError):
            handle = self._child.stderr.fileno()
            while True:
                select.select([handle], [], [])
                if not self._take(handle):
                    return

    def _take(self, handle: int) -> bool:
        """Reads what ssh has said and nobody has read. Returns whether it may say more."""
        with self._reading:
            while select.select([handle], [], [], 0)[0]:
                if not (piece := os.read(handle, 4096)):
                    return False
                self._said += piece
                del self._said[:-MAX_STDERR]
        return True

    @property
    def alive(self) -> bool:
        """See Tunnel."""
        return self._child.poll() is None

    def problem(self) -> str:
        """See Tunnel."""
        assert self._child.stderr is not None
        with contextlib.suppress(OSError, ValueError):
            # ssh says why before it closes a connection; who asks because of that comes before the thread that reads.
            self._take(self._child.stderr.fileno())
        said = self._said.decode(errors="replace")
        if self.alive and "open failed" in said:
            return f"nobody answers at {self._place} on {self.host.label}"
        if self.alive:
            return ""
        return explain(self.host.label, said, fallback="the connection broke").message

    def close(self) -> None:
        """Ends it."""
        child = self._child
        assert child.stdin and child.stdout and child.stderr
        with contextlib.suppress(OSError):
            child.stdin.close()
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(END_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self._reader.join(END_S)
        child.stdout.close()
        child.stderr.close()


def open_tunnel(host: SshHost, port: int) -> SshTunnel:
    """Opens one to a port of the host's loopback, with a second and third attempt. Raises HostUnreachable."""
    pause = FIRST_PAUSE_S
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return SshTunnel(host, port)
        except HostUnreachable as error:
            if error.final or attempt == ATTEMPTS:
                raise
        time.sleep(pause)
        pause *= 2
    raise AssertionError("unreachable")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
