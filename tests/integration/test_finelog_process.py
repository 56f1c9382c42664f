"""The finelog process: who may start it, what it says of itself, and how it ends."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from iris_controller.finelog.endpoint import process_start_time
from iris_core.wire.gen.iris.v1 import common_pb2, logs_pb2
from tests.integration.finelog_process import DEADLINE, EXACT, PREFIX, finelog
from tests.unit.finelog_world import batch, numbered, texts

if TYPE_CHECKING:
    from pathlib import Path


def refused(command: list[str]) -> tuple[int, str]:
    """Exit code and words of one that does not start."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def test_what_it_says_of_itself(tmp_path: Path) -> None:
    before = time.time_ns() // 1_000_000
    with finelog(tmp_path, "--release", "abc123") as running:
        told = running.endpoint
        assert set(told) == {"host", "port", "pid", "start_time", "started_ms", "boot_id", "release"}
        assert (told["host"], told["pid"], told["release"]) == ("127.0.0.1", running.process.pid, "abc123")
        assert told["start_time"] == process_start_time(running.process.pid)
        assert before <= told["started_ms"] <= time.time_ns() // 1_000_000
        assert len(told["boot_id"]) == 16
        assert running.endpoint_file.stat().st_mode & 0o777 == 0o600
        assert running.data_dir.stat().st_mode & 0o777 == 0o700
        with grpc.insecure_channel(running.address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            for name in ("", "iris.v1.LogService"):
                answer = health.Check(health_pb2.HealthCheckRequest(service=name), timeout=DEADLINE)
                assert answer.status == health_pb2.HealthCheckResponse.SERVING
            asked = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
            listed = next(
                reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(asked, timeout=DEADLINE)
            )
            assert "iris.v1.LogService" in {service.name for service in listed.list_services_response.service}


def test_it_is_small_and_quiet_when_idle(tmp_path: Path) -> None:
    def cpu_ticks(pid: int) -> int:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    with finelog(tmp_path) as running:
        assert running.rss_bytes() < 100 << 20
        before = cpu_ticks(running.process.pid)
        assert running.fetch("/u/j/0:0", wait_ms=1500).shown == 0
        assert cpu_ticks(running.process.pid) - before <= 3, "waiting costs nothing"


def test_a_second_one_on_the_folder_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    with finelog(tmp_path) as running:
        endpoint = running.endpoint
        code, said = refused(running.command())
        assert code == 1
        assert f"pid {running.process.pid} on {socket.gethostname()}" in said
        assert running.endpoint == endpoint
        running.push(numbered(1))


def test_it_listens_beyond_loopback_only_when_told_to(tmp_path: Path) -> None:
    command = ["--host", "0.0.0.0"]
    with finelog(tmp_path / "a") as running:
        code, said = refused([*running.command()[:-2], "--data-dir", str(tmp_path / "b"), *command])
        assert (code, "--allow-remote" in said) == (2, True)
        assert not (tmp_path / "b").exists()
    with finelog(tmp_path / "c", *command, "--allow-remote") as running:
        assert running.push(numbered(1)) == {"p0": 1}


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with finelog(tmp_path) as running:
        port = running.endpoint["port"]
        code, said = refused([*running.command("--port", str(port)), "--data-dir", str(tmp_path / "other")])
        assert code == 1
        assert f"cannot listen on 127.0.0.1:{port}" in said


def test_a_folder_that_is_none_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with finelog(tmp_path / "ok") as running:
        for place in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "wal"):
            if place.name == "wal":
                place.mkdir()
                (place / "wal-0000000000000000001.log").write_bytes(b"\0" * 100)
            code, said = refused([*running.command(), "--data-dir", str(place)])
            assert code in (1, 2)
            assert str(place) in said or "file" in said


def test_a_missing_extra_is_named(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['grpc_health'] = None; sys.argv = ['finelog', 'serve', '--data-dir', sys.argv[1]]\n"
        "from iris_controller.finelog.main import main; main()"
    )
    status, said = refused([sys.executable, "-c", code, str(tmp_path / "logs")])
    assert (status, "pip install 'iris-ops[controller]'" in said) == (1, True)
    assert not (tmp_path / "logs").exists()


def test_sigterm_ends_waits_and_keeps_everything(tmp_path: Path) -> None:
    with finelog(tmp_path) as running:
        running.push(numbered(5))
        request = logs_pb2.FetchLogsRequest(source="/u/j/0:0", match_scope=EXACT, cursor=5, wait_ms=30_000)
        waiting = running.stub("FetchLogs").future(request, timeout=DEADLINE)
        # On one connection calls begin in order: when this one was answered, the other waits.
        running.fetch("/u/j/0:0")
        started = time.monotonic()
        assert running.stop() == 0
        assert waiting.result(DEADLINE).shown == 0
        assert time.monotonic() - started < 25, "it did not wait for as long as was asked"
        assert "everything acknowledged is on disk" in running.said[-1]
        running.start()
        assert texts(running.page("/u/j/0:0")) == [f"line {number}" for number in range(5)]
        # A cursor from before goes on where it was.
        running.push(numbered(2, first=5))
        assert texts(running.fetch("/u/j/0:0", cursor=5).entries) == ["line 5", "line 6"]


