"""Real programs on a state directory of the test's own: start, kill, start again, and prove at the end that nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iris_core.client.endpoint import parse_url
from iris_core.client.grpc_client import GrpcClient
from iris_core.contracts import RpcFailed
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2, logs_pb2
from providers.local.processes import Known, read_record, start_time
from tests.ports import free_port

CONFIG = """
name: served
platform: {{local: }}
controller: {{local: {{port: {port}}}}}
worker_provider: {{}}
scale_groups:
  cpu:
    num_vms: 1
    buffer_slices: {workers}
    resources: {{cpu: {cpu}, ram: 8GB, device_type: cpu, capacity_type: on-demand}}
"""
TERMINAL = {
    common_pb2.JOB_STATE_SUCCEEDED,
    common_pb2.JOB_STATE_FAILED,
    common_pb2.JOB_STATE_KILLED,
    common_pb2.JOB_STATE_WORKER_FAILED,
    common_pb2.JOB_STATE_UNSCHEDULABLE,
}


class Served:
    """One controller with its log store and workers. The controller can be killed; the rest is found through the state directory."""

    def __init__(self, folder: Path, workers: int = 2, cpu: int = 8, extra: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.config = folder / "served.yaml"
        self.config.write_text(CONFIG.format(port=self.port, workers=workers, cpu=cpu))
        self.extra = extra
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the controller and waits until it serves. Raises AssertionError with its log when it does not."""
        reading, writing = os.pipe()
        words = [sys.executable, "-m", "iris_controller.main", "serve", "--config", str(self.config)]
        words += ["--state-dir", str(self.state), "--ready-fd", str(writing), *self.extra]
        with (self.folder / "controller.log").open("ab") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log, pass_fds=(writing,), start_new_session=True)
        os.close(writing)
        with os.fdopen(reading, "rb") as ready:
            line = ready.readline()
        assert line, f"the controller did not start:\n{self.log()[-4000:]}"

    def log(self) -> str:
        return (self.folder / "controller.log").read_text()

    def kill(self) -> None:
        """SIGKILL to the controller alone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def finelog(self) -> Known:
        record = read_record(self.state / "finelog" / "endpoint.json")
        return Known(int(record["pid"]), int(record["start_time"]))

    def supervisors(self) -> list[Known]:
        found = []
        for path in (self.state / "workers").glob("*/supervisor.json"):
            record = read_record(path)
            if record:
                found.append(Known(int(record["pid"]), int(record["start_time"])))
        return [k for k in found if k.alive]

    def running_supervisors(self) -> list[Known]:
        """Every supervisor of this folder, also one that has not written its record yet."""
        found = []
        for pid in self.ours():
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            started = start_time(pid)
            if b"supervise" in words and started is not None:
                found.append(Known(pid, started))
        return found

    def worker_pid(self, worker_id: str) -> int:
        """The pid of an attached worker, as it reports itself."""
        with self.client() as client:
            request = controller_pb2.GetProcessStatusRequest(target=f"/system/worker/{worker_id}")
            answer = client.call("ControllerService/GetProcessStatus", request, controller_pb2.GetProcessStatusResponse)
        return answer.process.pid

    def client(self) -> GrpcClient:
        return GrpcClient(parse_url(self.url))

    def ours(self) -> list[int]:
        """Every live process whose command line or environment names this folder."""
        mark = str(self.folder).encode()
        found = []
        for path in Path("/proc").iterdir():
            if not path.name.isdigit() or int(path.name) == os.getpid():
                continue
            try:
                named = mark in (path / "cmdline").read_bytes() or mark in (path / "environ").read_bytes()
            except OSError:
                continue
            if named and start_time(int(path.name)) is not None:
                found.append(int(path.name))
        return found

    def end(self) -> None:
        """Ends everything in order and asserts that nothing is left."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        known = self.running_supervisors()
        for supervisor in known:
            supervisor.signal(signal.SIGTERM)
        for supervisor in known:
            assert supervisor.wait_gone(30), "a supervisor did not end"
        finelog = self.finelog()
        finelog.signal(signal.SIGTERM)
        assert finelog.wait_gone(60), "finelog did not end"
        deadline = time.monotonic() + 60
        while (left := self.ours()) and time.monotonic() < deadline:
            time.sleep(0.05)
        shown = [
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")[:200]
            for pid in left
            if Path(f"/proc/{pid}").exists()
        ]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left, f"left behind: {shown}"


