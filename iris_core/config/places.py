"""The folders of this user: configuration, state, cache, and the cluster files that ship with the program.

The names are those that operators know on every system (DESIGN §2, §5.21), so XDG variables count and no platform's
own habits do. A variable that is not an absolute path is ignored, as XDG says. Must never create anything.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

LOCAL: Final = "local"
"""The name of the embedded cluster (`cluster start --local`), and of the platform that is this machine."""


def _base(variable: str, fallback: str) -> Path:
    named = os.environ.get(variable, "")
    return Path(named) if named.startswith("/") else Path.home() / fallback


def config_home() -> Path:
    """`$XDG_CONFIG_HOME`, else `~/.config`."""
    return _base("XDG_CONFIG_HOME", ".config")


def state_home() -> Path:
    """`$XDG_STATE_HOME`, else `~/.local/state`, with `iris` below it."""
    return _base("XDG_STATE_HOME", ".local/state") / "iris"


def cache_home() -> Path:
    """`$XDG_CACHE_HOME`, else `~/.cache`, with `iris` below it: what can be thrown away at any time."""
    return _base("XDG_CACHE_HOME", ".cache") / "iris"


def local_cluster_dir() -> Path:
    """Where `cluster start --local` keeps its state (DESIGN §5.21)."""
    return state_home() / "local"


def shipped_clusters() -> Path:
    """Cluster files of this installation: inside the package, or beside it in a clone."""
    package = Path(__file__).resolve().parents[1]
    shipped = package / "_shipped" / "clusters"
    return shipped if shipped.is_dir() else package.parent / "config"


def cluster_folders() -> tuple[Path, ...]:
    """Where named clusters are looked up; the first folder that has the name wins (DESIGN §2)."""
    return (
        config_home() / "iris" / "clusters",
        config_home() / "marin" / "clusters",
        Path("config"),
        shipped_clusters(),
    )
