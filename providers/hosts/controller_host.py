"""A controller on a host that is reached by SSH (`contracts.ControllerHost`): the keeper of a local deployment, over there.

What runs is looked up on the host, by the same record as on this machine. A release is copied there file by file, each found right by its
digest before it is used; a copy that broke off is gone on with. A host may reach no package index, so its environment is built from wheels that
come along, once per lock. Must never start what has not been found whole, or read the state of the cluster from this machine's disk.
"""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

from iris_core.contracts import ControllerStatus, IrisError
from providers.hosts.remote import MARGIN_S, Remote
from providers.hosts.ssh import pieces
from providers.local.controller_keeper import STOP_S

BEGIN_S: Final = 90.0
COPY_S: Final = 3_600.0
BUILD_S: Final = 1_900.0
LOAD_S: Final = 120.0
INCOMING: Final = "incoming"
WHEELS: Final = "wheels"
_DATE: Final = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Shipment:
    """A release as it lies on this machine, to be copied.

    Attributes:
        lib: Its modules.
        lib_sha256: Their digest, which the host finds again.
        lock: The text that its environment is made by.
        manifest: What is known of it, for the host to keep.
    """

    id: str
    lib: Path
    lib_sha256: str
    lock: str
    manifest: dict[str, Any]


class Wheelhouse(Protocol):
    """Where the wheels of a lock come from."""

    def wheels(self, lock: str, host: dict[str, Any]) -> Sequence[Path]:
        """The wheels that this host needs for a lock (`host` is what its probe said), fetched if need be. Raises IrisError."""
        ...


