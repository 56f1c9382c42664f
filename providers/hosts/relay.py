"""One program on a host that carries out one small command after the other: each would otherwise load it anew, for a quarter of a second.

It is `iris-controller host relay`, carried there like every command, and ends when its standard input does, so that it never outlives whoever
started it. What goes wrong with it is nobody's failure: the command is then run by a connection of its own, as a further attempt.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import Final

from providers.hosts import carried
from providers.hosts.ssh import Done, Ssh

END_S: Final = 5.0
BUSY_S: Final = 1.0
"""What waiting for another command is worth: about as long as a connection of its own takes."""
PIECE: Final = 1 << 16
LARGEST: Final = 8 << 20
"""Of what a command is given."""


class Relay:
    """Runs `iris-controller WORDS` on the host of `ssh`. Safe for several threads; one command at a time."""

    def __init__(self, ssh: Ssh) -> None:
        self._ssh = ssh
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._unread = b""

    def run(self, words: Sequence[str], data: bytes, timeout_s: float) -> Done | None:
        """How the command ended; None if that is not known, because the connection broke, or if another one is under way.

        After None it may have been carried out: it has to be run again as one that may.
        """
        if len(data) > LARGEST or not self._lock.acquire(timeout=BUSY_S):
            return None
        deadline = time.monotonic() + timeout_s
        try:
            child = self._child
            if child is None or child.poll() is not None:
                self._end()
                child = self._begin()
                self._write(child, carried.package(), deadline)
            note = json.dumps({"argv": list(words), "size": len(data)}).encode() + b"\n"
            self._write(child, note + data, deadline)
            answer = json.loads(self._line(child, deadline))
            out = self._exactly(child, int(answer["size"]), deadline)
            return Done(int(answer["code"]), out, str(answer["err"]), 1)
        except (OSError, ValueError, KeyError, TypeError, EOFError):
            self._end()
            return None
        finally:
            self._lock.release()

    def _begin(self) -> subprocess.Popen[bytes]:
        command = shlex.join(carried.command("host", "relay"))
        child = subprocess.Popen(
            [*self._ssh.argv(*self._ssh.shared()), command],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self._child, self._unread = child, b""
        return child

    def _write(self, child: subprocess.Popen[bytes], data: bytes, deadline: float) -> None:
        """A pipe that nobody reads from blocks its writer, whom only the end of the program frees."""
        assert child.stdin is not None
        timer = threading.Timer(max(deadline - time.monotonic(), 0), child.kill)
        timer.start()
        try:
            child.stdin.write(data)
            child.stdin.flush()
        finally:
            timer.cancel()
            timer.join()

    def _more(self, child: subprocess.Popen[bytes], deadline: float) -> None:
        assert child.stdout is not None
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([child.stdout], [], [], left)[0]:
            raise TimeoutError
        piece = os.read(child.stdout.fileno(), PIECE)
        if not piece:
            raise EOFError
        self._unread += piece

    def _line(self, child: subprocess.Popen[bytes], deadline: float) -> bytes:
        while b"\n" not in self._unread:
            self._more(child, deadline)
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _exactly(self, child: subprocess.Popen[bytes], size: int, deadline: float) -> bytes:
        while len(self._unread) < size:
            self._more(child, deadline)
        data, self._unread = self._unread[:size], self._unread[size:]
        return data

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        assert child.stdin is not None and child.stdout is not None
        with contextlib.suppress(OSError):
            child.stdin.close()
        try:
            child.wait(END_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        child.stdout.close()

    def close(self) -> None:
        """Ends it; the next command begins another one."""
        with self._lock:
            self._end()
