"""RPCs as a hostile or impatient caller sends them: paging tokens, oversized lists, repeats, replacements that have to wait."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import struct
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format

from iris_controller.rpc import submitting
from iris_core.contracts import IrisError, RpcFailed
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2, worker_pb2
from providers.fake.worker import run_on
from tests.integration.controller_rig import Rig, connect, launch_request, rig

pytestmark = pytest.mark.asyncio
RECREATE = common_pb2.EXISTING_JOB_POLICY_RECREATE


def stubborn(worker: Any, wanted: Any) -> Any:
    """Runs, and never confirms a stop."""
    return [] if wanted.HasField("stop") else run_on(worker, wanted)


TOKENS: list[Any] = [
    [],
    ["x"],
    ["x", "y"],
    [None],
    [1.5],
    [10**30],
    [-(10**30)],
    [True],
    ["\ud800"],
    [1, 2, 3],
    {},
    "x",
    1,
    ["x", 1],
    [1, "x"],
]


@pytest.mark.parametrize("method", ["ListJobs", "ListTasks"])
async def test_a_hostile_page_token_is_refused_or_finds_nothing(tmp_path: Path, method: str) -> None:
    async with rig(tmp_path) as r:
        await r.launch("/u/a")
        texts = [urlsafe_b64encode(json.dumps(t).encode()).decode() for t in TOKENS]
        texts += [
            "!",
            "é",
            "A",
            urlsafe_b64encode(b"[" * 5000).decode(),
            urlsafe_b64encode(b"\xff").decode(),
            "AAAA" * 10_000,
        ]
        for sort in (0, 2, 3) if method == "ListJobs" else (0,):
            for text in texts:
                request: Any = (
                    controller_pb2.ListJobsRequest(page_token=text, sort=sort)  # type: ignore[arg-type]
                    if method == "ListJobs"
                    else controller_pb2.ListTasksRequest(job_id="/u/a", page_token=text)
                )
                answer: Any = (
                    controller_pb2.ListJobsResponse if method == "ListJobs" else controller_pb2.ListTasksResponse
                )
                try:
                    await r.call(method, request, answer)
                except IrisError as error:
                    assert getattr(error, "status", "INVALID_ARGUMENT") == "INVALID_ARGUMENT", (text[:40], error)


async def test_too_many_states_are_no_fault_of_the_server(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.launch("/u/a")
        request = controller_pb2.ListJobsRequest(states=[1] * 100_000 + list(range(200_000, 300_000)))  # type: ignore[arg-type]
        answer = await r.call("ListJobs", request, controller_pb2.ListJobsResponse)
        assert [job.job_id for job in answer.jobs] == ["/u/a"]


async def test_a_filtered_page_is_no_longer_than_asked_and_nothing_is_skipped(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await asyncio.gather(*(r.launch(f"/u/{'keep' if n % 3 else 'drop'}{n}") for n in range(40)))
        for sort in (0, 2, 3):
            seen: list[str] = []
            token = ""
            while True:
                request = controller_pb2.ListJobsRequest(page_size=7, page_token=token, filter="job~keep", sort=sort)  # type: ignore[arg-type]
                answer = await r.call("ListJobs", request, controller_pb2.ListJobsResponse)
                assert len(answer.jobs) <= 7
                seen.extend(job.job_id for job in answer.jobs)
                token = answer.next_page_token
                if not token:
                    break
            assert len(seen) == len(set(seen)) == 26, sort


async def until_waiting(r: Rig, job_id: str) -> None:
    """Until the job is cancelled and its attempts still held."""
    await r.until_state(job_id, common_pb2.JOB_STATE_KILLED)


async def test_replacements_that_wait_cost_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker(script=stubborn) as worker:
        names = ["/u/a", "/u/b", "/u/c"]
        for name in names:
            await r.launch(name)
            await r.until_state(name, common_pb2.JOB_STATE_RUNNING)
        waiting = [asyncio.ensure_future(r.launch(name, existing_job_policy=RECREATE)) for name in names]
        for name in names:
            await until_waiting(r, name)
        before = r.controller.loop.stats.batches
        await asyncio.sleep(0.5)
        assert r.controller.loop.stats.batches - before < 40, "waiting is not a loop of commands"
        assert not any(w.done() for w in waiting)
        worker.report([worker.observation(uid, common_pb2.TASK_STATE_KILLED) for uid in list(worker.seen)])
        answers = await asyncio.wait_for(asyncio.gather(*waiting), 60)
        assert [a.job_id for a in answers] == names


async def test_the_wait_for_a_replaced_job_is_counted_over_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitting, "REPLACE_WAIT_S", 2.0)
    async with rig(tmp_path) as r, r.worker(script=stubborn) as worker:
        await r.launch("/u/a")
        await r.until_state("/u/a", common_pb2.JOB_STATE_RUNNING)
        old = next(iter(worker.seen))
        request = launch_request("/u/a", existing_job_policy=RECREATE, request_id="r1")
        answer = None
        async with asyncio.timeout(60):
            while answer is None:
                try:
                    # Each caller gives up sooner than the wait is long.
                    answer = await r.client.call(
                        "ControllerService/LaunchJob", request, controller_pb2.LaunchJobResponse, timeout_s=0.8
                    )
                except IrisError as error:
                    assert getattr(error, "status", "UNAVAILABLE") in ("DEADLINE_EXCEEDED", "UNAVAILABLE"), error
        await worker.until(lambda w: old not in {a.attempt_uid for a in w.desired.attempts} and len(w.seen) == 2)
        connection = sqlite3.connect(tmp_path / "db" / "controller.sqlite3")
        committed = connection.execute("SELECT committed_cpu_millicores FROM workers").fetchone()[0]
        live = connection.execute("SELECT count(*) FROM task_attempts WHERE finished_at_ms IS NULL").fetchone()[0]
        connection.close()
        assert committed == 100 * live == 100


async def test_a_request_id_is_not_shared_between_methods_even_at_once(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker(script=stubborn) as worker:
        await r.launch("/u/a")
        await r.until_state("/u/a", common_pb2.JOB_STATE_RUNNING)
        launching = asyncio.ensure_future(r.launch("/u/a", existing_job_policy=RECREATE, request_id="same"))
        await until_waiting(r, "/u/a")
        other = asyncio.ensure_future(
            r.call(
                "TerminateJob",
                controller_pb2.TerminateJobRequest(job_id="/u/a", request_id="same"),
                controller_pb2.TerminateJobResponse,
            )
        )
        await asyncio.sleep(0.1)
        worker.report([worker.observation(uid, common_pb2.TASK_STATE_KILLED) for uid in list(worker.seen)])
        await asyncio.wait_for(launching, 60)
        with pytest.raises(RpcFailed, match="was used for"):
            await asyncio.wait_for(other, 60)


async def test_a_repeat_outlives_the_caller_that_came_first(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker(script=stubborn) as worker:
        await r.launch("/u/a")
        await r.until_state("/u/a", common_pb2.JOB_STATE_RUNNING)
        request = launch_request("/u/a", existing_job_policy=RECREATE, request_id="r1")
        first = connect(r.controller)
        leaving = asyncio.ensure_future(
            first.call("ControllerService/LaunchJob", request, controller_pb2.LaunchJobResponse)
        )
        await until_waiting(r, "/u/a")
        repeat = asyncio.ensure_future(r.call("LaunchJob", request, controller_pb2.LaunchJobResponse))
        await asyncio.sleep(0.1)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        await first.close()
        await asyncio.sleep(1.2)
        assert not repeat.done()
        worker.report([worker.observation(uid, common_pb2.TASK_STATE_KILLED) for uid in list(worker.seen)])
        assert (await asyncio.wait_for(repeat, 60)).job_id == "/u/a"


EXEC = controller_pb2.ExecInContainerRequest(task_id="/u/a/0", command=["x"], request_id="e1")


def execute(r: Rig) -> asyncio.Task[controller_pb2.ExecInContainerResponse]:
    return asyncio.create_task(r.call("ExecInContainer", EXEC, controller_pb2.ExecInContainerResponse))


async def test_an_exec_is_not_run_twice_for_a_repeat(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker(script=run_on) as worker:
        await r.launch("/u/a")
        await r.until_state("/u/a", common_pb2.JOB_STATE_RUNNING)
        asking = [execute(r) for _ in range(3)]
        await worker.until(lambda w: bool(w.requests), 60)
        done = controller_pb2.ExecInContainerResponse(exit_code=7)
        reply = worker_pb2.WorkerReply(request_id=worker.requests[0].request_id, exec=done)
        worker.send(worker_pb2.AttachRequest(reply=reply))
        answers = [*await asyncio.gather(*asking), await execute(r)]
        assert [a.exit_code for a in answers] == [7] * 4
        assert len(worker.requests) == 1


async def test_an_exec_whose_worker_goes_away_is_not_run_again_by_a_repeat(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        async with r.worker(script=run_on) as worker:
            await r.launch("/u/a")
            await r.until_state("/u/a", common_pb2.JOB_STATE_RUNNING)
            asking = execute(r)
            await worker.until(lambda w: bool(w.requests), 60)
        (uid,) = worker.seen
        held = [worker_pb2.Observation(attempt_uid=uid, state=common_pb2.TASK_STATE_RUNNING)]
        async with r.worker(script=run_on, boot_id=worker.boot_id, holding=held) as back:
            for answer in (await asking, await execute(r)):
                assert answer.exit_code == -1
                assert answer.error == "not known whether it ran: worker w1 went away before it answered"
            assert not back.requests


@pytest.mark.parametrize("way", ["grpc", "http"])
async def test_the_worker_is_told_to_end_an_exec_whose_caller_left(tmp_path: Path, way: str) -> None:
    async with rig(tmp_path) as r, r.worker(script=run_on) as worker:
        await r.launch("/u/a")
        await r.until_state("/u/a", common_pb2.JOB_STATE_RUNNING)
        caller: asyncio.Task[Any] | socket.socket
        if way == "grpc":
            caller = execute(r)
        else:
            caller = socket.create_connection(("127.0.0.1", r.controller.port.port))
            body = json_format.MessageToJson(EXEC)
            caller.sendall(
                "POST /iris.v1.ControllerService/ExecInContainer HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\n\r\n{body}".encode()
            )
        await worker.until(lambda w: len(w.requests) == 1, 60)
        if isinstance(caller, socket.socket):
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            caller.close()
        else:
            caller.cancel()
        await worker.until(lambda w: len(w.requests) == 2, 60)
        assert worker.requests[1].give_up == worker.requests[0].request_id
        repeat = await execute(r)
        assert repeat.error == "whoever asked for it left: its worker was told to end it"
        assert len(worker.requests) == 2, "an older client that sends it again does not have it run again"


async def test_of_two_submits_of_one_name_at_the_same_moment_one_is_the_job(tmp_path: Path) -> None:
    """C03: the other is told that the job is there and running; the first is not hurt by it."""
    async with rig(tmp_path) as r, r.worker():
        for number in range(20):
            name = f"/t/twin{number}"
            answers = await asyncio.gather(*(r.launch(name) for _ in range(2)), return_exceptions=True)
            refused = [a for a in answers if isinstance(a, BaseException)]
            assert len(refused) == 1, answers
            error = refused[0]
            assert isinstance(error, RpcFailed)
            assert error.status == "ALREADY_EXISTS"
            assert name in error.message
            status = await r.until_state(name, common_pb2.JOB_STATE_SUCCEEDED)
            assert status.num_tasks == 1
        connection = sqlite3.connect(tmp_path / "db" / "controller.sqlite3")
        rows = connection.execute("SELECT count(*), count(DISTINCT job_id) FROM jobs").fetchone()
        attempts = connection.execute("SELECT count(*) FROM task_attempts").fetchone()[0]
        connection.close()
        assert rows == (20, 20)
        assert attempts == 20, "each ran once"
