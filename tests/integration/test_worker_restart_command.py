"""`cluster controller worker-restart` on a deployed cluster of this machine: live work is spared or ended as its gate said, and never lost."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from iris_core.procedures import lock
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2
from providers.objects import open_store
from tests.integration.deployed import Deployed, deployed_cluster, mended_tree, until
from tests.integration.served import launch, lines, task, wait_jobs

QUICK = ("--observation-window", "1", "--min-batch", "1")


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """Three workers of the release before the one that the controller runs."""
    with deployed_cluster(tmp_path_factory.mktemp("workers"), workers=3) as made:
        yield made


def workers(deployed: Deployed) -> dict[str, controller_pb2.WorkerStatus]:
    with deployed.client() as client:
        said = client.call(
            "ControllerService/ListWorkers", controller_pb2.ListWorkersRequest(), controller_pb2.ListWorkersResponse
        )
    return {row.worker_id: row for row in said.workers if row.attached}


def slices(deployed: Deployed) -> set[str]:
    return {path.name for path in (deployed.state / "slices").glob("*.json")}


def release_of(deployed: Deployed) -> str:
    with deployed.client() as client:
        ask = controller_pb2.GetClusterStatusRequest()
        return client.call("ControllerService/GetClusterStatus", ask, controller_pb2.GetClusterStatusResponse).release


@pytest.mark.timeout(600)
def test_idle_workers_move_on_while_live_work_goes_on_and_then_the_rest_ends_what_its_gate_named(
    deployed: Deployed,
) -> None:
    until(lambda: len(workers(deployed)) == 3, "the workers never came")
    enough = deployed.folder / "enough"
    script = f'i=0; while [ ! -e {enough} ]; do echo "line $i"; i=$((i+1)); sleep 0.02; done'
    with deployed.client() as client:
        job = launch(client, "/u/rides", ["sh", "-c", script]).job_id
        until(lambda: bool(lines(client, job)), "the task never ran")
    mended_tree(deployed)
    shipped = deployed.command("restart", "--confirm", "served")
    assert shipped.returncode == 0, shipped.stderr
    until(lambda: len(workers(deployed)) == 3, "the workers never came back to the new controller")
    before, machines, release = workers(deployed), slices(deployed), release_of(deployed)
    assert {row.release for row in before.values()}.isdisjoint({release})
    with deployed.client() as client:
        there = task(client, f"{job}/0").task.worker_id
        uid = task(client, f"{job}/0").attempts[0].attempt_uid
    idle = sorted(before.keys() - {there})

    shown = deployed.command("worker-restart", "--dry-run")
    assert shown.returncode == 0 and f"{there} (release {before[there].release}): ends {job}/0:0" in shown.stderr
    assert "approve exactly this with: --approve worker-restart=" in shown.stderr
    assert workers(deployed).keys() == before.keys()

    # Killed when it has begun on the second of the two idle ones, and gone on with.
    procedure = deployed.killed_in("worker-restart", f"end {idle[1]}", "--idle-only", *QUICK, "--max-batch", "1")
    holder = lock.read(open_store(deployed.remote)).holder
    assert holder is not None and holder.procedure == procedure
    again = deployed.command("worker-restart", "--confirm", "served", "--resume", procedure)
    assert again.returncode == 0, again.stderr
    assert f"2 workers of served restarted onto release {release}" in again.stdout
    assert lock.read(open_store(deployed.remote)).holder is None
    after = workers(deployed)
    assert {name: row.release for name, row in after.items()} == {
        name: release if name in idle else before[name].release for name in before
    }
    assert after[there].boot_id == before[there].boot_id
    assert all(after[name].boot_id != before[name].boot_id for name in idle)
    with deployed.client() as client:
        now = task(client, f"{job}/0")
        assert [attempt.attempt_uid for attempt in now.attempts] == [uid], "the live task was spared"
        printed = [line.data.rstrip("\n") for line in lines(client, job)]
    assert printed == [f"line {n}" for n in range(len(printed))], "no line is missing or there twice"

    # What is left ends its task, by name, which is tried again: nothing of its output is lost.
    rest = deployed.command("worker-restart", "--confirm", "served", "--skip-current-hash", *QUICK)
    assert rest.returncode == 0, rest.stderr
    assert f"ends {job}/0:0" in rest.stderr and f"left out: {idle[0]} runs {release} already" in rest.stderr
    assert f"attempts that ended with their worker: {job}/0:0" in rest.stderr
    assert {row.release for row in workers(deployed).values()} == {release}
    assert slices(deployed) == machines, "no machine was lost on the way"
    with deployed.client() as client:
        until(lambda: len(task(client, f"{job}/0").attempts) == 2, "it was not tried again")
        enough.touch()
        assert wait_jobs(client, [job]) == {job: common_pb2.JOB_STATE_SUCCEEDED}
        attempts = task(client, f"{job}/0").attempts
        assert [attempt.state for attempt in attempts] == [
            common_pb2.TASK_STATE_WORKER_FAILED,
            common_pb2.TASK_STATE_SUCCEEDED,
        ]
        for attempt in attempts:
            said = [line.data.rstrip("\n") for line in lines(client, job) if line.attempt_uid == attempt.attempt_uid]
            assert said and said == [f"line {n}" for n in range(len(said))], "no gap"

    status = deployed.command("status", "-o", "json")
    assert json.loads(status.stdout)["lock"] is None
