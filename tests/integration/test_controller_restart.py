"""A deployed controller of this machine with live work: shipped changed trees by drivers that are killed and go on, and going back."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from iris_core.contracts import IrisError
from iris_core.procedures import lock, record
from iris_core.procedures.record import Phase
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2
from providers.objects import open_store
from tests.conftest import RequireService
from tests.integration.deployed import (
    KILLS_IN_SOAK,
    WAIT_S,
    Deployed,
    Submitter,
    break_release,
    controller_pid,
    deployed_cluster,
    first_tree,
    mended_tree,
    post,
    problems,
    serves,
    small_disk,
    until,
)
from tests.integration.served import launch, lines, task, wait_jobs
from tests.integration.test_disk_full import fill

SOAK = os.environ.get("IRIS_SOAK") == "1"


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """One cluster for all: each test ships to it, and leaves it serving."""
    folder = tmp_path_factory.mktemp("deployed")
    with small_disk(folder / "state"), deployed_cluster(folder) as made:
        yield made


@pytest.mark.soak
@pytest.mark.parametrize("kill", KILLS_IN_SOAK if SOAK else ["stop"])
def test_live_work_rides_through_a_restart_whose_driver_was_killed(deployed: Deployed, kill: str) -> None:
    first = deployed.standing
    assert first.phase in (Phase.COMMITTED, Phase.ROLLED_BACK)
    enough = deployed.folder / f"enough-{kill}"
    script = f'echo "path=$PYTHONPATH"; i=0; while [ ! -e {enough} ]; do echo "line $i"; i=$((i+1)); sleep 0.02; done'
    with deployed.client() as client:
        job = launch(client, f"/u/rides-{kill}", ["sh", "-c", script]).job_id
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

    enough.touch()
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
    assert deployed.command("start").returncode == 0


def tables(database: Path) -> set[str]:
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        return {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


@pytest.mark.timeout(600)
def test_a_release_that_migrates_and_is_not_healthy_is_gone_back_from_and_no_work_is_lost(deployed: Deployed) -> None:
    first_tree(deployed)
    first = deployed.standing
    die, end, runs = deployed.folder / "die", deployed.folder / "end", deployed.folder / "runs"
    runs.mkdir()
    enough = deployed.folder / "enough"
    rides = f'i=0; while [ ! -e {enough} ]; do echo "line $i"; i=$((i+1)); sleep 0.02; done'
    ends = f"echo ran >> {runs}/ends; while [ ! -e {end} ]; do sleep 0.02; done; echo ended >> {runs}/ends"
    with deployed.client() as client:
        for name, script in (("/u/rides", rides), ("/u/ends", ends)):
            launch(client, name, ["sh", "-c", script])
        until((runs / "ends").exists, "the task that ends on probation never ran")
    submitter = Submitter(deployed, runs)
    submitter.start()
    break_release(deployed, die)
    driver = subprocess.Popen(
        deployed.words("restart", "--confirm", "served"),
        cwd=deployed.repo, env=deployed.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip

    def proving() -> bool:
        said = problems(deployed)
        return ("on probation" in said and "workers attached: 1" in said) or driver.poll() is not None

    try:
        # The new release serves, on probation, and the worker with its live tasks is attached to it.
        until(proving, "the new release never came so far")
        assert driver.poll() is None
        status, error = post(deployed, "LaunchJob", {"name": "/u/early", "replicas": 1})
        assert (status, error["code"]) == (503, "on_probation") and int(str(error["retry_after_ms"])) > 0
        assert post(deployed, "GetJobStatus", {"job_id": "/u/rides"})[0] == 200, "reads go on"
        assert (deployed.standing.phase, deployed.standing.previous_image) == (Phase.PENDING, first.image)
        end.touch()
        until(lambda: "ended" in (runs / "ends").read_text(), "the task never ended")
        die.touch()
        said, _ = driver.communicate(timeout=300)
    finally:
        driver.kill()
        submitter.enough.set()
        submitter.join()
    assert driver.returncode == 1, said
    assert f"served runs {first.image[:12]} again, nothing was lost" in said and "ended 3 times in a row" in said

    standing = deployed.standing
    assert (standing.phase, standing.image, standing.previous_image) == (Phase.ROLLED_BACK, first.image, "")
    assert lock.read(open_store(deployed.remote)).holder is None
    aside = list(deployed.state.glob("db.aside.*"))
    assert len(aside) == 1 and "late" in tables(aside[0] / "controller.sqlite3"), "the migrated database is kept"
    assert "late" not in tables(deployed.state / "db" / "controller.sqlite3")
    taken = list(submitter.taken)
    assert len(taken) > 3

    # A crash of the release that is back rewinds nothing.
    with deployed.client() as client:
        after = launch(client, "/u/after", ["sh", "-c", f"echo ran >> {runs}/after"]).job_id
        killed = controller_pid(deployed)
        os.kill(killed, signal.SIGKILL)
        until(lambda: serves(deployed, but=killed), "it was not started again")
        enough.touch()
        jobs = ["/u/rides", "/u/ends", after, *taken]
        assert set(wait_jobs(client, jobs, WAIT_S).values()) == {common_pb2.JOB_STATE_SUCCEEDED}
        for job in jobs:
            assert len(task(client, f"{job}/0").attempts) == 1, f"{job} was tried again"
        printed = [line.data.rstrip("\n") for line in lines(client, "/u/rides")]
    assert (runs / "ends").read_text() == "ran\nended\n"
    for job in taken:
        assert (runs / job.rpartition("/")[2]).read_text() == "ran\n", f"{job} ran twice"
    assert printed == [f"line {n}" for n in range(len(printed))], "no line is missing or there twice"
    assert len(list(deployed.state.glob("db.aside.*"))) == 1 and deployed.standing == standing

    again = deployed.command("restart", "--rollback", "--confirm", "served")
    assert again.returncode == 1 and "there is no deployment to roll back to" in again.stdout


@pytest.mark.soak
@pytest.mark.skipif(not SOAK, reason="every kill of it is tried on the fake host; make soak tries these for real")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kill", ["write the record: rollback requested", "stop ", "start OLD again"])
def test_a_driver_killed_while_it_goes_back_goes_on_with_it(deployed: Deployed, kill: str) -> None:
    first_tree(deployed)
    first = deployed.standing.image
    die = deployed.folder / f"die-{kill.split()[0]}"
    die.touch()
    break_release(deployed, die)
    new = deployed.command("restart", "--dry-run").stderr.partition("ships tree ")[2][:12]
    words = f"stop {new}" if kill == "stop " else kill.replace("OLD", first[:12])
    procedure = deployed.killed_at(words)
    again = deployed.command("restart", "--confirm", "served", "--resume", procedure)
    assert again.returncode == 1 and f"served runs {first[:12]} again, nothing was lost" in again.stdout
    assert (deployed.standing.phase, deployed.standing.image) == (Phase.ROLLED_BACK, first)
    assert lock.read(open_store(deployed.remote)).holder is None and serves(deployed, but=0)


def test_a_full_disk_is_said_and_nothing_is_changed(deployed: Deployed, require_service: RequireService) -> None:
    require_service(deployed.small, "a small file system cannot be mounted")
    mended_tree(deployed)
    before, pid = deployed.standing, controller_pid(deployed)
    filler = fill(deployed.state)
    try:
        done = deployed.command("restart", "--confirm", "served")
    finally:
        filler.unlink()
    assert done.returncode == 1 and "nothing was changed: " in done.stdout and "No space left on device" in done.stdout
    assert "next: make room, then try again" in done.stderr
    assert (deployed.standing, controller_pid(deployed)) == (before, pid) and serves(deployed, but=0)
    assert lock.read(open_store(deployed.remote)).holder is None  # the next test ships this tree


SLOW_BUILD = """
import pathlib, time
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

