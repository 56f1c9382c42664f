"""Checkpoints of real controllers: taken under load, restored elsewhere, fenced, and in bad weather ("Done when" of checkpoints)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from iris_controller.checkpoint import restore
from iris_core.client.endpoint import parse_url
from iris_core.client.grpc_client import GrpcClient
from iris_core.contracts import RpcFailed
from iris_core.wire.gen.iris.v1 import checkpoints_pb2, common_pb2, controller_pb2
from providers.objects import open_store
from tests.conftest import RequireService
from tests.integration.controller_rig import rig
from tests.integration.served import Served, launch
from tests.integration.test_serve_boot import one_error, refuse
from tests.ports import free_port
from tests.unit.checkpoint_world import make_state, table_hashes
from tests.unit.object_servers import binary, gcs_server

CONFIG = """
name: kept
platform: {{local: }}
controller: {{checkpoint_interval_seconds: {interval}, local: {{port: 0}}}}
storage: {{remote_state_dir: "{remote}"}}
worker_provider: {{}}
"""


def config(remote: str, interval: int = 0) -> str:
    return CONFIG.format(remote=remote, interval=interval)


@pytest.fixture(params=["file", "gs"])
def remote(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, require_service: RequireService
) -> Iterator[str]:
    """The URL of a remote state dir."""
    if request.param == "file":
        yield f"file://{tmp_path}/remote"
        return
    require_service(binary(), "fake-gcs-server is not installed")
    with gcs_server(tmp_path / "gcs", "bucket") as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        yield "gs://bucket/iris/state"


@pytest.mark.asyncio
async def test_a_checkpoint_under_load_restores_to_the_same_tables(tmp_path: Path, remote: str) -> None:
    request = checkpoints_pb2.BeginCheckpointRequest(request_id="once")
    async with rig(tmp_path / "a", config(remote)) as r:
        async with r.worker("w1"):
            for n in range(20):
                await r.launch(f"/u/before{n}")
            stopping = asyncio.Event()

            async def load() -> int:
                n = 0
                while not stopping.is_set():
                    await r.launch(f"/u/during{n}")
                    n += 1
                return n

            loading = asyncio.create_task(load())
            first = await r.call("BeginCheckpoint", request, checkpoints_pb2.BeginCheckpointResponse)
            again = await r.call("BeginCheckpoint", request, checkpoints_pb2.BeginCheckpointResponse)
            stopping.set()
            assert await loading > 0
            assert again == first, "the repeat got the first answer"
        assert first.checkpoint_path == f"{remote}/controller-state/{first.created_at_ms}"
        assert first.job_count >= 20 and first.worker_count == 1
        # Nothing changes any more: this one holds exactly what the live file holds.
        last = await r.call(
            "BeginCheckpoint", checkpoints_pb2.BeginCheckpointRequest(), checkpoints_pb2.BeginCheckpointResponse
        )
        live = table_hashes(r.controller.state.database, but=("meta", "request_ids"))
        assert not (tmp_path / "a" / "checkpoint").exists()
    restore.unpack(restore.find(first.checkpoint_path), tmp_path / "first")
    assert table_hashes(tmp_path / "first").keys() >= live.keys()
    # A controller on another machine finds the newest by itself.
    async with rig(tmp_path / "b", config(remote)) as r:
        assert table_hashes(r.controller.state.database, but=("meta", "request_ids")) == live
        assert (await r.job("/u/before3")).job_id == "/u/before3"
        meta = await r.controller.readers.run(lambda c: c.execute("SELECT value FROM meta").fetchone()[0])
        assert meta == last.created_at_ms
        # The request of before the restore is known here as well, because it is part of the state.
        kept = await r.call("BeginCheckpoint", request, checkpoints_pb2.BeginCheckpointResponse)
        assert kept == first


@pytest.mark.asyncio
async def test_periodic_checkpoints_come_by_themselves_and_only_after_a_change(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/remote")

    def taken() -> list[str]:
        return [info.name for info in store.list("controller-state/") if info.name.endswith("manifest.json")]

    async with rig(tmp_path / "s", config(f"file://{tmp_path}/remote", 1)) as r:
        await r.launch("/u/a")
        async with asyncio.timeout(60):
            while not taken():  # noqa: ASYNC110  # another process makes them
                await asyncio.sleep(0.05)
        await r.launch("/u/b")
        async with asyncio.timeout(60):
            while len(taken()) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await asyncio.sleep(2.5)
        assert len(taken()) == 2, "nothing changed, nothing was copied"


@pytest.mark.asyncio
async def test_a_store_that_fails_is_told_and_forgiven(tmp_path: Path) -> None:
    folder = tmp_path / "remote"
    async with rig(tmp_path / "s", config(f"file://{folder}")) as r:
        await r.launch("/u/a")
        (folder / "controller-state").write_text("in the way")
        with pytest.raises(RpcFailed, match="the checkpoint failed") as refused:
            await r.call(
                "BeginCheckpoint", checkpoints_pb2.BeginCheckpointRequest(), checkpoints_pb2.BeginCheckpointResponse
            )
        assert refused.value.status == "UNAVAILABLE"
        assert any(
            "checkpoints fail" in problem and "there is none yet" in problem for problem in r.controller.problems()
        )
        await r.launch("/u/b")
        (folder / "controller-state").unlink()
        await r.call(
            "BeginCheckpoint", checkpoints_pb2.BeginCheckpointRequest(), checkpoints_pb2.BeginCheckpointResponse
        )
        assert not any("checkpoints fail" in problem for problem in r.controller.problems())


@pytest.mark.asyncio
async def test_a_store_that_hangs_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_controller.checkpoint.service.LONGEST_S", 3.0)
    folder = tmp_path / "remote"
    async with rig(tmp_path / "s", config(f"file://{folder}")) as r:
        async with asyncio.timeout(60):
            while not (folder / "owner.json").exists():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        # Whoever opens this waits for a writer that never comes.
        (folder / "owner.json").unlink()
        os.mkfifo(folder / "owner.json")
        began = time.monotonic()
        taking = asyncio.create_task(
            r.call("BeginCheckpoint", checkpoints_pb2.BeginCheckpointRequest(), checkpoints_pb2.BeginCheckpointResponse)
        )
        while not taking.done():
            await r.launch(f"/u/job{time.monotonic_ns()}")
        with pytest.raises(RpcFailed, match="ended after 3 s"):
            await taking
        assert time.monotonic() - began < 30
        assert not (tmp_path / "s" / "checkpoint").exists()


@pytest.mark.asyncio
async def test_work_with_secrets_waits_for_its_key_after_a_restore(tmp_path: Path) -> None:
    text = config(f"file://{tmp_path}/remote")
    async with rig(tmp_path / "a", text) as r:
        environment = controller_pb2.Environment(env_vars={"API_TOKEN": "canary-73512"})
        await r.launch("/u/secret", environment=environment)
        await r.launch("/u/plain")
        await r.call(
            "BeginCheckpoint", checkpoints_pb2.BeginCheckpointRequest(), checkpoints_pb2.BeginCheckpointResponse
        )
    for candidate in restore.newest_first(open_store(f"file://{tmp_path}/remote"), []):
        restore.unpack(candidate, tmp_path / "copy")
    assert b"canary-73512" not in await asyncio.to_thread((tmp_path / "copy").read_bytes)
    async with rig(tmp_path / "b", text) as r, r.worker("w1"):
        await r.until_state("/u/plain", common_pb2.JOB_STATE_SUCCEEDED)
        waiting = await r.job("/u/secret")
        assert waiting.state == common_pb2.JOB_STATE_PENDING
        assert "sealed with a key that is not here" in waiting.pending_reason
        # One of the same name that is submitted here is sealed here.
        await r.cancel("/u/secret")
        await r.launch("/u/secret", environment=environment)
        await r.until_state("/u/secret", common_pb2.JOB_STATE_SUCCEEDED)
    await asyncio.to_thread(shutil.rmtree, tmp_path / "b" / "db")
    await asyncio.to_thread(shutil.copy, tmp_path / "a" / "env.key", tmp_path / "b" / "env.key")
    async with rig(tmp_path / "b", text) as r, r.worker("w1"):
        await r.until_state("/u/secret", common_pb2.JOB_STATE_SUCCEEDED)


def ready(url: str) -> tuple[bool, list[str]]:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=10) as answer:
            found = json.load(answer)
    except urllib.error.HTTPError as error:
        found = json.load(error)
    return found["ready"], found["problems"]


def until(condition: Callable[[], bool], what: str, timeout_s: float = 90) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_a_second_controller_on_the_same_remote_state_dir_fences_the_first(tmp_path: Path, remote: str) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    storage = f'storage: {{remote_state_dir: "{remote}"}}\n'
    first, second = Served(tmp_path / "a", workers=0), Served(tmp_path / "b", workers=0)
    for one in (first, second):
        one.config.write_text(one.config.read_text() + storage)
    first.start()
    try:
        with first.client() as client:
            launch(client, "/u/kept", ["true"])
            client.call(
                "ControllerService/BeginCheckpoint",
                checkpoints_pb2.BeginCheckpointRequest(),
                checkpoints_pb2.BeginCheckpointResponse,
                timeout_s=60,
            )
        until(lambda: ready(first.url)[0], "the first is not ready")
        before = {info.name for info in open_store(remote).list("")}
        second.start()
        try:
            until(lambda: any(p.startswith("fenced: ") for p in ready(first.url)[1]), "the first was not fenced")
            assert second.process is not None
            (told,) = [p for p in ready(first.url)[1] if p.startswith("fenced: ")]
            assert f"pid {second.process.pid}" in told
            assert not any("background task" in p for p in ready(first.url)[1]), "it stopped on purpose"
            with first.client() as client:
                with pytest.raises(RpcFailed, match="has stopped writing") as refused:
                    launch(client, "/u/lost", ["true"])
                assert (refused.value.status, refused.value.code) == ("UNAVAILABLE", "fenced")
                data = b"zip"
                bundle = controller_pb2.PutBundleRequest(bundle_id=hashlib.sha256(data).hexdigest(), data=data)
                with pytest.raises(RpcFailed, match="has stopped writing"):
                    client.call("ControllerService/PutBundle", bundle, controller_pb2.PutBundleResponse)
                # It can still be read, and still takes nothing away.
                request = controller_pb2.GetJobStatusRequest(job_id="/u/kept")
                client.call("ControllerService/GetJobStatus", request, controller_pb2.GetJobStatusResponse)
                with pytest.raises(RpcFailed):
                    client.call(
                        "ControllerService/BeginCheckpoint",
                        checkpoints_pb2.BeginCheckpointRequest(),
                        checkpoints_pb2.BeginCheckpointResponse,
                        timeout_s=60,
                    )
            assert before <= {info.name for info in open_store(remote).list("")}
            with second.client() as client:
                launch(client, "/u/new", ["true"])
                request = controller_pb2.GetJobStatusRequest(job_id="/u/kept")
                client.call("ControllerService/GetJobStatus", request, controller_pb2.GetJobStatusResponse)
            assert not any("fenced" in p for p in ready(second.url)[1])
        finally:
            second.end()
    finally:
        first.end()
    # What it has is older than what the second one did: no restart may bring it back by itself.
    words = [sys.executable, "-m", "iris_controller.main", "serve", "--config", str(first.config)]
    done = subprocess.run(
        [*words, "--state-dir", str(first.state)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "took over" in done.stderr and "--take-over" in done.stderr and "Traceback" not in done.stderr
    first.extra = ("--take-over",)
    first.start()
    try:
        until(lambda: ready(first.url)[0], "the first is not ready")
        with first.client() as client:
            launch(client, "/u/again", ["true"])
    finally:
        first.end()
    done = subprocess.run(
        [*words[:-1], str(second.config), "--state-dir", str(second.state)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1 and "took over" in done.stderr


def test_a_kill_of_controller_and_checkpoint_leaves_a_good_one_and_no_scratch(tmp_path: Path) -> None:
    environment = Served(tmp_path, workers=0)
    environment.config.write_text(
        environment.config.read_text() + f'storage: {{remote_state_dir: "file://{tmp_path}/remote"}}\n'
    )
    objects = tmp_path / "remote" / ".iris-objects"
    environment.start()
    try:
        for round_ in range(2):
            with environment.client() as client:
                launch(client, f"/u/job{round_}", ["true"])
                client.call(
                    "ControllerService/BeginCheckpoint",
                    checkpoints_pb2.BeginCheckpointRequest(),
                    checkpoints_pb2.BeginCheckpointResponse,
                    timeout_s=60,
                )
                launch(client, f"/u/more{round_}", ["true"])

            def ask() -> None:
                try:
                    with environment.client() as asking:
                        asking.call(
                            "ControllerService/BeginCheckpoint",
                            checkpoints_pb2.BeginCheckpointRequest(),
                            checkpoints_pb2.BeginCheckpointResponse,
                        )
                except Exception:
                    return

            thread = threading.Thread(target=ask)
            thread.start()
            scratch = environment.state / "checkpoint"
            until(scratch.exists, "the checkpoint did not begin")
            environment.kill()
            thread.join()
            # Its child ends with it.
            until(lambda: not children_of_checkpoints(tmp_path), "a checkpoint outlived its controller")
            found = next(restore.newest_first(open_store(f"file://{tmp_path}/remote"), []))
            restore.unpack(found, tmp_path / f"t{round_}")
            environment.start()
            assert not scratch.exists()
            until(lambda: not list(objects.glob("put-*")), "half an object was left")
    finally:
        environment.end()


def test_zeros_in_the_state_file_are_found_at_the_start_and_the_last_checkpoint_is_taken(tmp_path: Path) -> None:
    environment = Served(tmp_path, workers=0)
    environment.config.write_text(
        environment.config.read_text() + f'storage: {{remote_state_dir: "file://{tmp_path}/remote"}}\n'
    )
    environment.start()
    try:
        with environment.client() as client:
            launch(client, "/u/kept", ["true"])
            made = client.call(
                "ControllerService/BeginCheckpoint",
                checkpoints_pb2.BeginCheckpointRequest(),
                checkpoints_pb2.BeginCheckpointResponse,
                timeout_s=60,
            )
            launch(client, "/u/newer", ["true"])
        environment.kill()
        database = environment.state / "db" / "controller.sqlite3"
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with open(database, "r+b") as file:
            file.seek(3 * 4096)
            file.write(bytes(2 * 4096))
        damaged = database.read_bytes()
        environment.start()
        with environment.client() as client:
            jobs = client.call(
                "ControllerService/ListJobs", controller_pb2.ListJobsRequest(), controller_pb2.ListJobsResponse
            ).jobs
        assert [job.job_id for job in jobs] == ["/u/kept"]
        (kept,) = environment.state.glob("db.corrupt.*/controller.sqlite3")
        assert kept.read_bytes() == damaged
        log = environment.log()
        assert "is damaged" in log and made.checkpoint_path in log and "is missing" in log
        assert "Traceback" not in log
    finally:
        environment.end()


def children_of_checkpoints(folder: Path) -> list[int]:
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                words = (path / "cmdline").read_bytes()
                here = (
                    str(folder).encode() in (path / "environ").read_bytes() or os.readlink(path / "cwd") == os.getcwd()
                )
            except OSError:
                continue
            if b"iris_controller.checkpoint.child" in words and here:
                found.append(int(path.name))
    return found


@contextmanager
def dry_run(folder: Path, *words: str, text: str) -> Iterator[str]:
    """A dry run's URL; ended and checked."""
    path = folder / "dry.yaml"
    path.write_text(text)
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "iris_controller.main", "serve", "--config", str(path), "--dry-run"]
    command += ["--state-dir", str(folder / "dry"), "--port", str(free_port()), "--ready-fd", str(writing), *words]
    with (folder / "dry.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, pass_fds=(writing,))
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as ready_line:
            line = ready_line.readline()
        assert line, (folder / "dry.log").read_text()
        store = int(json.loads((folder / "dry" / "finelog" / "endpoint.json").read_text())["pid"])
        yield str(json.loads(line)["url"])
        process.terminate()
        assert process.wait(30) == 0
        assert "Traceback" not in (folder / "dry.log").read_text()
        with pytest.raises(ProcessLookupError):
            os.kill(store, 0)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
            os.kill(store, signal.SIGKILL)


@pytest.mark.asyncio
async def test_a_dry_run_shows_what_the_scheduler_would_do_and_touches_nothing(tmp_path: Path) -> None:
    remote = f"file://{tmp_path}/remote"
    text = config(remote)
    async with rig(tmp_path / "s", text) as r:
        async with r.worker("w1"):
            await r.launch("/u/done")
            await r.until_state("/u/done", common_pb2.JOB_STATE_SUCCEEDED)
        r.controller.ticker.pause()
        await r.launch("/u/waiting")
        made = await r.call(
            "BeginCheckpoint", checkpoints_pb2.BeginCheckpointRequest(), checkpoints_pb2.BeginCheckpointResponse
        )
    store = open_store(remote)
    before = {info.name: info.generation for info in store.list("")}

    def look() -> None:
        with (
            dry_run(tmp_path, "--checkpoint-path", made.checkpoint_path, text=text) as url,
            GrpcClient(parse_url(url)) as client,
        ):

            def waiting() -> controller_pb2.TaskStatus:
                request = controller_pb2.GetTaskStatusRequest(task_id="/u/waiting/0")
                return client.call(
                    "ControllerService/GetTaskStatus", request, controller_pb2.GetTaskStatusResponse
                ).task

            until(lambda: waiting().worker_id == "w1", "the scheduler did not place it")
            assert waiting().state == common_pb2.TASK_STATE_ASSIGNED, "it was not dispatched"
            with pytest.raises(RpcFailed, match="dry run"):
                client.call(
                    "ControllerService/BeginCheckpoint",
                    checkpoints_pb2.BeginCheckpointRequest(),
                    checkpoints_pb2.BeginCheckpointResponse,
                )

    await asyncio.to_thread(look)
    assert {info.name: info.generation for info in store.list("")} == before


def test_wrong_checkpoints_are_one_error_at_the_start(tmp_path: Path) -> None:
    make_state(tmp_path / "state")
    (tmp_path / "torn").mkdir()
    state = ("--state-dir", str(tmp_path / "state"))
    for words, says in (
        (["--checkpoint-path", "/nowhere/1700000000000"], "not found"),
        (["--checkpoint-path", str(tmp_path / "torn")], "not found"),
        (["--checkpoint-path", "s3://bucket/1700000000000"], "file://, gs:// and ssh:// only"),
        (["--checkpoint-path", "x", "--fresh"], "exclude each other"),
        (["--checkpoint-interval", "0.1"], "outside"),
    ):
        code, output = refuse(tmp_path, *state, *words)
        assert code in (1, 2)
        assert says in one_error(output)
    assert not list((tmp_path / "state").glob("db.*"))
