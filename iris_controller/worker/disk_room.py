"""Whether what a job brings fits on this host's disk, and whose fault it is when it does not.

The disk that a job asks for is its word on what it needs (DESIGN §5.14 leaves the case open). A job that keeps its word and finds no
room met a machine that is too full or too small, and that machine must not eat the queue. A job that brings more than it said fails by
itself where the machine had what it asked for, and on a disk that could not hold it were it empty: counted against the machines, one such
job would have all of them excluded. What fits is never refused, whatever was asked. Must never write.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from iris_core.model.quantities import format_size

if TYPE_CHECKING:
    from pathlib import Path

UNASKED_BYTES: Final = 5_000_000_000
"""The word of a job that asks for no disk: what `job run` asks for by itself."""


@dataclass(frozen=True, slots=True)
class Room:
    """Sizes in bytes: what is to be put on the disk, what is free there for us, and all of it; `asked` 0 = the job asked for none."""

    need: int
    free: int
    total: int
    asked: int = 0

    @property
    def fits(self) -> bool:
        """Whether there is room now. What fits by this can still find none: others write, too, and files take whole blocks."""
        return self.need <= self.free

    @property
    def is_the_jobs(self) -> bool:
        """Whether it does not fit because the job brings more than it asked for, and not because of this machine."""
        word = self.asked or UNASKED_BYTES
        return not self.fits and self.need > word and (self.free >= word or self.need > self.total)

    @property
    def words(self) -> str:
        """Why it does not fit, with the numbers."""
        need, free, total = (format_size(size) for size in (self.need, self.free, self.total))
        if not self.is_the_jobs:
            return f"no space left on device: {need} are needed, {free} of {total} are free"
        word = format_size(self.asked or UNASKED_BYTES, exact=True)
        whose = "the job asked for" if self.asked else "a job has that asks for none"
        return (
            f"it takes {need}, more than the {word} of disk that {whose} ({free} of {total} are free here);"
            " make it smaller, or ask for more with --disk"
        )


class NoRoom(Exception):
    """It does not fit, and nothing of it was written; the message says why."""

    def __init__(self, room: Room) -> None:
        super().__init__(room.words)
        self.room = room


def require(folder: Path, need: int, asked: int) -> None:
    """Sees that so many bytes fit below the folder, where its file system says how large it is. Raises NoRoom or OSError."""
    disk = os.statvfs(folder)
    room = Room(need, disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize, asked)
    if room.total and not room.fits:
        raise NoRoom(room)
