"""A controller whose keeper is a systemd unit: it is started when the machine boots, and again when the keeper itself dies.

The unit runs the same keeper process as everywhere, in the foreground, so that what runs is known from the same record. Only the keeper is
signalled at a stop: workers, tasks and log store are in the unit's control group, and go on. Must only be used where PID 1 is systemd.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from iris_core.contracts import IrisError, StagedRelease
from providers.local.controller_host import LocalControllerHost
from providers.local.controller_keeper import STOP_S
from providers.local.processes import kept_environment
from providers.said import as_error

SYSTEMCTL_S: Final = STOP_S + 45.0
RUNNING: Final = Path("/run/systemd/system")
"""Is there where PID 1 is systemd (sd_booted(3))."""

UNIT: Final = """\
[Unit]
Description=Controller of the Iris cluster {cluster}
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
WorkingDirectory=/
{environment}
ExecStart={command}
StandardOutput=append:{log}
StandardError=append:{log}
UMask=0077
Restart=on-failure
RestartSec=2
TimeoutStopSec={stop:g}
KillMode=process

[Install]
WantedBy={target}
"""


def quoted(word: str, *, exec_: bool = False) -> str:
    """A word as it stands in a unit file. Raises IrisError for one that no unit file can hold."""
    if any(ord(character) < 32 for character in word):
        raise IrisError(f"{word!r} cannot stand in a systemd unit")
    word = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return '"' + (word.replace("$", "$$") if exec_ else word) + '"'


def unit_text(
    cluster: str, command: Sequence[str], environment: Mapping[str, str], log: Path, *, user: bool = False
) -> str:
    """The unit of a cluster's controller."""
    for line in (cluster, str(log)):
        quoted(line)
    return UNIT.format(
        cluster=cluster,
        environment="\n".join(f"Environment={quoted(f'{key}={value}')}" for key, value in sorted(environment.items())),
        command=" ".join(quoted(word, exec_=True) for word in command),
        log=str(log).replace("%", "%%"),
        stop=STOP_S + 15.0,
        target="default.target" if user else "multi-user.target",
    )


def unit_name(cluster: str) -> str:
    """`iris-controller-lab.service`."""
    return f"iris-controller-{re.sub(r'[^A-Za-z0-9_.-]', '_', cluster)}.service"


def lingers(user: str) -> bool:
    """Whether the units of an account run without it being logged in."""
    return Path("/var/lib/systemd/linger", user).exists()


def usable(uid: int) -> bool:
    """Whether systemd can keep a controller of this account; else it is kept by a process of its own."""
    if not RUNNING.is_dir():
        return False
    try:
        return uid == 0 or lingers(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return False


class SystemdControllerHost(LocalControllerHost):
    """As LocalControllerHost, with the keeper as a unit.

    Args:
        cluster: Names the unit.
        user: Whether it is a unit of this account, else of the machine.
        folder: Where the unit file goes, None = where systemd looks for it.
        systemctl: Runs `systemctl WORDS`. Raises IrisError.
    """

    def __init__(
        self,
        config: Path,
        state_dir: Path,
        find: Callable[[str], StagedRelease | None],
        *,
        cluster: str,
        user: bool,
        folder: Path | None = None,
        systemctl: Callable[[Sequence[str]], str] | None = None,
    ) -> None:
        super().__init__(config, state_dir, find)
        self._cluster = cluster
        self._user = user
        self._folder = folder or (Path.home() / ".config" / "systemd" / "user" if user else Path("/etc/systemd/system"))
        self._systemctl = systemctl or self._run

    @property
    def unit(self) -> str:
        """The unit's name."""
        return unit_name(self._cluster)

    def _begin(self, words: Sequence[str], lib: Path) -> None:
        text = unit_text(
            self._cluster,
            [*words[:3], "--foreground", *words[3:]],
            kept_environment(lib),
            self.log_file,
            user=self._user,
        )
        path = self._folder / self.unit
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            scratch = path.with_suffix(".new")
            scratch.write_text(text)
            os.chmod(scratch, 0o644)
            scratch.replace(path)
        except OSError as error:
            raise IrisError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from error
        self._systemctl(["daemon-reload"])
        if self._failed():
            self._systemctl(["reset-failed", "--", self.unit])
        self._systemctl(["enable", "--now", "--", self.unit])

    def _failed(self) -> bool:
        try:
            self._systemctl(["is-failed", "--quiet", "--", self.unit])
        except IrisError:
            return False
        return True

    def stop(self, kill_after_s: float | None = None) -> None:
        """See ControllerHost. It is not started by the next boot either."""
        if (self._folder / self.unit).exists():
            self._systemctl(["disable", "--", self.unit])
        super().stop(kill_after_s)
        if (self._folder / self.unit).exists():
            self._systemctl(["stop", "--", self.unit])

    def _run(self, words: Sequence[str]) -> str:
        command = ["systemctl", "--no-ask-password", *(["--user"] if self._user else []), *words]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SYSTEMCTL_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise IrisError(f"systemctl {words[0]} was not done: {error}") from error
        if done.returncode != 0:
            raise as_error(done.stderr, f"systemctl {words[0]} ended with exit code {done.returncode}")
        return done.stdout
