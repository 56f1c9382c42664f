"""`job logs --follow` while many tasks print: a killed log store and a restarted controller lose nothing and double nothing.

What the follower printed is compared with the files that the tasks wrote. Small here; `IRIS_SOAK=1` runs 64 tasks that print 20,000
lines a second together for half a minute.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

from iris_core.wire.gen.iris.v1 import common_pb2
from tests.integration.served import Served, launch, served, wait_jobs

SOAK = os.environ.get("IRIS_SOAK") == "1"
TASKS = 64 if SOAK else 6
ROUNDS = 600 if SOAK else 40
"""Bursts of each task, one every 50 ms."""
BURST = 16 if SOAK else 10
DEADLINE = 600.0 if SOAK else 120.0

SCRIPT = """
import os, sys, time
name = os.environ["IRIS_TASK_ID"].rsplit("/", 1)[1].split(":")[0]
rounds, burst = int(sys.argv[2]), int(sys.argv[3])
with open(os.path.join(sys.argv[1], name), "w") as file:
    due = time.monotonic()
    for turn in range(rounds):
        text = "".join(f"{turn * burst + number} of {name} " + "x" * (number * 7 % 90) + "\\n" for number in range(burst))
        sys.stdout.write(text); sys.stdout.flush()
        file.write(text); file.flush()
        due += 0.05
        time.sleep(max(0.0, due - time.monotonic()))
"""


class Follow:
    """`iris-core job logs JOB -f -o jsonl` with its output in a file."""

    def __init__(self, environment: Served, job: str, folder: Path) -> None:
        self.out, self.err = folder / "followed.jsonl", folder / "followed.err"
        words = [str(Path(sys.executable).with_name("iris-core")), f"--controller-url={environment.url}"]
        words += ["job", "logs", job, "--follow", "--no-tail", "-o", "jsonl"]
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(words, stdout=out, stderr=err, stdin=subprocess.DEVNULL)

    def wait_bytes(self, count: int) -> None:
        """Until it has printed so much more."""
        wanted = self.out.stat().st_size + count
        until = time.monotonic() + DEADLINE
        while self.out.stat().st_size < wanted:
            assert self.process.poll() is None, self.err.read_text()
            assert time.monotonic() < until, f"{self.out.stat().st_size} of {wanted} bytes: {self.err.read_text()}"
            time.sleep(0.02)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.mark.soak
@pytest.mark.timeout(1800 if SOAK else 300)
def test_a_follower_shows_exactly_what_the_tasks_wrote(tmp_path: Path) -> None:
    written = tmp_path / "written"
    written.mkdir()
    with served(tmp_path, cpu=16) as environment, environment.client() as client:
        argv = [sys.executable, "-c", SCRIPT, str(written), str(ROUNDS), str(BURST)]
        launch(client, "/k/many", argv, replicas=TASKS)
        follow = Follow(environment, "/k/many", tmp_path)
        try:
            follow.wait_bytes(20_000)
            environment.finelog().signal(signal.SIGKILL)
            follow.wait_bytes(20_000)
            environment.kill()
            environment.start()
            follow.wait_bytes(20_000)
            assert follow.process.wait(DEADLINE) == 0, follow.err.read_text()
        finally:
            follow.end()
        states = wait_jobs(client, ["/k/many"], DEADLINE)
        assert set(states.values()) == {common_pb2.JOB_STATE_SUCCEEDED}, follow.err.read_text()
    shown: dict[str, list[str]] = defaultdict(list)
    for line in follow.out.read_bytes().splitlines():
        row = json.loads(line)
        if row["source"] == "stdout":
            shown[row["task"].rpartition("/")[2]].append(row["text"])
        assert not row.get("gap"), row
    assert len(shown) == TASKS, follow.err.read_text()
    for name, lines in shown.items():
        assert lines == (written / name).read_text().splitlines(), (name, follow.err.read_text())
        assert len(lines) == ROUNDS * BURST
