"""Files that have to be there after a power cut, and work that one process does at a time."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Wait for, and hold, a lock of this machine; the file stays."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write_durably(path: Path, data: bytes) -> None:
    """Write a new file and wait until it and its name are on the disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def digest_of(folder: Path) -> str:
    """A digest of the names and contents of every file below a folder; what an interpreter caches there does not count."""
    whole = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or (path.is_file() and "__pycache__" not in path.parts):
            content = os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes()
            whole.update(f"{path.relative_to(folder).as_posix()}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return whole.hexdigest()
