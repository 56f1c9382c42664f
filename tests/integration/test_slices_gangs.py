"""Gangs on real slices: two of four workers each. What is killed, evicted or drained, who pays, and who runs again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2
from tests.integration import fleet_console
from tests.integration.served import launch, lines, status, wait_jobs
from tests.integration.slices_world import (
    Slices,
    launch_gang,
    members,
    query,
    running,
    slice_of,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from iris_core.client.grpc_client import GrpcClient

NO_CHARGE, PREEMPTION = 0, 2
DRAIN = """
SLICE=$1
SEL="SELECT t.task_id FROM tasks t JOIN workers w ON t.current_worker_id=w.worker_id
     WHERE w.slice_id='$SLICE' AND t.state IN (2,3,9) AND t.job_id NOT LIKE '/larry/%'"

iris query -f csv "$SEL" | iris task preempt --stdin --dry-run          # preview
iris query -f csv "$SEL" | iris task preempt --stdin --reason "drain slice for /larry"
"""
"""As the operators' manual prints it, but for the name of the slice."""


@pytest.fixture(scope="module")
def slices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slices]:
    """Two slices, ready. The last test of the module loses one of them."""
    made = Slices(tmp_path_factory.mktemp("slices"))
    made.start()
    try:
        with made.client() as client:
            until(lambda: len(healthy(client)) == 8, "the slices never came up")
        yield made
    finally:
        made.end()


@pytest.fixture
def client(slices: Slices) -> Iterator[GrpcClient]:
    with slices.client() as made:
        yield made


def healthy(client: GrpcClient) -> list[str]:
    request = controller_pb2.ListWorkersRequest()
    answer = client.call("ControllerService/ListWorkers", request, controller_pb2.ListWorkersResponse)
    return [w.worker_id for w in answer.workers if w.health == common_pb2.WORKER_HEALTH_HEALTHY]


def ends(client: GrpcClient, job_id: str, attempt: int) -> dict[int, tuple[str, int]]:
    """State and charge of each member's attempt with that number."""
    sql = (
        "SELECT t.task_index, a.state, a.charge FROM task_attempts a JOIN tasks t USING (task_id)"
        f" WHERE t.job_id = '{job_id}' AND a.attempt_id = {attempt}"
    )
    name = common_pb2.TaskState.Name
    return {index: (name(state).removeprefix("TASK_STATE_"), charge) for index, state, charge in query(client, sql)}


def assert_one_was_lost(client: GrpcClient, job_id: str, lost: int) -> None:
    """The lost member is charged a preemption, its mates nothing."""
    wanted = {i: ("WORKER_FAILED", PREEMPTION) if i == lost else ("COSCHED_FAILED", NO_CHARGE) for i in range(4)}
    assert ends(client, job_id, 0) == wanted
    assert [m.task.preemption_count for m in members(client, job_id)] == [int(i == lost) for i in range(4)]


def finish(client: GrpcClient, job_id: str, flag: Path) -> None:
    flag.touch()
    assert wait_jobs(client, [job_id])[job_id] == common_pb2.JOB_STATE_SUCCEEDED, status(client, job_id)


def test_a_gang_runs_whole_on_one_slice(slices: Slices, client: GrpcClient, tmp_path: Path) -> None:
    launch_gang(client, "/t/whole", tmp_path / "go")
    workers = running(client, "/t/whole")
    assert workers == [f"{slice_of(workers[0])}-w-{index}" for index in range(4)], "task 0 on machine 0, and so on"
    assert slices.kept().count(slice_of(workers[0])) == 1
    finish(client, "/t/whole", tmp_path / "go")
    until(lambda: len(lines(client, "/t/whole")) == 8, "a line of the gang is missing")
    assert ends(client, "/t/whole", 0) == dict.fromkeys(range(4), ("SUCCEEDED", NO_CHARGE))


def test_a_killed_worker_bounces_its_gang_and_only_the_lost_member_pays(
    slices: Slices, client: GrpcClient, tmp_path: Path
) -> None:
    launch_gang(client, "/t/bounced", tmp_path / "go")
    workers = running(client, "/t/bounced")
    before = slices.kept()
    supervisor, worker = slices.process_of(workers[2], "supervisor"), slices.process_of(workers[2], "worker")
    worker.signal(signal.SIGKILL)
    running(client, "/t/bounced", attempt=1)
    assert_one_was_lost(client, "/t/bounced", 2)
    assert slices.process_of(workers[2], "supervisor") == supervisor, "its supervisor started it again"
    assert slices.process_of(workers[2], "worker") != worker
    finish(client, "/t/bounced", tmp_path / "go")
    assert slices.kept() == before, "no slice was given up for it"


