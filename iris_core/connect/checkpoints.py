"""Where a cluster keeps its checkpoints, as far as its file says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from iris_core.config.places import LOCAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_core.config.cluster import ClusterConfig


def state_place(cluster: str = "", config: str = "", *, on_host: Callable[[ClusterConfig], str]) -> str:
    """URL of the remote state dir in a cluster file, or in that of a named cluster; "" where there is none, or it names none.

    `on_host` gives the URL of a place that is on the disk of the controller's own host. Raises UsageFailed: the file is wrong, or no
    cluster has this name.
    """
    from iris_core.config.cluster import find_cluster, load_config

    if not config and (not cluster or cluster == LOCAL):
        return ""
    found = load_config(Path(config) if config else find_cluster(cluster))
    if found.controller_ssh is not None and found.remote_state_dir.startswith("file://"):
        return on_host(found)
    return found.remote_state_dir
