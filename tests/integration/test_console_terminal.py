"""The console in a real terminal, tmux's, as a person meets it: `iris demo` shows live jobs, and quitting leaves nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.local_cluster import Place
from tests.integration.tmux_terminal import IRIS, Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import RequireProgram


@pytest.fixture
def terminal(require_program: RequireProgram, tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(require_program("tmux"), Place(tmp_path), 80, 24)
    yield made
    made.close()
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