def test_a_production_gang_evicts_a_batch_gang_and_the_log_names_both(
    slices: Slices, client: GrpcClient, tmp_path: Path
) -> None:
    until(lambda: len(healthy(client)) == 8, "the slices never came back")
    for name in ("/t/batch-1", "/t/batch-2"):
        launch_gang(client, name, tmp_path / name[3:], band=common_pb2.PRIORITY_BAND_BATCH)
    places = {name: slice_of(running(client, name)[0]) for name in ("/t/batch-1", "/t/batch-2")}
    launch_gang(client, "/t/urgent", tmp_path / "urgent", band=common_pb2.PRIORITY_BAND_PRODUCTION)
    place = slice_of(running(client, "/t/urgent")[0])
    victim, spared = sorted(places, key=lambda name: places[name] != place)
    assert (places[victim], status(client, spared).preemption_count) == (place, 0)
    assert ends(client, victim, 0) == dict.fromkeys(range(4), ("PREEMPTED", PREEMPTION))
    assert ends(client, spared, 0) == dict.fromkeys(range(4), ("RUNNING", NO_CHARGE))
    log = until(lambda: _named(slices, victim), "the log does not name the evicted")
    for index in range(4):
        line = next(line for line in log if f"entity={victim}/{index}" in line)
        assert "Preempted by /t/urgent" in line, line
    finish(client, "/t/urgent", tmp_path / "urgent")
    running(client, victim, attempt=1)
    finish(client, victim, tmp_path / victim[3:])
    finish(client, spared, tmp_path / spared[3:])


def _named(slices: Slices, victim: str) -> list[str]:
    """The lines that name every member, once they are all stored."""
    done = slices.cli("process", "logs", "--substring", "event=task_preempted")
    assert done.code == 0, done.err
    found = [line for line in done.out.splitlines() if victim in line]
    return found if all(any(f"{victim}/{index}" in line for line in found) for index in range(4)) else []


