"""`endpoints list|mint`: what is sent, what is printed in each format, and each way it fails."""

from __future__ import annotations

import json

import pytest

from iris_core.wire.gen.iris.v1 import endpoints_pb2 as pb
from tests.unit.cli_world import T0, World

WEB = pb.Endpoint(
    endpoint_id="0123456789abcdef",
    name="/t/job/web\x1b[31m",
    address="127.0.0.1:8080",
    task_id="/t/job/0",
    registered_at_ms=T0,
    lease_ms=90_000,
    access=pb.ENDPOINT_ACCESS_LINK,
    proxy_path="/proxy/t.job.web/",
    metadata={"b": "2", "a": "1"},
)
LOGS = pb.Endpoint(name="/system/log-server", address="http://127.0.0.1:1", proxy_path="/proxy/system.log-server/")


@pytest.fixture
def world() -> World:
    world = World()
    pages = {
        "": pb.ListEndpointsResponse(endpoints=[LOGS], next_page_token="n"),
        "n": pb.ListEndpointsResponse(endpoints=[WEB]),
    }
    world.client.answer("ListEndpoints", lambda request: pages[request.page_token])
    world.client.answer(
        "MintEndpointToken", pb.MintEndpointTokenResponse(path="/proxy/t/secret/t.job.web/", expires_at_ms=T0)
    )
    return world


def test_the_list_shows_every_page_and_no_control_character(world: World) -> None:
    done = world.cli("endpoints", "list")
    assert done.code == 0
    assert "\x1b" not in done.out
    rows = [line.split() for line in done.out.splitlines()]
    assert rows[0] == ["NAME", "ADDRESS", "TASK", "ACCESS", "AGE"]
    assert rows[1][:4] == ["/system/log-server", "http://127.0.0.1:1", "-", "private"]
    assert rows[2][1:4] == ["127.0.0.1:8080", "/t/job/0", "link"]


def test_machines_get_every_column(world: World) -> None:
    logs, web = json.loads(world.cli("endpoints", "list", "-o", "json").out)
    assert logs["task_id"] is None and logs["access"] == "private" and logs["age"] is None
    assert web["metadata"] == {"a": "1", "b": "2"} and web["lease"] == 90_000
    assert web["name"] == "/t/job/web\x1b[31m"
    assert world.cli("endpoints", "list", "-o", "name").out.splitlines()[0] == "/system/log-server"


def test_nothing_is_said_to_be_nothing(world: World) -> None:
    world.client.answer("ListEndpoints", pb.ListEndpointsResponse())
    done = world.cli("endpoints", "list", "/t/x")
    assert (done.code, done.out) == (0, "")
    assert "nothing serves under a name that begins with /t/x" in done.err
    assert world.cli("endpoints", "list", "-o", "json").out == "[]\n"


def test_a_link_goes_to_stdout_and_what_it_is_to_stderr(world: World) -> None:
    done = world.cli("endpoints", "mint", "/t/job/web", "--ttl", "8h")
    assert done.code == 0
    assert done.out.endswith("/proxy/t/secret/t.job.web/\n") and done.out.startswith("http")
    assert "until 2026-01-01T00:00:00.000Z" in done.err and "secret" not in done.err
    sent = world.client.called("MintEndpointToken")[-1]
    assert (sent.name, sent.ttl_ms) == ("/t/job/web", 8 * 3_600_000)
    found = json.loads(world.cli("endpoints", "mint", "/t/job/web", "-o", "json").out)
    assert set(found) == {"url", "expires"}


def test_a_time_that_is_none_is_a_usage_error(world: World) -> None:
    done = world.cli("endpoints", "mint", "/t/job/web", "--ttl", "soon")
    assert done.code == 2
    assert "--ttl" in done.err
