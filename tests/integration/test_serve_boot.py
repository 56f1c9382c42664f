"""`iris-controller serve` as an operator meets it: clear refusals at start, and who may call once it listens on the network."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris_core.wire.gen.iris.v1 import common_pb2
from tests.conftest import RequireService
from tests.integration.local_cluster import Place
from tests.integration.served import Served, launch, served, wait_jobs


def refuse(folder: Path, *words: str, config: str = "") -> tuple[int, str]:
    """Exit code and output of a controller that should not start."""
    path = folder / "refused.yaml"
    path.write_text(config or "name: x\nplatform: {local: }\ncontroller: {local: {port: 0}}\nworker_provider: {}\n")
    command = [sys.executable, "-m", "iris_controller.main", "serve", "--config", str(path), *words]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    return done.returncode, (done.stdout + done.stderr).decode()


def one_error(output: str) -> str:
    """The line that says what is wrong; there is exactly one, and no traceback."""
    assert "Traceback" not in output
    errors = [line for line in output.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1, output
    return errors[0]


def test_a_second_controller_on_the_same_state_is_told_who_holds_it(tmp_path: Path) -> None:
    with served(tmp_path, workers=1) as environment:
        assert environment.process is not None
        code, output = refuse(tmp_path, "--state-dir", str(environment.state), "--port", "0")
        assert code == 1
        assert f"pid {environment.process.pid}" in one_error(output)
        code, output = refuse(tmp_path, "--state-dir", str(tmp_path / "other"), "--port", str(environment.port))
        assert code == 1
        assert str(environment.port) in one_error(output) and "use" in one_error(output)
        with environment.client() as client:
            launch(client, "/t/still", ["true"])
            assert wait_jobs(client, ["/t/still"])["/t/still"] == common_pb2.JOB_STATE_SUCCEEDED


def test_a_state_dir_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, output = refuse(tmp_path, "--state-dir", str(tmp_path / "file" / "state"))
    assert code == 1 and "state directory" in one_error(output)
    code, output = refuse(tmp_path, "--state-dir", "/proc/iris")
    assert code == 1 and "/proc/iris" in one_error(output)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("- a\n- b\n", "mapping"),
        ("name: x\nplatfrom: {local: }\n", "platform"),
        ("name: [\n", "refused.yaml"),
        ("", "refused.yaml"),
        ("name: x\nname: y\nplatform: {local: }\n", "name"),
    ],
)
def test_a_config_that_cannot_be_used(tmp_path: Path, config: str, says: str) -> None:
    code, output = refuse(tmp_path, "--state-dir", str(tmp_path / "s"), config=config or "\n")
    assert code == 2
    assert says in output.split("Error: ", 1)[1]
    one_error(output)
    assert not (tmp_path / "s").exists(), "nothing was made before the words were understood"


def test_usage_errors(tmp_path: Path) -> None:
    for words in (["serve"], ["serve", "--config", "x", "--prot", "1"], ["nonsense"]):
        done = subprocess.run(
            [sys.executable, "-m", "iris_controller.main", *words], capture_output=True, timeout=60, check=False
        )
        assert done.returncode == 2, words
        assert done.stderr.decode().startswith("Error: ") and done.stdout == b""


def test_a_port_that_is_none_is_a_usage_error(tmp_path: Path) -> None:
    code, output = refuse(tmp_path, "--port", "99999", "--state-dir", str(tmp_path / "s"))
    assert code == 2
    assert "99999" in one_error(output)


def test_a_damaged_state_file_is_refused_and_fresh_moves_it_aside(tmp_path: Path) -> None:
    environment = Served(tmp_path, workers=1)
    environment.start()
    environment.end()
    path = environment.state / "db" / "controller.sqlite3"
    raw = bytearray(path.read_bytes())
    raw[4096 * 2 : 4096 * 4] = bytes(8192)
    path.write_bytes(raw)
    for leftover in ("-wal", "-shm"):
        Path(f"{path}{leftover}").unlink(missing_ok=True)
    code, output = refuse(tmp_path, "--state-dir", str(environment.state), "--port", "0")
    assert code == 1 and "damaged" in one_error(output)
    assert path.read_bytes() == bytes(raw)
    environment.extra = ("--fresh",)
    environment.start()
    environment.end()
    kept = list(environment.state.glob("db.aside.*/controller.sqlite3"))
    assert len(kept) == 1 and kept[0].read_bytes() == bytes(raw)


@pytest.fixture
def other_host(require_service: RequireService) -> Iterator[tuple[str, str]]:
    """A second network namespace: (its name, this side's address)."""
    require_service(os.geteuid() == 0 and shutil.which("ip"), "network namespaces need root and iproute2")
    name = f"iris{secrets.token_hex(3)}"
    here, there = f"{name}a", f"{name}b"
    octet = secrets.randbelow(200) + 20
    commands = [
        f"ip netns add {name}",
        f"ip link add {here} type veth peer name {there}",
        f"ip link set {there} netns {name}",
        f"ip addr add 10.213.{octet}.1/30 dev {here}",
        f"ip link set {here} up",
        f"ip netns exec {name} ip addr add 10.213.{octet}.2/30 dev {there}",
        f"ip netns exec {name} ip link set {there} up",
    ]
    try:
        for command in commands:
            done = subprocess.run(command.split(), capture_output=True, check=False)
            require_service(done.returncode == 0, f"{command}: {done.stderr.decode()}")
        yield name, f"10.213.{octet}.1"
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", here], check=False, capture_output=True)


FOREIGN = """
import http.client, json, sys
import grpc
from iris_core.wire.services import methods
host, port = sys.argv[1], int(sys.argv[2])
found = {}
channel = grpc.insecure_channel(f"{host}:{port}")
for known in methods():
    if known.client_streaming:
        call = channel.stream_stream(known.path, request_serializer=lambda b: b, response_deserializer=lambda b: b)
        send = lambda: list(call(iter([b""]), timeout=10))
    elif known.server_streaming:
        call = channel.unary_stream(known.path, request_serializer=lambda b: b, response_deserializer=lambda b: b)
        send = lambda: list(call(b"", timeout=10))
    else:
        call = channel.unary_unary(known.path, request_serializer=lambda b: b, response_deserializer=lambda b: b)
        send = lambda: call(b"", timeout=10)
    try:
        send()
        found["grpc " + known.path] = "OK"
    except grpc.RpcError as error:
        found["grpc " + known.path] = error.code().name
    if not known.client_streaming:
        connection = http.client.HTTPConnection(host, port, timeout=10)
        connection.request("POST", known.path, b"{}", {"content-type": "application/json", "host": f"localhost:{port}"})
        answer = connection.getresponse()
        found["http " + known.path] = str(answer.status) if answer.status != 200 else answer.read().decode()
        connection.close()
print(json.dumps(found))
"""


def test_a_foreign_host_without_credentials_reaches_nothing(tmp_path: Path, other_host: tuple[str, str]) -> None:
    name, address = other_host
    environment = Served(tmp_path, workers=1, extra=("--host", "0.0.0.0"))
    environment.start()
    try:
        done = subprocess.run(
            ["ip", "netns", "exec", name, sys.executable, "-c", FOREIGN, address, str(environment.port)],
            capture_output=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        found: dict[str, str] = json.loads(done.stdout)
        assert len(found) > 40
        refused = {k: v for k, v in found.items() if v not in ("UNAUTHENTICATED", "401", "403")}
        assert refused == {}, "over gRPC, JSON and NDJSON alike"
    finally:
        environment.end()


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"origin": "http://evil.example"},
        {"content-type": "text/plain"},
        {"sec-fetch-site": "cross-site"},
    ],
    ids=lambda h: next(iter(h)),
)
def test_a_web_page_cannot_drive_a_local_controller(tmp_path: Path, headers: dict[str, str]) -> None:
    with served(tmp_path, workers=1) as environment:
        body = b'{"name": "/t/paged", "entrypoint": {"run_command": {"argv": ["true"]}}}'
        sent = {"host": f"127.0.0.1:{environment.port}", "content-type": "application/json"} | headers
        head = "".join(f"{key}: {value}\r\n" for key, value in sent.items())
        with socket.create_connection(("127.0.0.1", environment.port), timeout=10) as page:
            page.sendall(
                f"POST /iris.v1.ControllerService/LaunchJob HTTP/1.1\r\n{head}content-length: {len(body)}\r\n\r\n".encode()
                + body
            )
            answer = page.recv(65536).decode()
        assert answer.split()[1] in ("403", "415"), answer
        assert "/t/paged" not in environment.log()


