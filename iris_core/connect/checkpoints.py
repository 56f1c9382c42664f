"""Where a cluster keeps its checkpoints, as far as its file says."""

from __future__ import annotations

from pathlib import Path

from iris_core.config.places import LOCAL


def state_place(cluster: str = "", config: str = "") -> str:
    """URL of the remote state dir in a cluster file, or in that of a named cluster; "" where there is none, or it names none.

    Raises UsageFailed: the file is wrong, or no cluster has this name.
    """
    from iris_core.config.cluster import find_cluster, load_config

    if config:
        return load_config(Path(config)).remote_state_dir
    if cluster and cluster != LOCAL:
        return load_config(find_cluster(cluster)).remote_state_dir
    return ""
