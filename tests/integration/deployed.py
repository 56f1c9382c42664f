"""A cluster of this machine that is deployed from a tree of its own by the real command, with drivers that are killed where a test says."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from iris_core.procedures import record
from providers.local.processes import read_record
from providers.objects import open_store
from tests.integration.served import Served
from tests.unit.test_procedures_source_tree import git

HOME = Path(__file__).resolve().parents[2]
WAIT_S = 120.0
SMALL_BYTES = 256 << 20
SHIPPED = ("iris_core", "iris_controller", "providers", "iris_tui", "screens", "config")
KILLS = {
    "pending": "write the record: pending",
    "stop": "stop the controller",
    "start": "start ",
    "health": "health",
    "commit": "write the record: committed",
}
"""Where the driver is killed: what it says right after its journal has it."""
KILLS_IN_SOAK = {
    **KILLS,
    "look": "the controller, its record",
    "tree": "the tree",
    "lock": "take the lock of",
    "build": "build and stage",
    "checkpoint": "take a checkpoint",
    "name": "name the last checkpoint",
    "unlock": "give the lock back",
}
"""All that it says."""


FAILING = """

_prove_as_it_should = Controller._prove


async def _prove_and_die(self, probation, deployed):
    async def die():
        while not (self.sessions.count and os.path.exists({die!r})):
            await asyncio.sleep(0.05)
        os._exit(3)

    self._dying = asyncio.create_task(die())
    await _prove_as_it_should(self, probation, deployed)


