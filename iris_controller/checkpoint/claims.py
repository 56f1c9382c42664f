"""Which claims on the remote state dir this local state has made: whether it may take it back.

A state whose claim was taken by another controller is older than what that one has. Served again by a restart it would undo
everything since, so it is not: the last few claims are kept beside the database, and a claim that is none of them is somebody
else's. A state that was made here just now, from a checkpoint or from nothing, has lost to nobody and may claim. Must never touch the
remote state dir.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

FILE: Final = "claims.json"
KEPT: Final = 8


class OwnClaims:
    """The claims of one state directory, whose lock is held. Every method may raise OSError."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    def may_take(self, standing: str) -> bool:
        """Whether this state may claim in the place of a claim that stands."""
        value = self._read()
        return value is None or standing in value

    def add(self, claim: str) -> None:
        """Remembers a claim. Called before it is made: a crash in between must not leave it unknown."""
        self._write([*(self._read() or []), claim][-KEPT:])

    def forget(self) -> None:
        """The state is another from now on, and has lost to nobody."""
        self._write(None)

    def _read(self) -> list[str] | None:
        """None = may claim whatever stands."""
        try:
            value: Any = json.loads(self._path.read_bytes())
            claims = value["claims"]
            return None if claims is None else [str(claim) for claim in claims]
        except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
            return []

    def _write(self, claims: list[str] | None) -> None:
        new = self._path.with_name(FILE + ".new")
        with open(new, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(json.dumps({"claims": claims}).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
