"""The console in a real terminal, tmux's, as a person meets it: `iris demo` shows live jobs, and quitting leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.local_cluster import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import RequireProgram

IRIS = Path(sys.executable).with_name("iris")


class Terminal:
    """A tmux server of its own with one window in which one command runs; its exit code is left in a file."""

    def __init__(self, tmux: str, place: Place, columns: int, rows: int) -> None:
        self.command = [tmux, "-S", str(place.folder / "tmux.sock"), "-f", "/dev/null"]
        self.place = place
        self.size = ["-x", str(columns), "-y", str(rows)]
        self.code = place.folder / "code"

    def run(self, command: str) -> None:
        self.tmux(
            "new-session", "-d", *self.size, f"{command}; echo $? > {self.code}.new; mv {self.code}.new {self.code}"
        )

    def tmux(self, *words: str) -> str:
        environment = {name: value for name, value in self.place.env.items() if name != "NO_COLOR"}
        done = subprocess.run(
            [*self.command, *words], env=environment, cwd=self.place.empty, capture_output=True, text=True, check=False
        )
        return done.stdout

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    def keys(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def until(self, holds: Callable[[str], bool], what: str, within_s: float = 90) -> str:
        """The first screen for which that holds."""
        deadline = time.monotonic() + within_s
        while not holds(screen := self.screen()):
            assert not self.code.exists(), f"the program ended before {what}"
            assert time.monotonic() < deadline, f"never saw {what}:\n{screen}"
            time.sleep(0.1)
        return screen

    def end(self, within_s: float = 90) -> int:
        deadline = time.monotonic() + within_s
        while not self.code.exists():
            assert time.monotonic() < deadline, f"it never ended:\n{self.screen()}"
            time.sleep(0.1)
        return int(self.code.read_text())


@pytest.fixture
def terminal(require_program: RequireProgram, tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(require_program("tmux"), Place(tmp_path), 80, 24)
    yield made
    made.tmux("kill-server")
    made.place.assert_nothing_left(30)


def test_the_demo_shows_live_jobs_and_quits_without_a_trace(terminal: Terminal) -> None:
    terminal.run(f"{IRIS} demo")
    terminal.until(lambda s: "/demo/train" in s and "running" in s and "LIVE" in s, "a running job")
    terminal.until(lambda s: "/demo/hello" in s and "succeeded" in s, "a finished job")
    terminal.keys("q")
    terminal.until(lambda s: "Quit the console?" in s, "the question")
    terminal.keys("n")
    terminal.until(lambda s: "Quit the console?" not in s and "/demo/train" in s, "the jobs again")
    terminal.keys("q")
    terminal.until(lambda s: "Quit the console?" in s, "the question")
    terminal.keys("y")
    assert terminal.end() == 0
    terminal.place.assert_nothing_left()
    assert not list(terminal.place.folder.glob("iris-demo-*"))


def test_a_job_s_output_is_found_from_the_list(terminal: Terminal) -> None:
    terminal.run(f"{IRIS} demo")
    terminal.until(lambda s: "/demo/hello" in s, "the job")
    terminal.keys("/")
    terminal.keys("-l", "hello")
    terminal.keys("Enter")
    terminal.until(lambda s: "/demo/hello" in s and "/demo/train" not in s, "only the one job")
    terminal.keys("l")
    terminal.until(lambda s: "hello from /demo/hello/0" in s, "its log")
    terminal.keys("Escape")
    terminal.until(lambda s: "hello from" not in s, "the list again")  # Escape and a letter in one breath would be Alt
    terminal.keys("q")
    terminal.until(lambda s: "Quit the console?" in s, "the question")
    terminal.keys("y")
    assert terminal.end() == 0
