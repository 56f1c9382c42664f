"""A controller deployment on an SSH host: what lies here, what lies there, and the connection between.

Releases are built in a cache of this account, and copied to the host. A `file://` place in the cluster file is on the host's disk, and is reached
through the connection; a bucket is reached from here. Must never take a path of the host for one of this machine.
"""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iris_core.cli.beside import load
from iris_core.cli.deployment import Deployment
from iris_core.config.places import cache_home
from iris_core.contracts import IrisError, UsageFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from iris_core.cli.session import Session
    from iris_core.config.cluster import ClusterConfig
    from iris_core.contracts import ObjectStore
    from iris_core.procedures.releases import Say
    from iris_core.procedures.source_tree import SourceTree


@dataclass(frozen=True, slots=True)
class HostedDeployment(Deployment):
    """One controller deployment on an SSH host; `root` is a path there."""

    remote: Any = None
    """`providers.hosts.remote.Remote`."""

    @property
    def where(self) -> str:
        return str(self.remote.ssh.label)

    def store(self) -> ObjectStore:
        if self.config.remote_state_dir.startswith("file://"):
            return store_there(self.config, self.remote)
        # The class is made anew by `slots`, and super() without arguments would not find it.
        return Deployment.store(self)

    def probe(self) -> str:
        """That the host can be reached and a controller can live there, in words. Raises IrisError."""
        from iris_core.model.quantities import format_size

        found = self.host.probe()  # type: ignore[attr-defined]
        python = ".".join(map(str, found["python"]))
        return f"{self.where}, Python {python}, {format_size(found['free_bytes'])} free"

    def require_secrets(self) -> None:
        wanted = [[secret.where, list(secret.references)] for secret in self.config.secrets]
        if wanted:
            self.remote.ask("secrets", wanted=wanted)

    def require_room(self) -> None:
        self.remote.ask("room", remote=self.config.remote_state_dir)

    def place(self) -> str:
        from iris_core.cli.tunnels import place_on_host

        self.store()
        there = self.config.remote_state_dir.startswith("file://")
        return place_on_host(self.config) if there else self.config.remote_state_dir

    def has(self, release: str) -> bool:
        return release in self.known() or shipment(self.releases, release) is not None

    def built(self, tree: SourceTree, now_ms: int, session: Session) -> str:
        return self.releases.build(tree, KeptLocks(self.releases.root), now_ms, session.diagnostics.note).id

    def known(self) -> list[str]:
        return list(self.host.releases())  # type: ignore[attr-defined]

    def prune(self, keep: Collection[str]) -> list[str]:
        removed = list(self.host.prune(list(keep)))  # type: ignore[attr-defined]
        self.releases.prune(keep)
        return removed

    def end_leftovers(self) -> list[str]:
        return [str(name) for name in self.remote.ask("end_leftovers", timeout_s=180.0)]

    def workers(self) -> list[dict[str, Any]]:
        return [dict(row) for row in self.remote.ask("workers")]

    def restart_workers(self, wanted: Sequence[Mapping[str, Any]], within_s: float) -> dict[str, Any]:
        said = self.remote.ask("restart_workers", wanted=list(wanted), within_s=within_s, timeout_s=within_s + 60.0)
        return dict(said)

    def restore_hint(self, checkpoint: str, program: str) -> str:
        return f"{program} runbook db-rollback" + (f" {shlex.quote(checkpoint)}" if checkpoint else "")


def hosted(session: Session, file: Path, config: ClusterConfig) -> HostedDeployment:
    """The deployment of a cluster file whose controller is on an SSH host. Raises UsageFailed: the file does not say enough."""
    from iris_core.procedures.releases import Releases
    from iris_core.procedures.wheelhouse import PipWheelhouse

    say = session.diagnostics.note
    remote = remote_of(config, say)
    session.at_close(remote.close)
    cache = cache_home() / "deployments"
    releases = Releases(cache)
    assert config.local_state_dir is not None
    host = load("providers.hosts.controller_host").SshControllerHost(
        remote,
        lambda: _text(file),
        lambda release: shipment(releases, release),
        PipWheelhouse(cache / "wheels", say),
        say,
    )
    return HostedDeployment(config, file, host, releases, config.local_state_dir, remote)


def remote_of(config: ClusterConfig, say: Callable[[str], None]) -> Any:
    """The connection to a cluster's host; nothing is dialled yet. Raises UsageFailed: the file does not say enough."""
    if config.controller_ssh is None:
        raise UsageFailed(f"{config.source}: controller.manual.host is not set", hint="name the host of the controller")
    if config.local_state_dir is None or not config.local_state_dir.is_absolute():
        raise UsageFailed(
            f"{config.source}: storage.local_state_dir is not set to an absolute path",
            hint="a deployment needs a place of its own on the host",
        )
    ssh = load("providers.hosts.ssh").Ssh(config.controller_ssh, say=say)
    return load("providers.hosts.remote").Remote(ssh, config.name, str(config.local_state_dir))


def store_there(config: ClusterConfig, remote: Any) -> ObjectStore:
    """The store on the host's disk."""
    found: ObjectStore = load("providers.hosts.objects").HostStore(remote, config.remote_state_dir)
    return found


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise IrisError(f"{file} cannot be read: {error}") from error


class KeptLocks:
    """In the place of an environment here: a release for a host needs one there, made by the lock that is kept for it."""

    def __init__(self, root: Path) -> None:
        self._folder = root / "locks"

    def ensure(self, lock: Path, say: Say) -> tuple[str, str]:
        """See `releases.Environments`: the lock's digest, and no interpreter."""
        raw = lock.read_bytes()
        key = hashlib.sha256(raw).hexdigest()
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{key}.txt"
        scratch = self._folder / f".{key}.{id(self):x}"
        scratch.write_bytes(raw)
        scratch.replace(path)
        return key, ""


def shipment(releases: Any, release: str) -> Any:
    """A release that lies here as it can be copied, None if it does not."""
    found = releases.get(release)
    if found is None:
        return None
    from iris_core.procedures.files import digest_of

    try:
        lock = (releases.root / "locks" / f"{found.manifest['lock_key']}.txt").read_text()
    except (OSError, KeyError):
        return None
    return load("providers.hosts.controller_host").Shipment(
        found.id, found.lib, digest_of(found.lib), lock, {**found.manifest, "lock_sha256": found.manifest["lock_key"]}
    )
