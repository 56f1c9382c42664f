"""The registry of endpoints on a real controller: whose they are, how long they live, and what nobody may register."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING

import pytest

from iris_core.contracts import IrisError, RpcFailed
from iris_core.wire.gen.iris.v1 import common_pb2, endpoints_pb2
from tests.integration.controller_rig import CONFIG, connect, rig, start
from tests.integration.endpoint_world import listed, register, running, token_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.asyncio


async def refused(waited: object) -> RpcFailed:
    with pytest.raises(RpcFailed) as caught:
        await waited  # type: ignore[misc]
    return caught.value


async def test_a_task_registers_under_its_own_root_and_is_found(tmp_path: Path) -> None:
    async with running(tmp_path) as (r, worker):
        client = connect(r.controller, await token_of(r, worker))
        made = await register(client, "shards/0", metadata={"rank": "0"}, address="8080")
        assert (made.name, made.address, made.task_id) == ("/u/a/shards/0", "127.0.0.1:8080", "/u/a/0")
        assert made.proxy_path == "/proxy/u.a.shards.0/"
        assert dict(made.metadata) == {"rank": "0"}
        assert await listed(client) == await listed(r) == ["/u/a/shards/0"]
        assert await listed(r, "/u/a/shards/0", exact=True) == ["/u/a/shards/0"]
        assert await listed(r, "/u/a/shards", exact=True) == []
        assert "/system/log-server" in await listed(r, "/system/")
        assert await listed(client, "/system/") == [], "a task sees its own tree"
        row = sqlite3.connect(tmp_path / "db" / "controller.sqlite3").execute(
            "SELECT name, address, task_id, access, lease_deadline_ms FROM endpoints"
        )
        assert row.fetchall() == [("/u/a/shards/0", "127.0.0.1:8080", "/u/a/0", None, None)]
        await client.close()


async def test_what_a_task_may_not_register(tmp_path: Path) -> None:
    async with running(tmp_path, "/u/a", "/u/b") as (r, worker):
        client = connect(r.controller, await token_of(r, worker))
        assert "not below /u/a" in (await refused(register(client, "/u/b/x"))).message
        assert (await refused(register(client, "x", task_id="/u/b/0"))).status == "PERMISSION_DENIED"
        for name in ("", "/u/a", "a//b", "a/../b", "x y", "/u/a/", "a\n"):
            assert (await refused(register(client, name))).status == "INVALID_ARGUMENT", name
        for address in (
            "169.254.169.254:80",
            "metadata.google.internal:80",
            "10.1.2.3:80",
            "fake@10.1.2.3:80",
            "8080/admin",
            "0",
            "65536",
            "http://:x",
            "https://127.0.0.1:1",
            "::1:80",
            "１:１",
        ):
            failure = await refused(register(client, "x", address=address))
            assert failure.status == "INVALID_ARGUMENT", address
            assert failure.field == "address", (address, failure.message)
        other = await register(r, "mine", task_id="/u/b/0", endpoint_id="one")
        assert (await refused(register(client, "x", endpoint_id="one"))).status == "PERMISSION_DENIED"
        unregister = endpoints_pb2.UnregisterEndpointRequest(endpoint_id=other.endpoint_id)
        call = client.call("ControllerService/UnregisterEndpoint", unregister, endpoints_pb2.UnregisterEndpointResponse)
        assert (await refused(call)).status == "PERMISSION_DENIED"
        assert await listed(r) == ["/u/b/mine"]
        for values in ({"lease_ms": 1}, {"lease_ms": -5}, {"access": 9}, {"endpoint_id": "../x"}):
            assert (await refused(register(client, "x", **values))).status == "INVALID_ARGUMENT", values
        await client.close()


async def test_an_endpoint_goes_with_its_attempt(tmp_path: Path) -> None:
    async with running(tmp_path, "/u/a", "/u/b", "/u/c") as (r, worker):
        for job in ("/u/a", "/u/b", "/u/c"):
            await register(r, "x", task_id=f"{job}/0")
        await register(r, "y", task_id="/u/b/0")
        await r.cancel("/u/a")
        assert await listed(r) == ["/u/b/x", "/u/b/y", "/u/c/x"], "at once, not when the process is gone"
        uid = (await r.task("/u/b/0")).attempts[-1].attempt_uid
        worker.report([worker.observation(uid, common_pb2.TASK_STATE_SUCCEEDED, exit_code=0)])
        await r.until_state("/u/b", common_pb2.JOB_STATE_SUCCEEDED)
        assert await listed(r) == ["/u/c/x"]
        assert (await refused(register(r, "x", task_id="/u/b/0"))).code == "not_running"
        uid = (await r.task("/u/c/0")).attempts[-1].attempt_uid
        worker.report([worker.observation(uid, common_pb2.TASK_STATE_WORKER_FAILED, error="gone")])
        async with asyncio.timeout(60):
            while (await r.task("/u/c/0")).attempts[-1].attempt_uid == uid:
                await r.controller.loop.next_commit(0.5)
        assert await listed(r) == [], "the next attempt registers anew"
        rows = sqlite3.connect(tmp_path / "db" / "controller.sqlite3").execute("SELECT count(*) FROM endpoints")
        assert rows.fetchone() == (0,)


async def test_a_lease_that_is_not_renewed_ends_and_a_renewed_one_does_not(tmp_path: Path) -> None:
    async with running(tmp_path) as (r, _):
        now = [1000.0]
        leases = r.controller.leases
        leases.use_clock(lambda: now[0])
        kept = await register(r, "kept", task_id="/u/a/0", endpoint_id="kept", lease_ms=10_000)
        await register(r, "left", task_id="/u/a/0", endpoint_id="left", lease_ms=10_000)
        await register(r, "always", task_id="/u/a/0")
        now[0] += 6
        await register(r, "kept", task_id="/u/a/0", endpoint_id="kept", lease_ms=10_000)
        now[0] += 6
        assert await listed(r) == ["/u/a/always", "/u/a/kept"], "hidden as soon as it is over"
        assert leases.fire() == 1
        async with asyncio.timeout(60):
            while "left" in r.controller.model.endpoints:
                await r.controller.loop.next_commit(0.5)
        assert kept.endpoint_id in r.controller.model.endpoints
        now[0] += 6
        assert await listed(r) == ["/u/a/always"]


async def test_registrations_survive_a_restart_with_a_whole_lease(tmp_path: Path) -> None:
    async with running(tmp_path) as (r, _):
        await register(r, "x", task_id="/u/a/0", lease_ms=60_000)
        await register(r, "y", task_id="/u/a/0", access=endpoints_pb2.ENDPOINT_ACCESS_LINK)
    controller = await start(tmp_path)
    client = connect(controller)
    try:
        assert await listed(client) == ["/u/a/x", "/u/a/y"]
        assert {e.access.name for e in controller.model.endpoints.by_id.values()} == {"PRIVATE", "LINK"}
    finally:
        await client.close()
        await controller.stop()


async def test_listing_goes_page_by_page(tmp_path: Path) -> None:
    async with running(tmp_path) as (r, _):
        for number in range(7):
            await register(r, f"n{number}", task_id="/u/a/0")
            await register(r, f"n{number}", task_id="/u/a/0", endpoint_id=f"second-{number}")
        names: list[str] = []
        token = ""
        while True:
            request = endpoints_pb2.ListEndpointsRequest(prefix="/u/", page_size=4, page_token=token)
            page = await r.call("ListEndpoints", request, endpoints_pb2.ListEndpointsResponse)
            assert page.total_count == 14
            names += [f"{e.name}:{e.endpoint_id}" for e in page.endpoints]
            token = page.next_page_token
            if not token:
                break
        assert len(names) == len(set(names)) == 14
        assert names == sorted(names)


async def test_a_repeat_of_a_registration_is_one(tmp_path: Path) -> None:
    async with running(tmp_path) as (r, _):
        first = await register(r, "x", task_id="/u/a/0", request_id="r1")
        again = await register(r, "x", task_id="/u/a/0", request_id="r1")
        assert first == again
        assert len(await listed(r)) == 1


async def test_system_endpoints_of_the_cluster_file_are_listed(tmp_path: Path) -> None:
    config = CONFIG + "endpoints:\n  /system/tb: {uri: 'http://127.0.0.1:6006', metadata: {kind: board}}\n"
    async with rig(tmp_path, config) as r:
        assert await listed(r, "/system/tb", exact=True) == ["/system/tb"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x: {uri: 'ftp://h'}", "not the address"),
        ("x: {uri: 'http://h/path'}", "not the address"),
        ("x: {}", "uri"),
        ("'/': {uri: 'http://h'}", "not a name"),
    ],
)
async def test_a_wrong_system_endpoint_is_refused_at_start(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(IrisError) as caught:
        await start(tmp_path, CONFIG + f"endpoints:\n  {text}\n")
    assert says in caught.value.message
