"""The few ways in which finelog touches the disk. Everything it creates is for its owner alone."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from iris_controller.finelog.steps import reached

if TYPE_CHECKING:
    from pathlib import Path


def create(path: Path) -> int:
    """A new file, opened for appending. Raises OSError, FileExistsError."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def write_all(descriptor: int, data: bytes) -> None:
    """Appends all of `data`. Raises OSError; part of it may have been written then."""
    written = os.write(descriptor, data)
    if written < len(data):
        rest = memoryview(data)
        while written < len(data):
            written += os.write(descriptor, rest[written:])


def read_at(descriptor: int, offset: int, length: int) -> bytes:
    """`length` bytes at `offset`, fewer at the end of the file. Raises OSError."""
    data = os.pread(descriptor, length, offset)
    while len(data) < length:
        more = os.pread(descriptor, length - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data


def sync_folder(folder: Path) -> None:
    """Makes names that were created or removed in `folder` durable. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, data: bytes) -> None:
    """`path` holds `data`, durably, or what it held before. Raises OSError."""
    scratch = path.with_name(f"{path.name}.tmp")
    with suppress(FileNotFoundError):
        scratch.unlink()
    descriptor = create(scratch)
    try:
        try:
            write_all(descriptor, data)
            reached("small file: written")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        reached("small file: on disk beside the old one")
        scratch.rename(path)
    except OSError:
        with suppress(OSError):
            scratch.unlink()
        raise
    reached("small file: renamed")
    sync_folder(path.parent)
