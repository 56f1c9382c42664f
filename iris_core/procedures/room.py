"""Whether the disks of a controller have room for the next one, looked at where they are, right before the one that runs is told to end.

From there on a full disk leaves the cluster without a controller: the last checkpoint, the next one's migrations, and the way back each
write as much as the database once. Until there nothing is lost by refusing. Needs the standard library alone, as it is carried to hosts.
"""

from __future__ import annotations

import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iris_core.contracts import IrisError
from iris_core.model.quantities import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

DATABASE: Final = "db"
"""Folder of the state dir: the database, and what is not written into it yet."""
STATE_COPIES: Final = 2
"""Of the database, beside the one that is there: what a migration writes, or a checkpoint that is put back while the old one is kept."""
REMOTE_COPIES: Final = 1
"""The last checkpoint, as large as if nothing could be compressed."""
SPARE_BYTES: Final = 32 << 20
"""For logs, the record and what tasks say meanwhile."""


def require(state_dir: Path, remote: Path | None) -> None:
    """Sees that the disk of the state dir, and that of the remote state dir if it is a folder there, have room. Raises IrisError."""
    try:
        database = sum(_size(path) for path in (state_dir / DATABASE).glob("*"))
        places = [(state_dir, STATE_COPIES), *([(remote, REMOTE_COPIES)] if remote is not None else [])]
        for disk in _by_disk(places):
            copies = sum(number for _, number in disk)
            needed, free = copies * database + SPARE_BYTES, shutil.disk_usage(disk[0][0]).free
            if free < needed:
                where = " and ".join(str(place) for place, _ in disk)
                raise IrisError(
                    f"{where}: {format_size(free)} free, {format_size(needed)} are needed to replace a controller and to go back",
                    hint="make room, then try again",
                )
    except OSError as error:
        raise IrisError(f"whether there is room in {state_dir} cannot be seen: {error.strerror or error}") from error


def _size(path: Path) -> int:
    """In bytes; 0 of what is no file, or went away in this moment, as a write-ahead log does."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def _by_disk(places: Sequence[tuple[Path, int]]) -> list[list[tuple[Path, int]]]:
    """Places that share a file system, together. One that is not there yet is where it will be made."""
    found: dict[int, list[tuple[Path, int]]] = {}
    for named, copies in places:
        place = named
        while not place.exists() and place != place.parent:
            place = place.parent
        found.setdefault(place.stat().st_dev, []).append((place, copies))
    return list(found.values())
