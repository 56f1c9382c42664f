"""Which release served a state directory last, written down beside its database.

A controller asks the remote store at its start whether its deployment is pending and whether a rollback is asked for. When the store
does not answer, the release that served here before may go on; another one may not, since it may be on probation, or the one to roll
back to. Must never be taken for the rollout record: it says what was, not what is wanted.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

FILE: Final = "release-served.json"


def served_last(folder: Path) -> str:
    """The release that served this state last, "" = it is not known."""
    try:
        value: Any = json.loads((folder / FILE).read_bytes())
        return str(value["release"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""


def note_served(folder: Path, release: str) -> None:
    """This release serves from now on. Raises OSError."""
    if served_last(folder) == release:
        return
    new = folder / f"{FILE}.new"
    with open(new, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write(json.dumps({"release": release}).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    new.replace(folder / FILE)
