"""A full disk under the controller and its log store (targets R6): one clear error, reads go on, nothing is lost, no restart is needed."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris_controller.checkpoint.choose import Wish, prepare
from iris_controller.store.database import (
    StateDamaged,
    StateDir,
    StateDirError,
    check_integrity,
    migrate,
    open_reader,
    open_writer,
)
from iris_core.contracts import RpcFailed
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2
from providers.fake.objects import FakeStore
from tests.conftest import RequireService
from tests.integration.served import Served, launch, lines, status, task, wait_jobs, wait_marks

SIZE = 64 << 20


@pytest.fixture
def small_disk(tmp_path: Path, require_service: RequireService) -> Iterator[Path]:
    """`tmp_path/state` as a file system of 64 MiB."""
    require_service(os.geteuid() == 0, "mounting a small file system needs root")
    state = tmp_path / "state"
    state.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(state)], check=False, capture_output=True
    )
    require_service(mounted.returncode == 0, f"cannot mount a tmpfs: {mounted.stderr.decode(errors='replace')}")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", "-l", str(state)], check=True)


def fill(state: Path) -> Path:
    """Takes every byte that is left."""
    path = state / "filler"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    return path


@pytest.mark.timeout(180)
def test_submits_fail_clearly_and_go_on_once_there_is_room(small_disk: Path) -> None:
    environment = Served(small_disk, cpu=8)
    environment.start()
    try:
        with environment.client() as client:
            launch(client, "/t/before", ["sh", "-c", "echo one; sleep 6; echo two"])
            deadline = time.monotonic() + 60
            while task(client, "/t/before/0").task.state != common_pb2.TASK_STATE_RUNNING:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            filler = fill(environment.state)
            refused: list[RpcFailed] = []
            acked: list[str] = []
            for n in range(400):
                if refused:
                    break
                name = f"/t/full{n}"
                request = controller_pb2.LaunchJobRequest(name=name, replicas=50)
                request.entrypoint.run_command.argv.extend(["true", "x" * 20_000])
                request.resources.cpu_millicores = 1_000_000
                try:
                    client.call("ControllerService/LaunchJob", request, controller_pb2.LaunchJobResponse, timeout_s=5)
                    acked.append(name)
                except RpcFailed as error:
                    refused.append(error)
            assert refused, "the disk never became full"
            assert {(e.status, e.code) for e in refused} == {("UNAVAILABLE", "store_unwritable")}
            assert refused[0].retry_after_ms > 0 and "\n" not in refused[0].message
            assert status(client, "/t/before").job_id == "/t/before", "reads go on"
            answer = client.call(
                "ControllerService/GetClusterStatus",
                controller_pb2.GetClusterStatusRequest(),
                controller_pb2.GetClusterStatusResponse,
            )
            assert not answer.ready and any("refuses writes" in p for p in answer.problems)
            filler.unlink()
            deadline = time.monotonic() + 60
            while True:
                try:
                    launch(client, "/t/after", ["sh", "-c", "echo three"], request_id="after")
                    break
                except RpcFailed:
                    assert time.monotonic() < deadline, "it does not recover without a restart"
                    time.sleep(0.2)
            states = wait_jobs(client, ["/t/before", "/t/after"], 60)
            assert set(states.values()) == {common_pb2.JOB_STATE_SUCCEEDED}
            request_states = controller_pb2.GetJobStateRequest(job_ids=acked)
            known = client.call("ControllerService/GetJobState", request_states, controller_pb2.GetJobStateResponse)
            assert sorted(known.states) == sorted(acked), "what was acknowledged is there"
            for name, expected in (("/t/before", ["one", "two"]), ("/t/after", ["three"])):
                shown = task(client, f"{name}/0")
                wait_marks(client, {shown.task.attempt_uid: shown.attempts[-1].log_lines}, 60)
                assert [e.data for e in lines(client, name)] == expected
            for name in acked:
                client.call(
                    "ControllerService/TerminateJob",
                    controller_pb2.TerminateJobRequest(job_id=name),
                    controller_pb2.TerminateJobResponse,
                )
    finally:
        environment.end()


def test_a_full_disk_at_boot_is_no_damage_and_brings_no_older_state_back(small_disk: Path) -> None:
    """What a killed controller left needs room to be opened: without it the state is kept, and no checkpoint takes its place."""
    state = StateDir(small_disk / "state")
    state.database.parent.mkdir(parents=True)
    connection = open_writer(state.database)
    migrate(connection, 1)
    connection.execute("INSERT INTO meta (key, value) VALUES ('kept', 'yes')")
    copies = {path: path.read_bytes() for path in (state.database, Path(f"{state.database}-wal"))}
    connection.close()
    for path, data in copies.items():
        path.write_bytes(data)
    Path(f"{state.database}-shm").unlink(missing_ok=True)
    checkpoints = FakeStore()
    filler = fill(state.path)
    with pytest.raises(StateDirError, match=r"cannot be read now: .*its disk is full \(\d+ bytes free\)") as caught:
        check_integrity(state.database)
    assert not isinstance(caught.value, StateDamaged) and "make room there" in caught.value.hint
    with pytest.raises(StateDirError, match="cannot be read now"):
        prepare(state, checkpoints, Wish(), 2)
    assert copies == {path: path.read_bytes() for path in copies}
    filler.unlink()
    check_integrity(state.database)
    reader = open_reader(state.database)
    assert reader.execute("SELECT value FROM meta WHERE key = 'kept'").fetchone()[0] == "yes"
    reader.close()