def test_the_manual_s_way_to_drain_a_slice_works_as_printed(slices: Slices, client: GrpcClient, tmp_path: Path) -> None:
    here = slices.kept()[0]
    there = common_pb2.Constraint(key="tpu-name", op=common_pb2.CONSTRAINT_OP_EQ)
    there.values.add(text=here)
    for name, replicas in (("/larry/serve", 1), ("/t/noise", 3)):
        launch(client, name, ["sleep", "600"], replicas=replicas, constraints=[there])
    sql = "SELECT task_id, current_attempt_uid FROM tasks WHERE job_id IN ('/larry/serve', '/t/noise') AND state = 3"
    before = dict(until(lambda: len(found := query(client, sql)) == 4 and found, "the jobs never ran"))
    script = tmp_path / "drain.sh"
    script.write_text(DRAIN)
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", str(script), here],
        env=slices.place.env | {"IRIS_CONTROLLER_URL": slices.url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for index in range(3):
        assert f"/t/noise/{index}" in done.stdout
    assert "/larry" not in done.stdout.replace("drain slice for /larry", "")
    after = dict(until(lambda: len(found := query(client, sql)) == 4 and found, "the drained never ran again"))
    assert {name for name in before if before[name] != after[name]} == {f"/t/noise/{index}" for index in range(3)}
    sql = "SELECT state, charge, count(*) FROM task_attempts WHERE task_id LIKE '/t/noise/%' AND attempt_id = 0 GROUP BY 1, 2"
    assert query(client, sql) == [[common_pb2.TASK_STATE_PREEMPTED, PREEMPTION, 3]], "once, and not by the dry run"
    for name in ("/larry/serve", "/t/noise"):
        request = controller_pb2.TerminateJobRequest(job_id=name)
        client.call("ControllerService/TerminateJob", request, controller_pb2.TerminateJobResponse)
        wait_jobs(client, [name])


def test_the_console_explains_a_gang_that_waits_and_preempts_the_tasks_on_one_slice(
    slices: Slices, client: GrpcClient, tmp_path: Path
) -> None:
    until(lambda: len(healthy(client)) == 8, "the slices never came back")
    for name in ("/t/first", "/t/second", "/t/waits"):
        launch_gang(client, name, tmp_path / name[3:])
        if name != "/t/waits":
            running(client, name)
    place = slice_of(running(client, "/t/second")[0])
    until(lambda: status(client, "/t/waits").pending_reason, "the third gang has no reason")
    told = slices.cli("job", "explain", "/t/waits", "-o", "json")
    assert told.code == 0, told.err
    shown = asyncio.run(fleet_console.explain_and_preempt(slices.url, "/t/waits", place))
    funnel = [
        [step["name"], str(step["left"]), f"+{step['more']}" if step["more"] else ""]
        for step in json.loads(told.out)["funnel"]
    ]
    assert funnel and fleet_console.steps(shown, [name for name, _, _ in funnel]) == funnel
    until(
        lambda: ends(client, "/t/second", 0) == dict.fromkeys(range(4), ("PREEMPTED", PREEMPTION)),
        "the slice was not cleared",
    )
    assert ends(client, "/t/first", 0) == dict.fromkeys(range(4), ("RUNNING", NO_CHARGE)), (
        "the other slice was not meant"
    )
    for name in ("/t/first", "/t/second", "/t/waits"):
        (tmp_path / name[3:]).touch()
    found = wait_jobs(client, ["/t/first", "/t/second", "/t/waits"])
    assert set(found.values()) == {common_pb2.JOB_STATE_SUCCEEDED}


def test_a_lost_machine_takes_its_slice_along_and_the_gang_finishes_on_the_one_that_replaces_it(
    slices: Slices, client: GrpcClient, tmp_path: Path
) -> None:
    # The other slice is taken, so the gang has to wait for a new one.
    launch_gang(client, "/t/other", tmp_path / "go")
    other = running(client, "/t/other")
    launch_gang(client, "/t/moved", tmp_path / "go")
    workers = running(client, "/t/moved")
    lost = slice_of(workers[1])
    uid = members(client, "/t/moved")[1].task.attempt_uid
    # The supervisor first: it would start the worker again.
    killed_at = time.monotonic()
    for name in ("supervisor", "worker"):
        slices.process_of(workers[1], name).signal(signal.SIGKILL)
    until(lambda: not carriers(uid), "the attempt outlived its machine", 10)
    assert ends(client, "/t/moved", 0) == dict.fromkeys(range(4), ("RUNNING", NO_CHARGE)), "nobody is declared dead yet"
    until(lambda: ends(client, "/t/moved", 0)[1][0] != "RUNNING", "the lost worker was never declared dead")
    assert time.monotonic() - killed_at >= 9, "the heartbeat before the kill was at most a second old"
    began = until(lambda: deletion(slices, lost), "the slice was never given up")
    told = "SELECT t.task_index, a.finished_at_ms FROM task_attempts a JOIN tasks t USING (task_id)"
    rows = query(client, f"{told} WHERE t.job_id = '/t/moved' AND a.attempt_id = 0")
    for index, finished in rows:
        assert finished is not None and finished <= began, f"member {index} had not ended when its slice was torn down"
    replacing = slice_of(running(client, "/t/moved", attempt=1, within_s=120)[0])
    assert replacing not in (lost, slice_of(other[0]))
    assert slices.kept() == sorted([replacing, slice_of(other[0])])
    assert_one_was_lost(client, "/t/moved", 1)
    assert running(client, "/t/other") == other, "its neighbour did not notice"
    left = f"SELECT worker_id FROM workers WHERE slice_id = '{lost}'"
    until(lambda: not query(client, left), "the workers of a slice that is gone were not forgotten")
    finish(client, "/t/moved", tmp_path / "go")
    finish(client, "/t/other", tmp_path / "go")


def carriers(uid: str) -> list[int]:
    """Live processes of that attempt."""
    mark = f"IRIS_ATTEMPT_UID={uid}".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark in file.read().split(b"\0"):
                        found.append(int(name))
            except OSError:
                continue
    return found


def deletion(slices: Slices, slice_id: str) -> int:
    """When the machines of that slice were told to end, epoch ms; 0 = not yet."""
    path = slices.state / "slices" / f"{slice_id}.json"
    record = json.loads(path.read_text()) if path.exists() else {}
    return path.stat().st_mtime_ns // 1_000_000 if record.get("deleting") else 0
