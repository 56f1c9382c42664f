"""A host with a real sshd: what is said when it cannot be reached, objects on its disk, copies that break off, tunnels."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from iris_core.contracts import GenerationMismatch, IrisError
from iris_core.procedures.files import digest_of
from providers.hosts.controller_host import Shipment, SshControllerHost
from providers.hosts.objects import HostStore
from providers.hosts.remote import Remote
from providers.hosts.ssh import HostUnreachable, Ssh
from providers.hosts.tunnel import SshTunnel
from providers.local.processes import Known, start_time
from tests.conftest import REQUIRE_SERVICES
from tests.integration.ssh_hosts import REMOTE, STATE, SshdHost, missing, ssh_hosts

SERVER = """\
import http.server, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"here")
http.server.HTTPServer(("127.0.0.1", 10000), Answer).serve_forever()
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshdHost]:
    lacking = missing()
    if lacking and not REQUIRE_SERVICES:
        pytest.skip(lacking)
    assert not lacking, lacking
    with ssh_hosts(tmp_path_factory.mktemp("hosts"), disk="160m") as (made,):
        yield made


@pytest.fixture
def remote(host: SshdHost) -> Iterator[Remote]:
    made = Remote(quick(host), "lab", STATE)
    yield made
    made.close()


def quick(host: SshdHost, **values: object) -> Ssh:
    """A connection that does not pause between its attempts."""
    return Ssh(replace(host.ssh(), **values), pause=lambda _: None)  # type: ignore[arg-type]


def refused(ssh: Ssh) -> HostUnreachable:
    try:
        with pytest.raises(HostUnreachable) as caught:
            ssh.run(lambda _: ["true"], timeout_s=60)
        assert "\n" not in caught.value.message and not caught.value.begun
        with pytest.raises(HostUnreachable) as tunnel:
            SshTunnel(ssh.host, 10000)
        assert tunnel.value.message in caught.value.message, "a tunnel says the same"
        return caught.value
    finally:
        ssh.close()


# --- what can be wrong with the way there ----------------------------------------------------------------------------


def test_a_port_on_which_nothing_listens_refuses_the_connection(host: SshdHost) -> None:
    error = refused(quick(host, port=23))
    assert error.message == f"ssh root@{host.address}:23: the connection was refused (3 attempts)"


def test_a_key_that_the_host_does_not_know_is_refused_at_once(host: SshdHost, tmp_path: Path) -> None:
    key = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    error = refused(quick(host, key_file=str(key)))
    assert error.message == f"ssh root@{host.address}: the host refused the key" and "defaults.ssh" in error.hint


def test_a_host_key_that_is_not_known_or_another_one_ends_it_at_once(host: SshdHost, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text("")
    error = refused(quick(host, known_hosts_file=str(known)))
    assert error.message == f"ssh root@{host.address}: its host key is not known" and "known_hosts_file" in error.hint
    kind, key = host.key.with_suffix(".pub").read_text().split()[:2]
    known.write_text(f"{host.address} {kind} {key}\n")
    error = refused(quick(host, known_hosts_file=str(known)))
    assert error.message == f"ssh root@{host.address}: its host key is not the one that is known"


def test_a_host_that_is_down_does_not_answer_and_does_again_when_it_is_up(host: SshdHost, remote: Remote) -> None:
    host.unplug()
    try:
        error = refused(quick(host, connect_timeout_s=1.0))
        assert f"ssh root@{host.address}: " in error.message and "is the host up?" in error.hint
    finally:
        host.plug()
    assert remote.ask("status")["detail"] == "it was never started here"


# --- objects on its disk ---------------------------------------------------------------------------------------------


def test_of_many_that_take_a_lock_at_once_one_gets_it_and_it_is_on_the_hosts_disk(
    host: SshdHost, remote: Remote
) -> None:
    store = HostStore(remote, f"file://{REMOTE}")
    won: list[int] = []
    lost: list[int] = []

    def take(number: int) -> None:
        try:
            store.put("lock.json", str(number).encode(), if_generation="")
            won.append(number)
        except GenerationMismatch:
            lost.append(number)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(lost)) == (1, 3)
    assert host.path(f"{REMOTE}/lock.json").read_text() == str(won[0])
    assert not Path(REMOTE).exists(), "the driver's own disk has no such folder"
    assert b"".join(store.chunks("lock.json")) == store.get("lock.json")


