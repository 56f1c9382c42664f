"""A deployed controller of this machine with live work: shipped a changed tree by a driver that is killed on the way and goes on."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris_core.procedures import lock, record
from iris_core.procedures.record import Phase
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2
from providers.objects import open_store
from tests.integration.served import Served, launch, lines, task, wait_jobs
from tests.unit.test_procedures_source_tree import git

SOAK = os.environ.get("IRIS_SOAK") == "1"
HOME = Path(__file__).resolve().parents[2]
SHIPPED = ("iris_core", "iris_controller", "providers", "iris_tui", "screens", "config")
KILLS = {
    "pending": "write the record: pending",
    "stop": "stop the controller",
    "start": "start ",
    "health": "health",
    "commit": "write the record: committed",
}
"""Where the driver is killed: what it says right after its journal has it."""


class Deployed(Served):
    """A cluster that is deployed from a tree of its own by the real command."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, workers=1)
        self.remote = f"file://{folder}/remote"
        storage = f'storage: {{local_state_dir: "{self.state}", remote_state_dir: "{self.remote}"}}\n'
        self.config.write_text(self.config.read_text() + storage)
        self.repo = folder / "repo"
        self.repo.mkdir()
        for name in SHIPPED:
            shutil.copytree(HOME / name, self.repo / name, ignore=shutil.ignore_patterns("__pycache__", "_shipped"))
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(HOME / name, self.repo / name)
        (self.repo / "requirements").mkdir()
        (self.repo / "requirements" / "controller.txt").write_text("")  # whatever runs the tests fits
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

    def killed_at(self, kill: str, edited: Path) -> str:
        """Runs a restart until it says what it is killed at; edits a file once the build has begun. Its id."""
        driver = subprocess.Popen(
            self.words("restart", "--confirm", "served"), cwd=self.repo, env=self.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )  # fmt: skip
        assert driver.stderr is not None
        procedure, said = "", []
        with driver.stderr:
            for line in driver.stderr:
                said.append(line)
                if line.startswith("procedure "):
                    procedure = line.split()[1].rstrip(",")
                if line.startswith("build and stage"):
                    edited.write_text(edited.read_text() + "# edited during the build\n")
                if line.startswith(KILLS[kill]):
                    driver.kill()
                    break
        assert driver.wait() == -signal.SIGKILL, said
        return procedure

    @property
    def standing(self) -> record.RolloutRecord:
        found = record.read(open_store(self.remote)).record
        assert found is not None
        return found


@pytest.fixture
def deployed(tmp_path: Path) -> Iterator[Deployed]:
    made = Deployed(tmp_path)
    started = made.command("start")
    assert started.returncode == 0, started.stderr
    assert started.stdout.strip() == made.url
    try:
        yield made
    finally:
        stopped = made.command("stop", "--confirm", "served", group=("cluster",))
    assert stopped.returncode == 0, stopped.stderr
    assert made.ours() == [], "everything of it has ended"


@pytest.mark.soak
@pytest.mark.parametrize("kill", [kill for kill in KILLS if SOAK or kill == "stop"])
def test_live_work_rides_through_a_restart_whose_driver_was_killed(deployed: Deployed, kill: str) -> None:
    first = deployed.standing
    assert (first.phase, first.previous_image) == (Phase.COMMITTED, "")
    until = deployed.folder / "enough"
    script = f'echo "path=$PYTHONPATH"; i=0; while [ ! -e {until} ]; do echo "line $i"; i=$((i+1)); sleep 0.02; done'
    with deployed.client() as client:
        job = launch(client, "/u/rides", ["sh", "-c", script]).job_id
    changed = deployed.repo / "iris_controller" / "audit.py"
    changed.write_text(changed.read_text() + "# what was approved\n")

    procedure = deployed.killed_at(kill, changed)
    again = deployed.command("restart", "--confirm", "served", "--resume", procedure)
    assert again.returncode == 0, again.stderr

    standing = deployed.standing
    assert (standing.phase, standing.previous_image) == (Phase.COMMITTED, first.image)
    assert Path(standing.rollback_checkpoint.removeprefix("file://"), "manifest.json").is_file()
    assert lock.read(open_store(deployed.remote)).holder is None
    release = deployed.state / "releases" / standing.image / "lib"
    shipped = (release / "iris_controller" / "audit.py").read_text()
    assert shipped.endswith("# what was approved\n"), "the file that was edited during the build is not in it"
    assert f"runs release {standing.image[:12]}" in again.stdout

    until.touch()
    with deployed.client() as client:
        ask = controller_pb2.GetClusterStatusRequest()
        said = client.call("ControllerService/GetClusterStatus", ask, controller_pb2.GetClusterStatusResponse)
        assert said.tree == standing.image, "it says itself which tree it runs"
        assert said.finelog_release.startswith(said.release), "the log store was started anew from the new release"
        assert wait_jobs(client, [job]) == {job: common_pb2.JOB_STATE_SUCCEEDED}
        assert len(task(client, f"{job}/0").attempts) == 1, "no attempt was started again"
        printed = [line.data.rstrip("\n") for line in lines(client, job) if line.data.startswith(("line ", "path="))]
    assert printed[0] == "path=.", "a task runs from no release"
    assert printed[1:] == [f"line {n}" for n in range(len(printed) - 1)], "no line is missing or there twice"


@pytest.mark.soak
@pytest.mark.skipif(not SOAK, reason="the parts of it are tested with a smaller controller; make soak runs it whole")
def test_a_port_in_use_is_said_and_nothing_is_left_running(deployed: Deployed) -> None:
    assert deployed.command("stop", "--confirm", "served").returncode == 0
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", deployed.port))
        other.listen()
        started = deployed.command("start")
    assert started.returncode == 1 and "in use" in started.stderr and "it was stopped" in started.stderr
    status = deployed.command("status")
    assert status.returncode == 1 and f"Deployed:   {deployed.standing.image[:12]}, committed" in status.stdout
