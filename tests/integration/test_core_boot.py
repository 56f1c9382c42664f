"""Boot and shutdown in bad weather: broken files, signals at the wrong moment, peers from an earlier life."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from iris_controller import finelog_process, serve
from iris_controller.finelog_process import FinelogProcess
from iris_controller.loop import ControllerLoop
from iris_controller.options import ServeOptions
from iris_controller.store.database import StateDir, StateDirError, migrate, open_writer
from iris_core.config.cluster import parse_config
from iris_core.contracts import IrisError
from iris_core.wire.gen.iris.v1 import common_pb2
from tests.integration.controller_rig import CONFIG, rig
from tests.integration.served import Served, launch, wait_jobs
from tests.integration.test_serve_boot import one_error, refuse
from tests.ports import free_port


def test_state_that_cannot_be_read_is_one_clear_error(tmp_path: Path) -> None:
    state = tmp_path / "s"
    database = state / "db" / "controller.sqlite3"
    database.parent.mkdir(parents=True)
    connection = open_writer(database)
    migrate(connection, 1)
    connection.execute(
        "INSERT INTO jobs (job_id, user_id, root_job_id, depth, state, submitted_at_ms, root_submitted_at_ms, num_tasks,"
        " task_counts_json) VALUES ('/u/a', 'u', '/u/a', 1, 99, 1, 1, 1, '{}')"
    )
    connection.execute(
        "INSERT INTO job_config (job_id, res_cpu_millicores, res_memory_bytes, res_disk_bytes) VALUES ('/u/a', 1, 1, 1)"
    )
    connection.close()
    code, output = refuse(tmp_path, "--state-dir", str(state))
    assert code == 1 and str(database) in one_error(output)
    database.unlink()
    database.mkdir()
    code, output = refuse(tmp_path, "--state-dir", str(state))
    assert code == 1 and str(database) in one_error(output)
    database.rmdir()
    (state / "signing.key").write_text("nonsense")
    (state / "signing.key").chmod(0o600)
    code, output = refuse(tmp_path, "--state-dir", str(state))
    assert code == 1 and "signing.key" in one_error(output)


def test_a_database_that_somebody_else_has_locked_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateDir(tmp_path / "s")
    state.acquire()
    state.release()
    other = sqlite3.connect(state.database, isolation_level=None)
    other.execute("PRAGMA locking_mode=EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    other.execute("CREATE TABLE x (y)")
    monkeypatch.setattr("iris_controller.store.database.BUSY_TIMEOUT_S", 0.1)
    options = ServeOptions(config=parse_config(CONFIG), state_dir=state.path, host="127.0.0.1", port=0, embedded=True)
    with pytest.raises(StateDirError, match="locked"):
        asyncio.run(serve.Controller(options).start())
    other.close()


def test_a_file_system_without_locks_is_not_called_another_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(handle: int, how: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(StateDirError, match="No locks available"):
        StateDir(tmp_path / "s").acquire()


def test_everything_in_the_state_dir_is_the_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        connection = open_writer(tmp_path / "c.sqlite3")
        migrate(connection, 1)
        modes = {p.name: p.stat().st_mode & 0o777 for p in tmp_path.iterdir()}
        assert set(modes) >= {"c.sqlite3", "c.sqlite3-wal"}
        assert set(modes.values()) == {0o600}, modes
        connection.close()
    finally:
        os.umask(before)


def test_a_signal_during_boot_ends_it_soon(tmp_path: Path) -> None:
    environment = Served(tmp_path, workers=0)
    finelog = environment.state / "finelog"
    finelog.mkdir(parents=True)
    # A log store that never gets to serve holds the boot up.
    (finelog / "data").write_text("not a folder")
    words = [sys.executable, "-m", "iris_controller.main", "serve", "--config", str(environment.config)]
    with (tmp_path / "controller.log").open("wb") as log:
        process = subprocess.Popen([*words, "--state-dir", str(environment.state)], stdout=log, stderr=log)
    deadline = time.monotonic() + 60
    while not (environment.state / "lock").exists() or not (environment.state / "env.key").exists():
        assert time.monotonic() < deadline and process.poll() is None, environment.log()
        time.sleep(0.01)
    process.terminate()
    assert process.wait(60) == 0, environment.log()
    assert "Traceback" not in environment.log()
    assert not environment.ours()


def test_a_reader_of_the_ready_line_that_is_gone_is_no_reason_to_stop(tmp_path: Path) -> None:
    environment = Served(tmp_path, workers=0)
    reading, writing = os.pipe()
    words = [sys.executable, "-m", "iris_controller.main", "serve", "--config", str(environment.config)]
    words += ["--state-dir", str(environment.state), "--ready-fd", str(writing)]
    os.close(reading)
    with (tmp_path / "controller.log").open("wb") as log:
        environment.process = subprocess.Popen(words, stdout=log, stderr=log, pass_fds=(writing,))
    os.close(writing)
    deadline = time.monotonic() + 60
    while "serving cluster" not in environment.log():
        assert time.monotonic() < deadline and environment.process.poll() is None, environment.log()
        time.sleep(0.05)
    with environment.client() as client:
        launch(client, "/u/a", ["true"])
    environment.end()


@pytest.mark.timeout(120)
def test_workers_of_an_earlier_controller_at_another_address_come_to_this_one(tmp_path: Path) -> None:
    environment = Served(tmp_path, workers=1)
    environment.start()
    try:
        with environment.client() as client:
            launch(client, "/t/one", ["true"])
            wait_jobs(client, ["/t/one"])
        environment.kill()
        old = environment.port
        environment.port = free_port()
        environment.url = f"http://127.0.0.1:{environment.port}"
        environment.config.write_text(environment.config.read_text().replace(str(old), str(environment.port)))
        environment.start()
        with environment.client() as client:
            launch(client, "/t/two", ["true"])
            assert wait_jobs(client, ["/t/two"], 60)["/t/two"] == common_pb2.JOB_STATE_SUCCEEDED
        assert len(environment.supervisors()) == 1
    finally:
        environment.end()


@pytest.mark.asyncio
async def test_a_log_store_that_hangs_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finelog_process, "PROBE_S", 0.5)
    first = FinelogProcess(tmp_path)
    await first.start()
    assert first.address
    known = first._known
    assert known is not None
    os.kill(known.pid, signal.SIGSTOP)
    second = FinelogProcess(tmp_path)
    try:
        await second.start()
        assert second.address and second._known != known
        assert not known.alive
        # One that stops answering later is found too.
        monkeypatch.setattr(finelog_process, "PROBE_EVERY_S", 0.1)
        hung = second._known
        assert hung is not None
        os.kill(hung.pid, signal.SIGSTOP)
        running = asyncio.create_task(second.run())
        async with asyncio.timeout(30):
            await asyncio.to_thread(hung.wait_gone, 30)
            while second._known in (hung, None):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert not hung.alive and second.address
    finally:
        if first._child is not None:
            first._child.wait(60)
        assert await second.stop()


@pytest.mark.asyncio
async def test_a_log_store_slow_to_start_is_neither_doubled_nor_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finelog_process, "START_S", 0.0)
    store = FinelogProcess(tmp_path)
    await store.start()
    child = store._child
    assert not store.address and child is not None
    await store._launch()
    assert store._child is child
    await store.stop()
    assert child.poll() is not None


@pytest.mark.asyncio
async def test_a_controller_whose_loop_died_ends_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig(tmp_path) as r:

        def broken(*_: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(ControllerLoop, "_finish", broken)
        with contextlib.suppress(IrisError):
            # It is committed, so a repeat may get the stored answer; nobody hangs.
            await asyncio.wait_for(r.launch("/u/a"), 35)
        await asyncio.wait_for(r.controller.wait(), 60)
        assert r.controller.failed
