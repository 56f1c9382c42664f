"""Where a controller keeps its local state when it is not told. Must never make anything below those places."""

from __future__ import annotations

import os
import time
from pathlib import Path

from iris_controller.store.database import StateDirError


def default_state_dir() -> Path:
    """Where an unconfigured controller keeps its state."""
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home) / "iris" / "controller"


def dry_run_state_dir() -> Path:
    """Where a dry run keeps its copy unless told: a folder of today. Raises StateDirError: somebody else could put state there."""
    home = Path("/tmp/dry-run")
    home.mkdir(mode=0o700, exist_ok=True)
    if home.is_symlink() or home.stat().st_uid != os.geteuid():
        raise StateDirError(f"{home} belongs to somebody else", hint="choose another place with --state-dir")
    return home / time.strftime("%Y-%m-%d")
