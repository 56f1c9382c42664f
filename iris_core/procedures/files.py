"""Files that have to be there after a power cut, and work that one process does at a time."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_KEEP_SIZE: Final = 1
"""FALLOC_FL_KEEP_SIZE: the blocks lie beyond the end of the file, where no reader sees them."""


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


def allocate(descriptor: int, offset: int, size: int) -> None:
    """Give a file the blocks for bytes that are still to be written, so that the disk cannot be full for them; its size stays.

    Where the file system cannot do that, only looks whether there is room now. Raises OSError: there is none.
    """
    call = getattr(ctypes.CDLL(None, use_errno=True), "fallocate64", None)
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
        while call(descriptor, _KEEP_SIZE, offset, size) != 0:
            code = ctypes.get_errno()
            if code == errno.EINTR:
                continue
            if code in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                break
            raise OSError(code, os.strerror(code))
        else:
            return
    free = os.fstatvfs(descriptor)
    if free.f_bavail * free.f_frsize < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def digest_of(folder: Path) -> str:
    """A digest of the names and contents of every file below a folder; what an interpreter caches there does not count."""
    whole = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or (path.is_file() and "__pycache__" not in path.parts):
            content = os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes()
            whole.update(f"{path.relative_to(folder).as_posix()}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return whole.hexdigest()