Controller._prove = _prove_and_die
"""
"""What the failing release does besides: it serves, takes workers in, and dies when a file is there. Its `/health` never says ok."""


class Deployed(Served):
    """A cluster that is deployed from a tree of its own by the real command."""

    def __init__(self, folder: Path, workers: int = 1) -> None:
        super().__init__(folder, workers=workers)
        self.remote = f"file://{folder}/remote"
        self.small = self.state.is_mount()
        """Its state is on a small file system of its own."""
        storage = f'storage: {{local_state_dir: "{self.state}", remote_state_dir: "{self.remote}"}}\n'
        self.config.write_text(self.config.read_text() + storage)
        self.repo = folder / "repo"
        self.repo.mkdir()
        for name in SHIPPED:
            shutil.copytree(HOME / name, self.repo / name, ignore=shutil.ignore_patterns("__pycache__", "_shipped"))
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(HOME / name, self.repo / name)
        (self.repo / "requirements").mkdir()
        (self.repo / "requirements" / "deployed.txt").write_text("")  # whatever runs the tests fits
        git(self.repo, "init", "-q", "-b", "main")
        git(self.repo, "add", "-A")
        git(self.repo, "commit", "-q", "-m", "First")

    def words(self, *command: str, group: tuple[str, ...] = ("cluster", "controller")) -> list[str]:
        main = [sys.executable, "-P", "-m", "iris_core.cli.main", "--config", str(self.config)]
        return [*main, *group, *command]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "IRIS_JOURNAL_DIR": str(self.folder / "journals"), "PYTHONPATH": ""}

    def command(
        self, *command: str, group: tuple[str, ...] = ("cluster", "controller")
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(*command, group=group), cwd=self.repo, env=self.environment(), capture_output=True, text=True, timeout=120, check=False
        )  # fmt: skip

    def killed_at(self, kill: str, edited: Path | None = None, *options: str) -> str:
        """Runs a restart until it says what it is killed at (of KILLS_IN_SOAK, or the words); edits a file once the build has begun. Its id."""
        return self.killed_in("restart", KILLS_IN_SOAK.get(kill, kill), *options, edited=edited)

    def killed_in(self, command: str, kill: str, *options: str, edited: Path | None = None) -> str:
        """Runs a procedure of the controller until it says these words, and kills it there. Its id."""
        driver = subprocess.Popen(
            self.words(command, "--confirm", "served", *options), cwd=self.repo, env=self.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )  # fmt: skip
        assert driver.stderr is not None
        procedure, said = "", []
        with driver.stderr:
            for line in driver.stderr:
                said.append(line)
                if line.startswith("procedure "):
                    procedure = line.split()[1].rstrip(",")
                if edited is not None and line.startswith("build and stage"):
                    edited.write_text(edited.read_text() + "# edited during the build\n")
                if line.startswith(kill):
                    driver.kill()
                    break
        assert driver.wait() == -signal.SIGKILL, said
        return procedure

    @property
    def standing(self) -> record.RolloutRecord:
        found = record.read(open_store(self.remote)).record
        assert found is not None
        return found


@contextmanager
def small_disk(place: Path) -> Iterator[None]:
    """A place that is a file system of its own of some megabytes, where this account may mount one."""
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "none", str(place)]
    mounted = os.geteuid() == 0 and subprocess.run(words, check=False, capture_output=True).returncode == 0
    try:
        yield
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(place)], check=True)


@contextmanager
def deployed_cluster(folder: Path, workers: int = 1) -> Iterator[Deployed]:
    """One that serves, ended and checked at the end."""
    made = Deployed(folder, workers)
    started = made.command("start")
    assert started.returncode == 0, started.stderr
    assert started.stdout.strip() == made.url
    try:
        yield made
    finally:
        stopped = made.command("stop", "--confirm", "served", group=("cluster",))
    assert stopped.returncode == 0, stopped.stderr
    assert made.ours() == [], "everything of it has ended"


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits on a condition of another process."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def post(deployed: Deployed, method: str, body: object) -> tuple[int, dict[str, object]]:
    """One RPC over HTTP, tried once. Raises OSError: nobody answers."""
    request = urllib.request.Request(
        f"{deployed.url}/iris.v1.ControllerService/{method}",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def problems(deployed: Deployed) -> str:
    """What the controller says is wrong with it, "" while it does not answer."""
    try:
        found = post(deployed, "GetClusterStatus", {})[1].get("problems", [])
    except (OSError, ValueError):
        return ""
    assert isinstance(found, list)
    return "; ".join(str(problem) for problem in found)


class Submitter(threading.Thread):
    """Submits small jobs all the time, each under one request id until somebody takes it. Each leaves a line in a file of its own."""

    def __init__(self, deployed: Deployed, runs: Path) -> None:
        super().__init__(name="submitter")
        self.deployed, self.runs = deployed, runs
        self.taken: list[str] = []
        self.enough = threading.Event()

    def run(self) -> None:
        for number in range(10_000):
            name = f"/u/s{number}"
            body = {
                "name": name,
                "replicas": 1,
                "request_id": f"submit-{number}",
                "entrypoint": {"run_command": {"argv": ["sh", "-c", f"echo ran >> {self.runs}/s{number}"]}},
                "resources": {"cpu_millicores": 100, "memory_bytes": str(64 << 20)},
            }
            while not self._took(body):
                if self.enough.wait(0.1):
                    return
            self.taken.append(name)
            if self.enough.wait(0.2):
                return

    def _took(self, body: object) -> bool:
        try:
            return post(self.deployed, "LaunchJob", body)[0] == 200
        except (OSError, ValueError):
            return False


def break_release(deployed: Deployed, die: Path) -> None:
    """Changes the tree into a release with one more migration whose health fails."""
    package = deployed.repo / "iris_controller"
    (package / "store" / "migrations" / "9001_late.sql").write_text(
        "CREATE TABLE late (x INTEGER);\nALTER TABLE jobs ADD COLUMN late INTEGER NOT NULL DEFAULT 0;\n"
    )
    app = package / "http" / "app.py"
    healthy = app.read_text()
    assert healthy.count("return Response(said, media_type") == 1
    app.write_text(healthy.replace("return Response(said, media_type", "return Response(said, 503, media_type"))
    serve = package / "serve.py"
    serve.write_text(serve.read_text() + FAILING.format(die=str(die)))


def first_tree(deployed: Deployed) -> None:
    """The tree as it was committed."""
    git(deployed.repo, "checkout", "-q", "--", ".")
    git(deployed.repo, "clean", "-fdq")


def mended_tree(deployed: Deployed) -> None:
    """The same but for a comment: another release."""
    first_tree(deployed)
    changed = deployed.repo / "iris_controller" / "audit.py"
    changed.write_text(changed.read_text() + "# mended\n")


def controller_pid(deployed: Deployed) -> int:
    """Of the controller that its keeper runs now. Raises KeyError: none."""
    return int((read_record(deployed.state / "controller.json").get("controller") or {})["pid"])


def serves(deployed: Deployed, *, but: int) -> bool:
    """Whether another controller than that one serves."""
    try:
        return controller_pid(deployed) != but and post(deployed, "GetClusterStatus", {})[0] == 200
    except (OSError, ValueError, KeyError):
        return False
