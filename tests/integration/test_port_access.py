"""Who gets in, over real sockets: every RPC and HTTP route with every kind of credential (S5), from this and another host."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import jwt
import pytest

from iris_controller.rpc.auth import Role
from iris_controller.rpc.roles import ACCESS
from iris_core.auth.keys import new_key
from iris_core.auth.tokens import ALGORITHM, TokenSigner
from iris_core.wire.gen.iris.v1 import common_pb2, logs_pb2
from iris_core.wire.services import method, methods
from tests.integration.port_env import ADMIN, run, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.port_env import Env

REMOTE = "203.0.113.9:4000"
LOCAL = "127.0.0.1:4000"
CURRENT = "0123456789abcdef"
LIST_JOBS = "/iris.v1.ControllerService/ListJobs"

Headers = list[tuple[str, str]]


def bearer(token: str) -> Headers:
    return [("authorization", f"Bearer {token}")]


def unsigned(env: Env, algorithm: str) -> str:
    head, body, _ = env.signer.user_token(ADMIN).split(".")
    fields = json.loads(base64.urlsafe_b64decode(head + "=="))
    return base64.urlsafe_b64encode(json.dumps(fields | {"alg": algorithm}).encode()).decode().rstrip("=") + f".{body}."


def for_audience(env: Env, audience: str) -> str:
    claims = {"aud": audience, "sub": ADMIN, "role": "user", "exp": 4_000_000_000}
    key = env.signer._key
    return jwt.encode(claims, key.private, algorithm=ALGORITHM, headers={"kid": key.kid})


def task(env: Env, uid: str) -> str:
    return env.signer.task_token("ann", "/ann/r", "/ann/r/c", uid)


# Each: the real peer, the headers, the role that results or None, and whether the call is read-only.
CASES: dict[str, tuple[str, Callable[[Env], Headers], Role | None, bool]] = {
    "none, remote": (REMOTE, lambda env: [], None, False),
    "none, loopback": (LOCAL, lambda env: [], Role.ADMIN, False),
    "none, loopback, read-only": (LOCAL, lambda env: [("iris-read-only", "1")], Role.ADMIN, True),
    "none, trusted network": ("10.0.0.9:1", lambda env: [], Role.ADMIN, False),
    "none, forwarded to loopback": (LOCAL, lambda env: [("x-forwarded-for", "127.0.0.1")], None, False),
    "none, smuggled from afar": (REMOTE, lambda env: [("x-forwarded-for", "127.0.0.1")], None, False),
    "none, smuggled address": (REMOTE, lambda env: [("x-real-ip", "127.0.0.1"), ("forwarded", "for=::1")], None, False),
    "none, smuggled role": (REMOTE, lambda env: [("x-iris-role", "admin"), ("iris-role", "admin")], None, False),
    "cookie": (REMOTE, lambda env: [("cookie", f"iris_session={env.signer.user_token(ADMIN)}")], None, False),
    "admin": (REMOTE, lambda env: bearer(env.signer.user_token(ADMIN)), Role.ADMIN, False),
    "admin, read-only token": (REMOTE, lambda env: bearer(env.signer.user_token(ADMIN, read_only=True)), Role.ADMIN, True),
    "user": (REMOTE, lambda env: bearer(env.signer.user_token("ann")), Role.USER, False),
    "user, loopback": (LOCAL, lambda env: bearer(env.signer.user_token("ann")), Role.USER, False),
    "user, lower-case scheme": (
        REMOTE, lambda env: [("authorization", f"bearer {env.signer.user_token('ann')}")], Role.USER, False,
    ),
    "user, forwarded": (
        REMOTE, lambda env: [*bearer(env.signer.user_token("ann")), ("x-forwarded-for", "1.2.3.4")], Role.USER, False,
    ),
    "dashboard": (REMOTE, lambda env: bearer(env.signer.user_token(ADMIN, dashboard=True)), Role.DASHBOARD, False),
    "worker": (REMOTE, lambda env: bearer(env.signer.worker_token("w1")), Role.WORKER, False),
    "task": (REMOTE, lambda env: bearer(task(env, CURRENT)), Role.TASK, False),
    "task, attempt over": (LOCAL, lambda env: bearer(task(env, "fedcba9876543210")), None, False),
    "expired": (LOCAL, lambda env: bearer(env.signer.user_token(ADMIN, ttl_s=-1)), None, False),
    "wrong key": (LOCAL, lambda env: bearer(TokenSigner(new_key()).user_token(ADMIN)), None, False),
    "alg none": (LOCAL, lambda env: bearer(unsigned(env, "none")), None, False),
    "alg HS256": (LOCAL, lambda env: bearer(unsigned(env, "HS256")), None, False),
    "other audience": (LOCAL, lambda env: bearer(for_audience(env, "/proxy/x")), None, False),
    "two credentials": (
        LOCAL, lambda env: bearer(env.signer.user_token(ADMIN)) + bearer(env.signer.user_token("ann")), None, False,
    ),
    "basic": (LOCAL, lambda env: [("authorization", "Basic cm9vdDpyb290")], None, False),
    "empty": (LOCAL, lambda env: [("authorization", "")], None, False),
    "assertion": (LOCAL, lambda env: [("x-goog-iap-jwt-assertion", "a.b.c")], None, False),
}  # fmt: skip


def expected(name: str, role: Role | None, read_only: bool) -> str:
    row = ACCESS[name]
    if role is None:
        return "UNAUTHENTICATED"
    if role not in row.roles or (row.mutates and read_only):
        return "PERMISSION_DENIED"
    return "OK"


def requested(name: str) -> bytes:
    """A request that the handler would take; a task may read the logs of its own job."""
    if name == "LogService/FetchLogs":
        return logs_pb2.FetchLogsRequest(
            source="/ann/r/c", match_scope=common_pb2.MATCH_SCOPE_PREFIX
        ).SerializeToString()
    return b""


async def over_grpc(channel: Any, name: str, headers: Headers) -> str:
    known = method(name)
    try:
        if known.client_streaming:
            call = channel.stream_stream(known.path)(metadata=headers)
            await call.done_writing()
            await call.read()
            await call.code()
            return str((await call.code()).name)
        if known.server_streaming:
            call = channel.unary_stream(known.path)(requested(name), metadata=headers)
            async for _ in call:
                pass
            return str((await call.code()).name)
        await channel.unary_unary(known.path)(requested(name), metadata=headers)
        return "OK"
    except grpc.aio.AioRpcError as error:
        return error.code().name


async def over_http(env: Env, path: str, headers: Headers, *, verb: str = "POST", query: str = "") -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", env.port.port)
    lines = [f"{verb} {path}{query} HTTP/1.1", "host: localhost", "connection: close"]
    if verb == "POST":
        lines += ["content-type: application/json", "content-length: 2"]
    lines += [f"{name}: {value}" for name, value in headers]
    writer.write(("\r\n".join(lines) + "\r\n\r\n" + ("{}" if verb == "POST" else "")).encode())
    try:
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1]), body
    finally:
        writer.close()


HTTP_OF = {"OK": 200, "UNAUTHENTICATED": 401, "PERMISSION_DENIED": 403}


async def attach(requests: Any, call: Any) -> Any:
    async for _ in requests:
        pass
    return
    yield


@pytest.mark.parametrize("case", CASES)
def test_every_cell_is_as_declared(case: str) -> None:
    peer, headers_of, role, read_only = CASES[case]

    async def main() -> None:
        async with serving({"WorkerService/Attach": attach}, trusted=("10.0.0.0/8",)) as env:
            env.pretend.append(peer)
            env.current.add(CURRENT)
            headers = headers_of(env)
            wrong: list[tuple[str, str, object]] = []
            async with env.channel() as channel:
                for known in methods():
                    want = expected(known.full_name, role, read_only)
                    found = await over_grpc(channel, known.full_name, headers)
                    if found != want:
                        wrong.append(("grpc", known.full_name, found))
                    status, body = await over_http(env, known.path, headers)
                    if known.client_streaming and want == "OK":
                        assert status == 501, body
                    elif status != HTTP_OF[want]:
                        wrong.append(("http", known.full_name, status))
                    if want != "OK":
                        # One that is refused learns nothing but that.
                        assert json.loads(body)["status"] == want
            assert not wrong
            if role is None:
                assert not env.served
            for route, status in (
                ("/health", 200),
                ("/metrics", 200 if role in {Role.ADMIN, Role.USER, Role.DASHBOARD} else 401 if role is None else 403),
                ("/readyz", 200),
            ):
                assert (await over_http(env, route, headers, verb="GET"))[0] == status, route
            env.problems.append("the disk of /secret/place is full")
            status, body = await over_http(env, "/readyz", headers, verb="GET")
            assert status == 503
            assert (b"/secret/place" in body) == (role in {Role.ADMIN, Role.USER, Role.DASHBOARD})

    run(main())


def test_a_token_in_a_query_string_is_no_token() -> None:
    async def main() -> None:
        async with serving() as env:
            env.pretend.append(REMOTE)
            token = env.signer.user_token(ADMIN)
            for name in ("token", "access_token", "authorization", "x"):
                status, body = await over_http(env, LIST_JOBS, [], query=f"?{name}={token}")
                assert status == 400
                assert b"query string" in body
                assert token.encode() not in body
                status, _ = await over_http(env, "/metrics", [], verb="GET", query=f"?{name}={token}")
                assert status == 401
            # Not even beside a good one, so that nobody gets used to it.
            assert (await over_http(env, LIST_JOBS, bearer(token), query=f"?token={token}"))[0] == 400
            assert not env.served

    run(main())


def test_a_task_reads_the_logs_of_its_own_subtree_alone() -> None:
    cases: list[tuple[str, int, str]] = [
        ("/ann/r/c", common_pb2.MATCH_SCOPE_PREFIX, "OK"),
        ("/ann/r/c/0", common_pb2.MATCH_SCOPE_EXACT, "OK"),
        ("/ann/r/c/0:2", common_pb2.MATCH_SCOPE_EXACT, "OK"),
        ("/ann/r/c/d", common_pb2.MATCH_SCOPE_PREFIX, "OK"),
        ("/ann/r/c", common_pb2.MATCH_SCOPE_REGEX, "PERMISSION_DENIED"),
        ("/ann/r/c/.*", common_pb2.MATCH_SCOPE_REGEX, "PERMISSION_DENIED"),
        ("/ann/r", common_pb2.MATCH_SCOPE_PREFIX, "PERMISSION_DENIED"),
        ("/ann/r/c2", common_pb2.MATCH_SCOPE_PREFIX, "PERMISSION_DENIED"),
        ("/ann", common_pb2.MATCH_SCOPE_PREFIX, "PERMISSION_DENIED"),
        ("/bob/r/c", common_pb2.MATCH_SCOPE_EXACT, "PERMISSION_DENIED"),
        ("/system/controller", common_pb2.MATCH_SCOPE_EXACT, "PERMISSION_DENIED"),
        ("", common_pb2.MATCH_SCOPE_PREFIX, "PERMISSION_DENIED"),
    ]

    async def main() -> None:
        async with log_store() as store, serving(raw={"LogService": lambda: store}) as env, env.channel() as channel:
            env.current.add(CURRENT)
            for source, scope, want in cases:
                request = logs_pb2.FetchLogsRequest(source=source, match_scope=scope)  # type: ignore[arg-type]
                found = "OK"
                try:
                    await channel.unary_unary("/iris.v1.LogService/FetchLogs")(
                        request.SerializeToString(), metadata=bearer(task(env, CURRENT))
                    )
                except grpc.aio.AioRpcError as refused:
                    found = refused.code().name
                assert found == want, (source, scope)
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await channel.unary_unary("/iris.v1.LogService/FetchLogs")(b"\xff", metadata=bearer(task(env, CURRENT)))
            assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    run(main())


class log_store:
    """A gRPC server that answers FetchLogs with nothing."""

    async def __aenter__(self) -> str:
        async def answer(request: bytes, context: object) -> bytes:
            return b""

        handlers = {"FetchLogs": grpc.unary_unary_rpc_method_handler(answer)}
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("iris.v1.LogService", handlers),))
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return f"127.0.0.1:{port}"

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(None)


# Web pages -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({"host": "evil.example"}, 403),
        ({"host": "evil.example:10000", "origin": "http://evil.example:10000"}, 403),
        ({"host": "192.0.2.1"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost:3000"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": "multipart/form-data; boundary=x"}, 415),
        ({"content-type": "application/jsonp"}, 415),
        ({"content-type": "text/plain; application/json"}, 415),
        ({"content-type": "application/json; charset=utf-16"}, 415),
        ({"content-type": ""}, 415),
        ({"content-encoding": "gzip"}, 415),
        ({}, 200),
        ({"content-type": "Application/JSON; charset=UTF-8"}, 200),
        # Our own origin serves pages of tasks too, through the proxy: they have no say here.
        ({"origin": "http://localhost", "sec-fetch-site": "same-origin"}, 403),
        ({"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}, 403),
        ({"host": "iris.example.org"}, 200),
    ],
)
@pytest.mark.parametrize("path", [LIST_JOBS, "/iris.v1.ControllerService/Watch"])
def test_no_web_page_drives_a_local_controller(sent: dict[str, str], status: int, path: str) -> None:
    async def main() -> None:
        async with serving(allowed_hosts=("iris.example.org",)) as env:
            headers = {"host": "localhost", "content-type": "application/json"} | sent
            reader, writer = await asyncio.open_connection("127.0.0.1", env.port.port)
            lines = [f"POST {path} HTTP/1.1", "connection: close", "content-length: 2"]
            lines += [f"{name}: {value}" for name, value in headers.items()]
            writer.write(("\r\n".join(lines) + "\r\n\r\n{}").encode())
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            writer.close()
            assert int(head.split(b" ", 2)[1]) == status, body
            assert b"access-control-" not in head.lower()
            assert bool(env.served) == (status == 200)
            if status != 200:
                assert json.loads(body)["message"]

    run(main())


def test_other_methods_and_places() -> None:
    async def main() -> None:
        async with serving() as env:
            for verb in ("GET", "OPTIONS", "PUT", "DELETE", "HEAD"):
                assert (await over_http(env, LIST_JOBS, [], verb=verb))[0] == 405
            assert (await over_http(env, "/health", []))[0] == 405
            for path in (
                "/", "/iris.v1.", "/iris.v1.ControllerService", "/iris.v1.ControllerService/", "/iris.v1.Nope/ListJobs",
                "/iris.v1.ControllerService/Nope", "/iris.v2.ControllerService/ListJobs", "//iris.v1.X/Y", "/health/",
                "/iris.v1.ControllerService//ListJobs", "/iris.v1.ControllerService/../ControllerService/ListJobs",
                "/proxy/x/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/..%252f..%252fetc/passwd", "/x\\..\\y",
            ):  # fmt: skip
                status, body = await over_http(env, path, [])
                assert status in {404, 405, 501}, (path, status)
                assert json.loads(body)["message"].isprintable()
            assert not env.served

    run(main())


# Another host --------------------------------------------------------------------------------------------------------

HERE = Path(__file__).resolve()
CALLER = """
import grpc, http.client, json, sys
from iris_core.wire.services import methods
host, port, token = sys.argv[1], int(sys.argv[2]), sys.argv[3]
found = {}
with grpc.insecure_channel(f"{host}:{port}") as channel:
    for known in methods():
        kind = "unary_unary" if not known.server_streaming else "unary_stream"
        for name, metadata in (("none", ()), ("smuggled", (("x-forwarded-for", "127.0.0.1"),)),
                               ("token", (("authorization", "Bearer " + token),))):
            call = getattr(channel, kind)(known.path, bytes, bytes)
            try:
                if known.server_streaming:
                    list(call(b"", metadata=metadata, timeout=20))
                else:
                    call(b"", metadata=metadata, timeout=20)
                code = "OK"
            except grpc.RpcError as error:
                code = error.code().name
            found[f"grpc {name} {known.full_name}"] = code
