"""The embedded cluster from start to end, and the demo: every ending leaves no process, and tasks get their grace."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from typing import TYPE_CHECKING

import pytest

from providers.local.processes import Known, start_time
from tests.integration.local_cluster import LocalCluster, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

GRACEFUL = "trap 'echo INT >>%s' INT; trap 'echo TERM >>%s; sleep 1; echo clean >>%s; exit 0' TERM; echo up; while :; do sleep .1; done"
STUBBORN = "trap '' TERM INT; echo up; while :; do sleep .1; done"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A home; whatever a failed test leaves running in it is ended."""
    made = Place(tmp_path)
    yield made
    made.assert_nothing_left()


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[LocalCluster]:
    """A cluster that the test starts and ends itself; a failed test leaves nothing either."""
    made = LocalCluster(tmp_path)
    yield made
    made.close()


@pytest.fixture
def local(stopped: LocalCluster) -> LocalCluster:
    """A running cluster."""
    stopped.start()
    return stopped


def until(check: Callable[[], object], what: str, within_s: float = 90) -> None:
    deadline = time.monotonic() + within_s
    while not check():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def endpoint(local: LocalCluster) -> dict[str, object]:
    found = json.loads((local.state / "endpoint.json").read_text())
    assert isinstance(found, dict)
    return found


