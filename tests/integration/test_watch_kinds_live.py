"""Watch over every kind of row against a real controller: over gRPC and NDJSON, beside the unary calls that tell the same."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from iris_controller.watching import source
from iris_core.client.calls import Credentials
from iris_core.client.endpoint import parse_url
from iris_core.client.http_client import HttpClient
from iris_core.contracts import RpcFailed
from iris_core.live.watch_keys import KIND_FIELDS, each
from iris_core.wire.gen.iris.v1 import backends_pb2, common_pb2, endpoints_pb2
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from tests.integration.controller_rig import connect
from tests.integration.endpoint_world import register, running, token_of
from tests.integration.test_autoscaler_rpc import cluster, job

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from iris_core.client.aio import GrpcAsyncClient

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "EVERY_S", 0.02)


class Watching:
    """The rows of some kinds, by field and id, as a client keeps them."""

    def __init__(self, client: GrpcAsyncClient, *kinds: int, **values: Any) -> None:
        request = pb.WatchRequest()
        for kind in kinds:
            request.selectors.add(id=KIND_FIELDS[kind], kind=kind, **values)
        self.rows: dict[str, dict[str, Any]] = {KIND_FIELDS[kind]: {} for kind in kinds}
        self._missing = set(self.rows)
        self._stream: AsyncIterator[pb.WatchResponse] = client.stream(
            "ControllerService/Watch", request, pb.WatchResponse
        )

    async def until(self, wanted: Callable[[dict[str, dict[str, Any]]], object]) -> None:
        """Reads until every snapshot is there and the rows are as wanted."""
        async with asyncio.timeout(30):
            while self._missing or not wanted(self.rows):
                await self.read()

    async def read(self) -> None:
        """One message."""
        async with asyncio.timeout(30):
            message = await anext(self._stream)
            batches = [message.snapshot.rows] if message.HasField("snapshot") else message.delta.rows
            for rows in batches:
                for field, row_id, row in each(rows):
                    self.rows[field][row_id] = row
                for gone in rows.removed:
                    self.rows[rows.selector_id].pop(gone, None)
            if message.snapshot.last:
                self._missing.discard(message.snapshot.rows.selector_id)

    async def close(self) -> None:
        await self._stream.aclose()  # type: ignore[attr-defined]


async def test_a_task_that_is_preempted_shows_in_attempts_endpoints_and_the_fleet(tmp_path: Path) -> None:
    async with running(tmp_path) as (r, _):
        await register(r, "web", task_id="/u/a/0", endpoint_id="e1")
        watching = Watching(
            r.client, pb.WATCH_KIND_ATTEMPTS, pb.WATCH_KIND_ENDPOINTS, pb.WATCH_KIND_FLEET, task_ids=["/u/a/0"]
        )
        await watching.until(lambda rows: rows["fleet"]["fleet"].tasks_by_state == {"running": 1})
        (first,) = watching.rows["attempts"].values()
        assert first.current and first == (await r.task("/u/a/0")).attempts[0]
        assert {"e1", "/system/log-server"} == set(watching.rows["endpoints"])
        fleet = watching.rows["fleet"]["fleet"]
        assert [(b.band, b.tasks) for b in fleet.running] == [(common_pb2.PRIORITY_BAND_INTERACTIVE, 1)]
        assert [(w.health, w.count) for w in fleet.workers] == [(common_pb2.WORKER_HEALTH_HEALTHY, 1)]
        assert fleet.committed.cpu_millicores == 100 and fleet.total.cpu_millicores == 4_000
        assert fleet.ends.preemptions == 0 and fleet.ends.counted_since_ms and not fleet.autoscaler.groups
        kick = pb.KickTasksRequest(targets=["/u/a/0"], desired_state=common_pb2.TASK_STATE_PREEMPTED)
        assert (await r.call("KickTasks", kick, pb.KickTasksResponse)).results[0].queued
        await watching.until(
            lambda rows: (
                len(rows["attempts"]) == 2
                and "e1" not in rows["endpoints"]
                and rows["fleet"]["fleet"].ends.preemptions == 1
                and rows["fleet"]["fleet"].tasks_by_state == {"running": 1}
                and sum(a.state == common_pb2.TASK_STATE_RUNNING for a in rows["attempts"].values()) == 1
                and all(a.finished_at_ms for a in rows["attempts"].values() if not a.current)
            )
        )
        assert list(watching.rows["attempts"].values()) == list((await r.task("/u/a/0")).attempts)
        listed = await r.call(
            "ListEndpoints", endpoints_pb2.ListEndpointsRequest(), endpoints_pb2.ListEndpointsResponse
        )
        assert list(watching.rows["endpoints"].values()) == list(listed.endpoints)
        status = await r.call("GetClusterStatus", pb.GetClusterStatusRequest(), pb.GetClusterStatusResponse)
        assert (status.ends.preemptions, status.ends.failures) == (1, 0), "who asks once is told the same"
        await watching.close()


async def test_backends_and_the_controller_are_as_they_say_themselves(tmp_path: Path) -> None:
    async with running(tmp_path) as (r, _):
        watching = Watching(r.client, pb.WATCH_KIND_BACKENDS, pb.WATCH_KIND_CONTROLLER, pb.WATCH_KIND_USERS)
        await watching.until(
            lambda rows: rows["controller"]["controller"].lag.samples and rows["controller"]["controller"].store.state
        )
        backend = watching.rows["backends"]["default"]
        listed = await r.call("ListBackends", backends_pb2.ListBackendsRequest(), backends_pb2.ListBackendsResponse)
        assert backend.status == listed.backends[0]
        provider = await r.call(
            "GetProviderStatus", backends_pb2.GetProviderStatusRequest(), backends_pb2.GetProviderStatusResponse
        )
        provider.ClearField("revision")
        assert backend.provider == provider
        row = watching.rows["controller"]["controller"]
        assert row.process.boot_id == r.controller.boot_id and row.process.memory_rss_bytes
        assert (row.cluster, row.jobs, row.tasks, row.attempts, row.workers) == ("rig", 1, 1, 1, 1)
        assert row.store.state == "serving" and row.watchers == 1 and row.attached_workers == 1 and row.ready
        assert row.checkpoint.next_due_ms and not row.checkpoint.last_at_ms and not row.checkpoint.failure
        assert 0 <= row.lag.p50_ms <= row.lag.p99_ms <= row.lag.max_ms
        status = await r.call("GetClusterStatus", pb.GetClusterStatusRequest(), pb.GetClusterStatusResponse)
        assert status.lag.samples >= row.lag.samples
        (user,) = watching.rows["users"].values()
        assert (user.user_id, user.active_tasks, user.summary.running_tasks) == ("u", 1, 1)
        taken = await r.controller.keeping._checkpoints.take("test")
        await watching.until(lambda rows: rows["controller"]["controller"].checkpoint.last_at_ms)
        row = watching.rows["controller"]["controller"]
        assert (row.checkpoint.size_bytes, row.checkpoint.last_at_ms) == (taken.size_bytes, taken.created_at_ms)
        await watching.close()


async def test_groups_slices_and_decisions_are_those_of_the_autoscaler(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        watching = Watching(
            c.rig.client, pb.WATCH_KIND_SCALE_GROUPS, pb.WATCH_KIND_SLICES, pb.WATCH_KIND_AUTOSCALER_ACTIONS
        )
        await watching.until(lambda rows: rows["scale_groups"]["cpu"].availability == "available")
        assert not watching.rows["slices"] and not watching.rows["scale_groups"]["cpu"].current_slices
        await c.rig.call("LaunchJob", job("/u/a"), pb.LaunchJobResponse)
        await c.rig.until_state("/u/a", common_pb2.JOB_STATE_RUNNING)
        await watching.until(
            lambda rows: (
                [s.busy for s in rows["slices"].values()] == [True]
                and rows["scale_groups"]["cpu"].slice_state_counts["ready"] == 1
                and rows["scale_groups"]["cpu"].target_slices == 1
                and len(rows["actions"]) == 3
            )
        )

        async def same() -> bool:
            said = await c.status()
            (group,) = said.groups
            slices = list(group.slices)
            del group.slices[:]
            return (
                watching.rows["scale_groups"]["cpu"] == group
                and list(watching.rows["slices"].values()) == slices
                and list(watching.rows["actions"].values()) == list(said.recent_actions)
            )

        async with asyncio.timeout(30):
            while not await same():
                await watching.read()
        said = await c.status()
        assert [int(a.action_id) for a in said.recent_actions] == [1, 2, 3]
        await watching.close()


async def test_a_task_watches_its_own_endpoints_and_no_fleet(tmp_path: Path) -> None:
    async with running(tmp_path, "/u/a", "/u/b") as (r, worker):
        await register(r, "web", task_id="/u/a/0", endpoint_id="own")
        await register(r, "web", task_id="/u/b/0", endpoint_id="other")
        client = connect(r.controller, await token_of(r, worker))
        try:
            watching = Watching(client, pb.WATCH_KIND_ENDPOINTS)
            await watching.until(lambda rows: rows["endpoints"])
            assert set(watching.rows["endpoints"]) == {"own"}
            await register(r, "more", task_id="/u/b/0", endpoint_id="third")
            await register(r, "more", task_id="/u/a/0", endpoint_id="fourth")
            await watching.until(lambda rows: len(rows["endpoints"]) == 2)
            assert set(watching.rows["endpoints"]) == {"own", "fourth"}
            await watching.close()
            with pytest.raises(RpcFailed, match="may not watch the fleet"):
                await Watching(client, pb.WATCH_KIND_FLEET).until(lambda rows: rows)
        finally:
            await client.close()


async def test_ndjson_tells_the_same(tmp_path: Path) -> None:
    async with running(tmp_path) as (r, _):
        kinds = sorted(KIND_FIELDS)
        request = pb.WatchRequest()
        for kind in kinds:
            request.selectors.add(id=str(kind), kind=kind, task_ids=["/u/a/0"])

        def read() -> dict[str, set[str]]:
            client = HttpClient(parse_url(r.controller.port.url), Credentials())
            found: dict[str, set[str]] = {}
            for message in client.stream("ControllerService/Watch", request, pb.WatchResponse):
                if message.HasField("snapshot"):
                    rows = message.snapshot.rows
                    found[rows.selector_id] = {row_id for _, row_id, _ in each(rows)}
                if len(found) == len(kinds):
                    client.close()
                    return found
            raise AssertionError("the stream ended")

        found = await asyncio.to_thread(read)
        assert found["1"] == {"/u/a"} and found["2"] == {"/u/a/0"} and found["14"] == {"fleet"}
        assert found["6"] == {"/u/a interactive w1"} and found["13"] == {"controller"} and found["12"] == {"default"}
