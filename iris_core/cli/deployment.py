"""The controller deployment that a cluster file describes: its host, its releases, and the record of what is deployed.

Its controller runs on this machine, or on an SSH host (`deployment_hosts.py`), with a state directory and an address of its own. The embedded
cluster (`cluster start --local`) has none: it lives and ends with whoever started it (DESIGN §5.20).
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iris_core.contracts import IrisError, UsageFailed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from iris_core.cli.session import Session
    from iris_core.config.cluster import ClusterConfig
    from iris_core.contracts import ControllerHost, ObjectStore, StagedRelease
    from iris_core.procedures.releases import Releases
    from iris_core.procedures.source_tree import SourceTree


@dataclass(frozen=True, slots=True)
class Deployment:
    """One controller deployment, on this machine."""

    config: ClusterConfig
    file: Path
    host: ControllerHost
    releases: Releases
    """Those that lie on this machine."""
    root: Path
    """Of its local state, its releases and their environments, where the controller runs."""

    @property
    def name(self) -> str:
        """The cluster's name, as it has to be typed."""
        return self.config.name

    def store(self) -> ObjectStore:
        """The remote state dir, where record and lock are. Raises UsageFailed: the file names none."""
        if not self.config.remote_state_dir:
            raise UsageFailed(
                f"{self.file}: storage.remote_state_dir is not set, so no deployment can be recorded",
                hint="set it to a place that outlives this machine",
            )
        from iris_core.cli.beside import load

        found: ObjectStore = load("providers.objects").open_store(self.config.remote_state_dir)
        return found

    @property
    def where(self) -> str:
        """The machine that the controller runs on, in words."""
        return "this machine"

    def require_secrets(self) -> None:
        """Sees that every secret that the controller needs can be had where it runs. Raises SecretMissing."""
        from iris_core.auth.secret_references import require

        require(self.config.secrets)

    def require_room(self) -> None:
        """Sees that the disks that the controller writes to have room for the next one. Raises IrisError."""
        from iris_core.procedures.room import require

        folder = getattr(self.store(), "folder", None)
        require(self.root, folder if isinstance(folder, Path) else None)

    def place(self) -> str:
        """URL of the remote state dir as it is reached from here. Raises UsageFailed: the file names none."""
        self.store()
        return self.config.remote_state_dir

    def has(self, release: str) -> bool:
        """Whether a release can be started without being built again."""
        return _find(self.releases, release) is not None

    def built(self, tree: SourceTree, now_ms: int, session: Session) -> str:
        """Builds the release of a tree, or finds it; returns its id. Raises IrisError."""
        from iris_core.procedures.environments import RunningOrBuilt

        return self.releases.build(tree, RunningOrBuilt(self.root), now_ms, session.diagnostics.note).id

    def known(self) -> list[str]:
        """The releases that lie where the controller runs, the newest first."""
        return [release.id for release in self.releases.known()]

    def prune(self, keep: Collection[str]) -> list[str]:
        """Removes there what nothing runs from and is not to be kept; returns what. Raises IrisError."""
        return self.releases.prune(keep)

    def end_leftovers(self) -> list[str]:
        """Ends the workers and the log store of a controller that is stopped; returns who had to be killed. Raises IrisError."""
        from iris_core.cli.beside import load

        killed: list[str] = load("providers.local.cluster").end_leftovers(self.root)
        return killed

    def workers(self) -> list[dict[str, Any]]:
        """The workers that live where the controller runs (`providers.local.worker_restart.HostWorker`). Raises IrisError."""
        from dataclasses import asdict

        from iris_core.cli.beside import load

        return [asdict(worker) for worker in load("providers.local.worker_restart").seen(self.root)]

    def restart_workers(self, wanted: Sequence[Mapping[str, Any]], within_s: float) -> dict[str, Any]:
        """Tells workers there to end, to begin anew from the controller's release: see `providers.local.worker_restart.restart`."""
        from iris_core.cli.beside import load

        said: dict[str, Any] = load("providers.local.worker_restart").restart(self.root, wanted, within_s)
        return said

    def restore_hint(self, checkpoint: str, program: str) -> str:
        """How a checkpoint is put back by hand, "" = one that has to be chosen; `program` begins a command line on this cluster."""
        words = f"iris-controller restore {shlex.quote(checkpoint)} --state-dir {shlex.quote(str(self.root))}"
        return (
            f"{words}, then {program} cluster controller start"
            if checkpoint
            else f"restore a checkpoint: {program} checkpoint list shows them"
        )


def _find(releases: Releases, release: str) -> StagedRelease | None:
    from iris_core.contracts import StagedRelease

    found = releases.get(release)
    return StagedRelease(found.id, found.python, found.lib) if found is not None else None


def deployment(session: Session) -> Deployment:
    """The deployment that the selectors mean. Raises UsageFailed: there can be none."""
    from iris_core.cli.beside import load
    from iris_core.config.cluster import MANUAL, find_cluster, load_config
    from iris_core.config.places import LOCAL
    from iris_core.procedures.releases import Releases

    cluster = session.named
    if cluster == LOCAL:
        raise UsageFailed(
            "the local cluster lives and ends with whoever started it: there is no deployment to change",
            hint="end it there; cluster start --local starts it again",
        )
    if not (session.config or cluster):
        raise UsageFailed("no cluster is named", hint="give --config FILE, or --cluster NAME")
    file = Path(session.config) if session.config else find_cluster(cluster)
    config = load_config(file)
    on = next((kind for kind in (config.controller_on, config.platform) if kind not in (LOCAL, MANUAL)), "")
    if on:
        raise UsageFailed(
            f"{file}: this release deploys controllers on this machine and on SSH hosts only, this is a {on} cluster"
        )
    if config.controller_on == MANUAL:
        from iris_core.cli.deployment_hosts import hosted

        return hosted(session, file.absolute(), config)
    if config.local_state_dir is None:
        raise UsageFailed(f"{file}: storage.local_state_dir is not set", hint="a deployment needs a place of its own")
    if not config.controller_port:
        raise UsageFailed(
            f"{file}: controller.local.port is not set", hint="workers and clients have to find the next controller"
        )
    root = config.local_state_dir.absolute()
    releases = Releases(root)
    host = load("providers.local.controller_host").LocalControllerHost(
        file.absolute(), root, lambda release: _find(releases, release)
    )
    return Deployment(config, file.absolute(), host, releases, root)


def short(release: str) -> str:
    """A release as it is shown: as many digits of its hash as tell it from others."""
    return release[:12]


def say_lines(session: Session, error: IrisError) -> None:
    """What a controller wrote last that did not come up."""
    from iris_core.contracts import ControllerUnhealthy
    from iris_core.model.text import one_line

    if isinstance(error, ControllerUnhealthy):
        for line in error.lines:
            session.diagnostics.note(f"  {one_line(line)}")