def test_ctrl_c_gives_tasks_their_grace_and_says_what_it_waits_for(local: LocalCluster, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    local.job("ints", "sh", "-c", GRACEFUL % (marks, marks, marks), wait=False)
    local.until("job", "logs", "/t/ints", has="up")
    local.signal(signal.SIGINT)
    assert local.process is not None
    assert local.process.wait(60) == 0
    assert marks.read_text() == "TERM\nclean\n"
    assert "SIGINT: stopping. Running tasks get up to 20 s to end" in local.messages
    assert "Stopped after " in local.messages
    local.end()
    local.start()
    state = local.cli("job", "describe", "/t/ints").out
    assert "State: failed" not in state
    local.cli("job", "cancel", "/t/ints")
    local.end()


def test_a_second_ctrl_c_does_not_wait(local: LocalCluster) -> None:
    local.job("stubborn", "sh", "-c", STUBBORN, wait=False)
    local.until("job", "logs", "/t/stubborn", has="up")
    local.signal(signal.SIGINT)
    until(lambda: "stopping" in local.messages, "it never said that it stops")
    began = time.monotonic()
    local.signal(signal.SIGINT)
    assert local.end() == 0
    assert time.monotonic() - began < 18
    assert "Not waiting: tasks are killed now." in local.messages


def test_term_ends_it_like_ctrl_c(local: LocalCluster) -> None:
    local.signal(signal.SIGTERM)
    # Ending it sends another signal, and of two that wait the one with the lower number is seen first.
    until(lambda: "SIGTERM: stopping" in local.messages, "it never said that it stops")
    assert local.end() == 0


def test_kill_nine_of_the_starter_takes_everything_with_it(local: LocalCluster) -> None:
    local.job("orphan", "sleep", "618", wait=False)
    local.until("task", "list", "/t/orphan", has="running")
    assert local.process is not None
    local.process.kill()
    local.process.wait()
    until(lambda: not local.ours(), "something outlived its starter", 60)
    done = local.cli("job", "list")
    assert (done.code, done.out) == (1, "")
    assert done.err == "Error: the local cluster is not running; start one with `iris-core cluster start --local`\n"


def test_a_controller_that_dies_is_started_again_at_the_same_address(local: LocalCluster) -> None:
    submitted = local.popen(
        "--cluster=local",
        "job",
        "run",
        "--no-sync",
        "--job-name",
        "survivor",
        "--",
        "sh",
        "-c",
        "echo up; sleep 6; echo over",
    )
    assert submitted.stdout is not None
    while b"up" not in submitted.stdout.readline():
        assert submitted.poll() is None
    before = endpoint(local)
    os.kill(int(str(before["pid"])), signal.SIGKILL)
    until(lambda: endpoint(local)["pid"] != before["pid"], "no other controller came")
    after = endpoint(local)
    assert after["url"] == before["url"]
    assert after["boot_id"] != before["boot_id"]
    out, err = submitted.communicate(timeout=60)
    assert submitted.returncode == 0, err
    assert b"over" in out
    assert b"Traceback" not in err
    assert "the controller ended by SIGKILL; starting it again" in local.messages


def test_a_second_one_is_refused_and_the_first_goes_on(local: LocalCluster) -> None:
    second = local.run("cluster", "start", "--local")
    assert second.code == 1
    assert f"a local cluster is running already at {local.url} (pid " in second.err
    assert second.err.count("\n") == 1
    assert local.cli("cluster", "status").code == 0


def test_state_outlives_the_cluster_and_fresh_moves_it_aside(local: LocalCluster) -> None:
    assert local.job("kept", "true").code == 0
    local.end()
    local.start()
    assert local.cli("job", "list", "-o", "name").out == "/t/kept\n"
    local.end()
    local.options = ("--fresh",)
    local.start()
    assert local.cli("job", "list", "-o", "name").out == ""
    assert "The previous state was moved to" in local.messages
    assert [path.name for path in local.state.parent.iterdir() if path.name.startswith("local.")]
    local.end()


def test_a_state_folder_that_cannot_be_written_is_one_line(place: Place) -> None:
    (place.home / ".local").mkdir()
    (place.home / ".local" / "state").write_text("in the way")
    done = place.run("cluster", "start", "--local")
    assert done.code == 1
    assert done.err.startswith(f"Error: cannot write to {place.home}/.local/state/iris/local")
    assert done.err.count("\n") == 1
    place.assert_nothing_left()


def test_the_record_of_the_cluster_is_private(local: LocalCluster) -> None:
    assert (local.state / "endpoint.json").stat().st_mode & 0o777 == 0o600
    assert local.state.stat().st_mode & 0o777 == 0o700
    pid = int(str(endpoint(local)["pid"]))
    assert start_time(pid) == endpoint(local)["start"]


def test_serve_is_the_controller_s_own_program(place: Place, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("name: c\nplatform: {local: }\nworker_provider: {}\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = (
            "cluster",
            "controller",
            "serve",
            "--config",
            str(config),
            "--state-dir",
            str(tmp_path / "s"),
            "--port",
            port,
        )
        done = place.run(*words)
        config.write_text(
            f"name: c\nplatform: {{local: }}\ncontroller: {{local: {{port: {port}}}}}\nworker_provider: {{}}\n"
        )
        named = place.run(*words[:-2])
    assert (done.code, named.code) == (1, 1)
    for said in (done.err, named.err):
        assert f"Error: cannot listen: port {port} on 127.0.0.1 is in use" in said
    assert "choose another with --port" in done.err and "choose another port in the cluster file" in named.err
    unknown = place.run("cluster", "controller", "serve", "--config", str(tmp_path / "none.yaml"))
    assert unknown.code == 2
    end_finelog(tmp_path / "s")
    place.assert_nothing_left()


def end_finelog(state: Path) -> None:
    """A served controller leaves its log store for the next one."""
    try:
        record = json.loads((state / "finelog" / "endpoint.json").read_text())
    except OSError:
        return
    known = Known(int(record["pid"]), int(record["start_time"]))
    known.signal(signal.SIGTERM)
    assert known.wait_gone(60)


def test_the_demo_without_a_terminal_shows_everything_and_leaves_nothing(place: Place, tmp_path: Path) -> None:
    done = place.run("demo", timeout_s=120)
    assert done.code == 0, done.err
    for text in ("/demo/hello", "/demo/train", "/demo/fails", "train/loss", "pending, 0 running", "/demo/too-large"):
        assert text in done.out
    assert "exit code 3" in done.out
    place.assert_nothing_left()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("iris-demo")] == []
    assert not (place.home / ".local/state/iris/local").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_demo_that_is_cut_short_leaves_nothing(place: Place, tmp_path: Path, number: signal.Signals) -> None:
    process = place.popen("demo", group=True)
    state = tmp_path
    until(lambda: list(state.glob("iris-demo-*/state/workers/*/supervisor.json")), "the demo never came up", 60)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert b"Traceback" not in err
    assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    place.assert_nothing_left(30 if number == signal.SIGKILL else 5)
    if number != signal.SIGKILL:
        assert not list(tmp_path.glob("iris-demo-*"))


def test_the_demo_ends_although_nobody_reads_it(place: Place) -> None:
    process = place.popen("demo")
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 141
    assert b"Traceback" not in err
    place.assert_nothing_left()