for known in methods():
    for name, more in (("none", {}), ("smuggled", {"X-Real-IP": "127.0.0.1"}), ("localhost", {"Host": "localhost"}),
                       ("token", {"Authorization": "Bearer " + token})):
        line = http.client.HTTPConnection(host, port, timeout=20)
        line.request("POST", known.path, b"{}", {"Content-Type": "application/json", **more})
        found[f"http {name} {known.full_name}"] = line.getresponse().status
        line.close()
for path in ("/health", "/readyz", "/metrics"):
    line = http.client.HTTPConnection(host, port, timeout=20)
    line.request("GET", path)
    found["http none " + path] = line.getresponse().status
    line.close()
print(json.dumps(found))
"""


@pytest.fixture
def other_host(require_service: Callable[[object, str], None]) -> Iterator[tuple[str, str]]:
    """A network namespace joined to this one by a pair of interfaces: its name and our address as it sees it."""
    ip = shutil.which("ip")
    require_service(ip and os.geteuid() == 0, "network namespaces need root and ip(8)")
    name = f"iris-{os.getpid()}"
    net = f"10.{os.getpid() % 200 + 20}.{os.getpid() // 200 % 250}"
    ours, theirs = f"i{os.getpid()}a", f"i{os.getpid()}b"

    def sh(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["ip", *command], check=check, capture_output=True, text=True)

    made = sh("netns", "add", name, check=False)
    require_service(made.returncode == 0, f"cannot make a network namespace: {made.stderr.strip()}")
    try:
        pair = sh("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name, check=False)
        require_service(pair.returncode == 0, f"cannot make a pair of interfaces: {pair.stderr.strip()}")
        sh("addr", "add", f"{net}.1/24", "dev", ours)
        sh("link", "set", ours, "up")
        sh("-n", name, "addr", "add", f"{net}.2/24", "dev", theirs)
        sh("-n", name, "link", "set", theirs, "up")
        sh("-n", name, "link", "set", "lo", "up")
        yield name, f"{net}.1"
    finally:
        sh("link", "del", ours, check=False)
        sh("netns", "del", name, check=False)


def test_from_another_host_nothing_goes_without_a_credential(other_host: tuple[str, str]) -> None:
    name, address = other_host
    environment = os.environ | {"PYTHONPATH": str(HERE.parents[2])}
    server = subprocess.Popen(
        [sys.executable, str(HERE.with_name("port_env.py")), "0.0.0.0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert server.stdout is not None
        told = json.loads(server.stdout.readline())
        caller = subprocess.run(
            ["ip", "netns", "exec", name, sys.executable, "-c", CALLER, address, str(told["port"]), told["token"]],
            check=True,
            capture_output=True,
            text=True,
            env=environment,
            timeout=100,
        )
    finally:
        server.communicate("")
    assert server.returncode == 0
    found: dict[str, str | int] = json.loads(caller.stdout)
    for known in methods():
        full_name = known.full_name
        for kind in ("none", "smuggled"):
            assert found[f"grpc {kind} {full_name}"] == "UNAUTHENTICATED"
            assert found[f"http {kind} {full_name}"] == 401
        assert found[f"http localhost {full_name}"] == 401
        allowed = Role.USER in ACCESS[full_name].roles
        assert found[f"grpc token {full_name}"] == ("OK" if allowed else "PERMISSION_DENIED")
        assert found[f"http token {full_name}"] == (200 if allowed else 403)
    assert [found[f"http none {path}"] for path in ("/health", "/readyz", "/metrics")] == [200, 200, 401]
