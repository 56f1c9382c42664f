"""What is asked of a host over ssh: retried when the connection fails and only then, carried out once, copied whole or gone on with."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iris_core.contracts import ConnectFailed, ControllerUnhealthy, GenerationMismatch, IrisError, ObjectMissing
from iris_core.procedures.files import digest_of
from iris_core.procedures.wheelhouse import PipWheelhouse, target_of
from providers.hosts import carried, tunnel
from providers.hosts.controller_host import Shipment, SshControllerHost
from providers.hosts.objects import HostStore
from providers.hosts.relay import Relay
from providers.hosts.ssh import HostUnreachable
from tests.unit.hosts_world import World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(tmp_path, monkeypatch)
    yield made
    made.remote.close()


# --- the connection --------------------------------------------------------------------------------------------------


def run(world: World, *words: str, timeout_s: float = 30.0) -> tuple[int, bytes]:
    done = world.ssh.run(lambda _: words, timeout_s=timeout_s)
    return done.code, done.out


def test_a_connection_that_fails_is_tried_three_times_with_a_growing_pause_and_an_answer_never_again(
    world: World,
) -> None:
    world.faults("refused", "lost", "ok")
    assert run(world, "echo", "a b; $HOME") == (0, b"a b; $HOME\n")
    assert world.pauses == [2.0, 4.0] and "trying again in 2 s" in world.said[0]
    world.faults("refused", "refused", "refused")
    with pytest.raises(HostUnreachable, match=r"ssh root@h1: the connection was refused \(3 attempts\)") as caught:
        run(world, "true")
    assert not caught.value.begun and caught.value.hint
    assert world.connections(lambda: run(world, "sh", "-c", "exit 3")) == 1
    assert run(world, "sh", "-c", "exit 3") == (3, b"")


@pytest.mark.parametrize(
    ("fault", "said"), [("denied", "refused the key"), ("changed", "host key is not the one that is known")]
)
def test_what_a_repetition_cannot_mend_is_said_at_once(world: World, fault: str, said: str) -> None:
    world.faults(fault, fault)
    with pytest.raises(HostUnreachable, match=said) as caught:
        run(world, "true")
    assert caught.value.final and world.pauses == []
    world.faults("refused", fault)
    with pytest.raises(HostUnreachable, match=rf"{said} \(2 attempts\)"):
        run(world, "true")


def test_a_connection_that_hangs_is_given_up_and_tried_again(world: World) -> None:
    world.faults("hang", "hang", "hang")
    with pytest.raises(HostUnreachable, match=r"ssh root@h1: no end within 0.2 s \(3 attempts\)") as caught:
        run(world, "true", timeout_s=0.2)
    assert caught.value.begun, "what it was told may have been done"


def test_what_a_killed_process_left_is_removed_by_the_next_one(world: World) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    left, mine = Path(f"/tmp/iris-ssh-{gone.pid}-test"), Path(f"/tmp/iris-ssh-{os.getpid()}-test")
    for path in (left, mine):
        path.mkdir()
        (path / "socket").touch()
    try:
        run(world, "true")
        assert not left.exists() and mine.exists()
    finally:
        shutil.rmtree(mine)


def test_without_the_program_ssh_one_line_says_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(world.folder))
    with pytest.raises(ConnectFailed, match="the program ssh is not installed here"):
        run(world, "true")


# --- the program that is carried -------------------------------------------------------------------------------------


def test_what_is_carried_runs_in_a_python_that_has_nothing_of_ours(tmp_path: Path) -> None:
    request = json.dumps({"cluster": "lab", "state_dir": str(tmp_path)}).encode() + b"\n"
    bare = [sys.base_prefix + f"/bin/python3.{sys.version_info[1]}"]
    assert Path(bare[0]).exists()
    done = subprocess.run(
        [*bare, "-I", "-S", "-c", carried.LOADER, str(len(carried.package())), "host", "probe"],
        input=carried.package() + request, capture_output=True, cwd="/", check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["value"]["python"] == list(sys.version_info[:3])
    assert not any(tmp_path.iterdir()), "nothing of it stays there"


def test_a_host_without_a_python_that_is_new_enough_says_so(tmp_path: Path) -> None:
    command = carried.command("host", "probe")
    done = subprocess.run(
        ["/bin/sh", *command[1:]], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 127 and done.stderr.startswith("Error: there is no Python 3.11 or later on this host")


def test_a_request_that_cannot_be_carried_out_comes_back_as_the_error_that_it_was(world: World) -> None:
    with pytest.raises(IrisError, match="root@h1: there is no whole release r1 here"):
        world.remote.ask("load", release="r1")
    world.state.mkdir()
    (world.state / "controller.json").write_text('{"pid": 0, "state": "waiting", "failures": 3}')
    with pytest.raises(ControllerUnhealthy, match="root@h1: the controller has ended"):
        world.remote.ask("health", within_s=1.0)
    with pytest.raises(IrisError, match="root@h1: no such request: nothing"):
        world.remote.ask("nothing")


def test_many_small_requests_need_one_connection_and_a_broken_one_is_replaced(world: World) -> None:
    assert world.connections(lambda: [world.remote.ask("status") for _ in range(5)]) == 1
    world.remote._relay._child.kill()  # type: ignore[union-attr]
    world.remote._relay._child.wait()  # type: ignore[union-attr]
    assert world.remote.ask("status")["detail"] == "it was never started here"
    world.remote.close()
    world.faults("refused", "ok")
    assert world.remote.ask("releases") == [], "the request is repeated over a connection of its own"


def test_a_connection_that_takes_nothing_in_is_given_up(world: World) -> None:
    world.faults("hang")
    relay = Relay(world.ssh)
    assert relay.run(("store", "put"), bytes(1 << 20), 0.2) is None
    relay.close()


def test_a_tunnel_that_says_no_word_and_does_not_end_is_ended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel, "END_S", 0.1)
    world.faults("mute")
    with pytest.raises(HostUnreachable, match="ssh root@h1: it ended with exit code"):
        tunnel.SshTunnel(world.ssh.host, 10000)


# --- objects on its disk ---------------------------------------------------------------------------------------------


def test_an_answer_that_is_lost_makes_no_second_write_and_no_false_mismatch(world: World) -> None:
    store = HostStore(world.remote, f"file://{world.folder}/remote")
    world.faults("lost", "ok")
    first = store.put("lock", b"ours", if_generation="")
    assert store.get("lock") == b"ours" and store.stat("lock") == first
    world.remote.close()
    world.faults("lost", "ok")
    with pytest.raises(GenerationMismatch):
        store.put("lock", b"theirs", if_generation="")
    with pytest.raises(ObjectMissing):
        store.get("nothing")
    assert store.url == f"ssh://root@h1{world.folder}/remote"


def test_a_write_whose_connection_breaks_in_the_middle_writes_nothing(world: World) -> None:
    store = HostStore(world.remote, f"file://{world.folder}/remote")
    store.put("a", b"before")
    large = world.folder / "large"
    large.write_bytes(b"x" * 3_000_000)
    cut = f"cut:{len(carried.package()) + 1_000_000}"
    world.faults(cut)
    world.ssh.attempts = 1
    with pytest.raises(HostUnreachable):
        store.put_file("a", large)
    assert store.get("a") == b"before" and large.exists()
    world.faults(cut)
    world.ssh.attempts = 2
    store.put_file("a", large)
    assert len(store.get("a")) == 3_000_000 and not large.exists()


# --- releases --------------------------------------------------------------------------------------------------------


class Staging:
    """A release on this side, and a host to put it on."""

    def __init__(self, world: World, lock: str = "") -> None:
        self.lib = world.folder / "built" / "lib"
        (self.lib / "iris_controller" / "store" / "migrations").mkdir(parents=True)
        (self.lib / "iris_controller" / "store" / "migrations" / "0001_a.sql").touch()
        for name in ("iris_controller/__init__.py", "iris_controller/serve.py"):
            (self.lib / name).touch()
        self.keeper = self.lib / "providers" / "local" / "controller_keeper.py"
        self.keeper.parent.mkdir(parents=True)
        for name in ("providers/__init__.py", "providers/local/__init__.py"):
            (self.lib / name).touch()
        self.keeper.write_text(f"# {os.urandom(300_000).hex()}\n")
        self.lock = lock
        self.house: list[Path] = []
        self.asked: list[dict[str, Any]] = []
        self.said: list[str] = []
        self.host = SshControllerHost(world.remote, lambda: "name: lab\n", self.shipment, self, self.said.append)
        self.there = world.state / "releases" / "r1"

    def shipment(self, release: str) -> Shipment | None:
        return Shipment("r1", self.lib, digest_of(self.lib), self.lock, {"built_at_ms": 5}) if release == "r1" else None

    def wheels(self, lock: str, host: dict[str, Any]) -> list[Path]:
        self.asked.append(host)
        return self.house


def test_a_release_is_copied_once_verified_and_copied_anew_when_it_was_changed(world: World) -> None:
    made = Staging(world)
    made.host.stage("r1")
    manifest = json.loads((made.there / "manifest.json").read_text())
    assert (made.there / "lib" / "providers" / "local" / "controller_keeper.py").read_text() == made.keeper.read_text()
    assert manifest["built_at_ms"] == 5 and os.access(manifest["python"], os.X_OK)
    assert made.host.releases() == ["r1"] and made.host.schema("r1") == ["0001_a"]
    assert not (world.state / "incoming").exists()
    copied = len(made.said)
    made.host.stage("r1")
    assert len(made.said) == copied, "what lies there whole is not copied again"
    (made.there / "lib" / "iris_controller" / "serve.py").write_text("import os\n")
    made.host.stage("r1")
    assert (made.there / "lib" / "iris_controller" / "serve.py").read_text() == ""
    with pytest.raises(IrisError, match="release r2 is neither on root@h1 nor here"):
        made.host.stage("r2")


def test_a_copy_that_broke_off_is_gone_on_with_or_made_anew_and_found_right_at_the_end(world: World) -> None:
    made = Staging(world)
    world.remote.ask("probe")  # the small requests have their connection
    world.ssh.attempts = 1
    world.faults(f"cut:{len(carried.package()) + 200_000}")
    with pytest.raises(HostUnreachable):
        made.host.stage("r1")
    (part,) = (world.state / "incoming").iterdir()
    brought = part.read_bytes()
    assert 0 < len(brought) < 200_000 and not made.there.exists()
    made.host.stage("r1")
    assert f"after {len(brought) / 1e6:.1f} that are there" in made.said[-1]
    assert made.host.releases() == ["r1"]
    # What an earlier copy left is not what is sent now: it is sent whole.
    (made.there / "manifest.json").unlink()
    part.parent.mkdir()
    part.write_bytes(b"\0" * len(brought))
    made.host.stage("r1")
    assert made.host.releases() == ["r1"]


def test_an_archive_that_leaves_its_folder_is_no_release(world: World) -> None:
    evil = world.folder / "r9.zip"
    with zipfile.ZipFile(evil, "w") as archive:
        archive.writestr("../../escaped", "x")
    file = {"name": "r9.zip", "size": evil.stat().st_size, "sha256": hashlib.sha256(evil.read_bytes()).hexdigest()}
    world.remote.ask("receive", folder="incoming", file=file, offset=0, data=lambda: (evil.read_bytes(),))
    with pytest.raises(IrisError, match="names a file outside"):
        world.remote.ask("install", release="r9", manifest={"lib_sha256": ""}, file=file)
    for name in ("../r9.zip", "", "a/b"):
        with pytest.raises(IrisError, match="no file to be copied"):
            world.remote.ask("receive", folder="incoming", file={**file, "name": name}, offset=0, data=lambda: ())
    with pytest.raises(IrisError, match="no folder for a copy"):
        world.remote.ask("have", folder="..", files=[])
    assert not (world.folder / "escaped").exists() and not (world.state / "escaped").exists()


def wheel(folder: Path, name: str) -> tuple[Path, str]:
    """A package of one module, and its line in a lock."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", "answer = 42\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path, f"{name}==1.0 \\\n    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