class SshControllerHost:
    """Implements `ControllerHost` over SSH.

    Args:
        config: Gives the text of the cluster file that the controller is started with.
        shipment: The release of an id as it lies here, None if it does not.
        say: Told what is copied.
    """

    def __init__(
        self,
        remote: Remote,
        config: Callable[[], str],
        shipment: Callable[[str], Shipment | None],
        wheelhouse: Wheelhouse,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.remote = remote
        self._config = config
        self._shipment = shipment
        self._wheelhouse = wheelhouse
        self._say = say

    # --- the controller ----------------------------------------------------------------------------------------------

    def start(self, release: str) -> None:
        """See ControllerHost."""
        self.remote.ask("start", release=release, config=self._config(), timeout_s=BEGIN_S)

    def stop(self, kill_after_s: float | None = None) -> None:
        """See ControllerHost."""
        self.remote.ask("stop", kill_after_s=kill_after_s, timeout_s=3 * STOP_S + MARGIN_S)

    def status(self) -> ControllerStatus:
        """See ControllerHost."""
        return self._status(self.remote.ask("status"))

    def await_healthy(self, timeout_s: float = 120.0) -> ControllerStatus:
        """See ControllerHost."""
        return self._status(self.remote.ask("health", timeout_s=timeout_s + MARGIN_S, within_s=timeout_s))

    def logs(self, lines: int) -> Sequence[str]:
        """See ControllerHost."""
        return [str(line) for line in self.remote.ask("logs", lines=lines)]

    def schema(self, release: str) -> Sequence[str]:
        """See ControllerHost. A release that is here is not asked for there."""
        found = self._shipment(release)
        if found is not None:
            return sorted(path.stem for path in (found.lib / "iris_controller" / "store" / "migrations").glob("*.sql"))
        return [str(name) for name in self.remote.ask("schema", release=release)]

    def offline(self, release: str, words: Sequence[str], timeout_s: float = 600.0) -> str:
        """See ControllerHost."""
        return str(
            self.remote.ask(
                "offline", release=release, words=list(words), within_s=timeout_s, timeout_s=timeout_s + MARGIN_S
            )
        )

    def _status(self, values: dict[str, Any]) -> ControllerStatus:
        try:
            found = ControllerStatus(**values)
        except TypeError:
            raise IrisError(f"{self.remote.ssh.label} answers something else than a status") from None
        # Its address means something on the host alone.
        there = found.url.removeprefix("http://")
        if not there:
            return found
        url = f"ssh://{self.remote.ssh.label}/{there}"
        return replace(found, url=url, detail=found.detail.replace(found.url, url))

    # --- releases ----------------------------------------------------------------------------------------------------

    def releases(self) -> Sequence[str]:
        """The whole releases that lie on the host, the newest first."""
        return [str(release) for release in self.remote.ask("releases")]

    def prune(self, keep: Sequence[str]) -> Sequence[str]:
        """Removes releases there but the newest, those to keep and those in use; returns which."""
        return [str(release) for release in self.remote.ask("prune", keep=list(keep), timeout_s=BEGIN_S)]

    def probe(self) -> dict[str, Any]:
        """What the host is. Raises IrisError: no controller can live there."""
        found: dict[str, Any] = self.remote.ask("probe")
        if not found["writable"]:
            raise IrisError(
                f"{self.remote.ssh.label}: {self.remote.state_dir} cannot be written by {self.remote.ssh.host.user}"
            )
        return found

    def stage(self, release: str) -> None:
        """See ControllerHost. What lies there whole is not copied again."""
        host = self.probe()
        if not self.remote.ask("verify", release=release, timeout_s=LOAD_S):
            found = self._shipment(release)
            if found is None:
                raise IrisError(
                    f"release {release[:12]} is neither on {self.remote.ssh.label} nor here",
                    hint="check its tree out, then it is built again",
                )
            self._ship(found, host)
        self.remote.ask("load", release=release, timeout_s=LOAD_S)

    def _ship(self, found: Shipment, host: dict[str, Any]) -> None:
        environment = self._environment(found.lock, host)
        manifest = {
            **found.manifest,
            "python": environment["python"],
            "python_version": ".".join(map(str, host["python"])),
            "lock_key": environment["key"],
            "lib_sha256": found.lib_sha256,
        }
        with tempfile.TemporaryDirectory(prefix="iris-ship-") as folder:
            archive = Path(folder) / f"{found.id}.zip"
            _pack(found.lib, archive)
            self._copy([archive], INCOMING)
            file = _described(archive)
            self.remote.ask("install", release=found.id, manifest=manifest, file=file, timeout_s=LOAD_S)

    def _environment(self, lock: str, host: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self.remote.ask("environment", lock=lock, build=False, timeout_s=LOAD_S)
        if found["python"]:
            return found
        if not host["environments"]:
            raise IrisError(
                f"{self.remote.ssh.label}: its Python cannot make virtual environments",
                hint="install python3-venv there",
            )
        self._say(f"{self.remote.ssh.label} lacks {len(found['needs'])} packages of the lock")
        wheels = self._wheelhouse.wheels(lock, host)
        self._copy(wheels, WHEELS)
        self._say(f"building environment {found['key']} on {self.remote.ssh.label}")
        built: dict[str, Any] = self.remote.ask(
            "environment", lock=lock, build=True, wheels=[path.name for path in wheels], timeout_s=BUILD_S
        )
        return built

    def _copy(self, paths: Sequence[Path], folder: str) -> None:
        files = [_described(path) for path in paths]
        have = self.remote.ask("have", folder=folder, files=files, timeout_s=LOAD_S)
        for path, file, there in zip(paths, files, have, strict=True):
            if there["whole"]:
                continue
            offset = int(there["bytes"])
            self._say(
                f"copying {path.name} to {self.remote.ssh.label}, {(int(file['size']) - offset) / 1e6:.1f} MB"
                + (f" after {offset / 1e6:.1f} that are there" if offset else "")
            )
            self._send(path, file, offset, folder)

    def _send(self, path: Path, file: dict[str, Any], offset: int, folder: str) -> None:
        with path.open("rb") as source:

            def data() -> Iterable[bytes]:
                return pieces(source, offset)

            try:
                self.remote.ask("receive", folder=folder, file=file, offset=offset, data=data, timeout_s=COPY_S)
            except IrisError as error:
                if "did not arrive as it was sent" not in error.message or not offset:
                    raise
                # What an earlier copy had left was not this; it is gone now.
                self.remote.ask(
                    "receive", folder=folder, file=file, offset=0, data=lambda: pieces(source), timeout_s=COPY_S
                )


def _described(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {
            "name": path.name,
            "size": path.stat().st_size,
            "sha256": hashlib.file_digest(file, "sha256").hexdigest(),
        }


def _pack(lib: Path, archive: Path) -> None:
    """The modules as one file, the same bytes every time, so that a copy can be gone on with."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as file:
        for path in sorted(lib.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                entry = zipfile.ZipInfo(path.relative_to(lib).as_posix(), _DATE)
                entry.compress_type = zipfile.ZIP_DEFLATED
                file.writestr(entry, path.read_bytes())