def test_an_idle_controller_stops_within_seconds(tmp_path: Path) -> None:
    environment = Served(tmp_path, workers=1)
    environment.start()
    assert environment.process is not None
    deadline = time.monotonic() + 60
    while not environment.supervisors():
        assert time.monotonic() < deadline, "no supervisor was started"
        time.sleep(0.05)
    started = time.monotonic()
    environment.process.terminate()
    assert environment.process.wait(60) == 0
    assert time.monotonic() - started < 50
    assert environment.running_supervisors(), "workers outlive the controller"
    environment.end()


def test_a_controller_on_ipv6_alone_is_reached_by_every_right_spelling(tmp_path: Path) -> None:
    """C43: the host is never cut at a colon; workers reach it too; nothing listens on IPv4."""
    with served(tmp_path, workers=1, extra=("--host", "::1")) as s:
        assert f"http://[::1]:{s.port}" in s.log()
        place = Place(tmp_path / "place")
        for text, code in [
            (f"http://[::1]:{s.port}", 0),
            (f"http://[::1]:{s.port}/", 0),
            (f"http://localhost:{s.port}", 0),
            (f"[::1]:{s.port}", 0),
            (f"http://[::1%lo]:{s.port}", 0),
            (f"http://::1:{s.port}", 2),
            (f"http://127.0.0.1:{s.port}", 1),
        ]:
            done = place.run(f"--controller-url={text}", "cluster", "status")
            assert done.code == code, (text, done.out, done.err)
            if code == 2:
                assert f"http://[::1]:{s.port}" in done.err, "the right spelling"
            if code == 1:
                assert f"127.0.0.1:{s.port}" in done.err
                assert "Traceback" not in done.err
        done = place.run(f"--controller-url=http://[::1]:{s.port}", "job", "run", "--no-sync", "--", "echo", "six")
        assert done.code == 0, done.err
        assert done.out.endswith("| six\n"), done.out
