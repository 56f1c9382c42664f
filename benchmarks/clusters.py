"""Clusters to measure: ours and the existing Iris, each started by its public command in a home of its own, and ended.

Both are spoken to in the same way, JSON over one kept HTTP connection, so that a difference between them is theirs and not
the client's.
"""

from __future__ import annotations

import datetime
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from benchmarks import yardsticks

R = TypeVar("R")
BIN = Path(sys.executable).parent
KEPT_S = 2
"""A connection idle for longer is opened anew: servers close them, each after a time of its own."""

DONE = ("SUCCEEDED", "FAILED", "KILLED", "WORKER_FAILED", "UNSCHEDULABLE")


@dataclass(slots=True)
class Cluster:
    """A running cluster: its process, the environment its commands need, and one connection."""

    name: str
    env: dict[str, str]
    home: Path
    process: subprocess.Popen[bytes]
    service: str
    connection: http.client.HTTPConnection
    headers: dict[str, str]
    last_call: float = 0.0

    def call(self, method: str, body: dict[str, Any]) -> dict[str, Any]:
        """One unary RPC. Raises RuntimeError with the server's answer."""
        if time.monotonic() - self.last_call > KEPT_S:
            self.connection.close()
        self.last_call = time.monotonic()
        self.connection.request("POST", f"/{self.service}/{method}", json.dumps(body), self.headers)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{self.name} {method}: HTTP {answer.status} {text[:500].decode(errors='replace')}")
        value = json.loads(text)
        assert isinstance(value, dict)
        return value

    def submit(self, name: str, argv: list[str], replicas: int = 1, cpu_millicores: int = 100) -> str:
        answer = self.call("LaunchJob", self.request(name, argv, replicas, cpu_millicores))
        return str(answer.get("jobId") or answer["job_id"])

    def request(self, name: str, argv: list[str], replicas: int, cpu_millicores: int) -> dict[str, Any]:
        return {
            "name": f"/bench/{name}",
            "entrypoint": {"runCommand": {"argv": argv}},
            "resources": {"cpuMillicores": cpu_millicores, "memoryBytes": str(16 << 20)},
            "replicas": replicas,
            "submitArgv": argv,
        }

    def wait(self, job_id: str, poll_s: float = 0.002) -> str:
        """The state the job ended in. Raises TimeoutError after ten minutes."""
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline:
            states = self.call("GetJobState", {"jobIds": [job_id]}).get("states", {})
            state = str(states.get(job_id, "")).removeprefix("JOB_STATE_")
            if state in DONE:
                return state
            time.sleep(poll_s)
        raise TimeoutError(job_id)


class ExistingIris(Cluster):
    """It refuses a request from a client that does not say how old it is."""

    def request(self, name: str, argv: list[str], replicas: int, cpu_millicores: int) -> dict[str, Any]:
        body = super().request(name, argv, replicas, cpu_millicores)
        return {**body, "clientRevisionDate": datetime.date.today().isoformat()}


def isolated(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("IRIS_", "XDG_", "MARIN_"))}
    return {**kept, "HOME": str(home), "USER": "bench", "LOGNAME": "bench"}


def connect(url: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    assert parts.hostname
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)


def until(look: Callable[[], R | None], what: str, process: subprocess.Popen[bytes], log: Path) -> R:
    """Looks for a minute until there is something. Raises RuntimeError: it never came, with the program's last words."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        found = look()
        if found is not None:
            return found
        time.sleep(0.05)
    raise RuntimeError(f"{what} did not come; the program's last words: {log.read_text(errors='replace')[-1500:]}")


@contextmanager
def started(argv: list[str], env: dict[str, str], home: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Runs a cluster in the foreground of a session of its own; Ctrl-C ends it, and what is left after that is killed."""
    log = home / "cluster.log"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            argv, env=env, cwd=home, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process, log
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def home_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="iris-bench-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def ours(workers: int = 2) -> Iterator[Cluster]:
    """`iris-core cluster start --local` in an empty home."""
    with home_folder() as home:
        env = isolated(home)
        endpoint = home / ".local/state/iris/local/endpoint.json"
        argv = [str(BIN / "iris-core"), "cluster", "start", "--local", "--workers", str(workers)]
        with started(argv, env, home) as (process, log):
            found = until(lambda: json_file(endpoint), "endpoint.json", process, log)
            cluster = Cluster(
                name="Iris",
                env=env,
                home=home,
                process=process,
                service="iris.v1.ControllerService",
                connection=connect(found["url"]),
                headers={"content-type": "application/json"},
            )
            until(lambda: enough_workers(cluster, workers), f"{workers} workers", process, log)
            yield cluster


def enough_workers(cluster: Cluster, workers: int) -> bool | None:
    try:
        status = cluster.call("GetClusterStatus", {})
    except (OSError, http.client.HTTPException, RuntimeError):
        cluster.connection.close()
        return None
    return int(status.get("workers_healthy", 0)) >= workers or None


@contextmanager
def existing() -> Iterator[ExistingIris]:
    """The existing Iris with the local example that it ships. Raises Unavailable."""
    program, release = yardsticks.existing_iris()
    shipped = sorted(program.parent.parent.glob("lib/python3*/site-packages/iris/config/examples/local.yaml"))
    if not shipped:
        raise yardsticks.Unavailable("the existing Iris ships no local example any more")
    with home_folder() as home:
        env = isolated(home)
        shutil.copy(shipped[0], home / "local.yaml")
        argv = [str(program), "--config", str(home / "local.yaml"), "cluster", "start", "--local"]
        with started(argv, env, home) as (process, log):
            address = re.compile(r"Dashboard: (http://[^?\s]+)(?:\?session_token=(\S+))?")
            found = until(lambda: address.search(log.read_text(errors="replace")), "its address", process, log)
            headers = {"content-type": "application/json"}
            if found[2]:
                headers["authorization"] = f"Bearer {found[2]}"
            yield ExistingIris(
                name=f"existing Iris {release}",
                env=env,
                home=home,
                process=process,
                service="iris.cluster.ControllerService",
                connection=connect(found[1]),
                headers=headers,
            )


def json_file(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    assert isinstance(value, dict)
    return value
