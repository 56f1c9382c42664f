"""`kill -9` of the controller, the log store and workers: nothing acknowledged is lost, nothing runs twice, no line is missing or doubled.

Reduced with fixed seeds here; `IRIS_SOAK=1` runs the full size (issue: at least 30 rounds of 200 submits and finishes).
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from iris_core.contracts import IrisError
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2
from tests.integration.served import Served, launch, lines, served, status, task, wait_jobs, wait_marks

SOAK = os.environ.get("IRIS_SOAK") == "1"
ROUNDS = 30 if SOAK else 4
JOBS = 240 if SOAK else 24

# Says each line twice: to its output, and to a file of its attempt; the file also proves that no two attempts ran at once.
SCRIPT = """
out="$1/$IRIS_ATTEMPT_UID"; name=$(echo "$IRIS_JOB_ID" | tr / _)
echo "start $IRIS_ATTEMPT_UID $$" >>"$1/runs$name"
i=0; while [ $i -lt 12 ]; do echo "line $i of $IRIS_ATTEMPT_UID"; echo "line $i of $IRIS_ATTEMPT_UID" >>"$out"; i=$((i+1)); sleep 0.05; done
echo "end $IRIS_ATTEMPT_UID $$" >>"$1/runs$name"
"""


class Load(threading.Thread):
    """Submits jobs one after the other and remembers those that were acknowledged."""

    def __init__(self, environment: Served, prefix: str, count: int, out: Path) -> None:
        super().__init__(daemon=True)
        self.environment, self.prefix, self.count, self.out = environment, prefix, count, out
        self.acked: list[str] = []
        self.unsure: list[str] = []

    def run(self) -> None:
        with self.environment.client() as client:
            for n in range(self.count):
                name = f"/k/{self.prefix}-{n}"
                try:
                    launch(client, name, ["sh", "-c", SCRIPT, "sh", str(self.out)], request_id=name)
                    self.acked.append(name)
                except IrisError:
                    self.unsure.append(name)


def check_database(environment: Served) -> None:
    """I4: the file is whole, keys match, and what workers hold is the sum of unfinished attempts."""
    connection = sqlite3.connect(environment.state / "db" / "controller.sqlite3")
    assert connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    held = "SELECT sum(c.res_cpu_millicores) FROM task_attempts a JOIN tasks t USING (task_id) JOIN job_config c USING (job_id)"
    for worker_id, committed in connection.execute("SELECT worker_id, committed_cpu_millicores FROM workers"):
        total = connection.execute(f"{held} WHERE a.worker_id=? AND a.finished_at_ms IS NULL", (worker_id,)).fetchone()[
            0
        ]
        assert committed == (total or 0), worker_id
    twice = connection.execute(
        "SELECT task_id FROM task_attempts WHERE finished_at_ms IS NULL GROUP BY 1 HAVING count(*) > 1"
    )
    assert twice.fetchall() == []
    connection.close()


def check_jobs(environment: Served, names: list[str], out: Path, attempts: int | None = 1) -> None:
    """Every job succeeded, its attempts did not overlap, and its log is exactly what it wrote."""
    with environment.client() as client:
        states = wait_jobs(client, names, 120)
        assert set(states.values()) == {common_pb2.JOB_STATE_SUCCEEDED}, {
            n: status(client, n) for n, s in states.items() if s != 4
        }
        wanted: dict[str, int] = {}
        found = {}
        for name in names:
            shown = task(client, f"{name}/0")
            found[name] = shown
            if attempts is not None:
                assert len(shown.attempts) == attempts, shown
            assert shown.attempts[-1].HasField("log_lines")
            wanted[shown.task.attempt_uid] = shown.attempts[-1].log_lines
        wait_marks(client, wanted)
        for name in names:
            uid = found[name].task.attempt_uid
            stored = [e for e in lines(client, name) if e.attempt_uid == uid]
            assert [e.number for e in stored] == list(range(len(stored)))
            assert [e.data for e in stored] == (out / uid).read_text().splitlines(), name
            runs = (out / f"runs{name.replace('/', '_')}").read_text().split()
            kinds, uids = runs[0::3], runs[1::3]
            if attempts == 1:
                assert kinds == ["start", "end"] and len(set(uids)) == 1, runs
    check_database(environment)


@pytest.mark.soak
@pytest.mark.timeout(3600 if SOAK else 300)
def test_kill_of_the_controller(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    chance = random.Random(20)
    with served(tmp_path, cpu=16) as environment:
        names: list[str] = []
        for turn in range(ROUNDS):
            load = Load(environment, f"c{turn}", max(6, JOBS // ROUNDS), out)
            load.start()
            time.sleep(chance.uniform(0.05, 1.5))
            environment.kill()
            time.sleep(chance.uniform(0.0, 0.5))
            environment.start()
            load.join(120)
            assert not load.is_alive()
            assert not load.unsure, "a client retries with the same request id until the controller is back"
            names.extend(load.acked)
        check_jobs(environment, names, out)


@pytest.mark.soak
@pytest.mark.timeout(3600 if SOAK else 300)
def test_kill_of_the_log_store(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    chance = random.Random(21)
    with served(tmp_path, cpu=16) as environment:
        names: list[str] = []
        for turn in range(ROUNDS):
            load = Load(environment, f"f{turn}", max(6, JOBS // ROUNDS), out)
            load.start()
            time.sleep(chance.uniform(0.05, 1.0))
            environment.finelog().signal(signal.SIGKILL)
            load.join(120)
            assert not load.unsure
            names.extend(load.acked)
        check_jobs(environment, names, out)


@pytest.mark.timeout(300)
def test_kill_of_a_worker(tmp_path: Path) -> None:
    """Done-when 4: its tasks are retried by the budget rules, and within 5 s nothing of its attempts survives."""
    beat = tmp_path / "beat"
    body = f"while :; do echo $IRIS_ATTEMPT_UID $$ >>{beat}; sleep 0.05; done"
    with served(tmp_path, workers=2) as environment, environment.client() as client:
        launch(client, "/k/keep", ["sh", "-c", f"sleep 1000 & {body}"])
        launch(client, "/k/once", ["sh", "-c", "sleep 1000"], max_retries_preemption=0)
        deadline = time.monotonic() + 60
        while not all(
            task(client, f"{j}/0").task.state == common_pb2.TASK_STATE_RUNNING for j in ("/k/keep", "/k/once")
        ):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for name in ("/k/keep", "/k/once"):
            first = task(client, f"{name}/0").task
            if first.state != common_pb2.TASK_STATE_RUNNING:
                continue
            pid = environment.worker_pid(first.worker_id)
            mark = f"IRIS_ATTEMPT_UID={first.attempt_uid}".encode()
            os.kill(pid, signal.SIGKILL)
            deadline = time.monotonic() + 60
            while carriers(mark):
                assert time.monotonic() < deadline, f"attempt {first.attempt_uid} is still alive"
                time.sleep(0.05)
            deadline = time.monotonic() + 60
            while task(client, f"{name}/0").task.attempt_uid == first.attempt_uid and name == "/k/keep":
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert wait_jobs(client, ["/k/once"], 30)["/k/once"] == common_pb2.JOB_STATE_WORKER_FAILED
        kept = task(client, "/k/keep/0")
        assert kept.attempts[0].state == common_pb2.TASK_STATE_WORKER_FAILED
        assert kept.task.preemption_count >= 1
        request = controller_pb2.TerminateJobRequest(job_id="/k/keep")
        client.call("ControllerService/TerminateJob", request, controller_pb2.TerminateJobResponse)


def carriers(mark: bytes) -> list[int]:
    """Live processes with that variable in their environment."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                if mark in (path / "environ").read_bytes().split(b"\0"):
                    found.append(int(path.name))
            except OSError:
                continue
    return found
