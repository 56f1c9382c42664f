"""The typed calls of the log store over the in-memory cluster: views by number, find, follow, export, and a view that is gone."""

from __future__ import annotations

import asyncio

import pytest

from iris_core.client.logs import AsyncLogs, Logs
from iris_core.contracts import RpcFailed
from iris_core.wire.gen.iris.v1 import common_pb2, logs_pb2
from providers.fake.client import FakeClient
from providers.fake.sync_client import FakeSyncClient

QUERY = logs_pb2.FetchLogsRequest(source="/u/j/0:0", match_scope=common_pb2.MATCH_SCOPE_EXACT, regex="hit")


def written(client: FakeClient) -> FakeClient:
    client.log("/u/j/0:0", *("hit" if number % 5 == 0 else "line" for number in range(20)))
    return client


def test_a_view_over_a_synchronous_connection() -> None:
    client = FakeSyncClient(written(FakeClient()))
    logs = Logs(client)
    opened = logs.open_view(QUERY, context=1)
    assert (opened.state.hits, opened.state.lines) == (4, 11)
    page = logs.read_lines(opened.view_id, 2, 3)
    assert [(line.number, line.is_context, line.breaks) for line in page.lines] == [
        (2, True, True),
        (3, False, False),
        (4, True, False),
    ]
    found = logs.find_next(opened.view_id, 4, substring="hit")
    assert (found.number, found.ordinal, found.total) == (6, 3, 4)
    assert logs.find_next(opened.view_id, 4, regex="h.t", backward=True).number == 3
    client.cluster.views.forget()
    logs.close_view(opened.view_id)
    with pytest.raises(RpcFailed) as caught:
        logs.read_lines(opened.view_id, 0)
    assert caught.value.code == "view_gone"
    assert logs.fetch(QUERY).matched == 4
    assert logs.health("/u/j").store.state == "serving"


def test_a_view_over_an_event_loop() -> None:
    async def body() -> None:
        client = written(FakeClient())
        logs = AsyncLogs(client)
        opened = await logs.open_view(QUERY)
        assert [line.line.seq for line in (await logs.read_lines(opened.view_id, 0)).lines] == [1, 6, 11, 16]
        assert (await logs.find_next(opened.view_id, 0, substring="hit")).number == 0
        exported = [answer async for answer in logs.export(opened.view_id)]
        assert exported[-1].done and exported[-1].data == b"hit\n" * 4
        follow = aiter(logs.tail(opened.view_id))
        assert not (await anext(follow)).lines
        client.log("/u/j/0:0", "one more hit")
        assert [line.line.data for line in (await anext(follow)).lines] == ["one more hit"]
        assert (await logs.fetch(QUERY)).matched == 5
        assert (await logs.health()).store.state == "serving"
        await logs.close_view(opened.view_id)
        with pytest.raises(RpcFailed, match="no such log view"):
            await logs.read_lines(opened.view_id, 0)

    asyncio.run(body())
