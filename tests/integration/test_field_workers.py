"""Field cases of workers, with real processes: frozen and back (C02), a recycled pid (C06), a broken machine (C16)."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from iris_core.client.grpc_client import GrpcClient
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2
from tests.conftest import RequireService
from tests.integration.served import Served, launch, served, status, task, wait_jobs
from tests.integration.slices_world import query, slice_of


def until(condition: Callable[[], bool], what: str, timeout_s: float = 90) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def running(client: GrpcClient, task_id: str) -> bool:
    return task(client, task_id).task.state == common_pb2.TASK_STATE_RUNNING


def workers(client: GrpcClient) -> dict[str, controller_pb2.WorkerStatus]:
    request = controller_pb2.ListWorkersRequest()
    answer = client.call("ControllerService/ListWorkers", request, controller_pb2.ListWorkersResponse)
    return {w.worker_id: w for w in answer.workers}


def healthy(client: GrpcClient) -> set[str]:
    return {name for name, w in workers(client).items() if w.health == common_pb2.WORKER_HEALTH_HEALTHY}


def cancel(client: GrpcClient, job_id: str) -> None:
    request = controller_pb2.TerminateJobRequest(job_id=job_id)
    client.call("ControllerService/TerminateJob", request, controller_pb2.TerminateJobResponse)


@pytest.mark.timeout(180)
def test_c02_a_frozen_worker_is_given_up_and_replaced_and_its_task_runs_once(tmp_path: Path) -> None:
    beat = tmp_path / "beat"
    with served(tmp_path, workers=2) as environment, environment.client() as client:
        launch(client, "/t/dup", ["sh", "-c", f"while :; do echo $$ >>{beat}; sleep .05; done"])
        until(lambda: running(client, "/t/dup/0"), "the task never ran")
        first = task(client, "/t/dup/0").task
        pid = environment.worker_pid(first.worker_id)
        os.kill(pid, signal.SIGSTOP)
        try:
            until(lambda: task(client, "/t/dup/0").task.attempt_uid != first.attempt_uid, "it was never given up")
            until(lambda: running(client, "/t/dup/0"), "it never ran again")
            # One that comes back before it is decided that its slice goes keeps it.
            ready = f"SELECT 1 FROM slices WHERE lifecycle = 'ready' AND slice_id = '{slice_of(first.worker_id)}'"
            until(lambda: not query(client, ready), "its slice was not given up")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        shown = task(client, "/t/dup/0")
        assert [a.state for a in shown.attempts] == [common_pb2.TASK_STATE_WORKER_FAILED, common_pb2.TASK_STATE_RUNNING]
        assert shown.task.preemption_count == 1 and shown.task.worker_id != first.worker_id

        def one_process() -> bool:
            size = len(beat.read_text().split())
            until(lambda: len(beat.read_text().split()) >= size + 20, "the task stopped beating")
            return len(set(beat.read_text().split()[-15:])) == 1

        until(one_process, "the first process is still alive")
        until(lambda: len(healthy(client) - {first.worker_id}) == 2, "its slice was not replaced")
        until(lambda: first.worker_id not in workers(client), "it was not forgotten")
        assert len(task(client, "/t/dup/0").attempts) == 2, "late reports of attempt 0 change nothing"
        cancel(client, "/t/dup")


@pytest.mark.timeout(180)
def test_c06_a_recycled_pid_is_not_mistaken_for_the_attempt(tmp_path: Path, require_service: RequireService) -> None:
    last_pid = Path("/proc/sys/kernel/ns_last_pid")
    require_service(os.access(last_pid, os.W_OK), "choosing a pid needs root")
    environment = Served(tmp_path, workers=1)
    environment.start()
    bystander: subprocess.Popen[bytes] | None = None
    try:
        with environment.client() as client:
            launch(client, "/t/pid", ["sh", "-c", f"echo $$ >{tmp_path}/pid; exec sleep 900"])
            until(lambda: (tmp_path / "pid").exists() and running(client, "/t/pid/0"), "the task never ran")
            ran = task(client, "/t/pid/0").task
            uid = ran.attempt_uid
            victim = int((tmp_path / "pid").read_text())
            pids = [known.pid for known in environment.supervisors()] + [environment.worker_pid(ran.worker_id)]
        environment.kill()
        for pid in [*pids, victim]:
            os.kill(pid, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{victim}").exists(), "the victim did not die")
        for _ in range(300):
            last_pid.write_text(str(victim - 1))
            candidate = subprocess.Popen(["sleep", "901"])
            if candidate.pid == victim:
                bystander = candidate
                break
            candidate.kill()
            candidate.wait()
        require_service(bystander is not None, "the pid could not be had again")
        assert bystander is not None
        environment.start()
        with environment.client() as client:
            until(
                lambda: task(client, "/t/pid/0").task.attempt_uid != uid and running(client, "/t/pid/0"),
                "the lost attempt was never retried",
            )
            assert bystander.poll() is None, "a stranger was signalled"
            assert task(client, "/t/pid/0").attempts[0].state == common_pb2.TASK_STATE_WORKER_FAILED
            cancel(client, "/t/pid")
    finally:
        if bystander is not None:
            bystander.kill()
            bystander.wait()
        environment.end()


@pytest.mark.timeout(240)
def test_c16_one_broken_machine_does_not_eat_the_queue(tmp_path: Path, require_service: RequireService) -> None:
    require_service(os.geteuid() == 0, "mounting a small file system needs root")
    tiny = tmp_path / "tiny"
    tiny.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(tiny)], check=False, capture_output=True
    )
    require_service(mounted.returncode == 0, "cannot mount a tmpfs")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("blob.bin", random.Random(1).randbytes(300_000))
    data = packed.getvalue()
    bundle_id = hashlib.sha256(data).hexdigest()
    words = [sys.executable, "-m", "iris_controller.worker.main", "--worker-id", "bad", "--cache-dir", str(tiny)]
    bad: subprocess.Popen[bytes] | None = None
    try:
        with served(tmp_path, workers=2, cpu=2) as environment, environment.client() as client:
            bad = subprocess.Popen([*words, "--controller", environment.url], stderr=subprocess.DEVNULL)
            until(
                lambda: "bad" in workers(client) and workers(client)["bad"].health == common_pb2.WORKER_HEALTH_HEALTHY,
                "the bad worker never attached",
            )
            put = controller_pb2.PutBundleRequest(bundle_id=bundle_id, data=data)
            client.call("ControllerService/PutBundle", put, controller_pb2.PutBundleResponse)
            launch(
                client,
                "/t/hole",
                ["sh", "-c", "test -s blob.bin"],
                replicas=40,
                max_retries_failure=3,
                bundle_id=bundle_id,
            )
            assert wait_jobs(client, ["/t/hole"], 120)["/t/hole"] == common_pb2.JOB_STATE_SUCCEEDED
            assert status(client, "/t/hole").failure_count == 0, "staging never counts against the tasks"
            shown = workers(client)["bad"]
            bad.terminate()
            bad.wait(30)
            bad = None
            assert 0 < shown.build_failures <= 25, "no more than what it was given before the first failure was known"
            assert "space" in shown.health_reason, shown.health_reason
    finally:
        if bad is not None:
            bad.kill()
            bad.wait()
        subprocess.run(["umount", "-l", str(tiny)], check=True)
