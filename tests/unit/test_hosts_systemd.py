"""A controller kept by systemd: the unit's text, what systemctl is told and in which order, and the keeper in the foreground."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from iris_core.contracts import IrisError, StagedRelease
from providers.hosts.systemd import SystemdControllerHost, quoted, unit_name, unit_text
from providers.local.processes import kept_environment
from tests.unit.test_controller_host import Place


def test_a_unit_has_every_word_as_it_was_whatever_is_in_it() -> None:
    words = ["/opt/a b/python", "-m", "k", '--x=100%"$HOME\\']
    text = unit_text("lab", words, {"PATH": "/bin", "LANG": "de%DE"}, Path("/srv/i/controller.log"))
    assert 'ExecStart="/opt/a b/python" "-m" "k" "--x=100%%\\"$$HOME\\\\"\n' in text
    assert 'Environment="LANG=de%%DE"\nEnvironment="PATH=/bin"\n' in text
    for line in (
        "Type=notify", "Restart=on-failure", "KillMode=process", "UMask=0077", "WantedBy=multi-user.target",
        "StandardOutput=append:/srv/i/controller.log", "Description=Controller of the Iris cluster lab",
    ):  # fmt: skip
        assert f"\n{line}\n" in text
    assert "WantedBy=default.target" in unit_text("lab", words, {}, Path("/l"), user=True)
    assert unit_name("lab/../x y") == "iris-controller-lab_.._x_y.service"
    for bad in ("a\nExecStart=/bin/evil", "a\x00b"):
        with pytest.raises(IrisError, match="cannot stand in a systemd unit"):
            quoted(bad)
    with pytest.raises(IrisError):
        unit_text("lab\nx", words, {}, Path("/l"))


class Systemd:
    """Does what systemd would with the unit that it is told of, and notes what it was told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: list[str] = []
        self.failed = False
        self.child: subprocess.Popen[bytes] | None = None

    def __call__(self, words: Sequence[str]) -> str:
        self.told.append(" ".join(words))
        if words[0] == "is-failed" and not self.failed:
            raise IrisError("it is not")
        if words[0] == "enable":
            (unit,) = self.folder.glob("*.service")
            lines = unit.read_text().splitlines()
            command = next(line for line in lines if line.startswith("ExecStart=")).removeprefix("ExecStart=")
            log = next(line for line in lines if line.startswith("StandardError=")).removeprefix(
                "StandardError=append:"
            )
            pairs = [
                line.removeprefix('Environment="')[:-1].split("=", 1)
                for line in lines
                if line.startswith("Environment=")
            ]
            place = str(self.folder / "notify")
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, open(log, "ab") as file:
                ready.bind(place)
                ready.settimeout(60)
                self.child = subprocess.Popen(
                    [word.strip('"') for word in command.split('" "')],
                    env={**dict(pairs), "NOTIFY_SOCKET": place}, stdout=file, stderr=file, start_new_session=True,
                )  # fmt: skip
                assert ready.recv(100) == b"READY=1"
            os.unlink(place)
        if words[0] == "stop" and self.child is not None:
            self.child.terminate()
            self.child.wait()
        return ""


def test_systemd_keeps_the_keeper_and_is_told_when_it_is_not_to_start_again(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.release("r1")
    units = tmp_path / "units"
    systemd = Systemd(units)

    def find(name: str) -> StagedRelease | None:
        return place.find(name)

    host = SystemdControllerHost(
        tmp_path / "c.yaml", place.state, find, cluster="lab", user=False, folder=units, systemctl=systemd
    )
    host.start("r1")
    unit = "iris-controller-lab.service"
    assert systemd.told == ["daemon-reload", f"is-failed --quiet -- {unit}", f"enable --now -- {unit}"]
    healthy = host.await_healthy()
    assert systemd.child is not None and healthy.release == "r1"
    assert os.getsid(healthy.pid) == systemd.child.pid, "the keeper is the process that systemd started"
    systemd.told.clear()
    host.stop()
    assert systemd.told == [f"disable -- {unit}", f"stop -- {unit}"]
    assert host.status().detail == "it was stopped" and systemd.child.wait() == 0, "it is no failure to be restarted"
    systemd.failed = True
    systemd.told.clear()
    host.start("r1")
    assert f"reset-failed -- {unit}" in systemd.told
    host.stop()


def test_a_keeper_in_the_foreground_says_that_another_one_is_at_work(tmp_path: Path) -> None:
    place = Place(tmp_path)
    lib = place.release("r1")
    place.host.start("r1")
    place.host.await_healthy()
    second = subprocess.run(
        [sys.executable, "-m", "providers.local.controller_keeper", "--foreground", "--state-dir", str(place.state), "--release", "r1"],
        env=kept_environment(lib), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert second.returncode == 1 and "cannot be used" in second.stderr
    place.host.stop()
