"""A running task looked into from the console, in a real terminal on a real cluster: its hot function in the flame graph, where it
stands, and the controller's own row."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.integration.local_cluster import Place
from tests.integration.tmux_terminal import IRIS, Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import RequireProgram
    from tests.integration.local_cluster import LocalCluster

BUSY = """
def very_hot_function():
    x = 0
    for i in range(200_000):
        x += i * i
while True:
    very_hot_function()
"""


@pytest.fixture
def terminal(require_program: RequireProgram, tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(require_program("tmux"), Place(tmp_path), 120, 40)
    yield made
    made.tmux("kill-server")
    made.place.assert_nothing_left(30)


def test_a_capture_of_a_running_task_opens_as_its_flame_graph(cluster: LocalCluster, terminal: Terminal) -> None:
    job = cluster.job("flaming", sys.executable, "-c", BUSY, options=("--memory", "128MB"), wait=False).out.strip()
    terminal.run(f"{IRIS} --controller-url {cluster.url}")
    terminal.until(lambda s: job in s and "running" in next(line for line in s.splitlines() if job in line), "the job")
    terminal.tmux("send-keys", "-l", f":capture {job}/0 cpu 1")
    terminal.keys("Enter")
    terminal.until(
        lambda s: "[flame graph]" in s and "very_hot_function (<string>)" in s, "the hot function in the graph"
    )
    terminal.keys("Tab")
    rows = terminal.until(lambda s: "[functions]" in s, "the functions").splitlines()
    assert "very_hot_function" in next(line for line in rows if line.startswith("▌")), "the hottest comes first"
    terminal.tmux("send-keys", "-l", f":hang {job}")
    terminal.keys("Enter")
    terminal.until(lambda s: f"1 task, {job}/0" in s and "very_hot_function" in s, "where it stands")
    terminal.keys("Escape")
    terminal.until(lambda s: "Hang" not in s, "what was below")
    terminal.keys("v", "r")
    terminal.until(lambda s: "Loop" in s and "late by" in s and "checkpoints" in s, "the controller's own row")
    cluster.cli("job", "cancel", job)
