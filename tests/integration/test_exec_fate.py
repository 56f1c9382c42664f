"""`task exec` when its answer does not come: it runs at most once, and it ends with whoever asked for it.

Real controller, workers and command lines; each of them is killed or interrupted in the middle of a command.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iris_controller.worker import procs
from iris_core.wire.gen.iris.v1 import common_pb2
from tests.integration.served import Served, launch, served, task

PROGRAM = str(Path(sys.executable).with_name("iris-core"))
TASK = "/u/a/0"
SCRIPT = 'echo $$ >>"$1"; sleep 6171 & wait; sleep 6172'
"""Says that it ran, then stands for ever, with a child."""


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path, workers=2) as found:
        with found.client() as client:
            launch(client, "/u/a", ["sleep", "6170"])
        until(lambda: running(found))
        yield found


def until(true: Callable[[], object], timeout_s: float = 90) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.02)


def running(environment: Served) -> bool:
    with environment.client() as client:
        return task(client, TASK).task.state == common_pb2.TASK_STATE_RUNNING


def started(environment: Served, ran: Path, *options: str, script: str = SCRIPT) -> subprocess.Popen[str]:
    """`task exec` of a command that says in `ran` that it began; back when it did."""
    words = [PROGRAM, "--controller-url", environment.url, *options]
    words += ["task", "exec", TASK, "--timeout", "-1", "--", "sh", "-c", script, "sh", str(ran)]
    env = {"PATH": os.environ["PATH"], "HOME": str(environment.folder), "IRIS_USER": "u"}
    process = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(lambda: ran.exists() and ran.read_text().endswith("\n"))
    return process


def session_of(ran: Path) -> int:
    """The session of the command, which ran once."""
    (said,) = ran.read_text().split()
    return int(said)


def living(session: int) -> list[int]:
    return [proc.pid for proc in procs.snapshot() if proc.session == session and not proc.dead]


def assert_not_known(process: subprocess.Popen[str]) -> None:
    out, err = process.communicate(timeout=90)
    assert process.returncode == 1, err
    assert out == ""
    assert f"exec in {TASK}: not known whether it ran: " in err
    assert f"task describe {TASK}, " in err and err.endswith(f"task exec {TASK} -- ps -ef\n")
    assert "trying again" not in err


@pytest.mark.parametrize("transport", ["auto", "http"])
def test_a_controller_that_is_killed_meanwhile_has_it_run_once(
    environment: Served, tmp_path: Path, transport: str
) -> None:
    ran = tmp_path / "ran"
    process = started(environment, ran, "--transport", transport)
    environment.kill()
    environment.start()
    assert_not_known(process)
    # Its worker heard that the stream broke, and nobody will ask for the answer.
    until(lambda: not living(session_of(ran)))
    assert running(environment), "the task itself goes on"


def test_a_worker_that_is_killed_meanwhile_has_it_run_once_although_the_task_begins_again(
    environment: Served, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    with environment.client() as client:
        first = task(client, TASK).task
    process = started(environment, ran)
    os.kill(environment.worker_pid(first.worker_id), signal.SIGKILL)
    assert_not_known(process)

    def again() -> bool:
        with environment.client() as client:
            now = task(client, TASK).task
        return now.attempt_uid != first.attempt_uid and now.state == common_pb2.TASK_STATE_RUNNING

    until(again)
    assert len(ran.read_text().split()) == 1


@pytest.mark.parametrize("transport", ["auto", "grpc", "http"])
def test_ctrl_c_ends_the_command_with_its_children_and_says_so(
    environment: Served, tmp_path: Path, transport: str
) -> None:
    ran = tmp_path / "ran"
    process = started(environment, ran, "--transport", transport)
    until(lambda: len(living(session_of(ran))) == 2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=90)
    assert (process.returncode, out, err) == (130, "", f"interrupted: the command was ended in {TASK}\n")
    assert not living(session_of(ran))
    assert running(environment)


def test_a_command_that_ignores_term_is_killed_when_its_caller_is(environment: Served, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    process = started(environment, ran, script=f"trap '' TERM; {SCRIPT}")
    process.kill()
    process.communicate(timeout=90)
    until(lambda: not living(session_of(ran)))
