"""What a real controller writes into a real store: events, states, statuses, metrics and outcomes, through outages and restarts."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from iris_controller.rpc import task_status
from iris_controller.stats import producers
from iris_core.client.endpoint import parse_url
from iris_core.client.grpc_client import GrpcClient
from iris_core.contracts import RpcFailed
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2, stats_pb2, task_status_pb2, worker_pb2
from iris_core.wire.rows import rows_of
from providers.fake.worker import run_on, succeed
from tests.integration.controller_rig import Rig, connect, launch_request, rig

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from providers.fake.worker import FakeWorker

pytestmark = pytest.mark.asyncio
EVENTS = "iris.task_event"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "METRICS_EVERY_S", 0.2)
    monkeypatch.setattr(task_status, "EVERY_S", 3_600.0)


async def query(world: Rig, sql: str) -> list[dict[str, Any]]:
    answer = await world.client.call("StatsService/Query", stats_pb2.QueryRequest(sql=sql), stats_pb2.QueryResponse)
    return list(rows_of(answer.columns))


async def until_rows(world: Rig, table: str, count: int, sql: str = "") -> list[dict[str, Any]]:
    """The rows of a table, or of a statement, once it has so many in all."""
    request = stats_pb2.GetTableStatusRequest(table=table)
    async with asyncio.timeout(60):
        while True:
            try:
                found = await world.client.call(
                    "StatsService/GetTableStatus", request, stats_pb2.GetTableStatusResponse
                )
                if found.status.rows >= count:
                    break
            except RpcFailed as error:
                if error.status != "UNAVAILABLE":
                    raise
            await world.controller.loop.next_commit(0.1)
    return await query(world, sql or f'SELECT * FROM "{table}" ORDER BY seq')


def fail_once(worker: FakeWorker, wanted: worker_pb2.DesiredAttempt) -> Iterable[worker_pb2.Observation]:
    """The first attempt of a task fails, the next succeeds."""
    if wanted.run.attempt_id:
        return succeed(worker, wanted)
    return [
        worker.observation(wanted.attempt_uid, common_pb2.TASK_STATE_RUNNING),
        worker.observation(
            wanted.attempt_uid, common_pb2.TASK_STATE_FAILED, exit_code=3, error="exit code 3", failure_kind=1
        ),
    ]


async def run_job(world: Rig, name: str, **values: Any) -> str:
    request = launch_request(name, **values)
    job_id = (await world.call("LaunchJob", request, controller_pb2.LaunchJobResponse)).job_id
    await world.until(job_id, lambda job: job.finished_at_ms > 0)
    return job_id


async def test_events_states_and_metrics_of_one_job_and_of_its_replacement(tmp_path: Path) -> None:
    async with rig(tmp_path) as world, world.worker(script=fail_once):
        job_id = await run_job(world, "/u/twice", max_retries_failure=1)
        first = (await world.task(f"{job_id}/0")).task.incarnation
        rows = await until_rows(world, EVENTS, 7)
        assert [(row["attempt_id"], row["reason"]) for row in rows] == [
            (0, "Assigned"), (0, "Started"), (0, "Failed"), (0, "RetryScheduled"),
            (1, "Assigned"), (1, "Started"), (1, "Succeeded"),
        ]  # fmt: skip
        assert {row["incarnation"] for row in rows} == {first} and {row["cluster"] for row in rows} == {"rig"}
        await run_job(world, "/u/twice", max_retries_failure=1)
        await until_rows(world, EVENTS, 14)
        shown = await asyncio.to_thread(events_shown, world, f"{job_id}/0")
        second = (await world.task(f"{job_id}/0")).attempts
        assert [event[:2] for event in shown] == [(row["attempt_id"], row["reason"]) for row in rows]
        assert {uid for _, _, uid in shown} == {attempt.attempt_uid for attempt in second}
        assert not {row["attempt_uid"] for row in rows} & {uid for _, _, uid in shown}, "the two never mix"
        states = await until_rows(
            world, "iris.task_state", 1, "SELECT * FROM \"iris.task_state\" WHERE root_job_id = ''"
        )
        assert states[0]["running"] == states[0]["pending"] == 0
        async with asyncio.timeout(60):
            while not (
                rows := await query(world, "SELECT * FROM telltale WHERE labels LIKE '%LaunchJob%' ORDER BY seq")
            ):
                await world.controller.loop.next_commit(0.5)
        labels = json.loads(rows[0]["labels"])
        assert (labels["service"], labels["method"]) == ("ControllerService", "LaunchJob")
        assert {row["name"] for row in rows} == {
            "iris_rpc_requests_total", "iris_rpc_responses_total", "iris_rpc_duration_seconds_bucket",
            "iris_rpc_duration_seconds_sum", "iris_rpc_duration_seconds_count",
        }  # fmt: skip


def events_shown(world: Rig, task_id: str) -> list[tuple[int, str, str]]:
    """What `task events` shows."""
    from iris_core.cli.events import fetch
    from iris_core.cli.reads import task_status
    from iris_core.model.ids import TaskId

    with GrpcClient(parse_url(world.controller.port.url)) as client:
        found = task_status(client, TaskId.parse(task_id))
        events, older, notes = fetch(client, found.task, list(found.attempts), 200)
    assert not older and not notes
    return [(event.attempt_id, event.reason, event.attempt_uid) for event in events]


async def test_events_of_an_outage_reach_the_store_of_the_next_controller_once(tmp_path: Path) -> None:
    async with rig(tmp_path) as world, world.worker():
        await run_job(world, "/u/before")
        await until_rows(world, EVENTS, 3)
        # The store is gone and nobody starts it again.
        await world.controller.guard.end("finelog")
        assert await world.controller.finelog.stop()
        await run_job(world, "/u/meanwhile")
        process = await world.call(
            "GetProcessStatus", controller_pb2.GetProcessStatusRequest(), controller_pb2.GetProcessStatusResponse
        )
        assert process.process.details["stats_rows_lost"] == "0"
    assert list((tmp_path / "stats").iterdir()), "what was not delivered waits on disk"
    async with rig(tmp_path) as world:
        rows = await until_rows(world, EVENTS, 6)
        assert [(row["task_id"], row["reason"]) for row in rows] == [
            (f"/u/{name}/0", reason)
            for name in ("before", "meanwhile")
            for reason in ("Assigned", "Started", "Succeeded")
        ]
        status = await world.client.call(
            "StatsService/GetTableStatus", stats_pb2.GetTableStatusRequest(table="iris.task_event"),
            stats_pb2.GetTableStatusResponse,
        )  # fmt: skip
        assert status.status.missing_rows == 0


async def test_a_task_reports_its_status_by_its_own_token_and_nobody_elses(tmp_path: Path) -> None:
    async with rig(tmp_path) as world, world.worker(script=run_on) as worker:
        job_id = (await world.launch("/u/tells")).job_id
        await world.until_state(job_id, common_pb2.JOB_STATE_RUNNING)
        wanted = next(iter(worker.seen.values()))
        task = connect(world.controller, wanted.run.token)
        try:

            async def report(summary: str, detail: str = "") -> None:
                request = task_status_pb2.UpdateTaskStatusRequest(summary_md=summary, detail_md=detail)
                await task.call("ControllerService/UpdateTaskStatus", request, task_status_pb2.UpdateTaskStatusResponse)

            for step in range(20):
                await report(f"step {step}", "**loss** 2.3")
            shown = (await world.task(f"{job_id}/0")).task
            assert shown.status_md == "step 0"
            world.controller.task_status.flush()
            rows = await until_rows(world, "iris.task_status", 2)
            said = [row["status_text_summary_md"] for row in rows]
            assert said == ["step 0", "step 19"], "of what comes within a second the last is kept"
            assert (rows[-1]["task_id"], rows[-1]["attempt_id"]) == (f"{job_id}/0", 0)
            assert rows[-1]["attempt_uid"] == wanted.attempt_uid
            assert rows[-1]["status_text_detail_md"] == "**loss** 2.3"
            with pytest.raises(RpcFailed, match="at most 1,024"):
                await report("x" * 2_000)
            with pytest.raises(RpcFailed, match="WriteRows"):
                batch = stats_pb2.RowBatch(table="iris.task_event", producer="p", rows=1)
                request = stats_pb2.WriteRowsRequest(batches=[batch])
                await task.call("StatsService/WriteRows", request, stats_pb2.WriteRowsResponse)
        finally:
            await task.close()
        with pytest.raises(RpcFailed, match="only a running attempt"):
            await world.call(
                "UpdateTaskStatus", task_status_pb2.UpdateTaskStatusRequest(), task_status_pb2.UpdateTaskStatusResponse
            )