def test_a_full_disk_is_one_line_and_leaves_what_was_there(host: SshdHost, remote: Remote, tmp_path: Path) -> None:
    store = HostStore(remote, f"file://{REMOTE}")
    before = store.put("record.json", b"before")
    lib = tmp_path / "lib"
    lib.mkdir()
    (lib / "module.py").write_bytes(os.urandom(1 << 20).hex().encode())
    made = Shipment("r1", lib, digest_of(lib), "", {})
    deployed = SshControllerHost(remote, lambda: "", lambda _: made, NoWheels())
    filler = f"{STATE}/filler"
    host.run("mkdir", "-p", STATE)
    host.run("sh", "-c", f"head -c 400M /dev/zero > {filler}; true", check=False)
    try:
        with pytest.raises(
            IrisError, match=r"cannot write record\.json in file:///srv/iris/remote: no space left on device"
        ):
            store.put("record.json", b"after", if_generation=before.generation)
        with pytest.raises(
            IrisError, match=rf"(?i)root@{host.address}: .*(no space left on device|are needed)"
        ) as caught:
            deployed.stage("r1")
        assert "make room" in caught.value.hint
        assert store.stat("record.json") == before and deployed.releases() == []
    finally:
        host.run("rm", filler)
    store.put("record.json", b"after", if_generation=before.generation)
    with pytest.raises(IrisError, match="release r1 cannot be loaded"):  # it has one module, and got that far
        deployed.stage("r1")
    assert deployed.releases() == ["r1"]


class NoWheels:
    def wheels(self, lock: str, host: object) -> list[Path]:
        raise AssertionError("the host's own Python has all of an empty lock")


# --- copies ----------------------------------------------------------------------------------------------------------


def test_a_copy_whose_connection_is_cut_is_gone_on_with_where_it_stood(host: SshdHost, remote: Remote) -> None:
    data = os.urandom(24 << 20)
    file = {"name": "large.bin", "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    half = threading.Event()
    cut = threading.Event()

    def fed() -> Iterator[bytes]:
        for start in range(0, len(data), 1 << 20):
            if start == 12 << 20:
                half.set()
                cut.wait(60)
            yield data[start : start + (1 << 20)]

    remote.ask("status")
    alone = quick(host)
    alone.attempts = 1
    other = Remote(alone, "lab", STATE)
    problems: list[BaseException] = []

    def copy() -> None:
        try:
            other.ask("receive", folder="incoming", file=file, offset=0, data=fed)
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=copy)
    thread.start()
    assert half.wait(60)
    until(lambda: brought(remote, file) > 0)
    cut_connections(host)
    cut.set()
    thread.join()
    other.close()
    (problem,) = problems
    assert isinstance(problem, HostUnreachable) and problem.begun
    there = brought(remote, file)
    assert 0 < there <= 12 << 20
    remote.ask("receive", folder="incoming", file=file, offset=there, data=lambda: (data[there:],))
    assert host.path(f"{STATE}/incoming/large.bin").read_bytes() == data
    host.run("rm", "-r", f"{STATE}/incoming")


def brought(remote: Remote, file: dict[str, object]) -> int:
    (found,) = remote.ask("have", folder="incoming", files=[file])
    return int(found["bytes"])


def cut_connections(host: SshdHost) -> None:
    """Ends every connection at once, as a host that is reset does."""
    for known in host.processes():
        if known.pid != host.pid and b"sshd" in Path(f"/proc/{known.pid}/cmdline").read_bytes():
            known.signal(9)


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline, "it does not come to that"
        time.sleep(0.02)


# --- tunnels ---------------------------------------------------------------------------------------------------------


def test_a_tunnel_reaches_what_listens_on_the_hosts_loopback_alone_and_says_when_it_broke(host: SshdHost) -> None:
    tunnel = SshTunnel(host.ssh(), 10000)
    assert tunnel.alive and tunnel.problem() == ""
    with pytest.raises(OSError):
        urllib.request.urlopen(tunnel.url, timeout=20)
    until(lambda: tunnel.problem() == f"nobody answers at 127.0.0.1:10000 on root@{host.address}")
    server = subprocess.Popen(
        ["nsenter", "--target", str(host.pid), "--net", "--mount", "/mnt/venv/bin/python3", "-c", SERVER],
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: answers(tunnel.url))
        cut_connections(host)
        until(lambda: not tunnel.alive)
        assert f"ssh root@{host.address}: " in tunnel.problem()
        tunnel.close()
        with_another = SshTunnel(host.ssh(), 10000)
        assert answers(with_another.url)
        with_another.close()
        assert not answers(with_another.url)
    finally:
        server.kill()
        server.wait()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return bool(answer.read() == b"here")
    except OSError:
        return False


def test_a_tunnel_ends_with_its_owner_even_if_that_was_killed(host: SshdHost) -> None:
    script = (
        "import sys; from iris_core.config.ssh import SshHost; from providers.hosts.tunnel import SshTunnel; "
        "import json; made = SshTunnel(SshHost(**json.loads(sys.argv[1])), 10000); "
        "print(made._child.pid, flush=True); sys.stdin.read()"
    )
    ssh = host.ssh()
    values = {
        name: getattr(ssh, name)
        for name in ("host", "user", "port", "key_file", "known_hosts_file", "connect_timeout_s")
    }
    owner = subprocess.Popen(
        [sys.executable, "-c", script, json.dumps(values)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdin is not None and owner.stdout is not None
    pid = int(owner.stdout.readline())
    child = Known(pid, start_time(pid) or 0)
    assert child.alive
    owner.kill()
    owner.wait()
    assert child.wait_gone(60)
    owner.stdin.close()
    owner.stdout.close()
