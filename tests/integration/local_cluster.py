"""The embedded cluster as an operator starts it, in a home of its own, and the command line against it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from providers.local.processes import start_time

PROGRAM = str(Path(sys.executable).with_name("iris-core"))
KEPT = ("PATH", "LANG", "LC_ALL", "TZ")
START_S = 60.0


@dataclass
class Done:
    """One finished command line."""

    code: int
    out: str
    err: str
    raw: bytes
    seconds: float


class Place:
    """A home, an empty folder to stand in, and an environment with nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.empty = folder / "empty"
        for path in (self.home, self.empty):
            path.mkdir(parents=True, exist_ok=True)
        self.env = {name: os.environ[name] for name in KEPT if name in os.environ}
        self.env |= {"HOME": str(self.home), "NO_COLOR": "1", "TERM": "xterm-256color", "USER": "t", "LOGNAME": "t"}
        self.env |= {"TMPDIR": str(folder), "IRIS_USER": "t"}
        self.env |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def popen(
        self, *words: str, cwd: Path | None = None, env: dict[str, str] | None = None, group: bool = False
    ) -> subprocess.Popen[bytes]:
        """Starts `iris-core WORDS`."""
        return subprocess.Popen(
            [PROGRAM, *words],
            cwd=cwd or self.empty,
            env={**self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=group,
        )

    def run(
        self,
        *words: str,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        stdin: bytes = b"",
        timeout_s: float = 90,
    ) -> Done:
        """Runs `iris-core WORDS` to its end."""
        began = time.monotonic()
        done = subprocess.run(
            [PROGRAM, *words],
            cwd=cwd or self.empty,
            env={**self.env, **(env or {})},
            input=stdin,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        return Done(
            done.returncode,
            done.stdout.decode(errors="replace"),
            done.stderr.decode(errors="replace"),
            done.stdout,
            time.monotonic() - began,
        )

    def ours(self) -> list[int]:
        """Every live process but this one whose command line or environment names the folder."""
        mark = os.fsencode(self.folder)
        found = []
        for path in Path("/proc").iterdir():
            if not path.name.isdigit() or int(path.name) == os.getpid():
                continue
            try:
                named = mark in (path / "cmdline").read_bytes() or mark in (path / "environ").read_bytes()
            except OSError:
                continue
            if named and start_time(int(path.name)) is not None:
                found.append(int(path.name))
        return found

    def assert_nothing_left(self, within_s: float = 5.0) -> None:
        """Fails when a process of this place is still alive; ends it first."""
        deadline = time.monotonic() + within_s
        while (left := self.ours()) and time.monotonic() < deadline:
            time.sleep(0.05)
        shown = []
        for pid in left:
            try:
                shown.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")[:200])
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        assert not shown, f"left behind: {shown}"


class LocalCluster(Place):
    """`iris-core cluster start --local` in the foreground of a process of ours."""

    def __init__(self, folder: Path, *options: str) -> None:
        super().__init__(folder)
        self.options = options
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""

    @property
    def state(self) -> Path:
        return self.home / ".local/state/iris/local"

    @property
    def messages(self) -> str:
        """What the cluster's own process said on standard error so far."""
        return (self.folder / "cluster.err").read_text()

    def start(self) -> None:
        """Starts it and waits until it serves."""
        with (self.folder / "cluster.err").open("ab") as errors:
            self.process = subprocess.Popen(
                [PROGRAM, "cluster", "start", "--local", *self.options],
                cwd=self.empty,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().decode().strip()
        assert self.url, f"the cluster did not start:\n{self.messages}"

    def cli(
        self,
        *words: str,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        stdin: bytes = b"",
        timeout_s: float = 90,
    ) -> Done:
        """Runs a command against this cluster."""
        return self.run("--cluster=local", *words, cwd=cwd, env=env, stdin=stdin, timeout_s=timeout_s)

    def job(self, name: str, *words: str, options: tuple[str, ...] = (), wait: bool = True) -> Done:
        """`job run` of a command; without `wait` it is only submitted."""
        more = () if wait else ("--no-wait",)
        return self.cli("job", "run", "--no-sync", "--job-name", name, *more, *options, "--", *words)

    def until(self, *words: str, has: str, within_s: float = 90) -> Done:
        """Runs a command again until its output has that text."""
        deadline = time.monotonic() + within_s
        while True:
            done = self.cli(*words)
            if has in done.out:
                return done
            assert time.monotonic() < deadline, f"{words} never said {has!r}: {done}"

    def signal(self, number: int) -> None:
        """Signals the cluster's own process, as Ctrl-C in its terminal does."""
        assert self.process is not None
        self.process.send_signal(number)

    def end(self) -> int:
        """Interrupts it, waits for its end, and asserts that nothing is left."""
        assert self.process is not None
        if self.process.poll() is None:
            self.signal(signal.SIGINT)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()
            self.assert_nothing_left()
        assert not (self.state / "endpoint.json").exists()
        return self.process.returncode

    def close(self) -> None:
        """After the test, however it went: ends what runs, and asserts that nothing is left."""
        if self.process is not None:
            if self.process.poll() is None:
                self.end()
            if self.process.stdout is not None:
                self.process.stdout.close()
        self.assert_nothing_left()