def test_an_environment_is_built_there_from_wheels_once_for_a_lock(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = world.folder / "index"
    index.mkdir()
    path, line = wheel(index, "iris_nowhere")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    said: list[str] = []
    made = Staging(world, lock=line)
    made.host = SshControllerHost(
        world.remote, lambda: "", made.shipment, PipWheelhouse(world.folder / "wheels", said.append), made.said.append
    )
    (made.lib / "iris_controller" / "serve.py").write_text("import iris_nowhere\n")
    made.host.stage("r1")
    manifest = json.loads((made.there / "manifest.json").read_text())
    environment = world.state / "envs" / manifest["lock_key"]
    assert manifest["python"] == str(environment / "bin" / "python")
    assert said == ["fetching the wheels of the lock"]
    # Another release of the same lock needs neither, and the index may be gone.
    path.unlink()
    shutil.rmtree(made.there)
    made.host.stage("r1")
    assert (
        said == ["fetching the wheels of the lock"] and sum("building environment" in line for line in made.said) == 1
    )


def test_wheels_that_are_not_what_the_lock_says_are_not_taken(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    index = world.folder / "index"
    index.mkdir()
    _, line = wheel(index, "iris_nowhere")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    lock = line.replace(line[-9:-1], "00000000")
    made = Staging(world, lock=lock)
    made.host = SshControllerHost(
        world.remote, lambda: "", made.shipment, PipWheelhouse(world.folder / "wheels"), made.said.append
    )
    with pytest.raises(IrisError, match="the wheels cannot be fetched"):
        made.host.stage("r1")
    assert made.host.releases() == [] and os.listdir(world.folder / "wheels")[0].startswith(".")


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ({"python": [3, 12, 1], "implementation": "CPython", "machine": "x86_64", "libc": ["glibc", "2.17"]},
         ["--python-version", "3.12", "--implementation", "cp", "--abi", "cp312"]),
        ({"python": [3, 11, 2], "implementation": "CPython", "machine": "aarch64", "libc": ["glibc", "2.36"]},
         ["--python-version", "3.11", "--implementation", "cp", "--abi", "cp311"]),
    ],
)  # fmt: skip
def test_wheels_are_chosen_for_the_host_and_not_for_this_machine(host: dict[str, Any], words: list[str]) -> None:
    found = target_of(host)
    assert found[: len(words)] == words
    machine, newest = host["machine"], host["libc"][1].split(".")[1]
    assert f"manylinux_2_{newest}_{machine}" in found and f"manylinux2014_{machine}" in found
    assert f"manylinux_2_{int(newest) + 1}_{machine}" not in found
    with pytest.raises(IrisError, match="no wheels for CPython on"):
        target_of({**host, "libc": ["", ""]})
