"""What a controller leaves beside its database when it ends after its last checkpoint: its own boot, and where that checkpoint is.

Whoever told it to end may never hear its answer. The newest checkpoint that is found afterwards need not be that last one: one that was
taken from time to time is as new, and what was taken in after it would be lost with it. So the note is written once nothing can be taken
in again, and removed before anything can be. Must never be written by a controller that may still go on.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Final

from providers.local.processes import read_record

if TYPE_CHECKING:
    from pathlib import Path

FILE: Final = "last-checkpoint.json"


def note(state_dir: Path, boot_id: str, checkpoint: str) -> None:
    """The controller of that boot changes nothing after this checkpoint, and ends. Raises OSError."""
    new = state_dir / f".{FILE}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(new, flags, 0o600), "wb") as file:
        file.write(json.dumps({"boot_id": boot_id, "checkpoint": checkpoint}).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    new.replace(state_dir / FILE)


def forget(state_dir: Path) -> None:
    """A controller takes the state over, and will change it. Raises OSError."""
    (state_dir / FILE).unlink(missing_ok=True)


def noted(state_dir: Path) -> tuple[str, str]:
    """Which boot ended last after a last checkpoint, and where that is; ("", "") = that is not known."""
    found = read_record(state_dir / FILE)
    boot, checkpoint = found.get("boot_id"), found.get("checkpoint")
    return (boot, checkpoint) if isinstance(boot, str) and isinstance(checkpoint, str) else ("", "")
