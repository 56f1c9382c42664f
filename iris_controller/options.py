"""What `iris-controller serve` is started with, from the command line and the cluster file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iris_core.config.cluster import ClusterConfig

DEFAULT_PORT = 10000
LOCAL_DEAD_AFTER_S = 10.0
DEAD_AFTER_S = 50.0


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """One controller process.

    config      the cluster; its `controller_port` counts when `port` is None
    state_dir   local state, held by one controller at a time
    fresh       move an existing database aside first
    checkpoint  path or URL of a checkpoint to start from, "" = by the rules of `checkpoint/choose.py`
    checkpoint_interval_s   between periodic checkpoints; None = as the cluster file says
    take_over   go on with the local database also if another controller has taken over the remote state dir since
    dry_run     look at the state, reach nothing outside it (`dry_run.py`)
    embedded    of `demo` and `cluster start --local`: workers and log store end with the controller
    ready_fd    a file descriptor that gets one line of JSON (url, pid, boot_id) once the port serves; -1 = none
    """

    config: ClusterConfig
    state_dir: Path
    host: str
    port: int | None = None
    fresh: bool = False
    checkpoint: str = ""
    checkpoint_interval_s: float | None = None
    take_over: bool = False
    dry_run: bool = False
    embedded: bool = False
    ready_fd: int = -1

    @property
    def remote_state_dir(self) -> str:
        """URL of what outlives this machine; without one in the cluster file the local state dir stands in."""
        return self.config.remote_state_dir or self.state_dir.absolute().as_uri()

    @property
    def finelog_options(self) -> list[str]:
        """Of the log store's command. A dry run ships nothing: it would take the place of the one that does."""
        wanted = self.config.finelog
        place = wanted.remote_dir or (f"{self.config.remote_state_dir}/finelog" if self.config.remote_state_dir else "")
        found = [f"--max-bytes={wanted.max_bytes}"] if wanted.max_bytes else []
        found += [f"--max-age-seconds={wanted.max_age_ms // 1000}"] if wanted.max_age_ms else []
        found += [f"--max-segments={wanted.max_segments}"] if wanted.max_segments else []
        if place and not self.dry_run:
            found += [f"--remote={place}", f"--ship-seconds={wanted.ship_after_ms / 1000:g}"]
            found += [f"--local-bytes={wanted.local_bytes}"] if wanted.local_bytes else []
        return found

    @property
    def dead_after_s(self) -> float:
        return LOCAL_DEAD_AFTER_S if self.config.platform == "local" else DEAD_AFTER_S
