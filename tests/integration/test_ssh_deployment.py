"""A controller on an SSH host with live work: shipped changed trees by drivers that are killed on the way and go on."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from iris_core.client.grpc_client import GrpcClient
from iris_core.config.cluster import load_config
from iris_core.connect import open_client, resolve
from iris_core.contracts import ObjectStore
from iris_core.procedures import lock, record
from iris_core.procedures.record import Phase
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2
from providers.hosts.objects import HostStore
from providers.hosts.remote import Remote
from providers.hosts.ssh import Ssh
from providers.hosts.tunnel import open_tunnel
from tests.conftest import REQUIRE_SERVICES
from tests.integration.deployed import KILLS, KILLS_IN_SOAK, Deployed, until
from tests.integration.served import launch, lines, task, wait_jobs
from tests.integration.ssh_hosts import REMOTE, STATE, SshdHost, missing, ssh_hosts


class OnHost(Deployed):
    """A cluster whose controller, workers and state are on an SSH host; the tree and the driver are here."""

    def __init__(self, folder: Path, host: SshdHost) -> None:
        folder.mkdir()
        super().__init__(folder)
        self.host = host
        self.config.write_text(host.config("served"))
        config = load_config(self.config)
        assert config.controller_ssh is not None
        self.there = Remote(Ssh(config.controller_ssh), "served", STATE)

    @property
    def store(self) -> ObjectStore:
        return HostStore(self.there, f"file://{REMOTE}")

    @property
    def standing(self) -> record.RolloutRecord:
        found = record.read(self.store).record
        assert found is not None
        return found

    def environment(self) -> dict[str, str]:
        home = {
            "HOME": str(self.folder),
            "XDG_CACHE_HOME": f"{self.folder}/cache",
            "XDG_CONFIG_HOME": f"{self.folder}/config",
        }
        return {**super().environment(), **home}

    def hang(self) -> None:
        """Stops the controller as a wedged one stands: it runs, and answers nobody."""
        os.kill(int(self.there.ask("status")["pid"]), signal.SIGSTOP)

    def client(self) -> GrpcClient:
        return cast(GrpcClient, open_client(resolve(config=str(self.config), tunnels=open_tunnel)))


@contextmanager
def started_host(folder: Path) -> Iterator[SshdHost]:
    lacking = missing()
    if lacking and not REQUIRE_SERVICES:
        pytest.skip(lacking)
    assert not lacking, lacking
    with ssh_hosts(folder) as (made,):
        yield made


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshdHost]:
    with started_host(tmp_path_factory.mktemp("hosts")) as made:
        yield made


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory, host: SshdHost) -> Iterator[OnHost]:
    made = OnHost(tmp_path_factory.mktemp("deployed") / "served", host)
    started = made.command("start")
    assert started.returncode == 0, started.stderr
    assert started.stdout.strip() == f"ssh://root@{host.address}/127.0.0.1:10000"
    try:
        yield made
    finally:
        stopped = made.command("stop", "--confirm", "served", group=("cluster",))
        made.there.close()
    assert stopped.returncode == 0, stopped.stderr


@pytest.mark.timeout(1200)
def test_live_work_rides_through_restarts_whose_drivers_were_killed(deployed: OnHost, soak: bool) -> None:
    first = deployed.standing
    assert (first.phase, first.previous_image) == (Phase.COMMITTED, "")
    assert not Path(STATE).exists(), "nothing of it is on the driver's disk"
    enough = f"{STATE}/enough"
    script = f'i=0; while [ ! -e {enough} ]; do echo "line $i"; i=$((i+1)); sleep 0.02; done'
    with deployed.client() as client:
        job = launch(client, "/u/rides", ["sh", "-c", script]).job_id
    changed = deployed.repo / "iris_controller" / "audit.py"
    before = first
    for kill in KILLS_IN_SOAK if soak else KILLS:
        changed.write_text(changed.read_text() + f"# approved before {kill}\n")
        procedure = deployed.killed_at(kill, changed)
        again = deployed.command("restart", "--confirm", "served", "--resume", procedure)
        assert again.returncode == 0, (kill, again.stderr)
        standing = deployed.standing
        assert (standing.phase, standing.previous_image) == (Phase.COMMITTED, before.image), kill
        assert lock.read(deployed.store).holder is None
        saved = standing.rollback_checkpoint.removeprefix("file://")
        assert deployed.host.path(f"{saved}/manifest.json").is_file(), "its checkpoint is on the host's disk"
        shipped = deployed.host.path(f"{STATE}/releases/{standing.image}/lib/iris_controller/audit.py").read_text()
        assert shipped.endswith(f"# approved before {kill}\n"), "what was edited during the build is not in it"
        before = standing

    deployed.host.run("touch", enough)
    with deployed.client() as client:
        ask = controller_pb2.GetClusterStatusRequest()
        said = client.call("ControllerService/GetClusterStatus", ask, controller_pb2.GetClusterStatusResponse)
        assert said.tree == before.image, "it says itself which tree it runs"
        assert wait_jobs(client, [job]) == {job: common_pb2.JOB_STATE_SUCCEEDED}
        assert len(task(client, f"{job}/0").attempts) == 1, "no attempt was started again"
        printed = [line.data.rstrip("\n") for line in lines(client, job) if line.data.startswith("line ")]
    assert printed == [f"line {n}" for n in range(len(printed))], "no line is missing or there twice"
    status = deployed.command("status")
    assert status.returncode == 0 and f"Deployed:   {before.image[:12]}, committed" in status.stdout
    listed = deployed.command("list", "-o", "name", group=("checkpoint",))
    assert listed.returncode == 0, listed.stderr
    newest = listed.stdout.splitlines()[0]
    assert newest == before.rollback_checkpoint.replace("file://", f"ssh://root@{deployed.host.address}")


@pytest.mark.timeout(300)
def test_workers_of_a_host_move_on_to_the_release_of_their_controller(deployed: OnHost) -> None:
    def releases() -> tuple[str, set[str]]:
        with deployed.client() as client:
            ask, listing = controller_pb2.GetClusterStatusRequest(), controller_pb2.ListWorkersRequest()
            said = client.call("ControllerService/GetClusterStatus", ask, controller_pb2.GetClusterStatusResponse)
            rows = client.call("ControllerService/ListWorkers", listing, controller_pb2.ListWorkersResponse)
        return said.release, {row.release for row in rows.workers if row.attached}

    until(lambda: bool(releases()[1]), "the worker is not attached")
    if releases()[0] in releases()[1]:  # nothing was shipped before this test
        changed = deployed.repo / "iris_controller" / "audit.py"
        changed.write_text(changed.read_text() + "# approved for the workers\n")
        shipped = deployed.command("restart", "--confirm", "served")
        assert shipped.returncode == 0, shipped.stderr
        until(lambda: bool(releases()[1]), "the worker never came back to the new controller")
    now, before = releases()
    assert before and now not in before
    done = deployed.command("worker-restart", "--confirm", "served", "--observation-window", "1")
    assert done.returncode == 0, done.stderr
    assert f"1 worker of served restarted onto release {now}" in done.stdout
    assert releases() == (now, {now})
    again = deployed.command("worker-restart", "--confirm", "served", "--skip-current-hash")
    assert again.returncode == 0 and "there is no worker of served to restart" in again.stdout


@pytest.mark.timeout(300)
def test_a_controller_that_hangs_goes_back_to_a_checkpoint_and_that_can_be_taken_back(deployed: OnHost) -> None:
    def runbook(*words: str) -> subprocess.CompletedProcess[str]:
        return deployed.command("db-rollback", *words, group=("runbook",))

    def ended(name: str) -> str:
        with deployed.client() as client:
            job = launch(client, name, ["true"]).job_id
            assert wait_jobs(client, [job]) == {job: common_pb2.JOB_STATE_SUCCEEDED}
            return job

    def has(job: str) -> bool:
        listed = deployed.command("list", "-o", "name", group=("job",))
        assert listed.returncode == 0, listed.stderr
        return job in listed.stdout.splitlines()

    kept = ended("/u/before")
    made = deployed.command("checkpoint", "-o", "name")
    assert made.returncode == 0, made.stderr
    epoch = made.stdout.strip().rpartition("/")[2]
    lost = ended("/u/after")
    deployed.hang()
    listed = runbook()
    assert listed.returncode == 0 and f"{epoch} " in listed.stdout and "valid" in listed.stdout
    shown = runbook(epoch, "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert "jobs that are lost, submitted after it: 1" in shown.stderr and f"among them {lost}" in shown.stderr
    done = runbook(epoch, "--confirm", "served")
    assert done.returncode == 0, done.stderr
    assert f"on checkpoint file://{REMOTE}/controller-state/{epoch}" in done.stdout
    assert (has(kept), has(lost)) == (True, False)
    assert lock.read(deployed.store).holder is None

    id_ = done.stderr.rpartition("--undo ")[2].strip()
    back = runbook("--undo", id_, "--confirm", "served")
    assert back.returncode == 0, back.stderr
    assert (has(kept), has(lost)) == (True, True)
    again = runbook("--undo", id_, "--confirm", "served")
    assert again.returncode == 1 and f"no database in {STATE} that {id_} moved aside" in again.stdout


def test_a_host_that_cannot_be_reached_is_one_line_and_nothing_was_changed(tmp_path: Path) -> None:
    with started_host(tmp_path / "hosts") as host:
        unreachable(OnHost(tmp_path / "served", host), host)


def unreachable(made: OnHost, host: SshdHost) -> None:
    kind, key = host.key.with_suffix(".pub").read_text().split()[:2]
    host.known_hosts.write_text(f"{host.address} {kind} {key}\n")

    def failed(*words: str, group: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        done = made.command(*words, group=group)
        assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
        assert f"ssh root@{host.address}: its host key is not the one that is known" in done.stderr
        return done

    failed("list", group=("job",))
    failed("start", group=("cluster", "controller"))
    failed("restart", "--confirm", "served", group=("cluster", "controller"))
    host.learn_key()
    done = made.command("list", group=("job",))
    assert done.returncode == 1 and f"nobody answers at 127.0.0.1:10000 on root@{host.address}" in done.stderr
    assert not host.path(STATE).exists() and not host.path(REMOTE).exists(), "nothing was written"
    made.there.close()