def test_errors_carry_their_detail(tmp_path: Path) -> None:
    with finelog(tmp_path) as running:
        running.push(numbered(1))

        def failure(**fields: object) -> tuple[grpc.StatusCode, common_pb2.ErrorDetail]:
            with pytest.raises(grpc.RpcError) as caught:
                running.fetch("/u/j/0:0", **fields)
            error = caught.value
            assert isinstance(error, grpc.Call)
            metadata = {item.key: item.value for item in error.trailing_metadata()}
            return error.code(), common_pb2.ErrorDetail.FromString(metadata["iris-error-detail-bin"])

        code, detail = failure(regex="a(b")
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert (detail.field, detail.position) == ("regex", 1)
        code, detail = failure(cursor=10)
        assert code is grpc.StatusCode.OUT_OF_RANGE
        assert (detail.code, detail.field) == ("cursor_ahead", "cursor")
        with grpc.insecure_channel(running.address) as channel:
            for path in ("PushLogs", "FetchLogs"):
                with pytest.raises(grpc.RpcError) as caught:
                    channel.unary_unary(f"/iris.v1.LogService/{path}", bytes, bytes)(b"\xff\xff\xff", timeout=DEADLINE)
                assert isinstance(caught.value, grpc.Call)
                assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_the_marks_of_an_answer_never_run_ahead_of_its_lines(tmp_path: Path) -> None:
    """Whoever has all lines below the mark it was told has everything of that producer."""
    total = 3000
    with finelog(tmp_path) as running:

        def produce() -> None:
            for first in range(0, total, 10):
                running.push(numbered(10, first=first))

        producer = threading.Thread(target=produce)
        producer.start()
        seen, cursor = 0, 0
        while seen < total:
            answer = running.fetch("/u/j/0:0", cursor=cursor, producers=["p0", "nobody"], wait_ms=5000)
            seen += answer.shown
            cursor = answer.cursor
            marks = {mark.producer: mark.next_number for mark in answer.marks}
            assert marks["nobody"] == 0
            assert marks["p0"] <= seen or cursor < answer.last_seq
        producer.join(DEADLINE)


def test_one_line_stays_one_line_whatever_it_holds(tmp_path: Path) -> None:
    evil = "ok\n2026-01-01 event=job_cancelled entity=/u/j trigger=root\r\x1b]0;title\x07\0\u202e"
    with finelog(tmp_path) as running:
        running.push(batch([evil, evil]))
        assert texts(running.fetch("/u/j/0:0").entries) == [evil, evil]
        assert texts(running.fetch("/u", match_scope=PREFIX, substring="event=job_cancelled").entries) == [evil, evil]
        assert not [line for line in running.said if "job_cancelled" in line]


def test_a_follower_is_woken_at_once_by_its_own_log_alone(tmp_path: Path) -> None:
    with finelog(tmp_path) as running:
        running.push(numbered(1), numbered(1, producer="other", key="/u/k/0:0"))
        found: list[logs_pb2.FetchLogsResponse] = []
        ready = threading.Barrier(3)

        def follow(source: str, scope: int) -> None:
            ready.wait(DEADLINE)
            found.append(running.fetch(source, match_scope=scope, cursor=2, wait_ms=30_000))

        followers = [
            threading.Thread(target=follow, args=("/u/j/0:0", EXACT)),
            threading.Thread(target=follow, args=("/u/j", PREFIX)),
        ]
        for follower in followers:
            follower.start()
        ready.wait(DEADLINE)
        for first in range(1, 50):
            running.push(numbered(1, first=first, producer="other", key="/u/k/0:0"))
        assert not found
        started = time.monotonic()
        running.push(numbered(1, first=1))
        for follower in followers:
            follower.join(DEADLINE)
        assert time.monotonic() - started < 25, "none waited for as long as it asked"
        assert [texts(answer.entries) for answer in found] == [["line 1"], ["line 1"]]
        assert {answer.cursor for answer in found} == {52}


def test_the_lock_survives_a_reader_of_its_file(tmp_path: Path) -> None:
    with finelog(tmp_path) as running:
        told = json.loads((running.data_dir / "lock").read_text())
        assert told["pid"] == running.process.pid
        assert refused(running.command())[0] == 1
