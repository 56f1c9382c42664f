"""What a connection must not send twice, since the first answer may be lost: a command in a task."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from iris_core.client.calls import NotReached, fate_unknown
from iris_core.client.endpoint import Endpoint
from iris_core.client.grpc_client import GrpcClient
from iris_core.client.http_client import HttpClient
from iris_core.client.mixed import MixedClient
from iris_core.contracts import ConnectFailed, RpcFailed
from iris_core.wire.gen.iris.v1 import controller_pb2
from tests.unit.test_client_connections import GET, Fault, Server, client, get, server, states

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from iris_core.contracts import Client

__all__ = ["client", "server"]

EXEC = "ControllerService/ExecInContainer"


def exec_in(client: Client) -> controller_pb2.ExecInContainerResponse:
    request = controller_pb2.ExecInContainerRequest(task_id="/u/a/0", command=["x"])
    return client.call(EXEC, request, controller_pb2.ExecInContainerResponse)


def test_an_exec_goes_over_grpc_and_without_a_word_over_http_where_that_is_not_spoken(server: Server) -> None:
    server.handlers[EXEC] = lambda *_: controller_pb2.ExecInContainerResponse(exit_code=3)
    notes: list[str] = []
    with MixedClient(Endpoint(False, "127.0.0.1", server.start_http()), note=notes.append) as client:
        assert exec_in(client).exit_code == 3
        client._grpc_blocked, client._grpc = False, GrpcClient(Endpoint(False, "127.0.0.1", server.start_grpc()))
        assert exec_in(client).exit_code == 3
    assert [how for how, *_ in server.seen] == ["http", "grpc"]
    assert not notes


@pytest.mark.parametrize(("said", "ways"), [("status: 415", ["grpc", "http"]), ("status: 502", ["grpc"])])
def test_an_exec_goes_on_over_http_only_where_a_proxy_passed_nothing_on(
    server: Server, said: str, ways: list[str]
) -> None:
    def refuse(*_: Any) -> controller_pb2.ExecInContainerResponse:
        if server.seen[-1][0] == "grpc":
            raise Fault("UNKNOWN", f"Received http2 header with {said}")
        return controller_pb2.ExecInContainerResponse(exit_code=3)

    server.handlers[EXEC] = refuse
    with MixedClient(Endpoint(False, "127.0.0.1", server.start_http())) as client:
        client._grpc = GrpcClient(Endpoint(False, "127.0.0.1", server.start_grpc()))
        if len(ways) == 2:
            assert exec_in(client).exit_code == 3
        else:
            with pytest.raises(RpcFailed) as caught:
                exec_in(client)
            assert fate_unknown(EXEC, caught.value)
    assert [how for how, *_ in server.seen] == ways


@pytest.mark.parametrize("kind", [GrpcClient, HttpClient, MixedClient])
def test_what_may_have_been_heard_and_has_no_answer_that_lasts_is_not_sent_again(kind: type[GrpcClient]) -> None:
    """However the connection breaks: at once, and one that was kept from a call before."""
    heard = 0
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def take_and_leave() -> None:
            nonlocal heard
            while True:
                peer, _ = listener.accept()
                with peer:
                    data = peer.recv(65536)
                    if data == b"end":
                        return
                    if data.startswith(b"PRI"):
                        peer.sendall(b"\0\0\0\4\0\0\0\0\0")
                        while b"ExecInContainer" not in data and b"x-iris" not in data and len(data) < 200:
                            data += peer.recv(65536)
                    heard += 1

        thread = threading.Thread(target=take_and_leave)
        thread.start()
        port = listener.getsockname()[1]
        notes: list[str] = []
        with kind(Endpoint(False, "127.0.0.1", port), note=notes.append) as client:
            with pytest.raises(ConnectFailed) as caught:
                exec_in(client)
        assert not isinstance(caught.value, NotReached)
        assert fate_unknown(EXEC, caught.value)
        with socket.create_connection(("127.0.0.1", port)) as last:
            last.sendall(b"end")
            thread.join(60)
    assert heard == 1
    assert not notes


def test_a_kept_connection_is_not_trusted_with_what_must_not_be_sent_twice(server: Server) -> None:
    server.handlers.update({GET: states, EXEC: lambda *_: controller_pb2.ExecInContainerResponse(exit_code=3)})
    with HttpClient(Endpoint(False, "127.0.0.1", server.start_http())) as client:
        get(client)
        client._idle[0]._socket.shutdown(socket.SHUT_RDWR)
        assert exec_in(client).exit_code == 3
    assert [name for _, name, *_ in server.seen] == [GET, EXEC]


@pytest.mark.parametrize("kind", [GrpcClient, HttpClient])
def test_an_exec_that_reached_nobody_is_tried_again(kind: type[GrpcClient]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    with (
        kind(Endpoint(False, "127.0.0.1", port), clock=lambda: now[0], sleep=sleep) as nobody,
        pytest.raises(NotReached),
    ):
        exec_in(nobody)
    assert 2 < now[0] <= 5


def test_an_exec_that_a_worker_may_have_heard_is_not_sent_again_and_one_that_was_refused_is(
    server: Server, client: Client
) -> None:
    faults = iter(
        [
            Fault("UNAVAILABLE", "committing", code="unavailable", retry_after_ms=1),
            # As the release before said it.
            Fault("UNAVAILABLE", "worker w1 went away", code="worker_gone", retry_after_ms=1000),
        ]
    )

    def refuse(_: Any, __: Any) -> Message:
        raise next(faults)

    server.handlers[EXEC] = refuse
    with pytest.raises(RpcFailed, match="went away") as caught:
        exec_in(client)
    assert fate_unknown(EXEC, caught.value)
    assert len(server.seen) == 2
