"""The connections against real servers on loopback: both transports give the same answers and the same errors."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Protocol

import grpc
import pytest
from google.protobuf import json_format

from iris_core.client.aio import GrpcAsyncClient
from iris_core.client.calls import Credentials, NotReached, Repeater, Timeout, identified, token_from_environment
from iris_core.client.endpoint import Endpoint, parse_url
from iris_core.client.grpc_client import GrpcClient
from iris_core.client.http_client import HttpClient
from iris_core.client.mixed import MixedClient
from iris_core.contracts import ConnectFailed, Denied, IrisError, RpcFailed, UsageFailed
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2, logs_pb2
from iris_core.wire.services import method, methods

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from google.protobuf.message import Message

    from iris_core.contracts import Client

    class RequireService(Protocol):
        """tests/conftest.py"""

        def __call__(self, found: object, reason: str) -> None: ...

    Handler = Callable[[Any, dict[str, str]], Message]

GET = "ControllerService/GetJobState"
LAUNCH = "ControllerService/LaunchJob"
WATCH = "ControllerService/Watch"
FETCH = "LogService/FetchLogs"


class Fault(Exception):
    """What a handler raises to answer with an error."""

    def __init__(self, status: str, message: str, **detail: Any) -> None:
        super().__init__(message)
        self.status, self.message, self.detail = status, message, detail


class Server:
    """One set of handlers, served over gRPC on one port and HTTP on another, with a record of what was asked."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}
        self.streams: dict[str, list[Message]] = {}
        self.seen: list[tuple[str, str, Any, dict[str, str]]] = []
        self.stopping: list[Callable[[], object]] = []

    def answer(self, how: str, name: str, request: Any, headers: dict[str, str]) -> Message:
        self.seen.append((how, name, request, headers))
        return self.handlers[name](request, headers)

    def start_grpc(self) -> int:
        server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        handlers: dict[str, dict[str, Any]] = {}
        for rpc in methods():
            make = grpc.unary_stream_rpc_method_handler if rpc.server_streaming else grpc.unary_unary_rpc_method_handler
            handlers.setdefault(rpc.service, {})[rpc.name] = make(
                self._grpc(rpc.full_name, streaming=rpc.server_streaming),
                request_deserializer=rpc.request.FromString,
                response_serializer=lambda value: value.SerializeToString(),
            )
        for service, table in handlers.items():
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(f"iris.v1.{service}", table),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.stopping.append(lambda: server.stop(None).wait())
        return port

    def _grpc(self, name: str, *, streaming: bool) -> Any:
        def run(request: Any, context: grpc.ServicerContext) -> Any:
            headers = {key: str(value) for key, value in context.invocation_metadata()}
            try:
                return self.answer("grpc", name, request, headers)
            except Fault as fault:
                detail = common_pb2.ErrorDetail(**fault.detail)
                context.set_trailing_metadata((("iris-error-detail-bin", detail.SerializeToString()),))
                context.abort(grpc.StatusCode[fault.status], fault.message)

        def stream(request: Any, context: grpc.ServicerContext) -> Iterator[Message]:
            run(request, context)
            yield from self.streams[name]

        return stream if streaming else run

    def start_http(self) -> int:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_POST(self) -> None:
                name = self.path.removeprefix("/iris.v1.")
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {key.lower(): value for key, value in self.headers.items()}
                rpc = method(name)
                request = json_format.Parse(body, rpc.request())
                try:
                    answer = outer.answer("http", name, request, headers)
                except Fault as fault:
                    code = {"NOT_FOUND": 404, "INVALID_ARGUMENT": 400, "UNAVAILABLE": 503, "UNAUTHENTICATED": 401}
                    self.reply(code[fault.status], {"status": fault.status, "message": fault.message, **fault.detail})
                    return
                if rpc.server_streaming:
                    self.send_response(200)
                    self.send_header("transfer-encoding", "chunked")
                    self.end_headers()
                    text = b"".join(
                        json_format.MessageToJson(item, indent=None).encode() + b"\n" for item in outer.streams[name]
                    )
                    # Cut in the middle of lines, as a network does.
                    for start in range(0, len(text), 7):
                        part = text[start : start + 7]
                        self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
                    self.wfile.write(b"0\r\n\r\n")
                else:
                    self.reply(200, json_format.MessageToDict(answer))

            def reply(self, status: int, fields: dict[str, Any]) -> None:
                data = json.dumps(fields).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                """A client that hangs up is what some tests are about."""

        server = Quiet(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        self.stopping += [server.shutdown, thread.join, server.server_close]
        return int(server.server_address[1])


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    for stop in found.stopping:
        stop()


@pytest.fixture(params=["grpc", "http"])
def client(request: pytest.FixtureRequest, server: Server) -> Iterator[Client]:
    credentials = Credentials("tok", read_only=True)
    if request.param == "grpc":
        made: Client = GrpcClient(Endpoint(False, "127.0.0.1", server.start_grpc()), credentials)
    else:
        made = HttpClient(Endpoint(False, "127.0.0.1", server.start_http()), credentials)
    with made:
        yield made


def states(_: Any, __: Any = None) -> controller_pb2.GetJobStateResponse:
    return controller_pb2.GetJobStateResponse(states={"/u/j": common_pb2.JobState.JOB_STATE_RUNNING})


def get(client: Client, **options: Any) -> controller_pb2.GetJobStateResponse:
    request = controller_pb2.GetJobStateRequest(job_ids=["/u/ä"])
    return client.call(GET, request, controller_pb2.GetJobStateResponse, **options)


def test_an_answer_arrives_and_the_caller_is_named(server: Server, client: Client) -> None:
    server.handlers[GET] = states
    for _ in range(3):
        assert dict(get(client).states) == {"/u/j": 3}
    _, _, request, headers = server.seen[0]
    assert list(request.job_ids) == ["/u/ä"]
    assert (headers["authorization"], headers["iris-read-only"]) == ("Bearer tok", "1")


def test_an_error_keeps_every_field(server: Server, client: Client) -> None:
    def refuse(_: Any, __: Any) -> Message:
        raise Fault("INVALID_ARGUMENT", "bad regex", code="bad_regex", field="regex", position=0, hint="close it")

    server.handlers[GET] = refuse
    with pytest.raises(RpcFailed) as caught:
        get(client)
    error = caught.value
    assert (error.status, error.message, error.code) == ("INVALID_ARGUMENT", "bad regex", "bad_regex")
    assert (error.field, error.position, error.hint, error.exit_code) == ("regex", 0, "close it", 2)


def test_an_unknown_caller_is_denied(server: Server, client: Client) -> None:
    def refuse(_: Any, __: Any) -> Message:
        raise Fault("UNAUTHENTICATED", "who are you", code="unauthenticated")

    server.handlers[GET] = refuse
    with pytest.raises(Denied, match="who are you") as caught:
        get(client)
    assert caught.value.exit_code == 1


def test_a_stream_is_read_to_its_end_and_again(server: Server, client: Client) -> None:
    server.handlers[WATCH] = states
    server.streams[WATCH] = [controller_pb2.WatchResponse(heartbeat={"now_ms": n}) for n in range(20)]
    for _ in range(2):
        answers = client.stream(WATCH, controller_pb2.WatchRequest(), controller_pb2.WatchResponse)
        assert [answer.heartbeat.now_ms for answer in answers] == list(range(20))


def test_a_stream_that_is_refused_says_why(server: Server, client: Client) -> None:
    def refuse(_: Any, __: Any) -> Message:
        raise Fault("NOT_FOUND", "no such job", code="not_found", subject="/u/x")

    server.handlers[WATCH] = refuse
    server.streams[WATCH] = []
    with pytest.raises(RpcFailed) as caught:
        list(client.stream(WATCH, controller_pb2.WatchRequest(), controller_pb2.WatchResponse))
    assert (caught.value.status, caught.value.subject) == ("NOT_FOUND", "/u/x")


def test_a_mutation_gets_an_id_and_is_repeated_under_it(server: Server, client: Client) -> None:
    answers = iter([Fault("UNAVAILABLE", "committing", code="unavailable", retry_after_ms=1), None])

    def launch(_: Any, __: Any) -> Message:
        fault = next(answers)
        if fault is not None:
            raise fault
        return controller_pb2.LaunchJobResponse(job_id="/u/j")

    server.handlers[LAUNCH] = launch
    mine = controller_pb2.LaunchJobRequest(name="/u/j")
    assert client.call(LAUNCH, mine, controller_pb2.LaunchJobResponse).job_id == "/u/j"
    first, second = (seen[2].request_id for seen in server.seen)
    assert first == second != ""
    assert mine.request_id == ""


def test_a_failure_that_will_not_pass_is_not_repeated(server: Server, client: Client) -> None:
    def refuse(_: Any, __: Any) -> Message:
        raise Fault("UNAVAILABLE", "no", code="unavailable")

    server.handlers[LAUNCH] = refuse
    with pytest.raises(RpcFailed):
        client.call(LAUNCH, controller_pb2.LaunchJobRequest(), controller_pb2.LaunchJobResponse)
    assert len(server.seen) == 1


def test_silence_ends_at_the_deadline(server: Server, client: Client) -> None:
    release = threading.Event()

    def wait(_: Any, __: Any) -> Message:
        release.wait(20)
        return states(None)

    server.handlers[GET] = wait
    with pytest.raises(Timeout, match="did not answer within"):
        get(client, timeout_s=0.3)
    release.set()


@pytest.mark.parametrize("kind", [GrpcClient, HttpClient, MixedClient])
def test_nobody_listening_is_said_at_once(kind: type[GrpcClient]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with kind(Endpoint(False, "127.0.0.1", port)) as nobody, pytest.raises(NotReached) as caught:
        get(nobody)
    assert caught.value.message == f"cannot connect to http://127.0.0.1:{port}: connection refused"


@pytest.mark.parametrize("kind", [GrpcClient, HttpClient])
def test_a_host_that_does_not_exist_is_said(kind: type[GrpcClient]) -> None:
    with (
        kind(Endpoint(False, "nowhere.invalid", 1)) as nobody,
        pytest.raises(ConnectFailed, match="host name is unknown"),
    ):
        get(nobody)


@pytest.mark.parametrize("kind", [GrpcClient, HttpClient])
def test_a_mutation_that_reaches_nobody_is_tried_again_for_a_while(kind: type[GrpcClient]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    now = [0.0]
    notes: list[str] = []

    def sleep(seconds: float) -> None:
        now[0] += seconds

    endpoint = Endpoint(False, "127.0.0.1", port)
    request = controller_pb2.LaunchJobRequest()
    with (
        kind(endpoint, note=notes.append, clock=lambda: now[0], sleep=sleep) as nobody,
        pytest.raises(ConnectFailed, match="refused"),
    ):
        nobody.call(LAUNCH, request, controller_pb2.LaunchJobResponse)
    assert 2 < now[0] <= 5
    assert len(notes) == 1


def test_what_is_not_http_is_named(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
                peer.recv(65536)

        thread = threading.Thread(target=greet)
        thread.start()
        with HttpClient(Endpoint(False, "127.0.0.1", listener.getsockname()[1])) as client:
            with pytest.raises(ConnectFailed, match=r"does not speak HTTP/1\.1"):
                get(client)
        thread.join()


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (b"502 Bad Gateway", b"<html>", "nothing behind it answers"),
        (b"302 Found", b"", "wants a login"),
        (b"404 Not Found", b"<html>", "HTTP 404 without saying why"),
        (b"200 OK", b"<html>hello", "is not the JSON of iris.v1"),
    ],
)
def test_a_proxy_in_between_is_told_from_a_controller(status: bytes, body: bytes, error: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body))

        thread = threading.Thread(target=answer)
        thread.start()
        with HttpClient(Endpoint(False, "127.0.0.1", listener.getsockname()[1])) as client:
            with pytest.raises(IrisError, match=error):
                get(client)
        thread.join()


def test_a_kept_connection_that_died_is_replaced(server: Server) -> None:
    server.handlers[GET] = states
    port = server.start_http()
    with HttpClient(Endpoint(False, "127.0.0.1", port)) as client:
        get(client)
        client._idle[0]._socket.shutdown(socket.SHUT_RDWR)
        assert dict(get(client).states) == {"/u/j": 3}


def test_a_controller_that_is_slow_to_answer_is_dialled_once_and_waited_for(server: Server) -> None:
    """A busy one takes the connection at once and speaks later: giving up and dialling anew would never get through."""
    server.handlers[GET] = states
    behind = server.start_grpc()
    dialled: list[socket.socket] = []
    opened: list[socket.socket] = []
    pumps: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as front:

        def slow() -> None:
            with contextlib.suppress(OSError):
                while True:
                    one, _ = front.accept()
                    dialled.append(one)
                    threading.Timer(1.5, join, (one,)).start()

        def join(one: socket.socket) -> None:
            other = socket.create_connection(("127.0.0.1", behind))
            opened.append(other)
            for source, sink in ((one, other), (other, one)):
                pumps.append(threading.Thread(target=pump, args=(source, sink)))
                pumps[-1].start()

        def pump(source: socket.socket, sink: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(65536):
                    sink.sendall(data)
                sink.shutdown(socket.SHUT_WR)

        accepting = threading.Thread(target=slow, daemon=True)
        accepting.start()
        with GrpcClient(Endpoint(False, "127.0.0.1", front.getsockname()[1])) as client:
            assert dict(get(client).states) == {"/u/j": 3}
        assert len(dialled) == 1
        front.shutdown(socket.SHUT_RDWR)
        accepting.join()
    for one in pumps:
        one.join()
    for each in (*dialled, *opened):
        each.close()


def test_large_messages_go_over_grpc_and_small_ones_do_not(server: Server) -> None:
    # Two ports here stand for the one port of a controller: the endpoint of the gRPC half is swapped in.
    server.handlers.update({GET: states, FETCH: lambda *_: logs_pb2.FetchLogsResponse(shown=1)})
    grpc_end = Endpoint(False, "127.0.0.1", server.start_grpc())
    with MixedClient(Endpoint(False, "127.0.0.1", server.start_http())) as client:
        client._grpc = GrpcClient(grpc_end)
        get(client)
        client.call(FETCH, logs_pb2.FetchLogsRequest(max_lines=100), logs_pb2.FetchLogsResponse)
        client.call(FETCH, logs_pb2.FetchLogsRequest(max_lines=400_000), logs_pb2.FetchLogsResponse)
        client.call(GET, controller_pb2.GetJobStateRequest(job_ids=["x" * 200_000]), controller_pb2.GetJobStateResponse)
    assert [how for how, *_ in server.seen] == ["http", "http", "grpc", "grpc"]


def test_where_grpc_finds_no_way_everything_goes_over_http(server: Server) -> None:
    server.handlers.update({FETCH: lambda *_: logs_pb2.FetchLogsResponse(shown=1), WATCH: states})
    server.streams[WATCH] = [controller_pb2.WatchResponse(heartbeat={"now_ms": 7})]
    with MixedClient(Endpoint(False, "127.0.0.1", server.start_http())) as client:
        request = logs_pb2.FetchLogsRequest(max_lines=400_000)
        assert client.call(FETCH, request, logs_pb2.FetchLogsResponse).shown == 1
        answers = client.stream(WATCH, controller_pb2.WatchRequest(), controller_pb2.WatchResponse)
        assert [answer.heartbeat.now_ms for answer in answers] == [7]
    assert {how for how, *_ in server.seen} == {"http"}


@pytest.mark.asyncio
async def test_the_console_s_connection_gives_the_same(server: Server) -> None:
    def refuse(_: Any, __: Any) -> Message:
        raise Fault("NOT_FOUND", "no", code="not_found", subject="x")

    server.handlers.update({GET: states, WATCH: states, LAUNCH: refuse})
    server.streams[WATCH] = [controller_pb2.WatchResponse(heartbeat={"now_ms": n}) for n in range(3)]
    client = GrpcAsyncClient(Endpoint(False, "127.0.0.1", server.start_grpc()), Credentials("tok"))
    answer = await client.call(GET, controller_pb2.GetJobStateRequest(), controller_pb2.GetJobStateResponse)
    assert dict(answer.states) == {"/u/j": 3}
    stream = client.stream(WATCH, controller_pb2.WatchRequest(), controller_pb2.WatchResponse)
    assert [item.heartbeat.now_ms async for item in stream] == [0, 1, 2]
    with pytest.raises(RpcFailed) as caught:
        await client.call(LAUNCH, controller_pb2.LaunchJobRequest(), controller_pb2.LaunchJobResponse)
    assert caught.value.subject == "x"
    await client.close()


@pytest.mark.asyncio
async def test_a_connection_that_is_closed_fails_what_waits_on_it_and_cancels_no_task(server: Server) -> None:
    asked, answered = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(_: Any, __: Any) -> Any:
        loop.call_soon_threadsafe(asked.set)
        answered.wait(60)
        return states(None)

    server.handlers[GET] = slow
    client = GrpcAsyncClient(Endpoint(False, "127.0.0.1", server.start_grpc()), Credentials("tok"))
    request, response = controller_pb2.GetJobStateRequest(), controller_pb2.GetJobStateResponse
    waiting = asyncio.ensure_future(client.call(GET, request, response))
    try:
        await asyncio.wait_for(asked.wait(), 60)
        await client.close()
        with pytest.raises(ConnectFailed, match="was closed"):
            await waiting
    finally:
        answered.set()


def test_a_repeat_stops_when_its_time_is_over() -> None:
    now = [0.0]
    repeater = Repeater(lambda: now[0], answered=True)
    waits = []
    while (delay := repeater.delay_s(ConnectFailed("x"))) is not None:
        waits.append(delay)
        now[0] += delay
    # The wait that would have gone beyond is left out, and the longest is two seconds and a fifth.
    assert 20 - 2.4 <= now[0] <= 20
    assert waits[0] < 0.2
    assert max(waits) < 3


def test_that_nobody_was_reached_is_said_only_if_no_try_can_have_been_heard() -> None:
    unheard = Repeater(lambda: 0.0, answered=True)
    unheard.delay_s(NotReached("x"))
    assert isinstance(unheard.last(NotReached("x")), NotReached)
    heard = Repeater(lambda: 0.0, answered=True)
    heard.delay_s(ConnectFailed("it broke on the way"))
    assert not isinstance(heard.last(NotReached("x")), NotReached)


def test_only_requests_with_an_id_are_repeatable() -> None:
    assert identified(controller_pb2.ListJobsRequest())[1] is False
    assert identified(controller_pb2.LaunchJobRequest(request_id="mine"))[0].request_id == "mine"


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://[::1]:18806", "http://[::1]:18806"),
        ("http://[::1]:18806/", "http://[::1]:18806"),
        ("http://[0:0:0:0:0:0:0:1]:1", "http://[::1]:1"),
        ("http://[::1]", "http://[::1]:10000"),
        ("[::1]:18806", "http://[::1]:18806"),
        ("http://[fe80::1%25lo]:18806", "http://[fe80::1%25lo]:18806"),
        ("http://[fe80::1%lo]:18806", "http://[fe80::1%25lo]:18806"),
        ("http://[::1%lo]:18806", "http://[::1]:18806"),
        ("http://localhost:18806", "http://localhost:18806"),
        ("https://Iris.example", "https://Iris.example:10000"),
        ("127.0.0.1:1", "http://127.0.0.1:1"),
        (" http://h:1 ", "http://h:1"),
    ],
)
def test_every_right_spelling_of_an_address_is_read(text: str, url: str) -> None:
    assert parse_url(text).url == url
    assert parse_url(parse_url(text).url) == parse_url(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("http://::1:18806", "http://[::1]:18806"),
        ("::1", "http://[::1]:10000"),
        ("http://[::1:18806", "http://[::1]"),
        ("ftp://h", ""),
        ("http://h:0", "65535"),
        ("http://h:99999999999999999999", "65535"),
        ("http://h:x", "65535"),
        ("http://h:1/path", "'/path'"),
        ("http://u:secret@h:1", "IRIS_TOKEN"),
        ("http://", "HOST"),
        ("", "HOST"),
        ("http://a b", "HOST"),
        ("http://[zz]:1", ""),
    ],
)
def test_a_wrong_address_is_a_usage_error_with_the_right_spelling(text: str, hint: str) -> None:
    with pytest.raises(UsageFailed) as caught:
        parse_url(text)
    assert hint in caught.value.hint
    assert "secret" not in caught.value.message


def test_the_token_comes_from_the_environment_and_is_never_shown() -> None:
    assert token_from_environment({"MARIN_CLUSTER_TOKEN": "b", "IRIS_TOKEN": "a"}) == "a"
    assert token_from_environment({"MARIN_CLUSTER_TOKEN": "b"}) == "b"
    assert "hush" not in repr(Credentials("hush"))
    with pytest.raises(ConnectFailed) as caught:
        token_from_environment({"IRIS_TOKEN": "hush\nhush"})
    assert "hush" not in caught.value.message


def test_an_ipv6_address_is_dialled_by_both_transports(require_service: RequireService) -> None:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        listener = None
    require_service(listener, "there is no IPv6 loopback")
    assert listener is not None
    port = listener.getsockname()[1]
    listener.close()
    endpoint = parse_url(f"http://[::1%25lo]:{port}")
    for kind in (GrpcClient, HttpClient):
        with kind(endpoint) as client, pytest.raises(ConnectFailed, match="connection refused"):
            get(client)
