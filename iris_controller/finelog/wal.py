"""The write-ahead files: names, the one file that grows, and what a crash or damage left of a file.

A group of records is written with one call and made durable with one sync. After a failed sync nobody knows what the disk holds
of the group, and asking again does not help (the kernel may have dropped the pages): the file is then never written to again, and
whatever stands behind its last good sync is no part of the store. Its successor starts at the same seq, which is how a later start
knows it too.

Must never truncate anything that was acknowledged.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from iris_controller.finelog.disk import create, sync_folder, write_all
from iris_controller.finelog.records import FILE_BYTES, Hole, Record, file_header, walk
from iris_controller.finelog.steps import reached

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NAME = re.compile(r"wal-([0-9]{19})\.log")

Sync = Callable[[int], None]


def file_name(first_seq: int) -> str:
    """The name of the file whose lines start at `first_seq`."""
    return f"wal-{first_seq:019d}.log"


def list_files(folder: Path) -> list[tuple[int, Path]]:
    """First seq and path of every write-ahead file, oldest first."""
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
    return sorted(found)


class AppendFile:
    """The file that grows. Bytes below `synced` are on disk; there are none above it between two groups."""

    def __init__(self, path: Path, descriptor: int, size: int, sync: Sync) -> None:
        self.path = path
        self.synced = size
        self.is_trusted = True
        self._descriptor = descriptor
        self._sync = sync

    @classmethod
    def start(cls, path: Path, marker: bytes, first_seq: int, sync: Sync = os.fdatasync) -> AppendFile:
        """A new file. One of that name that never held an acknowledged line gives way. Raises OSError."""
        with suppress(FileNotFoundError):
            path.unlink()
        descriptor = create(path)
        try:
            reached("file: made")
            write_all(descriptor, file_header(marker, first_seq))
            sync(descriptor)
            reached("file: its header is on disk")
            sync_folder(path.parent)
        except BaseException:
            os.close(descriptor)
            with suppress(OSError):
                path.unlink()
            raise
        return cls(path, descriptor, FILE_BYTES, sync)

    @classmethod
    def go_on(cls, path: Path, size: int, sync: Sync = os.fdatasync) -> AppendFile:
        """An older file, cut to its first `size` bytes. Raises OSError."""
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_size > size:
                os.ftruncate(descriptor, size)
            # What a predecessor wrote and did not live to sync is read and answered from now on.
            os.fsync(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        return cls(path, descriptor, size, sync)

    def append(self, data: bytes) -> None:
        """Writes `data` and makes it durable. Raises OSError: then none of it counts."""
        try:
            write_all(self._descriptor, data)
        except BaseException:
            self._take_back()
            raise
        reached("group: written")
        try:
            self._sync(self._descriptor)
        except BaseException:
            self.is_trusted = False
            self._take_back()
            raise
        self.synced += len(data)
        reached("group: on disk")

    def _take_back(self) -> None:
        try:
            os.ftruncate(self._descriptor, self.synced)
        except OSError:
            self.is_trusted = False

    def close(self) -> None:
        """Ends it. Everything acknowledged is on disk already."""
        os.close(self._descriptor)


@dataclass(slots=True)
class Loss:
    """Acknowledged lines `first_seq` to `last_seq` that the disk no longer gives."""

    first_seq: int
    last_seq: int
    why: str = field(default="", compare=False)
    """Where it was no damage: how they were lost. Such a range holds far fewer lines than numbers."""


@dataclass(slots=True)
class Findings:
    """What a file was found to hold, complete once its records were read to the end."""

    end: int = FILE_BYTES
    """Where the readable part ends; a torn tail lies behind it."""
    next_seq: int = 0
    """The seq after its last line, read or lost."""
    torn_bytes: int = 0
    losses: list[Loss] = field(default_factory=list)


def read_records(
    path: Path, marker: bytes, first_seq: int, limit_seq: int | None, findings: Findings, vouched: int = 0
) -> Iterator[tuple[Record, bytes]]:
    """The records of a file with their payloads, in order; `findings` is filled on the way.

    `limit_seq` is the first seq of the file behind it, None for the last one. Only the last can have a torn tail, and only behind
    `vouched`, up to where it is known to have been durable. Raises OSError.
    """
    findings.next_seq = first_seq
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size <= FILE_BYTES:
            _lost_up_to(findings, limit_seq)
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for found in walk(data, marker, FILE_BYTES, size):
                if isinstance(found, Hole):
                    if limit_seq is None and _is_torn(data, marker, found, size, vouched, findings):
                        break
                    continue
                if limit_seq is not None and found.first_seq >= limit_seq:
                    break
                if found.first_seq < findings.next_seq:
                    continue
                _lost_up_to(findings, found.first_seq)
                findings.next_seq = found.first_seq + found.lines
                findings.end = found.end
                yield found, data[found.payload_start : found.end]
    _lost_up_to(findings, limit_seq)


def _lost_up_to(findings: Findings, seq: int | None) -> None:
    if seq is not None and seq > findings.next_seq:
        findings.losses.append(Loss(findings.next_seq, seq - 1))
        findings.next_seq = seq


def _is_torn(data: mmap.mmap, marker: bytes, hole: Hole, size: int, vouched: int, findings: Findings) -> bool:
    """Whether the file ends where the hole begins: what is behind was never acknowledged, at least not in one piece.

    Bytes were acknowledged if they lie below `vouched`, or a record behind them says so.
    """
    behind = [found for found in walk(data, marker, hole.end, size) if isinstance(found, Record)]
    durable = max([vouched, *(record.synced for record in behind)])
    if durable >= hole.end or (hole.start < durable and not behind):
        return False
    findings.torn_bytes = size - hole.start
    if hole.start < durable:
        # Damage that reaches into a torn tail: the rest of that group came without its beginning.
        _lost_up_to(findings, behind[0].first_seq)
    return True
