"""A controller on an SSH host as a client sees it: opened with the first call, opened again after it broke, said as what it is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from iris_core.config.ssh import SshHost
from iris_core.connect import open_async_client, open_client, resolve
from iris_core.connect.tunnelled import TunnelledAsyncClient, TunnelledClient
from iris_core.contracts import ConnectFailed, UsageFailed
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

FILE = "name: far\nplatform: {local: }\ncontroller: {manual: {host: h1, port: 18000}}\n"
REQUEST = pb.GetClusterStatusRequest()


class FakeTunnel:
    """One that a test breaks."""

    def __init__(self, number: int) -> None:
        self.url = f"http://127.0.0.1:{number}"
        self.alive = True
        self.said = ""
        self.gone = threading.Event()

    @property
    def closed(self) -> bool:
        return self.gone.is_set()

    def problem(self) -> str:
        return self.said

    def close(self) -> None:
        self.alive = False
        self.gone.set()


class Way:
    """Opens tunnels, and clients behind them."""

    def __init__(self) -> None:
        self.tunnels: list[FakeTunnel] = []
        self.clients: list[FakeInner] = []
        self.refuse = ""

    def through(self) -> FakeTunnel:
        if self.refuse:
            raise ConnectFailed(self.refuse)
        self.tunnels.append(FakeTunnel(len(self.tunnels) + 1))
        return self.tunnels[-1]

    def inner(self, url: str) -> Any:
        self.clients.append(FakeInner(url))
        return self.clients[-1]

    def inner_async(self, url: str) -> Any:
        self.clients.append(FakeAsyncInner(url))
        return self.clients[-1]


class FakeInner:
    """Answers, or fails as a connection does whose other end is gone."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.fail = False
        self.closed: Any = False

    def call(self, method: str, request: Any, response: Any, *, timeout_s: float = 30.0) -> Any:
        if self.fail:
            raise ConnectFailed(f"{self.url} closed the connection without an answer")
        return response()

    def stream(self, method: str, request: Any, response: Any) -> Iterator[Any]:
        yield self.call(method, request, response)

    def close(self) -> Any:
        self.closed = True


class FakeAsyncInner(FakeInner):
    """The same for an event loop."""

    async def call(self, method: str, request: Any, response: Any, *, timeout_s: float = 30.0) -> Any:
        return FakeInner.call(self, method, request, response)

    async def stream(self, method: str, request: Any, response: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        yield FakeInner.call(self, method, request, response)

    async def close(self) -> None:
        self.closed = True


def test_a_name_leads_to_a_tunnel_that_is_opened_with_the_first_call_alone(tmp_path: Path) -> None:
    path = tmp_path / "far.yaml"
    path.write_text(FILE)
    asked: list[tuple[SshHost, int]] = []

    def opener(host: SshHost, port: int) -> Any:
        asked.append((host, port))
        raise ConnectFailed("ssh root@h1: the connection was refused")

    target = resolve(config=str(path), tunnels=opener)
    assert (target.url, target.cluster, target.environment) == ("ssh://root@h1/127.0.0.1:18000", "far", "")
    with open_client(target) as client:
        assert asked == [] and client.url == target.url
        with pytest.raises(ConnectFailed, match="the connection was refused"):
            client.call("ControllerService/GetClusterStatus", REQUEST, pb.GetClusterStatusResponse)
    assert asked == [(SshHost("h1"), 18000)]
    with pytest.raises(UsageFailed, match="no SSH tunnel can be opened from here") as caught:
        resolve(config=str(path))
    assert "--controller-url" in caught.value.hint


def test_a_tunnel_that_broke_is_said_and_another_one_opened_by_the_next_call() -> None:
    way = Way()
    client = TunnelledClient("ssh://root@h1/127.0.0.1:18000", way.through, way.inner)
    for _ in range(2):
        client.call("a/b", REQUEST, pb.GetClusterStatusResponse)
    assert len(way.tunnels) == 1 and list(client.stream("a/b", REQUEST, pb.GetClusterStatusResponse))
    way.clients[0].fail = True
    with pytest.raises(ConnectFailed) as caught:
        client.call("a/b", REQUEST, pb.GetClusterStatusResponse)
    assert caught.value.message == f"{client.url} closed the connection without an answer", "no address of this machine"
    way.tunnels[0].said = "ssh root@h1: the connection broke"
    with pytest.raises(ConnectFailed, match="ssh root@h1: the connection broke"):
        next(client.stream("a/b", REQUEST, pb.GetClusterStatusResponse))
    way.tunnels[0].alive = False
    client.call("a/b", REQUEST, pb.GetClusterStatusResponse)
    assert len(way.tunnels) == 2 and way.tunnels[0].closed and way.clients[0].closed
    client.close()
    client.close()
    assert way.tunnels[1].closed and way.clients[1].closed


@pytest.mark.asyncio
async def test_the_console_has_the_same_without_holding_up_its_loop(tmp_path: Path) -> None:
    path = tmp_path / "far.yaml"
    path.write_text(FILE)
    threads: list[str] = []

    def refused(host: SshHost, port: int) -> Any:
        threads.append(threading.current_thread().name)
        raise ConnectFailed("ssh root@h1: it does not answer")

    client = open_async_client(resolve(config=str(path), tunnels=refused))
    with pytest.raises(ConnectFailed, match="it does not answer"):
        await client.call("ControllerService/GetClusterStatus", REQUEST, pb.GetClusterStatusResponse)
    assert threads and threads[0] != threading.main_thread().name
    await client.close()

    way = Way()
    made = TunnelledAsyncClient("ssh://root@h1/127.0.0.1:18000", way.through, way.inner_async)
    await asyncio.gather(*(made.call("a/b", REQUEST, pb.GetClusterStatusResponse) for _ in range(3)))
    assert len(way.tunnels) == 1, "several calls at once share one"
    way.tunnels[0].alive = False
    assert [answer async for answer in made.stream("a/b", REQUEST, pb.GetClusterStatusResponse)]
    assert len(way.tunnels) == 2 and way.tunnels[0].closed
    await made.close()
    assert way.tunnels[1].closed
    with pytest.raises(ConnectFailed, match="was closed"):
        await made.call("a/b", REQUEST, pb.GetClusterStatusResponse)
    assert len(way.tunnels) == 2


@pytest.mark.asyncio
async def test_a_tunnel_that_opens_after_its_caller_left_is_closed() -> None:
    way, go, opened, tunnel = Way(), threading.Event(), threading.Event(), FakeTunnel(1)

    def slow() -> FakeTunnel:
        opened.set()
        go.wait(60)
        return tunnel

    made = TunnelledAsyncClient("ssh://root@h1/127.0.0.1:18000", slow, way.inner_async)
    call = asyncio.ensure_future(made.call("a/b", REQUEST, pb.GetClusterStatusResponse))
    await asyncio.to_thread(opened.wait, 60)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    go.set()
    assert await asyncio.to_thread(tunnel.gone.wait, 60)
    await made.close()