class Slow(BuildHookInterface):
    def initialize(self, version, build_data):
        pathlib.Path({begun!r}).touch()
        while not pathlib.Path({go!r}).exists():
            time.sleep(0.02)
"""


def test_ctrl_c_while_a_release_is_built_does_not_reach_the_build(deployed: Deployed) -> None:
    before, pid = deployed.standing, controller_pid(deployed)
    begun, go = deployed.folder / "building", deployed.folder / "build-on"
    hook, project = deployed.repo / "hatch_build.py", deployed.repo / "pyproject.toml"
    as_it_was = project.read_text()
    hook.write_text(SLOW_BUILD.format(begun=str(begun), go=str(go)))
    project.write_text(f"{as_it_was}\n[tool.hatch.build.targets.wheel.hooks.custom]\n")
    said = deployed.folder / "said"
    try:
        with said.open("wb") as file:
            driver = subprocess.Popen(
                deployed.words("restart", "--confirm", "served"),
                cwd=deployed.repo, env=deployed.environment(), stdout=file, stderr=file, start_new_session=True,
            )  # fmt: skip
        until(lambda: begun.exists() or driver.poll() is not None, "it was never built")
        os.killpg(driver.pid, signal.SIGINT)  # as a terminal does
        until(lambda: "ending: what was begun" in said.read_text() or driver.poll() is not None, "it never said so")
        go.touch()
        assert driver.wait(WAIT_S) == 1, said.read_text()
    finally:
        hook.unlink()
        project.write_text(as_it_was)
    assert "KeyboardInterrupt" not in said.read_text() and "cannot be" not in said.read_text()
    assert "take a checkpoint" not in said.read_text(), said.read_text()
    assert (deployed.standing, controller_pid(deployed)) == (before, pid) and serves(deployed, but=0)
    assert lock.read(open_store(deployed.remote)).holder is None


@pytest.mark.timeout(600)
def test_the_driver_killed_at_every_step_and_then_a_rollback_that_says_what_it_drops(deployed: Deployed) -> None:
    mended_tree(deployed)
    enough = deployed.folder / "enough-again"
    with deployed.client() as client:
        rides = launch(client, "/u/again", ["sh", "-c", f"while [ ! -e {enough} ]; do sleep 0.02; done"]).job_id
        until(lambda: task(client, f"{rides}/0").task.state == common_pb2.TASK_STATE_RUNNING, "it never ran")
    for kill in ("pending", "start", "health", "commit"):
        if kill == "commit":  # the last one ships another tree: it is what the rollback goes back from
            first_tree(deployed)
        procedure = deployed.killed_at(kill)
        again = deployed.command("restart", "--confirm", "served", "--resume", procedure)
        assert again.returncode == 0, (kill, again.stderr)
        assert deployed.standing.phase is Phase.COMMITTED and lock.read(open_store(deployed.remote)).holder is None
    shipped = deployed.standing
    assert shipped.image != shipped.previous_image
    with deployed.client() as client:
        lost = launch(client, "/u/lost", ["sleep", "1000"]).job_id
        until(lambda: task(client, f"{lost}/0").task.state == common_pb2.TASK_STATE_RUNNING, "it never ran")
        shown = deployed.command("restart", "--rollback", "--dry-run")
        assert shown.returncode == 0 and "jobs that are lost, submitted after it: 1" in shown.stderr, shown.stderr
        assert "/u/lost" in shown.stderr and deployed.standing == shipped
        back = deployed.command("restart", "--rollback", "--confirm", "served")
        assert back.returncode == 0, back.stderr
        assert f"served runs {shipped.previous_image[:12]} again" in back.stdout
        assert (deployed.standing.phase, deployed.standing.image) == (Phase.ROLLED_BACK, shipped.previous_image)
        with pytest.raises(IrisError, match="there is no job"):
            task(client, f"{lost}/0")
        ask = controller_pb2.GetClusterStatusRequest()
        said = client.call("ControllerService/GetClusterStatus", ask, controller_pb2.GetClusterStatusResponse)
        assert said.tree == shipped.previous_image
        enough.touch()
        assert wait_jobs(client, [rides]) == {rides: common_pb2.JOB_STATE_SUCCEEDED}
        assert len(task(client, f"{rides}/0").attempts) == 1, "what ran before the checkpoint ran on through all of it"


@pytest.mark.timeout(300)
def test_a_rollback_whose_checkpoint_is_lost_names_its_way_out_and_no_work_is_lost(deployed: Deployed) -> None:
    enough = deployed.folder / "enough-stuck"
    with deployed.client() as client:
        rides = launch(client, "/u/stuck", ["sh", "-c", f"while [ ! -e {enough} ]; do sleep 0.02; done"]).job_id
        until(lambda: task(client, f"{rides}/0").task.state == common_pb2.TASK_STATE_RUNNING, "it never ran")
    store, runs = open_store(deployed.remote), deployed.standing.image
    lost = f"{deployed.remote}/controller-state/77"
    request = record.RolloutRecord(Phase.ROLLBACK_REQUESTED, runs, "", lost, 5, replaces=runs)
    record.write(store, request, record.read(store))
    assert deployed.command("stop", "--confirm", "served").returncode == 0
    started = deployed.command("start")
    assert started.returncode == 1 and "cannot be done" in started.stderr
    assert started.stderr.count("cluster controller withdraw-rollback") >= 1, started.stderr
    done = deployed.command("withdraw-rollback", "--confirm", "served")
    assert done.returncode == 0 and "no job is lost" in done.stderr, done.stderr
    assert (deployed.standing.phase, deployed.standing.image) == (Phase.COMMITTED, runs) and serves(deployed, but=0)
    assert lock.read(store).holder is None
    enough.touch()
    with deployed.client() as client:
        assert wait_jobs(client, [rides]) == {rides: common_pb2.JOB_STATE_SUCCEEDED}
        assert len(task(client, f"{rides}/0").attempts) == 1