@contextmanager
def served(folder: Path, **values: object) -> Iterator[Served]:
    """A started `Served`, ended and checked at the end."""
    made = Served(folder, **values)  # type: ignore[arg-type]
    made.start()
    try:
        yield made
    finally:
        made.end()


def launch(
    client: GrpcClient, name: str, argv: list[str], *, replicas: int = 1, **values: object
) -> controller_pb2.LaunchJobResponse:
    request = controller_pb2.LaunchJobRequest(name=name, replicas=replicas, **values)  # type: ignore[arg-type]
    request.entrypoint.run_command.argv.extend(argv)
    request.resources.cpu_millicores = 100
    request.resources.memory_bytes = 64 << 20
    return client.call("ControllerService/LaunchJob", request, controller_pb2.LaunchJobResponse, timeout_s=60)


def status(client: GrpcClient, job_id: str) -> controller_pb2.JobStatus:
    request = controller_pb2.GetJobStatusRequest(job_id=job_id)
    return client.call("ControllerService/GetJobStatus", request, controller_pb2.GetJobStatusResponse).job


def task(client: GrpcClient, task_id: str) -> controller_pb2.GetTaskStatusResponse:
    request = controller_pb2.GetTaskStatusRequest(task_id=task_id)
    return client.call("ControllerService/GetTaskStatus", request, controller_pb2.GetTaskStatusResponse)


def wait_jobs(client: GrpcClient, job_ids: list[str], timeout_s: float = 60) -> dict[str, int]:
    """Waits until all are terminal; returns their states."""
    deadline = time.monotonic() + timeout_s
    while True:
        request = controller_pb2.GetJobStateRequest(job_ids=job_ids)
        answer = client.call("ControllerService/GetJobState", request, controller_pb2.GetJobStateResponse)
        states = dict(answer.states)
        assert set(states) == set(job_ids), f"unknown: {sorted(set(job_ids) - set(states))[:5]}"
        open_jobs = [j for j, s in states.items() if s not in TERMINAL]
        if not open_jobs:
            return {j: int(s) for j, s in states.items()}
        assert time.monotonic() < deadline, f"not finished: {[status(client, j) for j in open_jobs[:3]]}"
        time.sleep(0.05)


def fetch(client: GrpcClient, request: logs_pb2.FetchLogsRequest, timeout_s: float = 90) -> logs_pb2.FetchLogsResponse:
    """FetchLogs, tried again while the log store is being started."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return client.call("LogService/FetchLogs", request, logs_pb2.FetchLogsResponse)
        except RpcFailed as error:
            if error.status != "UNAVAILABLE" or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def lines(client: GrpcClient, source: str) -> list[logs_pb2.StoredLine]:
    """All stored lines of a job or task, by key and number."""
    found: list[logs_pb2.StoredLine] = []
    cursor = 0
    while True:
        request = logs_pb2.FetchLogsRequest(
            source=source, match_scope=common_pb2.MATCH_SCOPE_PREFIX, cursor=cursor, max_lines=100_000
        )
        answer = fetch(client, request)
        found.extend(answer.entries)
        if answer.cursor == cursor or (not answer.entries and not answer.capped):
            return sorted(found, key=lambda e: (e.key, e.number))
        cursor = answer.cursor


def marks(client: GrpcClient, producers: list[str]) -> dict[str, int]:
    """Lines of each producer that the store holds for good."""
    request = logs_pb2.FetchLogsRequest(
        source="/system/controller",
        match_scope=common_pb2.MATCH_SCOPE_EXACT,
        max_lines=1,
        tail=True,
        producers=producers,
    )
    answer = fetch(client, request)
    return {m.producer: m.next_number for m in answer.marks}


def wait_marks(client: GrpcClient, wanted: dict[str, int], timeout_s: float = 90) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        have = marks(client, list(wanted))
        behind = {p: (have.get(p, 0), n) for p, n in wanted.items() if have.get(p, 0) < n}
        if not behind:
            return
        assert time.monotonic() < deadline, f"lines not shipped (have, wanted): {dict(list(behind.items())[:5])}"
        time.sleep(0.05)
