"""Commands on one host by the program `ssh`, over one connection that this process shares.

A connection that cannot be made, or that breaks, is tried three times with a pause between; whatever the command itself answers is an answer
and is never repeated. What a repetition cannot mend, a refused key or a changed host key, is said at once. Nothing is ever asked at the
terminal. Must never put a secret, or the contents of a file, into an argument.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from iris_core.contracts import ConnectFailed
from iris_core.model.text import one_line

if TYPE_CHECKING:
    from iris_core.config.ssh import SshHost

ATTEMPTS: Final = 3
FIRST_PAUSE_S: Final = 2.0
LAST_PAUSE_S: Final = 30.0
PERSIST_S: Final = 60
"""The shared connection outlives a process that was killed by so much."""
ALIVE_S: Final = 5
"""Between two signs of life of a connection; after three without an answer it is broken."""
BROKEN: Final = 255
"""What ssh itself ends with when it has no connection; no command of ours does."""
FOLDER: Final = "iris-ssh-"
MAX_STDERR: Final = 64 << 10
PIECE: Final = 1 << 18

_KINDS: Final[tuple[tuple[str, str, str, bool], ...]] = (
    ("REMOTE HOST IDENTIFICATION HAS CHANGED", "its host key is not the one that is known",
     "find out why before anything else; if it was installed anew: ssh-keygen -R HOST, then connect once by hand", True),
    (r"Host key verification failed|No \S+ host key is known", "its host key is not known",
     "connect once by hand and compare the key, or name a file that has it in defaults.ssh.known_hosts_file", True),
    (r"Permission denied|Too many authentication failures", "the host refused the key",
     "see that the key of this account may log in there, and defaults.ssh (user, key_file)", True),
    (r"Bad owner or permissions|UNPROTECTED PRIVATE KEY FILE", "ssh does not take the key file", "its mode has to be 0600", True),
    (r"Connection refused", "the connection was refused", "is sshd running there, and is the port right?", False),
    (r"timed out|Timeout, server", "it does not answer", "is the host up?", False),
    (r"No route to host|Network is unreachable|Host is down", "there is no way to it", "is the host up?", False),
    (r"Could not resolve hostname", "its name is not known", "look at the host in the cluster file", False),
)  # fmt: skip
"""What ssh says, what it means, what to do, and whether a repetition is of no use."""
_BEFORE: Final = re.compile(
    "connect to host|Could not resolve|Permission denied|Too many authentication|Host key|HOST IDENTIFICATION"
    "|kex_exchange_identification|banner exchange|PRIVATE KEY FILE|Bad owner"
)
"""What is only said before there is a connection: then nothing was begun."""


class HostUnreachable(ConnectFailed):
    """No SSH connection.

    `begun`: a command may have been started, and whether it took effect is not known. `final`: trying again is of no use.
    """

    on_the_way = True

    def __init__(self, message: str, *, hint: str = "", begun: bool = False, final: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.begun = begun
        self.final = final


@dataclass(frozen=True, slots=True)
class Done:
    """How a command on a host ended. `attempt` counts from 1: a later one may find what an earlier one did."""

    code: int
    out: bytes
    err: str
    attempt: int


Feed = Callable[[], Iterable[bytes]]
"""What a command reads, made anew for each attempt."""


class Ssh:
    """Commands on a host. `close` ends the shared connection; safe for several threads."""

    def __init__(
        self,
        host: SshHost,
        *,
        say: Callable[[str], None] = lambda _: None,
        pause: Callable[[float], None] = time.sleep,
        attempts: int = ATTEMPTS,
    ) -> None:
        self.host = host
        self._say = say
        self._pause = pause
        self.attempts = attempts
        self._lock = threading.Lock()
        self._folder: Path | None = None

    @property
    def label(self) -> str:
        """The host as it is named in messages."""
        return self.host.label

    def argv(self, *more: str) -> list[str]:
        """The command line of ssh up to the remote command, with options before the host."""
        return [*options(self.host), *more, "--", self.host.host]

    def run(
        self,
        words: Callable[[int], Sequence[str]],
        *,
        timeout_s: float,
        feed: Feed = lambda: (),
        sink: Callable[[bytes], None] | None = None,
        tried: bool = False,
    ) -> Done:
        """Runs a command, made of its words for each attempt, and returns how it ended, whatever its exit code is.

        `tried`: it was begun before, in another way, so that this is not the first attempt. `sink` gets the output in pieces in place of `Done.out`; an attempt after it got some is not made. Raises HostUnreachable.
        """
        pause = FIRST_PAUSE_S
        begun = tried
        first = 2 if tried else 1
        for attempt in range(first, self.attempts + first):
            got = False

            def take(piece: bytes) -> None:
                nonlocal got
                got = True
                assert sink is not None
                sink(piece)

            run = _Run(self.argv(*self.shared()), shlex.join(words(attempt)))
            run.go(feed(), take if sink is not None else None, timeout_s)
            if run.code != BROKEN and not run.late:
                return Done(run.code, run.out, run.err, attempt)
            self.close()  # the connection that is shared may be the broken one
            begun = begun or run.begun
            failure = _failure(self.label, run, timeout_s, begun=begun)
            if failure.final or got or attempt == self.attempts + first - 1:
                if attempt > first:
                    failure.message += f" ({attempt - first + 1} attempts)"
                    failure.args = (failure.message,)
                raise failure
            self._say(f"{failure.message}; trying again in {pause:g} s")
            self._pause(pause)
            pause = min(pause * 2, LAST_PAUSE_S)
        raise AssertionError("unreachable")

    def shared(self) -> list[str]:
        """The options by which a command uses the connection that is shared."""
        with self._lock:
            if self._folder is None:
                # Not below TMPDIR, which may be too long for the name of a socket.
                _sweep()
                self._folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER}{os.getpid()}-", dir="/tmp"))
        return [
            "-o", "ControlMaster=auto", "-o", f"ControlPath={self._folder}/%C", "-o", f"ControlPersist={PERSIST_S}",
            "-o", "ClearAllForwardings=yes",
        ]  # fmt: skip

    def close(self) -> None:
        """Ends the shared connection. It is made anew by the next command."""
        with self._lock:
            folder, self._folder = self._folder, None
        if folder is None:
            return
        if any(folder.iterdir()):
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(
                    [*options(self.host), "-o", f"ControlPath={folder}/%C", "-O", "exit", "--", self.host.host],
                    stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False,
                )  # fmt: skip
        shutil.rmtree(folder, ignore_errors=True)


def options(host: SshHost, *, level: str = "ERROR") -> list[str]:
    """ssh with everything that decides who connects as whom, and that nothing is asked; `level` is what it says of itself."""
    words = [
        "ssh", "-T", "-p", str(host.port), "-l", host.user,
        "-o", "BatchMode=yes",
        "-o", f"ConnectTimeout={max(round(host.connect_timeout_s), 1)}",
        "-o", f"ServerAliveInterval={ALIVE_S}", "-o", "ServerAliveCountMax=3",
        "-o", "ForwardAgent=no", "-o", "ForwardX11=no", "-o", f"LogLevel={level}",
    ]  # fmt: skip
    if host.key_file:
        words += ["-i", host.key_file, "-o", "IdentitiesOnly=yes"]
    if host.known_hosts_file:
        words += ["-o", f"UserKnownHostsFile={host.known_hosts_file}", "-o", "GlobalKnownHostsFile=/dev/null"]
        # In a file that was named for this, an absent key is no key to be taken on faith.
        words += ["-o", "StrictHostKeyChecking=yes"]
    return words


def explain(label: str, said: str, *, fallback: str, begun: bool = False) -> HostUnreachable:
    """What ssh wrote to its standard error, as one line and what to do about it."""
    for pattern, meaning, hint, final in _KINDS:
        if re.search(pattern, said):
            return HostUnreachable(f"ssh {label}: {meaning}", hint=hint, begun=begun, final=final)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return HostUnreachable(one_line(f"ssh {label}: {lines[-1] if lines else fallback}"), begun=begun)


def _sweep() -> None:
    """Removes the folders of processes of this account that were killed; their connections end by themselves."""
    for path in Path("/tmp").glob(f"{FOLDER}*-*"):
        pid = path.name.removeprefix(FOLDER).partition("-")[0]
        with contextlib.suppress(OSError):
            if pid.isdigit() and not Path("/proc", pid).exists() and path.lstat().st_uid == os.getuid():
                shutil.rmtree(path)


class _Run:
    """One attempt: ssh with both ends fed and drained at once, within a time limit."""

    def __init__(self, argv: list[str], command: str) -> None:
        self._argv = [*argv, command]
        self.code = BROKEN
        self.out = b""
        self.err = ""
        self.late = False
        self.answered = False

    @property
    def begun(self) -> bool:
        """Whether the command may have been started, for one that did not end well."""
        return self.answered or self.late or not _BEFORE.search(self.err)

    def go(self, feed: Iterable[bytes], sink: Callable[[bytes], None] | None, timeout_s: float) -> None:
        try:
            child = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise HostUnreachable("the program ssh is not installed here", hint="install openssh-client") from None
        except OSError as error:
            raise HostUnreachable(f"ssh cannot be started: {error.strerror}") from error
        assert child.stdin and child.stdout and child.stderr
        errors, problems = bytearray(), list[BaseException]()
        writer = threading.Thread(target=_feed, args=(child.stdin, feed, problems), daemon=True)
        reader = threading.Thread(target=_drain, args=(child.stderr, errors), daemon=True)
        timer = threading.Timer(timeout_s, self._late, args=(child,))
        for thread in (writer, reader, timer):
            thread.start()
        out = bytearray()
        try:
            while piece := child.stdout.read1(PIECE):  # type: ignore[attr-defined]
                self.answered = True
                if sink is not None:
                    sink(piece)
                else:
                    out += piece
            self.code = child.wait()
        finally:
            timer.cancel()
            if child.poll() is None:
                child.kill()
                child.wait()
            for thread in (writer, reader, timer):
                thread.join(10)
            child.stdout.close()
            child.stderr.close()
        self.out, self.err = bytes(out), errors.decode(errors="replace")
        if problems:
            raise problems[0]

    def _late(self, child: subprocess.Popen[bytes]) -> None:
        self.late = True
        child.kill()


def _feed(pipe: IO[bytes], feed: Iterable[bytes], problems: list[BaseException]) -> None:
    try:
        for piece in feed:
            pipe.write(piece)
    except (BrokenPipeError, ConnectionResetError):
        pass  # it does not read on: its exit code says why
    except BaseException as error:
        problems.append(error)
    finally:
        with contextlib.suppress(OSError):
            pipe.close()


def _drain(pipe: IO[bytes], into: bytearray) -> None:
    with contextlib.suppress(OSError, ValueError):
        while piece := os.read(pipe.fileno(), 65536):
            into += piece
            del into[:-MAX_STDERR]


def _failure(label: str, run: _Run, timeout_s: float, *, begun: bool) -> HostUnreachable:
    if run.late:
        return HostUnreachable(f"ssh {label}: no end within {timeout_s:g} s", hint="is the host up?", begun=True)
    return explain(label, run.err, fallback="the connection broke", begun=begun)


def pieces(file: IO[bytes], start: int = 0) -> Iterator[bytes]:
    """A file from an offset on."""
    file.seek(start)
    while piece := file.read(PIECE):
        yield piece
